"""Rewrites `1 + tanh` as a sigmoid, which takes two thirds of the instructions and loses no digits in the addition.

    0.5 * x * (1 + tanh(0.8 * x))      →      x * sigmoid(1.6 * x)           for 1 + tanh(u) = 2 sigmoid(2u)
    x * (1 + tanh(u))                  →      2 * (x * sigmoid(2 * u))

Factors of 2 are exact, and are folded into other constants.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call

from nnefc.passes.tir.common.expressions import is_number

__all__ = ["rewrite_tanh_as_sigmoid", "within_one"]

_MAX = 1e38
"""The largest number that is doubled: a third of the largest float32."""


def rewrite_tanh_as_sigmoid(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled kernel in which `1 + tanh` is a sigmoid."""

    def change(expr: tirx.Add | tirx.Mul) -> tirx.Expr:
        if isinstance(expr, tirx.Mul):
            return _with_factor_outside(expr)
        function = within_one(expr)
        if function is None or function.op.name != "tirx.tanh":
            return expr
        doubled = _doubled(function.args[0])
        return _twice(tirx.sigmoid(_twice(function.args[0]) if doubled is None else doubled))

    return tvm_ffi.structural_map(func, ((tirx.Add, tirx.Mul), change))


def within_one(expr: tirx.Expr) -> Call | None:
    """Returns the call that is added to 1 in a float32 expression."""
    if isinstance(expr, tirx.Add) and _is_single(expr):
        for one, function in ((expr.a, expr.b), (expr.b, expr.a)):
            if is_number(one, 1) and isinstance(function, Call):
                return function
    return None


def _twice(expr: tirx.Expr) -> tirx.Expr:
    return tirx.Mul(tirx.const(2.0, "float32"), expr)


def _with_factor_outside(expr: tirx.Mul) -> tirx.Expr:
    """Moves the factor 2 of a sigmoid out of a product, into another constant if there is one."""
    for one, other in ((expr.a, expr.b), (expr.b, expr.a)):
        if not _is_twice_a_sigmoid(one):
            continue
        if is_number(other, 0.5):
            return one.b
        doubled = _doubled(other)
        if doubled is not None:
            return tirx.Mul(doubled, one.b)
        return _twice(tirx.Mul(other, one.b))
    return expr


def _is_twice_a_sigmoid(expr: tirx.Expr) -> bool:
    """Whether an expression is 2 * (… * sigmoid(u)), as this module makes it."""
    if not isinstance(expr, tirx.Mul) or not _is_single(expr) or not is_number(expr.a, 2):
        return False
    last = expr.b.b if isinstance(expr.b, tirx.Mul) else expr.b
    return isinstance(last, Call) and last.op.name == "tirx.sigmoid"


def _doubled(expr: tirx.Expr) -> tirx.Expr | None:
    """Returns twice a product with a constant, by doubling the constant; None if it has none."""
    if isinstance(expr, tirx.FloatImm):
        return tirx.const(2 * expr.value, "float32") if abs(expr.value) <= _MAX else None
    if not isinstance(expr, tirx.Mul):
        return None
    for one, other in ((expr.a, expr.b), (expr.b, expr.a)):
        if is_number(one, 0.5):
            return other
        doubled = _doubled(one)
        if doubled is not None:
            return tirx.Mul(doubled, other)
    return None


def _is_single(expr: tirx.Expr) -> bool:
    return str(expr.expr_ty().dtype) == "float32"
