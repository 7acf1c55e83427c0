"""Rounds to integers and clamps as integers, for processors without an instruction that rounds floats to floats.

    int32(min(max(nearbyint(x) + z, -128), 127))     →     min(max(rounded(x) + z, -128), 127)               of integers
                                                     →     min(rounded(max(x, -128 - z)) + z, 127)           of others

A number that may be NaN, of which conversions make 0, has the lower limit before it is rounded, which NaN becomes; a
sum makes a low number of NaN.

`rounded` is one instruction where there is a unit for floats: conversion to int32, to even, and to the nearest there is
for numbers that int32 does not hold; two of vectors. Elsewhere the fraction leaves a sum with 3 · 2²².
"""

from __future__ import annotations

import functools
from collections.abc import Collection

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.passes.tir.common.intrinsics import register_pure_operator
from nnefc.passes.tir.common.match_requantize import RoundedNumber, is_of_integers

__all__ = ["round_as_integers", "use_rounding"]

_BY_VECTORS, _BY_UNIT, _BY_SUM = (f"nnefc.rounded_by_{means}" for means in ("vectors", "unit", "sum"))
_SATURATED_SUM = "nnefc.saturated_sum"
_VECTOR = 4  # lanes
_LARGE = 12582912.0  # 3 · 2²²
_LARGE_BITS = 0x4B400000
_MAX = 2.0**21  # the largest number that is rounded by adding _LARGE


def round_as_integers(func: tirx.PrimFunc, features: Collection[str]) -> tirx.PrimFunc:
    """Returns a scheduled kernel that rounds as integers; `features`: the target's, by LLVM's names."""
    name = _BY_VECTORS if "mve.fp" in features else _BY_UNIT if "vfp2sp" in features else _BY_SUM

    def change(cast: tirx.Cast) -> tirx.Expr:
        made = _integer(cast.value, name) if str(cast.expr_ty().dtype) == "int32" else None
        return cast if made is None else made

    return tvm_ffi.structural_map(func, (tirx.Cast, change))


def _integer(expr: tirx.Expr, name: str) -> tirx.Expr | None:
    """Converts a float expression of clamped and rounded numbers to int32; None for others."""
    rounded = RoundedNumber.of(expr)
    if rounded is None:
        return None
    number, limits = rounded.number, list(rounded.limits)
    if name != _BY_SUM and limits[0][0] is tirx.Max and not is_of_integers(number):
        number = tirx.Max(number, tirx.const(float(limits.pop(0)[1] - rounded.zero), "float32"))
    made: tirx.Expr = tirx.call_intrin("int32", name, number)
    if rounded.zero:
        made = tirx.call_intrin("int32", _SATURATED_SUM, made, tirx.const(rounded.zero, "int32"))
    for kind, limit in limits:
        made = kind(made, tirx.const(limit, "int32"))
    return made


@functools.cache  # TVM refuses a second registration
def use_rounding() -> None:
    """Registers the operators with TVM and its code generator for CPUs, in this process."""
    for name, meaning, lowering in (
        (_BY_VECTORS, "a float32 rounded to int32", _by_unit),
        (_BY_UNIT, "a float32 rounded to int32", _by_unit),
        (_BY_SUM, "a float32 rounded to int32", _by_sum),
        (_SATURATED_SUM, "the sum of two int32, or the nearest", _saturated_sum),
    ):
        register_pure_operator(name, meaning, functools.partial(_lane_by_lane, lowering))


def _lane_by_lane(lower: object, call: tvm.ir.Call) -> tirx.Expr:
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    assert callable(lower)
    if lanes == 1:
        made: tirx.Expr = lower(*call.args)
        return made
    if call.op.name == _BY_VECTORS and lanes == _VECTOR:
        whole = tirx.call_llvm_pure_intrin("float32x4", "llvm.roundeven.v4f32", *call.args)
        return tirx.call_llvm_pure_intrin("int32x4", "llvm.fptosi.sat.v4i32.v4f32", whole)
    if call.op.name == _SATURATED_SUM and lanes == _VECTOR:
        return tirx.call_llvm_pure_intrin("int32x4", "llvm.sadd.sat.v4i32", *call.args)
    parts = [[tirx.Shuffle([arg], [lane]) for arg in call.args] for lane in range(lanes)]
    return tirx.Shuffle([lower(*part) for part in parts], list(range(lanes)))


def _by_unit(x: tirx.Expr) -> tirx.Expr:
    return tirx.reinterpret("int32", tirx.call_llvm_pure_intrin("float32", "llvm.arm.vcvtr.f32", x))


def _by_sum(x: tirx.Expr) -> tirx.Expr:
    limit = tirx.const(_MAX, "float32")
    cut = tirx.min(tirx.max(x, -limit), limit)
    return tirx.reinterpret("int32", cut + tirx.const(_LARGE, "float32")) - tirx.const(_LARGE_BITS, "int32")


def _saturated_sum(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
    return tirx.call_llvm_pure_intrin("int32", "llvm.sadd.sat.i32", a, b)
