"""Blocks of 256 elements whose parts of 16 or 32 have scales in few bits: Q2_K to Q6_K, IQ4_XS, TQ1_0, TQ2_0.

The scale of a part is an integer times a float of 16 bits, and so is the offset; products of both are exact in float32.
"""

from __future__ import annotations

import numpy as np

from nnefc.frontends.tensor_types.blocks_of_32 import IN_TABLE, NONLINEAR, from_table, nibbles
from nnefc.frontends.tensor_types.tensor_type import BlockCodes, Bytes, TensorType, at_offset
from nnefc.operators.base import Array
from nnefc.operators.nn.block_quantization import Multiples

__all__ = ["IQ4_XS", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "TQ1_0", "TQ2_0"]

_ELEMENTS = 256
_TWO_BITS = np.arange(0, 8, 2, dtype=np.uint8)


def _float_at(blocks: Bytes, offset: int) -> Array:
    return at_offset(blocks, offset, "<f2").astype(np.float32)


def _multiples(integers: Array, factor: Array) -> Multiples:
    return Multiples(integers.astype(np.int8), factor)


def _crumbs(part: Bytes) -> Bytes:
    """`[blocks, bytes]` as `[blocks, 4 · bytes]`: of each 32 bytes all lowest two bits, then the next ones, …"""
    groups = part.reshape(len(part), -1, 1, 32) >> _TWO_BITS[:, None] & np.uint8(3)
    return groups.reshape(len(part), -1)


def _scales_of_6_bits(part: Bytes) -> tuple[Bytes, Bytes]:
    """Returns the eight scales and the eight offsets in 12 bytes: the upper two bits of the last four lie apart."""
    low, middle, high = part[:, :4], part[:, 4:8], part[:, 8:]
    scales = np.concatenate([low & 63, high & 15 | low >> 6 << 4], 1)
    offsets = np.concatenate([middle & 63, high >> 4 | middle >> 6 << 4], 1)
    return scales, offsets


def _scales_and_offsets(blocks: Bytes) -> tuple[Multiples, Multiples]:
    """Returns those that begin a block of Q4_K or Q5_K."""
    scales, offsets = _scales_of_6_bits(blocks[:, 4:16])
    return _multiples(scales, _float_at(blocks, 0)), _multiples(offsets, -_float_at(blocks, 2))


def _nibbles_of_32_bytes(part: Bytes) -> Bytes:
    """Return the low nibbles of each 32 bytes, followed by the high ones."""
    return nibbles(part.reshape(len(part), -1, 32)).reshape(len(part), -1)


def _four_bits(blocks: Bytes) -> BlockCodes:
    return BlockCodes(4, _nibbles_of_32_bytes(blocks[:, 16:]), *_scales_and_offsets(blocks))


def _five_bits(blocks: Bytes) -> BlockCodes:
    """Decode blocks of five bits: as of four; bit `n` of 32 bytes is the fifth bit of elements from `32 n` on."""
    fifth = blocks[:, None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & np.uint8(1)
    codes = _nibbles_of_32_bytes(blocks[:, 48:]) | fifth.reshape(len(blocks), -1) << np.uint8(4)
    return BlockCodes(8, codes, *_scales_and_offsets(blocks))


def _six_bits(blocks: Bytes) -> BlockCodes:
    """Decode blocks of six bits: the lower four bits of 128 elements are 64 bytes, the upper two 32 bytes."""
    low = nibbles(blocks[:, :128].reshape(len(blocks), 2, 64)).reshape(len(blocks), -1)
    codes = (low | _crumbs(blocks[:, 128:192]) << np.uint8(4)) + np.uint8(128 - 32)
    return BlockCodes(8, codes, _multiples(at_offset(blocks, 192, "i1", 16), _float_at(blocks, 208)))


def _two_bits(blocks: Bytes) -> BlockCodes:
    scales = _multiples(blocks[:, :16] & 15, _float_at(blocks, 80))
    offsets = _multiples(blocks[:, :16] >> 4, -_float_at(blocks, 82))
    return BlockCodes(2, _crumbs(blocks[:, 16:80]), scales, offsets)


def _three_bits(blocks: Bytes) -> BlockCodes:
    """The third bits are 32 bytes as those of five bits; where one is 0, four is subtracted."""
    third = blocks[:, None, :32] >> np.arange(8, dtype=np.uint8)[:, None] & np.uint8(1)
    codes = (_crumbs(blocks[:, 32:96]) | third.reshape(len(blocks), -1) << np.uint8(2)) + np.uint8(8 - 4)
    upper = (blocks[:, None, 104:108] >> _TWO_BITS[:, None] & np.uint8(3)).reshape(len(blocks), -1)
    scales = (nibbles(blocks[:, 96:104]) | upper << np.uint8(4)).astype(np.int8) - np.int8(32)
    return BlockCodes(4, codes, _multiples(scales, _float_at(blocks, 108)))


def _nonlinear(blocks: Bytes) -> BlockCodes:
    """Codes of a table; the scales of 32 elements have 6 bits, of which the upper two lie apart."""
    upper = at_offset(blocks, 2, "<u2") >> np.arange(0, 16, 2, dtype=np.uint16) & np.uint16(3)
    low = np.stack([blocks[:, 4:8] & 15, blocks[:, 4:8] >> 4], 2).reshape(len(blocks), -1)
    scales = (low | upper.astype(np.uint8) << np.uint8(4)).astype(np.int8) - np.int8(32)
    codes = nibbles(blocks[:, 8:].reshape(len(blocks), -1, 16)).reshape(len(blocks), -1)
    return BlockCodes(8, from_table(codes, NONLINEAR), _multiples(scales, _float_at(blocks, 0)))


def _ternary(codes: Bytes, scale: Array) -> BlockCodes:
    """Returns -1, 0 and 1 times a scale, of the codes 0, 1 and 2, in blocks of 32."""
    return BlockCodes(4, codes + np.uint8(8 - 1), np.repeat(scale, _ELEMENTS // 32, 1))


def _ternary_of_two_bits(blocks: Bytes) -> BlockCodes:
    """Code 3 is of no encoder; it is 2."""
    return _ternary(_crumbs(blocks[:, :64]), at_offset(blocks, 64, "<f2"))


def _ternary_of_powers(blocks: Bytes) -> BlockCodes:
    """Five digits to the base 3 in a byte, as a fraction of 256; 32 bytes, then 16 of them, then 4 with four digits."""
    powers = np.array([1, 3, 9, 27, 81], np.uint8)[:, None]
    parts = [
        (blocks[:, None, start:end] * powers[:digits]).reshape(len(blocks), -1)
        for start, end, digits in ((0, 32, 5), (32, 48, 5), (48, 52, 4))
    ]
    codes = (np.concatenate(parts, 1).astype(np.uint16) * 3 >> 8).astype(np.uint8)
    return _ternary(codes, at_offset(blocks, 52, "<f2"))


Q2_K = TensorType("Q2_K", _ELEMENTS, 84, _two_bits, "2-bit blocks of 16 with offsets, exact")
Q3_K = TensorType("Q3_K", _ELEMENTS, 110, _three_bits, "4-bit blocks of 16, exact")
Q4_K = TensorType("Q4_K", _ELEMENTS, 144, _four_bits, "4-bit blocks with offsets, exact")
Q5_K = TensorType("Q5_K", _ELEMENTS, 176, _five_bits, "5-bit blocks with offsets, exact")
Q6_K = TensorType("Q6_K", _ELEMENTS, 210, _six_bits, "6-bit blocks of 16, exact")
IQ4_XS = TensorType("IQ4_XS", _ELEMENTS, 136, _nonlinear, IN_TABLE)
TQ1_0 = TensorType("TQ1_0", _ELEMENTS, 54, _ternary_of_powers, "4-bit blocks, exact")
TQ2_0 = TensorType("TQ2_0", _ELEMENTS, 66, _ternary_of_two_bits, "4-bit blocks, exact")
