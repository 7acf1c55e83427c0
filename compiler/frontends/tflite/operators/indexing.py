"""Gathering, scattering, sorting, segments, diagonals, and boxes that overlap."""

from __future__ import annotations

import math

import numpy as np

from nnefc.frontends.tflite.lowering import FLOATS, INTEGERS, Lowering, Node, Operand, Result, operator
from nnefc.operators.base import Array, dtype_of, numpy_dtype, rank_of, shape_of, zeros
from nnefc.operators.math.casting import BitCast, Cast
from nnefc.operators.math.elementwise import Where, apply
from nnefc.operators.math.reduction import Sum
from nnefc.operators.nn.quantization import Dequantization
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.creation import Full
from nnefc.operators.tensor.data_dependent_selection import NonZero, Unique
from nnefc.operators.tensor.indexing import Gather, GatherND, OneHot, ReverseSequence
from nnefc.operators.tensor.scatter import ScatterND
from nnefc.operators.tensor.shape import Expand, Reshape, Slice, Transpose, Unsqueeze
from nnefc.operators.tensor.sorting import TopK
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, is_known

__all__: list[str] = []

_NUMBERS = (*FLOATS, *INTEGERS)


@operator("GATHER")
def _gather(ctx: Lowering, node: Node) -> Result:
    x, indices = node.operand(0), node.operand(1)
    axis, batch = node.axis(node.options.axis, rank_of(x)), node.options.batch_dims
    batch += rank_of(indices) if batch < 0 else 0
    if not batch:
        return Gather(axis).lower(ctx, x, indices)
    if not 0 <= batch <= axis:
        raise CompileError(f"{batch} batch dimensions do not come before axis {axis}")
    # The gathered axis comes behind the batch; its indices are tuples of one element.
    order = (*range(batch), axis, *range(batch, axis), *range(axis + 1, rank_of(x)))
    moved = ctx.apply(Transpose(order), x)
    made = ctx.apply(GatherND(batch), moved, ctx.apply(Unsqueeze((rank_of(indices),)), indices))
    count, between = rank_of(indices) - batch, axis - batch
    tail = range(batch + count + between, rank_of(made))
    inner = (*range(batch + count, batch + count + between), *range(batch, batch + count))
    return Transpose((*range(batch), *inner, *tail)).lower(ctx, made)


@operator("GATHER_ND")
def _gather_nd(ctx: Lowering, node: Node) -> Result:
    return GatherND().lower(ctx, node.operand(0), node.operand(1))


@operator("EMBEDDING_LOOKUP", types=("int32",))
def _embedding(ctx: Lowering, node: Node) -> Result:
    rows = ctx.apply(Gather(0), node.operand(1), node.operand(0))
    if node.outputs[0].dtype == "float32" and node.is_quantized(1):
        given = node.quantization(1)
        rows = ctx.apply(BitCast("int8"), rows) if node.dtype(1) == "uint8" else rows  # as old files declare them
        zero = np.zeros(given.scale.size, np.int32)
        if given.is_single:
            return Dequantization().lower(ctx, rows, given.scale.reshape(()), zero.reshape(()))
        scales = ctx.apply(Gather(0), given.scale, node.operand(0))
        shape = (*shape_of(scales), *[1] * (rank_of(rows) - rank_of(scales)))
        return apply(ctx, "multiply", ctx.apply(Cast("float32"), rows), ctx.reshaped(scales, shape))
    return rows


@operator("EMBEDDING_LOOKUP_SPARSE", types=("int32",))
def _sparse_embedding(ctx: Lowering, node: Node) -> Result:
    """Weighted rows of a table, added up in the rows of the result that indices name: sums, means, or sums divided by
    the norm of the weights.
    """
    ids, indices, weights, params = (node.operand(k) for k in (0, 1, 3, 4))
    target, combiner = tuple(node.sizes(2, "the shape"))[:-1], int(node.options.combiner)
    tail, count = shape_of(params)[1:], shape_of(ids)[0]
    if not target or shape_of(indices)[1:] != (len(target) + 1,) or dtype_of(params) != "float32":
        raise CompileError(f"indices {list(shape_of(indices))} of {dtype_of(params)} do not fit {list(target)}")
    if combiner not in (0, 1, 2):
        raise CompileError(f"there is no combiner {combiner}")
    where = ctx.apply(Cast("int64"), ctx.apply(Slice({1: (0, len(target), 1)}), indices))
    rows, factors = ctx.apply(Gather(0), params, ids), ctx.reshaped(weights, (count, *[1] * len(tail)))

    def added(values: Operand, shape: tuple[Dimension, ...]) -> Operand:
        made: Operand = ctx.apply(ScatterND("add"), ctx.apply(Full(shape, 0, "float32")), where, values)
        return made

    made = added(apply(ctx, "multiply", rows, factors), (*target, *tail))
    if not combiner:
        return made
    total = added(weights if combiner == 1 else apply(ctx, "square", weights), target)
    divisor = total if combiner == 1 else apply(ctx, "sqrt", total)
    empty = apply(ctx, "equal", total, np.zeros((), np.float32))
    divisor = ctx.apply(Where(), empty, np.ones((), np.float32), divisor)
    return apply(ctx, "divide", made, ctx.reshaped(divisor, (*target, *[1] * len(tail))))


@operator("ONE_HOT", types=("int32", "int64"))
def _one_hot(ctx: Lowering, node: Node) -> Result:
    indices, values = node.operand(0), [ctx.reshaped(node.operand(k), (1,)) for k in (3, 2)]
    depth = node.size(1, "the depth")
    axis = node.axis(node.options.axis, rank_of(indices) + 1)
    return OneHot(depth, axis).lower(ctx, ctx.apply(Concat(0), *values), indices)


@operator("REVERSE_SEQUENCE")
def _reverse_sequence(ctx: Lowering, node: Node) -> Result:
    options, rank = node.options, node.rank(0)
    layer = ReverseSequence(node.axis(options.seq_dim, rank), node.axis(options.batch_dim, rank))
    return layer.lower(ctx, node.operand(0), node.operand(1))


@operator("TOPK_V2", types=(*_NUMBERS, "int8", "uint8", "int16"))
def _top_k(ctx: Lowering, node: Node) -> Result:
    k = node.size(1, "k")
    values, positions = ctx.apply(TopK(node.rank(0) - 1, k), node.operand(0))
    return values, ctx.apply(Cast(node.outputs[1].dtype), positions)


@operator("WHERE")
def _where(ctx: Lowering, node: Node) -> Result:
    found = ctx.apply(NonZero(), node.operand(0))
    return Transpose((1, 0)).lower(ctx, found)


@operator("UNIQUE", types=_NUMBERS)
def _unique(ctx: Lowering, node: Node) -> Result:
    elements, _, inverse, _ = ctx.apply(Unique(None, in_order=False), node.operand(0))
    return elements, ctx.apply(Cast(node.outputs[1].dtype), inverse)


# Scattering.


@operator("SCATTER_ND", types=("int32", "int64"))
def _scatter_nd(ctx: Lowering, node: Node) -> Result:
    """Updates of the same element are added."""
    target = tuple(node.sizes(2, "the shape"))
    updates = node.operand(1)
    is_bool = dtype_of(updates) == "bool"
    updates = ctx.apply(Cast("int8"), updates) if is_bool else updates
    data = ctx.apply(Full(target, 0, dtype_of(updates)))
    layer = ScatterND("max" if is_bool else "add")
    made = ctx.apply(layer, data, ctx.apply(Cast("int64"), node.operand(0)), updates)
    return ctx.apply(Cast("bool"), made) if is_bool else made


@operator("SPARSE_TO_DENSE", types=("int32", "int64"))
def _sparse_to_dense(ctx: Lowering, node: Node) -> Result:
    target = tuple(node.sizes(1, "the shape"))
    values, indices = node.operand(2), ctx.apply(Cast("int64"), node.operand(0))
    if rank_of(indices) < 2:
        count = math.prod(shape_of(indices))
        indices = ctx.reshaped(indices, (1, count) if len(target) > 1 else (count, 1))
    values = ctx.apply(Expand(shape_of(indices)[:1]), ctx.reshaped(values, shape_of(values) or (1,)))
    data = ctx.apply(Expand(target), ctx.reshaped(node.operand(3), ()))
    return ScatterND().lower(ctx, data, indices, values)


_SEGMENTS = {"SUM": ("add", 0), "PROD": ("mul", 1), "MAX": ("max", None), "MIN": ("min", None)}


@operator(*(f"UNSORTED_SEGMENT_{name}" for name in _SEGMENTS), types=(*FLOATS, "int32"))
def _unsorted_segments(ctx: Lowering, node: Node) -> Result:
    count = node.size(2, "the number of segments")
    return _segments(ctx, node, node.operand(1), count, node.name.removeprefix("UNSORTED_SEGMENT_"))


@operator("SEGMENT_SUM", types=(*FLOATS, "int32"))
def _segment_sum(ctx: Lowering, node: Node) -> Result:
    ids = node.constant(1, "the segments")
    return _segments(ctx, node, ids, int(ids.max(initial=-1)) + 1, "SUM")


def _segments(ctx: Lowering, node: Node, ids: Operand, count: int, name: str) -> Operand:
    """Rows of the data are combined in the rows of the result that their segments are; negative ones are left out."""
    reduction, first = _SEGMENTS[name]
    data, rank = node.operand(0), rank_of(ids)
    tail, dtype = shape_of(data)[rank:], numpy_dtype(dtype_of(data))
    if first is None:
        ends = np.finfo(dtype) if dtype.kind == "f" else np.iinfo(dtype)
        first = ends.min if name == "MAX" else ends.max
    if not is_known(count):
        raise CompileError("a dynamic number of segments is not supported")
    rows = ctx.reshaped(data, (math.prod(shape_of(data)[:rank]), *tail))
    positions = ctx.apply(Cast("int64"), ctx.reshaped(ids, (math.prod(shape_of(ids)), 1)))
    # One row more takes what is left out.
    start = np.full((count + 1, *tail), first, dtype)
    outside = apply(ctx, "less", positions, np.zeros((), np.int64))
    positions = ctx.bound(Where().lower(ctx, outside, np.array(count, np.int64), positions))
    made = ctx.apply(ScatterND(reduction), start, positions, rows)
    return ctx.apply(Gather(0), made, np.arange(count))


# Diagonals.


@operator("MATRIX_DIAG")
def _matrix_diag(ctx: Lowering, node: Node) -> Result:
    x = node.operand(0)
    size = shape_of(x)[-1]
    inside = np.eye(size, dtype=bool)
    return Where().lower(ctx, inside, ctx.apply(Unsqueeze((rank_of(x),)), x), np.zeros((), numpy_dtype(dtype_of(x))))


@operator("MATRIX_SET_DIAG")
def _matrix_set_diag(ctx: Lowering, node: Node) -> Result:
    x, diagonal = node.operand(0), node.operand(1)
    rows, columns = shape_of(x)[-2:]
    inside = np.eye(rows, columns, dtype=bool)
    short = shape_of(diagonal)[-1]
    spread: Operand = ctx.apply(Unsqueeze((rank_of(diagonal),)), diagonal)
    if short != rows:
        tail = (*shape_of(spread)[:-2], rows - short, 1)
        spread = ctx.apply(Concat(rank_of(spread) - 2), spread, zeros(tail, numpy_dtype(dtype_of(x))))
    return Where().lower(ctx, inside, spread, x)


@operator("BUCKETIZE", types=(*FLOATS, "float64", *INTEGERS))
def _bucketize(ctx: Lowering, node: Node) -> Result:
    """How many boundaries are not above an element."""
    x = node.operand(0)
    dtype = "float64" if node.dtype(0) == "float64" else "float32"
    bounds: Array = np.asarray(node.options.boundaries, np.float32).astype(dtype)
    wide = ctx.apply(Unsqueeze((rank_of(x),)), ctx.apply(Cast(dtype), x))
    reached = ctx.apply(Cast("int32"), apply(ctx, "greater_equal", wide, bounds))
    return Sum((rank_of(x),)).lower(ctx, reached)


@operator("HASHTABLE_LOOKUP", types=("int32",), limits="keys that are constants in ascending order")
def _hashtable_lookup(ctx: Lowering, node: Node) -> Result:
    """The rows of the keys, zeros where there is none, and whether there is one."""
    keys, values, lookup = node.constant(1, "the keys").reshape(-1), node.operand(2), node.operand(0)
    equal = apply(ctx, "equal", ctx.apply(Unsqueeze((1,)), lookup), keys.reshape(1, -1))
    hit = ctx.apply(Sum((1,)), ctx.apply(Cast("int32"), equal))
    numbers = np.arange(len(keys), dtype=np.int32).reshape(1, -1)
    row = ctx.apply(Sum((1,)), apply(ctx, "multiply", ctx.apply(Cast("int32"), equal), numbers))
    rows = ctx.apply(Gather(0), values, row)
    found = ctx.apply(Cast("bool"), hit)
    mask = ctx.apply(Reshape((*shape_of(found), *[1] * (rank_of(rows) - 1))), found)
    made = ctx.bound(Where().lower(ctx, mask, rows, np.zeros((), numpy_dtype(dtype_of(rows)))))
    return made, ctx.apply(Cast("uint8"), hit)
