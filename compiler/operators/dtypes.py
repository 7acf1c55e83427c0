"""Element types: their names, their storage types, and the types that they are computed in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import ml_dtypes
import numpy as np

__all__ = [
    "FLOAT16_TYPES",
    "STORAGE",
    "Kind",
    "dtype_name",
    "is_float",
    "is_of",
    "is_signed",
    "numpy_dtype",
    "promoted_type",
]

STORAGE: Mapping[str, str] = {
    **dict.fromkeys(("int4", "int2"), "int8"),
    **dict.fromkeys(("uint4", "uint2"), "uint8"),
    **dict.fromkeys(("float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float8_e8m0fnu"), "uint8"),
    **dict.fromkeys(("float6_e2m3fn", "float6_e3m2fn", "float4_e2m1fn"), "uint8"),
    "string": "int64",
}
"""Element types that no machine computes with, and what the program keeps them in.

Narrow integers are kept as their values, narrow floats as their bit patterns, one element a byte. Strings are kept as
handles, numbers that only functions of the runtime understand: `targets/runtime/text/text.h`.
"""

Kind: TypeAlias = Literal["booleans", "integers", "floating-point numbers"]
"""Kinds of element types; each holds the numbers of those before it."""

FLOAT16_TYPES = ("float16", "bfloat16")
"""Element types that are computed in float32."""

_OWN = {name: np.dtype(getattr(ml_dtypes, name)) for name in ("bfloat16", *STORAGE) if name != "string"}


def dtype_name(dtype: np.dtype[Any]) -> str:
    """The name of an element type as NumPy, ml_dtypes and TVM spell it; `string` for objects."""
    return "string" if dtype == np.dtype(object) else str(dtype)


def numpy_dtype(name: str) -> np.dtype[Any]:
    """The element type with this name; objects for `string`."""
    if name == "string":
        return np.dtype(object)
    return _OWN[name] if name in _OWN else np.dtype(name)


def is_float(dtype: str) -> bool:
    """Returns whether a type is one of the floating-point types."""
    return "float" in dtype


def is_of(dtype: str, minimum: Kind) -> bool:
    """Returns whether a type is of a kind, or of one that holds its numbers."""
    return is_float(dtype) or minimum == "booleans" or (minimum == "integers" and dtype != "bool")


def is_signed(dtype: str) -> bool:
    """Returns whether a type has negative values."""
    return dtype != "bool" and not dtype.startswith("uint")


def promoted_type(dtype: str) -> str:
    """The type that a type is computed in."""
    return "float32" if dtype in FLOAT16_TYPES or dtype.startswith("float8") else dtype
