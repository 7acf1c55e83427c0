"""Evaluates operators and casts on compile-time values (section 3.3.3).

Types are checked before (see `inference`); what is left to go wrong depends on the values: division by zero, results
out of range, strings that do not parse as numbers. These are `ArithmeticProblem`.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable
from typing import Any

from nnefc.frontends.nnef.language.tree_builder import MAX_INTEGER
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.symbolic.dims import Size, bounds
from nnefc.symbolic.values import equal

__all__ = ["ELEMENTS_A_STEP", "MAX_ELEMENTS", "ArithmeticProblem", "binary", "cast", "unary"]

MAX_ELEMENTS = 1 << 22
"""Arrays and strings made at compile time are no longer than this."""

ELEMENTS_A_STEP = 8
"""Elements of an array that are made, taken apart or compared in the time of one expression."""


class ArithmeticProblem(Exception):
    """A value that an operator or a cast cannot work on; the message says why."""


def unary(sign: str, value: Any) -> Any:
    """`-`, `+` or `!` of a value."""
    match sign:
        case "-":
            return _checked(-value)
        case "!":
            return not value
        case _:
            return value


def binary(sign: str, left: Any, right: Any) -> Any:
    """A binary operator other than the lazy `&&` and `||`."""
    return _BINARY[sign](left, right)


def cast(name: str, value: Any, dialect: Dialect) -> Any:
    """A value as `integer`, `scalar`, `logical` or `string`.

    An integer from a scalar is the next smaller one in the provisional dialect, by its standard's words; the final
    dialect cuts off the fraction.
    """
    match name, value:
        case "integer", str():
            if not re.fullmatch(r"[+-]?[0-9]{1,20}", value):
                raise ArithmeticProblem(f"the string {_shown(value)} is not an integer")
            return _checked(int(value))
        case "integer", float():
            return _checked(math.floor(value) if dialect is Dialect.PROVISIONAL else math.trunc(value))
        case "integer", Size():
            return value
        case "integer", _:
            return int(value)
        case "scalar", str():
            if len(value) > 1000 or not re.fullmatch(r"[+-]?[0-9]+(\.[0-9]*)?([eE][+-]?[0-9]+)?", value):
                raise ArithmeticProblem(f"the string {_shown(value)} is not a number")
            return _checked(float(value))
        case "scalar", _:
            return float(value)
        case "logical", _:
            return bool(value)
        case "string", bool():
            return "true" if value else "false"
        case "string", Size():
            raise ArithmeticProblem(f"the size {value} is known when the network runs: give it with --shape")
        case "string", _:
            return str(value)
    raise TypeError(f"not a cast: {name}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def _checked(value: Any) -> Any:
    """The value itself, if a 64-bit integer or a finite scalar."""
    if type(value) is int and not -MAX_INTEGER - 1 <= value <= MAX_INTEGER:
        raise ArithmeticProblem("the integer is out of range")
    if type(value) is float and not math.isfinite(value):
        raise ArithmeticProblem("the scalar is out of range")
    return value


def _number(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def checked(left: Any, right: Any) -> Any:
        return _checked(function(left, right))

    return checked


def _add(left: Any, right: Any) -> Any:
    if isinstance(left, list | str) and len(left) + len(right) > MAX_ELEMENTS:
        raise ArithmeticProblem(f"the result has more than {MAX_ELEMENTS} elements")
    return _checked(left + right)


def _multiply(left: Any, right: Any) -> Any:
    if isinstance(left, list | str):
        if right < 0:
            raise ArithmeticProblem(f"the number of repetitions is negative: {right}")
        if len(left) * right > MAX_ELEMENTS:
            raise ArithmeticProblem(f"the result has more than {MAX_ELEMENTS} elements")
    return _checked(left * right)


def _divide(left: Any, right: Any) -> Any:
    """Integers divide towards zero."""
    if not isinstance(right, Size) and right == 0:
        raise ArithmeticProblem("division by zero")
    if isinstance(left, Size) or isinstance(right, Size):
        if min(bounds(left)[0], bounds(right)[0]) < 0:
            raise ArithmeticProblem("a size that is known at run time is divided as a number that may be negative")
        return left // right
    if isinstance(left, int):
        quotient = abs(left) // abs(right)
        return _checked(quotient if (left < 0) == (right < 0) else -quotient)
    return _checked(left / right)


def _power(left: Any, right: Any) -> Any:
    """Return the power; that of integers is an integer, rounded towards zero."""
    if left == 0 and right < 0:
        raise ArithmeticProblem("zero to a negative power")
    if isinstance(left, int):
        if right < 0:
            return left ** (right % 2) if abs(left) == 1 else 0
        if abs(left) > 1 and right > 64:
            raise ArithmeticProblem("the integer is out of range")
        return _checked(left**right)
    try:
        value = left**right
    except OverflowError:
        raise ArithmeticProblem("the scalar is out of range") from None
    if isinstance(value, complex):
        raise ArithmeticProblem("a negative scalar to a fractional power")
    return _checked(value)


def _equal(left: Any, right: Any) -> bool:
    if isinstance(left, list | tuple) and isinstance(right, list | tuple):
        return len(left) == len(right) and all(map(_equal, left, right))
    if not isinstance(left, Size) and not isinstance(right, Size):
        return bool(left == right)
    found = equal(left, right) if all(isinstance(side, Size | int) for side in (left, right)) else None
    if not isinstance(found, bool):
        raise ArithmeticProblem(
            f"whether {left} and {right} are equal depends on a size that is known when the network runs: "
            "give it with --shape"
        )
    return found


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": _add,
    "-": _number(operator.sub),
    "*": _multiply,
    "/": _divide,
    "^": _power,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
    "==": _equal,
    "!=": lambda left, right: not _equal(left, right),
    "in": lambda left, right: any(_equal(left, element) for element in right),
}
