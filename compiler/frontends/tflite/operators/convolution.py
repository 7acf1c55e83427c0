"""Convolutions in two and three dimensions, depthwise and transposed: real, quantized, and with quantized weights."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from nnefc.frontends.tflite.lowering import BYTES, Lowering, Node, Operand, Result, operator
from nnefc.frontends.tflite.model import Quantization
from nnefc.frontends.tflite.operators.weights import (
    hybrid_input,
    is_hybrid,
    largest_sum,
    real_weights,
    requantized,
    scaled_back,
    weights_zero,
)
from nnefc.frontends.tflite.quantized import activated, zero_of
from nnefc.operators.base import Array, dtype_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import apply
from nnefc.operators.nn.convolution import Convolution, TransposedConvolution
from nnefc.operators.nn.quantization import IntegerConvolution
from nnefc.operators.nn.window import Window, same_padding
from nnefc.operators.tensor.shape import Reshape, Transpose
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, ceil_div, greatest

__all__: list[str] = []

_TYPES = ("float32", "int8", "uint8", "int16")
_SAME = 0


def window_of(node: Node, size: Sequence[int], sizes: Sequence[Dimension], names: str = "hw") -> Window:
    """The window of an operator, whose options name strides and dilations by dimension."""
    options = node.options
    stride = tuple(getattr(options, f"stride_{name}") for name in names)
    dilation = tuple(getattr(options, f"dilation_{name}_factor", 1) for name in names)
    if any(step < 1 for step in (*stride, *dilation, *size)):
        raise CompileError(f"the window {list(size)} has the strides {list(stride)} and dilations {list(dilation)}")
    window = Window(tuple(size), stride, dilation, ((0, 0),) * len(size))
    if options.padding != _SAME:
        return window
    results = [ceil_div(each, step) for each, step in zip(sizes, stride, strict=True)]
    return window.padded(same_padding(window, sizes, results))


def _weights_first(ctx: Lowering, w: Operand, order: Sequence[int]) -> Operand:
    made: Operand = ctx.apply(Transpose(tuple(order)), w)
    return np.ascontiguousarray(made) if isinstance(made, np.ndarray) else made


def _convolved(ctx: Lowering, node: Node, w: Operand, window: Window, groups: int, scale_axis: int) -> Result:
    """The convolution with a filter `[O, C / groups, *k]`.

    Args:
        scale_axis: of the file's filter, along which its scales are those of output channels.
    """
    x = ctx.channels_first(node.operand(0))
    bias = node.optional_operand(2)
    if is_hybrid(node):
        elements, scale, zero = hybrid_input(ctx, node, x, asymmetric=not node.quantization(1).is_single)
        layer = IntegerConvolution(window, groups)
        sums = ctx.apply(layer, elements, w, None, _filter_zero(node, dtype_of(w)))
        if zero is not None:  # each element of the batch has its own; padding stands for the real 0
            ones = np.ones((1, *shape_of(x)[1:]), np.int8)
            moved = apply(ctx, "multiply", ctx.apply(layer, ones, w), ctx.apply(Cast("int32"), zero))
            sums = apply(ctx, "subtract", sums, moved)
        made = scaled_back(ctx, node, sums, scale, bias)
    elif node.dtype(0) == "float32":
        made = ctx.apply(Convolution(window, groups), x, w, bias)
    else:
        return ctx.channels_last(_quantized(ctx, node, x, w, window, groups, scale_axis, bias))
    return ctx.channels_last(activated(ctx, node, made))


def _filter_zero(node: Node, dtype: str) -> Array | None:
    zero = weights_zero(node)
    return zero.astype(dtype) if zero.any() else None


def _quantized(
    ctx: Lowering,
    node: Node,
    x: Operand,
    w: Operand,
    window: Window,
    groups: int,
    scale_axis: int,
    bias: Operand | None,
) -> Operand:
    _check_axis(node.quantization(1), scale_axis)
    if node.dtype(0) == "int16":
        wide = "int32" if bias is not None and dtype_of(bias) == "int32" else "int64"
        sums = ctx.apply(
            Convolution(window, groups, sums=wide), ctx.apply(Cast("int32"), x), ctx.apply(Cast("int32"), w)
        )
        return requantized(ctx, node, sums, bias, rank=len(window.size) + 2)
    zero = zero_of(node.quantization(0), node.dtype(0))
    sums = ctx.apply(IntegerConvolution(window, groups), x, w, zero, _filter_zero(node, dtype_of(w)), bias)
    size = largest_sum(node, math.prod(shape_of(w)[1:]), bias)
    return requantized(ctx, node, sums, None, rank=len(window.size) + 2, size=size)


def _check_axis(quantization: Quantization, axis: int) -> None:
    if not quantization.is_single and quantization.axis != axis:
        raise CompileError(f"the filter's scales are along dimension {quantization.axis}, not along its outputs")


@operator("CONV_2D", types=_TYPES)
def _conv_2d(ctx: Lowering, node: Node) -> Result:
    w = real_weights(ctx, node, 1)
    outputs, height, width, inputs = shape_of(w)
    channels = node.shape(0)[-1]
    if channels % max(inputs, 1) or outputs % max(channels // max(inputs, 1), 1):
        raise CompileError(f"a filter of shape {list(shape_of(w))} does not fit {channels} channels")
    window = window_of(node, (height, width), node.shape(0)[1:3])
    return _convolved(ctx, node, _weights_first(ctx, w, (0, 3, 1, 2)), window, channels // inputs, 0)


@operator("DEPTHWISE_CONV_2D", types=_TYPES)
def _depthwise(ctx: Lowering, node: Node) -> Result:
    w = real_weights(ctx, node, 1)
    one, height, width, outputs = shape_of(w)
    channels = node.shape(0)[-1]
    if one != 1 or outputs % channels:
        raise CompileError(f"a depthwise filter of shape {list(shape_of(w))} does not fit {channels} channels")
    window = window_of(node, (height, width), node.shape(0)[1:3])
    return _convolved(ctx, node, _weights_first(ctx, w, (3, 0, 1, 2)), window, channels, 3)


@operator("CONV_3D", types=("float32",))
def _conv_3d(ctx: Lowering, node: Node) -> Result:
    w = node.operand(1)
    window = window_of(node, shape_of(w)[:3], node.shape(0)[1:4], "dhw")
    groups = node.shape(0)[-1] // shape_of(w)[3]
    return _convolved(ctx, node, _weights_first(ctx, w, (4, 3, 0, 1, 2)), window, groups, 4)


# Transposed convolutions: the shape of the result is an operand.


def _transposed(
    ctx: Lowering, node: Node, x: Operand, w: Operand, names: str
) -> tuple[Operand, Window, tuple[Any, ...]]:
    """The input with channels first, and the window and what the result has beyond it, by the result's shape."""
    wanted = node.sizes(0, "the shape of the result")
    rank = len(names)
    if len(wanted) != rank + 2:
        raise CompileError(f"the result of shape {wanted} should have {rank + 2} dimensions")
    sizes = wanted[1:-1]
    window = window_of(node, shape_of(w)[2:], sizes, names)
    own = shape_of(x)[2:]
    beyond = tuple(size - made for size, made in zip(sizes, window.spread(own), strict=True))
    return x, window, beyond


@operator("TRANSPOSE_CONV", types=("int32",))
def _transpose_conv(ctx: Lowering, node: Node) -> Result:
    w = _weights_first(ctx, real_weights(ctx, node, 1), (3, 0, 1, 2))
    x, window, beyond = _transposed(ctx, node, ctx.channels_first(node.operand(2)), w, "hw")
    bias = node.optional_operand(3)
    layer = TransposedConvolution(window, 1, beyond)
    if is_hybrid(node, data=2):
        elements, scale, zero = hybrid_input(ctx, node, x, asymmetric=True)
        parts = [_centred(ctx, elements, zero, "int32"), ctx.apply(Cast("int32"), w)]
        made = scaled_back(ctx, node, ctx.apply(layer, *parts, None), scale, bias)
        return ctx.channels_last(activated(ctx, node, made))
    if node.dtype(2) == "float32":
        return ctx.channels_last(activated(ctx, node, ctx.apply(layer, x, w, bias)))
    _check_axis(node.quantization(1), 0)
    wide = "int64" if node.dtype(2) == "int16" and not (bias is not None and dtype_of(bias) == "int32") else "int32"
    x, w = (_centred(ctx, each, np.array(node.quantization(k).zero[0]), wide) for each, k in ((x, 2), (w, 1)))
    size = largest_sum(node, math.prod(shape_of(w)) // max(shape_of(w)[1], 1), bias) if node.dtype(2) in BYTES else None
    return ctx.channels_last(requantized(ctx, node, ctx.apply(layer, x, w), bias, rank=4, data=2, size=size))


def _centred(ctx: Lowering, x: Operand, zero: Operand | None, dtype: str) -> Operand:
    """The integers less their zero point, which is one or one for each element of the batch."""
    wide = ctx.apply(Cast(dtype), x)
    if zero is None or (isinstance(zero, np.ndarray) and not zero.any()):
        return wide
    return apply(ctx, "subtract", wide, ctx.apply(Cast(dtype), zero))


@operator("CONV_3D_TRANSPOSE", types=("int32",))
def _conv_3d_transpose(ctx: Lowering, node: Node) -> Result:
    w = _weights_first(ctx, node.operand(1), (4, 3, 0, 1, 2))
    x, window, beyond = _transposed(ctx, node, ctx.channels_first(node.operand(2)), w, "dhw")
    return ctx.channels_last(
        activated(ctx, node, ctx.apply(TransposedConvolution(window, 1, beyond), x, w, node.optional_operand(3)))
    )


@operator("Convolution2DTransposeBias", types=("float32",))
def _mediapipe_transpose(ctx: Lowering, node: Node) -> Result:
    """MediaPipe's: attributes are a struct of padding, width and height of the stride; the result's size follows."""
    if len(node.custom) < 12:
        raise CompileError("its options are too short")
    padding, stride_w, stride_h = np.frombuffer(node.custom[:12], "<i4").tolist()
    if padding not in (1, 2) or not (1 <= stride_w < 1 << 16 and 1 <= stride_h < 1 << 16):
        raise CompileError("its options are not known")
    x, w = ctx.channels_first(node.operand(0)), _weights_first(ctx, node.operand(1), (3, 0, 1, 2))
    window, sizes = Window.of(shape_of(w)[2:], (stride_h, stride_w)), shape_of(x)[2:]
    if padding == 1:  # of an image whose size the stride does not divide more is cut off than elsewhere
        less = [
            greatest(0, reach - 1 - (size - 1) % step)
            for reach, size, step in zip(window.size, sizes, window.stride, strict=True)
        ]
        window = window.padded(tuple((each // 2, each - each // 2) for each in less))
    bias = ctx.apply(Reshape((-1,)), node.operand(2))
    return ctx.channels_last(ctx.apply(TransposedConvolution(window, 1, (0, 0)), x, w, bias))
