"""Accepts tensors of rank 0 where the standard requires numbers, as torch-to-nnef writes attributes.

eps = variable<scalar>(label = 'eps', shape = []);          y = batch_normalization(…, epsilon = 1e-05);
y = batch_normalization(…, epsilon = eps);                  with the number that eps.dat has
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from nnefc.frontends.nnef.declarations import STANDARD
from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.types import SCALAR, Type

__all__ = ["NumberOf", "with_numbers"]

NumberOf = Callable[[str], float | None]
"""The number of a variable of rank 0 by its label, or None if it is not known."""


def with_numbers(document: syntax.Document, number_of: NumberOf) -> tuple[syntax.Document, list[str]]:
    """Rewrites a document with numbers instead of such tensors, and records the changes."""
    reading = _Reading(document, number_of)
    graphs = tuple(replace(graph, body=reading.body(graph.body)) for graph in document.graphs)
    if not reading.names:
        return document, []
    listed = ", ".join(f"'{name}'" for name in list(reading.names)[:5]) + ", …" * (len(reading.names) > 5)
    note = f"tensors of rank 0 are read as the numbers in them where numbers are needed: {listed}"
    return replace(document, graphs=graphs), [note]


@dataclass
class _Reading:
    document: syntax.Document
    number_of: NumberOf

    def __post_init__(self) -> None:
        self.names: dict[str, None] = {}
        self._made: dict[str, syntax.Invocation] = {}

    def body(self, body: tuple[syntax.Assignment, ...]) -> tuple[syntax.Assignment, ...]:
        """The statements, in which arguments for numbers are numbers."""
        self._made = {
            assignment.target.name: assignment.value
            for assignment in body
            if isinstance(assignment.target, syntax.Identifier)
            and isinstance(assignment.value, syntax.Invocation)
            and assignment.value.name in ("constant", "variable")
        }
        return syntax.rewritten(body, self._read) if self._made else body

    def _read(self, node: Any) -> Any:
        """An invocation with numbers for its arguments, if there are such; other nodes as they are."""
        if not isinstance(node, syntax.Invocation):
            return node
        types = self._types(node)
        given = tuple(
            self._argument(argument, types.get(argument.name if argument.name is not None else index))
            for index, argument in enumerate(node.arguments)
        )
        changed = any(one is not other for one, other in zip(given, node.arguments, strict=True))
        return replace(node, arguments=given) if changed else node

    def _argument(self, argument: syntax.Argument, wanted: Type | None) -> syntax.Argument:
        value = argument.value
        if wanted != SCALAR or not isinstance(value, syntax.Identifier) or value.name not in self._made:
            return argument
        number = self._number(self._made[value.name])
        if number is None:
            return argument
        self.names[value.name] = None
        return replace(argument, value=syntax.Literal(value.at, float(number)))

    def _number(self, made: syntax.Invocation) -> float | None:
        """The one element of a constant or a variable of rank 0; None for others."""
        given = {argument.name: argument.value for argument in made.arguments}
        if (
            not isinstance(shape := given.get("shape"), syntax.Array)
            or shape.elements
            or made.content not in (None, "scalar")
        ):
            return None
        match made.name, given.get("value"), given.get("label"):
            case "constant", syntax.Array(_, (syntax.Literal(_, float() as number),)), _:
                return number
            case "constant", syntax.Array(_, (syntax.Unary(_, "-", syntax.Literal(_, float() as number)),)), _:
                return -number
            case "variable", _, syntax.Literal(_, str() as label):
                return self.number_of(label)
        return None

    def _types(self, invocation: syntax.Invocation) -> dict[str | int | None, Type]:
        """Returns the types of an invocation's parameters, by name and position; none if the operation is unknown."""
        fragment = next((each for each in self.document.fragments if each.name == invocation.name), None)
        operation = STANDARD.lookup(invocation.name, self.document.dialect)
        declared: list[tuple[str, Type]] = []
        if fragment is not None:
            declared = [(each.name, each.type) for each in fragment.parameters]
        elif operation is not None:
            declared = [(each.name, each.type) for each in operation.signature.parameters]
        types: dict[str | int | None, Type] = dict(enumerate(type_ for _, type_ in declared))
        return {**types, **dict(declared)}
