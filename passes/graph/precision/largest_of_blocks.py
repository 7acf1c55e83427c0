"""Bounds the elements of a matrix that is stored in blocks, from the scales of the blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from nnefc.ir.attributes import ADDS_OFFSETS, DEQUANTIZES_BLOCKS, FLOAT_BLOCKS
from nnefc.operators.nn.block_quantization import float_codes, with_factors

__all__ = ["largest_of_blocks"]

_LARGEST_FLOAT = float_codes(np.array([0x7E], np.uint8))


def largest_of_blocks(attributes: Mapping[str, Any], tensors: Sequence[npt.NDArray[Any]]) -> float:
    """Returns a magnitude that no element of a matrix in blocks exceeds.

    Args:
        attributes: of the kernel that dequantizes it.
        tensors: the kernel's operands: the codes, then the scales and what else there is.
    """
    bits, (_, *others) = int(attributes[DEQUANTIZES_BLOCKS]), tensors
    if bits == 0:  # codes are positions in a table
        scales, table = others
        return _largest(scales) * _largest(table)
    scales, *points = map(_floats_of, with_factors(others))
    last = (1 << bits) - 1
    if FLOAT_BLOCKS in attributes:
        ends = [scales * _LARGEST_FLOAT]
    elif ADDS_OFFSETS in attributes:
        ends = [points[0], points[0] + scales * last]
    else:
        zero = points[0] if points else np.float32(1 << (bits - 1))
        ends = [scales * zero, scales * (last - zero)]
    return max(map(_largest, ends))


def _floats_of(parts: Sequence[npt.NDArray[Any]]) -> npt.NDArray[np.float32]:
    """Returns the scale of each block in float32, multiplied by the factor of its group if there are such factors."""
    numbers, *factors = (part.astype(np.float32) for part in parts)
    for factor in factors:
        numbers = numbers * np.repeat(factor, numbers.shape[1] // factor.shape[1], axis=1)
    return numbers


def _largest(numbers: npt.NDArray[Any]) -> float:
    return float(np.max(np.abs(numbers), initial=0, where=np.isfinite(numbers)))
