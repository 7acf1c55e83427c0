"""Reductions, and what chooses along an axis."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graph import Tensor
from steps import Rejected
from walk import Walk

from spaces.declared import I32, I64, INTEGERS, F, axes_of, axis_of, computed_indices, some, space

_MAX_FACTORS = 24
"""Of a product: that of more is too small for float32 in one order, not in another, and 0 times inf is no number."""

_REDUCED = {
    **dict.fromkeys(("ReduceMax", "ReduceMin"), INTEGERS),
    **dict.fromkeys(("ReduceL1", "ReduceProd", "ReduceSumSquare"), (I64,)),
    "ReduceSum": (I32, I64),
}
"""Element types that reductions have, next to floats; ONNX's reference gives int64 for int32 in some."""


@space(*(f"Reduce{k}" for k in ("L1", "L2", "LogSumExp", "Max", "Mean", "Min", "Sum", "SumSquare", "Prod")))
def _reduction(w: Walk, name: str) -> object:
    x = w.pick((F, F, F, F, *_REDUCED.get(name, ())), range(1, 6))
    axes = axes_of(w, x) if w.chance(0.8) else []
    if name == "ReduceProd" and math.prod(x.shape[axis] for axis in axes or range(x.array.ndim)) > _MAX_FACTORS:
        raise Rejected("too many factors")
    return _over(w, name, x, axes, **some(w, keepdims=w.number(0, 1), noop_with_empty_axes=w.number(0, 1)))


@space("ReduceLogSum")
def _log_sum(w: Walk, name: str) -> object:
    (x,) = w.add("Abs", w.pick(ranks=range(1, 6)))
    (x,) = w.add("Add", x, w.constant(0.1, F))
    return _over(w, name, x, axes_of(w, x), **some(w, keepdims=w.number(0, 1)))


def _over(w: Walk, name: str, x: Tensor, axes: Sequence[int], **attributes: int) -> object:
    """A reduction over axes, over all of them by default; older operator sets take them as an attribute."""
    if w.opset >= (13 if name == "ReduceSum" else 18):
        return w.add(name, x, w.integers(*axes) if axes else None, **attributes)
    attributes.pop("noop_with_empty_axes", None)
    return w.add(name, x, **({"axes": axes} if axes else {}), **attributes)


@space("ArgMax", "ArgMin")
def _arg(w: Walk, name: str) -> object:
    x = w.pick((F, F, F, *INTEGERS), range(1, 6))
    return w.add(name, x, axis=axis_of(w, x), **some(w, keepdims=w.number(0, 1), select_last_index=w.number(0, 1)))


@space("CumSum")
def _cumulative(w: Walk, name: str) -> object:
    x = w.pick((F, F, I32), range(1, 5))
    return w.add(name, x, w.constant(axis_of(w, x), I64), **some(w, exclusive=w.number(0, 1), reverse=w.number(0, 1)))


@space("CumProd")
def _cumulative_product(w: Walk, name: str) -> object:
    x = w.pick((F, F, I32), range(1, 5))
    axis = axis_of(w, x)
    if x.shape[axis] > (_MAX_FACTORS if x.is_float else 8):
        raise Rejected("too many factors")
    return w.add(name, x, w.constant(axis, I64), **some(w, exclusive=w.number(0, 1), reverse=w.number(0, 1)))


@space("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
def _loss(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(2, 5))
    if not x.array.size:
        raise Rejected("the standard's function takes no empty batch")
    shape, classes = (x.shape[0], *x.shape[2:]), x.shape[1]
    labels = w.rng.integers(0, max(classes, 1), shape).astype(w.one(I64, I32))
    ignored = {}
    if w.chance(0.3):
        ignored = {"ignore_index": w.one(0, -100, classes)}
        labels.reshape(-1)[w.rng.integers(0, max(labels.size, 1), 2) % max(labels.size, 1)] = ignored["ignore_index"]
    given = computed_indices(w, shape, classes) if not ignored and w.chance(0.25) else w.constant(labels)
    weights = w.constant(w.rng.uniform(0.2, 2, classes).astype(F)) if w.chance(0.5) else None
    outputs = w.number(1, 2) if name.startswith("Softmax") else 1
    return w.add(name, x, given, weights, outputs=outputs, **ignored, **some(w, reduction=w.one("none", "sum", "mean")))


@space("Softmax", "LogSoftmax", "Hardmax")
def _softmax(w: Walk, name: str) -> object:
    x = w.pick(ranks=range(1, 6))
    return w.add(name, x, **some(w, axis=axis_of(w, x)))


@space("TopK")
def _top(w: Walk, name: str) -> object:
    x = w.pick((F, F, F, *INTEGERS), range(1, 5))
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
