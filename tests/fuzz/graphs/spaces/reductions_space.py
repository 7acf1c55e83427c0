"""Reductions, and what chooses along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from steps import Rejected
from walk import Tensor, Walk

from spaces.declared import I32, I64, F, axes_of, axis_of, some, space

_MOST_FACTORS = 24
"""Of a product: that of more is too small for float32 in one order, not in another, and 0 times inf is no number."""


@space(*(f"Reduce{k}" for k in ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Sum", "SumSquare", "Prod")))
def _reduction(w: Walk, name: str) -> object:
    x = w.pick((F, F, F, I32) if name in ("ReduceMax", "ReduceMin", "ReduceSum") else (F,), range(1, 6))
    axes = axes_of(w, x) if w.chance(0.8) else []
    if name == "ReduceProd" and math.prod(x.shape[axis] for axis in axes or range(x.array.ndim)) > _MOST_FACTORS:
        raise Rejected("too many factors")
    return _over(w, name, x, axes, **some(w, keepdims=w.number(0, 1), noop_with_empty_axes=w.number(0, 1)))


@space("ReduceLogSum")
def _log_sum(w: Walk, name: str) -> object:
    (x,) = w.add("Abs", w.pick(ranks=range(1, 6)))
    (x,) = w.add("Add", x, w.constant(0.1, F))
    return _over(w, name, x, axes_of(w, x), **some(w, keepdims=w.number(0, 1)))


def _over(w: Walk, name: str, x: Tensor, axes: Sequence[int], **attributes: int) -> object:
    """A reduction over axes, over all of them if it is said of none; older operator sets take them as an attribute."""
    if w.opset >= (13 if name == "ReduceSum" else 18):
        return w.add(name, x, w.integers(*axes) if axes else None, **attributes)
    attributes.pop("noop_with_empty_axes", None)
    return w.add(name, x, **({"axes": axes} if axes else {}), **attributes)


@space("ArgMax", "ArgMin")
def _arg(w: Walk, name: str) -> object:
    x = w.pick((F, I32), range(1, 6))
    return w.add(name, x, axis=axis_of(w, x), **some(w, keepdims=w.number(0, 1), select_last_index=w.number(0, 1)))


@space("CumSum")
def _cumulative(w: Walk, name: str) -> object:
    x = w.pick((F, F, I32), range(1, 5))
    return w.add(name, x, w.constant(axis_of(w, x), I64), **some(w, exclusive=w.number(0, 1), reverse=w.number(0, 1)))


@space("Softmax", "LogSoftmax", "Hardmax")
def _softmax(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 6))
    return w.add(name, x, **some(w, axis=axis_of(w, x)))


@space("TopK")
def _top(w: Walk, name: str) -> object:
    x = w.pick((F, F, I32), range(1, 5))
    axis = axis_of(w, x)
    return w.add(
        name,
        x,
        w.integers(w.number(1, x.shape[axis])),
        outputs=2,
        axis=axis,
        sorted=1,
        **some(w, largest=w.number(0, 1)),
    )
