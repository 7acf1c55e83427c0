"""Lowers training steps: `TrainingInfoProto`.

The step is the model's graph followed by the algorithm's, as one graph. The initializers that a binding assigns to are
the states of the network: a run takes their values and leaves new ones. `initialization` is computed at compile time;
what it assigns is what a state begins with, and is again after a reset. The others begin with their initializers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import numpy as np

from nnefc.frontends.onnx.checks.scopes import check_combined, check_graph
from nnefc.frontends.onnx.files.model import OnnxGraph, OnnxModel, Training
from nnefc.frontends.onnx.values import Array, SparseTensor
from nnefc.support.diagnostics import CompileError

__all__ = ["check_trainings", "training_step"]


def check_trainings(model: OnnxModel) -> None:
    """Check all that a model says about its training.

    Raises:
        CompileError: a binding to or from a name that is not there, graphs that do not fit each other.
    """
    for index, training in enumerate(model.trainings):
        _check(model, training, f"training:{index}")


def _check(model: OnnxModel, training: Training, what: str) -> None:
    first = training.initialization
    if first is None:
        if training.initialization_binding:
            raise CompileError(f"{what} has an initialization binding, but no initialization")
    else:
        if first.inputs:
            raise CompileError(f"the initialization of {what} has inputs: it may have none")
        check_graph(first, model, f"the initialization of {what}")
    check_combined(model.graph, training.algorithm, what)
    combined = _combined(model.graph, training.algorithm)
    check_graph(combined, model, f"the algorithm of {what}")
    outputs = first.output_names if first else ()
    _check_binding(combined, training.initialization_binding, outputs, f"the initialization binding of {what}")
    _check_binding(combined, training.update_binding, combined.output_names, f"the update binding of {what}")


def _check_binding(combined: OnnxGraph, binding: Mapping[str, str], outputs: tuple[str, ...], what: str) -> None:
    for name, output in binding.items():
        if name not in combined.initializers:
            raise CompileError(f"{what} assigns to '{name}', which is not an initializer")
        if isinstance(combined.initializers[name], SparseTensor):
            raise CompileError(f"{what} assigns to '{name}', which is sparse")
        if output not in outputs:
            raise CompileError(f"{what} assigns '{output}' to '{name}', but there is no such output")


def _combined(graph: OnnxGraph, algorithm: OnnxGraph) -> OnnxGraph:
    return OnnxGraph(
        name=graph.name,
        inputs=graph.inputs + algorithm.inputs,
        outputs=graph.outputs + algorithm.outputs,
        initializers={**graph.initializers, **algorithm.initializers},
        nodes=graph.nodes + algorithm.nodes,
        infos={**graph.infos, **algorithm.infos},
    )


def training_step(
    model: OnnxModel, entry: str, evaluate: Callable[[OnnxGraph], Mapping[str, Array]]
) -> tuple[OnnxGraph, dict[str, Array], Mapping[str, str]]:
    """Return a step of training as a graph.

    Args:
        model: checked by :func:`check_trainings`.
        entry: `training:0` for the first training.
        evaluate: computes the outputs of a graph without inputs.

    Returns:
        The graph, the first values of its states by name, and the outputs that are their new values.

    Raises:
        CompileError: there is no such training; an initialization that does not fit its state.
    """
    match = re.fullmatch(r"training:([0-9]{1,4})", entry)
    if match is None:
        raise CompileError(f"there is no entry '{entry}'", hint="give 'training:0' for the model's first training")
    index = int(match[1])
    if index >= len(model.trainings):
        count = len(model.trainings)
        raise CompileError(
            f"there is no entry '{entry}': the model has {count or 'no'} training{'' if count == 1 else 's'}",
            hint="without an entry, the model's graph is compiled",
        )
    training = model.trainings[index]
    combined = _combined(model.graph, training.algorithm)
    states: dict[str, Array] = {}
    for name in (*training.update_binding, *training.initialization_binding):
        array = combined.initializers[name]
        assert isinstance(array, np.ndarray)
        states[name] = array
    if training.initialization is not None and training.initialization_binding:
        made = evaluate(training.initialization)
        for name, output in training.initialization_binding.items():
            states[name] = _fitting(name, states[name], made[output], entry)
    return combined, states, training.update_binding


def _fitting(name: str, old: Array, new: Array, entry: str) -> Array:
    if (old.dtype, old.shape) != (new.dtype, new.shape):
        raise CompileError(
            f"the initialization of {entry} assigns {new.dtype}{list(new.shape)} to '{name}', which is "
            f"{old.dtype}{list(old.shape)}"
        )
    return new
