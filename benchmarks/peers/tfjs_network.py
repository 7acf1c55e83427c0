"""A network of ONNX as TensorFlow.js runs it fastest: a list of its operations, for images with channels last.

Normalizations are folded into the convolutions before them, and biases and activations are computed by the kernels that
multiply (`tf.fused`), as TensorFlow's converter does it. `benchmarks/web/tfjs.mjs` runs the list.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

__all__ = ["write_program"]

_CHANNELS_LAST = (0, 2, 3, 1)


def write_program(model: Path, path: Path) -> None:
    """Write the list as JSON to `path`, and all constants next to it as `.bin`: float32, little-endian.

    Raises:
        NotImplementedError: the network has an operator that is not known here.
    """
    program = _Program(onnx.load(model).graph)
    for node in program.graph.node:
        if node.output[0] not in program.computed and node.op_type != "Constant":
            if node.op_type not in _OPERATORS:
                raise NotImplementedError(f"operator {node.op_type}")
            attributes = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
            _OPERATORS[node.op_type](program, node, attributes)
    path.write_text(json.dumps(program.described))
    path.with_suffix(".bin").write_bytes(b"".join(program.data))


class _Program:
    """The list as it grows."""

    def __init__(self, graph: onnx.GraphProto) -> None:
        self.graph = graph
        self.values = {value.name: numpy_helper.to_array(value) for value in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant":
                self.values[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        self.computed: set[str] = set()  # what a step before it computes already
        self.data: list[bytes] = []
        self._positions: dict[str, dict[str, Any]] = {}
        self._steps: list[dict[str, Any]] = []
        (value,) = graph.input
        self._shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]

    @property
    def described(self) -> dict[str, Any]:
        """What the JSON says: `shape` is ONNX's, of the input."""
        ends = {"input": self.graph.input[0].name, "output": self.graph.output[0].name, "shape": self._shape}
        return {**ends, "constants": self._positions, "steps": self._steps}

    def constant(self, array: np.ndarray) -> str:
        """The name of a constant that steps read."""
        name = f"#{len(self._positions)}"  # as no tensor of the model is called
        self._positions[name] = {"shape": list(array.shape), "offset": sum(map(len, self.data))}
        self.data.append(np.ascontiguousarray(array, "<f4").tobytes())
        return name

    def step(self, op: str, inputs: Sequence[str], result: str, **attributes: Any) -> None:
        """Add one; constants of the model are inputs as they are."""
        names = [self.constant(self.values[name]) if name in self.values else name for name in inputs]
        self._steps.append({"op": op, "inputs": names, "output": result, **attributes})
        self.computed.add(result)

    def follower(self, name: str, *kinds: str) -> onnx.NodeProto | None:
        """The only reader of a tensor, if it is an operator of one of these kinds."""
        readers = [node for node in self.graph.node if name in node.input]
        return readers[0] if len(readers) == 1 and readers[0].op_type in kinds else None

    def activated(self, name: str) -> tuple[str, str]:
        """The tensor that a kernel can compute in place of `name`, and by which activation."""
        node = self.follower(name, "Relu", "Clip")
        if node is None:
            return name, "linear"
        if node.op_type == "Clip" and [float(self.values[each]) for each in node.input[1:]] != [0, 6]:
            return name, "linear"
        self.computed |= {name, node.output[0]}
        return node.output[0], "relu" if node.op_type == "Relu" else "relu6"


Attributes = Mapping[str, Any]


def _convolution(program: _Program, node: onnx.NodeProto, given: Attributes) -> None:
    filters = program.values[node.input[1]].astype(np.float64)
    bias = program.values[node.input[2]] if len(node.input) > 2 else np.zeros(len(filters))
    result, groups = node.output[0], given.get("group", 1)
    norm = program.follower(result, "BatchNormalization")
    if norm is not None:
        scale, shift, mean, variance = (program.values[name].astype(np.float64) for name in norm.input[1:])
        factor = scale / np.sqrt(variance + next(a.f for a in norm.attribute if a.name == "epsilon"))
        filters, bias = filters * factor[:, None, None, None], (bias - mean) * factor + shift
        program.computed.add(result)
        result = norm.output[0]
    if groups not in (1, len(filters)):
        raise NotImplementedError(f"convolution in {groups} groups")
    op, order = ("convolution", (2, 3, 1, 0)) if groups == 1 else ("depthwise", (2, 3, 0, 1))
    constants = [program.constant(filters.transpose(order)), program.constant(bias)]
    result, activation = program.activated(result)
    more = {"activation": activation, "strides": given.get("strides", [1, 1]), "pads": given.get("pads", [0] * 4)}
    program.step(op, [node.input[0], *constants], result, **more)


def _product(program: _Program, node: onnx.NodeProto, given: Attributes) -> None:
    left, right = node.input[:2]
    result, bias = node.output[0], None
    if right in program.values:
        matrix = program.values[right].T if given.get("transB") else program.values[right]
        right = program.constant(matrix)
        added = program.follower(result, "Add")
        if len(node.input) > 2:
            bias = program.constant(program.values[node.input[2]])
        elif added is not None and added.input[1] in program.values and program.values[added.input[1]].ndim == 1:
            bias = program.constant(program.values[added.input[1]])
            program.computed.add(result)
            result = added.output[0]
    program.step("product", [left, right, *filter(None, [bias])], result)


def _simple(op: str, *names: str) -> Callable[[_Program, onnx.NodeProto, Attributes], None]:
    """An operator whose attributes are passed on as they are."""

    def translate(program: _Program, node: onnx.NodeProto, given: Attributes) -> None:
        program.step(op, node.input, node.output[0], **{name: given[name] for name in names if name in given})

    return translate


def _reshape(program: _Program, node: onnx.NodeProto, given: Attributes) -> None:
    program.step("reshape", node.input[:1], node.output[0], shape=program.values[node.input[1]].tolist())


def _flatten(program: _Program, node: onnx.NodeProto, given: Attributes) -> None:
    program.step("reshape", node.input, node.output[0], shape=[1, -1])


def _same(program: _Program, node: onnx.NodeProto, given: Attributes) -> None:
    program.step("same", node.input[:1], node.output[0])


def _softmax(program: _Program, node: onnx.NodeProto, given: Attributes) -> None:
    program.step("softmax", node.input, node.output[0])  # along the last axis: of images the channels


def _concatenation(program: _Program, node: onnx.NodeProto, given: Attributes) -> None:
    program.step("concatenation", node.input, node.output[0], axis=_CHANNELS_LAST.index(given["axis"]))


_OPERATORS: dict[str, Callable[[_Program, onnx.NodeProto, Attributes], None]] = {
    "Add": _simple("add"),
    "Clip": _simple("clip"),
    "Concat": _concatenation,
    "Conv": _convolution,
    "Div": _simple("divide"),
    "Dropout": _same,
    "Flatten": _flatten,
    "Gelu": _simple("gelu"),
    "Gemm": _product,
    "GlobalAveragePool": _simple("average"),
    "LayerNormalization": _simple("normalize", "epsilon"),
    "MatMul": _product,
    "MaxPool": _simple("largest", "kernel_shape", "strides", "pads"),
    "Relu": _simple("relu"),
    "Reshape": _reshape,
    "Softmax": _softmax,
    "Transpose": _simple("transpose", "perm"),
}
