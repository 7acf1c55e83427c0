"""Operators of integers, and of products with them, as simpler ones: see :mod:`simpler`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import onnx
from simpler_steps import Steps

__all__ = ["OF_INTEGERS", "integer_product"]


def _sums(kind: str) -> Callable[[Steps], list[onnx.NodeProto]]:
    def make(steps: Steps) -> list[onnx.NodeProto]:
        return steps.rounded(steps.add(kind, *steps.node.input, **steps.given), steps.node.input[7])

    return make


def _convolution_of_layouts(steps: Steps) -> list[onnx.NodeProto]:
    x, *others = steps.node.input
    last = steps.given.pop("channels_last", 0)
    x = steps.add("ChannelsFirst", x) if last else x
    real = steps.add("ConvolutionSums", x, *others, **steps.given)
    return steps.rounded(steps.add("ChannelsLast", real) if last else real, steps.node.input[7])


def _linear(steps: Steps) -> list[onnx.NodeProto]:
    *inputs, zero = steps.node.input
    return steps.rounded(steps.add(f"Real{steps.node.op_type}", *inputs, **steps.given), zero)


def _linear_concatenation(steps: Steps) -> list[onnx.NodeProto]:
    scale, zero, *parts = steps.node.input
    return steps.rounded(steps.add("RealQLinearConcat", *parts, scale, **steps.given), zero)


def _linear_gemm(steps: Steps) -> list[onnx.NodeProto]:
    """In reals, with the bias in units of the product of both scales."""
    *inputs, zero = steps.inputs(9)
    real = steps.add("RealQGemm", *inputs, **steps.given)
    return steps.rounded(real, zero) if zero else steps.end(real)


def _linear_pool(steps: Steps) -> list[onnx.NodeProto]:
    x, x_scale, x_zero, scale, zero = steps.inputs(5)
    real = steps.add("Real", x, x_scale, x_zero)
    last = steps.given.pop("channels_last", 0)
    real = steps.add("AveragePool", steps.add("ChannelsFirst", real) if last else real, **steps.given)
    return steps.rounded(steps.add("Scaled", steps.add("ChannelsLast", real) if last else real, scale), zero)


def _quantized(steps: Steps) -> list[onnx.NodeProto]:
    x, scale, zero = steps.node.input
    return steps.rounded(steps.add("Scaled", x, scale, **steps.given), steps.add("Along", x, zero, **steps.given))


def _dequantized(steps: Steps) -> list[onnx.NodeProto]:
    return steps.end(steps.add("Real", *steps.node.input, **steps.given))


def integer_product(steps: Steps, *inputs: str) -> str:
    """The reals that a product stands for: of both factors, their scales, their zero points."""
    return steps.add("IntegerProducts", *inputs)


def _product_to_float(steps: Steps) -> list[onnx.NodeProto]:
    *factors, bias = steps.inputs(7)
    return steps.end(steps.added(integer_product(steps, *factors), bias))


def _dynamic_product(steps: Steps) -> list[onnx.NodeProto]:
    a, b, b_scale, b_zero, bias = steps.inputs(5)
    quantized, scale, zero = names = [f"{steps.node.output[0]}_{part}" for part in ("quantized", "scale", "zero")]
    steps.add("DynamicQuantizeLinear", a, result=quantized)
    steps.made[-1].output[:] = names
    return steps.end(steps.added(integer_product(steps, quantized, b, scale, b_scale, zero, b_zero), bias))


def _product_of_blocks(steps: Steps) -> list[onnx.NodeProto]:
    x, data, scales, zeros, _, bias = steps.inputs(6)
    weights = steps.add("BlockWeights", data, scales, zeros, **steps.given)
    return steps.end(steps.added(steps.add("BlockProduct", x, weights, block_size=steps.given["block_size"]), bias))


def _product_of_codes(steps: Steps) -> list[onnx.NodeProto]:
    x, *codes = steps.node.input
    return steps.end(steps.add("MatMul", x, steps.add("CodedWeights", *codes, **steps.given)))


def _gathered(steps: Steps) -> list[onnx.NodeProto]:
    data, indices, *others = steps.node.input
    axis = steps.given.pop("gather_axis", 0)
    return steps.end(steps.add("Gather", steps.add("BlockNumbers", data, *others, **steps.given), indices, axis=axis))


OF_INTEGERS: Mapping[str, Callable[[Steps], Sequence[onnx.NodeProto]]] = {
    "DynamicQuantizeMatMul": _dynamic_product,
    "GatherBlockQuantized": _gathered,
    "MatMulBnb4": _product_of_codes,
    "MatMulIntegerToFloat": _product_to_float,
    "MatMulNBits": _product_of_blocks,
    "QGemm": _linear_gemm,
    "QLinearAdd": _linear,
    "QLinearAveragePool": _linear_pool,
    "QLinearConcat": _linear_concatenation,
    "QLinearConv": _sums("ConvolutionSums"),
    "QLinearGlobalAveragePool": _linear,
    "QLinearLeakyRelu": _linear,
    "QLinearMatMul": _sums("ProductSums"),
    "QLinearMul": _linear,
    "QLinearReduceMean": _linear,
    "QLinearSigmoid": _linear,
    "QLinearSoftmax": _linear,
    "QLinearWhere": _linear,
    "com.microsoft.DequantizeLinear": _dequantized,
    "com.microsoft.QLinearConv": _convolution_of_layouts,
    "com.microsoft.QuantizeLinear": _quantized,
}
"""By the operators' names."""
