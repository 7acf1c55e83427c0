"""Functions of PNNX expressions: their operators in the library, their value on numbers, their infix notation."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

__all__ = ["FUNCTIONS", "ExpressionFunction", "TypeRule"]


class TypeRule(Enum):
    """How the element type of a result follows from the types of the arguments."""

    SAME = "the type that the arguments promote to"
    REAL = "the same, but integers become reals"
    COMPARISON = "booleans; the arguments meet in the type that they promote to"
    INTEGER = "the type that the arguments promote to, which is not a real one"
    LOGICAL = "booleans; the arguments count as true where they are not zero"
    CONVERSION = "a fixed type"
    SIZE = "numbers known at compile time"


@dataclass(frozen=True)
class ExpressionFunction:
    """A function of expressions.

    Attributes:
        fewest, maximum: min and max number of arguments.
        rule: how its result is typed.
        name: what the library calls it; of conversions the type that they give.
        number: the same of numbers.
        truth: whether it is defined for booleans.
        swapped: whether it is the library's function of its arguments in the other order.
        symbol, binding: how infix notation writes it, and how tightly that binds.
    """

    fewest: int
    maximum: int
    rule: TypeRule
    name: str
    number: Callable[..., Any]
    truth: bool = False
    swapped: bool = False
    symbol: str | None = None
    binding: int = 0


# Numbers.


def _whole_power(x: float, y: float) -> float:
    """Powers; integers that would leave 64 bits are refused before they are computed."""
    if isinstance(x, int) and isinstance(y, int):
        if abs(x) > 1 and y > 0 and (abs(x).bit_length() - 1) * y > 64:
            raise OverflowError
        if y < 0:
            return float(x) ** y
    result: float | complex = x**y
    if isinstance(result, complex):
        raise ValueError("no real number")
    return result


def _shifted(x: int, y: int) -> int:
    if not 0 <= y < 64:
        raise OverflowError
    return x << y


def _sign_number(x: float) -> float:
    return type(x)((x > 0) - (x < 0))


def _rounded(function: Callable[[float], float]) -> Callable[[float], float]:
    return lambda x: x if isinstance(x, int) else float(function(x)) if math.isfinite(x) else x


def _to_integer(function: Callable[[float], float]) -> Callable[[float], float]:
    """Functions that give integers in TorchScript, such as sizes."""
    return lambda x: int(function(x)) if math.isfinite(x) else x


def _of_one(name: str, number: Callable[..., Any], rule: TypeRule = TypeRule.REAL, **tail: Any) -> ExpressionFunction:
    return ExpressionFunction(1, 1, rule, name, number, **tail)


def _of_two(name: str, number: Callable[..., Any], rule: TypeRule = TypeRule.SAME, **tail: Any) -> ExpressionFunction:
    return ExpressionFunction(2, 2, rule, name, number, **tail)


def _infix(
    name: str, number: Callable[..., Any], symbol: str, binding: int, rule: TypeRule = TypeRule.SAME, truth: bool = True
) -> ExpressionFunction:
    return ExpressionFunction(2, 2, rule, name, number, truth, symbol=symbol, binding=binding)


def _prefix(name: str, number: Callable[..., Any], symbol: str, rule: TypeRule, truth: bool) -> ExpressionFunction:
    return ExpressionFunction(1, 1, rule, name, number, truth, symbol=symbol, binding=90)


def _compared(name: str, number: Callable[..., Any], symbol: str) -> ExpressionFunction:
    return _infix(name, number, symbol, 25, TypeRule.COMPARISON)


def _logical(name: str, count: int, number: Callable[..., Any]) -> ExpressionFunction:
    return ExpressionFunction(count, count, TypeRule.LOGICAL, name, number, truth=True)


def _conversion(dtype: str, number: Callable[..., Any]) -> ExpressionFunction:
    return _of_one(dtype, number, TypeRule.CONVERSION, truth=True)


def _log_add_exp(x: float, y: float) -> float:
    return max(x, y) + math.log1p(math.exp(min(x, y) - max(x, y)))


_greatest, _minimum = _of_two("maximum", max, truth=True), _of_two("minimum", min, truth=True)

FUNCTIONS: Mapping[str, ExpressionFunction] = {
    # Arithmetic of two.
    "add": _infix("add", operator.add, "+", 50),
    "sub": _infix("subtract", operator.sub, "-", 50, truth=False),
    "rsub": _of_two("subtract", lambda x, y: y - x, swapped=True),
    "mul": _infix("multiply", operator.mul, "*", 60),
    "div": _infix("divide", operator.truediv, "/", 60, TypeRule.REAL),
    "floor_divide": _infix("floor_divide", operator.floordiv, "//", 60, truth=False),
    "remainder": _infix("remainder", operator.mod, "%", 60, truth=False),
    "fmod": _of_two("fmod", math.fmod),
    "pow": _infix("power", _whole_power, "**", 95, truth=False),
    "atan2": _of_two("atan2", math.atan2, TypeRule.REAL),
    "logaddexp": _of_two("logaddexp", _log_add_exp, TypeRule.REAL),
    "max": _greatest,
    "maximum": _greatest,
    "min": _minimum,
    "minimum": _minimum,
    # Bits.
    "and": _infix("bitwise_and", operator.and_, "&", 40, TypeRule.INTEGER),
    "or": _infix("bitwise_or", operator.or_, "|", 30, TypeRule.INTEGER),
    "xor": _infix("bitwise_xor", operator.xor, "^", 35, TypeRule.INTEGER),
    "not": _prefix("bitwise_not", operator.invert, "~", TypeRule.INTEGER, truth=True),
    "lshift": _infix("left_shift", _shifted, "<<", 45, TypeRule.INTEGER, truth=False),
    "rshift": _infix("right_shift", lambda x, y: x >> min(y, 64), ">>", 45, TypeRule.INTEGER, truth=False),
    # Comparisons and logic.
    "eq": _compared("equal", operator.eq, "=="),
    "ne": _compared("not_equal", operator.ne, "!="),
    "lt": _compared("less", operator.lt, "<"),
    "le": _compared("less_equal", operator.le, "<="),
    "gt": _compared("greater", operator.gt, ">"),
    "ge": _compared("greater_equal", operator.ge, ">="),
    "logical_and": _logical("logical_and", 2, lambda x, y: bool(x) and bool(y)),
    "logical_or": _logical("logical_or", 2, lambda x, y: bool(x) or bool(y)),
    "logical_xor": _logical("logical_xor", 2, lambda x, y: bool(x) != bool(y)),
    "logical_not": _logical("logical_not", 1, operator.not_),
    # Arithmetic of one.
    "neg": _prefix("negative", operator.neg, "-", TypeRule.SAME, truth=False),
    "abs": _of_one("abs", abs, TypeRule.SAME),
    "sign": _of_one("sign_or_zero", _sign_number, TypeRule.SAME),
    "square": _of_one("square", lambda x: _whole_power(x, 2), TypeRule.SAME),
    "reciprocal": _of_one("reciprocal", lambda x: 1 / x),
    "floor": _of_one("floor", _to_integer(math.floor), TypeRule.SAME),
    "ceil": _of_one("ceil", _to_integer(math.ceil), TypeRule.SAME),
    "round": _of_one("round", _rounded(round), TypeRule.SAME),
    "trunc": _of_one("trunc", _rounded(math.trunc), TypeRule.SAME),
    # Roots, powers, logarithms, circles and hyperbolas.
    "sqrt": _of_one("sqrt", math.sqrt),
    "rsqrt": _of_one("rsqrt", lambda x: 1 / math.sqrt(x)),
    **{
        name: _of_one(name, getattr(math, name))
        for name in (
            *("exp", "exp2", "expm1", "log", "log2", "log10", "log1p", "sin", "cos", "tan", "asin", "acos", "atan"),
            *("sinh", "cosh", "tanh", "asinh", "acosh", "atanh"),
        )
    },
    # Others of one.
    "sigmoid": _of_one("sigmoid", lambda x: 0.5 * (1 + math.tanh(0.5 * x))),
    "erf": _of_one("erf", math.erf),
    "relu": _of_one("relu", lambda x: max(x, type(x)(0)), TypeRule.SAME),
    # Conversions and shapes.
    "int": _conversion("int64", int),
    "float": _conversion("float32", float),
    "bool": _conversion("bool", bool),
    "size": ExpressionFunction(1, 2, TypeRule.SIZE, "size", lambda *_: None),
}
