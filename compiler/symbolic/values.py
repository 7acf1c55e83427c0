"""Exact reals and booleans that models compute from dynamic dimensions.

    Floor(Cast(h) * 0.5)                                    a quotient, then an integer again
    Where(Equal(shape, -1), other, shape)                   a boolean

Reals are exact quotients of integers. A constant such as 0.3333333 is replaced by the nearest simple fraction.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
import tvm_ffi
from tvm import tirx

from nnefc.symbolic.dims import (
    Dimension,
    Range,
    Size,
    bounds,
    dimension,
    expression,
    greatest,
    is_known,
    is_never,
    known_less,
    known_ranges,
    may_exceed,
    range_of,
    ranges,
    variables,
)
from nnefc.symbolic.expressions import use_count
from nnefc.symbolic.prover import known

__all__ = [
    "Boolean",
    "Condition",
    "Quotient",
    "all_hold",
    "both",
    "choice_of",
    "chosen",
    "depends_on_data",
    "each_choice",
    "either",
    "elementwise",
    "equal",
    "integer_parts",
    "is_negative_unless",
    "less",
    "less_or_equal",
    "negated",
    "possible_ranges",
    "quotient",
    "rounded",
    "single_size",
    "truncated",
    "whole_quotient",
]

_SIMPLE = 1024
"""Maximum denominator of the fraction that replaces a constant."""
_FEW_USES = 4
"""Maximum uses of dynamic dimensions in a dividend that is duplicated if it may be negative, so that ranges simplify
the result.
"""


@dataclass(frozen=True, eq=False)
class Quotient:
    """The exact real number `above / below`; `below` is greater than 0."""

    above: Dimension
    below: Dimension

    def __add__(self, other: Quotient) -> Quotient:
        return _reduced(self.above * other.below + other.above * self.below, self.below * other.below)

    def __sub__(self, other: Quotient) -> Quotient:
        return self + -other

    def __neg__(self) -> Quotient:
        return Quotient(-self.above, self.below)

    def __mul__(self, other: Quotient) -> Quotient:
        return _reduced(self.above * other.above, self.below * other.below)

    def __truediv__(self, other: Quotient) -> Quotient:
        if bounds(other.above)[0] > 0:
            return _reduced(self.above * other.below, self.below * other.above)
        if bounds(other.above)[1] < 0:
            return _reduced(-self.above * other.below, -self.below * other.above)
        raise ValueError("a size that may be 0 is divided by")

    def __float__(self) -> float:
        return float(Fraction(self.above, self.below))

    @property
    def is_known(self) -> bool:
        """Whether it is a number at compile time."""
        return is_known(self.above, self.below)

    @property
    def floor(self) -> Dimension:
        """Return the largest integer that is not greater."""
        return self.above // self.below


def _reduced(above: Dimension, below: Dimension) -> Quotient:
    if is_known(above, below):
        return Quotient(*Fraction(above, below).as_integer_ratio())
    whole = above // below
    return Quotient(whole, 1) if below != 1 and whole * below == above else Quotient(above, below)


def quotient(value: Any) -> Quotient:
    """Convert a number, a size or a quotient to a quotient."""
    if isinstance(value, Quotient):
        return value
    if isinstance(value, int | Size | np.integer):
        return Quotient(dimension(value if isinstance(value, Size) else int(value)), 1)
    exact = Fraction(float(value))
    simple = exact.limit_denominator(_SIMPLE)
    close = np.float32(float(simple)) == np.float32(value)
    return Quotient(*(simple if close else exact).as_integer_ratio())


def truncated(value: Quotient) -> Dimension:
    """Round towards zero."""
    return whole_quotient(value.above, value.below)


def whole_quotient(one: Dimension, other: Dimension) -> Dimension:
    """Return the quotient of integers, rounded towards zero, which is floor division if neither is negative."""
    minimum, maximum = bounds(other)
    if minimum <= 0 <= maximum:
        raise ValueError("a size that may be 0 is divided by")
    if maximum < 0:
        return -whole_quotient(one, -other)
    if not may_exceed(0, one) or use_count(expression(one)) <= _FEW_USES:
        return greatest(one, 0) // other - greatest(-one, 0) // other
    return dimension(tirx.truncdiv(expression(one), expression(other)))


def rounded(value: Quotient) -> Dimension:
    """Round to the nearest integer, ties to even."""
    twice, double = 2 * value.above + value.below, 2 * value.below
    near = twice // double
    if is_known(near, twice, double):
        return near - (twice % double == 0 and near % 2)
    tie = both(equal(twice % double, 0), equal(near % 2, 1))
    made: Dimension = chosen(tie, near - 1, near)
    return made


@dataclass(frozen=True, eq=False)
class Condition:
    """A boolean that depends on sizes, as an expression of TVM."""

    expr: tirx.Expr

    def __bool__(self) -> bool:
        raise TypeError("only a run knows whether a condition on sizes holds")

    @property
    def size(self) -> Dimension:
        """1 or 0."""
        return dimension(tirx.Select(self.expr, expression(1), expression(0)))


Boolean: TypeAlias = "bool | Condition"


def _sides(one: Any, other: Any) -> tuple[Dimension, Dimension]:
    """Return two integers whose comparison gives the same result as that of two numbers."""
    if not isinstance(one, Quotient) and not isinstance(other, Quotient):
        return one, other
    a, b = quotient(one), quotient(other)
    return a.above * b.below, b.above * a.below


def equal(one: Any, other: Any) -> Boolean:
    """Returns whether two numbers are equal."""
    a, b = _sides(one, other)
    minimum, maximum = bounds(a - b)
    if a == b or not minimum <= 0 <= maximum:
        return bool(a == b)
    return Condition(tirx.EQ(expression(a), expression(b)))


def less(one: Any, other: Any) -> Boolean:
    """Returns whether a number is less than another one."""
    a, b = _sides(one, other)
    if known_less(a, b):
        return True
    return Condition(expression(a) < expression(b)) if may_exceed(b, a) else False


def less_or_equal(one: Any, other: Any) -> Boolean:
    """Returns whether a number is not greater than another one."""
    return negated(less(other, one))


def negated(truth: Boolean) -> Boolean:
    """Return the negation."""
    return Condition(tirx.Not(truth.expr)) if isinstance(truth, Condition) else not truth


def both(one: Boolean, other: Boolean) -> Boolean:
    """Returns whether both hold."""
    if isinstance(one, Condition) and isinstance(other, Condition):
        return Condition(tirx.And(one.expr, other.expr))
    known, left = (other, one) if isinstance(one, Condition) else (one, other)
    return left if known else False


def all_hold(booleans: Iterable[Boolean]) -> Boolean:
    """Returns whether each of them holds."""
    made: Boolean = True
    for truth in booleans:
        made = both(made, truth)
    return made


def possible_ranges(truth: Boolean) -> dict[str, Range]:
    """Return for each dynamic dimension in a boolean, by name, a range outside of which the boolean is false."""
    if not isinstance(truth, Condition):
        return {}
    ranges_of = ((var, _possible_range(truth, var, range_of(var))) for var in variables(truth.expr))
    return {str(var.name): found for var, found in ranges_of if found.minimum <= found.maximum}


def depends_on_data(truth: Boolean) -> bool:
    """Returns whether a boolean depends on data-dependent sizes."""
    return isinstance(truth, Condition) and not known().data_dependent.isdisjoint(variables(truth.expr))


@dataclass(frozen=True)
class SingleSize:
    """The only size of a dynamic dimension for which a condition holds, or for which it does not hold."""

    name: str
    size: int
    holds: bool


def single_size(truth: Boolean) -> SingleSize | None:
    """Return that size, if a boolean depends on nothing else and the size is known before the run; else None."""
    if not isinstance(truth, Condition) or len(variables(truth.expr)) != 1 or depends_on_data(truth):
        return None
    (var,) = variables(truth.expr)
    for each, holds in ((truth, True), (negated(truth), False)):
        for name, values in possible_ranges(each).items():
            if values.minimum == values.maximum and range_of(var).minimum < range_of(var).maximum:
                return SingleSize(name, values.minimum * range_of(var).multiple, holds)
    return None


def _possible_range(truth: Condition, var: tirx.Var, own: Range) -> Range:
    def may_hold(minimum: int, maximum: int) -> bool:
        with ranges({**known_ranges(), var: replace(own, minimum=minimum, maximum=maximum, size_hint=minimum)}):
            return not is_never(truth.expr)

    upwards = range(own.minimum, own.maximum + 1)
    minimum = own.minimum + bisect_left(upwards, True, key=lambda maximum: may_hold(own.minimum, maximum))
    maximum = own.maximum - bisect_left(upwards[::-1], True, key=lambda first: may_hold(first, own.maximum))
    return replace(own, minimum=minimum, maximum=maximum, size_hint=max(minimum, min(maximum, own.size_hint)))


def chosen(truth: Boolean, one: Any, other: Any) -> Any:
    """Return `one` if a boolean holds, else `other`."""
    if not isinstance(truth, Condition):
        return one if truth else other
    if isinstance(one, Quotient) or isinstance(other, Quotient):
        a, b = quotient(one), quotient(other)
        return Quotient(chosen(truth, a.above, b.above), chosen(truth, a.below, b.below))
    if isinstance(one, bool | Condition):
        return either(both(truth, one), both(negated(truth), other))
    if one == other or _is_same_where_equal(truth.expr, one, other):
        return other
    return dimension(tirx.Select(truth.expr, expression(one), expression(other)))


def _is_same_where_equal(condition: tirx.Expr, one: Dimension, other: Dimension) -> bool:
    """Return whether a selection such as `n` where `c = 0`, else `n - c`, always equals its second value."""
    match condition:
        case tirx.EQ(a=a, b=b):
            apart, difference = dimension(a) - dimension(b), one - other
            return difference == apart or difference == -apart
    return False


def choice_of(value: Any) -> tuple[Condition, Dimension, Dimension] | None:
    """Return the condition and both values of a size that is a selection; the condition is an equality, never its
    negation.
    """
    if not isinstance(value, Size) or not isinstance(value.expr, tirx.Select):
        return None
    choice = value.expr
    one, other = dimension(choice.true_value), dimension(choice.false_value)
    match choice.condition:
        case tirx.NE(a=a, b=b) | tirx.Not(a=tirx.EQ(a=a, b=b)):
            return Condition(tirx.EQ(a, b)), other, one
    return Condition(choice.condition), one, other


def each_choice(function: Callable[[Any, Any], Any], one: Any, other: Any) -> Any:
    """Apply a function of two numbers to each value of operands that are selections by the same condition."""
    found = [choice_of(one), choice_of(other)]
    conditions = [each[0] for each in found if each is not None]
    if not conditions:
        return function(one, other)
    same, opposite = (known().simplified(condition) for condition in (conditions[0].expr, tirx.Not(conditions[0].expr)))
    pairs = []
    for value, choice in zip((one, other), found, strict=True):
        if choice is None:
            pairs.append((value, value))
        elif tvm_ffi.structural_equal(known().simplified(choice[0].expr), same):
            pairs.append(choice[1:])
        elif tvm_ffi.structural_equal(known().simplified(choice[0].expr), opposite):
            pairs.append(choice[:0:-1])
        else:
            return function(one, other)
    return chosen(conditions[0], *(function(*pair) for pair in zip(*pairs, strict=True)))


def is_negative_unless(condition: Condition, size: Dimension) -> bool:
    """Return whether a size is negative wherever a condition does not hold, an equality of two sizes whose
    difference it is.
    """
    match condition.expr:
        case tirx.EQ(a=a, b=b):
            apart = dimension(a) - dimension(b)
            return not may_exceed(size, 0) and (size == apart or size == -apart)
    return False


def either(one: Boolean, other: Boolean) -> Boolean:
    """Return whether at least one of two booleans holds."""
    return negated(both(negated(one), negated(other)))


def elementwise(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that applies `function` to the elements of arrays of objects, with broadcasting."""
    made = np.frompyfunc(function, function.__code__.co_argcount, 1)

    def whole(*arrays: Any) -> Any:
        return np.asarray(made(*arrays), object)

    return whole


def integer_parts(elements: Any) -> list[Any]:
    """Return arrays of integers for an array: numerators and denominators of quotients, 1 and 0 for booleans, or its
    sizes.
    """
    if any(isinstance(element, Quotient) for element in elements.flat):
        return [elementwise(lambda q: q.above)(elements), elementwise(lambda q: q.below)(elements)]
    return [elementwise(_integer)(elements)]


def _integer(element: Any) -> Dimension:
    """Return a size, or 1 and 0 for a boolean."""
    if isinstance(element, Condition):
        return element.size
    return element if isinstance(element, Size) else int(element)
