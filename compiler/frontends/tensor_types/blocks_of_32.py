"""Blocks of 32 elements with one scale, and perhaps an offset: Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, IQ4_NL, MXFP4."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from nnefc.frontends.tensor_types.tensor_type import BlockCodes, Bytes, TensorType, at_offset
from nnefc.operators.base import Array

__all__ = [
    "IN_TABLE",
    "IQ4_NL",
    "MXFP4",
    "NONLINEAR",
    "Q4_0",
    "Q4_0_PAIRS",
    "Q4_1",
    "Q5_0",
    "Q5_1",
    "Q8_0",
    "Q8_1",
    "four_bit_floats",
    "half_powers_of_two",
    "nibbles",
]

_ELEMENTS = 32
_HALF = np.uint8(0x80)

IN_TABLE = "4-bit codes of a table, exact"
"""How the compiler keeps bytes that are 16 different ones at most, where an instruction looks them up."""

NONLINEAR = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.int8)
"""The numbers that codes of IQ4_NL and IQ4_XS stand for, times the scale."""

_E2M1 = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
"""Twice the numbers of a float of 4 bits (Open Compute Project, "Microscaling Formats", 2023)."""


def nibbles(part: Bytes) -> Bytes:
    """`[…, bytes]` as `[…, 2 · bytes]`: the low nibbles of all bytes come before the high ones."""
    return np.concatenate([part & 15, part >> 4], -1)


def _fifth_bits(blocks: Bytes, offset: int) -> Bytes:
    """Returns the bits, `[blocks, 32]`, that a word of each block has for its elements, as 16."""
    return np.unpackbits(blocks[:, offset : offset + 4], axis=1, bitorder="little") << np.uint8(4)


def _with_scale(
    name: str, block_bytes: int, bits: int, codes: Callable[[Bytes], Bytes], computed: str = ""
) -> TensorType:
    """Returns a type whose blocks begin with a scale of 16 bits."""

    def decode(blocks: Bytes) -> BlockCodes:
        return BlockCodes(bits, codes(blocks), at_offset(blocks, 0, "<f2"))

    return TensorType(name, _ELEMENTS, block_bytes, decode, computed or f"{bits}-bit blocks, exact")


def _with_offset(
    name: str, block_bytes: int, bits: int, codes: Callable[[Bytes], Bytes], computed: str = ""
) -> TensorType:
    """Returns a type whose blocks begin with a scale and an offset of 16 bits."""

    def decode(blocks: Bytes) -> BlockCodes:
        return BlockCodes(bits, codes(blocks), at_offset(blocks, 0, "<f2"), at_offset(blocks, 2, "<f2"))

    return TensorType(name, _ELEMENTS, block_bytes, decode, computed or f"{bits}-bit blocks with offsets, exact")


def _signed(start: int) -> Callable[[Bytes], Bytes]:
    """Signed bytes, of which half the range is subtracted after they are read."""
    return lambda blocks: np.ascontiguousarray(blocks[:, start:]) ^ _HALF


def _pairs(blocks: Bytes) -> Bytes:
    """Return the elements of blocks whose bytes hold neighbouring elements: the order of tract before 0.21.11."""
    return np.stack([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], 2).reshape(len(blocks), _ELEMENTS)


def from_table(codes: Bytes, table: Array) -> Bytes:
    """Returns the numbers that codes stand for as bytes of which half the range is subtracted."""
    return (table.view(np.uint8) ^ _HALF)[codes]


def half_powers_of_two(exponents: Bytes) -> Array:
    """Returns 2^(e - 128) for exponents e, half of the 8-bit floats of MX formats: all are finite in float32."""
    return np.ldexp(np.float32(1), exponents.astype(np.int32) - 128).astype(np.float32)


def four_bit_floats(codes: Bytes, half_scales: Array) -> BlockCodes:
    """Returns floats of 4 bits, `[blocks, elements]`, times a scale for each block, of which half is given.

    The numbers are doubled, so that they are integers.
    """
    return BlockCodes(8, from_table(codes, _E2M1), half_scales)


Q4_0 = _with_scale("Q4_0", 18, 4, lambda blocks: nibbles(blocks[:, 2:]))
Q4_0_PAIRS = _with_scale("Q4_0 in pairs", 18, 4, _pairs)
Q4_1 = _with_offset("Q4_1", 20, 4, lambda blocks: nibbles(blocks[:, 4:]))
Q5_0 = _with_scale(
    "Q5_0",
    22,
    8,
    lambda blocks: (nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)) + np.uint8(128 - 16),
    "5-bit blocks, exact",
)
Q5_1 = _with_offset(
    "Q5_1",
    24,
    8,
    lambda blocks: nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4),
    "5-bit blocks with offsets, exact",
)
Q8_0 = _with_scale("Q8_0", 34, 8, _signed(2))
Q8_1 = _with_scale("Q8_1", 36, 8, _signed(4))  # the sum after the scale is not needed
IQ4_NL = _with_scale("IQ4_NL", 18, 8, lambda blocks: from_table(nibbles(blocks[:, 2:]), NONLINEAR), IN_TABLE)
MXFP4 = TensorType(
    "MXFP4",
    _ELEMENTS,
    17,
    lambda blocks: four_bit_floats(nibbles(blocks[:, 1:]), half_powers_of_two(blocks[:, :1])),
    IN_TABLE,
)
