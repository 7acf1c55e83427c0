"""A small network in int8, as onnxruntime's quantizer writes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["quantized"]


def quantized(path: Path) -> np.ndarray:
    """Write a network in int8: convolutions, one of them depthwise, a mean, a matrix product; returns an input."""
    random = np.random.default_rng(1)
    nodes, constants = [], []

    def constant(value: object, dtype: type) -> str:
        constants.append(numpy_helper.from_array(np.asarray(value, dtype), f"c{len(constants)}"))
        return str(constants[-1].name)

    def node(kind: str, *inputs: str, **attributes: object) -> str:
        nodes.append(helper.make_node(kind, list(inputs), [f"t{len(nodes)}"], **attributes))
        return f"t{len(nodes) - 1}"

    def through_int8(x: str, scale: float, zero: int) -> str:
        grid = constant(scale, np.float32), constant(zero, np.int8)
        return node("DequantizeLinear", node("QuantizeLinear", x, *grid), *grid)

    def weights(*shape: int) -> str:
        data = constant(random.integers(-127, 128, shape), np.int8)
        scales = constant(random.uniform(0.004, 0.012, shape[0]), np.float32)
        return node("DequantizeLinear", data, scales, constant(np.zeros(shape[0]), np.int8), axis=0)

    def conv(x: str, *shape: int, group: int = 1, stride: int = 1) -> str:
        pads = [shape[-2] // 2, shape[-1] // 2] * 2
        made = node("Conv", x, weights(*shape), pads=pads, group=group, strides=[stride, stride])
        return through_int8(node("Relu", made), 0.03, -128)

    x = conv(through_int8("x", 0.02, 3), 12, 3, 3, 3, stride=2)
    x = conv(conv(x, 12, 1, 3, 3, group=12), 20, 12, 1, 1)
    x = through_int8(node("GlobalAveragePool", x), 0.01, -5)
    x = node("Gemm", node("Flatten", x), weights(7, 20), transB=1)
    y = through_int8(x, 0.05, 9)
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (1, 3, 11, 9))],
        [helper.make_tensor_value_info(y, TensorProto.FLOAT, (1, 7))],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return random.standard_normal((1, 3, 11, 9)).astype(np.float32)
