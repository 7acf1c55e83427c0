"""Replaces sigmoid and erf by approximations of 8-bit precision where the result is rounded to bytes.

    uint8(int32(round(min(max(x · sigmoid(x) · s, low), high))))         →   the same with `nnefc.sigmoid_of_bytes`
    uint8(int32(round(min(max(x · (1 + erf(u)) · s, low), high))))       →   x · 2 sigmoid_of_bytes(u P(u²)) · s

A relative error of a factor is one of the product, of which 255 steps are kept, or 510 with a zero point: sigmoids of
12 correct bits move it by less than a tenth of a step. That is so where limits cut off what is beyond the bytes: what
becomes the low byte of a larger number stays as it is. Sums of functions and other numbers stay as they are, for what
is added may cancel, but for 1 + erf, which is a sigmoid but nearly, with an absolute error (1 + tanh is one: see
:mod:`tanh_to_sigmoid`): it takes part where the other factors are known to leave that small, of x (1 + erf(x / √2))
down
to 220 steps in 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad

from nnefc.passes.compute.int8_activations import ONE_AND_ERF_ERROR, TIMES_ARGUMENT, one_and_erf, sigmoid
from nnefc.passes.schedule.cpu.tanh_to_sigmoid import within_one

__all__ = ["use_int8_activations"]

_SCALES = {"avx512f", "avx512dq"}
_BYTES = ("uint8", "int8")
_MAX = 255
_LARGEST_ERROR = 1 / 16
"""The largest error of 1 + erf in a product, in steps of the result."""


def use_int8_activations(func: tirx.PrimFunc, features: Collection[str]) -> tirx.PrimFunc:
    """Returns a scheduled kernel that approximates such functions; `features`: those of the target, by LLVM's names."""
    scales = set(features) >= _SCALES

    def change(cast: tirx.Cast) -> tirx.Expr:
        dtype = str(cast.expr_ty().dtype)
        made = _rounded(cast.value, scales) if dtype in _BYTES and _is_limited(cast.value) else None
        return cast if made is None else tirx.Cast(dtype, made)

    return tvm_ffi.structural_map(func, (tirx.Cast, change))


def _is_limited(expr: tirx.Expr) -> bool:
    """Whether constants clamp a value that becomes a byte, before or after rounding, to as many steps as bytes have."""
    low, high = -math.inf, math.inf
    while True:
        match expr:
            case tirx.Cast():
                expr = expr.value
            case Call() if expr.op.name == "tirx.nearbyint":
                expr = expr.args[0]
            case tirx.Min() | tirx.Max() | tirx.Add() if _is_given(expr.a) or _is_given(expr.b):
                given, inner = (expr.b, expr.a) if _is_given(expr.b) else (expr.a, expr.b)
                limit = _unconverted(given)
                if isinstance(limit, tirx.IntImm | tirx.FloatImm):
                    if isinstance(expr, tirx.Min):
                        high = min(high, float(limit.value))
                    elif isinstance(expr, tirx.Max):
                        low = max(low, float(limit.value))
                if isinstance(expr, tirx.Add) and high - low > _MAX:
                    low, high = -math.inf, math.inf  # the limits found so far are those of the sum, not of its terms
                expr = inner
            case _:
                return high - low <= _MAX


def _rounded(expr: tirx.Expr, scales: bool) -> tirx.Expr | None:
    """Rewrites a value that is rounded to a byte with approximated functions; None if nothing is rounded."""
    match expr:
        case tirx.Cast() | tirx.Min() | tirx.Max():
            return _of_first(expr, _is_given, lambda inner: _rounded(inner, scales))
        case tirx.Add():
            return _of_first(expr, _is_zero_point, lambda inner: _rounded(inner, scales))
        case Call() if expr.op.name == "tirx.nearbyint":
            made = _cut(expr.args[0], scales)
            return None if made is None else tirx.nearbyint(made)
    return None


def _cut(expr: tirx.Expr, scales: bool) -> tirx.Expr | None:
    """Returns the value that is rounded, after clamping if there is any."""
    if isinstance(expr, tirx.Min | tirx.Max):
        return _of_first(expr, _is_given, lambda inner: _cut(inner, scales))
    made = _product(expr, scales, _erf_error(expr) <= _LARGEST_ERROR)
    return None if made.same_as(expr) else made


def _of_first(
    expr: tirx.Expr, is_second: Callable[[tirx.Expr], bool], change: Callable[[tirx.Expr], tirx.Expr | None]
) -> tirx.Expr | None:
    """Returns a conversion, or an operation with such an operand, of another first operand; None where that is None."""
    if isinstance(expr, tirx.Cast):
        inner = change(expr.value)
        return None if inner is None else tirx.Cast(str(expr.expr_ty().dtype), inner)
    left, right = expr.a, expr.b
    if is_second(right):
        inner = change(left)
        return None if inner is None else type(expr)(inner, right)
    if is_second(left):
        inner = change(right)
        return None if inner is None else type(expr)(left, inner)
    return None


def _is_given(expr: tirx.Expr) -> bool:
    """Whether an expression is a constant, or a load."""
    return isinstance(_unconverted(expr), tirx.IntImm | tirx.FloatImm | TensorLoad)


def _is_zero_point(expr: tirx.Expr) -> bool:
    """Whether an expression is a constant or a load no larger than bytes are: adding it keeps the precision of
    the sum.
    """
    match _unconverted(expr):
        case tirx.IntImm() | tirx.FloatImm() as number:
            return bool(abs(number.value) <= _MAX)
        case TensorLoad() as load:
            return str(load.expr_ty().dtype) in _BYTES
    return False


def _unconverted(expr: tirx.Expr) -> tirx.Expr:
    while isinstance(expr, tirx.Cast):
        expr = expr.value
    return expr


def _product(expr: tirx.Expr, scales: bool, with_erf: bool) -> tirx.Expr:
    """Rewrites the functions among the factors of a product; `with_erf`: 1 + erf, too."""
    match expr:
        case tirx.Mul():
            return _rebuilt(expr, _product(expr.a, scales, with_erf), _product(expr.b, scales, with_erf))
        case tirx.Div(b=tirx.FloatImm() as divisor) if divisor.value:
            above = _product(expr.a, scales, with_erf)
            return expr if above.same_as(expr.a) else above * tirx.const(1 / float(divisor.value), "float32")
        case Call() if expr.op.name == "tirx.sigmoid" and _is_single(expr):
            return sigmoid(expr.args[0], scales)
    function = within_one(expr)
    if function is None or function.op.name != "tirx.erf" or not with_erf:
        return expr
    return one_and_erf(function.args[0], scales)


def _erf_error(expr: tirx.Expr) -> float:
    """Returns the error, in steps, of a product whose 1 + erf is computed as a sigmoid; infinity where the other
    factors are unknown.

    Those are numbers, and what the argument of erf is a multiple of.
    """
    number, factors = _factors(expr)
    calls = [(position, call) for position, factor in enumerate(factors) if (call := within_one(factor)) is not None]
    functions = [(position, call) for position, call in calls if call.op.name == "tirx.erf"]
    if len(functions) != 1:
        return math.inf
    ((position, function),) = functions
    tail = factors[:position] + factors[position + 1 :]
    if not tail:
        return abs(number) * ONE_AND_ERF_ERROR
    slope, inner = _factors(function.args[0])
    return abs(number / slope) * TIMES_ARGUMENT if slope and _are_same(tail, inner) else math.inf


def _factors(expr: tirx.Expr) -> tuple[float, list[tirx.Expr]]:
    """Splits a product into its constant, multiplied out, and its other factors."""
    match expr:
        case tirx.FloatImm():
            return float(expr.value), []
        case tirx.Mul():
            (left, others), (right, more) = _factors(expr.a), _factors(expr.b)
            return left * right, others + more
        case tirx.Div(b=tirx.FloatImm() as divisor) if divisor.value:
            above, others = _factors(expr.a)
            return above / float(divisor.value), others
    return 1.0, [expr]


def _are_same(some: Sequence[tirx.Expr], others: Sequence[tirx.Expr]) -> bool:
    """Whether two lists have the same expressions, in any order."""
    left = list(others)
    for expr in some:
        position = next(
            (position for position, other in enumerate(left) if tvm_ffi.structural_equal(expr, other)), None
        )
        if position is None:
            return False
        del left[position]
    return not left


def _is_single(expr: tirx.Expr) -> bool:
    return str(expr.expr_ty().dtype) == "float32"


def _rebuilt(expr: tirx.Mul, left: tirx.Expr, right: tirx.Expr) -> tirx.Expr:
    return expr if left.same_as(expr.a) and right.same_as(expr.b) else type(expr)(left, right)
