"""Blocks of 64 or 128 elements of one, two or four bits: Q1_0, Q2_0, NVFP4."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.tensor_types.blocks_of_32 import IN_TABLE, four_bit_floats, nibbles
from nnefc.frontends.tensor_types.tensor_type import BlockCodes, Bytes, TensorType, at_offset
from nnefc.operators.base import Array
from nnefc.operators.nn.block_quantization import float_codes

__all__ = ["NVFP4", "Q1_0", "Q2_0"]

_MAX_E4M3 = 127
_PARTS = 4  # of a block of NVFP4, each with a scale


def _signs(blocks: Bytes) -> BlockCodes:
    """A bit of 1 is the scale, one of 0 its negative; the lowest bits of a byte come first."""
    scale = at_offset(blocks, 0, "<f2").astype(np.float32)
    codes = np.unpackbits(blocks[:, 2:], axis=1, bitorder="little")
    return BlockCodes(2, codes, 2 * scale, -scale)


def _two_bits(blocks: Bytes) -> BlockCodes:
    """Codes less 1, times the scale; the lowest bits of a byte come first."""
    scale = at_offset(blocks, 0, "<f2").astype(np.float32)
    codes = blocks[:, 2:, None] >> np.arange(0, 8, 2, dtype=np.uint8) & np.uint8(3)
    return BlockCodes(2, codes.reshape(len(blocks), -1), scale, -scale)


def _scales(codes: Bytes) -> Array:
    """Floats of 8 bits without a sign (E4M3); the code of NaN is 0."""
    return np.where(codes == _MAX_E4M3, np.float32(0), float_codes(codes & 127))


def _four_bits(blocks: Bytes) -> BlockCodes:
    """Four scales, then for each of them 16 floats of 4 bits in 8 bytes, the low nibbles before the high ones."""
    codes = nibbles(blocks[:, _PARTS:].reshape(len(blocks), _PARTS, -1)).reshape(len(blocks), -1)
    return four_bit_floats(codes, _scales(blocks[:, :_PARTS]) * np.float32(0.5))


Q1_0 = TensorType("Q1_0", 128, 18, _signs, "2-bit blocks with offsets, exact")
Q2_0 = TensorType("Q2_0", 64, 18, _two_bits, "2-bit blocks with offsets, exact")
NVFP4 = TensorType("NVFP4", 64, 36, _four_bits, IN_TABLE)
