"""Maps element types of TIR to types and literals of C99."""

from __future__ import annotations

import math

import numpy as np
from tvm.ir import PointerType, Type

from nnefc.support.diagnostics import CompileError

__all__ = [
    "FLOATS",
    "is_narrow",
    "is_signed",
    "literal",
    "pointee",
    "storage_type",
    "value_type",
]

_INTEGERS = {f"{sign}int{bits}": f"{sign}int{bits}_t" for sign in ("", "u") for bits in (8, 16, 32, 64)}
_STORED = {
    **_INTEGERS,
    "bool": "int8_t",
    "float16": "uint16_t",
    "bfloat16": "uint16_t",
    "float32": "float",
    "float64": "double",
}

FLOATS = {"float32": "float", "float64": "double"}
"""Float types with arithmetic in C; float16 is stored as bits, and converted by functions."""

_NARROW = frozenset({"int8", "int16", "uint8", "uint16"})

_BITS_OF_SPECIALS = {"float32": ("nnefc__float_of_bits", "u"), "float64": ("nnefc__double_of_bits", "ull")}


def storage_type(dtype: str) -> str:
    """Returns the type of elements in memory.

    Raises:
        CompileError: C has no such type.
    """
    found = _STORED.get(dtype)
    if found is None:
        raise CompileError(
            f"C source has no elements of the type {dtype}", hint="compile a static library: -t cortex-m4 -o NAME.a"
        )
    return found


def value_type(dtype: str) -> str:
    """Return the type of a variable; that of a comparison's result is `int`."""
    return "int" if dtype == "bool" else storage_type(dtype)


def is_narrow(dtype: str) -> bool:
    """Return whether C promotes the type to `int` in arithmetic, so that results have to be converted back."""
    return dtype in _NARROW


def is_signed(dtype: str) -> bool:
    """Returns whether a type is one of signed integers."""
    return dtype.startswith("int")


def pointee(ty: Type) -> str:
    """Return the type of the elements of a pointer; `void` for an untyped one."""
    element = getattr(ty, "element_type", None) if isinstance(ty, PointerType) else None
    dtype = str(getattr(element, "dtype", "void")) if element is not None else "void"
    return "void" if dtype in ("void", "", "handle") else dtype


def literal(value: float, dtype: str) -> str:
    """Return a literal; floats have the fewest digits that identify them.

    Infinities and NaN are made from their bits by functions of `helpers.py`: C99 has constants for them only in
    `math.h`.
    """
    if dtype == "bool":
        return "1" if value else "0"
    if dtype == "float16":
        return str(int(np.float16(value).view(np.uint16)))
    if dtype == "bfloat16":
        bits = int(np.float32(value).view(np.uint32))
        return str((bits + 0x7FFF + (bits >> 16 & 1)) >> 16)
    if dtype in FLOATS:
        return _float_literal(float(value), dtype)
    return _integer_literal(int(value), dtype)


def _float_literal(value: float, dtype: str) -> str:
    single = dtype == "float32"
    if not math.isfinite(value):
        function, suffix = _BITS_OF_SPECIALS[dtype]
        bits = np.float32(value).view(np.uint32) if single else np.float64(value).view(np.uint64)
        return f"{function}(0x{int(bits):x}{suffix})"
    digits = str(np.float32(value)) if single else repr(value)
    if not any(letter in digits for letter in ".e"):
        digits += ".0"
    return f"{digits}f" if single else digits


def _integer_literal(value: int, dtype: str) -> str:
    bits = int(dtype.lstrip("uint"))
    if not is_signed(dtype):
        return f"{value}{'' if bits < 32 else 'u' if bits == 32 else 'ull'}"
    if bits >= 32 and value == -(1 << (bits - 1)):
        return f"({value + 1}{'' if bits == 32 else 'll'} - 1)"
    return str(value) if -(1 << 31) <= value < 1 << 31 else f"{value}ll"
