"""Nodes that are one step together, as values between them are no tensors of numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper
from steps import OPSET, Rejected, Step, attributes_of, read_inside
from values_reference import OF_VALUES

__all__ = ["Group"]

Array = npt.NDArray[Any]

_KIND = "Values"
"""What such a step is called, whose errors are those of what it moves."""


class Group(Step):
    """Nodes that are one step, as values between them are sequences, optional or strings.

    Args:
        nodes: in order; of control flow, branches, loops with a trip count, and `SequenceMap`.
        results: the tensors that others may read.
        opset: whose operators they are.
    """

    def __init__(self, nodes: Sequence[onnx.NodeProto], results: Sequence[str], opset: int = OPSET) -> None:
        whole = helper.make_node(_KIND, [], results, nodes=helper.make_graph(nodes, _KIND, [], []))
        self.node = helper.make_node(_KIND, list(read_inside(whole)), results)
        self.opset = opset
        self.inputs = list(self.node.input)
        self._inner = ()
        self._body = _Body(whole.attribute[0].g, opset)

    @property
    def nodes(self) -> Sequence[onnx.NodeProto]:
        return tuple(self._body.graph.node)

    def values(self, inputs: Sequence[Array | None]) -> list[Any]:
        known = self._body.values(dict(zip(self.inputs, inputs, strict=True)))
        return [known[name] for name in self.node.output]

    def renamed(self, names: Mapping[str, str]) -> Step:
        results = [names.get(name, name) for name in self.node.output]
        within = {name: f"{name}_of_{results[0]}" for node in self.nodes for name in node.output}
        nodes = [_renamed(node, {**within, **names}) for node in self.nodes]
        return Group(nodes, results, self.opset)


def _renamed(node: onnx.NodeProto, names: Mapping[str, str]) -> onnx.NodeProto:
    """The node with other names, in its bodies too, which have no names of their own that are among them."""
    made = onnx.NodeProto()
    made.CopyFrom(node)
    made.input[:] = [names.get(name, name) for name in node.input]
    made.output[:] = [names.get(name, name) for name in node.output]
    for body in (attribute.g for attribute in made.attribute if attribute.type == onnx.AttributeProto.GRAPH):
        nodes = [_renamed(each, names) for each in body.node]
        del body.node[:]
        body.node.extend(nodes)
    return made


class _Body:
    """Nodes of a group, or of a body in it."""

    def __init__(self, graph: onnx.GraphProto, opset: int) -> None:
        self.graph = graph
        self._given = [attributes_of(node) for node in graph.node]
        self._bodies = [
            {name: _Body(value, opset) for name, value in given.items() if isinstance(value, onnx.GraphProto)}
            for given in self._given
        ]
        self._steps = [
            None if bodies or node.op_type in OF_VALUES else Step(node, opset=opset)
            for node, bodies in zip(graph.node, self._bodies, strict=True)
        ]

    def values(self, known: Mapping[str, Any]) -> dict[str, Any]:
        """What all nodes give, and what is known, by name."""
        values = dict(known)
        for node, given, bodies, step in zip(self.graph.node, self._given, self._bodies, self._steps, strict=True):
            inputs = [values[name] if name else None for name in node.input]
            if bodies:
                found = _of_bodies(node.op_type, bodies, inputs, values)
            elif step is None:
                found = [OF_VALUES[node.op_type](given, *inputs)]
            else:
                found = [value.astype(object) if value.dtype.kind == "U" else value for value in step.values(inputs)]
            values |= zip(node.output, found, strict=True)
        return values

    def results(self, inputs: Sequence[Any], outside: Mapping[str, Any]) -> list[Any]:
        """What the body gives for its inputs."""
        names = (info.name for info in self.graph.input)
        values = self.values({**outside, **dict(zip(names, inputs, strict=True))})
        return [values[info.name] for info in self.graph.output]


def _of_bodies(
    kind: str, bodies: Mapping[str, _Body], inputs: Sequence[Any], outside: Mapping[str, Any]
) -> Sequence[Any]:
    """The results of a node with bodies."""
    match kind:
        case "If":
            return bodies["then_branch" if inputs[0] else "else_branch"].results([], outside)
        case "Loop":
            trips, _, *states = inputs
            for trip in range(int(trips)):
                _, *states = bodies["body"].results([np.array(trip), np.array(True), *states], outside)
            return states
        case "SequenceMap":
            first, *others = inputs
            each = (
                [other[index] if isinstance(other, list) else other for other in others] for index in range(len(first))
            )
            trips = [
                bodies["body"].results([element, *more], outside) for element, more in zip(first, each, strict=True)
            ]
            return [list(result) for result in zip(*trips, strict=True)]
    raise Rejected(f"no group has {kind}")
