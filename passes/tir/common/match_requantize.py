"""Matches requantization: a number that is rounded, offset by a zero point and clamped.

min(max(nearbyint(x) + 3, 0), 255)     is     RoundedNumber(x, 3, ((Max, 0), (Min, 255)))
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import tvm
from tvm import tirx

from nnefc.passes.tir.common.expressions import loads_of, variables_of

__all__ = ["RoundedNumber", "is_of_integers", "rounded_argument"]

_LARGEST = 1 << 20
"""The largest constant that is matched: float32 represents sums of two such integers exactly."""


@dataclass(frozen=True)
class RoundedNumber:
    """A number that is rounded, offset by a zero point, and clamped.

    Attributes:
        number: float32, what is rounded, to even.
        zero: a whole number that is added to it then.
        limits: minima and maxima with whole numbers, the first one first; of both kinds.
    """

    number: tirx.Expr
    zero: int
    limits: tuple[tuple[type[tirx.Min | tirx.Max], int], ...]

    @property
    def range(self) -> tuple[float, float]:
        """The smallest and the largest value of the number."""
        minimum, maximum = -math.inf, math.inf
        for kind, limit in self.limits:
            cut = min if kind is tirx.Min else max
            minimum, maximum = cut(minimum, limit), cut(maximum, limit)
        return minimum, maximum

    @classmethod
    def of(cls, expr: tirx.Expr) -> RoundedNumber | None:
        """Matches a float expression as a rounded and clamped number; returns None for others."""
        limits: list[tuple[type[tirx.Min | tirx.Max], int]] = []
        while isinstance(expr, tirx.Min | tirx.Max):
            inner, limit = _with_whole(expr)
            if limit is None:
                return None
            limits.append((type(expr), limit))
            expr = inner
        zero: int | None = 0
        if isinstance(expr, tirx.Add):
            expr, zero = _with_whole(expr)
        number = rounded_argument(expr)
        if number is None or zero is None or {kind for kind, _ in limits} != {tirx.Min, tirx.Max}:
            return None
        return cls(number, zero, tuple(reversed(limits)))


def rounded_argument(expr: tirx.Expr) -> tirx.Expr | None:
    """Returns the float32 argument that is rounded to even."""
    is_call = isinstance(expr, tvm.ir.Call) and getattr(expr.op, "name", "") == "tirx.nearbyint"
    return expr.args[0] if is_call and str(expr.expr_ty().dtype) == "float32" else None


def is_of_integers(number: tirx.Expr) -> bool:
    """Whether a float is computed from integers, and from floats that vary along some axes only, as scales do: it is
    never NaN.
    """
    loads = loads_of(number)
    floats = [load for load in loads if str(load.source.dtype).startswith("float")]
    axes = variables_of(position for load in loads if load not in floats for position in load.indices)
    return len(floats) < len(loads) and all(variables_of(load.indices) < axes for load in floats)


def _with_whole(expr: tirx.Min | tirx.Max | tirx.Add) -> tuple[tirx.Expr, int | None]:
    """Returns the operand that is not constant, and the other one as an integer; None if neither is constant."""
    whole = _whole(expr.b)
    return (expr.b, _whole(expr.a)) if whole is None else (expr.a, whole)


def _whole(expr: tirx.Expr) -> int | None:
    while isinstance(expr, tirx.Cast):
        expr = expr.value
    if not isinstance(expr, tirx.FloatImm | tirx.IntImm) or not abs(expr.value) <= _LARGEST:
        return None
    return int(expr.value) if int(expr.value) == expr.value else None
