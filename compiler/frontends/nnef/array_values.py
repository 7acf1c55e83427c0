"""Accepts arrays where the standard requires tensors or pairs, as torch-to-nnef and tract write them.

a = [[1.0, 2.0]];                     a = constant<scalar>(shape = [1, 2], value = [1.0, 2.0]);
y = linear(x, [[1.0, 2.0]]);          the same under a name of its own before it
y = copy([0.5]);                      y = copy(array1) with constant<scalar>(shape = [1], value = [0.5])
y = pad(x, [[0, 0], [1, 1]]);         y = pad(x, [(0, 0), (1, 1)]);
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import count

from nnefc.frontends.nnef.declarations import STANDARD
from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.types import ArrayType, TensorType, TupleType, Type

__all__ = ["with_values_as_tensors"]

_MAX = 1 << 20
"""Numbers in one array: more are in files."""

_MAX_LINES = 5
"""Lines that a warning names."""


def with_values_as_tensors(document: syntax.Document) -> tuple[syntax.Document, list[str]]:
    """Rewrites a document with tensors and pairs instead of such arrays, and records the changes."""
    rewriting = _Rewriting(document)
    graphs = tuple(replace(each, body=rewriting.body(each.body)) for each in document.graphs)
    fragments = tuple(
        each if each.body is None else replace(each, body=rewriting.body(each.body)) for each in document.fragments
    )
    if not rewriting.notes:
        return document, []
    notes = [f"{text} in {_spelled(lines)}, which the standard does not do" for text, lines in rewriting.notes.items()]
    return replace(document, graphs=graphs, fragments=fragments), notes


def _spelled(lines: Sequence[int]) -> str:
    """Line 5; or lines 5, 6, 7 and 20 others."""
    shown = [str(line) for line in dict.fromkeys(lines)]
    if len(shown) == 1:
        return f"line {shown[0]}"
    more = f" and {len(shown) - _MAX_LINES} others" if len(shown) > _MAX_LINES else ""
    return f"lines {', '.join(shown[:_MAX_LINES])}{more}"


class _Rewriting:
    def __init__(self, document: syntax.Document) -> None:
        self._document = document
        self.notes: dict[str, list[int]] = {}

    def body(self, body: tuple[syntax.Assignment, ...]) -> tuple[syntax.Assignment, ...]:
        """Statements, with those of constants before where they are needed."""
        taken = {node.name for node in syntax.parts_of(body) if isinstance(node, syntax.Identifier)}
        names = (name for n in count(1) if (name := f"array{n}") not in taken)
        return tuple(made for assignment in body for made in self._statement(assignment, names))

    def _statement(self, assignment: syntax.Assignment, names: Iterator[str]) -> list[syntax.Assignment]:
        value = assignment.value
        if isinstance(value, syntax.Array):
            constant = _constant(value, 2) if any(isinstance(n, float) for n in _numbers(value) or ()) else None
            if constant is not None:
                self._note(_OF_ARRAYS, value)
                return [replace(assignment, value=constant)]
        if not isinstance(value, syntax.Invocation):
            return [assignment]
        before: list[syntax.Assignment] = []
        made = self._invocation(value, names, before)
        return [*before, replace(assignment, value=made)]

    def _invocation(
        self, value: syntax.Invocation, names: Iterator[str], before: list[syntax.Assignment]
    ) -> syntax.Invocation:
        """An invocation whose arguments are as its parameters ask for; constants are assigned `before` it."""
        types = self._types(value)
        arguments = []
        for position, argument in enumerate(value.arguments):
            given = argument.value
            if isinstance(given, syntax.Invocation):
                given = self._invocation(given, names, before)
            made = self._argument(given, types.get(position if argument.name is None else argument.name))
            if isinstance(made, syntax.Invocation) and made is not given:
                name = syntax.Identifier(made.at, next(names))
                before.append(syntax.Assignment(made.at, name, made))
                made = name
            arguments.append(replace(argument, value=made))
        return replace(value, arguments=tuple(arguments))

    def _argument(self, given: syntax.Expression, wanted: Type | None) -> syntax.Expression:
        """An argument as its parameter's type asks for it; a constant as the invocation that makes it."""
        if not isinstance(given, syntax.Array):
            return given
        match wanted:
            case TensorType():
                made = _constant(given, 1)
                if made is not None:
                    nested = any(isinstance(each, syntax.Array) for each in given.elements)
                    self._note(_OF_ARRAYS if nested else _OF_NUMBERS, given)
                    return made
            case ArrayType(TupleType()):
                pairs = [
                    syntax.Tuple(each.at, each.elements) for each in given.elements if isinstance(each, syntax.Array)
                ]
                if pairs and len(pairs) == len(given.elements):
                    self._note("arrays are read as tuples", given)
                    return syntax.Array(given.at, tuple(pairs))
        return given

    def _types(self, invocation: syntax.Invocation) -> dict[str | int, Type]:
        """Returns the types of an invocation's parameters, by name and position; none if the operation is unknown."""
        fragment = next((each for each in self._document.fragments if each.name == invocation.name), None)
        operation = STANDARD.lookup(invocation.name, self._document.dialect)
        declared: list[tuple[str, Type]] = []
        if fragment is not None:
            declared = [(parameter.name, parameter.type) for parameter in fragment.parameters]
        elif operation is not None:
            declared = [(parameter.name, parameter.type) for parameter in operation.signature.parameters]
        types: dict[str | int, Type] = dict(enumerate(type_ for _, type_ in declared))
        return {**types, **dict(declared)}

    def _note(self, text: str, part: syntax.Array) -> None:
        self.notes.setdefault(text, []).append(self._document.source.location(part.at).line)


_OF_ARRAYS = "arrays of arrays are read as constants"
_OF_NUMBERS = "arrays of numbers are read as constants"


def _constant(array: syntax.Array, minimum: int) -> syntax.Invocation | None:
    """Numbers in an array of so many dimensions or more as a constant of reals; None for other arrays."""
    shape, numbers = _shape(array), _numbers(array)
    if shape is None or len(shape) < minimum or not numbers or len(numbers) > _MAX:
        return None

    def literals(values: list[int] | list[float]) -> syntax.Array:
        return syntax.Array(array.at, tuple(syntax.Literal(array.at, value) for value in values))

    arguments = (
        syntax.Argument(array.at, "shape", literals(shape)),
        syntax.Argument(array.at, "value", literals([float(number) for number in numbers])),
    )
    return syntax.Invocation(array.at, "constant", "scalar", arguments)


def _shape(part: syntax.Expression) -> list[int] | None:
    """Returns how many elements arrays have inside each other; None if some have more than others."""
    if not isinstance(part, syntax.Array):
        return []
    shapes = [_shape(element) for element in part.elements]
    if not shapes or any(shape is None or shape != shapes[0] for shape in shapes):
        return None
    return [len(shapes), *(shapes[0] or [])]


def _numbers(part: syntax.Expression) -> list[float] | None:
    """The numbers in arrays, in order; None if there is something else."""
    match part:
        case syntax.Literal(_, bool()):
            return None
        case syntax.Literal(_, int() | float() as value):
            return [value]
        case syntax.Unary(_, "-", syntax.Literal(_, int() | float() as value)):
            return [-value]
        case syntax.Array(_, elements):
            found = [_numbers(element) for element in elements]
            return None if any(each is None for each in found) else [n for each in found for n in each or ()]
    return None
