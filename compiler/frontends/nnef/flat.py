"""Flattened graph: invocations of standard operations only, with all values and shapes known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from nnefc.frontends.nnef.declarations import Operation
from nnefc.frontends.nnef.language.signatures import spell_value
from nnefc.frontends.nnef.language.types import Dialect, has_tensor
from nnefc.frontends.nnef.values import Arguments, Tensor, Value
from nnefc.support.diagnostics import Location

__all__ = ["FlatGraph", "Invocation", "Tensor", "print_flat", "print_fragment", "tensors_in"]


_CONTENTS = ("scalar", "integer", "logical")


@dataclass(frozen=True, eq=False)
class Invocation:
    """An invocation with defaults filled in; `arguments` and `results` are in the order of the declaration.

    `content` names the type that `?` stands for, or is None if the operation is not generic. In tract's dialect it is
    an element type, which is not written.
    """

    operation: Operation
    arguments: Mapping[str, Value]
    results: Mapping[str, Tensor | list[Tensor]]
    content: str | None
    location: Location

    @property
    def args(self) -> Arguments:
        """The arguments as shape rules and lowerings read them."""
        return Arguments(self.arguments, self.content or "")

    @property
    def tensors(self) -> tuple[Tensor, ...]:
        """All results, arrays taken apart."""
        return tuple(tensors_in(self.results.values()))


@dataclass(frozen=True, eq=False)
class FlatGraph:
    """A graph of standard operations in a valid order: what an invocation reads was made by an earlier one.

    `inputs` and `outputs` are in the order of the graph's declaration.
    """

    name: str
    dialect: Dialect
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    invocations: tuple[Invocation, ...]


def tensors_in(values: Iterable[Any]) -> Iterator[Tensor]:
    """Yields the tensors among values, those inside lists and tuples included."""
    for value in values:
        if isinstance(value, Tensor):
            yield value
        elif isinstance(value, list | tuple):
            yield from tensors_in(value)


def print_flat(graph: FlatGraph) -> str:
    """The graph as a flat document of its dialect, which reads back as the same graph."""
    inputs = ", ".join(tensor.name for tensor in graph.inputs)
    outputs = ", ".join(tensor.name for tensor in graph.outputs)
    lines = ["version 1.0;" if graph.dialect is Dialect.FINAL else "version 1.0"]
    if graph.dialect is Dialect.FINAL and any(
        _joined(invocation.arguments.values()) for invocation in graph.invocations
    ):
        lines.append("extension KHR_enable_operator_expressions;")
    lines.append("")
    lines += [f"graph {graph.name}({inputs}) -> ({outputs})", "{"]
    lines += [f"    {_print_invocation(invocation, graph.dialect)};" for invocation in graph.invocations]
    lines += ["}", ""]
    return "\n".join(lines)


def print_fragment(graph: FlatGraph) -> str:
    """A fragment of a document in tract's dialect: the graph, whose inputs are its parameters."""
    parameters, results = (
        ", ".join(f"{tensor.name}: tensor<scalar>" for tensor in tensors) for tensors in (graph.inputs, graph.outputs)
    )
    lines = [f"fragment {graph.name}({parameters}) -> ({results})", "{"]
    lines += [f"    {_print_invocation(invocation, graph.dialect)};" for invocation in graph.invocations]
    return "\n".join([*lines, "}", "", ""])


def _joined(values: Iterable[Any]) -> bool:
    """Returns whether a string among the values takes an operator to be written, see `spell_value`."""
    for value in values:
        if isinstance(value, str) and "'" in value and '"' in value:
            return True
        if isinstance(value, list | tuple) and _joined(value):
            return True
    return False


def _print_invocation(invocation: Invocation, dialect: Dialect) -> str:
    signature = invocation.operation.signature
    results = ", ".join(spell_value(result) for result in invocation.results.values())
    typed = dialect is Dialect.FINAL and invocation.content in _CONTENTS
    generic = f"<{invocation.content}>" if signature.generic and typed else ""
    positional = list(takewhile(lambda parameter: has_tensor(parameter.type), signature.parameters))
    named = signature.parameters[len(positional) :]
    given = invocation.arguments
    arguments = [spell_value(given[parameter.name]) for parameter in positional if parameter.name in given]
    arguments += [f"{p.name} = {spell_value(given[p.name])}" for p in named if p.name in given]
    return f"{results} = {signature.name}{generic}({', '.join(arguments)})"
