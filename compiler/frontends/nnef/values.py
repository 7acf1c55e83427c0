"""Compile-time values of a document's parameters and expressions."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, TypeAlias

from nnefc.support.diagnostics import Location

__all__ = [
    "MAX_RESULTS",
    "MISSING",
    "Arguments",
    "Missing",
    "Shape",
    "ShapeError",
    "Shapes",
    "Tensor",
    "Value",
    "shape_of",
]


@dataclass(frozen=True, eq=False)
class Tensor:
    """A tensor of a flattened graph; tensors are compared by identity.

    `content` is "scalar", "integer" or "logical". `location` is the location of the invocation that makes it.
    """

    name: str
    content: str
    shape: tuple[int, ...]
    location: Location


Value: TypeAlias = "int | float | bool | str | list[Any] | tuple[Any, ...] | Tensor"
"""`integer`, `scalar`, `logical`, `string`, arrays (list), tuples, tensors. Elements are Values again."""

Shape: TypeAlias = tuple[int, ...]
Shapes: TypeAlias = Shape | list[Shape] | Mapping[str, Shape | list[Shape]]
"""The result of a shape rule: a shape, or a list of shapes for a `tensor[]`; by name if there are several results."""


MAX_RESULTS: Final = 100_000
"""The maximum number of results of an invocation; shape rules check it where an attribute sets the number."""


class Missing(Enum):
    """The type of `MISSING`, which stands for the default of a parameter that has none."""

    MISSING = "missing"


MISSING: Final = Missing.MISSING


class ShapeError(Exception):
    """Arguments of an operation that do not fit together.

    Raised by shape rules; the caller of the operation adds the location. `parameter` names the culprit, if there is
    one.
    """

    def __init__(self, message: str, parameter: str | None = None, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.parameter = parameter
        self.hint = hint


def shape_of(value: Value) -> Shape:
    """The shape of a tensor; of a primitive value that stands for a tensor, `()`."""
    return value.shape if isinstance(value, Tensor) else ()


class Arguments(Mapping[str, Any]):
    """The arguments of one invocation, defaults filled in, in the order of the declaration.

    `args.stride` and `args["stride"]` are the same; the second form is for names that Python reserves (`lambda`).
    `args.content` is the name of the type that `?` stands for ("" if the operation is not generic).
    """

    __slots__ = ("_values", "content")

    def __init__(self, values: Mapping[str, Value], content: str = "") -> None:
        self._values = values
        self.content = content

    def __getattr__(self, name: str) -> Any:
        try:
            return self._values[name]
        except KeyError:
            raise AttributeError(f"no parameter {name!r} among {', '.join(self._values)}") from None

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)
