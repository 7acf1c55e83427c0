"""The functions of PNNX expressions: one declaration each.

A declaration says how many arguments a function takes, by which of PyTorch's rules its result is typed, what one
element of the result is, and what the function is of plain numbers.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tvm import relax, tirx

from nnefc.frontends.pnnx.promotion import category

__all__ = ["FUNCTIONS", "Function", "Rule", "power", "truth"]


class Rule(Enum):
    """How the element type of a result follows from the types of the arguments."""

    SAME = "the type that the arguments promote to"
    REAL = "the same, but integers become reals"
    COMPARISON = "truth values; the arguments meet in the type that they promote to"
    INTEGER = "the type that the arguments promote to, which is no real one"
    LOGICAL = "truth values; the arguments count as true where they are not zero"
    CONVERSION = "a fixed type"
    SIZE = "numbers known at compile time"


@dataclass(frozen=True)
class Function:
    """A function of expressions.

    Attributes:
        fewest, most: how many arguments it takes.
        rule: how its result is typed.
        element: one element of the result, from elements that all have the type of the computation.
        number: the same of plain numbers.
        relax: Relax's own operator where it computes the same for float32 and float64.
        uses: how often `element` repeats an argument at most, or the polynomial that code generation makes of it does.
        truth: whether it is defined for truth values.
        symbol, binding: how infix notation writes it, and how tightly that binds.
        to: the type that a conversion gives.
    """

    fewest: int
    most: int
    rule: Rule
    element: Callable[..., Any]
    number: Callable[..., Any]
    relax: Callable[..., relax.Expr] | None = None
    uses: int = 1
    truth: bool = False
    symbol: str | None = None
    binding: int = 0
    to: str = ""


# Elements. Integers wrap around as in PyTorch: TVM's own signed arithmetic may assume that they do not.


def _dtype(x: tirx.Expr) -> str:
    return str(x.ty.dtype) if hasattr(x, "ty") else str(x.dtype)


def _constant(value: float, like: tirx.Expr) -> tirx.Expr:
    return tirx.const(value, _dtype(like))


def _wrapping(function: Callable[..., tirx.Expr]) -> Callable[..., tirx.Expr]:
    def element(*arguments: tirx.Expr) -> tirx.Expr:
        dtype = _dtype(arguments[0])
        if category(dtype) != 1:
            return function(*arguments)
        if dtype.startswith("u"):
            return tirx.bitwise_xor(
                tirx.bitwise_xor(function(*arguments), _constant(1, arguments[0])), _constant(1, arguments[0])
            )
        made = function(*(a.astype(f"u{dtype}") for a in arguments))
        # TVM's analysis takes what was cast from unsigned for not negative. It knows nothing of what bits are inverted
        # in; LLVM removes the two inversions.
        inverted = tirx.bitwise_xor(made, tirx.const(1, f"u{dtype}")).astype(dtype)
        return tirx.bitwise_xor(inverted, tirx.const(1, dtype))

    return element


def _add(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    return tirx.any(x, y) if _dtype(x) == "bool" else _wrapping(operator.add)(x, y)


def _subtract(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    if category(_dtype(x)) == 2:
        return x - y
    # As a sum: of a difference of unsigned numbers TVM's analysis says that it is not negative.
    return _wrapping(lambda a, b: a + tirx.bitwise_not(b) + _constant(1, a))(x, y)


def _multiply(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    return tirx.all(x, y) if _dtype(x) == "bool" else _wrapping(operator.mul)(x, y)


def _negate(x: tirx.Expr) -> tirx.Expr:
    if category(_dtype(x)) == 2:
        return x * _constant(-1, x)  # and not 0 - x, which is +0 for +0
    return _wrapping(lambda u: tirx.bitwise_not(u) + _constant(1, u))(x)


def _absolute(x: tirx.Expr) -> tirx.Expr:
    if _dtype(x).startswith("u"):
        return x
    return tirx.abs(x) if category(_dtype(x)) == 2 else tirx.Select(x < 0, _negate(x), x)


def _extremum(wins: Callable[..., tirx.Expr], joined: Callable[..., tirx.Expr]) -> Callable[..., tirx.Expr]:
    """The larger or the smaller one; nan if any is nan."""

    def element(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
        match category(_dtype(x)):
            case 0:
                return joined(x, y)
            case 1:
                return tirx.Select(wins(x, y), x, y)
        return tirx.Select(tirx.any(wins(x, y), tirx.isnan(x)), x, y)

    return element


def _real_fmod(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    dtype = _dtype(x)
    return tirx.call_pure_extern(dtype, "fmod" if dtype == "float64" else "fmodf", x, y)


def _safe_divisor(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    """The divisor, but 1 where the machine would stop: for zero, and for -1, which overflows for the least integer."""
    stops = y == _constant(0, y)
    if not _dtype(y).startswith("u"):
        stops = tirx.any(stops, y == _constant(-1, y))
    return tirx.Select(stops, _constant(1, y), y)


def _with_divisor_minus_one(x: tirx.Expr, y: tirx.Expr, result: tirx.Expr) -> tirx.Expr:
    return result if _dtype(y).startswith("u") else tirx.Select(y == _constant(-1, y), _negate(x), result)


def _floor_divide(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    zero = _constant(0, x)
    if category(_dtype(x)) != 2:
        divisor = _safe_divisor(x, y)
        quotient = tirx.truncdiv(x, divisor)
        rest = tirx.truncmod(x, divisor)
        below = tirx.all(rest != zero, (rest < zero).astype("int32") != (divisor < zero).astype("int32"))
        return _with_divisor_minus_one(x, y, tirx.Select(below, quotient - _constant(1, x), quotient))
    # As Python does it: from the remainder, so that the quotient is exact where x / y would be rounded up.
    rest = _real_fmod(x, y)
    crosses = tirx.all(rest != zero, (rest < zero).astype("int32") != (y < zero).astype("int32"))
    quotient = (x - rest) / y - crosses.astype(_dtype(x))
    whole = tirx.floor(quotient)
    whole = tirx.Select(quotient - whole > _constant(0.5, x), whole + _constant(1, x), whole)
    return tirx.Select(y == zero, x / y, tirx.Select(quotient == zero, zero * (x / y), whole))


def _remainder(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    zero = _constant(0, x)
    divisor = y if category(_dtype(x)) == 2 else _safe_divisor(x, y)
    rest = _real_fmod(x, y) if category(_dtype(x)) == 2 else tirx.truncmod(x, divisor)
    crosses = tirx.all(rest != zero, (rest < zero).astype("int32") != (divisor < zero).astype("int32"))
    return tirx.Select(crosses, rest + divisor, rest)


def _fmod(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    return _real_fmod(x, y) if category(_dtype(x)) == 2 else tirx.truncmod(x, _safe_divisor(x, y))


_BITS = {"int8": 3, "uint8": 3, "int16": 4, "int32": 5, "int64": 6}


def _power(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    if category(_dtype(x)) == 2:
        return _real_power(x, y)
    return _integer_power(x, y)


def power(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    """A power of reals by the mathematical library: TVM's own operator warns of constant exponents."""
    dtype = _dtype(x)
    return tirx.call_pure_extern(dtype, "pow" if dtype == "float64" else "powf", x, y)


def _real_power(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    if isinstance(y, tirx.FloatImm):
        special: dict[float, Callable[[], tirx.Expr]] = {
            0.5: lambda: tirx.sqrt(x),
            1.0: lambda: x,
            2.0: lambda: x * x,
            3.0: lambda: x * x * x,
            -0.5: lambda: _constant(1, x) / tirx.sqrt(x),
            -1.0: lambda: _constant(1, x) / x,
            -2.0: lambda: _constant(1, x) / (x * x),
        }
        if y.value in special:
            return special[y.value]()
    return power(x, y)


def _integer_power(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    """By squaring, wrapping around; negative powers are what is left of a fraction: 1, -1 or 0."""
    multiply = _wrapping(operator.mul)
    one, zero = _constant(1, x), _constant(0, x)
    if isinstance(y, tirx.IntImm) and 0 <= int(y) <= 3:
        result = one
        for _ in range(int(y)):
            result = x if result is one else multiply(result, x)
        return result
    # Beyond as many squarings as the type has bits, powers of even numbers are 0 and those of odd ones come round.
    result, square = one, x
    bits = 1 << _BITS[_dtype(x)]
    for bit in range(_BITS[_dtype(x)] + 1):
        taken = tirx.bitwise_and(y.astype(_dtype(x)), _constant(1 << bit, x)) != zero
        result = multiply(result, tirx.Select(taken, square, one))
        square = multiply(square, square)
    odd = tirx.bitwise_and(x, one) != zero
    large = y >= _constant(min(2 * bits, 127), y)
    result = tirx.Select(tirx.all(large, tirx.Not(odd)), zero, result)
    if _dtype(x).startswith("u"):
        return result
    minus = _constant(-1, x)
    parity = tirx.Select(tirx.bitwise_and(y, one) != zero, minus, one)
    fraction = tirx.Select(x == one, one, tirx.Select(x == minus, parity, zero))
    return tirx.Select(y < zero, fraction, result)


def _sign(x: tirx.Expr) -> tirx.Expr:
    zero = _constant(0, x)
    return (x > zero).astype(_dtype(x)) - (x < zero).astype(_dtype(x))


def _log_add_exp(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    high, low = _extremum(operator.gt, tirx.any)(x, y), tirx.min(x, y)
    together = high + tirx.log1p(tirx.exp(low - high))
    return tirx.Select(tirx.all(x == y, tirx.abs(x) == tirx.infinity(_dtype(x))), x, together)


def _expm1(x: tirx.Expr) -> tirx.Expr:
    return tirx.tanh(x * _constant(0.5, x)) * (tirx.exp(x) + _constant(1, x))


def _whole(function: Callable[..., tirx.Expr]) -> Callable[..., tirx.Expr]:
    """Rounding: nothing to do for integers."""
    return lambda x: function(x) if category(_dtype(x)) == 2 else x


def _bitwise(function: Callable[..., tirx.Expr], of_truth: Callable[..., tirx.Expr]) -> Callable[..., tirx.Expr]:
    return lambda *a: of_truth(*a) if _dtype(a[0]) == "bool" else function(*a)


def _differs(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    return x.astype("int8") != y.astype("int8") if _dtype(x) == "bool" else x != y


def _shift_left(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    bits = 1 << _BITS[_dtype(x)]
    inside = tirx.all(y >= _constant(0, y), y < _constant(bits, y))
    amount = tirx.Select(inside, y, _constant(0, y))
    return tirx.Select(inside, _wrapping(tirx.shift_left)(x, amount), _constant(0, x))


def _shift_right(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    bits = 1 << _BITS[_dtype(x)]
    inside = tirx.all(y >= _constant(0, y), y < _constant(bits, y))
    return tirx.shift_right(x, tirx.Select(inside, y, _constant(bits - 1, y)))


def _unsigned_shift_right(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    if not _dtype(x).startswith("u"):
        return _shift_right(x, y)
    bits = 1 << _BITS[_dtype(x)]
    return tirx.Select(
        y < _constant(bits, y), tirx.shift_right(x, tirx.min(y, _constant(bits - 1, y))), _constant(0, x)
    )


def _compare(function: Callable[..., tirx.Expr]) -> Callable[..., tirx.Expr]:
    def element(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
        if _dtype(x) == "bool":
            x, y = x.astype("int8"), y.astype("int8")
        return function(x, y)

    return element


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


def _unary(element: Callable[..., Any], number: Callable[..., Any], rule: Rule = Rule.REAL, **rest: Any) -> Function:
    return Function(1, 1, rule, element, number, **rest)


def _binary(element: Callable[..., Any], number: Callable[..., Any], rule: Rule = Rule.SAME, **rest: Any) -> Function:
    return Function(2, 2, rule, element, number, **rest)


def _conversion(dtype: str, number: Callable[..., Any]) -> Function:
    return Function(1, 1, Rule.CONVERSION, lambda x: x, number, to=dtype, truth=True)


def _square(x: relax.Expr) -> relax.Expr:
    return relax.op.multiply(x, x)


def _not_equal(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    differ = x != y
    # TVM's operator is false where one is not a number.
    return tirx.any(differ, tirx.isnan(x), tirx.isnan(y)) if category(_dtype(x)) == 2 else differ


def truth(x: tirx.Expr) -> tirx.Expr:
    """Whether an element counts as true: where it is not zero."""
    return x if _dtype(x) == "bool" else _not_equal(x, _constant(0, x))


_ABOVE = {"multiply": 60, "add": 50, "shift": 45, "and": 40, "xor": 35, "or": 30, "compare": 25, "power": 95}

_greatest = _binary(_extremum(operator.gt, tirx.any), max, truth=True, uses=2)
_least = _binary(_extremum(operator.lt, tirx.all), min, truth=True, uses=2)

FUNCTIONS: Mapping[str, Function] = {
    # Arithmetic of two.
    "add": _binary(_add, operator.add, relax=relax.op.add, truth=True, symbol="+", binding=_ABOVE["add"]),
    "sub": _binary(_subtract, operator.sub, relax=relax.op.subtract, symbol="-", binding=_ABOVE["add"]),
    "rsub": _binary(lambda x, y: _subtract(y, x), lambda x, y: y - x, relax=lambda x, y: relax.op.subtract(y, x)),
    "mul": _binary(
        _multiply, operator.mul, relax=relax.op.multiply, truth=True, symbol="*", binding=_ABOVE["multiply"]
    ),
    "div": _binary(
        operator.truediv,
        operator.truediv,
        Rule.REAL,
        relax=relax.op.divide,
        truth=True,
        symbol="/",
        binding=_ABOVE["multiply"],
    ),
    "floor_divide": _binary(_floor_divide, operator.floordiv, uses=8, symbol="//", binding=_ABOVE["multiply"]),
    "remainder": _binary(_remainder, operator.mod, uses=6, symbol="%", binding=_ABOVE["multiply"]),
    "fmod": _binary(_fmod, math.fmod, uses=3),
    "pow": _binary(_power, _whole_power, uses=8, symbol="**", binding=_ABOVE["power"]),
    "atan2": _binary(tirx.atan2, math.atan2, Rule.REAL),
    "logaddexp": _binary(
        _log_add_exp,
        lambda x, y: max(x, y) + math.log1p(math.exp(min(x, y) - max(x, y))),
        Rule.REAL,
        uses=8,
    ),
    "max": _greatest,
    "maximum": _greatest,
    "min": _least,
    "minimum": _least,
    # Bits.
    "and": _binary(
        _bitwise(tirx.bitwise_and, tirx.all), operator.and_, Rule.INTEGER, truth=True, symbol="&", binding=_ABOVE["and"]
    ),
    "or": _binary(
        _bitwise(tirx.bitwise_or, tirx.any), operator.or_, Rule.INTEGER, truth=True, symbol="|", binding=_ABOVE["or"]
    ),
    "xor": _binary(
        _bitwise(tirx.bitwise_xor, _differs), operator.xor, Rule.INTEGER, truth=True, symbol="^", binding=_ABOVE["xor"]
    ),
    "not": _unary(
        _bitwise(tirx.bitwise_not, tirx.Not), operator.invert, Rule.INTEGER, truth=True, symbol="~", binding=90
    ),
    "lshift": _binary(_shift_left, _shifted, Rule.INTEGER, uses=3, symbol="<<", binding=_ABOVE["shift"]),
    "rshift": _binary(
        _unsigned_shift_right,
        lambda x, y: x >> min(y, 64),
        Rule.INTEGER,
        uses=3,
        symbol=">>",
        binding=_ABOVE["shift"],
    ),
    # Comparisons and logic.
    "eq": _binary(
        _compare(operator.eq), operator.eq, Rule.COMPARISON, truth=True, symbol="==", binding=_ABOVE["compare"]
    ),
    "ne": _binary(
        _compare(_not_equal), operator.ne, Rule.COMPARISON, uses=2, truth=True, symbol="!=", binding=_ABOVE["compare"]
    ),
    "lt": _binary(
        _compare(operator.lt), operator.lt, Rule.COMPARISON, truth=True, symbol="<", binding=_ABOVE["compare"]
    ),
    "le": _binary(
        _compare(operator.le), operator.le, Rule.COMPARISON, truth=True, symbol="<=", binding=_ABOVE["compare"]
    ),
    "gt": _binary(
        _compare(operator.gt), operator.gt, Rule.COMPARISON, truth=True, symbol=">", binding=_ABOVE["compare"]
    ),
    "ge": _binary(
        _compare(operator.ge), operator.ge, Rule.COMPARISON, truth=True, symbol=">=", binding=_ABOVE["compare"]
    ),
    "logical_and": _binary(tirx.all, lambda x, y: bool(x) and bool(y), Rule.LOGICAL, truth=True),
    "logical_or": _binary(tirx.any, lambda x, y: bool(x) or bool(y), Rule.LOGICAL, truth=True),
    "logical_xor": _binary(_differs, lambda x, y: bool(x) != bool(y), Rule.LOGICAL, truth=True),
    "logical_not": _unary(tirx.Not, operator.not_, Rule.LOGICAL, truth=True),
    # Arithmetic of one.
    "neg": _unary(_negate, operator.neg, Rule.SAME, relax=relax.op.negative, symbol="-", binding=90),
    "abs": _unary(_absolute, abs, Rule.SAME, relax=relax.op.abs, uses=3),
    "sign": _unary(_sign, _sign_number, Rule.SAME, uses=2),
    "square": _unary(lambda x: _multiply(x, x), lambda x: _whole_power(x, 2), Rule.SAME, relax=_square, uses=2),
    "reciprocal": _unary(
        lambda x: _constant(1, x) / x,
        lambda x: 1 / x,
        relax=lambda x: relax.op.divide(relax.const(1.0, str(x.ty.dtype)), x),
    ),
    "floor": _unary(_whole(tirx.floor), _rounded(math.floor), Rule.SAME, relax=relax.op.floor),
    "ceil": _unary(_whole(tirx.ceil), _rounded(math.ceil), Rule.SAME, relax=relax.op.ceil),
    "round": _unary(_whole(tirx.nearbyint), _rounded(round), Rule.SAME),
    "trunc": _unary(_whole(tirx.trunc), _rounded(math.trunc), Rule.SAME),
    # Roots, powers and logarithms.
    "sqrt": _unary(tirx.sqrt, math.sqrt, relax=relax.op.sqrt),
    "rsqrt": _unary(lambda x: _constant(1, x) / tirx.sqrt(x), lambda x: 1 / math.sqrt(x), relax=relax.op.rsqrt),
    "exp": _unary(tirx.exp, math.exp, relax=relax.op.exp, uses=3),
    "exp2": _unary(tirx.exp2, math.exp2),
    "expm1": _unary(_expm1, math.expm1, uses=6),
    "log": _unary(tirx.log, math.log, relax=relax.op.log),
    "log2": _unary(tirx.log2, math.log2),
    "log10": _unary(tirx.log10, math.log10),
    "log1p": _unary(tirx.log1p, math.log1p),
    # Circles and hyperbolas.
    "sin": _unary(tirx.sin, math.sin, relax=relax.op.sin),
    "cos": _unary(tirx.cos, math.cos, relax=relax.op.cos),
    "tan": _unary(tirx.tan, math.tan, relax=relax.op.tan),
    "asin": _unary(tirx.asin, math.asin),
    "acos": _unary(tirx.acos, math.acos),
    "atan": _unary(tirx.atan, math.atan),
    "sinh": _unary(tirx.sinh, math.sinh),
    "cosh": _unary(tirx.cosh, math.cosh),
    "tanh": _unary(tirx.tanh, math.tanh, relax=relax.op.tanh, uses=3),
    "asinh": _unary(tirx.asinh, math.asinh),
    "acosh": _unary(tirx.acosh, math.acosh),
    "atanh": _unary(tirx.atanh, math.atanh),
    # Others of one.
    "sigmoid": _unary(
        lambda x: _constant(1, x) / (_constant(1, x) + tirx.exp(-x)),
        lambda x: 0.5 * (1 + math.tanh(0.5 * x)),
        relax=relax.op.sigmoid,
        uses=3,
    ),
    "erf": _unary(tirx.erf, math.erf, relax=relax.op.erf, uses=3),
    "relu": _unary(
        lambda x: _extremum(operator.gt, tirx.any)(x, _constant(0, x)),
        lambda x: max(x, type(x)(0)),
        Rule.SAME,
        relax=relax.op.nn.relu,
        uses=2,
    ),
    # Conversions and shapes.
    "int": _conversion("int64", int),
    "float": _conversion("float32", float),
    "bool": _conversion("bool", bool),
    "size": Function(1, 2, Rule.SIZE, lambda *_: None, lambda *_: None),
}
