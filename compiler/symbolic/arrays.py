"""Computes with small arrays whose elements depend on dynamic dimensions, at compile time.

    shape of x                   [n, 3, h, w]
    shape of x, 2 to 4, // 2     [h // 2, w // 2]

An element is a number, a `Size`, a `Quotient` or a `Condition`, in a NumPy array of objects. NumPy moves such elements
like others; this module has the arithmetic that operators of all formats need.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from nnefc.symbolic.dims import Size, bounds, greatest, may_exceed, minimum
from nnefc.symbolic.values import (
    Condition,
    Quotient,
    both,
    chosen,
    each_choice,
    either,
    elementwise,
    equal,
    less,
    less_or_equal,
    negated,
    quotient,
    rounded,
    truncated,
    whole_quotient,
)

__all__ = ["ELEMENTWISE", "Array", "converted", "is_dynamic", "of_elements", "reduced"]

Array: TypeAlias = npt.NDArray[Any]

_MAX_FACTORS = 62
"""Maximum exponent of a power: larger powers exceed 64 bits, except for those of 0 and 1."""


def of_elements(elements: Sequence[Any], shape: Sequence[int]) -> Array:
    """Returns an array of objects."""
    made = np.empty(len(elements), object)
    made[:] = list(elements)
    return made.reshape(tuple(shape))


def is_dynamic(array: Array) -> bool:
    """Return whether an array has elements that are known at run time only."""
    if array.dtype != object:
        return False
    return any(
        isinstance(element, Size | Condition) or (isinstance(element, Quotient) and not element.is_known)
        for element in array.reshape(-1)
    )


def converted(array: Array, dtype: str) -> Array:
    """Return an array converted to another element type: booleans, reals, or integers, rounded towards zero."""

    def truth(element: Any) -> Any:
        return element if isinstance(element, bool | Condition) else negated(equal(element, 0))

    def real(element: Any) -> Any:
        return element if isinstance(element, Quotient) else quotient(integer(element))

    def integer(element: Any) -> Any:
        match element:
            case Quotient():
                return truncated(element)
            case Condition():
                return element.size
            case bool():
                return int(element)
        return element

    made: Array = elementwise(truth if dtype == "bool" else real if "float" in dtype else integer)(array)
    return made


def reduced(function: Callable[[Any, Any], Any], array: Array, axes: Iterable[int], keepdims: bool = True) -> Array:
    """Returns an array reduced along axes by a function of two elements."""
    joined = np.frompyfunc(function, 2, 1, identity=_IDENTITIES.get(function))
    for axis in sorted((number % array.ndim for number in axes), reverse=True):
        array = np.asarray(joined.reduce(array, axis, keepdims=keepdims), object)
    return array


_IDENTITIES: Mapping[Callable[[Any, Any], Any], int] = {operator.add: 0, operator.mul: 1}
"""Results of reductions over no elements."""


def _is_real(*elements: Any) -> bool:
    return any(isinstance(element, Quotient | float) for element in elements)


def _promoted(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a function of two numbers that converts both to quotients if one of them is real."""

    def element(one: Any, other: Any) -> Any:
        if _is_real(one, other):
            return function(quotient(one), quotient(other))
        return each_choice(function, one, other)

    return element


def _divided(one: Any, other: Any) -> Any:
    """Divide integers with rounding towards zero, which is floor division if neither is negative."""
    if _is_real(one, other):
        return quotient(one) / quotient(other)
    return whole_quotient(one, other)


def _remainder(one: Any, other: Any) -> Any:
    """Return the remainder with the sign of the divisor, which must not be 0."""
    dividend, divisor = _dividend_and_divisor(one, other, False)
    return dividend - divisor * quotient((dividend / divisor).floor) if _is_real(one, other) else one % other


def _truncated_remainder(one: Any, other: Any) -> Any:
    """Return the remainder with the sign of the dividend; it is known only if neither is negative."""
    _dividend_and_divisor(one, other, True)
    return _remainder(one, other)


def _dividend_and_divisor(one: Any, other: Any, truncates: bool) -> tuple[Quotient, Quotient]:
    dividend, divisor = quotient(one), quotient(other)
    lower, upper = bounds(divisor.above)
    if lower <= 0 <= upper or (truncates and (lower < 0 or may_exceed(0, dividend.above))):
        raise ValueError("the remainder depends on a sign, or a size that may be 0 is divided by")
    return dividend, divisor


def _power(one: Any, other: Any) -> Any:
    exponent = float(other) if isinstance(other, Quotient) else other
    if not 0 <= int(exponent) <= _MAX_FACTORS or int(exponent) != exponent:
        raise ValueError("only powers of sizes by small positive integers are sizes")
    return reduce(operator.mul, [one] * int(exponent), quotient(1) if isinstance(one, Quotient) else 1)


def _negative(element: Any) -> Any:
    return each_choice(operator.mul, element, -1) if isinstance(element, Size) else -element


def _larger(one: Any, other: Any) -> Any:
    return chosen(less(one, other), other, one) if _is_real(one, other) else greatest(one, other)


def _smaller(one: Any, other: Any) -> Any:
    return chosen(less(one, other), one, other) if _is_real(one, other) else minimum(one, other)


def _to_integer(function: Callable[[Quotient], Any]) -> Callable[[Any], Any]:
    """Return a function that converts reals to integral reals, and returns other numbers unchanged."""

    def element(value: Any) -> Any:
        return quotient(function(quotient(value))) if _is_real(value) else value

    return element


ELEMENTWISE: Mapping[str, Callable[..., Any]] = {
    "add": _promoted(operator.add),
    "sub": _promoted(operator.sub),
    "mul": _promoted(operator.mul),
    "div": _divided,
    "mod": _remainder,
    "fmod": _truncated_remainder,
    "pow": _power,
    "neg": _negative,
    "abs": lambda x: _larger(x, -x),
    "max": _larger,
    "min": _smaller,
    "floor": _to_integer(lambda x: x.floor),
    "ceil": _to_integer(lambda x: -(-x).floor),
    "round": _to_integer(rounded),
    "eq": equal,
    "ne": lambda x, y: negated(equal(x, y)),
    "lt": less,
    "le": less_or_equal,
    "gt": lambda x, y: less(y, x),
    "ge": lambda x, y: less_or_equal(y, x),
    "not": negated,
    "and": both,
    "or": either,
    "select": chosen,
}
"""Functions of elements, by name."""
