"""Fourier transforms, and parts of complex tensors."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.tflite.complex_tensors import part_of
from nnefc.frontends.tflite.lowering import COMPLEX, FLOATS, Lowering, Node, Result, Value, operator
from nnefc.operators.base import rank_of, shape_of
from nnefc.operators.math.elementwise import Where, apply
from nnefc.operators.math.signal import FourierTransform
from nnefc.operators.tensor.shape import Unsqueeze

__all__: list[str] = []


@operator("RFFT2D", types=FLOATS)
def _rfft2d(ctx: Lowering, node: Node) -> Result:
    """Transforms the last two dimensions, cut to the lengths or followed by zeros; rows become their lower halves."""
    x = node.operand(0)
    height, width = node.sizes(1, "the length of a transform")
    rank = rank_of(x)
    made = ctx.apply(Unsqueeze((rank,)), x)
    made = ctx.apply(FourierTransform(rank - 1, width, onesided=True), made)
    if (height, shape_of(x)[rank - 2]) != (1, 1):
        made = ctx.apply(FourierTransform(rank - 2, height), made)
    return Value(made, COMPLEX)


@operator("REAL", types=(COMPLEX,))
def _real(ctx: Lowering, node: Node) -> Result:
    return part_of(ctx, node.operand(0), 0)


@operator("IMAG", types=(COMPLEX,))
def _imag(ctx: Lowering, node: Node) -> Result:
    return part_of(ctx, node.operand(0), 1)


@operator("COMPLEX_ABS", types=(COMPLEX,))
def _complex_abs(ctx: Lowering, node: Node) -> Result:
    """Scales by the larger part: squares of large numbers would not be finite."""
    x, y = (apply(ctx, "abs", part_of(ctx, node.operand(0), part)) for part in range(2))
    larger, smaller = ctx.bound(apply(ctx, "maximum", x, y)), apply(ctx, "minimum", x, y)
    tiny = ctx.number(float(np.finfo(np.float32).tiny), larger)
    quotient = ctx.bound(apply(ctx, "divide", smaller, apply(ctx, "maximum", larger, tiny)))
    root = apply(ctx, "sqrt", apply(ctx, "add", ctx.number(1, larger), apply(ctx, "multiply", quotient, quotient)))
    return Where().lower(ctx, apply(ctx, "isinf", larger), larger, apply(ctx, "multiply", larger, root))
