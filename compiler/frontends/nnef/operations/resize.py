"""Upsampling and downsampling by integer factors."""

from __future__ import annotations

from nnefc.frontends.nnef.declarations import Arguments, Shape, ShapeError, operation, shape_of
from nnefc.frontends.nnef.operations.broadcasting import spell_shape
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand
from nnefc.frontends.nnef.operations.window import box
from nnefc.operators.nn.window import Window
from nnefc.operators.vision.interpolation import AxisScaling, Interpolation
from nnefc.operators.vision.resize import Resize

__all__ = ["METHODS"]

METHODS = {"symmetric": "half_pixel", "asymmetric": "asymmetric", "aligned": "align_corners"}
"""NNEF's methods → the coordinates of `Interpolation`."""

_LINEAR_BORDERS = ("replicate", "constant")


def _factors(args: Arguments) -> Shape:
    """The factor of every dimension, 1 for batch and channel."""
    shape = shape_of(args.input)
    if len(args.factor) != len(shape) - 2 or any(factor < 1 for factor in args.factor):
        raise ShapeError(
            f"'factor' {spell_shape(args.factor)} needs a positive element per spatial dimension of "
            f"{spell_shape(shape)}",
            "factor",
        )
    return (1, 1, *args.factor)


def _down_shape(args: Arguments) -> Shape:
    shape, factors = shape_of(args.input), _factors(args)
    if any(size % factor for size, factor in zip(shape, factors, strict=True)):
        raise ShapeError(
            f"'factor' {spell_shape(args.factor)} does not divide the spatial dimensions of {spell_shape(shape)}",
            "factor",
        )
    return tuple(size // factor for size, factor in zip(shape, factors, strict=True))


def _up_shape(args: Arguments) -> Shape:
    return tuple(size * factor for size, factor in zip(shape_of(args.input), _factors(args), strict=True))


_NEAREST_DOWN = "fragment nearest_downsample(input: tensor<scalar>, factor: integer[]) -> (output: tensor<scalar>)"


@operation(
    _NEAREST_DOWN,
    shape=_down_shape,
    definition="""
        dims = 2 + length_of(factor);
        output = box(input, size = [1] * dims, stride = [1,1] + factor, padding = [(0,0)] * dims);
    """,
    target="R.strided_slice",
)
def _nearest_downsample(lowering: Lowering, args: Arguments) -> Operand:
    factors = _factors(args)
    return box(lowering, args, Window.of((1,) * len(factors), stride=factors), normalize=False)


@operation(
    "fragment area_downsample(input: tensor<scalar>, factor: integer[]) -> (output: tensor<scalar>)",
    shape=_down_shape,
    definition="""
        dims = 2 + length_of(factor);
        output = box(input, size = [1,1] + factor, stride = [1,1] + factor, padding = [(0,0)] * dims, normalize = true);
    """,
    target="R.nn.avg_pool1d, avg_pool2d, avg_pool3d, else TE",
)
def _area_downsample(lowering: Lowering, args: Arguments) -> Operand:
    factors = _factors(args)
    return box(lowering, args, Window.of(factors, stride=factors), normalize=True)


@operation(
    "fragment nearest_upsample(input: tensor<scalar>, factor: integer[]) -> (output: tensor<scalar>)",
    shape=_up_shape,
    definition="""
        dims = 2 + length_of(factor);
        output = debox(input, size = [1,1] + factor, stride = [1,1] + factor, padding = [(0,0)] * dims);
    """,
    target="TE",
)
def _nearest_upsample(lowering: Lowering, args: Arguments) -> Operand:
    return _resized(lowering, args, Interpolation("nearest", "asymmetric"))


def _resized(lowering: Lowering, args: Arguments, interpolation: Interpolation) -> Operand:
    shape, factors = shape_of(args.input), _factors(args)
    axes = tuple(
        (axis, AxisScaling(size, size * factor, float(factor)))
        for axis, (size, factor) in enumerate(zip(shape, factors, strict=True))
        if factor != 1
    )
    return Resize(axes, interpolation).lower(lowering, lowering.operand(args.input))


def _linear_shape(args: Arguments) -> Shape:
    if args.method not in METHODS:
        raise ShapeError(f"unknown method '{args.method}'", "method", hint=f"known are {', '.join(METHODS)}")
    if args.border not in _LINEAR_BORDERS:
        raise ShapeError(
            f"the border '{args.border}' is not defined here", "border", hint=f"give {' or '.join(_LINEAR_BORDERS)}"
        )
    return _up_shape(args)


@operation(
    "fragment multilinear_upsample(input: tensor<scalar>, factor: integer[], method: string = 'symmetric', "
    "border: string = 'replicate') -> (output: tensor<scalar>)",
    shape=_linear_shape,
    target="TE",
    limits="border 'constant' or 'replicate'",
)
def _multilinear_upsample(lowering: Lowering, args: Arguments) -> Operand:
    """Emit a linear upsampling; with the border 'constant', neighbours outside are zeros."""
    outside = "zero" if args.border == "constant" else "edge"
    return _resized(lowering, args, Interpolation("linear", METHODS[args.method], outside=outside))
