"""Operators with indices."""

from __future__ import annotations

import numpy as np
from graph import Tensor
from steps import Rejected
from walk import Walk

from spaces.declared import ANY, BOOL, I32, I64, INTEGERS, F, axis_of, computed_indices, space, weight


def _indices(w: Walk, shape: tuple[int, ...], size: int) -> Tensor:
    """Random indices of an axis, some from the back, some computed."""
    if w.chance(0.25):
        return computed_indices(w, shape, size)
    found = w.rng.integers(-size if w.chance(0.3) else 0, size, shape)
    return w.constant(found.astype(w.one(I64, I32)))


@space("Gather")
def _gather(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 5))
    axis = axis_of(w, x)
    return w.add(name, x, _indices(w, tuple(w.number(1, 5) for _ in range(w.number(0, 2))), x.shape[axis]), axis=axis)


@space("GatherElements")
def _gather_elements(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 5))
    axis = axis_of(w, x)
    shape = [w.number(1, size) if w.chance(0.2) and size else size for size in x.shape]
    shape[axis] = w.size()
    return w.add(name, x, _indices(w, tuple(shape), x.shape[axis]), axis=axis)


@space("GatherND")
def _gather_nd(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 5))
    batch = w.number(0, min(1, x.array.ndim - 1))
    depth = w.number(1, x.array.ndim - batch)
    lead = (*x.shape[:batch], *(w.number(1, 4) for _ in range(w.number(0, 2))))
    sizes = x.shape[batch : batch + depth]
    if w.chance(0.25):
        indices = computed_indices(w, (*lead, depth), sizes)
    else:
        indices = w.constant(np.stack([w.rng.integers(0, size, lead) for size in sizes], -1).astype(I64))
    return w.add(name, x, indices, **({"batch_dims": batch} if batch else {}))


def _check_reduction(w: Walk, kind: str) -> None:
    if kind in ("max", "min") and w.opset < 18:
        raise Rejected("older operator sets scatter no minima or maxima")


@space("ScatterElements")
def _scatter_elements(w: Walk, name: str) -> object:
    x = w.pick((F, F, F, F, *INTEGERS), range(1, 4))
    axis = axis_of(w, x)
    kind = w.one("none", "add", "max", "min", "mul")
    shape = [w.number(1, size) for size in x.shape]
    indices = np.argsort(w.rng.random((*x.shape,)), axis)[tuple(slice(s) for s in shape)]
    if kind != "none" and w.chance(0.5):
        indices = w.rng.integers(0, x.shape[axis], shape)
    is_computed = kind != "none" and w.chance(0.25)
    where = computed_indices(w, tuple(shape), x.shape[axis]) if is_computed else w.constant(indices.astype(I64))
    updates = weight(w, w.random(shape, x.array.dtype)) if x.is_float else w.constant(w.random(shape, x.array.dtype))
    _check_reduction(w, kind)
    return w.add(name, x, where, updates, axis=axis, **({} if kind == "none" else {"reduction": kind}))


@space("ScatterND")
def _scatter_nd(w: Walk, name: str) -> object:
    x = w.pick((F, F, F, F, *INTEGERS), range(1, 4))
    depth = w.number(1, x.array.ndim)
    kind = w.one("none", "add", "max", "min", "mul")
    count = int(np.prod(x.shape[:depth]))
    chosen = w.rng.permutation(count)[: w.number(1, min(count, 6))]
    if kind != "none" and w.chance(0.5):
        chosen = w.rng.integers(0, count, len(chosen))
    indices = np.stack(np.unravel_index(chosen, x.shape[:depth]), -1)
    updates = w.constant(w.random((len(chosen), *x.shape[depth:]), x.array.dtype))
    _check_reduction(w, kind)
    return w.add(name, x, w.constant(indices.astype(I64)), updates, **({} if kind == "none" else {"reduction": kind}))


@space("Compress")
def _compress(w: Walk, name: str) -> object:
    x = w.pick(ANY, range(1, 4))
    axis = axis_of(w, x)
    condition = w.random((w.number(1, x.shape[axis]),), BOOL)
    condition[0] = True
    return w.add(name, x, w.constant(condition), axis=axis)


@space("NonZero")
def _nonzero(w: Walk, name: str) -> object:
    return w.add(name, w.pick((BOOL, BOOL, F, *INTEGERS), range(1, 4)))
