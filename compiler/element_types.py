"""Element types by their names, as NumPy, TVM and the formats write them: `float32`, `bfloat16`, `bool`, `int4`."""

from __future__ import annotations

import re

__all__ = ["bits_of", "item_bytes"]


def bits_of(dtype: str) -> int:
    """The bits of an element; booleans take a byte."""
    if dtype == "bool":
        return 8
    found = re.match(r"[a-z]+(\d+)", dtype)
    if found is None:
        raise ValueError(f"{dtype!r} is no type of elements")
    return int(found[1])


def item_bytes(dtype: str) -> int:
    """The bytes that an element takes in memory; booleans and narrow integers take one each."""
    return max(1, bits_of(dtype) // 8)
