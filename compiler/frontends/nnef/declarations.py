"""Declares operations: signature, shape rule, lowering and, for compounds, the standard's definition.

An operation is declared once, in NNEF's own syntax, around the function that lowers it:

    @operation(
        "fragment relu(x: tensor<scalar>) -> (y: tensor<scalar>)",
        shape=lambda args: shape_of(args.x),
        definition="y = max(x, 0.0);",
    )
    def relu(lowering, args): ...

Decorators stack: where the dialects differ in signature only, two declarations share one lowering.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias, TypeVar

from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.parser import parse_definition, parse_signature
from nnefc.frontends.nnef.language.signatures import Parameter, Result, Signature
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.frontends.nnef.values import MISSING, Arguments, Missing, Shape, ShapeError, Shapes, Tensor, Value, shape_of

__all__ = [
    "MISSING",
    "STANDARD",
    "Arguments",
    "Dialect",
    "Missing",
    "Operation",
    "Parameter",
    "Registry",
    "Result",
    "Shape",
    "ShapeError",
    "Shapes",
    "Signature",
    "Tensor",
    "Value",
    "nearest_name",
    "operation",
    "shape_of",
]

Lower: TypeAlias = Callable[..., Any]
ShapeRule: TypeAlias = Callable[[Arguments], Shapes]
_Function = TypeVar("_Function", bound=Lower)

BOTH: frozenset[Dialect] = frozenset(Dialect)


_DECLARED_NAME = re.compile(r"\s*fragment\s+([A-Za-z_]\w*)", re.ASCII)


@dataclass(frozen=True, eq=False)
class Operation:
    """An operation of the standard in one or both dialects.

    Attributes:
        declaration: the signature's text; `signature` parses it when first asked.
        shape: computes the shapes of the results, raises `ShapeError`.
        lower: builds the operation; called by the lowering, never by the language.
        definition: the statements of the standard's body (without braces) for compounds, else None.
        target: what the lowering emits, for the documentation.
        limits: what the lowering refuses, or decides where the standard is silent, for the documentation.
    """

    declaration: str
    dialects: frozenset[Dialect]
    shape: ShapeRule
    lower: Lower
    definition: str | None = None
    target: str = ""
    limits: str = ""

    @property
    def name(self) -> str:
        """The operation's name, without parsing the rest."""
        match = _DECLARED_NAME.match(self.declaration)
        if match is None:
            raise ValueError(f"not a declaration: {self.declaration!r}")
        return match.group(1)

    @property
    def kind(self) -> Literal["primitive", "compound"]:
        """Whether the standard gives the meaning in words or as a composition of other operations."""
        return "primitive" if self.definition is None else "compound"

    @cached_property
    def signature(self) -> Signature:
        """The parsed declaration. Both spellings of the types are understood in either dialect."""
        dialect = Dialect.FINAL if Dialect.FINAL in self.dialects else Dialect.PROVISIONAL
        return parse_signature(self.declaration, dialect)

    def defined(self, dialect: Dialect) -> syntax.Fragment:
        """The standard's definition of a compound operation, as if the document had written it."""
        assert self.definition is not None
        return parse_definition(self.name, self.declaration, self.definition, dialect)


class Registry:
    """Operations by name and dialect."""

    def __init__(self, operations: Iterable[Operation] = ()) -> None:
        self._operations: dict[tuple[str, Dialect], Operation] = {}
        for operation_ in operations:
            self.register(operation_)

    def register(self, operation_: Operation) -> None:
        """Add an operation; a second one of the same name and dialect is a `ValueError`."""
        for dialect in operation_.dialects:
            key = (operation_.name, dialect)
            if key in self._operations:
                raise ValueError(f"operation {operation_.name!r} is declared twice for the {dialect.value} dialect")
            self._operations[key] = operation_

    def lookup(self, name: str, dialect: Dialect) -> Operation | None:
        """The operation of that name in the dialect, or None."""
        return self._operations.get((name, dialect))

    def nearest(self, name: str, dialect: Dialect) -> str | None:
        """The dialect's operation whose name is most like `name`, or None if none is alike."""
        return nearest_name(name, [known for known, of in self._operations if of is dialect])

    def __iter__(self) -> Iterator[Operation]:
        """Every operation once, in the order of registration."""
        return iter(dict.fromkeys(self._operations.values()))


STANDARD = Registry()
"""The operations of the standard: filled by importing `nnefc.frontends.nnef.operations`."""


def operation(
    text: str,
    *,
    shape: ShapeRule,
    dialects: Collection[Dialect] = BOTH,
    definition: str | None = None,
    target: str = "",
    limits: str = "",
    registry: Registry = STANDARD,
) -> Callable[[_Function], _Function]:
    """Declare an operation around the function that lowers it; the function itself is returned unchanged.

    Args:
        text: `fragment name<? = scalar>(x: tensor<?>, …) -> (y: tensor<?>)`, in either dialect's spelling.
        shape: see `Shapes` for what it returns.
        dialects: where the declaration holds.
        definition: the standard's statements, for compounds; what they call are operations of the same dialect.
        target: what the lowering emits, for the documentation.
        limits: what it refuses, or decides where the standard is silent, for the documentation.
    """

    def declare(function: _Function) -> _Function:
        registry.register(Operation(text, frozenset(dialects), shape, function, definition, target, limits))
        return function

    return declare


def nearest_name(name: str, known: Iterable[str]) -> str | None:
    """The name among `known` most like `name`, for hints, or None."""
    matches = difflib.get_close_matches(name[:100], list(known), n=1)
    return matches[0] if matches else None
