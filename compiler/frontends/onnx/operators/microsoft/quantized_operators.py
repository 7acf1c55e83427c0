"""Lowers onnxruntime's quantized operators to float ones between `DequantizeLinear` and `QuantizeLinear`.

    QLinearAdd(a, b)     →     QuantizeLinear(Add(DequantizeLinear(a), DequantizeLinear(b)))

What can be computed in integers then is, by a pass over the whole network.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import numpy as np

from nnefc.frontends.onnx.checks.extensions import DOMAIN
from nnefc.frontends.onnx.operator import Context, Lowering, Node, Value, operator
from nnefc.frontends.onnx.operators.elementwise import binary
from nnefc.frontends.onnx.operators.pooling import pooling_window
from nnefc.frontends.onnx.operators.quantization import integer_product
from nnefc.frontends.onnx.operators.tensors import (
    channels_first,
    channels_last,
    dtype_of,
    fail,
    has_input,
    input_at,
    known,
    normal_axes,
    normal_axis,
    optional_input,
    shape_of,
)
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Where
from nnefc.operators.math.reduction import Mean, Sum
from nnefc.operators.nn.activation import Softmax
from nnefc.operators.nn.pooling import MaxPool
from nnefc.operators.nn.quantization import DynamicQuantization, IntegerProduct
from nnefc.operators.tensor.creation import Full

__all__ = ["dequantized_product"]

_Attributes = Callable[[Node], dict[str, Any]]


def _dequantized(ctx: Context, node: Node, index: int) -> Value:
    """The reals that the inputs from `index` on stand for: integers, their scale, their zero point."""
    parts = input_at(node, index), input_at(node, index + 1), optional_input(node, index + 2)
    return cast(Value, ctx.call("DequantizeLinear", *parts)[0])


def _quantized(ctx: Context, node: Node, value: Value, index: int, dtype: str) -> Value:
    """`value` in steps of the scale at `index`, from the zero point after it; without that, from 0, as `dtype`."""
    zero = optional_input(node, index + 1)
    zero = ctx.apply(Full(shape_of(input_at(node, index)), 0, dtype)) if zero is None else zero
    return cast(Value, ctx.call("QuantizeLinear", value, input_at(node, index), zero)[0])


def _declare(name: str, op_type: str, operands: int, attributes: _Attributes = lambda _node: {}) -> None:
    """`name` is `op_type` on `operands` quantized tensors."""

    def lower(ctx: Context, node: Node) -> Value:
        reals = [_dequantized(ctx, node, 3 * position) for position in range(operands)]
        last = bool(node.attributes.get("channels_last"))
        reals = [channels_first(ctx, real) if last else real for real in reals]
        made = cast(Value, ctx.call(op_type, *reals, **attributes(node))[0])
        made = channels_last(ctx, made) if last else made
        return _quantized(ctx, node, made, 3 * operands, dtype_of(input_at(node, 0)))

    operator(name, since=(1,), domain=DOMAIN)(cast(Lowering, lower))


def _given(*names: str) -> _Attributes:
    return lambda node: {name: node.attributes[name] for name in names}


def _pooling(node: Node) -> dict[str, Any]:
    names = ("auto_pad", "ceil_mode", "count_include_pad", "kernel_shape", "pads", "strides")
    return {name: node.attributes[name] for name in names if name in node.attributes}


_declare("QLinearAdd", "Add", 2)
_declare("QLinearMul", "Mul", 2)
_declare("QLinearSigmoid", "Sigmoid", 1)
_declare("QLinearLeakyRelu", "LeakyRelu", 1, _given("alpha"))
_declare("QLinearGlobalAveragePool", "GlobalAveragePool", 1)
_declare("QLinearAveragePool", "AveragePool", 1, _pooling)


@operator("QLinearSoftmax", since=(1,), domain=DOMAIN)
def _qlinear_softmax(ctx: Context, node: Node) -> Value:
    """Over one axis, or as before version 13 of the standard over all from that axis on."""
    x = _dequantized(ctx, node, 0)
    axis = normal_axis(node, node.attributes["axis"], x.rank)
    axes = (axis,) if node.attributes["opset"] >= 13 else tuple(range(axis, x.rank))
    return _quantized(ctx, node, ctx.apply(Softmax(axes), x), 3, dtype_of(input_at(node, 0)))


@operator("QLinearReduceMean", since=(1,), domain=DOMAIN)
def _qlinear_reduce_mean(ctx: Context, node: Node) -> Value:
    x = _dequantized(ctx, node, 0)
    axes = tuple(sorted(normal_axes(node, node.attributes["axes"], x.rank)))
    made = ctx.apply(Mean(axes, bool(node.attributes["keepdims"])), x)
    return _quantized(ctx, node, made, 3, dtype_of(input_at(node, 0)))


@operator("QLinearWhere", since=(1,), domain=DOMAIN)
def _qlinear_where(ctx: Context, node: Node) -> Value:
    one, other = (_dequantized(ctx, node, position) for position in (1, 4))
    made = ctx.apply(Where(), input_at(node, 0), one, other)
    return _quantized(ctx, node, made, 7, dtype_of(input_at(node, 1)))


@operator("NhwcMaxPool", since=(1,), domain=DOMAIN)
def _nhwc_max_pool(ctx: Context, node: Node) -> Value:
    x = channels_first(ctx, input_at(node, 0))
    return channels_last(ctx, ctx.apply(MaxPool(**pooling_window(node, x.shape)), x))


@operator("MulInteger", since=(1,), domain=DOMAIN)
def _mul_integer(ctx: Context, node: Node) -> Value:
    factors = [ctx.apply(Cast("int32"), input_at(node, position)) for position in (0, 2)]
    for index, position in enumerate((1, 3)):
        zero = optional_input(node, position)
        if zero is not None:
            factors[index] = binary(ctx, "Sub", factors[index], ctx.apply(Cast("int32"), zero))
    return binary(ctx, "Mul", *factors)


@operator("ReduceSumInteger", since=(1,), domain=DOMAIN)
def _reduce_sum_integer(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    wide = ctx.apply(Cast("uint32" if dtype_of(x) == "uint8" else "int32"), x)
    axes = tuple(sorted(normal_axes(node, node.attributes["axes"], x.rank)))
    return ctx.apply(Sum(axes, bool(node.attributes["keepdims"])), wide)


@operator("MatMulInteger16", since=(1,), domain=DOMAIN)
def _matmul_integer_16(ctx: Context, node: Node) -> Value:
    a, b = input_at(node, 0), input_at(node, 1)
    made: Value = ctx.apply(IntegerProduct(), a, b)
    return ctx.apply(Cast("uint32"), made) if {dtype_of(a), dtype_of(b)} == {"uint16"} else made


@operator("QLinearConcat", since=(1,), domain=DOMAIN)
def _qlinear_concat(ctx: Context, node: Node) -> Value:
    count = len(node.inputs) - 2
    if count < 3 or count % 3:
        raise fail(node, f"{count} inputs are not tensors with a scale and a zero point each")
    parts = [_dequantized(ctx, node, index) for index in range(2, len(node.inputs), 3)]
    joined = cast(Value, ctx.call("Concat", *parts, axis=node.attributes["axis"])[0])
    return _quantized(ctx, node, joined, 0, dtype_of(input_at(node, 1)))


@operator("MatMulIntegerToFloat", since=(1,), domain=DOMAIN)
def _matmul_integer_to_float(ctx: Context, node: Node) -> Value:
    scales = input_at(node, 2), input_at(node, 3)
    return dequantized_product(ctx, node, (0, 1, 4, 5), scales, optional_input(node, 6))


@operator("DynamicQuantizeMatMul", since=(1,), domain=DOMAIN)
def _dynamic_quantize_matmul(ctx: Context, node: Node) -> Value:
    """The left factor becomes integers of 8 bits in each run."""
    elements, scale, zero = ctx.apply(DynamicQuantization(), input_at(node, 0))
    integers = replace(node, operands=(elements, input_at(node, 1), zero, optional_input(node, 3)))
    return dequantized_product(ctx, integers, (0, 1, 2, 3), (scale, input_at(node, 2)), optional_input(node, 4))


def dequantized_product(
    ctx: Context, node: Node, positions: tuple[int, int, int, int], scales: tuple[Value, Value], bias: Value | None
) -> Value:
    """The product of integers that the inputs at these positions are, with their zero points, times two scales."""
    sums = ctx.apply(Cast("float32"), integer_product(ctx, node, positions))
    scale = binary(ctx, "Mul", *scales)
    made = binary(ctx, "Mul", sums, scale)
    return made if bias is None else binary(ctx, "Add", made, bias)


@operator("QGemm", since=(1,), domain=DOMAIN)
def _qgemm(ctx: Context, node: Node) -> Value:
    """The scale of `C` is that of the products."""
    a, b = _dequantized(ctx, node, 0), _by_columns(ctx, node)
    alpha, bias = node.attributes["alpha"], None
    if has_input(node, 6):
        scale = binary(ctx, "Mul", input_at(node, 1), input_at(node, 4))
        if alpha != 1:
            scale = binary(ctx, "Mul", scale, known(ctx, np.array(alpha, np.float32)))
        axis = len(shape_of(input_at(node, 6))) - 1
        bias = ctx.call("DequantizeLinear", input_at(node, 6), scale, axis=max(axis, 0))[0]
    attributes = {name: node.attributes[name] for name in ("alpha", "transA", "transB")}
    made = cast(Value, ctx.call("Gemm", a, b, bias, **attributes)[0])
    return _quantized(ctx, node, made, 7, dtype_of(input_at(node, 0))) if has_input(node, 7) else made


def _by_columns(ctx: Context, node: Node) -> Value:
    """The second matrix: its scales, where there are several, are those of the product's columns."""
    axis = 0 if node.attributes["transB"] else 1
    parts = input_at(node, 3), input_at(node, 4), input_at(node, 5)
    return cast(Value, ctx.call("DequantizeLinear", *parts, axis=axis)[0])
