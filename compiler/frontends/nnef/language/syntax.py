"""Syntax tree of an NNEF document. A node stores its offset in the text, `at`, and compares by identity."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Generator
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

from nnefc.frontends.nnef.language.types import Dialect, Type
from nnefc.support.diagnostics import Location

__all__ = [
    "Argument",
    "Array",
    "Assignment",
    "Binary",
    "Builtin",
    "Comprehension",
    "Document",
    "Expression",
    "Extension",
    "Fragment",
    "Graph",
    "Identifier",
    "Invocation",
    "Iterator",
    "Literal",
    "Parameter",
    "Range",
    "Result",
    "Select",
    "Source",
    "Subscript",
    "Target",
    "Tuple",
    "Unary",
    "identifiers_of",
    "parts_of",
    "rewritten",
]

_Part = TypeVar("_Part")
_LINE_END = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True, eq=False)
class Source:
    """The text of a document and the name of its file."""

    file: str
    text: str

    @cached_property
    def _line_starts(self) -> list[int]:
        return [0, *(match.end() for match in _LINE_END.finditer(self.text))]

    @cached_property
    def _lines(self) -> dict[int, str]:
        return {}

    def location(self, at: int) -> Location:
        """The location of an offset, for messages. Locations in one line share its text."""
        number = bisect_right(self._line_starts, at)
        start = self._line_starts[number - 1]
        text = self._lines.get(number)
        if text is None:
            end = self._line_starts[number] if number < len(self._line_starts) else len(self.text)
            text = self._lines[number] = self.text[start:end].rstrip("\r\n")
        return Location(self.file, number, at - start + 1, text)


@dataclass(frozen=True, eq=False, slots=True)
class Literal:
    """`1`, `1.0`, `true`, `'text'`: Python's type of `value` (int, float, bool, str) says which."""

    at: int
    value: int | float | bool | str


@dataclass(frozen=True, eq=False, slots=True)
class Identifier:
    at: int
    name: str


@dataclass(frozen=True, eq=False, slots=True)
class Array:
    at: int
    elements: tuple[Expression, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Tuple:
    at: int
    elements: tuple[Expression, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Subscript:
    """`sequence[index]`"""

    at: int
    sequence: Expression
    index: Expression


@dataclass(frozen=True, eq=False, slots=True)
class Range:
    """`sequence[begin:end]`, either of them left out or not."""

    at: int
    sequence: Expression
    begin: Expression | None
    end: Expression | None


@dataclass(frozen=True, eq=False, slots=True)
class Unary:
    at: int
    operator: str
    operand: Expression


@dataclass(frozen=True, eq=False, slots=True)
class Binary:
    """`left operator right`; `sign` is the location of the operator, `at` that of the left side."""

    at: int
    operator: str
    left: Expression
    right: Expression
    sign: int


@dataclass(frozen=True, eq=False, slots=True)
class Select:
    """`value if condition else otherwise`"""

    at: int
    value: Expression
    condition: Expression
    otherwise: Expression


@dataclass(frozen=True, eq=False, slots=True)
class Iterator:
    """`target in sequence`, in a comprehension."""

    at: int
    target: Target
    sequence: Expression


@dataclass(frozen=True, eq=False, slots=True)
class Comprehension:
    """`[for iterators if condition yield element]`; in the provisional dialect `[element for iterators if
    condition]`."""

    at: int
    iterators: tuple[Iterator, ...]
    condition: Expression | None
    element: Expression


@dataclass(frozen=True, eq=False, slots=True)
class Builtin:
    """`shape_of`, `length_of`, `range_of`, or a cast: `integer`, `scalar`, `logical`, `string`."""

    at: int
    name: str
    argument: Expression


@dataclass(frozen=True, eq=False, slots=True)
class Argument:
    """An argument of an invocation, by position if `name` is None."""

    at: int
    name: str | None
    value: Expression


@dataclass(frozen=True, eq=False, slots=True)
class Invocation:
    """`name<content>(arguments)`; `content` is None if not written."""

    at: int
    name: str
    content: str | None
    arguments: tuple[Argument, ...]


Expression: TypeAlias = (
    Literal
    | Identifier
    | Array
    | Tuple
    | Subscript
    | Range
    | Unary
    | Binary
    | Select
    | Comprehension
    | Builtin
    | Invocation
)
Target: TypeAlias = Identifier | Array | Tuple
"""The left side of an assignment: only identifiers, arrays and tuples, all the way down."""


@dataclass(frozen=True, eq=False, slots=True)
class Assignment:
    """`target = value`; `at` is the location of the target."""

    at: int
    target: Target
    value: Expression


@dataclass(frozen=True, eq=False, slots=True)
class Parameter:
    """A formal parameter; `default` is a literal expression or None."""

    at: int
    name: str
    type: Type
    default: Expression | None


@dataclass(frozen=True, eq=False, slots=True)
class Result:
    at: int
    name: str
    type: Type


@dataclass(frozen=True, eq=False)
class Fragment:
    """A declaration and, unless `body` is None, its definition. `end` is the location of the closing brace."""

    source: Source
    at: int
    name: str
    generic: bool
    generic_default: str | None
    parameters: tuple[Parameter, ...]
    results: tuple[Result, ...]
    body: tuple[Assignment, ...] | None
    end: int


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph definition. `end` is the location of the closing brace."""

    at: int
    name: str
    inputs: tuple[Identifier, ...]
    outputs: tuple[Identifier, ...]
    body: tuple[Assignment, ...]
    end: int


@dataclass(frozen=True, eq=False, slots=True)
class Extension:
    at: int
    name: str
    options: tuple[str, ...]


_PROPERTIES = "tract_core_properties"


@dataclass(frozen=True, eq=False)
class Document:
    """A whole document, its grammar checked, its meaning not yet."""

    source: Source
    dialect: Dialect
    extensions: tuple[Extension, ...]
    fragments: tuple[Fragment, ...]
    graphs: tuple[Graph, ...]

    @property
    def is_dynamic(self) -> bool:
        """Whether it is in tract's dialect, distinguished by its extensions and by the fragment of its properties."""
        names = [extension.name for extension in self.extensions]
        return any(name.startswith("tract_") for name in names) or any(f.name == _PROPERTIES for f in self.fragments)


def parts_of(part: object) -> Generator[object, None, None]:
    """All nodes of a part of the tree, or of several, themselves too."""
    waiting = [part]
    while waiting:
        node = waiting.pop()
        if isinstance(node, tuple):
            waiting.extend(node)
        elif is_dataclass(node):
            yield node
            waiting.extend(getattr(node, element.name) for element in fields(node))


def rewritten(part: _Part, change: Callable[[Any], Any]) -> _Part:
    """A part of the tree, or several, with what `change` makes of each node, then of those in it.

    It is the same where nothing changes. As deep as the tree: see `call_with_deep_stack`.
    """
    if isinstance(part, tuple):
        parts: Any = tuple(rewritten(each, change) for each in part)
        return part if all(one is other for one, other in zip(part, parts, strict=True)) else parts
    if not is_dataclass(part):
        return part
    node = change(part)
    changed = {
        element.name: made
        for element in fields(node)
        if (made := rewritten(getattr(node, element.name), change)) is not getattr(node, element.name)
    }
    result: _Part = replace(node, **changed) if changed else node
    return result


def identifiers_of(target: Target) -> list[Identifier]:
    """The identifiers of a target, from left to right."""
    if isinstance(target, Identifier):
        return [target]
    return [identifier for element in target.elements for identifier in identifiers_of(element)]  # type: ignore[arg-type]
