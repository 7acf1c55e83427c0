"""Data movement: shapes, slices, padding, concatenation, blocks; and creation of tensors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnefc.frontends.tflite.lowering import Lowering, Node, Operand, Result, operator, stored
from nnefc.frontends.tflite.quantized import nearest, refuse_activation, single
from nnefc.frontends.tflite.slicing import python_index
from nnefc.operators.base import Array, rank_of, shape_of
from nnefc.operators.math.elementwise import broadcast_shapes
from nnefc.operators.nn.fixed_point import IntegerTable, table_of
from nnefc.operators.nn.quantization import RANGES
from nnefc.operators.tensor.channel_shuffles import DepthToSpace, SpaceToDepth
from nnefc.operators.tensor.concatenation import Concat, Split, Stack, Unstack
from nnefc.operators.tensor.creation import Arange, Full
from nnefc.operators.tensor.padding import Pad
from nnefc.operators.tensor.shape import Expand, Reshape, Slice, Squeeze, Tile, Transpose, Unsqueeze
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, is_known

__all__: list[str] = []


@operator("RESHAPE")
def _reshape(ctx: Lowering, node: Node) -> Result:
    if node.optional(1) is not None:
        target = node.sizes(1, "the shape")
    else:
        target = [int(size) for size in getattr(node.options, "new_shape", ())]
        target = [] if target == [0] else target  # how old files write a scalar
    return Reshape(tuple(target)).lower(ctx, node.operand(0))


@operator("SQUEEZE")
def _squeeze(ctx: Lowering, node: Node) -> Result:
    shape = node.shape(0)
    axes = node.axes([int(axis) for axis in getattr(node.options, "squeeze_dims", ())], len(shape))
    axes = axes or tuple(axis for axis, size in enumerate(shape) if is_known(size) and size == 1)
    return Squeeze(axes).lower(ctx, node.operand(0))


@operator("EXPAND_DIMS")
def _expand_dims(ctx: Lowering, node: Node) -> Result:
    axis = node.number(1, "the axis")
    return Unsqueeze((node.axis(axis, node.rank(0) + 1),)).lower(ctx, node.operand(0))


@operator("TRANSPOSE")
def _transpose(ctx: Lowering, node: Node) -> Result:
    order = [node.axis(int(axis), node.rank(0)) for axis in node.constant(1, "the permutation").reshape(-1)]
    return Transpose(tuple(order)).lower(ctx, node.operand(0))


@operator("SHAPE")
def _shape(ctx: Lowering, node: Node) -> Result:
    return np.array(node.shape(0), node.outputs[0].dtype)


@operator("RANK")
def _rank(ctx: Lowering, node: Node) -> Result:
    return np.array(node.rank(0), np.int32)


@operator("CONCATENATION")
def _concatenation(ctx: Lowering, node: Node) -> Result:
    refuse_activation(node)
    parts = node.operands()
    rank = rank_of(parts[0])
    axis = node.axis(node.options.axis, rank)
    if node.is_quantized() and node.outputs[0].quantization is not None:
        parts = [_to_result(ctx, node, index, part) for index, part in enumerate(parts)]
    return _joined(ctx, parts, axis)


def _joined(ctx: Lowering, parts: Sequence[Operand], axis: int) -> Operand:
    rank = rank_of(parts[0])
    if rank == 4 and all(ctx.comes_first(part) for part in parts):
        made = ctx.apply(Concat(1 if axis == 3 else axis + (axis > 0)), *map(ctx.channels_first, parts))
        return ctx.channels_last(made)
    joined: Operand = ctx.apply(Concat(axis), *parts)
    return joined


def _to_result(ctx: Lowering, node: Node, index: int, part: Operand) -> Operand:
    """A part of a quantized concatenation with the scale of the result."""
    (scale, zero), (out, point) = single(node.quantization(index)), single(node.result())
    if (scale, zero) == (out, point):
        return part
    factor = scale * (np.float32(1) / out)
    shift = -np.float32(zero) * factor

    def scaled(x: Array) -> Array:
        made = nearest(x.astype(np.float32) * factor + shift).astype(np.int64) + point
        clipped: Array = np.clip(made, *RANGES[node.dtype(index)]).astype(node.dtype(index))
        return clipped

    table = table_of(node.dtype(index), scaled)
    return ctx.pointwise(lambda x: ctx.apply(IntegerTable(), x, table), part)


@operator("PACK")
def _pack(ctx: Lowering, node: Node) -> Result:
    return Stack(node.axis(node.options.axis, node.rank(0) + 1)).lower(ctx, *node.operands())


@operator("UNPACK")
def _unpack(ctx: Lowering, node: Node) -> Result:
    return Unstack(node.axis(node.options.axis, node.rank(0))).lower(ctx, node.operand(0))


@operator("SPLIT")
def _split(ctx: Lowering, node: Node) -> Result:
    x = node.operand(1)
    axis = node.number(0, "the axis")
    axis, count = node.axis(axis, rank_of(x)), node.options.num_splits
    size = shape_of(x)[axis]
    if count < 1 or size % count != 0:
        raise CompileError(f"a dimension of {size} cannot be split into {count} parts")
    return Split(axis, (size // count,) * count).lower(ctx, x)


@operator("SPLIT_V")
def _split_v(ctx: Lowering, node: Node) -> Result:
    sizes = [int(size) for size in node.constant(1, "the sizes").reshape(-1)]
    axis = node.number(2, "the axis")
    axis = node.axis(axis, node.rank(0))
    left = node.shape(0)[axis] - sum(size for size in sizes if size != -1)
    return Split(axis, tuple(left if size == -1 else size for size in sizes)).lower(ctx, node.operand(0))


@operator("SLICE")
def _slice(ctx: Lowering, node: Node) -> Result:
    begin, count = node.sizes(1, "the begin"), node.sizes(2, "the size")
    shape = node.shape(0)
    if not len(begin) == len(count) == len(shape):
        raise CompileError(f"{len(begin)} begins and {len(count)} sizes do not fit the shape {list(shape)}")
    ranges: dict[int, tuple[Dimension, Dimension, int]] = {}
    for axis, (first, taken, size) in enumerate(zip(begin, count, shape, strict=True)):
        taken = size - first if isinstance(taken, int) and taken == -1 else taken
        if is_known(first, taken, size) and not (first >= 0 and taken >= 0 and first + taken <= size):
            raise CompileError(f"{taken} positions from {first} on are not in a dimension of {size}")
        ranges[axis] = (first, taken, 1)
    return Slice(ranges).lower(ctx, node.operand(0))


@operator("STRIDED_SLICE")
def _strided_slice(ctx: Lowering, node: Node) -> Result:
    shape = node.shape(0)
    begin, end, strides = (np.array(node.sizes(index, "a bound"), object) for index in (1, 2, 3))
    index = python_index(node.options, begin, end, strides, len(shape))
    taken = sum(part is not None and part is not ... for part in index)
    if ... not in index:
        index = (*index, ...)
    ranges: dict[int, tuple[Dimension, Dimension, int]] = {}
    dropped, added, axis, position = [], [], 0, 0
    for part in index:
        if part is ...:
            axis, position = axis + len(shape) - taken, position + len(shape) - taken
        elif part is None:
            added.append(position)
            position += 1
        elif isinstance(part, slice):
            ranges[axis] = _range(part, shape[axis])
            axis, position = axis + 1, position + 1
        else:
            ranges[axis] = (node.axis(part, shape[axis]) if is_known(part, shape[axis]) else part, 1, 1)
            dropped.append(axis)
            axis += 1
    made = ctx.apply(Slice(ranges), node.operand(0))
    made = ctx.apply(Squeeze(tuple(dropped)), made) if dropped else made
    return ctx.apply(Unsqueeze(tuple(added)), made) if added else made


def _range(part: slice, size: Dimension) -> tuple[Dimension, Dimension, int]:
    """The first position of a slice, how many there are, and the step."""
    if is_known(size) and all(bound is None or is_known(bound) for bound in (part.start, part.stop)):
        first, last, step = part.indices(size)
        return first, len(range(first, last, step)), step
    if part.step != 1:
        raise CompileError(f"a slice of a dynamic dimension with the step {part.step} is not supported")

    def bound(value: Any, missing: Dimension) -> Any:
        if value is None:
            return missing
        return size + int(value) if is_known(value) and value < 0 else value

    first, last = bound(part.start, 0), bound(part.stop, size)
    return first, last - first, 1


@operator("TILE")
def _tile(ctx: Lowering, node: Node) -> Result:
    return Tile(tuple(node.sizes(1, "the multiples"))).lower(ctx, node.operand(0))


@operator("BROADCAST_TO")
def _broadcast_to(ctx: Lowering, node: Node) -> Result:
    return Expand(tuple(node.sizes(1, "the shape"))).lower(ctx, node.operand(0))


@operator("BROADCAST_ARGS", types=("int32", "int64"))
def _broadcast_args(ctx: Lowering, node: Node) -> Result:
    shapes = [tuple(node.sizes(index, "a shape")) for index in (0, 1)]
    return np.array(broadcast_shapes(*shapes), node.outputs[0].dtype)


def _zero(node: Node) -> int:
    quantization = node.value(0).quantization
    return int(quantization.zero[0]) if quantization is not None and node.is_quantized() else 0


def _pairs(node: Node, index: int) -> tuple[tuple[int, int], ...]:
    pairs = node.constant(index, "the padding").reshape(-1, 2).tolist()
    if len(pairs) != node.rank(0):
        raise CompileError(f"{len(pairs)} pairs of padding do not fit the rank {node.rank(0)}")
    return tuple((int(before), int(after)) for before, after in pairs)


def _padded(ctx: Lowering, x: Operand, layer: Pad, fill: Operand | None = None) -> Operand:
    extra = () if fill is None else (fill,)
    if rank_of(x) == 4 and ctx.comes_first(x):
        n, h, w, c = layer.padding
        return ctx.channels_last(ctx.apply(Pad((n, c, h, w), layer.mode, layer.value), ctx.channels_first(x), *extra))
    made: Operand = ctx.apply(layer, x, *extra)
    return made


@operator("PAD", "PADV2")
def _pad(ctx: Lowering, node: Node) -> Result:
    if node.optional(2) is not None:
        fill = ctx.reshaped(node.operand(2), ())
        return _padded(ctx, node.operand(0), Pad(_pairs(node, 1)), fill)
    return _padded(ctx, node.operand(0), Pad(_pairs(node, 1), "constant", float(_zero(node))))


@operator("MIRROR_PAD")
def _mirror_pad(ctx: Lowering, node: Node) -> Result:
    mode = ("reflect", "symmetric")[node.options.mode]
    return _padded(ctx, node.operand(0), Pad(_pairs(node, 1), mode))


@operator("REVERSE_V2")
def _reverse(ctx: Lowering, node: Node) -> Result:
    shape = node.shape(0)
    axes = node.axes(node.constant(1, "the axes").reshape(-1).tolist(), len(shape))
    return Slice({axis: (shape[axis] - 1, shape[axis], -1) for axis in axes}).lower(ctx, node.operand(0))


# Blocks.


@operator("SPACE_TO_DEPTH", "DEPTH_TO_SPACE")
def _blocks(ctx: Lowering, node: Node) -> Result:
    kind = SpaceToDepth if node.name == "SPACE_TO_DEPTH" else DepthToSpace
    if node.options.block_size < 1:
        raise CompileError(f"a block of {node.options.block_size} is not defined")
    return ctx.channels_last(
        ctx.apply(kind(node.options.block_size, depth_first=True), ctx.channels_first(node.operand(0)))
    )


@operator("SPACE_TO_BATCH_ND")
def _space_to_batch(ctx: Lowering, node: Node) -> Result:
    x, block = node.operand(0), [int(size) for size in node.constant(1, "the block").reshape(-1)]
    pairs = [(int(before), int(after)) for before, after in node.constant(2, "the padding").reshape(-1, 2)]
    count, tail = len(block), rank_of(x) - 1 - len(block)
    around = ((0, 0), *pairs, *[(0, 0)] * tail)
    x = ctx.apply(Pad(around, "constant", float(_zero(node))), x)
    batch, *sizes = shape_of(x)
    if min(block) < 1 or any(is_known(size) and size % step for size, step in zip(sizes, block, strict=False)):
        raise CompileError(f"the sizes {sizes[:count]} are no multiples of the block {block}")
    split = [part for size, step in zip(sizes, block, strict=False) for part in (size // step, step)]
    apart = ctx.apply(Reshape((batch, *split, *sizes[count:])), x)
    steps, kept = [2 + 2 * k for k in range(count)], [1 + 2 * k for k in range(count)]
    order = (*steps, 0, *kept, *range(1 + 2 * count, 1 + 2 * count + tail))
    moved = ctx.apply(Transpose(order), apart)
    smaller = [size // step for size, step in zip(sizes, block, strict=False)]
    return Reshape((batch * math.prod(block), *smaller, *sizes[count:])).lower(ctx, moved)


@operator("BATCH_TO_SPACE_ND")
def _batch_to_space(ctx: Lowering, node: Node) -> Result:
    x, block = node.operand(0), [int(size) for size in node.constant(1, "the block").reshape(-1)]
    crops = [(int(before), int(after)) for before, after in node.constant(2, "the crops").reshape(-1, 2)]
    count, (batch, *sizes) = len(block), shape_of(x)
    if min(block) < 1 or (is_known(batch) and batch % math.prod(block)):
        raise CompileError(f"the batch of {batch} is no multiple of the block {block}")
    apart = ctx.apply(Reshape((*block, batch // math.prod(block), *sizes)), x)
    pairs = [part for k in range(count) for part in (count + 1 + k, k)]
    order = (count, *pairs, *range(2 * count + 1, count + 1 + len(sizes)))
    moved = ctx.apply(Transpose(order), apart)
    larger = [size * step for size, step in zip(sizes, block, strict=False)]
    made = ctx.apply(Reshape((batch // math.prod(block), *larger, *sizes[count:])), moved)
    pairs_ = zip(larger, crops, strict=True)
    ranges = {1 + k: (first, size - first - last, 1) for k, (size, (first, last)) in enumerate(pairs_)}
    return Slice(ranges).lower(ctx, made)


@operator("DILATE")
def _dilate(ctx: Lowering, node: Node) -> Result:
    steps = [int(step) for step in node.constant(1, "the dilations").reshape(-1)]
    return dilated(ctx, node.operand(0), steps, ctx.reshaped(node.operand(2), ()))


def dilated(ctx: Lowering, x: Operand, steps: Sequence[int], fill: Operand) -> Operand:
    """Puts copies of a value between the elements: each dimension is padded, then flattened, then cut.

    Args:
        steps: by dimension, the distance of two elements in the result.
    """
    for axis, step in enumerate(steps):
        shape = shape_of(x)
        if step < 1:
            raise CompileError(f"a dilation of {step} is not defined")
        if step == 1:
            continue
        apart = ctx.apply(Unsqueeze((axis + 1,)), x)
        around = tuple((0, step - 1) if k == axis + 1 else (0, 0) for k in range(len(shape) + 1))
        wide = ctx.apply(Pad(around), apart, fill)
        flat = ctx.apply(Reshape((*shape[:axis], shape[axis] * step, *shape[axis + 1 :])), wide)
        x = ctx.apply(Slice({axis: (0, (shape[axis] - 1) * step + 1, 1)}), flat)
    return x


@operator("STABLEHLO_PAD")
def _stablehlo_pad(ctx: Lowering, node: Node) -> Result:
    options = node.options
    x, fill = node.operand(0), ctx.reshaped(node.operand(1), ())
    if options.interior_padding.any():
        x = dilated(ctx, x, [int(count) + 1 for count in options.interior_padding], fill)
    pairs = zip(options.edge_padding_low.tolist(), options.edge_padding_high.tolist(), strict=True)
    return Pad(tuple((int(low), int(high)) for low, high in pairs)).lower(ctx, x, fill)


# Creation.


@operator("FILL")
def _fill(ctx: Lowering, node: Node) -> Result:
    value = ctx.reshaped(node.operand(1), ())
    return Expand(tuple(node.sizes(0, "the shape"))).lower(ctx, value)


@operator("ZEROS_LIKE")
def _zeros_like(ctx: Lowering, node: Node) -> Result:
    return Full(tuple(node.shape(0)), 0, stored(node.dtype(0))).lower(ctx)


@operator("RANGE", types=("float32", "int32", "int64"))
def _range_(ctx: Lowering, node: Node) -> Result:
    if node.dtype(0) == "float32":
        start, limit, step = (float(node.constant(k, "a bound").reshape(())) for k in range(3))
    else:
        start, limit, step = (node.sizes(k, "a bound")[0] for k in range(3))
    if isinstance(step, int | float) and step == 0:
        raise CompileError("the step is 0")
    made = Arange.of(start, limit, step, node.outputs[0].dtype)
    if made is None:
        raise CompileError("the range does not fit 64 bits")
    return made.lower(ctx)


@operator("DYNAMIC_UPDATE_SLICE")
def _update_slice(ctx: Lowering, node: Node) -> Result:
    """Starts are moved so that the update lies inside."""
    x, update = node.operand(0), node.operand(1)
    starts = node.ctx.known(node.operand(2))
    if starts is None:
        return _update_at_run_time(ctx, node, x, update)
    shape, sizes = shape_of(x), shape_of(update)
    made = update
    for axis in reversed(range(len(shape))):  # around the update comes what was there before
        first = min(max(int(starts.reshape(-1)[axis]), 0), shape[axis] - sizes[axis])
        inner = {k: (min(max(int(starts.reshape(-1)[k]), 0), shape[k] - sizes[k]), sizes[k], 1) for k in range(axis)}
        before = ctx.apply(Slice({**inner, axis: (0, first, 1)}), x)
        after = ctx.apply(Slice({**inner, axis: (first + sizes[axis], shape[axis] - first - sizes[axis], 1)}), x)
        parts = [part for part in (before, made, after) if shape_of(part)[axis]] or [made]
        made = ctx.apply(Concat(axis), *parts) if len(parts) > 1 else parts[0]
    return made


def _update_at_run_time(ctx: Lowering, node: Node, x: Operand, update: Operand) -> Operand:
    """Scatters the elements of the update."""
    from nnefc.operators.math.casting import Cast
    from nnefc.operators.math.elementwise import Clip, apply
    from nnefc.operators.tensor.scatter import ScatterND

    shape, sizes = shape_of(x), shape_of(update)
    if not is_known(*shape, *sizes):
        raise CompileError("an update with dynamic sizes is not supported")
    high = np.array([a - b for a, b in zip(shape, sizes, strict=True)], np.int64)
    starts = ctx.apply(Clip(), ctx.apply(Cast("int64"), node.operand(2)), np.zeros_like(high), high)
    offsets = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), -1).astype(np.int64)
    return ScatterND().lower(ctx, x, apply(ctx, "add", offsets, starts), update)
