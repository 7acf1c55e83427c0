"""Defines an ONNX model as immutable, checked values, which `reading` creates from the protobuf messages."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from nnefc.frontends.onnx.checks.types import ValueInfo
from nnefc.frontends.onnx.values import Array, SparseTensor

__all__ = ["AttributeRef", "FunctionKey", "NodeDef", "OnnxFunction", "OnnxGraph", "OnnxModel", "Opsets", "Training"]

Opsets: TypeAlias = "Mapping[str, int]"
"""Imported versions by domain; ai.onnx is the empty domain."""

FunctionKey: TypeAlias = tuple[str, str, str]
"""Domain, name, overload."""


def node_description(domain: str, op_type: str, name: str, outputs: Sequence[str]) -> str:
    """Returns a node as messages name it."""
    operator = f"{domain}.{op_type}" if domain else op_type
    if name:
        return f"node '{name}' ({operator})"
    made = next((output for output in outputs if output), None)
    return f"the node {operator}" + (f" that makes '{made}'" if made else "")


@dataclass(frozen=True)
class AttributeRef:
    """An attribute whose value is that of the enclosing function's attribute `name`; `kind` is its declared type."""

    name: str
    kind: int


@dataclass(frozen=True, eq=False)
class NodeDef:
    """A node as it stands in the file. `kinds` are the attributes' types by name (`onnx.AttributeProto.Type`)."""

    op_type: str
    domain: str
    name: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]
    kinds: Mapping[str, int]

    @property
    def description(self) -> str:
        """The node as messages name it."""
        return node_description(self.domain, self.op_type, self.name, self.outputs)

    def subgraphs(self) -> Iterator[tuple[str, OnnxGraph]]:
        """The graphs among the attributes, by the attribute's name."""
        for name, value in self.attributes.items():
            match value:
                case OnnxGraph():
                    yield name, value
                case (OnnxGraph(), *_):  # all are then
                    yield from ((name, element) for element in value)


@dataclass(frozen=True, eq=False)
class OnnxGraph:
    """A graph: the model's own, or an attribute of a node.

    Attributes:
        initializers: arrays by name; some may have names of inputs too.
        infos: types of values inside, by name, as far as the file tells them.
    """

    name: str
    inputs: tuple[ValueInfo, ...]
    outputs: tuple[ValueInfo, ...]
    initializers: Mapping[str, Array | SparseTensor]
    nodes: tuple[NodeDef, ...]
    infos: Mapping[str, ValueInfo] = field(default_factory=dict)

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs, in order."""
        return tuple(info.name for info in self.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs, in order."""
        return tuple(info.name for info in self.outputs)

    @property
    def output_infos(self) -> Mapping[str, ValueInfo]:
        """The declared types of the outputs by name."""
        return {info.name: info for info in self.outputs}


@dataclass(frozen=True, eq=False)
class OnnxFunction:
    """A function of the model, or the body that the standard gives for an operator.

    Attributes:
        required: names of attributes without a default.
        defaults: values of the others by name.
    """

    name: str
    domain: str
    overload: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    required: tuple[str, ...]
    defaults: Mapping[str, Any]
    nodes: tuple[NodeDef, ...]
    opsets: Opsets
    infos: Mapping[str, ValueInfo] = field(default_factory=dict)

    @property
    def key(self) -> FunctionKey:
        """The key by which nodes call the function."""
        return self.domain, self.name, self.overload


@dataclass(frozen=True, eq=False)
class Training:
    """Training information of a model.

    Attributes:
        initialization: computes first values; it has no inputs.
        algorithm: one step; it is run together with the model's graph.
        initialization_binding, update_binding: outputs of the two by the names of the initializers that take them.
    """

    initialization: OnnxGraph | None
    algorithm: OnnxGraph
    initialization_binding: Mapping[str, str]
    update_binding: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """A whole model; `files` are the names of those next to it with data of tensors, `producer` is what made it."""

    name: str
    opsets: Opsets
    graph: OnnxGraph
    functions: Mapping[FunctionKey, OnnxFunction]
    trainings: tuple[Training, ...]
    files: tuple[str, ...] = ()
    producer: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
