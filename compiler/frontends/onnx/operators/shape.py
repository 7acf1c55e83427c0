"""Data movement: Reshape, Transpose, Concat, Split, Slice, Pad, Tile, …; and creation of tensors."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy as np

from nnefc.frontends.onnx.checks.extensions import DOMAIN
from nnefc.frontends.onnx.data_dependent_sizes import distance_of
from nnefc.frontends.onnx.operator import AnyValue, Context, Node, Value, operator
from nnefc.frontends.onnx.operators.casting import element_type
from nnefc.frontends.onnx.operators.shapes_in_run import (
    are_axes_from_data,
    in_sizes,
    is_sliced_in_run,
    padded_in_run,
    reshaped_in_run,
    sliced_in_run,
)
from nnefc.frontends.onnx.operators.tensors import (
    dtype_of,
    fail,
    has_input,
    input_at,
    integers,
    is_float,
    known,
    normal_axes,
    normal_axis,
    required_value,
    shape_of,
    spell,
    tells_at_run_time,
)
from nnefc.frontends.onnx.values import SparseTensor, dtype_name, numpy_dtype
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Elementwise, broadcast_shapes
from nnefc.operators.tensor.channel_shuffles import DepthToSpace, SpaceToDepth
from nnefc.operators.tensor.concatenation import Concat, Split
from nnefc.operators.tensor.creation import Arange, Eye, Full, check_constant
from nnefc.operators.tensor.data_dependent_shapes import squeeze_sizes, unsqueeze_sizes
from nnefc.operators.tensor.data_dependent_sizes import (
    data_dependent_size,
    depends_on_data,
    expanded_size,
    range_length,
    requested_size,
)
from nnefc.operators.tensor.padding import Pad
from nnefc.operators.tensor.shape import Expand, ExpandInRun, Reshape, Slice, Squeeze, Tile, Transpose, Unsqueeze
from nnefc.symbolic.arrays import of_elements
from nnefc.symbolic.dims import (
    Dimension,
    ceil_div,
    greatest,
    is_known,
    known_less,
    may_exceed,
    minimum,
)
from nnefc.symbolic.refinement import MAX_RUNS_APART, Refined
from nnefc.symbolic.unification import ComparedInRun, compared_in_run
from nnefc.symbolic.values import Quotient, choice_of, chosen, equal, is_negative_unless, less, quotient, single_size

__all__: list[str] = []


@operator("Reshape", since=(1, 5, 13, 14, 19, 21, 23, 24, 25))
def _reshape(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    if node.version > 1 and tells_at_run_time(ctx, node, 1) and 0 not in shape_of(x):
        return reshaped_in_run(ctx, node, x, partial(_reshaped, ctx, node, x))
    declared = node.attributes.get("shape") if node.version == 1 else integers(ctx, node, 1, "shape")
    return _reshaped(ctx, node, x, list(declared or []))


def _reshaped(ctx: Context, node: Node, x: Value, wanted: list[Dimension]) -> Any:
    shape, target = shape_of(x), []
    if 0 in shape and tells_at_run_time(ctx, node, 1):
        required_value(ctx, node, 1, "shape")  # which of the sizes is 0 does not follow from those of `x`
    for axis, size in enumerate(wanted):
        if size == 0 and not node.attributes.get("allowzero", 0):
            if axis >= len(shape):
                raise fail(node, f"the shape {spell(wanted)} copies dimension {axis} of {spell(shape)}")
            size = shape[axis]
        target.append(size)
    return ctx.apply(Reshape(tuple(target)), x)


@operator("Flatten", since=(1, 9, 11, 13, 21, 23, 24, 25))
def _flatten(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    shape, axis = shape_of(x), node.attributes["axis"]
    if not -len(shape) <= axis <= len(shape):
        raise fail(node, f"axis {axis} is out of range for a tensor of rank {len(shape)}")
    axis += len(shape) if axis < 0 else 0
    return ctx.apply(Reshape((math.prod(shape[:axis]), math.prod(shape[axis:]))), x)


def _named_axes(ctx: Context, node: Node) -> list[int] | None:
    return list(node.attributes["axes"]) if node.attributes.get("axes") is not None else integers(ctx, node, 1, "axes")


@operator("Squeeze", since=(1, 11, 13, 21, 23, 24, 25))
def _squeeze(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    if are_axes_from_data(ctx, node, x, -1):
        return in_sizes(ctx, x, squeeze_sizes(ctx.emitter, ctx.expr(input_at(node, 1)), shape_of(x)), "squeeze")
    axes = _named_axes(ctx, node)
    if axes is None:
        axes = [axis for axis, size in enumerate(shape_of(x)) if size == 1]
        _tell_apart(ctx, shape_of(x))
        kept = [str(size) for size in shape_of(x) if _may_be_one(ctx, size)]
        if kept:
            ctx.warnings.append(
                f"{node.description} has no axes, so it leaves out dimensions of 1; {', '.join(kept)} stay, "
                f"even if they are 1 when the network runs"
            )
    return ctx.apply(Squeeze(tuple(normal_axes(node, axes, x.rank))), x)


def _may_be_one(ctx: Context, size: Dimension) -> bool:
    """Returns whether a dynamic size may be 1, and no other program is for that."""
    if is_known(size) or known_less(1, size):
        return False
    single, refinement = single_size(equal(size, 1)), ctx.emitter.refinement
    return single is None or refinement is None or single.name not in (refinement.apart or {})


def _tell_apart(ctx: Context, shape: tuple[Dimension, ...]) -> None:
    """Ask for programs of their own for sizes of 1, where a tensor loses dimensions that have this size.

    Raises:
        Refined: there is none yet for a dimension of the shape.
    """
    apart = None if ctx.emitter.refinement is None else ctx.emitter.refinement.apart
    for size in shape:
        single = single_size(equal(size, 1))
        if single is not None and apart is not None and single.name not in apart and len(apart) < MAX_RUNS_APART:
            raise Refined(apart={single.name: single.size})


@operator("Unsqueeze", since=(1, 11, 13, 21, 23, 24, 25))
def _unsqueeze(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    if are_axes_from_data(ctx, node, x, 1):
        return in_sizes(ctx, x, unsqueeze_sizes(ctx.emitter, ctx.expr(input_at(node, 1)), shape_of(x)), "unsqueeze")
    axes = _named_axes(ctx, node) or []
    return ctx.apply(Unsqueeze(tuple(normal_axes(node, axes, x.rank + len(axes)))), x)


@operator("Transpose", since=(1, 13, 21, 23, 24, 25))
def _transpose(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    return ctx.apply(Transpose(tuple(node.attributes.get("perm") or range(x.rank)[::-1])), x)


@operator("Identity", since=(1, 13, 14, 16, 19, 21, 23, 24, 25))
def _identity(_ctx: Context, node: Node) -> AnyValue:
    operand = node.operands[0]
    if operand is None:
        raise fail(node, "its input is missing")
    return operand


@operator("Shape", since=(1, 13, 15, 19, 21, 23, 24, 25))
def _shape(ctx: Context, node: Node) -> Value:
    shape = shape_of(input_at(node, 0))
    end = node.attributes.get("end")
    part = shape[node.attributes.get("start", 0) or 0 : len(shape) if end is None else end]
    return Value.of_sizes(of_elements(part, (len(part),)), "int64")


@operator("Size", since=(1, 13, 19, 21, 23, 24, 25))
def _size(ctx: Context, node: Node) -> Value:
    return Value.of_sizes(of_elements([math.prod(shape_of(input_at(node, 0)))], ()), "int64")


@operator("Concat", since=(1, 4, 11, 13))
def _concat(ctx: Context, node: Node) -> Any:
    values = [input_at(node, i) for i in range(len(node.inputs))]
    axis = 1 if node.attributes.get("axis") is None else node.attributes["axis"]
    return ctx.apply(Concat(normal_axis(node, axis, values[0].rank)), *values)


@operator("Split", since=(1, 2, 11, 13, 18))
def _split(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    shape = shape_of(x)
    axis = normal_axis(node, node.attributes.get("axis") or 0, len(shape))
    sizes = node.attributes.get("split") or integers(ctx, node, 1, "split")
    if not sizes:
        parts = node.attributes.get("num_outputs") or len(node.outputs)
        size = -(-shape[axis] // parts) if node.version >= 18 else shape[axis] // parts
        sizes = [size] * (parts - 1)
        sizes.append(shape[axis] - sum(sizes))
    if len(sizes) != len(node.outputs):
        raise fail(node, f"{spell(shape)} cannot be split into {spell(list(sizes))} along axis {axis}")
    return ctx.apply(Split(axis, tuple(sizes)), x)


@operator("Slice", since=(1, 10, 11, 13))
def _slice(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    shape = shape_of(x)
    if node.version == 1:
        starts, ends = list(node.attributes["starts"]), list(node.attributes["ends"])
        axes, steps = node.attributes.get("axes"), None
    else:
        if is_sliced_in_run(ctx, node, shape):
            return sliced_in_run(ctx, node, x)
        axes, steps = integers(ctx, node, 3, "axes"), integers(ctx, node, 4, "steps")
        along = axes if axes is not None else range(len(shape))
        sizes = [shape[axis] for axis in normal_axes(node, along, len(shape))]
        starts, ends = (_positions(ctx, node, i, sizes, steps) for i in (1, 2))
    axes = normal_axes(node, axes if axes is not None else range(len(starts)), len(shape))
    steps = steps if steps is not None else [1] * len(starts)
    if not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps:
        raise fail(node, f"starts, ends, axes and steps do not fit: {starts}, {ends}, {axes}, {steps}")
    ranges = {}
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        ranges[axis] = (*_taken(start, end, step, shape[axis]), step)
    return ctx.apply(Slice(ranges), x)


def _positions(
    ctx: Context, node: Node, index: int, sizes: list[Dimension], steps: list[int] | None
) -> list[Dimension]:
    """Returns the starts or ends of slices; data-dependent ones are clamped to the range of the dimension."""
    value, name = input_at(node, index), ("starts", "ends")[index - 1]
    known = value.sizes is not None or ctx.constant(value) is not None
    if known or min(steps or [1]) < 1 or not is_known(*shape_of(value)):
        return integers(ctx, node, index, name) or []
    return [
        data_dependent_size(
            ctx.emitter, ctx.expr(ctx.apply(Slice({0: (i, 1, 1)}), value)), size, name[:-1], "from the end"
        )
        for i, size in enumerate(sizes[: shape_of(value)[0]])
    ]


def _taken(start: int, end: int, step: int, size: int) -> tuple[int, int]:
    """The first position that a slice takes of a dimension, and how many it takes."""
    if is_known(start, end, step, size):
        # Backwards, what begins before the first position begins there, other than in Python.
        positions = range(*slice(max(start, -size) if step < 0 else start, end, step).indices(size))
        return positions.start, len(positions)
    first, stop = (_position(position, size, 0, size) for position in (start, end))
    if step < 0:
        first, stop = _position(start, size, minimum(0, size - 1), size - 1), _position(end, size, -1, size - 1)
    count = ceil_div(stop - first, step) if step > 0 else ceil_div(first - stop, -step)
    return first, greatest(count, 0)


def _position(position: int, size: int, lowest: int, highest: int) -> int:
    """A position of a slice, from the front and within the dimension."""
    choice = choice_of(position)
    if choice is not None:  # of `-c`, or a large number where `c` is 0
        condition, one, other = choice
        last = (
            greatest(minimum(other + size, highest), lowest)
            if is_negative_unless(condition, other)
            else _position(other, size, lowest, highest)
        )
        found: Dimension = chosen(condition, _position(one, size, lowest, highest), last)
        return found
    if is_known(position):  # to the end is often written as a number that cannot be reckoned with
        position = min(max(position, -_FAR), _FAR)
    if known_less(position, 0):
        return greatest(minimum(position + size, highest), lowest)
    front = greatest(minimum(position, highest), lowest)
    if not may_exceed(0, position):
        return front
    wrapped: Dimension = chosen(less(position, 0), position + size, position)
    either = greatest(minimum(wrapped, highest), lowest)
    return either if may_exceed(either, front) else front  # what is before the front is none, whatever its index


_FAR = 1 << 40
"""Further than any dimension reaches."""

_PAD_MODES = ("constant", "reflect", "edge", "wrap")


@operator("Pad", since=(1, 2, 11, 13, 18, 19, 21, 23, 24, 25))
def _pad(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    rank = x.rank
    mode = node.attributes.get("mode", "constant")
    if mode not in _PAD_MODES:
        raise fail(node, f"the mode '{mode}' is not one of {', '.join(_PAD_MODES)}")
    if node.version < 11:
        amounts = list(node.attributes.get("pads") or node.attributes.get("paddings") or [])
        fill = known(ctx, np.array(node.attributes.get("value", 0.0)).astype(numpy_dtype(dtype_of(x))))
        return _padded(ctx, node, x, list(range(rank)), amounts, mode, fill)
    zero = np.array("" if dtype_of(x) == "string" else 0).astype(numpy_dtype(dtype_of(x)))
    fill = ctx.apply(Reshape(()), input_at(node, 2) if has_input(node, 2) else known(ctx, zero))
    axes = integers(ctx, node, 3, "axes")
    axes = normal_axes(node, axes if axes is not None else range(rank), rank)
    made = padded_in_run(ctx, node, x, axes, mode, fill)
    if made is not None:
        return made
    return _padded(ctx, node, x, axes, integers(ctx, node, 1, "pads") or [], mode, fill)


def _padded(
    ctx: Context, node: Node, x: Value, axes: list[int], amounts: list[Dimension], mode: str, fill: Value
) -> Any:
    if len(amounts) != 2 * len(axes):
        raise fail(node, f"'pads' has {len(amounts)} elements for {len(axes)} axes")
    pads = {axis: (amounts[i], amounts[i + len(axes)]) for i, axis in enumerate(axes)}
    return ctx.apply(Pad(tuple(pads.get(axis, (0, 0)) for axis in range(x.rank)), mode), x, fill)


@operator("Tile", since=(1, 6, 13))
def _tile(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    shape = shape_of(x)
    if node.version == 1:
        count = int(required_value(ctx, node, 1, "tiles").reshape(-1)[0])
        axis = normal_axis(node, int(required_value(ctx, node, 2, "axis").reshape(-1)[0]), len(shape))
        repeats = [count if a == axis else 1 for a in range(len(shape))]
    else:
        repeats = integers(ctx, node, 1, "repeats") or []
    return ctx.apply(Tile(tuple(repeats)), x)


@operator("Expand", since=(8, 13))
def _expand(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    shape, wanted = shape_of(x), tuple(integers(ctx, node, 1, "shape") or [])
    if not tells_at_run_time(ctx, node, 1) and not any(map(depends_on_data, shape)):
        return ctx.apply(Expand(broadcast_shapes(shape, wanted)), x)
    if len(shape) > len(wanted):
        wanted = (1,) * (len(shape) - len(wanted)) + wanted
    own = (1,) * (len(wanted) - len(shape)) + shape
    return ctx.apply(ExpandInRun(tuple(_expanded(ctx, size, n) for size, n in zip(wanted, own, strict=True))), x)


def _expanded(ctx: Context, size: Dimension, own: Dimension) -> Dimension:
    """Return the size of a dimension of size `own` that is expanded to `size`; both may be data-dependent."""
    if own not in (1, size) and depends_on_data(size):
        return expanded_size(ctx.emitter, size, own)
    try:
        with compared_in_run((own,) if depends_on_data(own) else ()):
            return broadcast_shapes((size,), (own,))[0]
    except ComparedInRun:
        return expanded_size(ctx.emitter, size, own)


@operator("DepthToSpace", since=(1, 11, 13, 28))
@operator("SpaceToDepth", since=(1, 13, 28))
def _blocks(ctx: Context, node: Node) -> Any:
    x, kind = input_at(node, 0), DepthToSpace if node.op_type == "DepthToSpace" else SpaceToDepth
    if x.rank != 4:
        raise fail(node, f"{spell(shape_of(x))} does not have 4 dimensions")
    return ctx.apply(kind(node.attributes["blocksize"], node.attributes.get("mode", "DCR") == "DCR"), x)


@operator("CenterCropPad", since=(18,))
def _center_crop_pad(ctx: Context, node: Node) -> Any:
    x, wanted = input_at(node, 0), integers(ctx, node, 1, "shape") or []
    shape = shape_of(x)
    axes = normal_axes(node, node.attributes.get("axes") or range(len(shape)), len(shape))
    if len(wanted) != len(axes) or any(size < 0 for size in wanted):
        raise fail(node, f"the shape {spell(wanted)} does not fit the axes {spell(axes)}")
    ranges, pads = {}, {}
    for axis, size in zip(axes, wanted, strict=True):
        if size < shape[axis]:
            ranges[axis] = ((shape[axis] - size) // 2, size, 1)
        else:
            before = (size - shape[axis]) // 2
            pads[axis] = (before, size - shape[axis] - before)
    cropped = ctx.apply(Slice(ranges), x)
    return ctx.apply(Pad(tuple(pads.get(axis, (0, 0)) for axis in range(len(shape)))), cropped)


# What makes tensors from shapes and numbers.


_CONSTANTS = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": np.object_,
    "value_strings": np.object_,
}


@operator("Constant", since=(1, 9, 11, 12, 13, 19, 21, 23, 24, 25))
def _constant(ctx: Context, node: Node) -> Value:
    given = [(name, value) for name, value in node.attributes.items() if value is not None]
    if len(given) != 1:
        raise fail(node, f"has {len(given)} values instead of one")
    name, value = given[0]
    if isinstance(value, SparseTensor):
        check_constant(value.shape)
        return known(ctx, value.dense())
    return known(ctx, np.array(value, _CONSTANTS[name]) if name in _CONSTANTS else value)


@operator("ConstantOfShape", since=(9, 20, 21, 23, 24, 25))
def _constant_of_shape(ctx: Context, node: Node) -> Any:
    value = node.attributes.get("value")
    element = np.float32(0) if value is None else np.asarray(value).reshape(-1)[0]
    shape, dtype = tuple(integers(ctx, node, 0, "input") or ()), dtype_name(element.dtype)
    return ctx.apply(Full(shape, element.item(), dtype), dtype=dtype)


@operator("Range", since=(1,), domain=DOMAIN)
@operator("Range", since=(11, 27))
def _range(ctx: Context, node: Node) -> Any:
    """Steps are 1 where onnxruntime's own leaves them out."""
    given = 3 if has_input(node, 2) else 2
    values = [input_at(node, index) for index in range(given)]
    for value, name in zip(values, _RANGE, strict=False):
        if math.prod(value.shape) != 1:
            raise fail(node, f"its input '{name}' must be one number, its shape is {spell(value.shape)}")
    dtype = dtype_of(values[0])
    if is_float(dtype) and any(value.sizes is None and ctx.constant(value) is None for value in values):
        return _range_of_data(ctx, values, dtype)
    if values[0].sizes is None and ctx.constant(values[0]) is None:
        distance = distance_of(ctx, *values[:2])
        delta = ctx.constant(values[2]) if given == 3 else np.ones((), np.int64)
        if distance is not None and delta is not None and delta.item():
            positions = ctx.apply(Arange(0, distance, int(delta.item()), dtype))
            return ctx.apply(Elementwise("add"), positions, ctx.apply(Reshape(()), values[0]))
    if not is_float(dtype) and _is_of_data(ctx, values):
        return _range_of_data(ctx, values, dtype)
    numbers = [_number(ctx, node, index, name) for index, name in enumerate(_RANGE[:given])]
    start, limit, step = [*numbers, 1][:3]
    made = Arange.of(start, limit, step, dtype)
    return _range_of_data(ctx, values, dtype) if made is None else ctx.apply(made)


_RANGE = ("start", "limit", "delta")


def _number(ctx: Context, node: Node, index: int, name: str) -> int | float | Quotient:
    """A number, a size, or a quotient of a size."""
    value = input_at(node, index)
    if not is_float(value.dtype):
        return (integers(ctx, node, index, name) or [0])[0]
    if value.sizes is None:
        return float(required_value(ctx, node, index, name).item())
    exact = quotient(value.sizes.reshape(())[()])
    if not is_known(exact.below):
        raise fail(node, f"its input '{name}' is {exact.above} / {exact.below}: a quotient of sizes is not supported")
    return exact


def _is_of_data(ctx: Context, values: list[Value]) -> bool:
    """Returns whether numbers of a range of integers are data-dependent and cannot be sizes: the start, the step, or a
    limit that may be negative. `Range(0, n)` with a data-dependent `n` has the size `n`, which other tensors may have.
    """
    zero = known(ctx, np.zeros((), np.int64))

    def is_data(value: Value) -> bool:
        given = value.sizes is not None or ctx.constant(value) is not None
        return not given and distance_of(ctx, zero, value) is None

    start, limit, *step = values
    if any(map(is_data, [start, *step])):
        return True
    constants = [ctx.constant(value) for value in [start, *step]]
    return any(array is not None and array.item() < 0 for array in constants) and is_data(limit)


def _range_of_data(ctx: Context, values: list[Value], dtype: str) -> Any:
    """A range with a data-dependent length; that of reals is computed in float64, as those of constant ones are."""
    one = known(ctx, np.ones((), numpy_dtype(dtype)))
    start, limit, step = (ctx.apply(Reshape(()), value) for value in [*values, one][:3])
    if is_float(dtype):
        first, last, each = (ctx.apply(Cast("float64"), part) for part in (start, limit, step))
        span = ctx.apply(Elementwise("subtract"), last, first)
        steps = ctx.apply(Elementwise("ceil"), ctx.apply(Elementwise("divide"), span, each))
        number = ctx.apply(Cast("int64"), ctx.apply(Elementwise("maximum"), steps, known(ctx, np.zeros(()))))
        length = ctx.expr(number)
    else:
        length = range_length(ctx.emitter, *map(ctx.expr, (start, limit, step)))
    count = requested_size(ctx.emitter, length, "range")
    positions = ctx.apply(Arange(0, count, 1, dtype))
    return ctx.apply(Elementwise("add"), ctx.apply(Elementwise("multiply"), positions, step), start)


@operator("EyeLike", since=(9, 22))
def _eye_like(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    if x.rank != 2:
        raise fail(node, f"{spell(shape_of(x))} is not a matrix")
    dtype = element_type(node, node.attributes["dtype"]) if node.attributes.get("dtype") else dtype_of(x)
    rows, columns = shape_of(x)
    return ctx.apply(Eye(rows, columns, dtype, node.attributes["k"]))
