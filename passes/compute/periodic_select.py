"""Selects one of several expressions by the index of an unrolled loop."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx

__all__ = ["chosen"]


def chosen(index: tirx.Expr, values: Sequence[tirx.Expr]) -> tirx.Expr:
    """Returns `values[index]`; the loop over `index` is unrolled, so that the selection is resolved at compile time."""
    result = values[-1]
    for i in reversed(range(len(values) - 1)):
        result = tirx.Select(index == i, values[i], result)
    return result
