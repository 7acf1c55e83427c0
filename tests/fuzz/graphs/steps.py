"""Nodes with what evaluates them: ONNX's reference, functions of their own (:mod:`reference`), or simpler steps."""

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
from simpler import simpler

__all__ = [
    "OPSET",
    "Rejected",
    "Step",
    "attributes_of",
    "evaluate",
    "imports",
    "in_float32",
    "is_float",
    "needed_for",
    "read_inside",
]

OPSET = 21
"""The operator set of graphs that say no other."""
_EVALUATED_AS = {"BatchNormalization": 14, "DequantizeLinear": 19, "LayerNormalization": 17}
"""Operators that ONNX's reference evaluates rightly since this operator set alone, which changed nothing of them."""

_VERSIONS = {"ai.onnx.ml": 3}
"""Of the operator sets of other domains, where it is not the first."""

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
        self._inner = tuple(inner) or tuple(Step(each, opset=opset) for each in simpler(node))
        self._own = OWN.get(node.op_type)
        if self._own is not None:
            self._attributes = attributes_of(node)
        elif not self._inner:
            self._reference = ReferenceEvaluator(
                _alone(node, self.inputs, max(opset, _EVALUATED_AS.get(node.op_type, 0)))
            )

    @property
    def nodes(self) -> Sequence[onnx.NodeProto]:
        """The nodes in the graph."""
        return (self.node,)

    @property
    def written_out(self) -> Sequence[Step]:
        """The same as steps without bodies."""
        return self._inner or (self,)

    def values(self, inputs: Sequence[Array | None]) -> list[Any]:
        """The results for the step's inputs, None for those that are left out; whatever fails is raised."""
        if self._inner:
            known = self.inside(inputs)
            return [known[name] for name in self.node.output]
        if self._own is not None:
            made = self._own(self._attributes, *inputs)
            return list(made) if isinstance(made, tuple) else [made]
        feeds = {name: value for name, value in zip(self.inputs, inputs, strict=True) if name}
        found: list[Any] = self._reference.run(None, feeds)
        return found

    def inside(self, inputs: Sequence[Array | None]) -> dict[str, Any]:
        """The values of all tensors of the written-out steps, by name."""
        known: dict[str, Any] = {name: value for name, value in zip(self.inputs, inputs, strict=True) if name}
        for step in self.written_out:
            found = step.values([known[name] if name else None for name in step.inputs])
            known |= zip(step.node.output, map(in_float32, found), strict=True)
        return known

    def renamed(self, names: Mapping[str, str]) -> Step:
        """The same step of other tensors."""
        node = onnx.NodeProto()
        node.CopyFrom(self.node)
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
        return Step(node, opset=self.opset)


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
    return [in_float32(np.asarray(value)) for value in found]


def in_float32(array: Array) -> Array:
    """The array with float64 instead of narrower floats."""
    return array.astype(np.float64) if is_float(array.dtype) else array


def imports(nodes: Iterable[onnx.NodeProto], opset: int) -> list[onnx.OperatorSetIdProto]:
    """The operator sets that nodes are of, in whose bodies there are others."""
    domains = {node.domain for node in _with_inner(nodes)} - {""}
    return [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(name, _VERSIONS.get(name, 1)) for name in sorted(domains)),
    ]


def _with_inner(nodes: Iterable[onnx.NodeProto]) -> Iterator[onnx.NodeProto]:
    for node in nodes:
        yield node
        for attribute in node.attribute:
            yield from _with_inner(attribute.g.node)


def is_float(dtype: npt.DTypeLike) -> bool:
    """Whether elements are floats; NumPy itself does not know bfloat16 for one."""
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


def attributes_of(node: onnx.NodeProto) -> dict[str, Any]:
    """A node's attributes by name, texts as such."""
    values = ((each.name, helper.get_attribute_value(each)) for each in node.attribute)
    return {name: value.decode() if isinstance(value, bytes) else value for name, value in values}


def _alone(node: onnx.NodeProto, read: Sequence[str], opset: int) -> onnx.ModelProto:
    """A model of the node alone, without types; float64 may be fed to it: the reference does not look at them."""
    names = dict.fromkeys(name for name in read if name)
    inputs, outputs = (
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in part]
        for part in (names, node.output)
    )
    graph = helper.make_graph([node], "node", inputs, outputs)
    return helper.make_model(graph, opset_imports=imports([node], opset), ir_version=10)
