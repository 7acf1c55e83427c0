"""Types of the NNEF language and the implicit conversions between them (section 3.3.2 of the standard)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

__all__ = [
    "EMPTY_ARRAY",
    "INTEGER",
    "LOGICAL",
    "SCALAR",
    "STRING",
    "ArrayType",
    "Dialect",
    "GenericType",
    "PrimitiveType",
    "TensorType",
    "TupleType",
    "Type",
    "common_type",
    "convertible",
    "has_tensor",
    "spell",
    "substitute",
]


class Dialect(Enum):
    """The two languages called NNEF 1.0: the provisional one of 2017 and the final one."""

    PROVISIONAL = "provisional"
    FINAL = "final"


@dataclass(frozen=True)
class PrimitiveType:
    """`integer` (`extent` in the provisional dialect), `scalar`, `logical` or `string`."""

    name: str


INTEGER = PrimitiveType("integer")
SCALAR = PrimitiveType("scalar")
LOGICAL = PrimitiveType("logical")
STRING = PrimitiveType("string")


@dataclass(frozen=True)
class GenericType:
    """`?`: the primitive type that an invocation of a generic operation chooses."""


@dataclass(frozen=True)
class TensorType:
    """A tensor. `content` is "scalar", "integer", "logical", "?" (generic) or "" (any: `tensor<>`)."""

    content: str


@dataclass(frozen=True)
class ArrayType:
    """An array of any length. `element` is None only in the type of `[]`, which fits every array type."""

    element: Type | None


@dataclass(frozen=True)
class TupleType:
    """A tuple of two or more elements."""

    elements: tuple[Type, ...]


Type: TypeAlias = PrimitiveType | GenericType | TensorType | ArrayType | TupleType

EMPTY_ARRAY = ArrayType(None)


def spell(type_: Type, dialect: Dialect = Dialect.FINAL) -> str:
    """The type in the dialect's own spelling, for messages and printed documents."""
    match type_:
        case PrimitiveType("integer") if dialect is Dialect.PROVISIONAL:
            return "extent"
        case PrimitiveType(name):
            return name
        case GenericType():
            return "?"
        case TensorType("scalar") if dialect is Dialect.PROVISIONAL:
            return "tensor"
        case TensorType("integer") if dialect is Dialect.PROVISIONAL:
            return "tensor<extent>"
        case TensorType(content):
            return f"tensor<{content}>"
        case ArrayType(element):
            return "[]" if element is None else f"{spell(element, dialect)}[]"
        case TupleType(elements):
            return f"({', '.join(spell(element, dialect) for element in elements)})"


def substitute(type_: Type, content: str) -> Type:
    """`type_` with every `?` replaced by the primitive type named `content`; "?" leaves it as it is."""
    match type_:
        case _ if content == "?":
            return type_
        case GenericType():
            return PrimitiveType(content)
        case TensorType("?"):
            return TensorType(content)
        case ArrayType(element) if element is not None:
            return ArrayType(substitute(element, content))
        case TupleType(elements):
            return TupleType(tuple(substitute(element, content) for element in elements))
        case _:
            return type_


def has_tensor(type_: Type) -> bool:
    """Returns whether a value of the type holds tensors: only such parameters may be given by position."""
    match type_:
        case TensorType():
            return True
        case ArrayType(element) if element is not None:
            return has_tensor(element)
        case TupleType(elements):
            return any(has_tensor(element) for element in elements)
        case _:
            return False


def convertible(source: Type, target: Type) -> bool:
    """Returns whether a value of type `source` may stand where `target` is expected, without an explicit cast.

    A primitive value may stand for a tensor of the same content, any array literal `[]` for any array, and arrays and
    tuples convert element by element. There is no conversion between primitive types.
    """
    match source, target:
        case PrimitiveType(name), TensorType(content):
            return name == content or (content == "" and name != "string")
        case GenericType(), TensorType(content):
            return content in ("?", "")
        case TensorType(), TensorType(content):
            return content == "" or source == target
        case ArrayType(element), ArrayType(expected):
            return element is None or (expected is not None and convertible(element, expected))
        case TupleType(elements), TupleType(expected_elements):
            return len(elements) == len(expected_elements) and all(map(convertible, elements, expected_elements))
        case _:
            return source == target


def common_type(types: Iterable[Type]) -> Type | None:
    """The type that all of `types` convert to, or None. Of no types it is None too: ask `EMPTY_ARRAY` instead."""
    common: Type | None = None
    for type_ in types:
        joined = type_ if common is None else _join(common, type_)
        if joined is None:
            return None
        common = joined
    return common


def _join(a: Type, b: Type) -> Type | None:
    """The smallest type that both convert to; arrays and tuples are joined element by element."""
    match a, b:
        case ArrayType(None), ArrayType():
            return b
        case ArrayType(), ArrayType(None):
            return a
        case ArrayType(x), ArrayType(y) if x is not None and y is not None:
            element = _join(x, y)
            return None if element is None else ArrayType(element)
        case TupleType(xs), TupleType(ys) if len(xs) == len(ys):
            elements = tuple(_join(x, y) for x, y in zip(xs, ys, strict=True))
            return (
                None if None in elements else TupleType(tuple(element for element in elements if element is not None))
            )
    if convertible(a, b):
        return b
    return a if convertible(b, a) else None
