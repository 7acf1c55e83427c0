"""Converts to and from float16 by integer operations, for machines without conversion instructions.

    y[i] = float16(a[i])     →     y[i] = the bits of a[i], rounded to 11 digits and with the exponent of float16

LLVM calls a function for each element there; for WebAssembly it never ends on some kernels that narrow. The
conversion here uses only operations that vectors have everywhere. It rounds to even, and keeps infinities and NaN.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm_ffi
from tvm import tirx

__all__ = ["lower_fp16_conversions"]

_REBIAS = (127 - 15) << 23  # from the exponent of float16 to that of float32
_SMALLEST_NORMAL = 113 << 23  # 2⁻¹⁴ as float32
_TOO_LARGE = (127 + 16) << 23  # 2¹⁶ as float32
_INFINITY = 255 << 23
_HALF = 126 << 23  # 0.5 as float32: its ULP is that of float16's subnormal numbers


def lower_fp16_conversions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled kernel without conversions between float16 and float32."""
    return tvm_ffi.structural_map(func, (tirx.Cast, _converted))


def _converted(cast: tirx.Cast) -> tirx.Expr:
    source, target = (str(e.expr_ty().dtype) for e in (cast.value, cast))
    if source == "float16" and target != "float16":
        wide = _extended(cast.value)
        return wide if target == "float32" else wide.astype(target)
    if target == "float16" and source not in ("float16", "float64"):
        return _rounded_to_fp16(cast.value.astype("float32"))
    return cast


def _named(bits: tirx.Expr, name: str, body: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
    var = tirx.Var(name, bits.expr_ty())
    return tirx.Let(var, bits, body(var))


def _int(value: int) -> tirx.Expr:
    return tirx.const(value, "int32")


def _extended(half: tirx.Expr) -> tirx.Expr:
    def of(bits: tirx.Expr) -> tirx.Expr:
        sign, tail = (bits & _int(0x8000)) << _int(16), bits & _int(0x7FFF)
        moved = (tail << _int(13)) + _int(_REBIAS)
        largest = tirx.Select(tail >= _int(0x7C00), moved + _int(_REBIAS), moved)  # infinity or NaN
        tiny = tirx.reinterpret("int32", tail.astype("float32") * tirx.const(2.0**-24, "float32"))
        return tirx.reinterpret("float32", tirx.Select(tail < _int(0x0400), tiny, largest) | sign)

    return _named(tirx.reinterpret("uint16", half).astype("int32"), "half", of)


def _rounded_to_fp16(single: tirx.Expr) -> tirx.Expr:
    def of(bits: tirx.Expr) -> tirx.Expr:
        sign, tail = (bits >> _int(16)) & _int(0x8000), bits & _int(0x7FFFFFFF)
        even = tirx.Min(tail, _int(_INFINITY)) + _int(0x0FFF) + ((tail >> _int(13)) & _int(1))  # without overflow
        normal = (even - _int(_REBIAS)) >> _int(13)
        shifted = tirx.reinterpret("float32", tail) + tirx.const(0.5, "float32")
        tiny = tirx.reinterpret("int32", shifted) - _int(_HALF)
        large = tirx.Select(tail > _int(_INFINITY), _int(0x7E00), _int(0x7C00))
        finite = tirx.Select(tail < _int(_SMALLEST_NORMAL), tiny, normal)
        return (tirx.Select(even >= _int(_TOO_LARGE), large, finite) | sign).astype("uint16")

    return tirx.reinterpret("float16", _named(tirx.reinterpret("int32", single), "single", of))
