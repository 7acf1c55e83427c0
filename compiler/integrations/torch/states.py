"""Makes inputs of an ONNX model states: values that a session keeps from one run to the next."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx
import torch

__all__ = ["TRAINING_STEP", "bind_states"]

TRAINING_STEP = "training:0"
"""The entry of a model that :func:`bind_states` has written."""

_SMALL_BYTES = 1 << 20
"""Initial values of fewer bytes are in the model's file."""


def bind_states(path: Path, names: Sequence[str], values: Sequence[torch.Tensor]) -> None:
    """Makes the first inputs of a model states, whose next values are the first outputs, in this order.

    ONNX has states in trainings alone: these inputs become initializers that the update binding of a training without
    an algorithm assigns to.

    Args:
        path: the model, which is written again; its external data stays as it is.
        names: of the states.
        values: their initial values.
    """
    model = onnx.load_model(str(path), load_external_data=False)
    graph = model.graph
    training = model.training_info.add()
    training.algorithm.name = "step"
    known = {name for node in graph.node for name in (*node.input, *node.output)}
    renamed = {}
    for index, (name, value) in enumerate(zip(names, values, strict=True)):
        info = graph.input[index]
        own = name if name not in known else f"{name}_state"
        renamed[info.name] = own
        kind = info.type.tensor_type.elem_type
        content = value.detach().contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()
        graph.initializer.append(onnx.helper.make_tensor(own, kind, list(value.shape), content, raw=True))
        training.update_binding.add(key=own, value=graph.output[index].name)
    del graph.input[: len(names)]
    _rename(graph, renamed)
    onnx.save_model(
        model,
        str(path),
        save_as_external_data=True,
        location=f"{path.name}.states",
        size_threshold=_SMALL_BYTES,
    )


def _rename(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    """Renames what the nodes of a graph read, also those of its inner graphs; outputs of these stay."""
    graphs = [graph]
    while graphs:
        for node in graphs.pop().node:
            for index, name in enumerate(node.input):
                node.input[index] = names.get(name, name)
            for attribute in node.attribute:
                graphs += [attribute.g] * attribute.HasField("g") + list(attribute.graphs)
