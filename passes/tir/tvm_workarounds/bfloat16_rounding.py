"""Rounds what becomes bfloat16 in float32 first: TVM's own conversions round only what is stored, and lose NaN.

    y[i] = float32(bfloat16(x[i]))     →     y[i] = float32(bfloat16(rounded_to_bfloat16(x[i])))

`BF16ComputeLegalize` replaces bfloat16 by float32 in expressions, so that a conversion there and back is gone.
`BF16StorageLegalize` rounds by an addition that carries a NaN of many digits over to zero; one of few becomes infinity.
Both leave numbers that bfloat16 has as they are. Here ties go to the even one, and NaN stays NaN.
"""

from __future__ import annotations

import functools

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.passes.tir.common.intrinsics import register_pure_operator
from nnefc.passes.tir.tvm_workarounds.opaque import opaque

__all__ = ["round_to_bfloat16"]

_NAME = "nnefc.rounded_to_bfloat16"
_INFINITY = 0x7F800000
_QUIET = 0x00400000  # the leading digit of NaN


def round_to_bfloat16(stmt: tirx.Stmt) -> tirx.Stmt:
    """Returns the statements with every conversion to bfloat16 applied to an exactly representable number."""
    _register()
    return tvm_ffi.structural_map(stmt, (tirx.Cast, _of_rounded))


def _of_rounded(cast: tirx.Cast) -> tirx.Expr:
    if str(cast.expr_ty().dtype) != "bfloat16" or str(cast.value.expr_ty().dtype) == "bfloat16":
        return cast
    return tirx.call_intrin("float32", _NAME, cast.value.astype("float32")).astype("bfloat16")


@functools.cache
def _register() -> None:
    register_pure_operator(_NAME, "a float32 rounded to a number of bfloat16", _rounded)


def _rounded(call: tvm.ir.Call) -> tirx.Expr:
    """Round float32 to bfloat16 in integer arithmetic, lane by lane."""
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)

    def typed(name: str) -> str:
        return f"{name}x{lanes}" if lanes > 1 else name

    def number(value: int) -> tirx.Expr:
        return tirx.Broadcast(tirx.const(value, "uint32"), lanes) if lanes > 1 else tirx.const(value, "uint32")

    value = opaque(tirx.reinterpret(typed("uint32"), call.args[0]))  # as it is, wherever TVM meets the binding again
    bits = tirx.Var("bits", value.expr_ty())
    nearest = bits + number(0x7FFF) + ((bits >> number(16)) & number(1))
    is_nan = (bits & number(0x7FFFFFFF)) > number(_INFINITY)
    rounded = tirx.Select(is_nan, bits | number(_QUIET), nearest) & number(0xFFFF0000)
    return tirx.Let(bits, value, tirx.reinterpret(typed("float32"), rounded))
