"""Writes a quantized ONNX model with `QuantizeLinear` and `DequantizeLinear` around its layers.

    y = Conv(x, W, B)      →      a = DequantizeLinear(QuantizeLinear(x, s, z), s, z)
                                  y = Conv(a, DequantizeLinear(W', t, 0), DequantizeLinear(B', s · t, 0))

What scales and shifts the result of a layer is in its weights afterwards: a `BatchNormalization` behind it is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from nnefc.frontends.onnx.files.reading import read_proto
from nnefc.support.diagnostics import CompileError

__all__ = ["RoundedLayer", "RoundedTensor", "layers_without_a_node", "rounded_model"]

Array = npt.NDArray[Any]

_OPSET = 13
"""The first one with scales for each channel."""

_LAYERS = ("Conv", "ConvTranspose", "Gemm", "MatMul")
_FOLDED = ("Add", "BatchNormalization", "Div", "Mul", "Sub")
"""Operators that are folded into a layer's weights and bias, if their other operands are constants."""

_MOVES = ("Dropout", "Flatten", "Identity", "MaxPool", "Pad", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze")


@dataclass(frozen=True, eq=False)
class RoundedTensor:
    """A tensor that is rounded to uint8: `round(x / scale) + zero`.

    Attributes:
        everywhere: whether all nodes read it rounded, or only layers and what moves elements.
    """

    name: str
    scale: np.float32
    zero: int
    everywhere: bool


@dataclass(frozen=True, eq=False)
class RoundedLayer:
    """A layer with other trained values.

    Attributes:
        output: the name of its result, with the bias.
        weights: float32, `[O, I, *k]`, `[I, O, *k]` of a transposed convolution, or `[I, O]`.
        bias: float32, one for each output channel; None for none.
        codes, scales: int8, and one scale or one for each output channel; None for a layer in floats.
        step: the scale of what the layer reads.
        axis: the output channels' axis of the weights.
        transposed: whether it is a transposed convolution.
    """

    output: str
    weights: Array
    bias: Array | None
    codes: Array | None = None
    scales: Array | None = None
    step: np.float32 | None = None
    axis: int = 0
    transposed: bool = False


def rounded_model(path: Path, tensors: Sequence[RoundedTensor], layers: Sequence[RoundedLayer]) -> onnx.ModelProto:
    """The model in a file, rounded.

    Raises:
        CompileError: a layer is made by nodes that are not known to be one; it names that.
    """
    model = _at_least(_OPSET, read_proto(path), path)
    editor = _Editor(model.graph)
    for layer in layers:
        editor.replace(layer)
    editor.round(tensors)
    editor.finish()
    return model


def layers_without_a_node(path: Path, outputs: Mapping[str, bool]) -> list[str]:
    """Returns the layer results that no node of the file computes, so that they cannot be quantized there.

    Args:
        outputs: whether the layer is a transposed convolution, by name.
    """
    editor = _Editor(read_proto(path).graph)
    return [name for name, transposed in outputs.items() if editor.found(name, transposed) is None]


def _at_least(opset: int, model: onnx.ModelProto, path: Path) -> onnx.ModelProto:
    """The model with operators of a version, or of a later one; its weights are in it."""
    onnx.load_external_data_for_model(model, str(path.parent))
    own = max((each.version for each in model.opset_import if each.domain in ("", "ai.onnx")), default=1)
    if own >= opset:
        return model
    from onnx import version_converter

    try:
        return version_converter.convert_version(model, opset)
    except Exception as error:  # it raises what it likes
        raise CompileError(
            f"{path} has operators of version {own}, in which tensors have one scale only, and is not converted to "
            f"version {opset}: {error}",
            hint="export it again with a newer version; or write NNEF: -o model.nnef",
        ) from error


class _Editor:
    def __init__(self, graph: onnx.GraphProto) -> None:
        self._graph = graph
        self._nodes: list[onnx.NodeProto] = list(graph.node)
        self._constants = {tensor.name for tensor in graph.initializer}
        for node in self._nodes:  # in order
            if all(name in self._constants for name in node.input if name) and not _has_graphs(node):
                self._constants |= set(node.output)
        self._made = {name: node for node in self._nodes for name in node.output}
        self._taken = set(self._made) | self._constants | {info.name for info in graph.input}
        self._ahead: list[onnx.NodeProto] = []
        self._layers: set[int] = set()

    def replace(self, layer: RoundedLayer) -> None:
        """Give a layer its trained values; what they have in them is left out."""
        node, last = self._found(layer)
        if last is not node:
            self._nodes = [each for each in self._nodes if each is not last]
        rounded = layer.codes is not None
        self._layers |= {id(node)} if rounded else set()
        weights = self._weights(layer)
        transposed = node.op_type == "Gemm"
        for name in ("transB", "alpha", "beta") if transposed else ():
            _drop(node, name)
        node.input[1] = weights
        if node.op_type == "MatMul":
            self._product(node, layer)
            return
        del node.input[2:]
        if layer.bias is not None:
            node.input.append(self._bias(layer))
        node.output[0] = layer.output

    def _product(self, node: onnx.NodeProto, layer: RoundedLayer) -> None:
        """A `MatMul` has no bias: it is added behind it."""
        if layer.bias is None:
            node.output[0] = layer.output
            return
        node.output[0] = self._new(f"{layer.output}_product")
        added = helper.make_node("Add", [node.output[0], self._constant(layer.bias, "bias", layer)], [layer.output])
        self._nodes.insert(_location(self._nodes, node) + 1, added)

    def found(self, output: str, transposed: bool) -> tuple[onnx.NodeProto, onnx.NodeProto] | None:
        """The node of a layer, and the one that makes its result: that, or what scales and shifts it."""
        last = node = self._made.get(output)
        while node is not None and node.op_type in _FOLDED:
            operands = [name for name in node.input if name not in self._constants]
            node = self._made.get(operands[0]) if len(operands) == 1 else None
        usual = node is not None and node.op_type in _LAYERS and node.domain in ("", "ai.onnx")
        if node is None or last is None or not usual or any(a.name == "transA" and a.i for a in node.attribute):
            return None
        # a transposed one may be computed as a convolution
        return (node, last) if (node.op_type == "ConvTranspose") == transposed else None

    def _found(self, layer: RoundedLayer) -> tuple[onnx.NodeProto, onnx.NodeProto]:
        """The same of a layer that must be there."""
        made = self.found(layer.output, layer.transposed)
        if made is None:
            raise CompileError(
                f"the layer {layer.output!r} is not a Conv, ConvTranspose, Gemm or MatMul in the file: "
                "it cannot be rounded there",
                hint=f"leave it in floats, --exclude {layer.output}, or write NNEF, -o model.nnef",
            )
        return made

    def _weights(self, layer: RoundedLayer) -> str:
        if layer.codes is None or layer.scales is None:
            return self._constant(layer.weights, "weights", layer)
        codes = self._constant(layer.codes, "codes", layer)
        return self._dequantized(codes, layer.scales, np.zeros(layer.scales.shape, np.int8), layer.axis, layer)

    def _bias(self, layer: RoundedLayer) -> str:
        """Return the name of the layer's bias, which is rounded to steps if the layer is quantized."""
        assert layer.bias is not None
        if layer.scales is None or layer.step is None:
            return self._constant(layer.bias, "bias", layer)
        scales = (layer.scales * layer.step).astype(np.float32)
        steps = np.rint(layer.bias.astype(np.float64) / (layer.scales.astype(np.float64) * layer.step))
        codes = self._constant(steps.astype(np.int32), "bias_codes", layer)
        return self._dequantized(codes, scales, np.zeros(scales.shape, np.int32), 0, layer)

    def _dequantized(self, codes: str, scale: Array, zero: Array, axis: int, layer: RoundedLayer) -> str:
        made = self._new(codes.replace("codes", "values"))
        operands = [codes, self._constant(scale, "scale", layer), self._constant(zero, "zero", layer)]
        options = {"axis": axis} if scale.ndim else {}
        self._ahead.append(helper.make_node("DequantizeLinear", operands, [made], **options))
        return made

    def _constant(self, array: Array, kind: str, owner: RoundedLayer | RoundedTensor) -> str:
        name = self._new(f"{owner.output if isinstance(owner, RoundedLayer) else owner.name}_{kind}")
        self._graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(array).reshape(array.shape), name))
        return name

    def round(self, tensors: Sequence[RoundedTensor]) -> None:
        """Let nodes read tensors rounded; the model's outputs stay as they are."""
        inputs = {info.name for info in self._graph.input}
        for tensor in tensors:
            if tensor.name not in self._made and tensor.name not in inputs:
                raise CompileError(
                    f"a layer reads {tensor.name!r}, which the file has no such tensor for: it cannot be rounded there",
                    hint="leave the layer in floats, --exclude NAME, or write NNEF, -o model.nnef",
                )
        made = {tensor.name: self._rounded(tensor) for tensor in tensors}
        everywhere = {tensor.name for tensor in tensors if tensor.everywhere}
        for node in self._nodes:
            reads = id(node) in self._layers or node.op_type in _MOVES
            for index, name in enumerate(node.input):
                if name in made and (reads or name in everywhere):
                    node.input[index] = made[name][1]
        for name, (nodes, _) in made.items():
            own = self._made.get(name)
            index = next((i + 1 for i, node in enumerate(self._nodes) if name in node.output), 0) if own else 0
            self._nodes[index:index] = nodes

    def _rounded(self, tensor: RoundedTensor) -> tuple[list[onnx.NodeProto], str]:
        scale = self._constant(np.array(tensor.scale, np.float32), "scale", tensor)
        zero = self._constant(np.array(tensor.zero, np.uint8), "zero", tensor)
        codes, values = self._new(f"{tensor.name}_quantized"), self._new(f"{tensor.name}_dequantized")
        return [
            helper.make_node("QuantizeLinear", [tensor.name, scale, zero], [codes]),
            helper.make_node("DequantizeLinear", [codes, scale, zero], [values]),
        ], values

    def _new(self, name: str) -> str:
        while name in self._taken:
            name += "_"
        self._taken.add(name)
        return name

    def finish(self) -> None:
        """Put the nodes and the constants that are needed into the graph."""
        needed = {info.name for info in self._graph.output}
        kept: list[onnx.NodeProto] = []
        for node in reversed([*self._ahead, *self._nodes]):
            if any(name in needed for name in node.output):
                kept.append(node)
                needed.update(_read(node))
        constants = [tensor for tensor in self._graph.initializer if tensor.name in needed]
        inputs = [i for i in self._graph.input if i.name not in self._constants or i.name in needed]
        for field, elements in (("node", kept[::-1]), ("initializer", constants), ("input", inputs)):
            self._graph.ClearField(field)
            getattr(self._graph, field).extend(elements)
        self._graph.ClearField("value_info")


def _has_graphs(node: onnx.NodeProto) -> bool:
    return any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """Returns the tensors that a node reads, also in its subgraphs."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _read(inner)
            yield from (info.name for info in graph.output)


def _drop(node: onnx.NodeProto, name: str) -> None:
    kept = [attribute for attribute in node.attribute if attribute.name != name]
    del node.attribute[:]
    node.attribute.extend(kept)


def _location(nodes: Sequence[onnx.NodeProto], node: onnx.NodeProto) -> int:
    return next(index for index, each in enumerate(nodes) if each is node)
