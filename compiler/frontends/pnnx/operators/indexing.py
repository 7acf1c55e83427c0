"""Reads parts of tensors: slices, select, gather, masks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from nnefc.frontends.pnnx.lowering import Lowering, Shape, Tensor, dtype_of, rank_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import (
    Indices,
    Ints,
    Number,
    Result,
    Sizes,
    axis_of,
    need_rank,
    operator,
)
from nnefc.frontends.pnnx.operators.embedding import positions
from nnefc.frontends.pnnx.operators.shape import joined
from nnefc.operators.dtypes import numpy_dtype
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Where
from nnefc.operators.math.matrix import Triangle
from nnefc.operators.tensor.indexing import AdvancedIndex, Gather, GatherElements
from nnefc.operators.tensor.shape import Diagonal, Slice, Squeeze
from nnefc.operators.tensor.sorting import TopK
from nnefc.support.diagnostics import CompileError

__all__ = ["Part", "parts_of"]

_NONE = 2147483647
"""Stands in the file for what Python leaves out: an end, or no selection."""


@dataclass(frozen=True)
class Part:
    """The positions of one dimension that a slice or a selection takes; a selection drops the dimension."""

    axis: int
    first: int
    count: int
    step: int = 1
    selects: bool = False


def parts_of(
    shape: Shape,
    dim: int | None = None,
    start: int | None = None,
    end: int | None = None,
    step: int | None = None,
    select: int | None = None,
    dims: Ints | None = None,
    starts: Sizes | None = None,
    ends: Sizes | None = None,
    steps: Sizes | None = None,
    selects: Sizes | None = None,
) -> list[Part]:
    """The parts that the arguments of a slice describe, one for each dimension that they name."""
    axes = [axis_of(i, len(shape)) for i in (dims or (0 if dim is None else dim,))]
    count = len(axes)
    if not shape or len(set(axes)) != count:
        raise CompileError(
            f"the dimensions {axes} are sliced twice" if shape else "a tensor without dimensions cannot be sliced"
        )
    columns = []
    given = (starts, start, 0), (ends, end, _NONE), (steps, step, 1), (selects, select, _NONE)
    for many, one, absent in given:
        values = [one] * count if many is None else list(many)
        if len(values) != count:
            raise CompileError(f"the slice of {count} dimensions has lists of other lengths")
        columns.append([absent if value is None else value for value in values])
    parts = []
    for axis, first, last, stride, index in zip(axes, *columns, strict=True):
        if index != _NONE:
            parts.append(Part(axis, _selected(index, shape[axis]), 1, selects=True))
        else:
            parts.append(Part(axis, *_range(first, last, stride, shape[axis]), stride))
    return parts


def _range(start: int, end: int, step: int, size: int) -> tuple[int, int]:
    """Returns the first index and the length of a slice, by Python's rules."""
    if step < 1:
        raise CompileError(f"a step of {step} is not supported: it must be positive")
    indices = range(size)[start : None if end >= _NONE else end : step]
    return indices.start, len(indices)


def _sliced(ctx: Lowering, input: Tensor, ranges: Mapping[int, tuple[int, int, int]]) -> Result:
    if any(count == 0 for _, count, _ in ranges.values()):
        raise CompileError(f"the slice has no elements: the input has the shape {list(shape_of(input))}")
    return ctx.apply(Slice(ranges), input)


@operator("Tensor.slice", limits="positive steps")
def _slice(
    ctx: Lowering,
    input: Tensor,
    dim: int | None = None,
    start: int | None = None,
    end: int | None = None,
    step: int | None = None,
    dims: Ints | None = None,
    starts: Sizes | None = None,
    ends: Sizes | None = None,
    steps: Sizes | None = None,
    selects: Sizes | None = None,
) -> Result:
    parts = parts_of(shape_of(input), dim, start, end, step, None, dims, starts, ends, steps, selects)
    made = _sliced(ctx, input, {part.axis: (part.first, part.count, part.step) for part in parts})
    dropped = tuple(part.axis for part in parts if part.selects)
    return Squeeze(dropped).lower(ctx, made) if dropped else made


def _selected(index: int, size: int) -> int:
    if not -size <= index < size:
        raise CompileError(f"the index {index} is out of range for a dimension of {size}")
    return index % size


@operator("Tensor.select", "torch.select")
def _select(ctx: Lowering, input: Tensor, dim: int, index: int) -> Result:
    need_rank(input, *range(1, 17))
    axis = axis_of(dim, rank_of(input))
    made = _sliced(ctx, input, {axis: (_selected(index, shape_of(input)[axis]), 1, 1)})
    return Squeeze((axis,)).lower(ctx, made)


@operator("torch.narrow", "Tensor.narrow")
def _narrow(ctx: Lowering, input: Tensor, dim: int, start: int, length: int) -> Result:
    need_rank(input, *range(1, 17))
    axis = axis_of(dim, rank_of(input))
    size = shape_of(input)[axis]
    first = start + size if start < 0 else start
    if not (first >= 0 and length > 0 and first + length <= size):
        raise CompileError(f"the positions {start} to {start + length} are out of range for a dimension of {size}")
    return _sliced(ctx, input, {axis: (first, length, 1)})


@operator("torch.index_select", limits="an index outside reads the nearest element")
def _index_select(ctx: Lowering, input: Tensor, dim: int, index: Tensor) -> Result:
    need_rank(index, 1)
    need_rank(input, *range(1, 17))
    return Gather(axis_of(dim, rank_of(input)), "clip").lower(ctx, input, positions(ctx, index))


@operator("torch.gather", limits="an index outside reads the nearest element")
def _gather(ctx: Lowering, input: Tensor, dim: int, index: Tensor, sparse_grad: bool = False) -> Result:
    need_rank(input, *range(1, 17))
    return GatherElements(axis_of(dim, rank_of(input)), "clip").lower(ctx, input, positions(ctx, index))


@operator("Tensor.index", limits="integer indices; an index outside reads the nearest element")
def _index(ctx: Lowering, input: Tensor, expr: Indices) -> Result:
    indices = {axis: positions(ctx, index) for axis, index in enumerate(expr) if index is not None}
    if not indices or len(expr) > rank_of(input):
        raise CompileError(f"{len(expr)} indices do not fit an input of the shape {list(shape_of(input))}")
    return AdvancedIndex(tuple(indices)).lower(ctx, input, *indices.values())


# Masks.


@operator("torch.masked_fill", "Tensor.masked_fill")
def _masked_fill(ctx: Lowering, input: Tensor, mask: Tensor, value: Tensor | Number) -> Result:
    dtype = dtype_of(input)
    if dtype_of(mask) != "bool":
        raise CompileError(f"the mask must be of booleans, it is of {dtype_of(mask)}")
    filling = np.array(value).astype(dtype) if isinstance(value, bool | int | float) else value
    return Where().lower(ctx, mask, ctx.apply(Cast(dtype), filling), input)


@operator("torch.where")
def _where(ctx: Lowering, condition: Tensor, input: Tensor | Number, other: Tensor | Number) -> Result:
    left, right = joined(ctx, [_typed(input, other), _typed(other, input)])
    return Where().lower(ctx, ctx.apply(Cast("bool"), condition), left, right)


def _typed(value: Tensor | Number, operand: Tensor | Number) -> Tensor:
    """A number as a tensor, of the type of the tensor next to it if that can hold it."""
    if not isinstance(value, bool | int | float):
        return value
    own = np.array(value, np.float32 if isinstance(value, float) else None)
    if isinstance(operand, bool | int | float):
        return own
    dtype = dtype_of(operand)
    kinds = "bool", "int", "float"
    rank = [next((i for i, kind in enumerate(kinds) if kind in name), 1) for name in (str(own.dtype), dtype)]
    return own.astype(numpy_dtype(dtype)) if rank[0] <= rank[1] else own


@operator("torch.tril", "Tensor.tril")
def _tril(ctx: Lowering, input: Tensor, diagonal: int = 0) -> Result:
    return Triangle(upper=False, diagonal=diagonal).lower(ctx, input)


@operator("torch.triu", "Tensor.triu")
def _triu(ctx: Lowering, input: Tensor, diagonal: int = 0) -> Result:
    return Triangle(upper=True, diagonal=diagonal).lower(ctx, input)


@operator("torch.diag", limits="from a matrix")
def _diag(ctx: Lowering, input: Tensor, diagonal: int = 0) -> Result:
    need_rank(input, 2)
    return Diagonal(diagonal).lower(ctx, input)


@operator("torch.topk", limits="sorted, with their indices")
def _topk(ctx: Lowering, input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Result:
    need_rank(input, *range(1, 17))
    if k < 1:
        raise CompileError(f"there are no {k} elements in a dimension")
    return tuple(ctx.apply(TopK(axis_of(dim, rank_of(input)), k, largest), input))


@operator("torch.sort")
def _sort(ctx: Lowering, input: Tensor, dim: int = -1, descending: bool = False) -> Result:
    need_rank(input, *range(1, 17))
    axis = axis_of(dim, rank_of(input))
    return tuple(ctx.apply(TopK(axis, shape_of(input)[axis], descending), input))


@operator("torch.argsort")
def _argsort(ctx: Lowering, input: Tensor, dim: int = -1, descending: bool = False) -> Result:
    return _sort(ctx, input, dim, descending)[1]
