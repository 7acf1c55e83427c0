"""The four networks of MLPerf Tiny with their published layer sizes and random weights, as ONNX, in float32 and int8.

C. Banbury et al., "MLPerf Tiny Benchmark", 2021, section 4. Batch normalization is folded into the convolutions.
Weights have the variance of He's initialization, so that values neither vanish nor grow from layer to layer.
The int8 networks are made by onnxruntime's static quantizer: int8 for all, weights by channel, QDQ format.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["NETWORKS", "input_shape", "write_float", "write_int8"]


class _Builder:
    """A graph that grows node by node; tensors are called by their numbers."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self.shape = shape
        self._random = np.random.default_rng(0)

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def weight(self, *shape: int, fan_in: int) -> str:
        name = f"w{len(self.weights)}"
        scale = np.sqrt(2 / fan_in) if len(shape) > 1 else 0.05
        array = (self._random.standard_normal(shape) * scale).astype(np.float32)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def conv(self, x: str, inputs: int, outputs: int, kernel: tuple[int, int], stride: int = 1, groups: int = 1) -> str:
        fan_in = inputs // groups * kernel[0] * kernel[1]
        w = self.weight(outputs, inputs // groups, *kernel, fan_in=fan_in)
        b = self.weight(outputs, fan_in=fan_in)
        return self.node(
            "Conv", x, w, b, auto_pad="SAME_UPPER", strides=[stride, stride], group=groups, kernel_shape=list(kernel)
        )

    def relu(self, x: str) -> str:
        return self.node("Relu", x)

    def dense(self, x: str, inputs: int, outputs: int) -> str:
        w, b = self.weight(inputs, outputs, fan_in=inputs), self.weight(outputs, fan_in=inputs)
        return self.node("Gemm", x, w, b)

    def separable(self, x: str, inputs: int, outputs: int, stride: int = 1) -> str:
        x = self.relu(self.conv(x, inputs, inputs, (3, 3), stride, inputs))
        return self.relu(self.conv(x, inputs, outputs, (1, 1)))

    def classified(self, x: str, inputs: int, outputs: int) -> str:
        x = self.node("Flatten", self.node("GlobalAveragePool", x))
        return self.node("Softmax", self.dense(x, inputs, outputs))


def _ds_cnn() -> tuple[_Builder, str]:
    net = _Builder((1, 1, 49, 10))
    x = net.relu(net.conv("input", 1, 64, (10, 4), 2))
    for _ in range(4):
        x = net.separable(x, 64, 64)
    return net, net.classified(x, 64, 12)


def _mobilenet() -> tuple[_Builder, str]:
    net = _Builder((1, 3, 96, 96))
    x = net.relu(net.conv("input", 3, 8, (3, 3), 2))
    steps = [(8, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2), (64, 64, 1), (64, 128, 2), *[(128, 128, 1)] * 5]
    for inputs, outputs, stride in [*steps, (128, 256, 2), (256, 256, 1)]:
        x = net.separable(x, inputs, outputs, stride)
    return net, net.classified(x, 256, 2)


def _resnet() -> tuple[_Builder, str]:
    net = _Builder((1, 3, 32, 32))
    x = net.relu(net.conv("input", 3, 16, (3, 3)))
    for inputs, outputs, stride in [(16, 16, 1), (16, 32, 2), (32, 64, 2)]:
        y = net.conv(net.relu(net.conv(x, inputs, outputs, (3, 3), stride)), outputs, outputs, (3, 3))
        x = x if stride == 1 else net.conv(x, inputs, outputs, (1, 1), stride)
        x = net.relu(net.node("Add", x, y))
    return net, net.classified(x, 64, 10)


def _autoencoder() -> tuple[_Builder, str]:
    net = _Builder((1, 640))
    sizes, x = [640, 128, 128, 128, 128, 8, 128, 128, 128, 128], "input"
    for inputs, outputs in pairwise(sizes):
        x = net.relu(net.dense(x, inputs, outputs))
    return net, net.dense(x, 128, 640)


NETWORKS: Mapping[str, Callable[[], tuple[_Builder, str]]] = {
    "DS-CNN": _ds_cnn,
    "MobileNet v1 0.25": _mobilenet,
    "ResNet-8": _resnet,
    "Autoencoder": _autoencoder,
}


def input_shape(name: str) -> tuple[int, ...]:
    """The shape of the input of a network, which is called `input`."""
    return NETWORKS[name]()[0].shape


def write_float(name: str, path: Path) -> None:
    """Write a network in float32."""
    net, result = NETWORKS[name]()
    graph = helper.make_graph(
        net.nodes,
        name.replace(" ", "_"),
        [helper.make_tensor_value_info("input", TensorProto.FLOAT, net.shape)],
        [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)],
        net.weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)


def write_int8(name: str, path: Path) -> None:
    """Write a network in int8, quantized for random inputs."""
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Samples(CalibrationDataReader):  # type: ignore[misc]
        def __init__(self) -> None:
            random = np.random.default_rng(1)
            shape = input_shape(name)
            self._left = [random.standard_normal(shape).astype(np.float32) for _ in range(4)]

        def get_next(self) -> dict[str, np.ndarray] | None:
            return {"input": self._left.pop()} if self._left else None

    float_model = path.with_suffix(".float.onnx")
    write_float(name, float_model)
    types = {"activation_type": QuantType.QInt8, "weight_type": QuantType.QInt8}
    quantize_static(float_model, path, Samples(), quant_format=QuantFormat.QDQ, per_channel=True, **types)
    float_model.unlink()
