"""Writes parts of tensors: assignments to slices, selections, indices and masks."""

from __future__ import annotations

import math
from collections.abc import Sequence

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
from nnefc.frontends.pnnx.operators.indexing import Part, parts_of
from nnefc.operators.base import numpy_dtype
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Elementwise, Where
from nnefc.operators.tensor.concatenation import Concat, Stack
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.scatter import ScatterElements, ScatterND
from nnefc.operators.tensor.shape import Expand, Reshape, Slice, Transpose, Unsqueeze
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []


def _expanded(ctx: Lowering, source: Tensor, shape: Shape) -> Tensor:
    """The source, repeated to a shape."""
    own = shape_of(source)
    missing = len(shape) - len(own)
    if missing < 0 or any(n not in (1, size) for n, size in zip(own, shape[missing:], strict=True)):
        raise CompileError(f"values of the shape {list(own)} do not fit a part of the shape {list(shape)}")
    wide = ctx.apply(Unsqueeze(tuple(range(missing))), source) if missing else source
    expanded: Tensor = ctx.apply(Expand(tuple(shape)), wide)
    return expanded


def _as_tensor(ctx: Lowering, value: Tensor | Number, dtype: str) -> Tensor:
    if isinstance(value, bool | int | float):
        return np.array(value).astype(numpy_dtype(dtype))
    tensor: Tensor = ctx.apply(Cast(dtype), value)
    return tensor


# Slices and selections.


def _written(ctx: Lowering, input: Tensor, parts: Sequence[Part], source: Tensor) -> Tensor:
    """The input with the source, of the shape of the parts together, written to these parts."""
    if not parts:
        return source
    part, *tail = parts
    axis, size = part.axis, shape_of(input)[part.axis]
    if part.step == 1:
        end = part.first + part.count
        inner = ctx.apply(Slice({axis: (part.first, part.count, 1)}), input) if tail else input
        pieces = [
            *([ctx.apply(Slice({axis: (0, part.first, 1)}), input)] if part.first else []),
            _written(ctx, inner, tail, source),
            *([ctx.apply(Slice({axis: (end, size - end, 1)}), input)] if end < size else []),
        ]
        return ctx.apply(Concat(axis), *pieces) if len(pieces) > 1 else pieces[0]
    offsets = np.arange(size) - part.first
    here = (offsets >= 0) & (offsets % part.step == 0) & (offsets < part.count * part.step)
    inner = ctx.apply(Slice({axis: (part.first, part.count, part.step)}), input) if tail else input
    spread = ctx.apply(Gather(axis), _written(ctx, inner, tail, source), np.where(here, offsets // part.step, 0))
    mask = here.reshape([size if i == axis else 1 for i in range(rank_of(input))])
    made: Tensor = ctx.apply(Where(), mask, spread, input)
    return made


def _put(ctx: Lowering, input: Tensor, parts: Sequence[Part], source: Tensor) -> Result:
    """The same with a source that lacks the selected dimensions, and is repeated to the shape of the parts."""
    shape = list(shape_of(input))
    for part in parts:
        shape[part.axis] = part.count
    if 0 in shape:
        return input
    selected = [part.axis for part in parts if part.selects]
    kept = tuple(size for axis, size in enumerate(shape) if axis not in selected)
    whole = ctx.apply(Reshape(tuple(shape)), _expanded(ctx, _as_tensor(ctx, source, dtype_of(input)), kept))
    return _written(ctx, input, parts, whole)


@operator("Tensor.slice_copy", limits="positive steps")
def _slice_copy(
    ctx: Lowering,
    input: Tensor,
    src: Tensor,
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
) -> Result:
    parts = parts_of(shape_of(input), dim, start, end, step, select, dims, starts, ends, steps, selects)
    return _put(ctx, input, parts, src)


@operator("torch.slice_scatter", limits="positive steps")
def _slice_scatter(
    ctx: Lowering,
    input: Tensor,
    src: Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> Result:
    parts = parts_of(shape_of(input), dim, start, end, step)
    shape = [next((part.count for part in parts if part.axis == axis), n) for axis, n in enumerate(shape_of(input))]
    if shape_of(src) != tuple(shape):
        raise CompileError(f"the source {list(shape_of(src))} does not have the shape of the slice, {shape}")
    return _put(ctx, input, parts, src)


@operator("torch.select_scatter")
def _select_scatter(ctx: Lowering, input: Tensor, src: Tensor, dim: int, index: int) -> Result:
    parts = parts_of(shape_of(input), dim, select=index)
    shape = [size for axis, size in enumerate(shape_of(input)) if axis != parts[0].axis]
    if shape_of(src) != tuple(shape):
        raise CompileError(f"the source {list(shape_of(src))} does not have the shape of the selection, {shape}")
    return _put(ctx, input, parts, src)


# Indices and masks.


@operator("Tensor.copy")
def _copy(ctx: Lowering, input: Tensor, src: Tensor, non_blocking: bool = False) -> Result:
    return _expanded(ctx, _as_tensor(ctx, src, dtype_of(input)), shape_of(input))


@operator("Tensor.index_put", limits="integers, or one mask whose values do not depend on how many elements it selects")
def _index_put(
    ctx: Lowering, input: Tensor, indices: Indices, values: Tensor | Number, accumulate: bool = False
) -> Result:
    source = _as_tensor(ctx, values, dtype_of(input))
    given = {axis: index for axis, index in enumerate(indices) if index is not None}
    if not given:
        raise CompileError("there are no indices")
    if any(dtype_of(index) == "bool" for index in given.values()):
        return _mask_put(ctx, input, given, source, accumulate)
    axes, shape = tuple(given), shape_of(input)
    if axes[-1] >= len(shape):
        raise CompileError(f"{len(indices)} indices do not fit an input of the shape {list(shape)}")
    try:
        common = np.broadcast_shapes(*map(shape_of, given.values()))
    except ValueError:
        raise CompileError("the shapes of the indices do not fit each other") from None
    together = axes[-1] - axes[0] == len(axes) - 1
    first = axes[0] if together else 0
    others = [axis for axis in range(len(shape)) if axis not in axes]
    kept = [shape[axis] for axis in others]
    whole = _expanded(ctx, source, (*kept[:first], *common, *kept[first:]))
    order = range(first, first + len(common))
    updates = ctx.apply(Transpose((*order, *range(first), *range(order.stop, rank_of(whole)))), whole)
    moved = ctx.apply(Transpose((*axes, *others)), input)
    parts = [_expanded(ctx, ctx.apply(Cast("int64"), positions(ctx, index)), common) for index in given.values()]
    tuples = ctx.apply(Stack(len(common)), *parts)
    made = ctx.apply(ScatterND("add" if accumulate else "none"), moved, tuples, updates)
    return Transpose(tuple(map((*axes, *others).index, range(len(shape))))).lower(ctx, made)


def _mask_put(ctx: Lowering, input: Tensor, given: dict[int, Tensor], source: Tensor, accumulate: bool) -> Result:
    """Values where a mask of the leading dimensions is true."""
    mask, shape = given[min(given)], shape_of(input)
    rank = rank_of(mask)
    if list(given) != [0] or rank > len(shape) or shape_of(mask) != shape[:rank]:
        raise CompileError("a mask together with other indices, or of another shape than the input, is not supported")
    own = shape_of(source)
    if len(own) > len(shape) - rank and math.prod(own[: len(own) - (len(shape) - rank)]) != 1:
        raise CompileError(
            f"values of the shape {list(own)} for the elements that a mask selects are not supported: their number "
            "is not known at compile time",
            hint="write it as torch.where(mask, values, input), with values of the input's shape",
        )
    trailing = own[len(own) - (len(shape) - rank) :] if len(own) > len(shape) - rank else own
    values = _expanded(ctx, ctx.apply(Reshape(tuple(trailing)), source), shape)
    new = ctx.apply(Elementwise("add"), input, values) if accumulate else values
    wide = ctx.apply(Reshape((*shape[:rank], *(1,) * (len(shape) - rank))), mask)
    return Where().lower(ctx, wide, new, input)


def _scattered(ctx: Lowering, input: Tensor, dim: int, index: Tensor, src: Tensor | Number, reduction: str) -> Result:
    need_rank(input, *range(1, 17))
    sizes, source = shape_of(index), _as_tensor(ctx, src, dtype_of(input))
    if isinstance(src, bool | int | float):
        source = _expanded(ctx, source, sizes)
    elif rank_of(source) != len(sizes) or any(n > size for n, size in zip(sizes, shape_of(source), strict=True)):
        raise CompileError(f"the indices {list(sizes)} do not fit the source {list(shape_of(source))}")
    used = ctx.apply(Slice({axis: (0, n, 1) for axis, n in enumerate(sizes)}), source)
    return ScatterElements(axis_of(dim, rank_of(input)), reduction).lower(ctx, input, positions(ctx, index), used)


@operator("torch.scatter_add")
def _scatter_add(ctx: Lowering, input: Tensor, dim: int, index: Tensor, src: Tensor) -> Result:
    return _scattered(ctx, input, dim, index, src, "add")


@operator("torch.scatter")
def _scatter(ctx: Lowering, input: Tensor, dim: int, index: Tensor, src: Tensor | Number) -> Result:
    return _scattered(ctx, input, dim, index, src, "none")
