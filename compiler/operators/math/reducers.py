"""Reducers for min, max, argmin and argmax."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tvm import te, tirx

from nnefc.operators.dtypes import is_float

__all__ = [
    "better_of",
    "largest",
    "largest_position",
    "lowest",
    "maximum_reducer",
    "min_max_position",
    "min_or_max_of",
    "minimum_reducer",
]


def minimum_reducer(dtype: Any) -> tirx.Expr:
    """Returns the identity of max: the lowest value of a type."""
    return tirx.const(-math.inf, dtype) if is_float(str(dtype)) else tirx.min_value(dtype)


def maximum_reducer(dtype: Any) -> tirx.Expr:
    """Returns the identity of min: the highest value of a type."""
    return tirx.const(math.inf, dtype) if is_float(str(dtype)) else tirx.max_value(dtype)


# TE's own maximum starts from the smallest finite number. In this one, of windows, NaN never wins.
largest = te.comm_reducer(lambda a, b: tirx.Select(b > a, b, a), minimum_reducer, name="largest")


def better_of(maximum: bool) -> Callable[[Any, Any], tirx.Expr]:
    """Returns the max or the min of two values; NaN if one is."""

    def better(a: Any, b: Any) -> tirx.Expr:
        ahead = a > b if maximum else a < b
        return tirx.Select(tirx.any(ahead, tirx.isnan(a)) if is_float(str(a.expr_ty().dtype)) else ahead, a, b)

    return better


def min_or_max_of(maximum: bool) -> Any:
    """Returns a max or min reducer that propagates NaN."""
    better = better_of(maximum)
    name = "largest" if maximum else "smallest"
    # TE counts arguments
    return te.comm_reducer(lambda a, b: better(a, b), minimum_reducer if maximum else maximum_reducer, name=name)


def min_max_position(maximum: bool, nowhere: int, last: bool = False) -> Any:
    """Returns an argmax or argmin reducer of pairs (index, value); NaN is beyond all other values.

    Of equal ones it takes that with the smallest position, or with the largest. It starts at the position `nowhere`,
    which must come after all others in this order, so that it loses to every element.
    """

    def better(a: Any, b: Any) -> Any:
        ahead, same = a[1] > b[1] if maximum else a[1] < b[1], a[1] == b[1]
        if is_float(str(a[1].expr_ty().dtype)):
            none, other = tirx.isnan(a[1]), tirx.isnan(b[1])
            ahead, same = tirx.any(ahead, tirx.all(none, tirx.Not(other))), tirx.any(same, tirx.all(none, other))
        take = tirx.any(ahead, tirx.all(same, a[0] >= b[0] if last else a[0] <= b[0]))
        return tirx.Select(take, a[0], b[0]), tirx.Select(take, a[1], b[1])

    start = minimum_reducer if maximum else maximum_reducer
    return te.comm_reducer(better, lambda i, v: (tirx.const(nowhere, i), start(v)), name="min_max_position")


def largest_position(nowhere: int, keeps_nan: bool) -> Any:
    """A reducer of pairs (position, value) to the largest value of a window and the first position where it is.

    NaN comes before all numbers, so that its first position is that of a window without any. With
    `keeps_nan` it comes after all numbers, and the last position counts, as in PyTorch. It starts at the position
    `nowhere`, which must come after all others, with :func:`lowest`.
    """

    def better(a: Any, b: Any) -> Any:
        ahead, same, first = a[1] > b[1], a[1] == b[1], a[0] <= b[0]
        take = tirx.any(ahead, tirx.all(same, first))
        if is_float(str(a[1].expr_ty().dtype)):
            nan, other = tirx.isnan(a[1]), tirx.isnan(b[1])
            if keeps_nan:
                take = tirx.any(take, tirx.all(nan, tirx.any(tirx.Not(other), a[0] >= b[0])))
            else:
                take = tirx.any(take, tirx.all(other, tirx.any(tirx.Not(nan), first)))
        return tirx.Select(take, a[0], b[0]), tirx.Select(take, a[1], b[1])

    return te.comm_reducer(better, lambda i, v: (tirx.const(nowhere, i), lowest(v, keeps_nan)), name="largest_position")


def lowest(dtype: Any, keeps_nan: bool) -> tirx.Expr:
    """Return what :func:`largest_position` ranks last: the minimum of the type, or NaN without `keeps_nan`."""
    return minimum_reducer(dtype) if keeps_nan or not is_float(str(dtype)) else tirx.const(math.nan, dtype)
