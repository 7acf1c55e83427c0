"""Engines that compute a network's tensors: a library of nnefc, onnxruntime, or evaluation operator by operator."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from nnefc.comparison.onnx_outputs import computed_names, with_outputs
from nnefc.comparison.reference import UnfusedEvaluation
from nnefc.driver.artifact import Artifact
from nnefc.driver.model_source import ModelSource, ModelTensor
from nnefc.ir.network import Network
from nnefc.loader import LoadError, Model, RunError
from nnefc.loader.arrays import float32_of_bfloat16
from nnefc.support.diagnostics import CompileError

__all__ = ["Built", "Engine", "Onnxruntime", "Unfused", "ran"]

Array = np.ndarray[Any, Any]
Arrays = Mapping[str, Array]


class Engine(Protocol):
    """Computes the tensors of a network for one set of inputs."""

    def knows(self, tensor: ModelTensor) -> bool:
        """Return whether the engine can compute a tensor."""

    def values(self, tensors: Sequence[ModelTensor]) -> list[Array]:
        """Return the values of tensors; calls ask for tensors in the order in which the network computes them."""

    def outputs(self) -> dict[str, Array]:
        """Return the network's outputs by name; called after all tensors."""


def ran(model: Model, inputs: Arrays, dtypes: Sequence[str]) -> list[Array]:
    """Run a library and return its outputs in their order; types that NumPy lacks are converted to float32.

    Raises:
        CompileError: the inputs do not fit, or the network's code fails.
    """
    try:
        found = list(model.run(inputs).values())
    except RunError as error:
        raise CompileError(f"the library does not run on these inputs: {error}") from error
    return [
        float32_of_bfloat16(array) if dtype == "bfloat16" else array for array, dtype in zip(found, dtypes, strict=True)
    ]


class Built:
    """A network that is compiled to a library by this compiler."""

    def __init__(self, source: ModelSource, inputs: Arrays, compiled: Callable[[Network], Artifact]) -> None:
        self._source = source
        self._inputs = inputs
        self._compiled = compiled
        self._known = {tensor.variable for tensor in source.tensors}

    def knows(self, tensor: ModelTensor) -> bool:
        """Return whether the network has a tensor; a quantized network lacks some."""
        return tensor.variable in self._known

    def values(self, tensors: Sequence[ModelTensor]) -> list[Array]:
        """Compile a library that returns these tensors only, and run it."""
        return list(self._results(self._source.returning(tensors)).values())

    def outputs(self) -> dict[str, Array]:
        """Run the library of the whole network."""
        return self._results(self._source.network)

    def _results(self, network: Network) -> dict[str, Array]:
        artifact = self._compiled(network)
        try:
            with artifact.load() as model:
                found = ran(model, self._inputs, [tensor.dtype for tensor in artifact.outputs])
        except LoadError as error:
            raise CompileError(
                f"networks are compared here, and this machine does not run the code: {error}"
            ) from error
        return dict(zip(network.outputs, found, strict=True))


class Unfused:
    """A network that is evaluated operator by operator, by TVM and NumPy."""

    def __init__(self, source: ModelSource, inputs: Arrays) -> None:
        network = source.network
        states = [state.initial for state in network.states]
        self._names = network.outputs
        variables = {tensor.name: tensor.variable for tensor in source.tensors}
        self._variables = variables
        given = [*(inputs[name] for name in network.inputs), *states]
        self._run = UnfusedEvaluation(network.module, given, variables.values())

    def knows(self, tensor: ModelTensor) -> bool:
        """Return whether the network has a tensor, at the sizes of the inputs."""
        return tensor.name in self._variables

    def values(self, tensors: Sequence[ModelTensor]) -> list[Array]:
        """Continue the evaluation up to these tensors."""
        return list(self._run.of([self._variables[tensor.name] for tensor in tensors]).values())

    def outputs(self) -> dict[str, Array]:
        """Complete the evaluation."""
        return dict(zip(self._names, self._run.results(len(self._names)), strict=True))


class Onnxruntime:
    """A model that onnxruntime computes node by node, without optimizations.

    Raises:
        CompileError: onnxruntime is not installed, or does not support the model.
    """

    def __init__(self, path: Path, inputs: Arrays) -> None:
        try:
            import onnxruntime
        except ModuleNotFoundError as error:
            raise CompileError(
                "the reference is onnxruntime, which is not installed",
                hint="install it, pip install onnxruntime, or take another reference: --reference plain",
            ) from error
        import onnx

        model = onnx.load(path, load_external_data=False)
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
        options.log_severity_level = 4
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(path.parent))
        whole = with_outputs(model, computed_names(model)).SerializeToString()
        self._session = _asked(lambda: onnxruntime.InferenceSession(whole, options, ["CPUExecutionProvider"]))
        self._types = {output.name: output.type for output in self._session.get_outputs()}
        self._given = {
            each.name: _given(each.name, each.type, inputs)
            for each in self._session.get_inputs()
            if each.name in inputs or f"{each.name}.0" in inputs
        }
        self._names = [info.name for info in model.graph.output]

    def knows(self, tensor: ModelTensor) -> bool:
        """Return whether onnxruntime computes a tensor, of a type that NumPy has."""
        return self._types.get(tensor.name, "").removeprefix("tensor") in _NUMBERS

    def values(self, tensors: Sequence[ModelTensor]) -> list[Array]:
        """Run a model that returns these tensors only."""
        return self._run([tensor.name for tensor in tensors])

    def outputs(self) -> dict[str, Array]:
        """Run the model. Elements of sequences get names of their own, as in a library; maps are left out."""
        found: dict[str, Array] = {}
        for name, value in zip(self._names, self._run(self._names), strict=True):
            if isinstance(value, list):
                found |= {f"{name}.{i}": element for i, element in enumerate(value) if isinstance(element, np.ndarray)}
            elif isinstance(value, np.ndarray):
                found[name] = value
        return found

    def _run(self, names: Sequence[str]) -> list[Any]:
        return list(_asked(lambda: self._session.run(list(names), self._given))) if names else []


_NUMBERS = {
    f"({name})"
    for name in (
        *("bool", "double", "float", "float16", "int8", "int16", "int32", "int64"),
        *("uint8", "uint16", "uint32", "uint64"),
    )
}


def _given(name: str, type_: str, inputs: Arrays) -> Any:
    """Return an input in the form of onnxruntime: for a sequence, the list of its elements."""
    if name in inputs and not type_.startswith("seq"):
        return inputs[name]
    return [inputs[f"{name}.{i}"] for i in range(len(inputs)) if f"{name}.{i}" in inputs]


def _asked(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:  # its own classes are those of no module, and many
        reason = next(iter(str(error).splitlines()), type(error).__name__)
        raise CompileError(
            f"onnxruntime does not run the model: {reason}", hint="take another reference: --reference plain"
        ) from error
