"""Round to integers by the conversion itself, where an instruction does both.

    int32(nearbyint(x))                             →     converted(x)
    int32(max(min(nearbyint(x) + 3, 255), 0))       →     converted(max(-3, min(252, x))) + 3
    uint8(int32(nearbyint(min(255, max(0, x)))))    →     uint8(min(255, uint32(converted(max(0, x)))))

One instruction takes the place of three. What int32 does not hold becomes its least number on x86, 2³¹ without a sign,
and the nearest one elsewhere: a limit of 255 that comes after the conversion cuts both as well, and vectors are cut to
bytes while they become bytes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.passes.tir.expressions import in_parts, is_number
from nnefc.passes.tir.pure_operators import register_pure_operator

__all__ = ["use_rounding_conversions", "with_rounding_conversions"]

_NAMES = {
    "x86_64": "nnefc.converted_by_{lanes}",
    "aarch64": "nnefc.converted_to_even",
    "riscv64": "nnefc.converted_as_set",
}
_CONVERTED = "nnefc.converted_"
_MOST = 255
_LARGEST = 1 << 20
_X86 = {16: "llvm.x86.avx512.mask.cvtps2dq.512", 8: "llvm.x86.avx.cvt.ps2dq.256", 4: "llvm.x86.sse2.cvtps2dq"}
"""Instructions by lanes, and of how many lanes the one is that takes a mask."""
_MASKED = 16
_ON_ARM = {1: ".i32.f32", 2: ".v2i32.v2f32", 4: ".v4i32.v4f32"}
_CURRENT = 4  # direction of rounding: that of the thread, to even


def with_rounding_conversions(func: tirx.PrimFunc, architecture: str, lanes: int) -> tirx.PrimFunc:
    """A scheduled kernel that rounds so; for one of the instruction sets of `Target.converts_rounding`.

    Args:
        lanes: of a register of float32.
    """
    converted = functools.partial(tirx.call_intrin, "int32", _NAMES[architecture].format(lanes=lanes))

    def change(cast: tirx.Cast) -> tirx.Expr:
        dtype = str(cast.expr_ty().dtype)
        if dtype == "uint8" and (inner := _cut_to_bytes(cast.value)) is not None:
            most = tirx.const(_MOST, "uint32")
            return tirx.Cast("uint8", tirx.Min(tirx.Cast("uint32", converted(inner)), most))
        if dtype != "int32":
            return cast
        rounded = _rounded(cast)
        if rounded is not None:
            return converted(rounded)
        cut = _cut_after(cast.value)
        return cast if cut is None else cut.as_integer(converted)

    return tvm_ffi.structural_map(func, (tirx.Cast, change))


def _rounded(expr: tirx.Expr) -> tirx.Expr | None:
    """What `expr` is the rounded int32 of."""
    if isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "").startswith(_CONVERTED):
        return expr.args[0]
    if not isinstance(expr, tirx.Cast) or str(expr.expr_ty().dtype) != "int32":
        return None
    inner = expr.value
    is_call = isinstance(inner, tvm.ir.Call) and getattr(inner.op, "name", "") == "tirx.nearbyint"
    return inner.args[0] if is_call and str(inner.expr_ty().dtype) == "float32" else None


@dataclass(frozen=True)
class _Cut:
    """A number that is rounded, moved by a whole one and cut to whole limits."""

    number: tirx.Expr
    zero: int
    low: int
    high: int

    def as_integer(self, converted: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
        """Cut first, so that what is converted fits."""
        low, high = (tirx.const(float(limit - self.zero), "float32") for limit in (self.low, self.high))
        whole = converted(tirx.Min(high, tirx.Max(low, self.number)))
        return whole + tirx.const(self.zero, "int32") if self.zero else whole


def _cut_after(expr: tirx.Expr) -> _Cut | None:
    """A float that is such a number."""
    if not isinstance(expr, tirx.Max) or not isinstance(expr.a, tirx.Min):
        return None
    inner, low, high = expr.a.a, _whole(expr.b), _whole(expr.a.b)
    zero: int | None = 0
    if isinstance(inner, tirx.Add):
        inner, zero = inner.a, _whole(inner.b)
    is_call = isinstance(inner, tvm.ir.Call) and getattr(inner.op, "name", "") == "tirx.nearbyint"
    if not is_call or low is None or high is None or zero is None or str(inner.expr_ty().dtype) != "float32":
        return None
    return _Cut(inner.args[0], zero, low, high)


def _whole(expr: tirx.Expr) -> int | None:
    """A constant that is a whole number, which float32 holds with those around it."""
    while isinstance(expr, tirx.Cast):
        expr = expr.value
    if not isinstance(expr, tirx.FloatImm | tirx.IntImm) or not abs(expr.value) <= _LARGEST:
        return None
    return int(expr.value) if int(expr.value) == expr.value else None


def _cut_to_bytes(expr: tirx.Expr) -> tirx.Expr | None:
    """What `expr` is the rounded int32 of, cut to bytes, without the upper limit."""
    match _rounded(expr):
        case tirx.Min(a=most, b=tirx.Max(a=least, b=_) as inner) if is_number(most, _MOST) and is_number(least, 0):
            return inner
    return None


@functools.cache  # TVM refuses a second registration
def use_rounding_conversions() -> None:
    """Make the operator known to TVM, and its code generator for CPUs, in this process."""
    lowerings: dict[str, Callable[[tvm.ir.Call], tirx.Expr]] = {
        _NAMES["x86_64"].format(lanes=lanes): functools.partial(_on_x86, lanes) for lanes in _X86
    }
    lowerings |= {_NAMES["aarch64"]: _on_arm, _NAMES["riscv64"]: _on_riscv}
    for name, lowering in lowerings.items():
        register_pure_operator(name, "a float32 rounded to int32", lowering)


def _on_x86(widest: int, call: tvm.ir.Call) -> tirx.Expr:
    """By vectors of `widest` lanes; of fewer as they are, if there is such an instruction."""
    (x,) = call.args
    dtype = str(call.expr_ty().dtype)
    lanes = int(tvm.DataType(dtype).lanes)
    if lanes > widest and lanes % widest == 0:
        return in_parts(x, widest, _x86_vector)
    return _x86_vector(x) if lanes <= widest and lanes in _X86 else tirx.nearbyint(x).astype(dtype)


def _x86_vector(x: tirx.Expr) -> tirx.Expr:
    lanes = int(tvm.DataType(str(x.expr_ty().dtype)).lanes)
    nothing, all_lanes = tirx.Broadcast(tirx.const(0, "int32"), lanes), tirx.const(-1, "int16")
    rest = (nothing, all_lanes, tirx.const(_CURRENT, "int32")) if lanes == _MASKED else ()
    return tirx.call_llvm_pure_intrin(f"int32x{lanes}", _X86[lanes], x, *rest)


def _on_arm(call: tvm.ir.Call) -> tirx.Expr:
    """By four lanes, or fewer."""
    (x,) = call.args
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    if lanes in _ON_ARM:
        return tirx.call_llvm_pure_intrin(str(call.expr_ty().dtype), f"llvm.aarch64.neon.fcvtns{_ON_ARM[lanes]}", x)
    if lanes % 4:
        return tirx.nearbyint(x).astype(str(call.expr_ty().dtype))
    name = f"llvm.aarch64.neon.fcvtns{_ON_ARM[4]}"
    return in_parts(x, 4, lambda part: tirx.call_llvm_pure_intrin("int32x4", name, part))


def _on_riscv(call: tvm.ir.Call) -> tirx.Expr:
    """As the thread rounds, to even."""
    dtype = str(call.expr_ty().dtype)
    lanes = int(tvm.DataType(dtype).lanes)
    if lanes == 1:
        return tirx.nearbyint(*call.args).astype(dtype)
    return tirx.call_llvm_pure_intrin(dtype, f"llvm.lrint.v{lanes}i32.v{lanes}f32", *call.args)
