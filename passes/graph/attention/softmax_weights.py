"""Rewrites operations between the softmax of an attention and its second product as operations on unnormalized powers.

A weight is `power / total`, and kernels divide after summation, so operations on weights must be linear in them:

    w * kept[query, key]                     power * kept[query, key]
    where(seen[query, key], w, 0)            select(seen[query, key], power, 0)
    where(isnan(w), 0, w)                    power; rows of NaN are zeros
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.ir.expr import Call

from nnefc.passes.tir.common.expressions import IF_THEN_ELSE, is_number, parts_of, variables_of

__all__ = ["POWER", "NoWeight", "Weight", "condition_in", "weight_of"]

POWER = tirx.Var("power", "float32")
"""The exponential of a score, which softmax divides by the sum of all. Weights are expressions of it."""

_ZERO, _ONE = (tirx.const(x, "float32") for x in (0, 1))


class NoWeight(Exception):
    """Raised if a weight is not linear in its power."""


@dataclass(frozen=True)
class Weight:
    """The factor that a value of an attention is multiplied by.

    Attributes:
        value: by the power.
        chosen: 0 where it is 0 whatever the power is, NaN even, else 1; None where it is never so.
        defined: whether a row with NaN has weights of 0 instead.
    """

    value: tirx.Expr
    chosen: tirx.Expr | None = None
    defined: bool = False


def weight_of(expr: tirx.Expr) -> Weight:
    """Derives a weight from an expression of `POWER`.

    Raises:
        NoWeight: it is not linear.
    """
    if expr.same_as(POWER):
        return Weight(POWER)
    if not _uses_power(expr):
        raise NoWeight
    match expr:
        case tirx.Mul() if not _uses_power(expr.b):
            return _scaled(expr.a, lambda value: value * expr.b)
        case tirx.Mul() if not _uses_power(expr.a):
            return _scaled(expr.b, lambda value: expr.a * value)
        case tirx.Div() if not _uses_power(expr.b):
            return _scaled(expr.a, lambda value: value / expr.b)
        case tirx.Select():
            return _chosen(expr.condition, expr.true_value, expr.false_value)
        case Call() if getattr(expr.op, "name", "") in IF_THEN_ELSE:
            return _chosen(*expr.args)
    raise NoWeight


def condition_in(expr: tirx.Expr) -> tirx.Expr:
    """Returns a boolean without casts to numbers and back: `int8(x) != 0` is `x`."""
    while True:
        match expr:
            case tirx.NE() if is_number(expr.b, 0):
                expr = expr.a
            case tirx.Cast():
                expr = expr.value
            case _:
                return expr


def _uses_power(expr: tirx.Expr) -> bool:
    return POWER in variables_of([expr])


def _scaled(expr: tirx.Expr, change: Callable[[tirx.Expr], tirx.Expr]) -> Weight:
    inner = weight_of(expr)
    return replace(inner, value=change(inner.value))


def _chosen(condition: tirx.Expr, one: tirx.Expr, other: tirx.Expr) -> Weight:
    """Returns the weight of a select between zero and another weight."""
    if _is_nan_of_power(condition) and is_number(one, 0):
        return replace(weight_of(other), defined=True)
    if _uses_power(condition) or not (is_number(one, 0) or is_number(other, 0)):
        raise NoWeight
    first = is_number(other, 0)
    inner = weight_of(one if first else other)

    def select(value: tirx.Expr) -> tirx.Expr:
        return tirx.Select(condition, value, _ZERO) if first else tirx.Select(condition, _ZERO, value)

    chosen = _ONE if inner.chosen is None else inner.chosen
    return replace(inner, value=select(inner.value), chosen=select(chosen))


def _is_nan_of_power(expr: tirx.Expr) -> bool:
    expr = condition_in(expr)
    return isinstance(expr, Call) and getattr(expr.op, "name", "") == "tirx.isnan" and parts_of(expr)[0].same_as(POWER)
