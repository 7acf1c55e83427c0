"""Resizing of images: bilinear and nearest."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.tflite.lowering import FLOATS, QUANTIZED, REALS, Lowering, Node, Operand, Result, operator
from nnefc.operators.base import Array, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import apply
from nnefc.operators.nn.fixed_point import RoundedQuotient
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.vision.interpolation import AxisScaling, Interpolation
from nnefc.operators.vision.resize import Resize
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import is_known

__all__: list[str] = []


def _coordinates(node: Node) -> str:
    if node.options.align_corners and node.options.half_pixel_centers:
        raise CompileError("aligned corners and centres of pixels exclude each other")
    if node.options.align_corners:
        return "align_corners"
    return "half_pixel" if node.options.half_pixel_centers else "asymmetric"


def _resized(ctx: Lowering, node: Node, interpolation: Interpolation, given: Operand | None = None) -> Result:
    if node.rank(0) != 4:
        raise CompileError(f"the input of shape {list(node.shape(0))} should have 4 dimensions")
    x = ctx.channels_first(node.operand(0) if given is None else given)
    sizes = node.sizes(1, "the size")
    if len(sizes) != 2:
        raise CompileError(f"the size {sizes} should have 2 elements")
    axes = tuple((axis, AxisScaling.between(shape_of(x)[axis], sizes[axis - 2])) for axis in (2, 3))
    return ctx.channels_last(ctx.apply(Resize(axes, interpolation), x))


@operator("RESIZE_BILINEAR", types=(*FLOATS, *QUANTIZED))
def _bilinear(ctx: Lowering, node: Node) -> Result:
    if node.dtype(0) in ("int8", "int16"):
        return _bilinear_of_integers(ctx, node)
    if node.dtype(0) == "uint8":
        half = np.array(0.5, np.float32)
        real = ctx.channels_last(ctx.apply(Cast("float32"), ctx.channels_first(node.operand(0))))
        made = _resized(ctx, node, Interpolation("linear", _coordinates(node)), real)
        return ctx.pointwise(lambda x: Cast("uint8").lower(ctx, apply(ctx, "add", x, half)), made)
    return _resized(ctx, node, Interpolation("linear", _coordinates(node)))


def _bilinear_of_integers(ctx: Lowering, node: Node) -> Result:
    """Weights of 10 bits along each axis; the sum of the four products is rounded once."""
    wide = "int64" if node.dtype(0) == "int16" else "int32"
    x = ctx.apply(Cast(wide), ctx.channels_first(node.operand(0)))
    sizes, coordinates = node.sizes(1, "the size"), _coordinates(node)
    if not is_known(*shape_of(x)[2:], *sizes):
        raise CompileError("a quantized image of dynamic size cannot be resized")
    for axis, count in zip((2, 3), sizes, strict=True):
        parts = []
        for index, weight in _taps(shape_of(x)[axis], count, coordinates):
            factors = weight.astype(wide).reshape([-1 if k == axis else 1 for k in range(4)])
            parts.append(apply(ctx, "multiply", ctx.apply(Gather(axis), x, index), factors))
        x = apply(ctx, "add", *parts)
    made = ctx.apply(RoundedQuotient(), x, np.array(1 << 20))
    return ctx.channels_last(ctx.apply(Cast(node.dtype(0)), made))


def _taps(elements: int, results: int, coordinates: str) -> list[tuple[Array, Array]]:
    """The two elements that each result lies between, and their weights, of 10 bits in all."""
    ones = 1 << 10
    if coordinates == "align_corners" and results > 1:
        scale = (ones * (elements - 1) + (results - 1) // 2) // (results - 1)
    else:
        scale = (ones * elements + results // 2) // results
    position = np.arange(results, dtype=np.int64) * scale
    if coordinates == "half_pixel":
        position += scale // 2 - (1 << 9)
    low = np.maximum(np.trunc(position / ones).astype(np.int64), 0)
    high = np.minimum(np.trunc((position + ones - 1) / ones).astype(np.int64), elements - 1)
    part = position - low * ones
    return [(low, (ones - part).astype(np.int32)), (np.maximum(high, 0), part.astype(np.int32))]


@operator("RESIZE_NEAREST_NEIGHBOR", types=(*REALS, *QUANTIZED, "uint16", "int32", "uint32", "bool"))
def _nearest(ctx: Lowering, node: Node) -> Result:
    """The element before a position in float32; with aligned corners the nearest, of two the one behind."""
    coordinates = _coordinates(node)
    if coordinates == "align_corners":
        return _resized(ctx, node, Interpolation("nearest", coordinates, "round_prefer_ceil"))
    single = "pytorch_nearest_exact" if coordinates == "half_pixel" else "pytorch_nearest"
    return _resized(ctx, node, Interpolation("nearest", single, "floor"))
