"""Round to integers by the conversion itself, where an instruction does both.

    int32(nearbyint(x))                             →     converted(x)
    uint8(int32(nearbyint(min(255, max(0, x)))))    →     uint8(min(255, uint32(converted(max(0, x)))))

One instruction takes the place of three. What int32 does not hold becomes its least number on x86, 2³¹ without a sign,
and the nearest one elsewhere: a limit of 255 that comes after the conversion cuts both as well, and vectors are cut to
bytes while they become bytes.
"""

from __future__ import annotations

import functools

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.passes.tir.expressions import is_number
from nnefc.passes.tir.pure_operators import register_pure_operator

__all__ = ["use_rounding_conversions", "with_rounding_conversions"]

_NAMES = {"x86_64": "nnefc.converted", "aarch64": "nnefc.converted_to_even", "riscv64": "nnefc.converted_as_set"}
_MOST = 255
_BY_LANES = {8: "llvm.x86.avx.cvt.ps2dq.256", 4: "llvm.x86.sse2.cvtps2dq"}
_WIDEST, _OF_WIDEST = 16, "llvm.x86.avx512.mask.cvtps2dq.512"
_ON_ARM = {1: ".i32.f32", 2: ".v2i32.v2f32", 4: ".v4i32.v4f32"}
_CURRENT = 4  # direction of rounding: that of the thread, to even


def with_rounding_conversions(func: tirx.PrimFunc, architecture: str) -> tirx.PrimFunc:
    """A scheduled kernel that rounds so; for one of the instruction sets of `Target.converts_rounding`."""
    converted = functools.partial(tirx.call_intrin, "int32", _NAMES[architecture])

    def change(cast: tirx.Cast) -> tirx.Expr:
        dtype = str(cast.expr_ty().dtype)
        if dtype == "uint8" and (inner := _cut_to_bytes(cast.value)) is not None:
            most = tirx.const(_MOST, "uint32")
            return tirx.Cast("uint8", tirx.Min(tirx.Cast("uint32", converted(inner)), most))
        rounded = _rounded(cast) if dtype == "int32" else None
        return cast if rounded is None else converted(rounded)

    return tvm_ffi.structural_map(func, (tirx.Cast, change))


def _rounded(expr: tirx.Expr) -> tirx.Expr | None:
    """What `expr` is the rounded int32 of."""
    if isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "") in _NAMES.values():
        return expr.args[0]
    if not isinstance(expr, tirx.Cast) or str(expr.expr_ty().dtype) != "int32":
        return None
    inner = expr.value
    is_call = isinstance(inner, tvm.ir.Call) and getattr(inner.op, "name", "") == "tirx.nearbyint"
    return inner.args[0] if is_call and str(inner.expr_ty().dtype) == "float32" else None


def _cut_to_bytes(expr: tirx.Expr) -> tirx.Expr | None:
    """What `expr` is the rounded int32 of, cut to bytes, without the upper limit."""
    match _rounded(expr):
        case tirx.Min(a=most, b=tirx.Max(a=least, b=_) as inner) if is_number(most, _MOST) and is_number(least, 0):
            return inner
    return None


@functools.cache  # TVM refuses a second registration
def use_rounding_conversions() -> None:
    """Make the operator known to TVM, and its code generator for CPUs, in this process."""
    for name, lowering in zip(_NAMES.values(), (_on_x86, _on_arm, _on_riscv), strict=True):
        register_pure_operator(name, "a float32 rounded to int32", lowering)


def _on_x86(call: tvm.ir.Call) -> tirx.Expr:
    (x,) = call.args
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    if lanes == _WIDEST:
        nothing, all_lanes = tirx.Broadcast(tirx.const(0, "int32"), lanes), tirx.const(-1, "int16")
        rest = nothing, all_lanes, tirx.const(_CURRENT, "int32")
        return tirx.call_llvm_pure_intrin(f"int32x{lanes}", _OF_WIDEST, x, *rest)
    if lanes in _BY_LANES:
        return tirx.call_llvm_pure_intrin(f"int32x{lanes}", _BY_LANES[lanes], x)
    return tirx.nearbyint(x).astype(str(call.expr_ty().dtype))


def _on_arm(call: tvm.ir.Call) -> tirx.Expr:
    """By four lanes, or fewer."""
    (x,) = call.args
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    if lanes in _ON_ARM:
        return tirx.call_llvm_pure_intrin(str(call.expr_ty().dtype), f"llvm.aarch64.neon.fcvtns{_ON_ARM[lanes]}", x)
    if lanes % 4:
        return tirx.nearbyint(x).astype(str(call.expr_ty().dtype))
    parts = [tirx.Shuffle([x], list(range(first, first + 4))) for first in range(0, lanes, 4)]
    made = [tirx.call_llvm_pure_intrin("int32x4", f"llvm.aarch64.neon.fcvtns{_ON_ARM[4]}", part) for part in parts]
    return tirx.Shuffle(made, list(range(lanes)))


def _on_riscv(call: tvm.ir.Call) -> tirx.Expr:
    """As the thread rounds, to even."""
    dtype = str(call.expr_ty().dtype)
    lanes = int(tvm.DataType(dtype).lanes)
    if lanes == 1:
        return tirx.nearbyint(*call.args).astype(dtype)
    return tirx.call_llvm_pure_intrin(dtype, f"llvm.lrint.v{lanes}i32.v{lanes}f32", *call.args)
