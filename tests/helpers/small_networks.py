"""Networks of well-known structure, small enough to be emulated: ONNX models with random weights, and inputs."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["NETWORKS", "Net"]


class Net:
    """An ONNX model in the making; operations return the names of what they make."""

    opset = 18

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []
        self._count = 0
        self.inputs: dict[str, np.ndarray] = {}

    def model(self, outputs: Sequence[str]) -> onnx.ModelProto:
        """The model so far, with these outputs, whose types shape inference finds."""
        given = [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in self.inputs.items()
        ]
        graph = helper.make_graph(
            self._nodes, "g", given, [onnx.ValueInfoProto(name=name) for name in outputs], self._constants
        )
        imports = [helper.make_opsetid("", self.opset), helper.make_opsetid("com.microsoft", 1)]
        made = helper.make_model(graph, opset_imports=imports, ir_version=10)
        inferred = {info.name: info for info in onnx.shape_inference.infer_shapes(made).graph.output}
        for info in made.graph.output:
            info.CopyFrom(inferred[info.name])
        return made

    def floats(self, *shape: int) -> str:
        """An input."""
        return self.given(self._rng.standard_normal(shape, dtype=np.float32))

    def given(self, array: np.ndarray) -> str:
        """An input with a value."""
        name = f"input{len(self.inputs)}"
        self.inputs[name] = array
        return name

    def weight(self, *shape: int, scale: float | None = None) -> str:
        """Trained values, of a size that keeps the sums of products near 1."""
        scale = 1 / math.sqrt(max(1, math.prod(shape[1:]))) if scale is None else scale
        return self.constant((self._rng.standard_normal(shape) * scale).astype(np.float32))

    def constant(self, value: Any) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def do(self, op: str, *inputs: str, **attributes: Any) -> str:
        """An operation with one result."""
        return self.several(op, 1, *inputs, **attributes)[0]

    def several(self, op: str, count: int, *inputs: str, **attributes: Any) -> list[str]:
        names = [f"v{self._count + i}" for i in range(count)]
        self._count += count
        self._nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names

    def convolution(
        self, x: str, inputs: int, outputs: int, size: int = 3, stride: int = 1, groups: int = 1, relu: bool = True
    ) -> str:
        """A convolution that keeps the sizes (but for its stride), scales and shifts channels."""
        before = (size - 1) // 2
        weight = self.weight(outputs, inputs // groups, size, size)
        window = {"strides": [stride] * 2, "pads": [before] * 4, "group": groups}
        y = self.do("Conv", x, weight, self.weight(outputs, scale=0.1), **window)
        positive = self.constant((1 + self._rng.random(outputs) / 2).astype(np.float32))
        y = self.do("BatchNormalization", y, positive, *(self.weight(outputs, scale=0.1) for _ in range(2)), positive)
        return self.do("Relu", y) if relu else y

    def linear(self, x: str, inputs: int, outputs: int) -> str:
        return self.do("Add", self.do("MatMul", x, self.weight(inputs, outputs)), self.weight(outputs, scale=0.1))

    def normalized(self, x: str, width: int) -> str:
        return self.do("LayerNormalization", x, self.weight(width, scale=1.0), self.weight(width, scale=0.1), axis=-1)

    def transformer(self, x: str, tokens: int, width: int, heads: int) -> str:
        """A layer of attention and a perceptron, each with its residual and normalization."""
        split = self.constant(np.array([1, tokens, heads, width // heads], np.int64))
        q, k, v = (
            self.do("Transpose", self.do("Reshape", self.linear(x, width, width), split), perm=[0, 2, 1, 3])
            for _ in range(3)
        )
        scores = self.do("MatMul", q, self.do("Transpose", k, perm=[0, 1, 3, 2]))
        scores = self.do("Div", scores, self.constant(np.float32(math.sqrt(width // heads))))
        mixed = self.do("Transpose", self.do("MatMul", self.do("Softmax", scores, axis=-1), v), perm=[0, 2, 1, 3])
        joined = self.do("Reshape", mixed, self.constant(np.array([1, tokens, width], np.int64)))
        x = self.normalized(self.do("Add", x, self.linear(joined, width, width)), width)
        hidden = self.linear(x, width, 2 * width)
        erf = self.do("Erf", self.do("Div", hidden, self.constant(np.float32(math.sqrt(2)))))
        gelu = self.do("Mul", self.do("Mul", hidden, self.do("Add", erf, self.constant(np.float32(1)))), self.half)
        return self.normalized(self.do("Add", x, self.linear(gelu, 2 * width, width)), width)

    @property
    def half(self) -> str:
        return self.constant(np.float32(0.5))

    def classified(self, x: str, channels: int, classes: int = 10) -> str:
        flat = self.do("Flatten", self.do("GlobalAveragePool", x))
        weights = self.weight(classes, channels)
        return self.do("Softmax", self.do("Gemm", flat, weights, self.weight(classes, scale=0.1), transB=1), axis=1)


def resnet(net: Net) -> list[str]:
    x = net.convolution(net.floats(2, 3, 33, 33), 3, 16, 7, stride=2)
    x = net.do("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    y = net.convolution(net.convolution(x, 16, 16), 16, 16, relu=False)
    x = net.do("Relu", net.do("Add", x, y))
    y = net.convolution(net.convolution(x, 16, 24, stride=2), 24, 24, relu=False)
    x = net.do("Relu", net.do("Add", y, net.convolution(x, 16, 24, 1, stride=2, relu=False)))
    return [net.classified(x, 24)]


def mobilenet(net: Net) -> list[str]:
    low, high = net.constant(np.float32(0)), net.constant(np.float32(6))
    x = net.convolution(net.floats(1, 3, 32, 32), 3, 8, stride=2)
    for outputs, stride in ((8, 1), (12, 2)):
        y = net.do("Clip", net.convolution(x, 8, 48, 1, relu=False), low, high)
        y = net.do("Clip", net.convolution(y, 48, 48, 3, stride, groups=48, relu=False), low, high)
        y = net.convolution(y, 48, outputs, 1, relu=False)
        x = net.do("Add", x, y) if stride == 1 else y
    return [net.classified(x, 12)]


def concatenations(net: Net) -> list[str]:
    """SqueezeNet's fire, Inception's branches and DenseNet's growth."""
    x = net.convolution(net.floats(1, 3, 24, 24), 3, 8, 1)
    squeezed = net.convolution(x, 8, 4, 1)
    x = net.do("Concat", net.convolution(squeezed, 4, 8, 1), net.convolution(squeezed, 4, 8), axis=1)
    pooled = net.do("AveragePool", x, kernel_shape=[3, 3], strides=[1, 1], pads=[1] * 4)
    branches = net.convolution(x, 16, 6, 1), net.convolution(x, 16, 5, 5), net.convolution(pooled, 16, 3, 1)
    x = net.do("Concat", *branches, axis=1)
    for channels in (14, 18):
        x = net.do("Concat", x, net.convolution(x, channels, 4), axis=1)
    x = net.do("LRN", net.do("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2]), size=5)
    return [net.classified(x, 22), x]


def unet(net: Net) -> list[str]:
    x = net.floats(1, 2, 20, 20)
    top = net.convolution(x, 2, 8)
    low = net.convolution(net.do("MaxPool", top, kernel_shape=[2, 2], strides=[2, 2]), 8, 16)
    up = net.do("ConvTranspose", low, net.weight(16, 8, 2, 2), net.weight(8, scale=0.1), strides=[2, 2])
    joined = net.convolution(net.do("Concat", top, up, axis=1), 16, 8)
    scales = net.constant(np.array([1, 1, 2, 2], np.float32))
    wide = net.do("Resize", joined, "", scales, mode="linear", coordinate_transformation_mode="half_pixel")
    return [net.do("Sigmoid", net.convolution(joined, 8, 1, 1, relu=False)), net.do("Tanh", wide)]


def bert(net: Net) -> list[str]:
    words = net.given(np.random.default_rng(0).integers(0, 50, (1, 11)))
    x = net.do("Add", net.do("Gather", net.weight(50, 32, scale=1.0), words), net.weight(11, 32, scale=1.0))
    return [net.transformer(net.normalized(x, 32), 11, 32, 4)]


def vision_transformer(net: Net) -> list[str]:
    patches = net.do("Conv", net.floats(1, 3, 24, 24), net.weight(32, 3, 8, 8), strides=[8, 8])
    flat = net.do("Reshape", patches, net.constant(np.array([1, 32, 9], np.int64)))
    tokens = net.do("Concat", net.weight(1, 1, 32), net.do("Transpose", flat, perm=[0, 2, 1]), axis=1)
    x = net.transformer(net.do("Add", tokens, net.weight(1, 10, 32)), 10, 32, 2)
    return [net.linear(net.do("Gather", x, net.constant(np.int64(0)), axis=1), 32, 5)]


def recurrent(net: Net) -> list[str]:
    x = net.floats(5, 2, 12)
    lstm = net.do(
        "LSTM", x, net.weight(2, 64, 12), net.weight(2, 64, 16), net.weight(2, 128, scale=0.1),
        hidden_size=16, direction="bidirectional",
    )  # fmt: skip
    gru = net.several("GRU", 2, x, net.weight(1, 48, 12), net.weight(1, 48, 16), hidden_size=16)
    return [lstm, *gru]


def body(state: str, scale: float, scan: bool = True) -> onnx.GraphProto:
    """One round of a loop: `state = tanh(state @ weights + round)`, until the sum of all is large."""
    weights = numpy_helper.from_array(np.eye(6, dtype=np.float32)[::-1] * np.float32(scale), "w")
    nodes = [
        helper.make_node("Cast", ["i"], ["round"], to=TensorProto.FLOAT),
        helper.make_node("MatMul", [state, "w"], ["transposed"]),
        helper.make_node("Add", ["transposed", "round"], ["moved"]),
        helper.make_node("Tanh", ["moved"], ["next"]),
        helper.make_node("ReduceSum", ["next"], ["sum"], keepdims=0),
        helper.make_node("Identity", ["c"], ["go"]) if scan else helper.make_node("Less", ["sum", "limit"], ["go"]),
        helper.make_node("Identity", ["next"], ["seen"]),
    ]
    limit = numpy_helper.from_array(np.float32(12), "limit")
    info = helper.make_tensor_value_info
    return helper.make_graph(
        nodes,
        "body",
        [info("i", TensorProto.INT64, ()), info("c", TensorProto.BOOL, ()), info(state, TensorProto.FLOAT, (3, 6))],
        [
            info("go", TensorProto.BOOL, ()),
            *(info(name, TensorProto.FLOAT, (3, 6)) for name in ("next", "seen")[: 1 + scan]),
        ],
        [weights, limit],
    )


def control_flow(net: Net) -> list[str]:
    """A loop of as many trips as an input says, and a choice by what it made."""
    x = net.floats(3, 6)
    count = net.constant(np.int64(4))
    go = net.do("Less", net.do("ReduceSum", x, keepdims=0), net.constant(np.float32(100)))
    last, seen = net.several("Loop", 2, count, "", x, body=body("s", 0.5))
    (last,) = net.several("Loop", 1, "", go, last, body=body("t", 0.9, scan=False))
    high = net.do("Greater", net.do("ReduceMax", last, keepdims=0), net.constant(np.float32(0.5)))
    info = helper.make_tensor_value_info("y", TensorProto.FLOAT, (3, 6))
    branches = {
        f"{name}_branch": helper.make_graph([helper.make_node(op, [last], ["y"])], name, [], [info])
        for name, op in (("then", "Exp"), ("else", "Neg"))
    }
    return [net.do("If", high, **branches), seen]


NETWORKS: dict[str, Callable[[Net], list[str]]] = {
    "resnet": resnet,
    "mobilenet": mobilenet,
    "concatenations": concatenations,
    "unet": unet,
    "bert": bert,
    "vision transformer": vision_transformer,
    "recurrent": recurrent,
    "control flow": control_flow,
}
