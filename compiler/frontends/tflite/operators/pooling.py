"""Poolings: means, maxima and norms of windows."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.tflite.lowering import REALS, Lowering, Node, Operand, Result, operator
from nnefc.frontends.tflite.operators.convolution import window_of
from nnefc.frontends.tflite.quantized import activated, quantized_limits
from nnefc.operators.base import dtype_of, numpy_dtype, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Clip, apply
from nnefc.operators.nn.fixed_point import RoundedQuotient
from nnefc.operators.nn.pooling import AveragePool, MaxPool, SumPool, window_counts
from nnefc.operators.nn.window import Window
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []


def _window(node: Node) -> Window:
    if node.rank(0) != 4:
        raise CompileError(f"the input of shape {list(node.shape(0))} should have 4 dimensions")
    return window_of(node, (node.options.filter_height, node.options.filter_width), node.shape(0)[1:3])


def _ended(ctx: Lowering, node: Node, made: Operand) -> Result:
    """Applies the fused activation, to integers as to what they stand for."""
    if node.dtype(0) in REALS:
        return ctx.channels_last(activated(ctx, node, made))
    low, high = (np.array(end, numpy_dtype(dtype_of(made))) for end in quantized_limits(node))
    return ctx.channels_last(ctx.apply(Clip(), made, low, high))


@operator("AVERAGE_POOL_2D", types=("float32", "int8", "uint8", "int16"))
def _average(ctx: Lowering, node: Node) -> Result:
    window, x = _window(node), ctx.channels_first(node.operand(0))
    if node.dtype(0) in REALS:
        return _ended(ctx, node, ctx.apply(AveragePool(window, count_padding=False), x))
    sums = ctx.apply(SumPool(window), ctx.apply(Cast("int32"), x))
    sizes = shape_of(x)[2:]
    counts = window_counts(window, sizes, shape_of(sums)[2:], padding=False)
    made = ctx.apply(RoundedQuotient(), sums, counts)
    return _ended(ctx, node, ctx.apply(Cast(node.dtype(0)), made))


@operator("MAX_POOL_2D", types=("float32", "int8", "uint8", "int16"))
def _max(ctx: Lowering, node: Node) -> Result:
    return _ended(ctx, node, ctx.apply(MaxPool(_window(node)), ctx.channels_first(node.operand(0))))


@operator("L2_POOL_2D", types=("float32",))
def _l2(ctx: Lowering, node: Node) -> Result:
    x = ctx.channels_first(node.operand(0))
    mean = ctx.apply(AveragePool(_window(node), count_padding=False), apply(ctx, "square", x))
    return _ended(ctx, node, apply(ctx, "sqrt", mean))
