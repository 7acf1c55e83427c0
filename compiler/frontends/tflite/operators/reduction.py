"""Reductions, positions of the largest and smallest element, cumulative sums, normalizations."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from nnefc.frontends.tflite.lowering import FLOATS, INTEGERS, QUANTIZED, Lowering, Node, Operand, Result, operator
from nnefc.frontends.tflite.quantized import refuse_activation, rescaled, single
from nnefc.operators.base import rank_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import apply
from nnefc.operators.math.reduction import (
    AllTrue,
    AnyTrue,
    ArgMinMax,
    Cumulative,
    Maximum,
    Mean,
    Minimum,
    Product,
    Reduction,
    Sum,
)
from nnefc.operators.nn.fixed_point import FixedPointScaling, fixed_point_of
from nnefc.operators.nn.fixed_point_normalization import IntegerNormalization
from nnefc.operators.nn.fixed_point_products import IntegerRowProduct
from nnefc.operators.nn.normalization import LocalResponse, LpNormalization
from nnefc.operators.tensor.shape import Transpose
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import is_known

__all__: list[str] = []

_NUMBERS = (*FLOATS, *INTEGERS)

_REDUCTIONS: Mapping[str, tuple[type[Reduction], tuple[str, ...]]] = {
    "MEAN": (Mean, (*_NUMBERS, *QUANTIZED)),
    "SUM": (Sum, (*_NUMBERS, *QUANTIZED, "bool")),
    "REDUCE_PROD": (Product, (*_NUMBERS, "int8", "int16", "bool")),
    "REDUCE_MAX": (Maximum, (*_NUMBERS, *QUANTIZED, "bool")),
    "REDUCE_MIN": (Minimum, (*_NUMBERS, *QUANTIZED, "bool")),
    "REDUCE_ANY": (AnyTrue, ("bool",)),
    "REDUCE_ALL": (AllTrue, ("bool",)),
}


_OF_BOOLEANS: Mapping[type[Reduction], type[Reduction]] = {
    Sum: AnyTrue, Maximum: AnyTrue, Product: AllTrue, Minimum: AllTrue,
}  # fmt: skip


def _reduced(ctx: Lowering, x: Operand, kind: type[Reduction], axes: tuple[int, ...], keeps: bool) -> Operand:
    """Emit a reduction, channels first if the tensor was made so and only spatial dimensions are reduced."""
    if rank_of(x) == 4 and ctx.comes_first(x) and axes and set(axes) <= {1, 2}:
        first = ctx.apply(kind(tuple(axis + 1 for axis in axes), keepdims=True), ctx.channels_first(x))
        made = ctx.channels_last(first)
        shape = tuple(size for axis, size in enumerate(shape_of(made)) if keeps or axis not in axes)
        return ctx.reshaped(made, shape)
    made = ctx.apply(kind(axes, keepdims=keeps), x)
    return made


def _declare(name: str, kind: type[Reduction], types: tuple[str, ...]) -> None:
    @operator(name, types=types)
    def _reduction(ctx: Lowering, node: Node) -> Result:
        x, rank = node.operand(0), node.rank(0)
        axes = node.axes(node.constant(1, "the axes").reshape(-1).tolist(), rank)
        keeps = node.options.keep_dims
        if node.is_quantized() and name in ("MEAN", "SUM"):
            return _quantized(ctx, node, x, axes, keeps)
        if node.is_quantized() and name == "REDUCE_PROD":
            return _quantized_product(ctx, node, x, axes, keeps)
        chosen = _OF_BOOLEANS.get(kind, kind) if node.dtype(0) == "bool" else kind
        return _reduced(ctx, x, chosen, axes, keeps)


for _name, (_kind, _types) in _REDUCTIONS.items():
    _declare(_name, _kind, _types)


def _quantized(ctx: Lowering, node: Node, x: Operand, axes: tuple[int, ...], keeps: bool) -> Operand:
    """The sum in int32 is scaled to the result; of a mean, the factor is divided by the number of elements."""
    (scale, zero), (out, point) = single(node.quantization(0)), single(node.result())
    count = math.prod(shape_of(x)[axis] for axis in axes)
    if not is_known(count):
        raise CompileError("a quantized reduction over a dynamic dimension is not supported")
    total = _reduced(ctx, ctx.pointwise(lambda x: ctx.apply(Cast("int32"), x), x), Sum, axes, keeps)
    dtype = node.outputs[0].dtype
    if zero:
        total = apply(ctx, "subtract", total, np.array(zero * count, np.int32))
    if node.name == "SUM":
        return rescaled(ctx, total, float(scale) / float(out), dtype, zero=point)
    multiplier, shift = fixed_point_of(float(scale) / float(out))
    spare = max(0, min(count.bit_length() - 1, 32, 31 + shift))
    factor = (np.array(part, np.int32) for part in ((multiplier << spare) // count, shift - spare))
    made: Operand = ctx.apply(FixedPointScaling(dtype, zero=point), total, *factor)
    return made


def _quantized_product(ctx: Lowering, node: Node, x: Operand, axes: tuple[int, ...], keeps: bool) -> Operand:
    """Emit a product of integers; each multiplication scales by the root of the total factor."""
    (scale, zero), (out, point) = single(node.quantization(0)), single(node.result())
    shape = shape_of(x)
    kept = tuple(axis for axis in range(len(shape)) if axis not in axes)
    count, rows = (math.prod(shape[axis] for axis in order) for order in (axes, kept))
    if not is_known(count, rows) or not count or not rows or out == 0:
        raise CompileError(f"a quantized product of shape {list(shape)} over the axes {list(axes)} is not supported")
    multiplier, shift = fixed_point_of(float(scale) / float(out) ** (1 / count))
    if shift > 7:
        raise CompileError("a factor between scales is out of range")
    ordered = ctx.reshaped(ctx.apply(Transpose((*kept, *axes)), x), (rows, count))
    made = ctx.apply(IntegerRowProduct(zero, multiplier, shift, point), ordered)
    return ctx.reshaped(made, [1 if axis in axes else size for axis, size in enumerate(shape) if keeps or axis in kept])


@operator("ARG_MAX", "ARG_MIN", types=(*FLOATS, "int32", "int8", "uint8", "bool"))
def _arg(ctx: Lowering, node: Node) -> Result:
    axis = node.number(1, "the axis")
    x = node.operand(0)
    x = ctx.apply(Cast("int8"), x) if node.dtype(0) == "bool" else x
    axes = (node.axis(axis, node.rank(0)),)
    return ArgMinMax(axes, largest=node.name == "ARG_MAX", dtype=node.outputs[0].dtype).lower(ctx, x)


@operator("CUMSUM", types=_NUMBERS)
def _cumsum(ctx: Lowering, node: Node) -> Result:
    axis = node.number(1, "the axis")
    options = node.options
    made = Cumulative(node.axis(axis, node.rank(0)), exclusive=options.exclusive, reverse=options.reverse)
    return made.lower(ctx, node.operand(0))


@operator("L2_NORMALIZATION", types=(*FLOATS, "int8", "uint8"))
def _l2_normalization(ctx: Lowering, node: Node) -> Result:
    """Along the last dimension; norms below 1e-6 count as 1e-6, and those of integers below one as one."""
    refuse_activation(node)
    if node.is_quantized():
        scale, zero = single(node.result())
        if scale != 1 / 128 or zero != (128 if node.dtype(0) == "uint8" else 0):
            raise CompileError("the result's scale is not 1/128, or its zero point not the middle of its type")
        return IntegerNormalization(single(node.quantization(0))[1]).lower(ctx, node.operand(0))
    return LpNormalization((node.rank(0) - 1,), 2.0, 1e-6).lower(ctx, node.operand(0))


@operator("LOCAL_RESPONSE_NORMALIZATION", types=FLOATS)
def _local_response(ctx: Lowering, node: Node) -> Result:
    """`alpha` is for the sum of the squares; the library's for their mean."""
    options = node.options
    if options.radius < 0:
        raise CompileError(f"the radius {options.radius} is negative")
    alpha = options.alpha * (2 * options.radius + 1)
    layer = LocalResponse(options.radius, options.radius, alpha, options.beta, options.bias)
    return ctx.channels_last(ctx.apply(layer, ctx.channels_first(node.operand(0))))
