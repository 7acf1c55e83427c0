"""Converts matrices of floats to integers in blocks of 32 elements, for `--quantize`."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnefc.operators.base import Array
from nnefc.operators.nn.block_quantization import BlockTensor, packed

__all__ = ["QUANTIZATIONS", "can_be_rounded", "in_eight_bits", "in_four_bits"]

_BLOCK = 32
_SMALLEST, _LARGEST = float(np.finfo(np.float16).tiny), float(np.finfo(np.float16).max)


def in_eight_bits(matrix: Array) -> BlockTensor:
    """Returns signed bytes with one scale: the error is at most a 250th of the largest element of its block."""
    parts = matrix.reshape(len(matrix), -1, _BLOCK)
    scales = _narrow(np.abs(parts).max(-1) / 127)
    codes = np.clip(_divided(parts, scales), -127, 127) + 128
    return BlockTensor(matrix.shape, 8, packed(codes.astype(np.uint8), 8), scales)


def in_four_bits(matrix: Array) -> BlockTensor:
    """Returns integers from 0 to 15 with a scale and an offset: an error of a 29th of their range at most.

    The rounding of the offset to 16 bits adds up to a 1,000th of the largest element.
    """
    parts = matrix.reshape(len(matrix), -1, _BLOCK)
    lowest = parts.min(-1)
    scales = _narrow((parts.max(-1) - lowest) / 15)
    offsets = lowest.astype(scales.dtype if np.abs(lowest).max() <= _LARGEST else np.float32)
    codes = np.clip(_divided(parts - offsets.astype(np.float32)[..., None], scales), 0, 15)
    return BlockTensor(matrix.shape, 4, packed(codes.astype(np.uint8), 4), scales, offsets)


def _narrow(values: Array) -> Array:
    """Returns scales in 16 bits, or in 32 where one of them is too small or too large for that."""
    size = np.abs(values)
    fits = (size == 0) | ((size >= _SMALLEST) & (size <= _LARGEST))
    return values.astype(np.float16 if fits.all() else np.float32)


def _divided(parts: Array, scales: Array) -> Array:
    """Returns how many steps elements are; 0 where a step is 0."""
    wide = scales.astype(np.float32)[..., None]
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(wide > 0, np.rint(parts / wide), 0)


QUANTIZATIONS: dict[str, Callable[[Array], BlockTensor]] = {"q8": in_eight_bits, "q4": in_four_bits}
"""Quantizations by their names as options."""


def can_be_rounded(label: str, shape: tuple[int, ...]) -> bool:
    """Returns whether a tensor is a matrix with full blocks; routers, whose scores choose experts, stay floats."""
    is_router = "ffn_gate_inp" in label or "router" in label
    return len(shape) == 2 and shape[0] > 1 and shape[1] % _BLOCK == 0 and not is_router
