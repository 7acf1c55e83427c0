"""Adds intermediate tensors to the outputs of an ONNX model."""

from __future__ import annotations

from collections.abc import Iterable

import onnx
from onnx import helper

__all__ = ["computed_names", "with_outputs"]


def computed_names(model: onnx.ModelProto) -> list[str]:
    """Return the results of the nodes in a model's main graph, in their order."""
    return list(dict.fromkeys(name for node in model.graph.node for name in node.output if name))


def with_outputs(model: onnx.ModelProto, names: Iterable[str]) -> onnx.ModelProto:
    """Return a copy of a model with further outputs, whose types are left to be inferred."""
    made = onnx.ModelProto()
    made.CopyFrom(model)
    own = {info.name for info in made.graph.output}
    made.graph.output.extend(helper.make_empty_tensor_value_info(name) for name in names if name not in own)
    return made
