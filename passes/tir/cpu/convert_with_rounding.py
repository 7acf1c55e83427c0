"""Fuses rounding into the conversion to integers, where one instruction does both.

    int32(nearbyint(x))                             →     converted(x)
    int32(min(max(nearbyint(x) + 3, 0), 255))       →     converted(min(max(x, -3), 252)) + 3
    uint8(int32(nearbyint(min(255, max(0, x)))))    →     uint8(min(uint32(converted(max(x, 0))), 255))
    uint8(int32(min(max(nearbyint(x), 0), 255)))    →     the same

One instruction replaces three. Values out of int32's range become the min on x86 (2³¹ if read unsigned)
and are clamped elsewhere: a limit of 255 that comes after the conversion cuts both as well, and vectors are cut to
bytes while they become bytes. A minimum or maximum is its second operand where the other is NaN: the lower limit, which
is second and comes first, replaces NaN. Arm cuts while it makes a byte, where the number is computed of integers, so
that it is not NaN:

    int8(int32(min(max(nearbyint(x) + 3, -128), 127)))    →     saturated(converted(x), 3)

A byte that becomes a float or an int32 again, as that of a convolution that is added to another one, stays an int32.
On Arm, a number of integers that is not negative, and becomes a float again, stays a float:

    float32(converted(min(255, max(0, x))))    →     rounded(min(255, max(0, x)))

Engines of WebAssembly take some eight instructions to convert what int32 may not hold, and 32-bit Arm as many to round.
There, numbers between limits alone are rounded so: the sum with 3 · 2²² has them in its lowest bits, rounded to even as
all sums are.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tvm
import tvm_ffi
from tvm import tirx

from nnefc.passes.tir.common.expressions import in_parts, is_number
from nnefc.passes.tir.common.intrinsics import register_pure_operator
from nnefc.passes.tir.common.match_requantize import RoundedNumber, is_of_integers, rounded_argument

__all__ = ["convert_with_rounding", "use_rounding_conversions"]

_NAMES = {
    "x86_64": "nnefc.converted_by_{lanes}",
    "aarch64": "nnefc.converted_to_even",
    "riscv64": "nnefc.converted_as_set",
    "wasm32": "nnefc.converted_by_sum",
    "armv7a": "nnefc.converted_by_sum",
}
_BY_SUM = _NAMES["wasm32"]
_CONVERTED = "nnefc.converted_"
_ROUNDED = "nnefc.rounded_to_even"
_SATURATED = {dtype: f"nnefc.saturated_{dtype}" for dtype in ("int8", "uint8")}
_SATURATING = {"int8": "llvm.aarch64.neon.sqxtn.v8i8", "uint8": "llvm.aarch64.neon.sqxtun.v8i8"}
_FLIPPED = {
    ("int8", -128): ("llvm.aarch64.neon.sqxtun.v4i16", "llvm.aarch64.neon.uqxtn.v8i8"),
    ("uint8", 128): ("llvm.aarch64.neon.sqxtn.v4i16", "llvm.aarch64.neon.sqxtn.v8i8"),
}
"""Instructions that narrow numbers to bytes of the other sign, by result type and zero point."""
_AT_ONCE = 8
"""The 16-bit numbers that Arm narrows to bytes at once."""
_MAX = 255
_X86 = {16: "llvm.x86.avx512.mask.cvtps2dq.512", 8: "llvm.x86.avx.cvt.ps2dq.256", 4: "llvm.x86.sse2.cvtps2dq"}
"""Instructions by number of lanes; and the lanes of the one that takes a mask."""
_MASKED = 16
_ON_ARM = {1: ".i32.f32", 2: ".v2i32.v2f32", 4: ".v4i32.v4f32"}
_CURRENT = 4  # direction of rounding: that of the thread, to even
_LARGE, _LARGE_BITS = 12582912.0, 0x4B400000  # 3 · 2²²: with less than 2²² more or less, float32 are whole


def convert_with_rounding(func: tirx.PrimFunc, architecture: str, lanes: int) -> tirx.PrimFunc:
    """Returns a scheduled kernel that rounds in conversions, for an instruction set of `Quirks.rounding_conversion`.

    Args:
        lanes: of a register of float32.
    """
    converted = functools.partial(tirx.call_intrin, "int32", _NAMES[architecture].format(lanes=lanes))
    any_number = _NAMES[architecture] != _BY_SUM

    def change(cast: tirx.Cast) -> tirx.Expr:
        dtype = str(cast.expr_ty().dtype)
        if architecture == "aarch64" and (byte := _Byte.of(cast.value, dtype)) is not None:
            return byte.saturated()
        if any_number and dtype == "uint8" and (inner := _cut_to_bytes(cast.value)) is not None:
            maximum = tirx.const(_MAX, "uint32")
            return tirx.Cast("uint8", tirx.Min(tirx.Cast("uint32", converted(inner)), maximum))
        if dtype != "int32":
            return cast
        rounded = _rounded(cast) if any_number else None
        if rounded is not None:
            return converted(rounded)
        number = RoundedNumber.of(cast.value)
        return cast if number is None else _cut_before(number, converted, architecture)

    rewrites = [(tirx.LT, _of_unrounded), (tirx.Cast, _without_bytes), (tirx.Cast, change)]
    for kind, rewrite in (*rewrites, *([(tirx.Cast, _as_float)] if architecture == "aarch64" else [])):
        func = tvm_ffi.structural_map(func, (kind, rewrite))
    return func


def _as_float(cast: tirx.Cast) -> tirx.Expr:
    """Returns a rounded number with limits that are not negative as float32, which represents it exactly."""
    whole = cast.value
    if str(cast.expr_ty().dtype) == "float32" and getattr(getattr(whole, "op", None), "name", "") == _NAMES["aarch64"]:
        match whole.args[0]:
            case tirx.Min(a=tirx.FloatImm(), b=tirx.Max(a=tirx.FloatImm() as low, b=number)):
                if float(low.value) >= 0 and is_of_integers(number):
                    return tirx.call_intrin("float32", _ROUNDED, whole.args[0])
    return cast


def _of_unrounded(less: tirx.LT) -> tirx.LT:
    """Whether int32 holds a rounded float32 if it holds the float: floats beyond 2²³ are whole."""
    size = less.a
    if not (
        isinstance(size, tvm.ir.Call) and getattr(size.op, "name", "") == "tirx.fabs" and is_number(less.b, 1 << 31)
    ):
        return less
    number = rounded_argument(size.args[0])
    return less if number is None else tirx.abs(number) < less.b


def _without_bytes(cast: tirx.Cast) -> tirx.Expr:
    """Returns a float or an int32 of a number that was a byte in between, without the conversion to a byte."""
    byte, wide = cast.value, str(cast.expr_ty().dtype)
    if wide not in ("float32", "int32") or not isinstance(byte, tirx.Cast):
        return cast
    dtype, whole = str(byte.expr_ty().dtype), byte.value
    if dtype not in _SATURATED or not isinstance(whole, tirx.Cast) or str(whole.expr_ty().dtype) != "int32":
        return cast
    number, limits = RoundedNumber.of(whole.value), np.iinfo(dtype)
    if number is None or number.range[0] < limits.min or number.range[1] > limits.max:
        return cast
    return whole if wide == "int32" else tirx.Cast(wide, whole)


@dataclass(frozen=True)
class _Byte:
    """A float32 that is rounded to a byte and offset by a zero point.

    Attributes:
        dtype: its type.
        number: the float32.
        zero: what is added to it.
        minimum, maximum: bounds of the byte.
    """

    dtype: str
    number: tirx.Expr
    zero: int
    minimum: int
    maximum: int

    @classmethod
    def of(cls, expr: tirx.Expr, dtype: str) -> _Byte | None:
        """Matches an int32 that becomes a byte; None for others, and for numbers that may be NaN, which conversions
        turn into 0.
        """
        zero = 0
        if isinstance(expr, tirx.Add) and isinstance(expr.b, tirx.IntImm):
            expr, zero = expr.a, int(expr.b)
        number = _rounded(expr)
        found: dict[type[tirx.Expr], int] = {}
        while isinstance(number, tirx.Min | tirx.Max) and isinstance(number.b, tirx.FloatImm):
            if type(number) in found:
                return None
            found[type(number)] = int(float(number.b)) + zero
            number = number.a
        if dtype not in _SATURATED or found.keys() != {tirx.Min, tirx.Max} or not is_of_integers(number):
            return None
        minimum, maximum, limits = found[tirx.Max], found[tirx.Min], np.iinfo(dtype)
        fits = limits.min <= minimum <= maximum <= limits.max and abs(zero) <= _MAX
        return cls(dtype, number, zero, minimum, maximum) if fits else None

    def saturated(self) -> tirx.Expr:
        """Returns the byte by a saturating conversion; narrower limits are applied to the byte."""
        limits = np.iinfo(self.dtype)
        whole = tirx.call_intrin("int32", _NAMES["aarch64"], self.number)
        made: tirx.Expr = tirx.call_intrin(self.dtype, _SATURATED[self.dtype], whole, tirx.const(self.zero, "int32"))
        if self.minimum > limits.min:
            made = tirx.Max(made, tirx.const(self.minimum, self.dtype))
        return tirx.Min(made, tirx.const(self.maximum, self.dtype)) if self.maximum < limits.max else made


def _rounded(expr: tirx.Expr) -> tirx.Expr | None:
    """Returns the argument of a conversion `expr` of a rounded float to int32."""
    if isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "").startswith(_CONVERTED):
        return expr.args[0]
    if not isinstance(expr, tirx.Cast) or str(expr.expr_ty().dtype) != "int32":
        return None
    return rounded_argument(expr.value)


def _cut_before(rounded: RoundedNumber, converted: Callable[[tirx.Expr], tirx.Expr], architecture: str) -> tirx.Expr:
    """Returns the int32 clamped before its conversion, so that the operand fits; the first limit replaces NaN.

    32-bit Arm has one instruction for a limit that does not replace NaN (`lower_fmin_fmax.py`), and two for others.
    """
    number, may_be_nan = rounded.number, architecture != "armv7a" or not is_of_integers(rounded.number)
    for kind, whole_limit in rounded.limits:
        limit = tirx.const(float(whole_limit - rounded.zero), "float32")
        number = kind(number, limit) if may_be_nan else kind(limit, number)
        may_be_nan = architecture != "armv7a"
    whole = converted(number)
    return whole + tirx.const(rounded.zero, "int32") if rounded.zero else whole


def _cut_to_bytes(expr: tirx.Expr) -> tirx.Expr | None:
    """Returns the argument of which `expr` is the rounded int32 clamped to bytes, without the upper limit; 0 of NaN."""
    match _rounded(expr):
        case tirx.Min(a=maximum, b=tirx.Max(a=minimum, b=number)):
            pass
        case tirx.Min(a=tirx.Max(a=number, b=minimum), b=maximum):
            pass
        case _:
            return None
    return tirx.Max(number, minimum) if is_number(maximum, _MAX) and is_number(minimum, 0) else None


@functools.cache  # TVM refuses a second registration
def use_rounding_conversions() -> None:
    """Registers the operator with TVM and its code generator for CPUs, in this process."""
    lowerings: dict[str, Callable[[tvm.ir.Call], tirx.Expr]] = {
        _NAMES["x86_64"].format(lanes=lanes): functools.partial(_on_x86, lanes) for lanes in _X86
    }
    lowerings |= {_NAMES["aarch64"]: _on_arm, _NAMES["riscv64"]: _on_riscv, _BY_SUM: _by_sum}
    for name, lowering in lowerings.items():
        register_pure_operator(name, "a float32 rounded to int32", lowering)
    register_pure_operator(_ROUNDED, "a float32 rounded to a whole one", _whole_on_arm)
    for dtype, name in _SATURATED.items():
        register_pure_operator(name, "the sum of two int32, cut to bytes", functools.partial(_cut_sum, dtype))


def _on_x86(widest: int, call: tvm.ir.Call) -> tirx.Expr:
    """Round to int32 in vectors of `widest` lanes; narrower ones by the instruction for their width, if any."""
    (x,) = call.args
    dtype = str(call.expr_ty().dtype)
    lanes = int(tvm.DataType(dtype).lanes)
    if lanes > widest and lanes % widest == 0:
        return in_parts(x, widest, _x86_vector)
    return _x86_vector(x) if lanes <= widest and lanes in _X86 else tirx.nearbyint(x).astype(dtype)


def _x86_vector(x: tirx.Expr) -> tirx.Expr:
    lanes = int(tvm.DataType(str(x.expr_ty().dtype)).lanes)
    nothing, all_lanes = tirx.Broadcast(tirx.const(0, "int32"), lanes), tirx.const(-1, "int16")
    tail = (nothing, all_lanes, tirx.const(_CURRENT, "int32")) if lanes == _MASKED else ()
    return tirx.call_llvm_pure_intrin(f"int32x{lanes}", _X86[lanes], x, *tail)


def _on_arm(call: tvm.ir.Call) -> tirx.Expr:
    """Round to int32 by `fcvtns`, in vectors of four lanes or fewer."""
    (x,) = call.args
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    if lanes in _ON_ARM:
        return tirx.call_llvm_pure_intrin(str(call.expr_ty().dtype), f"llvm.aarch64.neon.fcvtns{_ON_ARM[lanes]}", x)
    if lanes % 4:
        return tirx.nearbyint(x).astype(str(call.expr_ty().dtype))
    name = f"llvm.aarch64.neon.fcvtns{_ON_ARM[4]}"
    return in_parts(x, 4, lambda part: tirx.call_llvm_pure_intrin("int32x4", name, part))


def _whole_on_arm(call: tvm.ir.Call) -> tirx.Expr:
    (x,) = call.args
    dtype = str(call.expr_ty().dtype)
    lanes = int(tvm.DataType(dtype).lanes)
    return tirx.nearbyint(x) if lanes == 1 else tirx.call_llvm_pure_intrin(dtype, f"llvm.roundeven.v{lanes}f32", x)


def _cut_sum(dtype: str, call: tvm.ir.Call) -> tirx.Expr:
    """Returns the sum of a vector and a small constant, computed in 16 bits.

    A zero point of 128 or -128 changes the sign of a byte: its highest bit is flipped, sixteen at a time.
    """
    value, zero = call.args
    made = str(call.expr_ty().dtype)
    lanes = int(tvm.DataType(made).lanes)
    moved = int(zero.value if isinstance(zero, tirx.Broadcast) else zero)
    limits = np.iinfo(dtype)
    if lanes % _AT_ONCE:
        bounds = [tirx.const(int(limit) - moved, "int32") for limit in (limits.min, limits.max)]
        minimum, maximum, added = (
            bound if lanes == 1 else tirx.Broadcast(bound, lanes) for bound in (*bounds, tirx.const(moved, "int32"))
        )
        return (tirx.Min(tirx.Max(value, minimum), maximum) + added).astype(made)

    flips = (dtype, moved) in _FLIPPED
    to_half, to_byte = _FLIPPED.get((dtype, moved), ("llvm.aarch64.neon.sqxtn.v4i16", _SATURATING[dtype]))

    def eight(part: tirx.Expr) -> tirx.Expr:
        vectors = [tirx.Shuffle([part], list(range(first, first + 4))) for first in (0, 4)]
        narrow = [tirx.call_llvm_pure_intrin("int16x4", to_half, half) for half in vectors]
        both: tirx.Expr = tirx.Shuffle(narrow, list(range(_AT_ONCE)))
        if moved and not flips:
            added = tirx.Broadcast(tirx.const(moved, "int16"), _AT_ONCE)
            both = tirx.call_llvm_pure_intrin("int16x8", "llvm.aarch64.neon.sqadd.v8i16", both, added)
        return tirx.call_llvm_pure_intrin(f"{dtype}x{_AT_ONCE}", to_byte, both)

    made_of_parts = in_parts(value, _AT_ONCE, eight)
    if not flips:
        return made_of_parts
    return made_of_parts ^ tirx.Broadcast(tirx.const(-128 if dtype == "int8" else 128, dtype), lanes)


def _on_riscv(call: tvm.ir.Call) -> tirx.Expr:
    """Rounds to even, the rounding mode of the thread."""
    dtype = str(call.expr_ty().dtype)
    lanes = int(tvm.DataType(dtype).lanes)
    if lanes == 1:
        return tirx.nearbyint(*call.args).astype(dtype)
    return tirx.call_llvm_pure_intrin(dtype, f"llvm.lrint.v{lanes}i32.v{lanes}f32", *call.args)


def _by_sum(call: tvm.ir.Call) -> tirx.Expr:
    """Rounds numbers that are small compared with the magic number, by adding it."""
    (x,) = call.args
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    large, bits = tirx.const(_LARGE, "float32"), tirx.const(_LARGE_BITS, "int32")
    if lanes > 1:
        large, bits = tirx.Broadcast(large, lanes), tirx.Broadcast(bits, lanes)
    return tirx.reinterpret(str(call.expr_ty().dtype), x + large) - bits
