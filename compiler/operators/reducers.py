"""What extremes are found with: reducers that start where nothing is lower or later."""

from __future__ import annotations

import math
from typing import Any

from tvm import te, tirx

__all__ = ["first_largest", "largest", "least"]


def least(dtype: Any) -> tirx.Expr:
    """What no element is smaller than."""
    return tirx.const(-math.inf, dtype) if "float" in str(dtype) else tirx.min_value(dtype)


# TE's own maximum starts from the least finite number.
largest = te.comm_reducer(lambda a, b: tirx.max(a, b), least, name="largest")


def first_largest(nowhere: int) -> Any:
    """A reducer of pairs (position, value) to the largest value; of equal ones that with the smallest position.

    It starts at the position `nowhere`, which must be larger than all others, so that it loses to every element, also
    to the least one.
    """

    def better(a: Any, b: Any) -> Any:
        take = tirx.any(a[1] > b[1], tirx.all(a[1] == b[1], a[0] <= b[0]))
        return tirx.Select(take, a[0], b[0]), tirx.Select(take, a[1], b[1])

    return te.comm_reducer(better, lambda i, v: (tirx.const(nowhere, i), least(v)), name="first_largest")
