"""Approximates sigmoid and 1 + erf with the precision that results rounded to 8 bits need.

The largest relative error of a sigmoid is 1.4e-4 over all arguments; that of 1 + erf has no bound where the argument is
negative, and the error alone is small. A sigmoid takes nine instructions with AVX-512, and 14 with other vectors, for
which :mod:`vector_math` has 18.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeAlias

import tvm
from tvm import tirx
from tvm.ir.expr import Call

from nnefc.passes.compute.vector_math import like, named, polynomial, typed
from nnefc.passes.tir.common.expressions import in_parts
from nnefc.passes.tir.common.intrinsics import register_pure_operator

__all__ = ["ONE_AND_ERF_ERROR", "TIMES_ARGUMENT", "one_and_erf", "sigmoid", "use_byte_functions"]

_NAMES = {"sigmoid": "nnefc.sigmoid_of_bytes", "erf": "nnefc.one_and_erf_of_bytes"}
_BY_SCALING = "_by_scaling"
"""The suffix of the variants that multiply by powers of two, and approximate reciprocals, by one instruction each."""
_LANES = 16
_FLOOR = 1  # the fraction: a number minus its floor
_AS_SET = 4  # direction of rounding: that of the thread

_LOG2E = 1.44269504088896341
_POWER = (0.9999280735491463, 0.6932609856515789, 0.24261112211402824, 0.05517166802352755)
"""2ᶠ for |f| ≤ ½, lowest power first."""
_POWER_FROM_ZERO = (0.9999252185963504, 0.6958335397796098, 0.2260671575097692, 0.07802452117762837)
"""2ᶠ for 0 ≤ f < 1. The relative error of both is 7.5e-5; all polynomials here were fitted by Lawson's weighted least
squares.
"""
_ROUNDING = 1.5 * 2**23 + 127
"""Added to a small number, it rounds it to n; the sum's last bits are n + 127, the exponent's bits of 2ⁿ."""
_SIGMOID_RANGE = (-88.8, 87.0)  # at the ends the exponent is 255, of infinity, and 1

_ERF = (2.2632744991897673, 0.1962009841208119)
"""P of 1 + erf(u) ≈ 2 sigmoid(u P(u²)), lowest power first, fitted in the same way."""
ONE_AND_ERF_ERROR, TIMES_ARGUMENT = 8.3e-4, 4e-4
"""The largest errors of this approximation and of its product with u, in addition to the sigmoid's own."""


def sigmoid(x: tirx.Expr, scales: bool) -> tirx.Expr:
    """Approximates 1 / (1 + e⁻ˣ), float32; `scales`: whether the target has the instructions of AVX-512."""
    return _call("sigmoid", x, scales)


def one_and_erf(x: tirx.Expr, scales: bool) -> tirx.Expr:
    """Approximates 1 + erf(x), float32; `scales` as for :func:`sigmoid`."""
    return _call("erf", x, scales)


def _call(function: str, x: tirx.Expr, scales: bool) -> tirx.Expr:
    return tirx.call_intrin("float32", _NAMES[function] + (_BY_SCALING if scales else ""), x)


@functools.cache  # TVM refuses a second registration
def use_byte_functions() -> None:
    """Registers the operators with TVM and its code generator for CPUs, in this process."""
    for function, lower in (("sigmoid", _sigmoid), ("erf", _one_and_erf)):
        for ending, power in (("", _by_adding), (_BY_SCALING, _by_scaling)):
            name = _NAMES[function] + ending
            register_pure_operator(name, f"{function}, for bytes", functools.partial(lower, power))


_Sigmoid: TypeAlias = "Callable[[tirx.Expr], tirx.Expr]"


def _sigmoid(sigmoid: _Sigmoid, call: Call) -> tirx.Expr:
    return sigmoid(call.args[0])


def _one_and_erf(sigmoid: _Sigmoid, call: Call) -> tirx.Expr:
    (x,) = call.args
    inner = named(x * x, "u", lambda u: x * polynomial(_ERF, u))
    return like(x, 2.0) * sigmoid(inner)


def _by_adding(x: tirx.Expr) -> tirx.Expr:
    """Returns a sigmoid, with a power of two as in `vector_math.sigmoid`."""

    def of_sum(total: tirx.Expr, t: tirx.Expr) -> tirx.Expr:
        scale = tirx.reinterpret(
            typed(x, "float32"), tirx.reinterpret(typed(x, "int32"), total) << like(x, 23, "int32")
        )
        tail = t - (total - like(x, _ROUNDING))
        power = named(tail, "f", lambda f: polynomial(_POWER, f))
        return like(x, 1.0) / (like(x, 1.0) + power * scale)

    def of_exponent(t: tirx.Expr) -> tirx.Expr:
        return named(t + like(x, _ROUNDING), "n", lambda total: of_sum(total, t))

    low, high = _SIGMOID_RANGE
    limited = tirx.Max(like(x, low), tirx.Min(like(x, high), x))  # in this order for NaN
    return named(limited * like(x, -_LOG2E), "t", of_exponent)


def _by_scaling(x: tirx.Expr) -> tirx.Expr:
    """Returns a sigmoid in nine instructions for each vector; infinities and NaN need no extra code."""
    lanes = int(tvm.DataType(str(x.expr_ty().dtype)).lanes)
    return in_parts(x, _LANES, _by_instructions) if lanes % _LANES == 0 else _by_adding(x)


def _by_instructions(x: tirx.Expr) -> tirx.Expr:
    vector, nothing, all_lanes = f"float32x{_LANES}", like(x, 0.0), tirx.const(-1, "int16")
    as_set = tirx.const(_AS_SET, "int32")

    def of_exponent(t: tirx.Expr) -> tirx.Expr:
        tail = _intrinsic(vector, "mask.reduce.ps", t, tirx.const(_FLOOR, "int32"), nothing, all_lanes, as_set)
        power = named(tail, "f", lambda f: polynomial(_POWER_FROM_ZERO, f))
        scaled = _intrinsic(vector, "mask.scalef.ps", power, t, nothing, all_lanes, as_set)
        return _intrinsic(vector, "rcp14.ps", like(x, 1.0) + scaled, nothing, all_lanes)

    return named(x * like(x, -_LOG2E), "t", of_exponent)


def _intrinsic(dtype: str, name: str, *args: tirx.Expr) -> tirx.Expr:
    return tirx.call_llvm_pure_intrin(dtype, f"llvm.x86.avx512.{name}.512", *args)
