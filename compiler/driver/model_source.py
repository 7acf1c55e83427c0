"""Maps the variables of a network to the tensors and nodes of its model.

conv1@1 = conv2d(x, W)       not a tensor of the model, but an intermediate result
conv1 = add(conv1@1, b)      the tensor conv1, of "'conv' in graph.nnef:12:5"
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import relax

from nnefc.driver.locks import in_turn
from nnefc.frontends.dynamic_shapes import dynamic_shape_context
from nnefc.ir.dataflow import bindings_of
from nnefc.ir.network import Network
from nnefc.operators.recording import Application, Recording, recording
from nnefc.passes.backend import Backend
from nnefc.passes.graph.debug_locations import debug_locations
from nnefc.passes.manager import PassManager
from nnefc.passes.pipeline import optimized
from nnefc.quantizer.observation import returning

__all__ = ["ModelSource", "ModelTensor", "application_of", "operator_of"]


@dataclass(frozen=True)
class ModelTensor:
    """A tensor that a model computes.

    Attributes:
        name: in the model.
        variable: the name of its variable in the network.
        location: where the model computes it, as in messages; empty if unknown.
    """

    name: str
    variable: str
    location: str


@dataclass(frozen=True)
class ModelSource:
    """A network as its front end returns it, with the tensors of its model in the order in which they are computed."""

    network: Network
    tensors: tuple[ModelTensor, ...]
    recording: Recording

    @classmethod
    def read(cls, load: Callable[[], Network]) -> ModelSource:
        """Call a front end's `load`, and return the network with the tensors of the model."""
        with recording() as found:
            network = load()
        return cls(network, tuple(_tensors(network, found)), found)

    def of(self, network: Network) -> ModelSource:
        """Return the same model with another network, whose variables have the same names."""
        known = set(_variables(network))
        kept = tuple(tensor for tensor in self.tensors if tensor.variable in known)
        return ModelSource(network, kept, self.recording)

    def operators(self) -> dict[str, str]:
        """Return the operators that compute tensors and intermediate results, by variable."""
        return {name: operator_of(location) for name, location in self.locations().items()}

    def locations(self) -> dict[str, str]:
        """Return the locations in the model, as in messages, of tensors and intermediate results, by variable."""
        found: dict[str, str] = {}
        waiting: list[str] = []
        for binding in bindings_of(self.network.module["main"]):
            waiting.append(str(binding.var.name))
            application = application_of(self.recording, binding)
            if application is not None:
                found |= dict.fromkeys(waiting, application.location)
                waiting = []
        return found

    def returning(self, tensors: Sequence[ModelTensor]) -> Network:
        """Return the network with the given tensors as outputs, instead of its own."""
        variables = _variables(self.network)
        return returning(self.network, lambda _: [variables[tensor.variable] for tensor in tensors])

    def variable(self, tensor: ModelTensor) -> relax.Var:
        """Returns the variable that holds a tensor."""
        return _variables(self.network)[tensor.variable]

    def between_kernels(self, backend: Backend, strict: bool, memory_budget: float) -> tuple[ModelTensor, ...]:
        """Returns the tensors that kernels write to memory; the others exist only inside of fused kernels."""
        network = self.network
        opened = dynamic_shape_context(
            network.dynamic_dimensions, network.input_shapes, network.all_data_dependent_sizes
        )
        with in_turn(), opened, backend.target.host.to_tvm():
            last = optimized(network, PassManager(backend, backend.settings(strict, memory_budget)))
        left = {debug_locations(name)[-1] for name in _all_variables(last) if debug_locations(name)}
        return tuple(tensor for tensor in self.tensors if tensor.variable in left)


def _all_variables(network: Network) -> list[str]:
    return [str(binding.var.name) for binding in bindings_of(network.module["main"])]


def operator_of(location: str) -> str:
    """Return the operator in a location: `Conv` of "node 'a' (Conv)", `conv` of "'conv' in g.nnef:7:3"."""
    for pattern in (r"\(([^()]+)\)$", r"^the node (\S+)", r"^'([^']+)'"):
        found = re.search(pattern, location)
        if found is not None:
            return found[1]
    return location


def application_of(recording: Recording, binding: relax.Binding) -> Application | None:
    """Return the outermost operator for which a binding was made; None if there is none."""
    found = recording.applications.get(binding.var) or recording.applications.get(binding.value)
    return found[0][0] if found else None


def _variables(network: Network) -> dict[str, relax.Var]:
    """Return the variables that a network may return, those of single tensors, by name."""
    main = network.module["main"]
    kept = list(main.body.body.fields)[len(network.outputs) :] if isinstance(main.body.body, relax.Tuple) else []
    taken = {field for field in kept if isinstance(field, relax.Var)}  # a library returns each once
    bound = [binding.var for binding in bindings_of(main)]
    return {str(v.name): v for v in bound if isinstance(v.ty, relax.TensorType) and v not in taken}


def _tensors(network: Network, found: Recording) -> list[ModelTensor]:
    names = {str(var.name): name for var, name in found.names.items() if isinstance(var, relax.Var)}
    bindings = bindings_of(network.module["main"])
    made = {str(binding.var.name): application_of(found, binding) for binding in bindings}
    return [
        ModelTensor(names[variable], variable, "" if (application := made[variable]) is None else application.location)
        for variable in _variables(network)
        if variable in names
    ]
