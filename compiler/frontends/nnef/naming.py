"""Names the tensors of a flattened graph: as in the graph's body, or by a derived name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from nnefc.frontends.nnef.flat import FlatGraph, Invocation
from nnefc.frontends.nnef.values import Tensor

__all__ = ["TensorNames", "rename"]


@dataclass
class TensorNames:
    """Names that are known during evaluation.

    Attributes:
        reserved: all identifiers of the graph's body.
        given: tensors that an identifier of the graph's body names.
        local: for others, the identifier in the fragment that first named them.
        statement: for each tensor, the first identifier of the graph's statement that made it.
    """

    reserved: set[str]
    given: dict[Tensor, str] = field(default_factory=dict)
    local: dict[Tensor, str] = field(default_factory=dict)
    statement: dict[Tensor, str] = field(default_factory=dict)


def rename(graph: FlatGraph, names: TensorNames) -> FlatGraph:
    """The graph with final names. Derived ones read `<identifier of the graph>_<identifier of the fragment>`."""
    taken = set(names.reserved)
    counts: dict[str, int] = {}
    renamed: dict[Tensor, Tensor] = {}

    def unique(base: str) -> str:
        name = base
        while name in taken:
            counts[base] = counts.get(base, 1) + 1
            name = f"{base}_{counts[base]}"
        taken.add(name)
        return name

    for invocation in graph.invocations:
        for tensor in invocation.tensors:
            name = names.given.get(tensor)
            if name is None:
                local = names.local.get(tensor, tensor.name)
                name = unique(f"{names.statement[tensor]}_{local}")
            renamed[tensor] = replace(tensor, name=name)

    def final(value: Any) -> Any:
        match value:
            case Tensor():
                return renamed[value]
            case list():
                return [final(element) for element in value]
            case tuple():
                return tuple([final(element) for element in value])
            case _:
                return value

    def tensors(values: Iterable[Tensor]) -> tuple[Tensor, ...]:
        return tuple([renamed[tensor] for tensor in values])

    def final_invocation(invocation: Invocation) -> Invocation:
        return replace(
            invocation,
            arguments={name: final(value) for name, value in invocation.arguments.items()},
            results={name: final(value) for name, value in invocation.results.items()},
        )

    return replace(
        graph,
        inputs=tensors(graph.inputs),
        outputs=tensors(graph.outputs),
        invocations=tuple([final_invocation(invocation) for invocation in graph.invocations]),
    )
