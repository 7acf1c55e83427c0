"""Names of element types as NumPy, TVM and the formats write them: `float32`, `bfloat16`, `bool`, `int4`."""

from __future__ import annotations

import re

__all__ = ["BYTES", "EIGHT_BITS", "FLOAT8", "bits_of", "element_bytes", "integer_range"]

BYTES = ("int8", "uint8")
"""Integers of 8 bits."""

FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
"""Floats of 8 bits that tensor cores multiply."""

EIGHT_BITS = (*BYTES, *FLOAT8)
"""Elements of 8 bits that tensor cores multiply, integers with integers and floats with floats."""


def bits_of(dtype: object) -> int:
    """The bits of an element of a type, given by its name or by what is written as it; booleans take a byte."""
    found = re.match(r"[a-z]+(\d+)", str(dtype))
    if found is not None:
        return int(found[1])
    if str(dtype) != "bool":
        raise ValueError(f"{dtype} is not an element type")
    return 8


def element_bytes(dtype: object) -> int:
    """The bytes that an element takes in memory; booleans and narrow integers take one each."""
    return max(1, bits_of(dtype) // 8)


def integer_range(dtype: str) -> tuple[int, int]:
    """Returns the min and max of an integer type; those of booleans are 0 and 1."""
    if dtype == "bool":
        return 0, 1
    bits = bits_of(dtype)
    return (0, (1 << bits) - 1) if dtype.startswith("uint") else (-(1 << (bits - 1)), (1 << (bits - 1)) - 1)
