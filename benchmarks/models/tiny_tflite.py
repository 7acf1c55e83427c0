"""The networks of `tiny_networks.py` as TFLite files with the same weights, channels last, in float32 and in int8.

Activations have one scale each, from the ranges of LiteRT's tensors on random inputs; filters have one for each output
channel, matrices one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from tiny_networks import NETWORKS

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "helpers"))

from tflite_files import Graph, model_file

__all__ = ["write_tflite"]

_SAMPLES = 3
_Scale = tuple[float, int]
"""A scale and a zero point."""


class _Translation:
    """Translates a network node by node; a Relu is fused into the operator before it.

    Args:
        ranges: the smallest and the largest value of each tensor, by its index; None for a network in float32.
    """

    def __init__(self, name: str, ranges: Mapping[int, tuple[float, float]] | None) -> None:
        net, self._result = NETWORKS[name]()
        self._weights = {weight.name: numpy_helper.to_array(weight) for weight in net.weights}
        self._nodes, self._ranges, self.graph = net.nodes, ranges, Graph()
        shape = (net.shape[0], *net.shape[2:], net.shape[1]) if len(net.shape) == 4 else net.shape
        self._indices = {"input": self._activation(shape, is_input=True)}
        consumers = {node.input[0]: node for node in net.nodes if node.op_type == "Relu"}
        for node in net.nodes:
            if node.op_type in ("Relu", "Flatten"):
                self._indices.setdefault(node.output[0], self._indices[node.input[0]])
                continue
            relu = consumers.get(node.output[0])
            made = getattr(self, f"_{node.op_type}")(node, 1 if relu is not None else 0)
            self._indices[node.output[0]] = made
            if relu is not None:
                self._indices[relu.output[0]] = made
        self.graph.outputs.append(self._indices[self._result])

    def _shape(self, index: int) -> tuple[int, ...]:
        return tuple(self.graph.tensors[index]["shape"])

    def _scale(self, index: int) -> _Scale:
        quantization = self.graph.tensors[index]["quantization"]
        return float(quantization["scale"][0]), int(quantization["zero_point"][0])

    def _activation(self, shape: tuple[int, ...], is_input: bool = False, scale: _Scale | None = None) -> int:
        """Adds the tensor of a result."""
        index = len(self.graph.tensors)
        make = self.graph.input if is_input else self.graph.tensor
        if self._ranges is None:
            return make(shape)
        if scale is None:
            low, high = min(self._ranges[index][0], 0.0), max(self._ranges[index][1], 0.0)
            step = max(high - low, 1e-6) / 255
            scale = step, int(np.clip(np.rint(-128 - low / step), -128, 127))
        return make(shape, "int8", scale=scale[0], zero=scale[1])

    def _constants(self, weights: np.ndarray, bias: np.ndarray, source: int, axis: int | None) -> list[int]:
        """Adds weights and a bias; in integers with a scale for each position of an axis, or one."""
        if self._ranges is None:
            return [self.graph.tensor(each.shape, value=each) for each in (weights, bias)]
        others = tuple(k for k in range(weights.ndim) if k != axis)
        scales = np.atleast_1d(np.abs(weights).max(others if axis is not None else None)) / 127 + 1e-12
        spread = scales.reshape([-1 if k == axis else 1 for k in range(weights.ndim)])
        whole = np.rint(weights / spread).astype(np.int8)
        sums = np.rint(bias / (scales * self._scale(source)[0])).astype(np.int32)
        return [
            self.graph.tensor(whole.shape, "int8", whole, scale=scales, axis=axis or 0),
            self.graph.tensor(sums.shape, "int32", sums, scale=scales * self._scale(source)[0]),
        ]

    def _Conv(self, node: onnx.NodeProto, activation: int) -> int:
        attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
        source, (w, b) = self._indices[node.input[0]], (self._weights[name] for name in node.input[1:])
        batch, height, width, channels = self._shape(source)
        down, right = attributes["strides"]
        is_depthwise = attributes["group"] == channels > 1
        w = np.ascontiguousarray(w.transpose((1, 2, 3, 0) if is_depthwise else (0, 2, 3, 1)))
        constants = self._constants(w, b, source, 3 if is_depthwise else 0)
        made = self._activation((batch, -(-height // down), -(-width // right), b.size))
        fields: dict[str, Any] = {"stride_h": down, "stride_w": right, "fused_activation_function": activation}
        if is_depthwise:
            options = {"depth_multiplier": 1, **fields}
            self.graph.add("DEPTHWISE_CONV_2D", [source, *constants], [made], "DepthwiseConv2DOptions", **options)
        else:
            self.graph.add("CONV_2D", [source, *constants], [made], "Conv2DOptions", **fields)
        return made

    def _Gemm(self, node: onnx.NodeProto, activation: int) -> int:
        source, (w, b) = self._indices[node.input[0]], (self._weights[name] for name in node.input[1:])
        constants = self._constants(np.ascontiguousarray(w.T), b, source, None)
        made = self._activation((self._shape(source)[0], b.size))
        fields = {"fused_activation_function": activation}
        self.graph.add("FULLY_CONNECTED", [source, *constants], [made], "FullyConnectedOptions", **fields)
        return made

    def _Add(self, node: onnx.NodeProto, activation: int) -> int:
        given = [self._indices[name] for name in node.input]
        made = self._activation(self._shape(given[0]))
        self.graph.add("ADD", given, [made], "AddOptions", fused_activation_function=activation)
        return made

    def _GlobalAveragePool(self, node: onnx.NodeProto, _activation: int) -> int:
        source = self._indices[node.input[0]]
        shape = self._shape(source)
        axes = self.graph.tensor((2,), "int32", np.array([1, 2], np.int32))
        made = self._activation((shape[0], shape[3]))
        self.graph.add("MEAN", [source, axes], [made], "ReducerOptions", keep_dims=False)
        return made

    def _Softmax(self, node: onnx.NodeProto, _activation: int) -> int:
        source = self._indices[node.input[0]]
        made = self._activation(self._shape(source), scale=(1 / 256, -128))
        self.graph.add("SOFTMAX", [source], [made], "SoftmaxOptions", beta=1.0)
        return made


def _ranges(content: bytes) -> dict[int, tuple[float, float]]:
    """The range of each tensor of a network in float32, on random inputs."""
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(model_content=content, experimental_preserve_all_tensors=True)
    interpreter.allocate_tensors()
    (given,), random = interpreter.get_input_details(), np.random.default_rng(1)
    found: dict[int, tuple[float, float]] = {}
    for _ in range(_SAMPLES):
        interpreter.set_tensor(given["index"], random.standard_normal(given["shape"]).astype(np.float32))
        interpreter.invoke()
        for detail in interpreter.get_tensor_details():
            if detail["dtype"] != np.float32 or not detail["name"]:
                continue
            value = interpreter.get_tensor(detail["index"])
            low, high = found.get(detail["index"], (0.0, 0.0))
            found[detail["index"]] = min(low, float(value.min())), max(high, float(value.max()))
    return found


def write_tflite(name: str, path: Path, is_int8: bool = False) -> None:
    """Writes a network in float32 or in int8."""
    content = model_file(_Translation(name, None).graph)
    if is_int8:
        content = model_file(_Translation(name, _ranges(content)).graph)
    path.write_bytes(content)
