"""Data movement: operators that move elements without changing them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from nnefc.frontends.pnnx.lowering import MAX_LIST_ELEMENTS, Lowering, Shape, Tensor, dtype_of, rank_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import Ints, Result, Tensors, axis_of, need_rank, operator
from nnefc.frontends.pnnx.promotion import promote
from nnefc.operators.math.casting import Cast
from nnefc.operators.tensor.channel_shuffles import ChannelShuffle, DepthToSpace, SpaceToDepth
from nnefc.operators.tensor.concatenation import Concat, Split, Stack, Unstack
from nnefc.operators.tensor.shape import (
    Expand,
    RepeatElements,
    Reshape,
    Roll,
    Slice,
    Squeeze,
    Tile,
    Transpose,
    Unsqueeze,
)
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import greatest

__all__ = ["joined"]


@operator("Tensor.view", "Tensor.reshape", "torch.reshape")
def _view(ctx: Lowering, input: Tensor, shape: Ints) -> Result:
    return Reshape(shape).lower(ctx, input)


@operator("Tensor.view_as", "Tensor.reshape_as")
def _view_as(ctx: Lowering, input: Tensor, other: Tensor) -> Result:
    return Reshape(shape_of(other)).lower(ctx, input)


@operator("torch.flatten")
def _flatten(ctx: Lowering, input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Result:
    shape = shape_of(input) or (1,)
    start, end = axis_of(start_dim, len(shape)), axis_of(end_dim, len(shape))
    if start > end:
        raise CompileError(
            f"'start_dim' {start_dim} is behind 'end_dim' {end_dim} in a tensor of {len(shape)} dimensions"
        )
    return Reshape((*shape[:start], math.prod(shape[start : end + 1]), *shape[end + 1 :])).lower(ctx, input)


@operator("nn.Flatten")
def _flatten_module(ctx: Lowering, input: Tensor, start_dim: int = 1, end_dim: int = -1) -> Result:
    return _flatten(ctx, input, start_dim, end_dim)


@operator("nn.Unflatten", "torch.unflatten", "Tensor.unflatten")
def _unflatten(
    ctx: Lowering, input: Tensor, dim: int, unflattened_size: Ints | None = None, sizes: Ints | None = None
) -> Result:
    shape, axis = shape_of(input), axis_of(dim, rank_of(input))
    parts: Shape = tuple(unflattened_size or sizes or ())
    if not shape or not parts:
        raise CompileError(f"a dimension of {list(shape)} cannot be divided into {list(parts)}")
    whole = Reshape(parts).shape((shape[axis],))
    return Reshape((*shape[:axis], *whole, *shape[axis + 1 :])).lower(ctx, input)


@operator("torch.permute", "Tensor.permute")
def _permute(ctx: Lowering, input: Tensor, dims: Ints) -> Result:
    return Transpose(tuple(axis_of(dim, rank_of(input)) for dim in dims)).lower(ctx, input)


@operator("torch.transpose", "Tensor.transpose")
def _transpose(ctx: Lowering, input: Tensor, dim0: int, dim1: int) -> Result:
    order = list(range(rank_of(input)))
    if not order:
        return input
    a, b = axis_of(dim0, len(order)), axis_of(dim1, len(order))
    order[a], order[b] = order[b], order[a]
    return Transpose(tuple(order)).lower(ctx, input)


@operator("torch.t", "Tensor.t")
def _t(ctx: Lowering, input: Tensor) -> Result:
    if rank_of(input) > 2:
        raise CompileError(f"'t' transposes at most 2 dimensions, the input has {rank_of(input)}")
    return Transpose(tuple(reversed(range(rank_of(input))))).lower(ctx, input)


@operator("torch.movedim")
def _movedim(ctx: Lowering, input: Tensor, source: Ints, destination: Ints) -> Result:
    rank = rank_of(input)
    sources, targets = [axis_of(i, rank) for i in source], [axis_of(i, rank) for i in destination]
    if len(set(sources)) != len(sources) or len(set(targets)) != len(targets) or len(sources) != len(targets):
        raise CompileError(f"the dimensions {list(source)} cannot become {list(destination)}")
    moved = dict(zip(targets, sources, strict=True))
    tail = iter(axis for axis in range(rank) if axis not in sources)
    order = tuple(moved[axis] if axis in moved else next(tail) for axis in range(rank))
    return Transpose(order).lower(ctx, input)


@operator("torch.squeeze", "Tensor.squeeze")
def _squeeze(ctx: Lowering, input: Tensor, dim: Ints | None = None) -> Result:
    shape = shape_of(input)
    chosen = range(len(shape)) if dim is None else [axis_of(i, len(shape)) for i in dim]
    return Squeeze(tuple(axis for axis in chosen if shape[axis] == 1)).lower(ctx, input)


@operator("torch.unsqueeze", "Tensor.unsqueeze")
def _unsqueeze(ctx: Lowering, input: Tensor, dim: int) -> Result:
    return Unsqueeze((axis_of(dim, rank_of(input) + 1),)).lower(ctx, input)


def _expanded(ctx: Lowering, input: Tensor, wanted: Sequence[int]) -> Result:
    own = (1,) * (len(wanted) - rank_of(input)) + shape_of(input)
    return Expand(tuple(n if size == -1 else size for n, size in zip(own, wanted, strict=False))).lower(ctx, input)


@operator("Tensor.expand", "torch.broadcast_to")
def _expand(ctx: Lowering, input: Tensor, shape: Ints | None = None, sizes: Ints | None = None) -> Result:
    return _expanded(ctx, input, shape or sizes or ())


@operator("Tensor.expand_as")
def _expand_as(ctx: Lowering, input: Tensor, other: Tensor) -> Result:
    return _expanded(ctx, input, shape_of(other))


def _tiled(ctx: Lowering, input: Tensor, repeats: Sequence[int]) -> Result:
    shape = (1,) * (len(repeats) - rank_of(input)) + shape_of(input)
    if len(repeats) != len(shape) or any(not 1 <= count < 1 << 31 for count in repeats):
        raise CompileError(f"an input of {rank_of(input)} dimensions cannot be repeated {list(repeats)} times")
    return Tile(tuple(repeats)).lower(ctx, ctx.reshaped(input, shape))


@operator("Tensor.repeat")
def _repeat(ctx: Lowering, input: Tensor, repeats: Ints | None = None, sizes: Ints | None = None) -> Result:
    return _tiled(ctx, input, repeats or sizes or ())


@operator("torch.tile")
def _tile(ctx: Lowering, input: Tensor, dims: Ints) -> Result:
    return _tiled(ctx, input, (1,) * (rank_of(input) - len(dims)) + tuple(dims))


@operator("torch.repeat_interleave", limits="one number for all elements")
def _repeat_interleave(ctx: Lowering, input: Tensor, repeats: int, dim: int | None = None) -> Result:
    if not 1 <= repeats < 1 << 31:
        raise CompileError(f"'repeats' must be positive, it is {repeats}")
    if dim is None:
        input, dim = ctx.reshaped(input, (math.prod(shape_of(input)),)), 0
    return RepeatElements(repeats, axis_of(dim, rank_of(input))).lower(ctx, input)


# Joining and dividing.


def joined(ctx: Lowering, tensors: Sequence[Tensor]) -> list[Tensor]:
    """The tensors in the type that they promote to."""
    dtype = dtype_of(tensors[0])
    for tensor in tensors[1:]:
        dtype = promote(dtype, dtype_of(tensor))
    return [ctx.apply(Cast(dtype), tensor) for tensor in tensors]


def _tensors(groups: tuple[Any, ...]) -> Tensors:
    """Operands laid flat: each is a tensor or a sequence of tensors."""
    flat: list[Any] = []
    for group in groups:
        flat += list(group) if isinstance(group, tuple) else [group]
    if not flat or any(element is None or isinstance(element, bool | int | float | str | tuple) for element in flat):
        raise CompileError("the operands should be tensors")
    return Tensors(flat)


@operator("torch.cat", "torch.concat")
def _cat(ctx: Lowering, *tensors: Tensors, dim: int = 0) -> Result:
    flat = _tensors(tensors)
    shapes = [shape_of(tensor) for tensor in flat]
    # An empty vector joins with anything.
    kept = [tensor for tensor, shape in zip(flat, shapes, strict=True) if shape != (0,)] or list(flat)
    if not rank_of(kept[0]):
        raise CompileError("tensors of rank 0 cannot be joined")
    return Concat(axis_of(dim, rank_of(kept[0]))).lower(ctx, *joined(ctx, kept))


@operator("torch.stack")
def _stack(ctx: Lowering, *tensors: Tensors, dim: int = 0) -> Result:
    flat = _tensors(tensors)
    return Stack(axis_of(dim, rank_of(flat[0]) + 1)).lower(ctx, *joined(ctx, flat))


def _divided(ctx: Lowering, input: Tensor, sizes: Sequence[int], axis: int) -> Result:
    if any(size < 1 for size in sizes):
        raise CompileError("the parts must not be empty")
    return tuple(ctx.apply(Split(axis, tuple(sizes)), input))


def _axis_with_size(input: Tensor, dim: int) -> tuple[int, int]:
    if not rank_of(input):
        raise CompileError("a tensor of rank 0 cannot be divided")
    axis = axis_of(dim, rank_of(input))
    return axis, shape_of(input)[axis]


def _sizes_of(length: int, size: int) -> list[int]:
    _check_count(-(-length // size), length)
    return [min(size, length - start) for start in range(0, length, size)]


def _check_count(count: int, size: int) -> None:
    if not 1 <= count <= MAX_LIST_ELEMENTS:
        raise CompileError(
            f"a dimension of {size} cannot become {count} parts: at most {MAX_LIST_ELEMENTS} are supported"
        )


@operator("torch.chunk", "Tensor.chunk")
def _chunk(ctx: Lowering, input: Tensor, chunks: int, dim: int = 0) -> Result:
    axis, size = _axis_with_size(input, dim)
    if chunks < 1 or not size:
        raise CompileError(f"a dimension of {size} cannot become {chunks} parts")
    return _divided(ctx, input, _sizes_of(size, -(-size // chunks)), axis)


@operator("torch.split", "Tensor.split")
def _split(
    ctx: Lowering,
    input: Tensor,
    split_size_or_sections: Ints | None = None,
    split_size: Ints | None = None,
    dim: int = 0,
) -> Result:
    axis, size = _axis_with_size(input, dim)
    sizes = split_size_or_sections or split_size or Ints()
    if len(sizes) != 1:
        return _divided(ctx, input, sizes, axis)
    if sizes[0] < 1:
        raise CompileError(f"a dimension of {size} cannot be divided into parts of {sizes[0]}")
    return _divided(ctx, input, _sizes_of(size, sizes[0]), axis)


@operator("torch.tensor_split")
def _tensor_split(
    ctx: Lowering, input: Tensor, indices: Ints | None = None, sections: int | None = None, dim: int = 0
) -> Result:
    axis, size = _axis_with_size(input, dim)
    if sections is not None:
        if not 1 <= sections <= size:
            raise CompileError(f"a dimension of {size} cannot become {sections} parts")
        _check_count(sections, size)
        sizes = [size // sections + (i < size % sections) for i in range(sections)]
    else:
        ends = [0, *(end if end >= 0 else greatest(size + end, 0) for end in indices or ()), size]
        sizes = [b - a for a, b in pairwise(ends)]
    return _divided(ctx, input, sizes, axis)


@operator("torch.unbind", "Tensor.unbind")
def _unbind(ctx: Lowering, input: Tensor, dim: int = 0) -> Result:
    axis, size = _axis_with_size(input, dim)
    _check_count(size, size)
    return tuple(ctx.apply(Unstack(axis), input))


@operator("torch.flip", "Tensor.flip")
def _flip(ctx: Lowering, input: Tensor, dims: Ints) -> Result:
    axes = sorted({axis_of(dim, rank_of(input)) for dim in dims}) if rank_of(input) else []
    return Slice({axis: (shape_of(input)[axis] - 1, shape_of(input)[axis], -1) for axis in axes}).lower(ctx, input)


@operator("torch.roll", "Tensor.roll")
def _roll(ctx: Lowering, input: Tensor, shifts: Ints, dims: Ints | None = None) -> Result:
    shape = shape_of(input)
    if not dims:
        if len(shifts) != 1:
            raise CompileError("several shifts need as many dimensions")
        flat = ctx.reshaped(input, (math.prod(shape),))
        return Reshape(shape).lower(ctx, ctx.apply(Roll((shifts[0],)), flat))
    if len(shifts) != len(dims):
        raise CompileError(f"{len(shifts)} shifts do not fit {len(dims)} dimensions")
    amounts = [0] * len(shape)
    for shift, dim in zip(shifts, dims, strict=True):
        amounts[axis_of(dim, len(shape))] += shift
    return Roll(tuple(amounts)).lower(ctx, input)


@operator("nn.PixelShuffle", "F.pixel_shuffle", "torch.pixel_shuffle")
def _pixel_shuffle(ctx: Lowering, input: Tensor, upscale_factor: int) -> Result:
    need_rank(input, 3, 4, 5)
    return DepthToSpace(upscale_factor).lower(ctx, input)


@operator("nn.PixelUnshuffle", "F.pixel_unshuffle", "torch.pixel_unshuffle")
def _pixel_unshuffle(ctx: Lowering, input: Tensor, downscale_factor: int) -> Result:
    need_rank(input, 3, 4, 5)
    return SpaceToDepth(downscale_factor).lower(ctx, input)


@operator("nn.ChannelShuffle", "F.channel_shuffle", "torch.channel_shuffle")
def _channel_shuffle(ctx: Lowering, input: Tensor, groups: int) -> Result:
    return ChannelShuffle(groups).lower(ctx, input)


@operator("Tensor.size", limits="known at compile time")
def _size(ctx: Lowering, input: Tensor, dim: int | None = None) -> Result:
    return shape_of(input) if dim is None else _axis_with_size(input, dim)[1]
