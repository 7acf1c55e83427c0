"""Data movement: reshape, transpose, concat, split, slice, pad, gather, …; and cast."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nnefc.frontends.nnef.declarations import Arguments, Dialect, ShapeError, Shapes, Value, operation, shape_of
from nnefc.frontends.nnef.operations.broadcasting import spell_shape
from nnefc.frontends.nnef.operations.lowering import DTYPES, Lowering, Operand, dtype_of
from nnefc.frontends.nnef.operations.sliding import BORDERS
from nnefc.frontends.nnef.values import MAX_RESULTS
from nnefc.operators.base import Operator
from nnefc.operators.math.casting import Cast
from nnefc.operators.tensor.concatenation import Concat, Split, Stack, Unstack
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.padding import Pad
from nnefc.operators.tensor.shape import Reshape, Slice, Squeeze, Tile, Transpose, Unsqueeze
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []


def _declare(
    make: Callable[[Arguments], Operator],
    final: str | None,
    provisional: str | None = None,
    *,
    operands: Sequence[str] = ("input",),
    parameter: str | None = None,
    target: str,
    limits: str = "",
) -> None:
    """Declare an operation that is one operator of the library.

    Args:
        make: the operator, for an invocation's arguments; raises `ShapeError`.
        final, provisional: the declarations in both dialects.
        operands: the parameters that are its operands: tensors, or arrays of them.
        parameter: which one is wrong if the operator refuses the operands.
        target, limits: see `operation`.
    """

    def values(args: Arguments) -> list[Value]:
        given = (args[name] for name in operands)
        return [element for value in given for element in (value if isinstance(value, list | tuple) else [value])]

    def shape(args: Arguments) -> Shapes:
        try:
            found: Shapes = make(args).shape(*map(shape_of, values(args)))
        except CompileError as error:
            raise ShapeError(error.message, parameter, hint=error.hint) from None
        return found

    def lower(lowering: Lowering, args: Arguments) -> Operand | list[Operand]:
        operator, given = make(args), lowering.operands(values(args))
        if isinstance(operator, Concat | Stack):
            given = _common(lowering, given)
        made: Operand | list[Operand] = operator.lower(lowering, *given)
        return made

    for text, dialect in ((final, Dialect.FINAL), (provisional, Dialect.PROVISIONAL)):
        if text is not None:
            operation(text, shape=shape, dialects={dialect}, target=target, limits=limits)(lower)


def _common(lowering: Lowering, operands: Sequence[Operand]) -> list[Operand]:
    """The operands in one element type: integers of different widths in the wider one."""
    dtypes = dict.fromkeys(dtype_of(operand) for operand in operands)
    if len(dtypes) == 1:
        return list(operands)
    widest = max(dtypes, key=lambda dtype: np.dtype(dtype).itemsize)
    return [lowering.apply(Cast(widest), operand) for operand in operands]


def _check_axes(axes: Sequence[int], rank: int, parameter: str = "axes") -> None:
    if any(not 0 <= axis < rank for axis in axes):
        listed = spell_shape(axes) if parameter == "axes" else axes[0]
        raise ShapeError(f"'{parameter}' {listed} is out of range: the dimensions are 0 to {rank - 1}", parameter)
    if len(set(axes)) != len(axes):
        raise ShapeError(f"'{parameter}' {spell_shape(axes)} names a dimension twice", parameter)


def _reshape(args: Arguments) -> Operator:
    x = shape_of(args.input)
    start, count = (args.axis_start, args.axis_count) if "axis_start" in args else (0, -1)
    if not 0 <= start <= len(x):
        raise ShapeError(f"'axis_start' {start} is out of range: the input has {len(x)} dimensions", "axis_start")
    if count < -1 or start + count > len(x):
        raise ShapeError(f"'axis_count' {count} is out of range: {len(x) - start} dimensions are left", "axis_count")
    end, target = len(x) if count == -1 else start + count, list(args.shape)
    if any(size < -1 for size in target) or target.count(-1) > 1:
        raise ShapeError(f"'shape' {spell_shape(target)} may hold 0, one -1 and positive sizes", "shape")
    for axis, size in enumerate(target):
        if size == 0:
            if start + axis >= len(x):
                raise ShapeError(f"'shape' copies dimension {start + axis}, the input has {len(x)}", "shape")
            target[axis] = x[start + axis]
    return Reshape((*x[:start], *target, *x[end:]))


_declare(
    _reshape,
    "fragment reshape<?>(input: tensor<?>, shape: integer[], axis_start: integer = 0, axis_count: integer = -1) "
    "-> (output: tensor<?>)",
    "fragment reshape(input: tensor, shape: extent[]) -> (output: tensor)",
    parameter="shape",
    target="R.reshape",
)


def _squeeze(args: Arguments) -> Operator:
    _check_axes(args.axes, len(shape_of(args.input)))
    return Squeeze(tuple(args.axes))


def _unsqueeze(args: Arguments) -> Operator:
    _check_axes(args.axes, len(shape_of(args.input)) + len(args.axes))
    return Unsqueeze(tuple(args.axes))


for _name, _make in (("squeeze", _squeeze), ("unsqueeze", _unsqueeze)):
    _declare(
        _make,
        f"fragment {_name}<?>(input: tensor<?>, axes: integer[]) -> (output: tensor<?>)",
        parameter="axes",
        target="R.reshape",
    )


def _transpose(args: Arguments) -> Operator:
    """The named dimensions in their order, later ones where they are."""
    axes = args.axes if "axes" in args else args.perm
    return Transpose((*axes, *range(len(axes), len(shape_of(args.input)))))


for _final, _provisional, _parameter in (
    ("fragment transpose<?>(input: tensor<?>, axes: integer[]) -> (output: tensor<?>)", None, "axes"),
    (None, "fragment transpose(input: tensor, perm: extent[]) -> (output: tensor)", "perm"),
):
    _declare(_transpose, _final, _provisional, parameter=_parameter, target="R.permute_dims")


def _rank_of_values(args: Arguments) -> int:
    if not args["values"]:
        raise ShapeError("'values' must not be empty", "values")
    return len(shape_of(args["values"][0]))


def _concat(args: Arguments) -> Operator:
    _check_axes([args.axis], _rank_of_values(args), "axis")
    return Concat(args.axis)


_declare(
    _concat,
    "fragment concat<?>(values: tensor<?>[], axis: integer) -> (value: tensor<?>)",
    "fragment concat(values: tensor[], axis: extent) -> (value: tensor)",
    operands=("values",),
    parameter="values",
    target="R.concat",
)


def _stack(args: Arguments) -> Operator:
    _check_axes([args.axis], _rank_of_values(args) + 1, "axis")
    return Stack(args.axis)


_declare(
    _stack,
    "fragment stack<?>(values: tensor<?>[], axis: integer) -> (value: tensor<?>)",
    operands=("values",),
    parameter="values",
    target="R.reshape, R.concat",
)


def _split(args: Arguments) -> Operator:
    x, axis, ratios = shape_of(args.value), args.axis, args.ratios
    _check_axes([axis], len(x), "axis")
    if not ratios or any(ratio < 1 for ratio in ratios):
        raise ShapeError(f"'ratios' must be positive, not {spell_shape(ratios)}", "ratios")
    if x[axis] % sum(ratios):
        raise ShapeError(
            f"the sum {sum(ratios)} of 'ratios' does not divide dimension {axis} of {spell_shape(x)}", "ratios"
        )
    return Split(axis, tuple(x[axis] // sum(ratios) * ratio for ratio in ratios))


_declare(
    _split,
    "fragment split<?>(value: tensor<?>, axis: integer, ratios: integer[]) -> (values: tensor<?>[])",
    "fragment split(value: tensor, axis: extent, ratios: extent[]) -> (values: tensor[])",
    operands=("value",),
    target="R.split",
)


def _unstack(args: Arguments) -> Operator:
    x, axis = shape_of(args.value), args.axis
    _check_axes([axis], len(x), "axis")
    if x[axis] > MAX_RESULTS:
        raise ShapeError(f"{x[axis]} results are more than {MAX_RESULTS}", "value")
    return Unstack(axis)


_declare(
    _unstack,
    "fragment unstack<?>(value: tensor<?>, axis: integer) -> (values: tensor<?>[])",
    operands=("value",),
    target="R.split, R.reshape",
)


def _ranges(args: Arguments) -> list[range]:
    """The positions that a slice takes along its axes."""
    x = shape_of(args.input)
    _check_axes(args.axes, len(x))
    stride = args.stride or [1] * len(args.axes)
    if not len(args.begin) == len(args.end) == len(stride) == len(args.axes):
        raise ShapeError(
            f"'axes', 'begin', 'end' and 'stride' must be equally long, they have {len(args.axes)}, {len(args.begin)}, "
            f"{len(args.end)} and {len(stride)} elements",
            "begin",
        )
    return [
        _range(x[axis], axis, begin, end, step)
        for axis, begin, end, step in zip(args.axes, args.begin, args.end, stride, strict=True)
    ]


def _range(length: int, axis: int, begin: int, end: int, step: int) -> range:
    if step == 0:
        raise ShapeError("'stride' must not be 0", "stride")
    if step == 1 and end == 0:
        end = length
    first = min(max(begin + length if begin < 0 else begin, -1), length)
    last = min(max(end + length if end < 0 else end, -1), length)
    positions = range(max(first, 0), last, step) if step > 0 else range(min(first, length - 1), last, step)
    if not positions:
        raise ShapeError(
            f"the slice {begin}:{end}:{step} takes nothing of dimension {axis}, whose size is {length}", "begin"
        )
    return positions


def _slice(args: Arguments) -> Operator:
    ranges = zip(args.axes, _ranges(args), strict=True)
    return Slice({axis: (positions.start, len(positions), positions.step) for axis, positions in ranges})


_declare(
    _slice,
    "fragment slice<?>(input: tensor<?>, axes: integer[], begin: integer[], end: integer[], stride: integer[] = []) "
    "-> (output: tensor<?>)",
    target="R.strided_slice; R.flip for negative strides",
    limits="empty slices are refused",
)


def _tile(args: Arguments) -> Operator:
    x = shape_of(args.input)
    if len(args.repeats) != len(x) or any(repeat < 1 for repeat in args.repeats):
        raise ShapeError(
            f"'repeats' {spell_shape(args.repeats)} needs a positive count for each dimension of {spell_shape(x)}",
            "repeats",
        )
    return Tile(tuple(args.repeats))


_declare(
    _tile,
    "fragment tile<?>(input: tensor<?>, repeats: integer[]) -> (output: tensor<?>)",
    parameter="repeats",
    target="R.tile",
)


def _pad(args: Arguments) -> Operator:
    x = shape_of(args.input)
    if len(args.padding) != len(x):
        raise ShapeError(f"'padding' needs {len(x)} pairs, one for each dimension of {spell_shape(x)}", "padding")
    if args.border not in BORDERS or args.border == "ignore":
        raise ShapeError(f"tensors cannot be padded with the border '{args.border}'", "border")
    if any(amount < 0 for pair in args.padding for amount in pair):
        raise ShapeError("'padding' must not be negative", "padding", hint="use 'slice' to cut a tensor")
    return Pad(tuple(tuple(pair) for pair in args.padding), BORDERS[args.border], args.value)


_declare(
    _pad,
    "fragment pad(input: tensor<scalar>, padding: (integer, integer)[], border: string = 'constant', "
    "value: scalar = 0.0) -> (output: tensor<scalar>)",
    parameter="padding",
    target="R.nn.pad; TE for other borders than constants",
    limits="no negative padding",
)


def _gather(args: Arguments) -> Operator:
    """Nothing outside the tensor is read: indices are taken modulo the size."""
    _check_axes([args.axis], len(shape_of(args.input)), "axis")
    return Gather(args.axis, "wrap")


_declare(
    _gather,
    "fragment gather<?>(input: tensor<?>, indices: tensor<integer>, axis: integer = 0) -> (output: tensor<?>)",
    operands=("input", "indices"),
    target="R.take",
    limits="indices are taken modulo the size, so that negative ones count from the end",
)


@operation(
    "fragment cast<?>(input: tensor<>) -> (output: tensor<?>)",
    shape=lambda args: shape_of(args.input),
    dialects={Dialect.FINAL},
    target="R.astype; TE to logical",
    limits="to integer by cutting off the fraction",
)
def _cast(lowering: Lowering, args: Arguments) -> Operand:
    """To integer by cutting off the fraction; to logical: whether it is not zero."""
    x, dtype = lowering.operand(args.input), DTYPES[args.content]
    return x if args.content == "integer" and dtype_of(x) == "int64" else Cast(dtype).lower(lowering, x)
