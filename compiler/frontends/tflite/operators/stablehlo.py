"""Gathers, scatters and windows of StableHLO, which name the role of each dimension.

Arguments of the operators have the names of the StableHLO specification. Functions that are given as subgraphs, such as
the one that a scatter combines elements by, are found by their values on pairs of scalars.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from nnefc.frontends.tflite.lowering import FLOATS, Lowering, Node, Operand, Result, Value, operator
from nnefc.frontends.tflite.operators.data_movement import dilated
from nnefc.operators.base import Array, dtype_of, rank_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Clip, Elementwise, Where, apply
from nnefc.operators.math.reduction import AllTrue
from nnefc.operators.nn.pooling import MaxPool, SumPool
from nnefc.operators.nn.window import Window
from nnefc.operators.tensor.indexing import GatherND
from nnefc.operators.tensor.padding import Pad
from nnefc.operators.tensor.scatter import ScatterND
from nnefc.operators.tensor.shape import Slice, Squeeze, Transpose
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, is_known

__all__ = ["dimensions_of", "function_of", "ints_of"]

_MAX_STEPS = 1 << 10
"""Positions of a window whose product is written out."""

_MAX_OFFSETS = 1 << 24
"""Elements of a window whose indices are constants."""


# Element-wise.


@operator("STABLEHLO_SHIFT_LEFT", types=("int8", "int16", "int32"))
def _shift_left(ctx: Lowering, node: Node) -> Result:
    return ctx.pointwise(lambda x, y: Elementwise("left_shift").lower(ctx, x, y), *node.operands())


@operator("STABLEHLO_CBRT", types=FLOATS)
def _cube_root(ctx: Lowering, node: Node) -> Result:
    def root(x: Operand) -> Operand:
        size = apply(ctx, "power", apply(ctx, "abs", x), ctx.number(1 / 3, x))
        return apply(ctx, "multiply", apply(ctx, "sign", x), size)

    return ctx.pointwise(root, node.operand(0))


# Dimension numbers.


def ints_of(numbers: Any) -> tuple[int, ...]:
    """The numbers of an option that is a vector."""
    return tuple(int(number) for number in numbers)


def dimensions_of(node: Node, name: str, rank: int) -> tuple[int, ...]:
    """An option that lists distinct dimensions.

    Raises:
        CompileError: one is out of range, or is there twice.
    """
    found = ints_of(getattr(node.options, name))
    if len(set(found)) != len(found) or not all(0 <= axis < rank for axis in found):
        raise CompileError(f"{name} is {list(found)}: these are not distinct dimensions below {rank}")
    return found


def _index_vectors(ctx: Lowering, node: Node, count: int) -> Operand:
    """The indices as int64 with the dimension of their vectors last, `[*batch, count]`.

    Raises:
        CompileError: vectors have another number of elements.
    """
    indices, axis = ctx.apply(Cast("int64"), node.operand(1)), int(node.options.index_vector_dim)
    rank = rank_of(indices)
    if axis == rank:
        indices, rank = ctx.reshaped(indices, (*shape_of(indices), 1)), rank + 1
    node.axis(axis, rank)
    moved: Operand = ctx.apply(Transpose((*(k for k in range(rank) if k != axis), axis)), indices)
    if shape_of(moved)[-1] != count:
        raise CompileError(f"vectors of {shape_of(moved)[-1]} indices are for {count} dimensions")
    return moved


def _elements_of_windows(ctx: Lowering, starts: Operand, sizes: Sequence[int]) -> Operand:
    """Returns the index of each element of windows of these sizes: `[*batch, N]` starts → `[*batch, *sizes, N]`."""
    batch = shape_of(starts)[:-1]
    apart = ctx.reshaped(starts, (*batch, *[1] * len(sizes), len(sizes)))
    if math.prod(sizes) == 1:
        return apart
    if math.prod(sizes) > _MAX_OFFSETS:
        raise CompileError(f"windows of {math.prod(sizes):,} elements are not supported")
    offsets = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), -1).astype(np.int64)
    return ctx.bound(apply(ctx, "add", apart, offsets))


@operator("STABLEHLO_GATHER")
def _gather(ctx: Lowering, node: Node) -> Result:
    """Windows of `slice_sizes` at starts that are moved so that they lie inside."""
    x, sizes = node.operand(0), ints_of(node.options.slice_sizes)
    shape, rank = shape_of(x), rank_of(x)
    mapped, collapsed = (dimensions_of(node, name, rank) for name in ("start_index_map", "collapsed_slice_dims"))
    if len(sizes) != rank or not all(size == 1 for axis, size in enumerate(sizes) if axis in collapsed):
        raise CompileError(f"slice_sizes {list(sizes)} do not fit the operand {list(shape)}")
    if not is_known(*shape) or any(size > whole for size, whole in zip(sizes, shape, strict=True)):
        raise CompileError(f"slices of {list(sizes)} do not fit the operand {list(shape)}")
    starts = _index_vectors(ctx, node, len(mapped))
    last = np.array([shape[axis] - sizes[axis] for axis in mapped], np.int64)
    starts = ctx.apply(Clip(), starts, np.zeros_like(last), last)

    order = (*mapped, *(axis for axis in range(rank) if axis not in mapped))
    cut = {axis: (0, sizes[axis], 1) for axis in order[len(mapped) :] if sizes[axis] != shape[axis]}
    moved = ctx.apply(Transpose(order), ctx.apply(Slice(cut), x) if cut else x)
    made = ctx.apply(GatherND(), moved, _elements_of_windows(ctx, starts, [sizes[axis] for axis in mapped]))

    batch = rank_of(starts) - 1
    made = (
        ctx.apply(Squeeze(tuple(sorted(batch + order.index(axis) for axis in collapsed))), made) if collapsed else made
    )
    kept = [axis for axis in order if axis not in collapsed]
    offsets = dimensions_of(node, "offset_dims", batch + len(kept))
    if len(offsets) != len(kept):
        raise CompileError(f"offset_dims {list(offsets)} do not fit slices of {len(kept)} dimensions")
    windows = [batch + kept.index(axis) for axis in sorted(kept)]
    return Transpose(_interleaved(offsets, windows, range(batch))).lower(ctx, made)


def _interleaved(positions: Sequence[int], chosen: Iterable[int], others: Iterable[int]) -> tuple[int, ...]:
    """Axes with `chosen` at these positions, in ascending order, and `others` between them."""
    fixed = dict(zip(sorted(positions), chosen, strict=True))
    between = [*others]
    left = iter(between)
    return tuple(fixed[k] if k in fixed else next(left) for k in range(len(fixed) + len(between)))


@operator("STABLEHLO_SCATTER")
def _scatter(ctx: Lowering, node: Node) -> Result:
    """Combines elements with windows of updates; elements outside the operand are dropped."""
    if len(node.inputs) != 3:
        raise CompileError("a scatter of several tensors is not supported")
    x, updates = node.operand(0), node.operand(2)
    shape, rank = shape_of(x), rank_of(x)
    mapped = dimensions_of(node, "scatter_dims_to_operand_dims", rank)
    inserted = dimensions_of(node, "inserted_window_dims", rank)
    windows = dimensions_of(node, "update_window_dims", rank_of(updates))
    starts = _index_vectors(ctx, node, len(mapped))
    batch = rank_of(starts) - 1
    spread = [axis for axis in range(rank) if axis not in inserted]
    if len(windows) != len(spread) or rank_of(updates) != batch + len(windows):
        raise CompileError(f"update_window_dims {list(windows)} do not fit updates {list(shape_of(updates))}")
    if not is_known(*shape, *(shape_of(updates)[k] for k in windows)):
        raise CompileError("a scatter into dynamic sizes is not supported")
    sizes = [1] * rank
    for axis, k in zip(spread, sorted(windows), strict=True):
        sizes[axis] = int(shape_of(updates)[k])

    indexed = [*mapped, *(axis for axis in range(rank) if axis not in mapped and sizes[axis] != shape[axis])]
    order = (*indexed, *(axis for axis in range(rank) if axis not in indexed))
    added = len(indexed) - len(mapped)
    if added:
        starts = ctx.apply(Pad((*[(0, 0)] * batch, (0, added))), starts)
    positions = _elements_of_windows(ctx, starts, [sizes[axis] for axis in indexed])
    around = [k for k in range(rank_of(updates)) if k not in windows]
    source = dict(zip(spread, sorted(windows), strict=True))
    moved = ctx.apply(Transpose((*around, *(source[axis] for axis in order if axis in source))), updates)
    moved = ctx.reshaped(moved, (*shape_of(moved)[:batch], *(sizes[axis] for axis in order)))
    reduction = function_of(ctx, node.options.update_computation_subgraph_index, node.dtype(0))
    made = _written(ctx, ctx.apply(Transpose(order), x), positions, moved, reduction, len(indexed))
    return Transpose(tuple(map(order.index, range(rank)))).lower(ctx, made)


def _written(ctx: Lowering, x: Operand, positions: Operand, updates: Operand, reduction: str, depth: int) -> Operand:
    """Combines elements of the first `depth` dimensions; those outside go to a row that is cut off again."""
    limits = np.array(shape_of(x)[:depth], np.int64)
    known, count = ctx.known(positions), int(limits[0])
    if known is not None and ((known >= 0) & (known < limits)).all():
        return ctx.bound(ScatterND(reduction).lower(ctx, x, known, updates))
    spare = np.array([count, *[0] * (depth - 1)], np.int64)
    inside = apply(
        ctx,
        "logical_and",
        apply(ctx, "greater_equal", positions, np.array(0, np.int64)),
        apply(ctx, "less", positions, limits),
    )
    inside = ctx.apply(AllTrue((rank_of(positions) - 1,), True), ctx.bound(inside))
    chosen = ctx.apply(Where(), inside, positions, spare)
    wider = ctx.apply(Pad(((0, 1), *[(0, 0)] * (rank_of(x) - 1))), x)
    made = ctx.bound(ScatterND(reduction).lower(ctx, wider, chosen, updates))
    return ctx.bound(Slice({0: (0, count, 1)}).lower(ctx, made))


# Functions of two scalars.

_PAIRS = ((3, 5), (7, 2), (4, 6), (11, 9))
_BOOLEANS = ((True, False), (False, True), (True, True), (False, False))
_FUNCTIONS: Mapping[str, Callable[[Array, Array], Array]] = {
    "none": lambda _, y: y,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}
"""NumPy's functions by the names of reductions; the maximum of booleans is their disjunction."""


def function_of(ctx: Lowering, index: int, dtype: str) -> str:
    """Returns which function of two scalars a subgraph is.

    Raises:
        CompileError: none of those that are known.
    """
    pairs = np.array(_BOOLEANS if dtype == "bool" else _PAIRS, dtype)
    values = []
    for pair in pairs:
        (made,) = ctx.run_subgraph(index, [Value(np.array(x), dtype) for x in pair])
        known = ctx.known(ctx.bound(ctx.tensor(made)))
        values.append(None if known is None or known.size != 1 else known.reshape(()))
    for name, function in _FUNCTIONS.items():
        if dtype == "bool" and name in ("add", "mul"):
            continue
        wanted = [function(x, y) for x, y in pairs]
        if all(mine is not None and mine == other for mine, other in zip(values, wanted, strict=True)):
            return name
    raise CompileError(f"subgraph {index} is neither an update, a sum, a product, a maximum nor a minimum")


# Windows.

_BY_NUMBER = ("", "add", "mul", "min", "max", "min", "max")
"""Functions of REDUCE_WINDOW: sums, products, minima, maxima, of booleans all and any."""


@operator("STABLEHLO_REDUCE_WINDOW")
def _stablehlo_reduce_window(ctx: Lowering, node: Node) -> Result:
    if len(node.inputs) != 2:
        raise CompileError("windows over several tensors are not supported")
    options, x = node.options, node.operand(0)
    rank = rank_of(x)
    ones = [1] * rank
    size, stride, spacing, dilation, padding = (
        ints_of(found) if len(found) else default
        for found, default in (
            (options.window_dimensions, ()),
            (options.window_strides, ones),
            (options.base_dilations, ones),
            (options.window_dilations, ones),
            (options.padding, [0] * 2 * rank),
        )
    )
    if len(padding) != 2 * rank or min(padding, default=0) < 0:
        raise CompileError(f"a padding of {list(padding)} is not supported")
    first = ctx.reshaped(node.operand(1), ())
    x = dilated(ctx, x, spacing, first)
    x = ctx.apply(Pad(tuple(zip(padding[::2], padding[1::2], strict=True))), x, first) if any(padding) else x
    reduction = function_of(ctx, options.body_subgraph_index, node.dtype(0))
    return _reduced(ctx, x, first, reduction, (size, stride, dilation))


@operator("REDUCE_WINDOW")
def _reduce_window(ctx: Lowering, node: Node) -> Result:
    number = node.options.reduce_function
    if not 0 < number < len(_BY_NUMBER):
        raise CompileError(f"there is no function {number}")
    shapes = tuple(ints_of(node.sizes(index, "a window")) for index in (2, 3, 4))
    return _reduced(ctx, node.operand(0), ctx.reshaped(node.operand(1), ()), _BY_NUMBER[number], shapes)


def _reduced(ctx: Lowering, x: Operand, first: Operand, reduction: str, shapes: tuple[Sequence[int], ...]) -> Operand:
    """Reduces windows of a size, a stride and a dilation over all dimensions, beginning with `first`."""
    shape, dtype = shape_of(x), dtype_of(x)
    if any(len(each) != len(shape) or min(each, default=1) < 1 for each in shapes):
        raise CompileError(f"windows of {', '.join(str(list(each)) for each in shapes)} do not fit {list(shape)}")
    window = Window.of(shapes[0], shapes[1], shapes[2])
    if not all(is_known(whole) and reach <= whole for reach, whole in zip(window.reach, shape, strict=True)):
        raise CompileError(f"windows of {list(window.reach)} do not fit {list(shape)}")
    work = ctx.bound(ctx.apply(Cast("int32"), x) if dtype == "bool" else x)
    if reduction == "none":
        raise CompileError("a window is reduced by a sum, a product, a maximum or a minimum")
    made = _product_of_windows(ctx, work, window) if reduction == "mul" else _pooled(ctx, work, window, reduction)
    made = ctx.apply(Cast("bool"), made) if dtype == "bool" else made
    names = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}
    if dtype == "bool":
        names |= {"max": "logical_or", "min": "logical_and"}
    return apply(ctx, names[reduction], first, made)


def _pooled(ctx: Lowering, x: Operand, window: Window, reduction: str) -> Operand:
    """Sums, maxima, or minima, which are maxima of the elements in reverse order."""
    flip = "negative" if dtype_of(x).startswith("float") else "bitwise_not"
    given = apply(ctx, flip, x) if reduction == "min" else x
    given = ctx.reshaped(ctx.bound(given), (1, 1, *shape_of(x)))
    pool = SumPool(window) if reduction == "add" else MaxPool(window, keeps_nan=True)
    made = ctx.bound(pool.lower(ctx, given))
    made = ctx.reshaped(made, shape_of(made)[2:])
    return apply(ctx, flip, made) if reduction == "min" else made


def _product_of_windows(ctx: Lowering, x: Operand, window: Window) -> Operand:
    """Multiplies strided slices, one for each position of the window."""
    if math.prod(window.size) > _MAX_STEPS:
        raise CompileError(f"a product of {math.prod(window.size):,} elements is not supported")
    counts: Sequence[Dimension] = window.results(shape_of(x))
    made = None
    for position in np.ndindex(*window.size):
        parts = zip(position, window.dilation, counts, window.stride, strict=True)
        part = ctx.apply(Slice({axis: (k * d, n, s) for axis, (k, d, n, s) in enumerate(parts)}), x)
        made = part if made is None else ctx.bound(apply(ctx, "multiply", made, part))
    assert made is not None
    return made
