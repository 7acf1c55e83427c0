"""Nodes with what evaluates them: ONNX's reference, functions of their own (:mod:`reference`), or simpler steps.

Nodes between which there are values that are no tensors are one step together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator
from reference import OWN
from simpler import SIMPLER
from values_reference import OF_VALUES

__all__ = ["OPSET", "Group", "Rejected", "Step", "evaluate", "is_float", "needed_for", "read_inside", "widened"]

OPSET = 21
"""The operator set of graphs that say no other."""
_EVALUATED_AS = {"BatchNormalization": 14, "DequantizeLinear": 19, "LayerNormalization": 17}
"""Operators that ONNX's reference evaluates rightly since this operator set alone, which changed nothing of them."""

Array = npt.NDArray[Any]


class Rejected(Exception):
    """The step makes no sense here."""


class Step:
    """A node, with what evaluates it.

    Args:
        node: what ONNX's reference raises of one that it does not take is raised.
        inner: the steps that a node with bodies takes on these inputs, as if they were written one after the other.
        opset: whose operator it is.

    Attributes:
        node: in the graph.
        opset: whose operator it is.
        inputs: what it reads, in its bodies too; "" for inputs that are left out.
    """

    def __init__(self, node: onnx.NodeProto, inner: Sequence[Step] = (), opset: int = OPSET) -> None:
        self.node = node
        self.opset = opset
        self.inputs: list[str] = [*node.input, *(name for name in read_inside(node) if name not in node.input)]
        simpler = SIMPLER.get(node.op_type)
        self._inner = tuple(inner) or tuple(Step(each, opset=opset) for each in (simpler(node) if simpler else ()))
        self._own = OWN.get(node.op_type)
        if self._own is not None:
            self._attributes = {a.name: _attribute(a) for a in node.attribute}
        elif not self._inner:
            self._reference = ReferenceEvaluator(
                _alone(node, self.inputs, max(opset, _EVALUATED_AS.get(node.op_type, 0)))
            )

    @property
    def nodes(self) -> Sequence[onnx.NodeProto]:
        """The nodes in the graph."""
        return (self.node,)

    @property
    def plain(self) -> Sequence[Step]:
        """The same as steps without bodies."""
        return self._inner or (self,)

    def values(self, inputs: Sequence[Array | None]) -> list[Any]:
        """The results for the step's inputs, None for those that are left out; whatever fails is raised."""
        if self._inner:
            known = self.inside(inputs)
            return [known[name] for name in self.node.output]
        if self._own is not None:
            return [self._own(self._attributes, *inputs)]
        feeds = {name: value for name, value in zip(self.inputs, inputs, strict=True) if name}
        found: list[Any] = self._reference.run(None, feeds)
        return found

    def inside(self, inputs: Sequence[Array | None]) -> dict[str, Any]:
        """The values of all tensors of the plain steps, by name."""
        known: dict[str, Any] = {name: value for name, value in zip(self.inputs, inputs, strict=True) if name}
        for step in self.plain:
            found = step.values([known[name] if name else None for name in step.inputs])
            known |= zip(step.node.output, map(widened, found), strict=True)
        return known

    def renamed(self, names: Mapping[str, str]) -> Step:
        """The same step of other tensors."""
        node = onnx.NodeProto()
        node.CopyFrom(self.node)
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        return Step(node, opset=self.opset)


class Group(Step):
    """Nodes that are one step, as values between them are sequences or optional.

    Args:
        kind: what the step is called.
        nodes: in order; of control flow, branches, loops that are told a number of trips, and `SequenceMap`.
        results: the tensors that others may read.
        opset: whose operators they are.
    """

    def __init__(self, kind: str, nodes: Sequence[onnx.NodeProto], results: Sequence[str], opset: int = OPSET) -> None:
        whole = helper.make_node(kind, [], results, nodes=helper.make_graph(nodes, kind, [], []))
        self.node = helper.make_node(kind, list(read_inside(whole)), results)
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


class _Body:
    """Nodes of a group, or of a body in it."""

    def __init__(self, graph: onnx.GraphProto, opset: int) -> None:
        self.graph = graph
        self._given = [{a.name: _attribute(a) for a in node.attribute} for node in graph.node]
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
                [other[place] if isinstance(other, list) else other for other in others] for place in range(len(first))
            )
            trips = [bodies["body"].results([item, *more], outside) for item, more in zip(first, each, strict=True)]
            return [list(result) for result in zip(*trips, strict=True)]
    raise Rejected(f"no group has {kind}")


def needed_for(names: Iterable[str], steps: Sequence[Step]) -> tuple[list[Step], set[str]]:
    """The steps that tensors of these names need, in order, and the names of all tensors that they read or make so."""
    needed = set(names)
    kept = []
    for step in reversed(steps):
        if needed & set(step.node.output):
            kept.append(step)
            needed |= set(step.inputs)
    return kept[::-1], needed


def evaluate(step: Step, values: Iterable[Array | None]) -> list[Array]:
    """The node's results for its inputs, None for those that are left out; floats are float64.

    Raises:
        Rejected: the reference cannot compute them.
    """
    try:
        with np.errstate(all="ignore"):
            found = step.values(list(values))
    except Exception as error:  # whatever the reference raises of what it does not take
        raise Rejected(str(error)) from None
    if any(not isinstance(value, np.ndarray | np.generic) for value in found):
        raise Rejected("a result is not a tensor")
    return [widened(np.asarray(value)) for value in found]


def widened(array: Array) -> Array:
    """The array with float64 in place of narrower floats."""
    return array.astype(np.float64) if is_float(array.dtype) else array


def is_float(dtype: npt.DTypeLike) -> bool:
    """Whether items are floats; NumPy itself does not know bfloat16 for one."""
    return np.dtype(dtype).kind == "f" or np.dtype(dtype) == ml_dtypes.bfloat16


def read_inside(node: onnx.NodeProto) -> Iterator[str]:
    """The tensors from outside that a node's bodies read, each once."""
    seen: set[str] = set()
    for body in (a.g for a in node.attribute if a.type == onnx.AttributeProto.GRAPH):
        own = {info.name for info in body.input} | {tensor.name for tensor in body.initializer}
        for part in body.node:
            for name in (*part.input, *read_inside(part)):
                if name and name not in own and name not in seen:
                    seen.add(name)
                    yield name
            own.update(part.output)
        for name in (info.name for info in body.output):
            if name not in own and name not in seen:
                seen.add(name)
                yield name


def _attribute(attribute: onnx.AttributeProto) -> Any:
    value = helper.get_attribute_value(attribute)
    return value.decode() if isinstance(value, bytes) else value


def _alone(node: onnx.NodeProto, read: Sequence[str], opset: int) -> onnx.ModelProto:
    """A model of the node alone, without types; float64 may be fed to it: the reference does not look at them."""
    names = dict.fromkeys(name for name in read if name)
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in part]
        for part in (names, node.output)
    )
    graph = helper.make_graph([node], "node", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
