"""Parts of tensors: slices, selections, gathers, masks."""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import relax, te, tirx

from nnefc.diagnostics import CompileError
from nnefc.frontends.pnnx.lowering import Lowering, Shape, Tensor, broadcast_shapes, dtype_of, rank_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import (
    Extents,
    Indices,
    Ints,
    Number,
    Result,
    axis_of,
    need_rank,
    need_size,
    operator,
)
from nnefc.frontends.pnnx.operators.embedding import bounded, need_integers
from nnefc.frontends.pnnx.operators.shape import joined
from nnefc.operators.matrix import Triangle

__all__: list[str] = []

_NONE = 2147483647
"""Stands in the file for what Python leaves out: an end, or no selection."""


def _range(start: int, end: int, step: int, extent: int) -> tuple[int, int]:
    """First place and number of places of a slice, by Python's rules."""
    if step < 1:
        raise CompileError(f"a step of {step} is not supported: it must be positive")
    places = range(extent)[start : None if end >= _NONE else end : step]
    return places.start, len(places)


def _sliced(at: Lowering, input: Tensor, parts: dict[int, tuple[int, int, int]]) -> relax.Expr:
    """The places `start, start + step, …` (`count` of them) along some axes."""
    expr, shape = at.expr(input), shape_of(input)
    parts = {axis: part for axis, part in parts.items() if part != (0, shape[axis], 1)}
    if not parts:
        return expr
    if any(count == 0 for _, count, _ in parts.values()):
        raise CompileError("the part is empty")
    return relax.op.strided_slice(
        expr,
        list(parts),
        [start for start, _, _ in parts.values()],
        [start + (count - 1) * step + 1 for start, count, step in parts.values()],
        [step for _, _, step in parts.values()],
    )


@operator("Tensor.slice", limits="positive steps")
def _slice(
    at: Lowering,
    input: Tensor,
    dim: int | None = None,
    start: int | None = None,
    end: int | None = None,
    step: int | None = None,
    dims: Ints | None = None,
    starts: Extents | None = None,
    ends: Extents | None = None,
    steps: Extents | None = None,
    selects: Extents | None = None,
) -> Result:
    shape = shape_of(input)
    axes = [axis_of(i, len(shape)) for i in (dims or (0 if dim is None else dim,))]
    count = len(axes)
    if not shape or len(set(axes)) != count:
        raise CompileError("a dimension is sliced twice, or there is none")
    columns = []
    for many, one, absent in ((starts, start, 0), (ends, end, _NONE), (steps, step, 1), (selects, None, _NONE)):
        values = [one] * count if many is None else list(many)
        if len(values) != count:
            raise CompileError(f"the slice of {count} dimensions has lists of other lengths")
        columns.append([absent if value is None else value for value in values])
    parts, dropped = {}, []
    for axis, first, last, stride, select in zip(axes, *columns, strict=True):
        if select != _NONE:
            parts[axis] = (_selected(select, shape[axis]), 1, 1)
            dropped.append(axis)
        else:
            parts[axis] = (*_range(first, last, stride, shape[axis]), stride)
    made = _sliced(at, input, parts)
    return relax.op.squeeze(at.emit(made), dropped) if dropped else made


def _selected(index: int, extent: int) -> int:
    if not -extent <= index < extent:
        raise CompileError(f"there is no place {index} in a dimension of {extent}")
    return index % extent


@operator("Tensor.select", "torch.select")
def _select(at: Lowering, input: Tensor, dim: int, index: int) -> Result:
    need_rank(input, *range(1, 17))
    axis = axis_of(dim, rank_of(input))
    made = _sliced(at, input, {axis: (_selected(index, shape_of(input)[axis]), 1, 1)})
    return relax.op.squeeze(at.emit(made), axis)


@operator("torch.narrow", "Tensor.narrow")
def _narrow(at: Lowering, input: Tensor, dim: int, start: int, length: int) -> Result:
    need_rank(input, *range(1, 17))
    axis = axis_of(dim, rank_of(input))
    extent = shape_of(input)[axis]
    first = start + extent if start < 0 else start
    if not (first >= 0 and length > 0 and first + length <= extent):
        raise CompileError(f"the places {start} to {start + length} are not in a dimension of {extent}")
    return _sliced(at, input, {axis: (first, length, 1)})


@operator("torch.index_select", limits="an index outside reads the nearest place")
def _index_select(at: Lowering, input: Tensor, dim: int, index: Tensor) -> Result:
    need_integers(index)
    (count,) = need_rank(index, 1)
    axis, shape = axis_of(dim, rank_of(input)), shape_of(input)
    if not shape or 0 in shape:
        raise CompileError("there is nothing to select from")

    def element(inputs: tuple[te.Tensor, ...], place: tuple[tirx.Var, ...]) -> tirx.Expr:
        chosen = bounded(inputs[1](place[axis]), shape[axis], False)
        return inputs[0](*place[:axis], chosen, *place[axis + 1 :])

    return at.elements((*shape[:axis], count, *shape[axis + 1 :]), element, input, index, name="index_select")


@operator("torch.gather", limits="an index outside reads the nearest place")
def _gather(at: Lowering, input: Tensor, dim: int, index: Tensor, sparse_grad: bool = False) -> Result:
    need_integers(index)
    shape, wanted = shape_of(input), shape_of(index)
    axis = axis_of(dim, len(shape))
    fits = len(shape) == len(wanted) and all(
        b <= a for i, (a, b) in enumerate(zip(shape, wanted, strict=True)) if i != axis
    )
    if not fits or not shape or 0 in shape:
        raise CompileError(f"the index {list(wanted)} does not fit the input {list(shape)}")

    def element(inputs: tuple[te.Tensor, ...], place: tuple[tirx.Var, ...]) -> tirx.Expr:
        chosen = bounded(inputs[1](*place), shape[axis], False)
        return inputs[0](*place[:axis], chosen, *place[axis + 1 :])

    return at.elements(wanted, element, input, index, name="gather")


@operator("Tensor.index", limits="integer indices; an index outside reads the nearest place")
def _index(at: Lowering, input: Tensor, expr: Indices) -> Result:
    """`input[a, :, b, …]`: the indices broadcast together.

    What they select takes the place of the first one's dimension if they stand side by side, else it comes first.
    """
    shape = shape_of(input)
    axes = [axis for axis, index in enumerate(expr) if index is not None]
    indices = [index for index in expr if index is not None]
    if not indices or len(expr) > len(shape) or 0 in shape:
        raise CompileError(f"{len(expr)} indices do not fit an input of the shape {list(shape)}")
    common: Shape = ()
    for index in indices:
        need_integers(index)
        broadcast = broadcast_shapes(common, shape_of(index))
        if broadcast is None:
            raise CompileError("the indices do not broadcast")
        common = broadcast
    first = axes[0] if axes[-1] - axes[0] == len(axes) - 1 else 0
    rest = [axis for axis in range(len(shape)) if axis not in axes]
    kept = [shape[axis] for axis in rest]

    def element(inputs: tuple[te.Tensor, ...], place: tuple[tirx.Var, ...]) -> tirx.Expr:
        own = place[first : first + len(common)]
        source: dict[int, Any] = dict(zip(rest, [*place[:first], *place[first + len(common) :]], strict=True))
        for axis, index in zip(axes, inputs[1:], strict=True):
            extents = [int(n) for n in index.shape]
            at_ = [0 if n == 1 else i for n, i in zip(extents, own[len(own) - len(extents) :], strict=True)]
            source[axis] = bounded(index(*at_), shape[axis], True)
        return inputs[0](*(source[axis] for axis in range(len(shape))))

    result = need_size((*kept[:first], *common, *kept[first:]))
    return at.elements(result, element, input, *indices, name="index")


# Masks.


def _filled(at: Lowering, input: Tensor, mask: Tensor, value: Tensor | Number) -> Result:
    dtype = dtype_of(input)
    if dtype_of(mask) != "bool" or broadcast_shapes(shape_of(input), shape_of(mask)) is None:
        raise CompileError(f"the mask {list(shape_of(mask))} of {dtype_of(mask)} does not fit")
    filling = np.array(value).astype(dtype) if isinstance(value, bool | int | float) else value
    return relax.op.where(at.expr(mask), at.emit(at.convert(filling, dtype)), at.expr(input))


@operator("torch.masked_fill", "Tensor.masked_fill")
def _masked_fill(at: Lowering, input: Tensor, mask: Tensor, value: Tensor | Number) -> Result:
    return _filled(at, input, mask, value)


@operator("torch.where")
def _where(at: Lowering, condition: Tensor, input: Tensor | Number, other: Tensor | Number) -> Result:
    both = [_typed(one, two) for one, two in ((input, other), (other, input))]
    left, right = joined(at, both)
    shape = broadcast_shapes(shape_of(left), shape_of(right))
    if shape is None or broadcast_shapes(shape, shape_of(condition)) is None:
        raise CompileError("the shapes of the condition and the values do not broadcast")
    return relax.op.where(at.emit(at.convert(condition, "bool")), left, right)


def _typed(value: Tensor | Number, beside: Tensor | Number) -> Tensor:
    """A number as a tensor, of the type of the tensor beside it if that can hold it."""
    if not isinstance(value, bool | int | float):
        return value
    own = np.array(value, np.float32 if isinstance(value, float) else None)
    if isinstance(beside, bool | int | float):
        return own
    dtype = dtype_of(beside)
    kinds = "bool", "int", "float"
    rank = [next((i for i, kind in enumerate(kinds) if kind in name), 1) for name in (str(own.dtype), dtype)]
    return own.astype(dtype) if rank[0] <= rank[1] and dtype != "bfloat16" else own


@operator("torch.tril", "Tensor.tril")
def _tril(at: Lowering, input: Tensor, diagonal: int = 0) -> Result:
    return Triangle(upper=False, diagonal=diagonal).lower(at, input)


@operator("torch.triu", "Tensor.triu")
def _triu(at: Lowering, input: Tensor, diagonal: int = 0) -> Result:
    return Triangle(upper=True, diagonal=diagonal).lower(at, input)


@operator("torch.diag", limits="from a matrix")
def _diag(at: Lowering, input: Tensor, diagonal: int = 0) -> Result:
    rows, columns = need_rank(input, 2)
    count = min(rows, columns - diagonal) if diagonal >= 0 else min(rows + diagonal, columns)
    if count < 1:
        raise CompileError(f"there is no diagonal {diagonal} in a matrix {[rows, columns]}")
    down, right = max(0, -diagonal), max(0, diagonal)
    return at.elements((count,), lambda inputs, i: inputs[0](i[0] + down, i[0] + right), input, name="diag")


@operator("torch.topk", limits="sorted, with their places")
def _topk(at: Lowering, input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Result:
    need_rank(input, *range(1, 17))
    axis, shape = axis_of(dim, rank_of(input)), shape_of(input)
    if not 1 <= k <= shape[axis]:
        raise CompileError(f"there are no {k} elements in a dimension of {shape[axis]}")
    if shape[axis] > 4096:
        raise CompileError(f"a dimension of {shape[axis]} is too long: at most 4096 are supported")
    places = _ranked(at, input, axis, k, largest)
    values = _gather(at, input, axis, places)
    return values, places


def _ranked(at: Lowering, input: Tensor, axis: int, k: int, largest: bool) -> relax.Var:
    """The places of the first `k` elements in order: the place whose element has exactly r elements before it."""
    shape = shape_of(input)
    extent = shape[axis]

    def before(a: tirx.Expr, i: Any, b: tirx.Expr, j: Any) -> tirx.Expr:
        wins = a > b if largest else a < b
        return tirx.any(wins, tirx.all(a == b, i < j))

    def rank(x: te.Tensor) -> te.Tensor:
        other = te.reduce_axis((0, extent), "other")

        def element(*place: tirx.Var) -> tirx.Expr:
            them = x(*place[:axis], other, *place[axis + 1 :])
            return te.sum(before(them, other, x(*place), place[axis]).astype("int32"), axis=[other])

        return te.compute(shape, element, name="rank")

    ranks = at.emit(at.compute(rank, input, name="rank"))

    def place_of(ranks: te.Tensor) -> te.Tensor:
        source = te.reduce_axis((0, extent), "source")

        def element(*place: tirx.Var) -> tirx.Expr:
            found = ranks(*place[:axis], source, *place[axis + 1 :]).astype("int64") == place[axis].astype("int64")
            return te.sum(tirx.Select(found, source.var.astype("int64"), tirx.const(0, "int64")), axis=[source])

        return te.compute((*shape[:axis], k, *shape[axis + 1 :]), element, name="place")

    return at.emit(at.compute(place_of, ranks, name="place"))
