"""Operations that move items without computing: reshape, transpose, concat, split, slice, pad, gather, cast, …"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from tvm import relax

from nnefc.frontends.nnef.declarations import Arguments, Dialect, Shape, ShapeError, Shapes, operation, shape_of
from nnefc.frontends.nnef.operations.broadcasting import spell_shape
from nnefc.frontends.nnef.operations.lowering import DTYPES, Lowering, Operand, dtype_of, shape_of_operand
from nnefc.frontends.nnef.operations.sliding import BORDERS
from nnefc.frontends.nnef.values import MAX_RESULTS
from nnefc.operators.padding import Pad

__all__: list[str] = []


def _check_axes(axes: Sequence[int], rank: int, parameter: str = "axes") -> None:
    if any(not 0 <= axis < rank for axis in axes):
        listed = spell_shape(axes) if parameter == "axes" else axes[0]
        raise ShapeError(f"'{parameter}' {listed} is out of range: the dimensions are 0 to {rank - 1}", parameter)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"'{parameter}' {spell_shape(axes)} names a dimension twice", parameter)


def _reshaped(lowering: Lowering, x: Operand, shape: Sequence[int]) -> Operand:
    if tuple(shape) == shape_of_operand(x):
        return x
    return x.reshape(tuple(shape)) if isinstance(x, np.ndarray) else relax.op.reshape(x, tuple(shape))


def _lower_reshaped(parameter: str, rule: Callable[[Arguments], Shape]) -> Callable[[Lowering, Arguments], Operand]:
    """The lowering of operations that only give the items another shape."""
    return lambda lowering, args: _reshaped(lowering, lowering.operand(args[parameter]), rule(args))


def _reshape_shape(args: Arguments) -> Shape:
    x = shape_of(args.input)
    start, count = (args.axis_start, args.axis_count) if "axis_start" in args else (0, -1)
    if not 0 <= start <= len(x):
        raise ShapeError(f"'axis_start' {start} is out of range: the input has {len(x)} dimensions", "axis_start")
    if count < -1 or start + count > len(x):
        raise ShapeError(f"'axis_count' {count} is out of range: {len(x) - start} dimensions are left", "axis_count")
    end = len(x) if count == -1 else start + count
    span, target = x[start:end], list(args.shape)
    if any(extent < -1 for extent in target) or target.count(-1) > 1:
        raise ShapeError(f"'shape' {spell_shape(target)} may hold 0, one -1 and positive extents", "shape")
    for axis, extent in enumerate(target):
        if extent == 0:
            if start + axis >= len(x):
                raise ShapeError(f"'shape' copies dimension {start + axis}, the input has {len(x)}", "shape")
            target[axis] = x[start + axis]
    items, known = math.prod(span), math.prod(extent for extent in target if extent != -1)
    if items % known if -1 in target else items != known:
        raise ShapeError(
            f"{items} items of {spell_shape(span)} do not fit the shape {spell_shape(args.shape)}", "shape"
        )
    return (*x[:start], *(items // known if extent == -1 else extent for extent in target), *x[end:])


operation(
    "fragment reshape<?>(input: tensor<?>, shape: integer[], axis_start: integer = 0, axis_count: integer = -1) "
    "-> (output: tensor<?>)",
    shape=_reshape_shape,
    dialects={Dialect.FINAL},
    target="R.reshape",
)(_lower_reshaped("input", _reshape_shape))
operation(
    "fragment reshape(input: tensor, shape: extent[]) -> (output: tensor)",
    shape=_reshape_shape,
    dialects={Dialect.PROVISIONAL},
    target="R.reshape",
)(_lower_reshaped("input", _reshape_shape))


def _squeeze_shape(args: Arguments) -> Shape:
    x = shape_of(args.input)
    _check_axes(args.axes, len(x))
    if any(x[axis] != 1 for axis in args.axes):
        raise ShapeError(
            f"only dimensions of extent 1 can be squeezed: {spell_shape(args.axes)} of {spell_shape(x)}", "axes"
        )
    return tuple(extent for axis, extent in enumerate(x) if axis not in args.axes)


def _unsqueeze_shape(args: Arguments) -> Shape:
    x = shape_of(args.input)
    rank = len(x) + len(args.axes)
    _check_axes(args.axes, rank)
    extents = iter(x)
    return tuple(1 if axis in args.axes else next(extents) for axis in range(rank))


for _name, _rule in (("squeeze", _squeeze_shape), ("unsqueeze", _unsqueeze_shape)):
    operation(
        f"fragment {_name}<?>(input: tensor<?>, axes: integer[]) -> (output: tensor<?>)",
        shape=_rule,
        dialects={Dialect.FINAL},
        target="R.reshape",
    )(_lower_reshaped("input", _rule))


def _permutation(args: Arguments) -> list[int]:
    """All axes: the named ones permuted, later ones where they are."""
    axes = list(args.axes if "axes" in args else args.perm)
    return axes + list(range(len(axes), len(shape_of(args.input))))


def _transpose_shape(args: Arguments) -> Shape:
    x = shape_of(args.input)
    parameter = "axes" if "axes" in args else "perm"
    axes = args[parameter]
    if len(axes) > len(x) or sorted(axes) != list(range(len(axes))):
        raise ShapeError(
            f"'{parameter}' {spell_shape(axes)} is not a permutation of the first dimensions of {spell_shape(x)}",
            parameter,
        )
    return tuple(x[axis] for axis in _permutation(args))


@operation(
    "fragment transpose<?>(input: tensor<?>, axes: integer[]) -> (output: tensor<?>)",
    shape=_transpose_shape,
    dialects={Dialect.FINAL},
    target="R.permute_dims",
)
@operation(
    "fragment transpose(input: tensor, perm: extent[]) -> (output: tensor)",
    shape=_transpose_shape,
    dialects={Dialect.PROVISIONAL},
    target="R.permute_dims",
)
def _transpose(lowering: Lowering, args: Arguments) -> Operand:
    x, axes = lowering.operand(args.input), _permutation(args)
    if axes == sorted(axes):
        return x
    return np.transpose(x, axes) if isinstance(x, np.ndarray) else relax.op.permute_dims(x, axes)


def _common(lowering: Lowering, operands: Sequence[Operand]) -> list[Operand]:
    """The operands in one element type: integers of different widths in the wider one."""
    dtypes = {dtype_of(operand) for operand in operands}
    if len(dtypes) == 1:
        return list(operands)
    widest = max(dtypes, key=lambda dtype: np.dtype(dtype).itemsize)
    return [_converted(lowering, operand, widest) for operand in operands]


def _converted(lowering: Lowering, x: Operand, dtype: str) -> Operand:
    if dtype_of(x) == dtype:
        return x
    return x.astype(dtype) if isinstance(x, np.ndarray) else lowering.emit(relax.op.astype(x, dtype), "converted")


def _check_values(values: Sequence[Any]) -> list[Shape]:
    if not values:
        raise ShapeError("'values' must not be empty", "values")
    return [shape_of(value) for value in values]


def _concat_shape(args: Arguments) -> Shape:
    shapes, axis = _check_values(args["values"]), args.axis
    first = shapes[0]
    _check_axes([axis], len(first), "axis")
    for shape in shapes[1:]:
        if len(shape) != len(first) or any(
            shape[other] != first[other] for other in range(len(first)) if other != axis
        ):
            raise ShapeError(
                f"the shapes {spell_shape(first)} and {spell_shape(shape)} must agree in all dimensions but {axis}",
                "values",
            )
    return tuple(sum(s[axis] for s in shapes) if other == axis else extent for other, extent in enumerate(first))


@operation(
    "fragment concat<?>(values: tensor<?>[], axis: integer) -> (value: tensor<?>)",
    shape=_concat_shape,
    dialects={Dialect.FINAL},
    target="R.concat",
)
@operation(
    "fragment concat(values: tensor[], axis: extent) -> (value: tensor)",
    shape=_concat_shape,
    dialects={Dialect.PROVISIONAL},
    target="R.concat",
)
def _concat(lowering: Lowering, args: Arguments) -> Operand:
    return _concatenated(lowering, lowering.operands(args["values"]), args.axis)


def _concatenated(lowering: Lowering, operands: Sequence[Operand], axis: int) -> Operand:
    operands = _common(lowering, operands)
    arrays = [operand for operand in operands if isinstance(operand, np.ndarray)]
    if len(arrays) == len(operands):
        return np.concatenate(arrays, axis)
    return operands[0] if len(operands) == 1 else relax.op.concat([lowering.expr(o) for o in operands], axis)


def _stack_shape(args: Arguments) -> Shape:
    shapes, axis = _check_values(args["values"]), args.axis
    if any(shape != shapes[0] for shape in shapes):
        raise ShapeError(f"the shapes must be equal: {', '.join(map(spell_shape, dict.fromkeys(shapes)))}", "values")
    _check_axes([axis], len(shapes[0]) + 1, "axis")
    return (*shapes[0][:axis], len(shapes), *shapes[0][axis:])


@operation(
    "fragment stack<?>(values: tensor<?>[], axis: integer) -> (value: tensor<?>)",
    shape=_stack_shape,
    dialects={Dialect.FINAL},
    target="R.reshape, R.concat",
)
def _stack(lowering: Lowering, args: Arguments) -> Operand:
    layers = []
    for operand in lowering.operands(args["values"]):
        shape = shape_of_operand(operand)
        layer = _reshaped(lowering, operand, (*shape[: args.axis], 1, *shape[args.axis :]))
        layers.append(layer if isinstance(layer, np.ndarray) else lowering.emit(layer, "layer"))
    return _concatenated(lowering, layers, args.axis)


def _split_shape(args: Arguments) -> Shapes:
    x, axis, ratios = shape_of(args.value), args.axis, args.ratios
    _check_axes([axis], len(x), "axis")
    if not ratios or any(ratio < 1 for ratio in ratios):
        raise ShapeError(f"'ratios' must be positive, not {spell_shape(ratios)}", "ratios")
    if x[axis] % sum(ratios):
        raise ShapeError(
            f"the sum {sum(ratios)} of 'ratios' does not divide dimension {axis} of {spell_shape(x)}", "ratios"
        )
    unit = x[axis] // sum(ratios)
    return [(*x[:axis], unit * ratio, *x[axis + 1 :]) for ratio in ratios]


@operation(
    "fragment split<?>(value: tensor<?>, axis: integer, ratios: integer[]) -> (values: tensor<?>[])",
    shape=_split_shape,
    dialects={Dialect.FINAL},
    target="R.split",
)
@operation(
    "fragment split(value: tensor, axis: extent, ratios: extent[]) -> (values: tensor[])",
    shape=_split_shape,
    dialects={Dialect.PROVISIONAL},
    target="R.split",
)
def _split(lowering: Lowering, args: Arguments) -> list[Operand]:
    unit = shape_of(args.value)[args.axis] // sum(args.ratios)
    return _parts(lowering, lowering.operand(args.value), args.axis, [unit * ratio for ratio in args.ratios])


def _parts(lowering: Lowering, x: Operand, axis: int, sizes: Sequence[int]) -> list[Operand]:
    ends = np.cumsum(sizes).tolist()
    if isinstance(x, np.ndarray):
        return list(np.split(x, ends[:-1], axis))
    if len(sizes) == 1:
        return [x]
    parts = lowering.emit(relax.op.split(x, ends[:-1], axis), "parts")
    return [relax.TupleGetItem(parts, place) for place in range(len(sizes))]


def _unstack_shape(args: Arguments) -> Shapes:
    x, axis = shape_of(args.value), args.axis
    _check_axes([axis], len(x), "axis")
    if x[axis] > MAX_RESULTS:
        raise ShapeError(f"{x[axis]} results are more than {MAX_RESULTS}", "value")
    return [(*x[:axis], *x[axis + 1 :])] * x[axis]


@operation(
    "fragment unstack<?>(value: tensor<?>, axis: integer) -> (values: tensor<?>[])",
    shape=_unstack_shape,
    dialects={Dialect.FINAL},
    target="R.split, R.reshape",
)
def _unstack(lowering: Lowering, args: Arguments) -> list[Operand]:
    x = lowering.operand(args.value)
    shape = shape_of_operand(x)
    layers = _parts(lowering, x, args.axis, [1] * shape[args.axis])
    layers = [layer if isinstance(layer, np.ndarray | relax.Var) else lowering.emit(layer, "layer") for layer in layers]
    return [_reshaped(lowering, layer, (*shape[: args.axis], *shape[args.axis + 1 :])) for layer in layers]


def _ranges(args: Arguments) -> list[range]:
    """The positions that a slice takes along its axes."""
    x = shape_of(args.input)
    _check_axes(args.axes, len(x))
    stride = args.stride or [1] * len(args.axes)
    if not len(args.begin) == len(args.end) == len(stride) == len(args.axes):
        raise ShapeError(
            f"'axes', 'begin', 'end' and 'stride' must be equally long, they have {len(args.axes)}, {len(args.begin)}, "
            f"{len(args.end)} and {len(stride)} items",
            "begin",
        )
    return [
        _range(x[axis], axis, begin, end, step)
        for axis, begin, end, step in zip(args.axes, args.begin, args.end, stride, strict=True)
    ]


def _range(extent: int, axis: int, begin: int, end: int, step: int) -> range:
    if step == 0:
        raise ShapeError("'stride' must not be 0", "stride")
    if step == 1 and end == 0:
        end = extent
    first = min(max(begin + extent if begin < 0 else begin, -1), extent)
    last = min(max(end + extent if end < 0 else end, -1), extent)
    positions = range(max(first, 0), last, step) if step > 0 else range(min(first, extent - 1), last, step)
    if not positions:
        raise ShapeError(
            f"the slice {begin}:{end}:{step} takes nothing of dimension {axis} with extent {extent}", "begin"
        )
    return positions


def _slice_shape(args: Arguments) -> Shape:
    extents = list(shape_of(args.input))
    for axis, positions in zip(args.axes, _ranges(args), strict=True):
        extents[axis] = len(positions)
    return tuple(extents)


@operation(
    "fragment slice<?>(input: tensor<?>, axes: integer[], begin: integer[], end: integer[], stride: integer[] = []) "
    "-> (output: tensor<?>)",
    shape=_slice_shape,
    dialects={Dialect.FINAL},
    target="R.strided_slice; R.take for negative strides",
    limits="empty slices are refused",
)
def _slice(lowering: Lowering, args: Arguments) -> Operand:
    x, ranges = lowering.operand(args.input), _ranges(args)
    shape = shape_of_operand(x)
    if isinstance(x, np.ndarray):
        for axis, positions in zip(args.axes, ranges, strict=True):
            x = np.take(x, positions, axis)
        return x
    taken = [(axis, r) for axis, r in zip(args.axes, ranges, strict=True) if r != range(shape[axis])]
    for axis, positions in [(axis, r) for axis, r in taken if r.step < 0]:
        indices = relax.const(np.array(positions, np.int32))
        x = lowering.emit(relax.op.take(lowering.expr(x), indices, axis=axis, mode="clip"), "reversed")
    forward = [(axis, r) for axis, r in taken if r.step > 0]
    if not forward:
        return x
    axes = [axis for axis, _ in forward]
    bounds = [(r.start, r[-1] + 1, r.step) for _, r in forward]
    begin, end, steps = ([bound[part] for bound in bounds] for part in range(3))
    return relax.op.strided_slice(x, axes, begin, end, steps)


def _tile_shape(args: Arguments) -> Shape:
    x = shape_of(args.input)
    if len(args.repeats) != len(x) or any(repeat < 1 for repeat in args.repeats):
        raise ShapeError(
            f"'repeats' {spell_shape(args.repeats)} needs a positive count for each dimension of {spell_shape(x)}",
            "repeats",
        )
    return tuple(extent * repeat for extent, repeat in zip(x, args.repeats, strict=True))


@operation(
    "fragment tile<?>(input: tensor<?>, repeats: integer[]) -> (output: tensor<?>)",
    shape=_tile_shape,
    dialects={Dialect.FINAL},
    target="R.tile",
)
def _tile(lowering: Lowering, args: Arguments) -> Operand:
    x = lowering.operand(args.input)
    if all(repeat == 1 for repeat in args.repeats):
        return x
    return np.tile(x, args.repeats) if isinstance(x, np.ndarray) else relax.op.tile(x, args.repeats)


def _pad_shape(args: Arguments) -> Shape:
    x = shape_of(args.input)
    if len(args.padding) != len(x):
        raise ShapeError(f"'padding' needs {len(x)} pairs, one for each dimension of {spell_shape(x)}", "padding")
    if args.border not in BORDERS or args.border == "ignore":
        raise ShapeError(f"tensors cannot be padded with the border '{args.border}'", "border")
    if any(amount < 0 for pair in args.padding for amount in pair):
        raise ShapeError("'padding' must not be negative", "padding", hint="use 'slice' to cut a tensor")
    return tuple(before + extent + after for extent, (before, after) in zip(x, args.padding, strict=True))


@operation(
    "fragment pad(input: tensor<scalar>, padding: (integer, integer)[], border: string = 'constant', "
    "value: scalar = 0.0) -> (output: tensor<scalar>)",
    shape=_pad_shape,
    dialects={Dialect.FINAL},
    target="R.nn.pad; TE for other borders than constants",
    limits="no negative padding",
)
def _pad(lowering: Lowering, args: Arguments) -> Operand:
    padding = tuple(tuple(pair) for pair in args.padding)
    return Pad(padding, BORDERS[args.border], args.value).lower(lowering, lowering.operand(args.input))


def _gather_shape(args: Arguments) -> Shape:
    x = shape_of(args.input)
    _check_axes([args.axis], len(x), "axis")
    return (*x[: args.axis], *shape_of(args.indices), *x[args.axis + 1 :])


@operation(
    "fragment gather<?>(input: tensor<?>, indices: tensor<integer>, axis: integer = 0) -> (output: tensor<?>)",
    shape=_gather_shape,
    dialects={Dialect.FINAL},
    target="R.take",
    limits="indices are taken modulo the extent, so that negative ones count from the end",
)
def _gather(lowering: Lowering, args: Arguments) -> Operand:
    """Negative indices count from the end; nothing outside the tensor is read: indices are taken modulo the extent."""
    x, indices = lowering.operands((args.input, args.indices))
    if isinstance(x, np.ndarray) and isinstance(indices, np.ndarray):
        return np.take(x, indices, args.axis, mode="wrap")
    return relax.op.take(lowering.expr(x), lowering.expr(indices), args.axis, mode="wrap")


@operation(
    "fragment cast<?>(input: tensor<>) -> (output: tensor<?>)",
    shape=lambda args: shape_of(args.input),
    dialects={Dialect.FINAL},
    target="R.astype, R.not_equal",
    limits="to integer by cutting off the fraction",
)
def _cast(lowering: Lowering, args: Arguments) -> Operand:
    """To integer by cutting off the fraction; to logical: whether it is not zero."""
    x, dtype = lowering.operand(args.input), DTYPES[args.content]
    source = dtype_of(x)
    if source == dtype or (args.content == "integer" and source == "int64"):
        return x
    if isinstance(x, np.ndarray):
        return x.astype(dtype)
    if dtype == "bool":
        return relax.op.not_equal(x, relax.const(0, source))
    return relax.op.astype(x, dtype)
