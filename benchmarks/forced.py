"""Networks that quantize while they run, compared part by part.

    x ── quantize ── product ── … ── y         x is computed, and rounded: a last bit decides which way
    x, x' ── quantize ── product ── … ── y     x is an output, and an input x' with onnxruntime's numbers goes on

A number in the middle of two steps is rounded up by one engine and down by another. All that follows differs by a step,
and the scales of later quantizations with it, so that outputs of whole networks tell little. Here every quantization
reads what onnxruntime computed: outputs are what lies between two quantizations, and agree as in networks without any.
Recurrent layers quantize their states in each step: these are compared step by step, from onnxruntime's states.

Two more things tell a last bit from the next, and are taken apart likewise. Sines of many turns are given onnxruntime's
arguments: float32 knows one of 30,000 to 0.002. In place of angles the coordinates are compared that these follow from:
the angle of a number that is 0 but for rounding may be any.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import helper
from peers.onnxruntime_session import exact_options

from nnefc.comparison.onnx_outputs import with_outputs
from nnefc.ir.error_metrics import difference

__all__ = ["coordinates", "forced_difference"]

_PREFIX = "forced/"
_LAYER = "DynamicQuantizeLSTM"
_MAX_OUTPUTS = 40
_MANY_TURNS = 1000.0
"""Radians from which on the argument of a sine is taken for one of many turns."""
_OF_ANGLES = ("Add", "Sub", "Where", "Concat", "Identity", "Transpose", "Reshape", "Slice", "Squeeze", "Unsqueeze")
"""Operators with angles among their results if there are some among their operands."""


def forced_difference(model: onnx.ModelProto, values: Mapping[str, np.ndarray], path: Path) -> float:
    """The largest difference of nnefc's tensors from onnxruntime's, over a tensor's largest value; see above.

    Of all tensors that the network quantizes, of the states of its recurrent layers, and its outputs. The network that
    is compared is written to `path`.
    """
    import nnefc

    names, layers = _quantized(model), [node for node in model.graph.node if node.op_type == _LAYER]
    names += [name for node in layers for name in node.output if name and name not in names]
    options = exact_options()  # of one thread: recurrent layers quantize what each thread computes by itself
    unset = [name for name in _arguments(model) if name not in names]
    session = onnxruntime.InferenceSession(with_outputs(model, [*names, *unset]).SerializeToString(), options)
    known = dict(zip([*names, *unset], session.run([*names, *unset], dict(values)), strict=True))
    names += [name for name in unset if np.abs(known[name]).max(initial=0) > _MANY_TURNS]
    given = dict(values) | {f"{_PREFIX}{name}": known[name] for name in names}
    made = _forced(model, names, given)
    given = {info.name: given[info.name] for info in made.graph.input}
    onnx.save(made, path)
    wanted = onnxruntime.InferenceSession(str(path), options).run(None, given)
    with nnefc.compile(path).load(threads=1) as library:
        found = library.run(given)
    differences = [_difference(one, other) for one, other in zip(found.values(), wanted, strict=True)]
    differences += [_difference_of_steps(model, node, (dict(values) | known)[node.input[0]], path) for node in layers]
    return max(differences)


def _difference_of_steps(model: onnx.ModelProto, layer: onnx.NodeProto, x: np.ndarray, path: Path) -> float:
    """The largest difference of a recurrent layer's states after one step, from the states that onnxruntime has."""
    import nnefc

    constants = [tensor for tensor in model.graph.initializer if tensor.name in layer.input]
    recurrence = next(tensor for tensor in constants if tensor.name == layer.input[2])
    directions, hidden = recurrence.dims[0], recurrence.dims[1]
    node = onnx.NodeProto()
    node.CopyFrom(layer)
    node.input[0], node.input[4], node.input[5], node.input[6] = "x", "", "h", "c"
    del node.output[:]
    node.output.extend(["", "next_h", "next_c"])
    shapes = {"x": (1, *x.shape[1:]), **dict.fromkeys("hc", (directions, x.shape[1], hidden))}
    inputs = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name, shape in shapes.items()]
    outputs = [
        helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shapes["h"]) for name in ("next_h", "next_c")
    ]
    graph = helper.make_graph([node], "step", inputs, outputs, constants)
    imports = {"opset_imports": model.opset_import, "ir_version": model.ir_version}
    onnx.save(helper.make_model(graph, **imports), path)
    options = exact_options()
    session = onnxruntime.InferenceSession(str(path), options)
    state = [np.zeros(shapes["h"], np.float32)] * 2
    worst = 0.0
    with nnefc.compile(path).load(threads=1) as library:
        for step in range(len(x)):
            given = {"x": x[step : step + 1], "h": state[0], "c": state[1]}
            state = session.run(None, given)
            worst = max(worst, *map(_difference, library.run(given).values(), state))
    return worst


def coordinates(model: onnx.ModelProto) -> dict[str, tuple[str, ...]]:
    """What angles follow from by an arc tangent, for each tensor that has some among its elements."""
    made = {name: node for node in model.graph.node for name in node.output}
    found: dict[str, tuple[str, ...]] = {}
    for node in model.graph.node:
        own: tuple[str, ...] = ()
        if node.op_type == "Atan":
            ratio = made.get(node.input[0])
            own = tuple(ratio.input) if ratio is not None and ratio.op_type == "Div" else tuple(node.input)
        elif node.op_type in _OF_ANGLES:
            own = tuple(dict.fromkeys(each for name in node.input for each in found.get(name, ())))
        found |= dict.fromkeys(node.output, own) if own else {}
    return found


def _arguments(model: onnx.ModelProto) -> list[str]:
    """The computed tensors that sines and cosines are taken of."""
    made = {name for node in model.graph.node for name in node.output}
    read = (node.input[0] for node in model.graph.node if node.op_type in ("Sin", "Cos"))
    return list(dict.fromkeys(name for name in read if name in made))


def _difference(found: np.ndarray, wanted: np.ndarray) -> float:
    if found.dtype.kind != "f":
        return float((found != wanted).any())
    return difference(found, wanted).relative


def _quantized(model: onnx.ModelProto) -> list[str]:
    """The computed tensors that nodes quantize, in their order."""
    made = {name for node in model.graph.node for name in node.output}
    read = (node.input[0] for node in model.graph.node if node.op_type.startswith("DynamicQuantize"))
    return list(dict.fromkeys(name for name in read if name in made))  # those of recurrent layers among them


def _forced(model: onnx.ModelProto, names: list[str], given: Mapping[str, np.ndarray]) -> onnx.ModelProto:
    """The model with an input in place of each tensor that is quantized; all sizes are those of the arrays.

    Of many such tensors it has the outputs that lie apart evenly, and only what these need.
    """
    layers = [node for node in model.graph.node if node.op_type == _LAYER]
    states = {name for node in layers for name in node.output if name}
    compared = [name for name in names if name not in states]
    some, instead = compared[:: -(-len(compared) // _MAX_OUTPUTS) or 1], coordinates(model)
    made = with_outputs(model, list(dict.fromkeys(each for name in some for each in instead.get(name, (name,)))))
    for node in made.graph.node:
        for position, name in enumerate(node.input):
            if name in states or (position == 0 and name in names and _is_cut(node)):
                node.input[position] = f"{_PREFIX}{name}"
    needed, kept = {info.name for info in made.graph.output}, []
    for node in reversed(made.graph.node):
        if needed.intersection(node.output):
            kept.append(node)
            needed |= set(_read(node))
    del made.graph.node[:]
    made.graph.node.extend(kept[::-1])
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
        if name in needed
    ]
    del made.graph.input[:]
    made.graph.input.extend(infos)
    return made


def _is_cut(node: onnx.NodeProto) -> bool:
    """Whether a node is given onnxruntime's numbers."""
    return node.op_type.startswith("DynamicQuantize") or node.op_type in ("Sin", "Cos")


def _read(node: onnx.NodeProto) -> Iterator[str]:
    """The names that a node reads, in the bodies of branches and loops too."""
    yield from node.input
    for attribute in node.attribute:
        for inner in (attribute.g, *attribute.graphs):
            for each in inner.node:
                yield from _read(each)
            yield from (info.name for info in inner.output)
