"""Networks as quantizers write them, with scales that nothing measured: for pages that count instructions and launches.

    y = Conv(x, W)        →        y = Conv(DequantizeLinear(QuantizeLinear(x)), DequantizeLinear(bytes of W))

Activations share one scale and zero point, weights have one scale each: kernels are those of any quantized network.
"""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import onnx
from onnx import helper, numpy_helper

__all__ = ["in_bytes"]

_CONTRACTIONS = ("Conv", "Gemm", "MatMul")
_STORED = (*_CONTRACTIONS, "Add", "AveragePool", "BatchNormalization", "Clip", "Concat", "GlobalAveragePool", "Relu")
"""Operators whose results quantizers store, unless one of these follows alone."""
_FOLLOWING = ("BatchNormalization", "Clip", "Relu")
_GRID = ("byte_scale", "byte_zero")


def in_bytes(model: onnx.ModelProto) -> onnx.ModelProto:
    """Returns a network of float32 whose convolutions and matrix products multiply int8."""
    graph = model.graph
    weights = {value.name: numpy_helper.to_array(value) for value in graph.initializer}
    readers = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name].append(node)
    made, stored, packed = [], dict[str, str](), set[str]()
    constants = [
        numpy_helper.from_array(np.float32(0.03), _GRID[0]),
        numpy_helper.from_array(np.int8(-128), _GRID[1]),
    ]

    def store(name: str) -> None:
        stored[name] = f"{name}_stored"
        made.append(helper.make_node("QuantizeLinear", [name, *_GRID], [f"{name}_bytes"]))
        made.append(helper.make_node("DequantizeLinear", [f"{name}_bytes", *_GRID], [stored[name]]))

    def weight(name: str) -> str:
        scale = np.float32(max(np.abs(weights[name]).max(), 1e-6) / 127)
        data = np.rint(weights[name] / scale).astype(np.int8)
        parts = (data, scale, np.int8(0))
        names = [f"{name}_{part}" for part in ("bytes", "scale", "zero")]
        if name not in packed:
            packed.add(name)
            constants.extend(numpy_helper.from_array(part, own) for part, own in zip(parts, names, strict=True))
            made.append(helper.make_node("DequantizeLinear", names, [f"{name}_stored"]))
        return f"{name}_stored"

    outputs = {value.name for value in graph.output}
    for value in graph.input:
        if value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT and value.name not in weights:
            store(value.name)
    for node in graph.node:
        multiplies = node.op_type in _CONTRACTIONS and node.input[1] in weights
        for position, name in enumerate(node.input):
            node.input[position] = weight(name) if multiplies and position == 1 else stored.get(name, name)
        made.append(node)
        after = readers[node.output[0]]
        is_alone = len(after) == 1 and after[0].op_type in _FOLLOWING
        if node.op_type in _STORED and not is_alone and node.output[0] not in outputs:
            store(node.output[0])
    made = [onnx.NodeProto.FromString(node.SerializeToString()) for node in made]  # those of the graph end with it
    del graph.node[:]
    graph.node.extend(made)
    read = {name for node in made for name in node.input}
    constants += [value for value in graph.initializer if value.name in read]
    inputs = [value for value in graph.input if value.name in read or value.name not in weights]
    for values, kept in ((graph.initializer, constants), (graph.input, inputs)):
        copies = [type(value).FromString(value.SerializeToString()) for value in kept]
        del values[:]
        values.extend(copies)
    del graph.value_info[:]
    return model
