"""Reads elements under a window that may lie partly outside of a tensor, without conditions that prevent vectorization.

    p = min(max(2 y + i - 1, 0), h - 1)
    x[p]                                        of a maximum, for which outside is -∞
    select(p == 2 y + i - 1, x[p], 0)           of a sum, for which outside is 0

An index outside of the tensor is clamped to the nearest one inside, so that the load needs no condition. For a max
this is enough where the clamped index is in the same window. `passes/tir/common/partition_windows.py` partitions loops
into ranges in which the min and max are decided.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx

from nnefc.operators.nn.window import Window
from nnefc.symbolic.dims import Dimension, bounds, dimension, expression, may_exceed

__all__ = ["window_element"]


def window_element(
    read: Callable[[Sequence[Any]], tirx.Expr],
    window: Window,
    index: Sequence[Any],
    offsets: Sequence[Any],
    sizes: Sequence[Dimension],
    results: Sequence[Dimension],
    outside: Any,
    *,
    idempotent: bool = False,
) -> tirx.Expr:
    """The element `offsets` of the window `index`, or `outside`.

    Args:
        read: of a position in the tensor.
        idempotent: whether an element may be taken twice, as by a maximum.
    """
    positions = window.positions(index, offsets)
    conditions: list[tirx.Expr] = []
    chosen: list[tirx.Expr] = []
    for axis, (position, size, count) in enumerate(zip(positions, sizes, results, strict=True)):
        before, reach, stride = window.before[axis], window.reach[axis], window.stride[axis]
        limits = []
        if may_exceed(before, 0):
            limits.append(position >= 0)
        if may_exceed((count - 1) * stride + reach - before, size):
            limits.append(position < expression(size))
        if not limits:
            continue
        positions[axis] = tirx.max(tirx.min(position, expression(size - 1)), tirx.IntImm("int64", 0))
        if bounds(size)[0] < 1:
            conditions.append(expression(size) > tirx.IntImm("int64", 0))
        meets = window.dilation[axis] == 1 and not may_exceed(before, reach - 1)
        if not (idempotent and meets and not may_exceed((count - 1) * stride - before, dimension(size) - 1)):
            chosen += limits
    value = read(positions)
    if chosen and idempotent:
        value = tirx.Select(tirx.all(*chosen), value, outside)
    elif chosen:  # with a name, which a sum uses once: TVM would read what has none behind a branch
        element = tirx.Var("element", str(value.expr_ty().dtype))
        value = tirx.Let(element, value, tirx.Select(tirx.all(*chosen), element, outside))
    return tirx.if_then_else(tirx.all(*conditions), value, outside) if conditions else value
