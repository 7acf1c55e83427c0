"""Element-wise operators, movements, products and reductions of StableHLO, for which LiteRT itself has no kernels.

Arguments of the operators have the names of the StableHLO specification.
"""

from __future__ import annotations

import math
import string
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nnefc.frontends.tflite.lowering import Lowering, Node, Operand, Result, Value, operator, table
from nnefc.frontends.tflite.operators.data_movement import dilated
from nnefc.frontends.tflite.operators.stablehlo import dimensions_of, function_of, ints_of
from nnefc.operators.base import numpy_dtype, rank_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.einsum import Einsum
from nnefc.operators.math.elementwise import Clip, Elementwise, Where, apply
from nnefc.operators.math.reduction import AllTrue, AnyTrue, Maximum, Minimum, Product, Sum
from nnefc.operators.nn.convolution import Convolution
from nnefc.operators.nn.window import Window
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.indexing import GatherElements, GatherND
from nnefc.operators.tensor.shape import Expand, Reshape, Slice, Transpose
from nnefc.operators.tensor.sorting import TopK
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import is_known

__all__: list[str] = []

_FLOATS = ("float32", "float64")
_NUMBERS = (*_FLOATS, "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")

_UNARY = {
    "LOGISTIC": "sigmoid", "COSINE": "cos", "EXPONENTIAL": "exp", "FLOOR": "floor", "LOG": "log", "RSQRT": "rsqrt",
    "TANH": "tanh",
}  # fmt: skip
table("stablehlo_basics", {f"STABLEHLO_{name}": Elementwise(function) for name, function in _UNARY.items()}, _FLOATS)
table(
    "stablehlo_basics",
    {"STABLEHLO_ABS": Elementwise("abs"), "STABLEHLO_NEGATE": Elementwise("negative")},
    _NUMBERS,
)

_BINARY = {"DIVIDE": "divide", "SUBTRACT": "subtract", "POWER": "power", "REMAINDER": "fmod"}
_OF_BOOLEANS = {
    "ADD": ("add", "logical_or"), "MULTIPLY": ("multiply", "logical_and"),
    "MAXIMUM": ("maximum", "logical_or"), "MINIMUM": ("minimum", "logical_and"),
}  # fmt: skip
"""Functions of numbers that are functions of booleans, too."""

_BITS = {"AND": "bitwise_and", "OR": "bitwise_or"}


def _declare(name: str, function: str, of_booleans: str, types: tuple[str, ...]) -> None:
    @operator(f"STABLEHLO_{name}", types=types)
    def _binary(ctx: Lowering, node: Node) -> Result:
        chosen = of_booleans if node.dtype(0) == "bool" else function
        return ctx.pointwise(lambda x, y: Elementwise(chosen).lower(ctx, x, y), node.operand(0), node.operand(1))


for _name, _function in _BINARY.items():
    _declare(_name, _function, "", _NUMBERS)
for _name, (_function, _other) in _OF_BOOLEANS.items():
    _declare(_name, _function, _other, (*_NUMBERS, "float16", "bool"))
for _name, _function in _BITS.items():
    _declare(_name, _function, _function.replace("bitwise", "logical"), (*_NUMBERS[2:], "bool"))


@operator("STABLEHLO_SELECT", types=("bool",))
def _select(ctx: Lowering, node: Node) -> Result:
    return Where().lower(ctx, *node.operands())


@operator("STABLEHLO_CLAMP", types=_NUMBERS)
def _clamp(ctx: Lowering, node: Node) -> Result:
    low, x, high = node.operands()
    return Clip().lower(ctx, x, low, high)


_DIRECTIONS = ("equal", "not_equal", "greater_equal", "greater", "less_equal", "less")


@operator("STABLEHLO_COMPARE", types=(*_NUMBERS, "bool"), limits="the total order of NaN and signed zeros")
def _compare(ctx: Lowering, node: Node) -> Result:
    direction, kind = node.options.comparison_direction, node.options.compare_type
    if direction >= len(_DIRECTIONS) or kind == 2:
        raise CompileError(f"a comparison {direction} of kind {kind} is not supported")
    return ctx.pointwise(lambda x, y: Elementwise(_DIRECTIONS[direction]).lower(ctx, x, y), *node.operands())


@operator("STABLEHLO_CONVERT", types=(*_NUMBERS, "float16", "bool"))
def _convert(ctx: Lowering, node: Node) -> Result:
    """Lower a conversion; nonzero numbers become true."""
    dtype = node.outputs[0].dtype
    return Value(ctx.apply(Cast(dtype), node.operand(0)), dtype)


# Movements.


@operator("STABLEHLO_RESHAPE")
def _reshape(ctx: Lowering, node: Node) -> Result:
    """The file declares the shape of the result."""
    target = node.outputs[0].shape
    if None in target:
        raise CompileError(f"the shape {list(target)} of the result is not known")
    return Reshape(tuple(size or 0 for size in target)).lower(ctx, node.operand(0))


@operator("STABLEHLO_TRANSPOSE")
def _transpose(ctx: Lowering, node: Node) -> Result:
    order = dimensions_of(node, "permutation", node.rank(0))
    if len(order) != node.rank(0):
        raise CompileError(f"a permutation {list(order)} does not fit {node.rank(0)} dimensions")
    return Transpose(order).lower(ctx, node.operand(0))


@operator("STABLEHLO_CONCATENATE")
def _concatenate(ctx: Lowering, node: Node) -> Result:
    return Concat(node.axis(int(node.options.dimension), node.rank(0))).lower(ctx, *node.operands())


@operator("STABLEHLO_BROADCAST_IN_DIM")
def _broadcast(ctx: Lowering, node: Node) -> Result:
    """Lower a broadcast to the declared shape; an attribute maps the operand's dimensions to the result's."""
    target, shape = node.outputs[0].shape, node.shape(0)
    axes = dimensions_of(node, "broadcast_dimensions", len(target))
    if None in target or len(axes) != len(shape):
        raise CompileError(f"a tensor of shape {list(shape)} cannot be broadcast to {list(target)}")
    x = ctx.apply(Transpose(tuple(sorted(range(len(axes)), key=axes.__getitem__))), node.operand(0))
    sizes = dict(zip(sorted(axes), shape_of(x), strict=True))
    spread = ctx.apply(Reshape(tuple(sizes.get(axis, 1) for axis in range(len(target)))), x)
    return Expand(tuple(size or 0 for size in target)).lower(ctx, spread)


@operator("STABLEHLO_SLICE")
def _slice(ctx: Lowering, node: Node) -> Result:
    options, shape = node.options, node.shape(0)
    starts, limits = ints_of(options.start_indices), ints_of(options.limit_indices)
    steps = ints_of(options.strides) or (1,) * len(shape)
    if not len(starts) == len(limits) == len(steps) == len(shape) or not is_known(*shape):
        raise CompileError(f"slices from {list(starts)} to {list(limits)} do not fit {list(shape)}")
    ranges = {}
    for axis, (first, end, step, size) in enumerate(zip(starts, limits, steps, shape, strict=True)):
        if not 0 <= first <= end <= size or step < 1:
            raise CompileError(f"positions {first} to {end} by {step} are not in a dimension of {size}")
        ranges[axis] = (first, -(-(end - first) // step), step)
    return Slice(ranges).lower(ctx, node.operand(0))


@operator("STABLEHLO_DYNAMIC_SLICE")
def _dynamic_slice(ctx: Lowering, node: Node) -> Result:
    """Starts, an input each, are moved so that the slice lies inside."""
    x, sizes, shape = node.operand(0), ints_of(node.options.slice_sizes), node.shape(0)
    fits = is_known(*shape) and len(sizes) == len(shape) == len(node.inputs) - 1
    if not fits or any(not 0 < size <= whole for size, whole in zip(sizes, shape, strict=True)):
        raise CompileError(f"a slice of {list(sizes)} at {len(node.inputs) - 1} starts does not fit {list(shape)}")
    if not sizes:
        return x
    starts = _inside(ctx, node, 1, sizes, shape)
    offsets = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), -1).astype(np.int64)
    return GatherND().lower(ctx, x, apply(ctx, "add", offsets, starts))


def _inside(ctx: Lowering, node: Node, first: int, sizes: Sequence[int], shape: Sequence[int]) -> Operand:
    """Starts, an input each from the first on, so that windows of these sizes lie in the shape: `[rank]` int64."""
    parts = [ctx.reshaped(ctx.apply(Cast("int64"), node.operand(first + k)), (1,)) for k in range(len(sizes))]
    last = np.array([whole - size for whole, size in zip(shape, sizes, strict=True)], np.int64)
    made: Operand = ctx.apply(Clip(), ctx.apply(Concat(0), *parts), np.zeros_like(last), last)
    return made


@operator("STABLEHLO_DYNAMIC_UPDATE_SLICE")
def _update_slice(ctx: Lowering, node: Node) -> Result:
    from nnefc.operators.tensor.scatter import ScatterND

    x, update = node.operand(0), node.operand(1)
    shape, sizes = shape_of(x), shape_of(update)
    fits = is_known(*shape, *sizes) and len(sizes) == len(shape) == len(node.inputs) - 2
    if not fits or any(size > whole for size, whole in zip(sizes, shape, strict=True)):
        raise CompileError(f"an update {list(sizes)} at {len(node.inputs) - 2} starts does not fit {list(shape)}")
    if not shape:
        return update
    starts = _inside(ctx, node, 2, sizes, shape)
    offsets = np.stack(np.meshgrid(*map(np.arange, sizes), indexing="ij"), -1).astype(np.int64)
    return ScatterND().lower(ctx, x, apply(ctx, "add", offsets, starts), update)


@operator("STABLEHLO_IOTA")
def _iota(ctx: Lowering, node: Node) -> Result:
    """The index along a dimension of the result, whose shape the file declares."""
    target, dtype = node.outputs[0].shape, node.outputs[0].dtype
    if None in target or dtype not in _NUMBERS:
        raise CompileError(f"a result of {dtype} and the shape {list(target)} is not supported")
    axis = node.axis(int(node.options.iota_dimension), len(target))
    line = np.arange(target[axis] or 0).astype(numpy_dtype(dtype))
    line = line.reshape([-1 if k == axis else 1 for k in range(len(target))])
    return Expand(tuple(size or 0 for size in target)).lower(ctx, line)


# Products.


@operator("STABLEHLO_DOT_GENERAL", types=_NUMBERS)
def _dot(ctx: Lowering, node: Node) -> Result:
    """The result has the batching dimensions, then the others of both operands."""
    x, y = node.operand(0), node.operand(1)
    ranks = {"lhs": rank_of(x), "rhs": rank_of(y)}
    batch, summed = (
        {side: dimensions_of(node, f"{side}_{role}_dimensions", rank) for side, rank in ranks.items()}
        for role in ("batching", "contracting")
    )
    if any(len(each["lhs"]) != len(each["rhs"]) for each in (batch, summed)) or sum(ranks.values()) > 52:
        raise CompileError("its operands have different numbers of batching or contracting dimensions")
    letters = iter(string.ascii_letters)
    terms = {side: [next(letters) for _ in range(rank)] for side, rank in ranks.items()}
    for role in (batch, summed):
        for one, other in zip(role["lhs"], role["rhs"], strict=True):
            terms["rhs"][other] = terms["lhs"][one]
    result = [terms["lhs"][axis] for axis in batch["lhs"]]
    for side, rank in ranks.items():
        result += [terms[side][axis] for axis in range(rank) if axis not in (*batch[side], *summed[side])]
    dtype = node.outputs[0].dtype
    given = [ctx.apply(Cast(dtype), operand) for operand in (x, y)]
    return Einsum(f"{''.join(terms['lhs'])},{''.join(terms['rhs'])}->{''.join(result)}").lower(ctx, *given)


@operator("STABLEHLO_CONVOLUTION", types=("float32",), limits="batch groups, reversed windows")
def _convolution(ctx: Lowering, node: Node) -> Result:
    options = node.options
    x, w = node.operand(0), node.operand(1)
    rank = rank_of(x) - 2
    if options.batch_group_count not in (0, 1) or any(options.window_reversal):
        raise CompileError("batch groups and reversed windows are not supported")

    def order(names: Sequence[str], spatial: str) -> tuple[int, ...]:
        made = (*(int(getattr(options, name)) for name in names), *ints_of(getattr(options, spatial)))
        if sorted(made) != list(range(rank + 2)):
            raise CompileError(f"its dimensions {list(made)} are no permutation")
        return made

    roles = ("batch_dimension", "feature_dimension")
    source = order([f"input_{role}" for role in roles], "input_spatial_dimensions")
    target = order([f"output_{role}" for role in roles], "output_spatial_dimensions")
    weights = order(("kernel_output_feature_dimension", "kernel_input_feature_dimension"), "kernel_spatial_dimensions")
    stride, spacing, dilation, padding = (
        ints_of(found) or default
        for found, default in (
            (options.window_strides, (1,) * rank),
            (options.lhs_dilation, (1,) * rank),
            (options.rhs_dilation, (1,) * rank),
            (options.padding, (0,) * 2 * rank),
        )
    )
    if any(len(each) != rank or min(each, default=1) < 1 for each in (stride, spacing, dilation)):
        raise CompileError("its strides and dilations do not fit its dimensions")
    if len(padding) != 2 * rank or min(padding, default=0) < 0:
        raise CompileError(f"a padding of {list(padding)} is not supported")
    x, w = ctx.apply(Transpose(source), x), ctx.apply(Transpose(weights), w)
    x = dilated(ctx, x, (1, 1, *spacing), np.zeros((), np.float32)) if max(spacing, default=1) > 1 else x
    window = Window.of(shape_of(w)[2:], stride, dilation)
    window = window.padded(tuple(zip(padding[::2], padding[1::2], strict=True)))
    made = ctx.apply(Convolution(window, max(int(options.feature_group_count), 1)), x, w)
    return Transpose(tuple(map(target.index, range(rank + 2)))).lower(ctx, made)


# Reductions and sorts, by functions that are given as subgraphs.

_REDUCTIONS: Mapping[str, Any] = {"add": Sum, "mul": Product, "max": Maximum, "min": Minimum}
_JOINED = {"add": "add", "mul": "multiply", "max": "maximum", "min": "minimum"}


@operator("STABLEHLO_REDUCE", types=(*_NUMBERS, "bool"), limits="several operands; functions that are no sum, product, "
          "maximum or minimum")  # fmt: skip
def _reduce(ctx: Lowering, node: Node) -> Result:
    if len(node.inputs) != 2:
        raise CompileError("a reduction of several tensors is not supported")
    axes = tuple(sorted(dimensions_of(node, "dimensions", node.rank(0))))
    name, is_bool = function_of(ctx, node.options.body_subgraph_index, node.dtype(0)), node.dtype(0) == "bool"
    if name not in _REDUCTIONS:
        raise CompileError("its function is neither a sum, a product, a maximum nor a minimum")
    kind = {"max": AnyTrue, "min": AllTrue}[name] if is_bool else _REDUCTIONS[name]
    joined = {"max": "logical_or", "min": "logical_and"}[name] if is_bool else _JOINED[name]
    made = ctx.apply(kind(axes), node.operand(0))
    return apply(ctx, joined, ctx.reshaped(node.operand(1), ()), made)


@operator("STABLEHLO_SORT", types=_NUMBERS, limits="orders by other than the first operand's elements")
def _sort(ctx: Lowering, node: Node) -> Result:
    """Tensors in the order of the first one, which is stable."""
    axis = node.axis(int(node.options.dimension), node.rank(0))
    largest = _descends(ctx, node)
    size = node.shape(0)[axis]
    values, positions = ctx.apply(TopK(axis, size, largest), node.operand(0))
    return [values, *(ctx.apply(GatherElements(axis), other, positions) for other in node.operands()[1:])]


def _descends(ctx: Lowering, node: Node) -> bool:
    """Returns whether a comparator puts larger elements first.

    Raises:
        CompileError: it does not compare the elements of the first tensor.
    """
    answers = []
    for one, other, apart in ((3, 5, 1), (5, 3, 1), (3, 5, -1), (5, 3, -1)):
        given = []
        for index, _ in enumerate(node.inputs):
            pair = (one, other) if index == 0 else (4, 4 + apart)
            given += [Value(np.array(value, numpy_dtype(node.dtype(index))), node.dtype(index)) for value in pair]
        (made,) = ctx.run_subgraph(node.options.comparator_subgraph_index, given)
        known = ctx.known(ctx.bound(ctx.tensor(made)))
        answers.append(None if known is None or math.prod(known.shape) != 1 else bool(known.reshape(())))
    if answers not in ([True, False, True, False], [False, True, False, True]):
        raise CompileError("its comparator does not order by the first tensor")
    return not answers[0]
