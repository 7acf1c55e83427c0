"""Types that are decoded to floats, and rounded again to 8 bits in blocks of 32.

The rounding error is at most a 254th of the largest element of its block: a hundredth of the step between the numbers
that these types can hold.
"""

from __future__ import annotations

import numpy as np

from nnefc.frontends.tensor_types.tensor_type import BlockCodes, Bytes, TensorType
from nnefc.operators.base import Array
from nnefc.support.diagnostics import CompileError

__all__ = ["REQUANTIZED", "in_eight_bits"]

_BLOCK = 32


def in_eight_bits(values: Array) -> BlockCodes:
    """Returns floats, `[rows, elements]`, as signed bytes with a float32 scale for each 32 elements."""
    parts = values.reshape(len(values), -1, _BLOCK)
    largest = np.abs(parts).max(-1)
    scales = (largest / 127).astype(np.float32)
    with np.errstate(divide="ignore", invalid="ignore"):
        rounded = np.rint(parts / scales[..., None])
    codes = np.where(scales[..., None] > 0, np.clip(rounded, -127, 127), 0) + 128
    return BlockCodes(8, codes.astype(np.uint8).reshape(values.shape), scales)


def _decoded(name: str, blocks: Bytes) -> Array:
    """Returns the numbers that package gguf decodes blocks to.

    Raises:
        CompileError: the package is not installed.
    """
    try:
        from gguf import GGMLQuantizationType
        from gguf.quants import dequantize
    except ImportError:
        raise CompileError(
            f"tensors of the type {name} are decoded by the package gguf, which is not installed",
            hint="pip install 'nnefc[llm]'",
        ) from None
    with np.errstate(all="ignore"):
        found: Array = dequantize(blocks, GGMLQuantizationType[name])
    return found.reshape(len(blocks), -1)


def _requantized(name: str, elements: int, block_bytes: int) -> TensorType:
    def decode(blocks: Bytes) -> BlockCodes:
        return in_eight_bits(_decoded(name, blocks))

    return TensorType(name, elements, block_bytes, decode, "8-bit blocks, within 1/254 of a block's largest element")


_SIZES = {
    "IQ2_XXS": (256, 66),
    "IQ2_XS": (256, 74),
    "IQ2_S": (256, 82),
    "IQ3_XXS": (256, 98),
    "IQ3_S": (256, 110),
    "IQ1_S": (256, 50),
    "IQ1_M": (256, 56),
}
"""Elements and bytes of a block."""

REQUANTIZED = {name: _requantized(name, *sizes) for name, sizes in _SIZES.items()}
