"""Convolutions and transposed convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence

from nnefc.frontends.nnef.declarations import Arguments, Dialect, Shape, ShapeError, operation, shape_of
from nnefc.frontends.nnef.operations.broadcasting import spell_shape
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand, by_definition
from nnefc.frontends.nnef.operations.sliding import BORDERS, checked, downsized, make_window, upsized
from nnefc.frontends.nnef.relaxed_shapes import allowed
from nnefc.operators.nn.convolution import Convolution, TransposedConvolution, check_filter, check_ranks
from nnefc.operators.nn.window import Window
from nnefc.operators.tensor.shape import Reshape

__all__: list[str] = []

_WINDOW = (
    "border: string = 'constant', padding: (integer,integer)[] = [], stride: integer[] = [], dilation: integer[] = []"
)
_FILTERED = "input: tensor<scalar>, filter: tensor<scalar>, bias: tensor<scalar> = 0.0, "
_SEPARABLE = (
    "input: tensor<scalar>, plane_filter: tensor<scalar>, point_filter: tensor<scalar>, bias: tensor<scalar> = 0.0, "
)
_OUTPUT = "-> (output: tensor<scalar>)"


def _check_ranks(args: Arguments) -> tuple[Shape, Shape]:
    x, w = shape_of(args.input), shape_of(args.filter)
    checked("filter", check_ranks, x, w)
    return x, w


_WIDE_BIAS = "a bias of rank above 2 whose last dimension is that of the channels is one of rank 2"


def _check_bias(args: Arguments, channels: int) -> None:
    bias = shape_of(args.bias)
    if len(bias) > 2 and bias == (1,) * (len(bias) - 1) + (channels,) and allowed(_WIDE_BIAS):
        return
    if math.prod(bias) not in (1, channels) or bias not in ((), (1,), (channels,), (1, 1), (1, channels)):
        raise ShapeError(
            f"the bias {spell_shape(bias)} does not fit {channels} channels: it should be [1, {channels}]", "bias"
        )


def _conv_groups(args: Arguments) -> int:
    if args.groups < 0:
        raise ShapeError(f"'groups' must not be negative, it is {args.groups}", "groups")
    return int(args.groups) or shape_of(args.input)[1]


def _conv_shape(args: Arguments) -> Shape:
    x, w = _check_ranks(args)
    groups = _conv_groups(args)
    checked("filter", check_filter, x, w, groups, w[1] * groups)
    _check_bias(args, w[0])
    window = make_window(args, w[2:], x[2:], None)
    return (x[0], w[0], *downsized(window, x[2:]))


@operation(
    f"fragment conv({_FILTERED}{_WINDOW}, groups: integer = 1) {_OUTPUT}",
    shape=_conv_shape,
    target="R.nn.conv1d, conv2d, conv3d and R.add; TE for other ranks",
    limits="padding of other borders than zeros is done before",
)
def _conv(lowering: Lowering, args: Arguments) -> Operand:
    x, w = lowering.operand(args.input), lowering.operand(args.filter)
    window = make_window(args, shape_of(args.filter)[2:], shape_of(args.input)[2:], None)
    convolution = Convolution(window, _conv_groups(args), BORDERS[args.border])
    return convolution.lower(lowering, x, w, _bias(lowering, args))


def _bias(lowering: Lowering, args: Arguments) -> Operand | None:
    if args.bias == 0.0:
        return None
    bias = lowering.operand(args.bias)
    return lowering.apply(Reshape((1, -1)), bias) if len(shape_of(args.bias)) > 2 else bias


def _deconv_groups(args: Arguments, output_shape: Sequence[int]) -> int:
    if args.groups < 0:
        raise ShapeError(f"'groups' must not be negative, it is {args.groups}", "groups")
    return int(args.groups) or (output_shape[1] if output_shape else shape_of(args.input)[1])


def _output_shape(args: Arguments) -> tuple[int, ...]:
    return tuple(args.output_shape) if "output_shape" in args else ()


def _deconv_window(args: Arguments) -> tuple[Window, Shape]:
    """The window and the spatial sizes of the output."""
    x, w, fixed = shape_of(args.input), shape_of(args.filter), _output_shape(args)
    strides = tuple(args.stride) + (1,) * (len(x) - 2 - len(args.stride))
    target = fixed[2:] or tuple(size * step for size, step in zip(x[2:], strides, strict=False))
    window = make_window(args, w[2:], target, x[2:])
    if not fixed:
        return window, upsized(window, x[2:]) if args.padding else target
    if args.padding and downsized(window, target) != x[2:]:
        raise ShapeError(
            f"'output_shape' {spell_shape(fixed)} with this padding belongs to an input with the spatial shape "
            f"{spell_shape(downsized(window, target))}, the input is {spell_shape(x)}",
            "output_shape",
        )
    return window, target


def _deconv_shape(args: Arguments) -> Shape:
    x, w = _check_ranks(args)
    fixed = _output_shape(args)
    if fixed and (len(fixed) != len(x) or any(size < 1 for size in fixed)):
        raise ShapeError(f"'output_shape' {spell_shape(fixed)} needs {len(x)} positive sizes", "output_shape")
    groups = _deconv_groups(args, fixed)
    checked("filter", check_filter, x, w, groups, w[0])
    channels = w[1] * groups
    if fixed and fixed[:2] != (x[0], channels):
        raise ShapeError(
            f"'output_shape' {spell_shape(fixed)} should begin with the batch {x[0]} and {channels} channels",
            "output_shape",
        )
    _check_bias(args, channels)
    _, lengths = _deconv_window(args)
    return (x[0], channels, *lengths)


@operation(
    f"fragment deconv({_FILTERED}{_WINDOW}, output_shape: integer[] = [], groups: integer = 1) {_OUTPUT}",
    shape=_deconv_shape,
    dialects={Dialect.FINAL},
    target="R.nn.conv1d_transpose, conv2d_transpose, conv3d_transpose and R.add, else TE",
)
@operation(
    f"fragment deconv({_FILTERED}{_WINDOW}, groups: integer = 1) {_OUTPUT}",
    shape=_deconv_shape,
    dialects={Dialect.PROVISIONAL},
    target="R.nn.conv1d_transpose, conv2d_transpose, conv3d_transpose and R.add, else TE",
)
def _deconv(lowering: Lowering, args: Arguments) -> Operand:
    x, w = lowering.operand(args.input), lowering.operand(args.filter)
    window, sizes = _deconv_window(args)
    spread = window.spread(shape_of(args.input)[2:])
    beyond = tuple(size - whole for size, whole in zip(sizes, spread, strict=True))
    groups = _deconv_groups(args, _output_shape(args))
    deconvolution = TransposedConvolution(window, groups, beyond, BORDERS[args.border])
    return deconvolution.lower(lowering, x, w, _bias(lowering, args))


def _planewise(args: Arguments) -> Arguments:
    return Arguments({**args, "groups": 0})


for _name, _rule in (("conv", _conv_shape), ("deconv", _deconv_shape)):
    operation(
        f"fragment planewise_{_name}({_FILTERED}{_WINDOW}) {_OUTPUT}",
        shape=lambda args, rule=_rule: rule(_planewise(args)),  # type: ignore[misc]
        dialects={Dialect.PROVISIONAL},
        definition=f"output = {_name}(input, filter, bias, border = border, padding = padding, "
        "stride = stride, dilation = dilation, groups = 0);",
    )(by_definition)


def _check_separable(args: Arguments) -> tuple[Shape, Shape]:
    plane, point = shape_of(args.plane_filter), shape_of(args.point_filter)
    if len(plane) < 2 or len(point) < 2:
        raise ShapeError("the filters must have at least 2 dimensions", "plane_filter")
    if any(size != 1 for size in point[2:]):
        raise ShapeError(
            f"the point filter {spell_shape(point)} must be 1 along the spatial dimensions", "point_filter"
        )
    if plane[1] != 1:
        raise ShapeError(f"the plane filter {spell_shape(plane)} must have one channel", "plane_filter")
    return plane, point


def _made(args: Arguments, shape: Shape) -> Arguments:
    """The arguments with `input` of another shape: the intermediate result of a separable operation."""
    from dataclasses import replace

    return Arguments({**args, "input": replace(args.input, shape=shape)})


def _separable_conv_shape(args: Arguments) -> Shape:
    _check_separable(args)
    plane = Arguments({**args, "filter": args.plane_filter, "bias": 0.0, "groups": 0})
    point = {**args, "filter": args.point_filter, "padding": [], "stride": [], "dilation": [], "border": "constant"}
    return _conv_shape(_made(Arguments(point), _conv_shape(plane)))


def _separable_deconv_shape(args: Arguments) -> Shape:
    _check_separable(args)
    point = {**args, "filter": args.point_filter, "bias": 0.0, "padding": [], "stride": [], "dilation": []}
    made = _deconv_shape(Arguments({**point, "border": "constant", "output_shape": []}))
    return _deconv_shape(_made(Arguments({**args, "filter": args.plane_filter, "groups": 0}), made))


operation(
    f"fragment separable_conv({_SEPARABLE}{_WINDOW}, groups: integer = 1) {_OUTPUT}",
    shape=_separable_conv_shape,
    definition="""
        filtered = conv(input, plane_filter, border = border, padding = padding, stride = stride,
                        dilation = dilation, groups = 0);
        output = conv(filtered, point_filter, bias, groups = groups);
    """,
)(by_definition)
operation(
    f"fragment separable_deconv({_SEPARABLE}{_WINDOW}, output_shape: integer[] = [], groups: integer = 1) {_OUTPUT}",
    shape=_separable_deconv_shape,
    dialects={Dialect.FINAL},
    definition="""
        filtered = deconv(input, point_filter, groups = groups);
        output = deconv(filtered, plane_filter, bias, border = border, padding = padding, stride = stride,
                        dilation = dilation, output_shape = output_shape, groups = 0);
    """,
)(by_definition)
operation(
    f"fragment separable_deconv({_SEPARABLE}{_WINDOW}, groups: integer = 1) {_OUTPUT}",
    shape=_separable_deconv_shape,
    dialects={Dialect.PROVISIONAL},
    definition="""
        filtered = deconv(input, point_filter, groups = groups);
        output = deconv(filtered, plane_filter, bias, border = border, padding = padding, stride = stride,
                        dilation = dilation, groups = 0);
    """,
)(by_definition)
