"""Changing the spatial resolution by whole factors."""

from __future__ import annotations

import numpy as np
from tvm import relax, te, tirx

from nnefc.frontends.nnef.declarations import Arguments, Shape, ShapeError, operation, shape_of
from nnefc.frontends.nnef.operations.broadcasting import spell_shape
from nnefc.frontends.nnef.operations.lowering import Lowering, Operand, shape_of_operand
from nnefc.frontends.nnef.operations.window import box
from nnefc.operators.base import check_table
from nnefc.operators.window import Window

__all__ = ["linear_sources"]

_METHODS = ("symmetric", "asymmetric", "aligned")
_LINEAR_BORDERS = ("replicate", "constant")


def _factors(args: Arguments) -> Shape:
    """The factor of every dimension, 1 for batch and channel."""
    shape = shape_of(args.input)
    if len(args.factor) != len(shape) - 2 or any(factor < 1 for factor in args.factor):
        raise ShapeError(
            f"'factor' {spell_shape(args.factor)} needs a positive item per spatial dimension of {spell_shape(shape)}",
            "factor",
        )
    return (1, 1, *args.factor)


def _down_shape(args: Arguments) -> Shape:
    shape, factors = shape_of(args.input), _factors(args)
    if any(extent % factor for extent, factor in zip(shape, factors, strict=True)):
        raise ShapeError(
            f"'factor' {spell_shape(args.factor)} does not divide the spatial extents of {spell_shape(shape)}", "factor"
        )
    return tuple(extent // factor for extent, factor in zip(shape, factors, strict=True))


def _up_shape(args: Arguments) -> Shape:
    return tuple(extent * factor for extent, factor in zip(shape_of(args.input), _factors(args), strict=True))


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
    factors = _factors(args)
    if len(factors) == 4 and factors[:2] == (1, 1):
        return lowering.emit(
            relax.op.image.resize2d(
                lowering.expr(lowering.operand(args.input)),
                _up_shape(args)[2:],
                layout="NCHW",
                method="nearest_neighbor",
                coordinate_transformation_mode="asymmetric",
                rounding_method="floor",
            ),
            "nearest_upsample",
        )

    def repeat(x: te.Tensor) -> te.Tensor:
        def item(*index: tirx.Var) -> tirx.Expr:
            return x(*(tirx.floordiv(i, factor) for i, factor in zip(index, factors, strict=True)))

        return te.compute(_up_shape(args), item, name="nearest_upsample")

    return lowering.compute(repeat, lowering.operand(args.input), name="nearest_upsample")


def _linear_shape(args: Arguments) -> Shape:
    if args.method not in _METHODS:
        raise ShapeError(f"unknown method '{args.method}'", "method", hint=f"known are {', '.join(_METHODS)}")
    if args.border not in _LINEAR_BORDERS:
        raise ShapeError(
            f"the border '{args.border}' is not defined here", "border", hint=f"give {' or '.join(_LINEAR_BORDERS)}"
        )
    return _up_shape(args)


def linear_sources(extent: int, factor: int, method: str) -> np.ndarray:
    """Where along an axis of `extent` items each of the `extent * factor` results lies, float64."""
    targets = np.arange(extent * factor, dtype=np.float64)
    match method:
        case "symmetric":
            return (targets + 0.5) / factor - 0.5
        case "asymmetric":
            return targets / factor
        case _:
            return targets * ((extent - 1) / max(1, extent * factor - 1))


@operation(
    "fragment multilinear_upsample(input: tensor<scalar>, factor: integer[], method: string = 'symmetric', "
    "border: string = 'replicate') -> (output: tensor<scalar>)",
    shape=_linear_shape,
    target="TE, one axis after the other",
    limits="border 'constant' or 'replicate'",
)
def _multilinear_upsample(lowering: Lowering, args: Arguments) -> Operand:
    """One axis after the other: each result is a weighted sum of two neighbours.

    With the border 'constant' neighbours outside are zeros: their weights vanish.
    """
    x = lowering.operand(args.input)
    for axis, factor in enumerate(_factors(args)):
        if factor != 1:
            x = lowering.emit(_resized(lowering, x, axis, factor, args.method, args.border), "resized")
    return x


def _resized(lowering: Lowering, x: Operand, axis: int, factor: int, method: str, border: str) -> relax.Expr:
    extent = shape_of_operand(x)[axis]
    check_table(extent * factor)
    sources = linear_sources(extent, factor, method)
    first = np.floor(sources)
    upper = sources - first
    weights = np.stack([1 - upper, upper], 1)
    places = np.stack([first, first + 1], 1)
    if border == "constant":
        weights = np.where((places >= 0) & (places < extent), weights, 0)
    places = np.clip(places, 0, extent - 1)

    def interpolate(x: te.Tensor, places: te.Tensor, weights: te.Tensor) -> te.Tensor:
        def item(*index: tirx.Var) -> tirx.Expr:
            def part(side: int) -> tirx.Expr:
                place = (*index[:axis], places(index[axis], side), *index[axis + 1 :])
                return x(*place) * weights(index[axis], side)

            return part(0) + part(1)

        shape = (*x.shape[:axis], extent * factor, *x.shape[axis + 1 :])
        return te.compute(shape, item, name="linear_upsample")

    tables = places.astype(np.int32), weights.astype(np.float32)
    return lowering.compute(interpolate, x, *tables, name="linear_upsample")
