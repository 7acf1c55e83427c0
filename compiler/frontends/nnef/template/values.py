"""The values of templates: how they are written, compared and calculated with, and what limits them.

Values are None, truth values, integers of 128 bits, floats, strings, lists, maps, and what is undefined. Maps keep
their order.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

__all__ = [
    "MAX_ITEMS",
    "UNDEFINED",
    "Budget",
    "Namespace",
    "Refused",
    "Undefined",
    "calculated",
    "items_of",
    "truth",
    "written",
]

MAX_ITEMS = 1 << 22
"""Of a string or a list that a template makes."""
_MOST_INTEGER = 1 << 127
_MAX_NESTING = 100


class Refused(Exception):
    """Something that values cannot do; who evaluates adds the place."""


class Undefined:
    """The value of names that nothing is said of: false, without items, written as nothing."""

    def __repr__(self) -> str:
        return "undefined"


UNDEFINED = Undefined()


@dataclass(eq=False)
class Namespace:
    """What `namespace()` makes: a map whose items statements inside loops can set."""

    items: dict[str, Any] = field(default_factory=dict)


@dataclass
class Budget:
    """How much a template may still evaluate and write."""

    steps: int
    characters: int

    def spend(self, steps: int) -> None:
        """Take from the steps.

        Raises:
            Refused: there are none.
        """
        self.steps -= steps
        if self.steps < 0:
            raise Refused("the template takes too many steps")

    def weigh(self, *values: Any) -> None:
        """Take a step for each item that values have, at all depths: work on them then takes no longer.

        Raises:
            Refused: there are none left, or lists are too deep in each other.
        """
        waiting = [(value, 0) for value in values]
        while waiting:
            value, depth = waiting.pop()
            items = value.items if isinstance(value, Namespace) else value
            if isinstance(items, list | dict):
                if depth > _MAX_NESTING:
                    raise Refused(f"lists are nested more than {_MAX_NESTING} deep")
                self.spend(1 + len(items))
                waiting += [(item, depth + 1) for item in (items.values() if isinstance(items, dict) else items)]

    def write(self, text: str) -> None:
        """Take a text from the characters, likewise."""
        self.characters -= len(text)
        if self.characters < 0:
            raise Refused("the template's text is too long")


def truth(value: Any) -> bool:
    """Whether a condition holds."""
    return not isinstance(value, Undefined) and bool(value.items if isinstance(value, Namespace) else value)


def written(value: Any, inside: bool = False) -> str:
    """A value as text; strings that are inside lists and maps are in quotes."""
    match value:
        case Undefined():
            return "undefined" if inside else ""
        case None:
            return "none"
        case bool():
            return "true" if value else "false"
        case float():
            return _float(value)
        case str():
            return json.dumps(value, ensure_ascii=False) if inside else value
        case list():
            return f"[{', '.join(written(item, inside=True) for item in value)}]"
        case dict():
            return f"{{{', '.join(f'{written(k, True)}: {written(v, True)}' for k, v in value.items())}}}"
        case Namespace():
            return written(value.items)
        case int():
            return str(value)
    raise Refused("a function has no text")


def _float(value: float) -> str:
    """As Rust writes it: always with a point, never with an exponent."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "inf" if value > 0 else "-inf"
    text = format(Decimal(repr(value)), "f")
    return text if "." in text else f"{text}.0"


def items_of(value: Any, budget: Budget) -> list[Any]:
    """The items of a list, the keys of a map, the characters of a string.

    Raises:
        Refused: there are none in such a value.
    """
    match value:
        case list():
            made = value
        case dict():
            made = list(value)
        case str():
            made = list(value)
        case Undefined():
            made = []
        case _:
            raise Refused(f"{kind_of(value)} has no items to go through")
    budget.spend(len(made))
    return made


def kind_of(value: Any) -> str:
    """What a value is, for messages."""
    kinds = {bool: "a truth value", int: "a number", float: "a number", str: "a string", list: "a list", dict: "a map"}
    return kinds.get(type(value), "none" if value is None else "undefined" if value is UNDEFINED else "a function")


def _number(value: Any) -> int | float:
    if isinstance(value, bool):
        return int(value)
    if not isinstance(value, int | float):
        raise Refused(f"{kind_of(value)} is no number")
    return value


def _in_range(value: Any) -> Any:
    if isinstance(value, int) and not -_MOST_INTEGER <= value < _MOST_INTEGER:
        raise Refused("the number is beyond 128 bits")
    return value


def _added(one: Any, other: Any) -> Any:
    if isinstance(one, str) and isinstance(other, str):
        return one + other
    if isinstance(one, list) and isinstance(other, list):
        return one + other
    return _number(one) + _number(other)


def _multiplied(one: Any, other: Any) -> Any:
    for some, count in ((one, other), (other, one)):
        if isinstance(some, str | list) and isinstance(count, int) and not isinstance(count, bool):
            if count < 0 or len(some) * count > MAX_ITEMS:
                raise Refused(f"{kind_of(some)} cannot be repeated {count} times")
            return some * count
    return _number(one) * _number(other)


def _power(one: Any, other: Any) -> Any:
    base, exponent = _number(one), _number(other)
    if isinstance(base, int) and isinstance(exponent, int):
        if exponent < 0:
            raise Refused("a power of an integer with a negative exponent")
        if abs(base) > 1 and exponent > 128:
            raise Refused("the number is beyond 128 bits")
    made = base**exponent
    if isinstance(made, complex):
        raise Refused("a power of a negative number with a fraction")
    return made


def _remainder(one: float, other: float) -> float:
    """Of integers the one that is not negative."""
    return one % abs(other) if isinstance(one, int) and isinstance(other, int) else math.fmod(one, other)


def _quotient(one: float, other: float) -> float:
    """The quotient that leaves a remainder which is not negative."""
    if isinstance(one, int) and isinstance(other, int):
        return (one - one % abs(other)) // other
    return math.copysign(1.0, other) * math.floor(one / abs(other))


def _contains(item: Any, of: Any) -> bool:
    if isinstance(of, str):
        return isinstance(item, str) and item in of
    if isinstance(of, list | dict):
        return any(equal(item, each) for each in of)
    if isinstance(of, Undefined):
        return False
    raise Refused(f"{kind_of(of)} contains nothing")


def equal(one: Any, other: Any) -> bool:
    """Whether two values are the same; truth values are no numbers."""
    if isinstance(one, bool) != isinstance(other, bool):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return bool(one == other)


def order(value: Any) -> tuple[int, Any]:
    """By what values are ordered: kinds first, then themselves."""
    match value:
        case Undefined() | None:
            return 0, 0
        case bool():
            return 1, value
        case int() | float():
            return 2, value
        case str():
            return 3, value
        case list():
            return 4, tuple(map(order, value))
    raise Refused(f"{kind_of(value)} has no order")


_CALCULATED: dict[str, Callable[[Any, Any], Any]] = {
    "+": _added,
    "-": lambda one, other: _number(one) - _number(other),
    "*": _multiplied,
    "/": lambda one, other: float(_number(one)) / _number(other),
    "//": lambda one, other: _quotient(_number(one), _number(other)),
    "%": lambda one, other: _remainder(_number(one), _number(other)),
    "**": _power,
    "~": lambda one, other: written(one) + written(other),
    "==": equal,
    "!=": lambda one, other: not equal(one, other),
    "<": lambda one, other: order(one) < order(other),
    "<=": lambda one, other: order(one) <= order(other),
    ">": lambda one, other: order(one) > order(other),
    ">=": lambda one, other: order(one) >= order(other),
    "in": _contains,
}


def calculated(sign: str, one: Any, other: Any, budget: Budget) -> Any:
    """The value of an operator.

    Raises:
        Refused: the operands are not what it takes, or the result is too large.
    """
    budget.weigh(one, other)
    try:
        made = _in_range(_CALCULATED[sign](one, other))
    except ZeroDivisionError:
        raise Refused("a number is divided by 0") from None
    except (OverflowError, TypeError):
        raise Refused(f"'{sign}' cannot be computed of these values") from None
    if isinstance(made, str | list):
        if len(made) > MAX_ITEMS:
            raise Refused(f"{kind_of(made)} of more than {MAX_ITEMS} items")
        budget.spend(len(made) >> 4)
    return made
