"""Maps the variables of a network to the model's tensors and to the nodes they come from.

conv1@1 = conv2d(x, W)       no tensor of the model: made on the way to one
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
        name: as the model calls it.
        variable: the name of the variable that has it.
        location: where the model computes it, as messages show it; empty if unknown.
    """

    name: str
    variable: str
    location: str


@dataclass(frozen=True)
class ModelSource:
    """A network as a front end returns it, and the tensors of its model, in the order in which it computes them."""

    network: Network
    tensors: tuple[ModelTensor, ...]
    recording: Recording

    @classmethod
    def read(cls, load: Callable[[], Network]) -> ModelSource:
        """What `load` reads."""
        with recording() as found:
            network = load()
        return cls(network, tuple(_tensors(network, found)), found)

    def of(self, network: Network) -> ModelSource:
        """The same model as another network, whose variables have the same names."""
        known = set(_variables(network))
        kept = tuple(tensor for tensor in self.tensors if tensor.variable in known)
        return ModelSource(network, kept, self.recording)

    def operators(self) -> dict[str, str]:
        """Returns the operators that compute tensors and intermediate results, by the names of their variables."""
        return {name: operator_of(location) for name, location in self.locations().items()}

    def locations(self) -> dict[str, str]:
        """Returns the locations in the model, as messages show them, of tensors and intermediate results, by variable
        name.
        """
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
        """Returns the network with these tensors as its outputs instead of its own."""
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
    """The operator in what messages call a location: `Conv` of "node 'a' (Conv)", `conv` of "'conv' in g.nnef:7:3"."""
    for pattern in (r"\(([^()]+)\)$", r"^the node (\S+)", r"^'([^']+)'"):
        found = re.search(pattern, location)
        if found is not None:
            return found[1]
    return location


def application_of(recording: Recording, binding: relax.Binding) -> Application | None:
    """The outermost operator that a binding was made for; None if it was not made for any."""
    found = recording.applications.get(binding.var) or recording.applications.get(binding.value)
    return found[0][0] if found else None


def _variables(network: Network) -> dict[str, relax.Var]:
    """The variables of single tensors that a network may return, by their names."""
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
