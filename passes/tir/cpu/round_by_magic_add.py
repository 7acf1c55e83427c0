"""Rounds to whole numbers by adding and subtracting a magic number, for machines without a rounding instruction.

    y[i] = nearbyint(x[i])     →     m = |x[i]|;  y[i] = m < 2²³ ? the sign of x[i] and (m + 2²³) - 2²³ : x[i]

LLVM calls a function for each element there. From 2²³ on all float32 are whole; below, the sum with it is rounded to a
whole number as all sums are, to even. NaN, infinities and the sign of zero stay so.
"""

from __future__ import annotations

import tvm
import tvm_ffi
from tvm import tirx

__all__ = ["round_by_magic_add"]

_WHOLE = float(1 << 23)
_SIGN = -1 << 31


def round_by_magic_add(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled kernel in which float32 are rounded by additions."""
    return tvm_ffi.structural_map(func, (tvm.ir.Call, _added))


def _added(call: tvm.ir.Call) -> tirx.Expr:
    if getattr(call.op, "name", "") != "tirx.nearbyint" or str(call.expr_ty().dtype) != "float32":
        return call
    value = tirx.Var("value", "int32")
    sign, number = value & tirx.const(_SIGN, "int32"), tirx.reinterpret("float32", value)
    size = tirx.reinterpret("float32", value & tirx.const(~_SIGN, "int32"))
    whole = tirx.const(_WHOLE, "float32")
    moved = tirx.reinterpret("float32", tirx.reinterpret("int32", size + whole))  # TVM would find that nothing is added
    rounded = tirx.reinterpret("float32", tirx.reinterpret("int32", moved - whole) | sign)
    return tirx.Let(value, tirx.reinterpret("int32", call.args[0]), tirx.Select(size < whole, rounded, number))
