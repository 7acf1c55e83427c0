"""Graphs of nodes with the values of their tensors, and the models that they are.

A walk (:mod:`walk`) makes them; they are joined, made smaller, and compared.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper
from simpler import node_text
from steps import OPSET, Step, evaluate, imports, in_float32, is_float

__all__ = ["Graph", "Tensor", "element_type", "joined"]

_COUNTING = frozenset(("Compress", "NonMaxSuppression", "NonZero", "Unique", "com.microsoft.Unique"))
"""What tells sizes by the data."""

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Tensor:
    """A tensor of the graph.

    Attributes:
        name: in the graph.
        array: its value, in the type that the graph gives it.
        exact: its value with float64 instead of narrower floats.
    """

    name: str
    array: Array
    exact: Array

    @classmethod
    def of(cls, name: str, exact: Array, floats: npt.DTypeLike = np.float32) -> Tensor:
        """A tensor that a step makes, from its value in float64.

        Args:
            floats: the type that the graph's floats have.
        """
        return cls(name, exact.astype(floats) if exact.dtype.kind == "f" else exact, exact)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.array.shape

    @property
    def is_float(self) -> bool:
        return is_float(self.array.dtype)


@dataclass
class Graph:
    """A graph that a walk made.

    Attributes:
        seed: of the walk.
        steps: its nodes in order.
        inputs: the tensors that come from outside.
        constants: the initializers.
        outputs: what is compared.
        tensors: all tensors by name, those between steps too.
        opened: the sizes of inputs that models may leave open, by their names; None where it is unknown yet.
        kept: the inputs that are states in some ways, and the outputs that each of them is in the next run; so, too.
        special: whether special values were put into its inputs.
        opset: the operator set that its nodes are of.
        floats: the type of its floats.
    """

    seed: int
    steps: list[Step]
    inputs: list[Tensor]
    constants: list[Tensor]
    outputs: list[Tensor]
    tensors: dict[str, Tensor]
    opened: frozenset[str] | None = None
    kept: Mapping[str, str] | None = None
    special: bool = False
    opset: int = OPSET
    floats: npt.DTypeLike = np.float32

    @property
    def sizes(self) -> dict[str, int]:
        """The inputs' sizes, by their names."""
        return {f"{tensor.name}_{axis}": size for tensor in self.inputs for axis, size in enumerate(tensor.shape)}

    def model(self, opened: Collection[str] = ()) -> onnx.ModelProto:
        """The graph as a model that leaves these sizes of inputs open."""
        inputs = []
        for tensor in self.inputs:
            names = [f"{tensor.name}_{axis}" for axis in range(len(tensor.shape))]
            shape = [name if name in opened else size for name, size in zip(names, tensor.shape, strict=True)]
            inputs.append(helper.make_tensor_value_info(tensor.name, element_type(tensor.array), shape))
        counts = bool(_COUNTING & set(self.operators()))  # a rounding may turn how many there are
        outputs = [
            helper.make_tensor_value_info(
                t.name, element_type(t.array), None if opened else [None if counts else size for size in t.shape]
            )
            for t in self.outputs
        ]
        constants = [
            numpy_helper.from_array(np.ascontiguousarray(t.array).reshape(t.shape), t.name) for t in self.constants
        ]
        nodes = [node for step in self.steps for node in step.nodes]
        graph = helper.make_graph(nodes, "random", inputs, outputs, constants)
        return helper.make_model(graph, opset_imports=imports(nodes, self.opset), ir_version=10)

    def feeds(self) -> dict[str, Array]:
        """The inputs' values."""
        return {tensor.name: tensor.array for tensor in self.inputs}

    def operators(self) -> list[str]:
        """The operators' names, in order."""
        return [node_text(node) for step in self.steps for node in step.nodes]

    def with_values(self) -> Graph:
        """The graph with the values of all tensors computed again from what its inputs are rounded to.

        Raises:
            Rejected: the reference cannot compute them.
        """
        tensors = {t.name: replace(t, exact=in_float32(t.array)) for t in (*self.inputs, *self.constants)}
        for step in self.steps:
            values = [tensors[name].exact if name else None for name in step.inputs]
            for name, value in zip(step.node.output, evaluate(step, values), strict=True):
                tensors[name] = Tensor.of(name, value, self.floats)
        return replace(
            self,
            tensors=tensors,
            opened=None,
            kept=None,
            inputs=[tensors[t.name] for t in self.inputs],
            outputs=[tensors[t.name] for t in self.outputs],
        )


def joined(graphs: Sequence[Graph]) -> Graph:
    """One graph of several of one operator set and type next to each other, whose tensors have names of their own."""
    first, *others = graphs
    if not others:
        return first
    parts = [[part for graph in graphs for part in getattr(graph, name)] for name in _PARTS]
    tensors = {name: tensor for graph in graphs for name, tensor in graph.tensors.items()}
    opened = frozenset[str]().union(*(graph.opened or () for graph in graphs))
    kept = {x: y for graph in graphs for x, y in (graph.kept or {}).items()}
    return Graph(first.seed, *parts, tensors, opened, kept, first.special, first.opset, first.floats)


_PARTS = ("steps", "inputs", "constants", "outputs")


def element_type(array: Array) -> int:
    """ONNX's number of an array's element type."""
    return int(helper.np_dtype_to_tensor_dtype(array.dtype))
