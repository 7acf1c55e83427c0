"""Table of the scalar functions that element-wise operators apply, each for run time and for compile time.

Undefined cases (integer overflow, division by zero) do not trap. Max and min propagate NaN.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm import relax, tirx

from nnefc.operators.base import Array
from nnefc.operators.dtypes import Kind, is_float, is_signed, numpy_dtype, promoted_type

__all__ = ["FUNCTIONS", "POWERS", "ScalarFunction", "converted", "element_dtype", "library", "number", "truth"]

Scalar = Callable[..., Any]

_LARGE = 448
"""Numbers up to this one are in range of all types."""


@dataclass(frozen=True)
class ScalarFunction:
    """A function of scalars.

    Attributes:
        definition: its formula, as text.
        scalar: the function of TIR expressions of the same type.
        known: the function of NumPy arrays.
        relax: the Relax operator of the function, for float32 and float64.
        uses: how often `scalar`, or the polynomial that code generation makes of it, repeats an argument at most.
        dtype: the element type of the result where it is not that of the arguments.
        takes: the first kind of numbers that it has results for.
    """

    definition: str
    scalar: Scalar
    known: Callable[..., Array]
    relax: Callable[..., relax.Expr] | None = None
    uses: int = 1
    dtype: str | None = None
    takes: Kind = "booleans"

    def __call__(self, *elements: tirx.Expr) -> tirx.Expr:
        """Return an element of the result. 16-bit floats are computed in float32 and rounded once; floats become
        integers as by a cast."""
        dtype = element_dtype(elements[0])
        made = self.scalar(*(_as(element, promoted_type(element_dtype(element))) for element in elements))
        return converted(made if isinstance(made, tvm.ir.Expr) else made.asobject(), self.dtype or dtype)


def element_dtype(element: tirx.Expr) -> str:
    """The element type of an expression of TIR."""
    return str(element.ty)


def number(value: float, like: tirx.Expr) -> tirx.Expr:
    """A constant of the same element type; infinite where the type cannot represent it."""
    dtype = element_dtype(like)
    if is_float(dtype) and abs(value) > _LARGE:
        with np.errstate(over="ignore"):
            value = float(np.float64(value).astype(numpy_dtype(dtype)))
    return tirx.const(value, dtype)


def _as(element: tirx.Expr, dtype: str) -> tirx.Expr:
    return element if element_dtype(element) == dtype else element.astype(dtype)


def library(name: str) -> Scalar:
    """A function of the C library."""
    return lambda *elements: tirx.call_pure_extern(
        element_dtype(elements[0]), name if element_dtype(elements[0]) == "float64" else f"{name}f", *elements
    )


def truth(x: tirx.Expr) -> tirx.Expr:
    """Returns whether an element counts as true: where it is not zero."""
    return x if element_dtype(x) == "bool" else _not_equal(x, number(0, x))


def converted(x: tirx.Expr, dtype: str) -> tirx.Expr:
    """An element in another element type; integers keep the low bits, and reals become integers as on x86-64.

    There a real towards zero is an int32, for the types int64 and uint32 an int64, or the min of this type where it
    does not fit or is NaN; types of fewer bits have its low bits. For uint64, reals from 2^63 on are converted without
    this bit, which is then added. LLVM leaves conversions open that do not fit.
    """
    if dtype == "bool":
        return truth(x)
    if not is_float(element_dtype(x)) or is_float(dtype):
        return _as(x, dtype)
    real = x.astype(promoted_type(element_dtype(x)))
    if dtype != "uint64":
        return _as(_within(real, "int64" if dtype in ("int64", "uint32") else "int32"), dtype)
    edge = tirx.const(2.0**63, element_dtype(real))
    is_large = real >= edge
    low = _within(tirx.Select(is_large, real - edge, real), "int64").astype(dtype)
    return tirx.Select(is_large, low ^ tirx.const(1 << 63, dtype), low)


def _within(real: tirx.Expr, dtype: str) -> tirx.Expr:
    """A real towards zero as a signed integer; the min of its type for what does not fit."""
    minimum = tirx.min_value(dtype)
    fits = tirx.abs(real) < tirx.const(-float(minimum.value), element_dtype(real))  # false for NaN
    return tirx.Select(fits, real.astype(dtype), minimum)


def _kind(x: tirx.Expr) -> str:
    dtype = element_dtype(x)
    return "float" if is_float(dtype) else "bool" if dtype == "bool" else "int"


def _by_kind(**scalars: Scalar) -> Scalar:
    """A function that is another one for booleans (`bool`), integers (`int`) or reals (`float`)."""
    return lambda *elements: scalars[_kind(elements[0])](*elements)


def _itself(x: tirx.Expr) -> tirx.Expr:
    return x


# Arithmetic.


_plus = _by_kind(bool=tirx.any, int=operator.add, float=operator.add)
_minus = _by_kind(int=operator.sub, float=operator.sub)
_times = _by_kind(bool=tirx.all, int=operator.mul, float=operator.mul)


def _opposite(x: tirx.Expr) -> tirx.Expr:
    """Return -x, which wraps around for unsigned integers. TVM assumes that differences of those do not wrap around."""
    zero = number(0, x)
    if is_signed(element_dtype(x)):
        return zero - x
    return tirx.Select(tirx.EQ(x, zero), zero, tirx.bitwise_not(x) + number(1, x))


_negative = _by_kind(
    int=_opposite,
    float=lambda x: x * number(-1, x),  # and not 0 - x, which is +0 for +0
)


def _absolute(x: tirx.Expr) -> tirx.Expr:
    if not is_signed(element_dtype(x)):
        return x
    return tirx.abs(x) if _kind(x) == "float" else tirx.Select(x < number(0, x), _negative(x), x)


def _sign(x: tirx.Expr) -> tirx.Expr:
    return _as(x > number(0, x), element_dtype(x)) - _as(x < number(0, x), element_dtype(x))


def _sign_or_nan(x: tirx.Expr) -> tirx.Expr:
    return tirx.Select(tirx.isnan(x), x, _sign(x)) if _kind(x) == "float" else _sign(x)


def _extremum(wins: Scalar, joined: Scalar) -> Scalar:
    def of_floats(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
        return tirx.Select(tirx.any(wins(x, y), tirx.isnan(x)), x, y)

    return _by_kind(bool=joined, int=lambda x, y: tirx.Select(wins(x, y), x, y), float=of_floats)


_maximum, _minimum = _extremum(operator.gt, tirx.any), _extremum(operator.lt, tirx.all)

# Divisions.


def _safe(y: tirx.Expr) -> tirx.Expr:
    """The divisor, but 1 where the machine would trap: for 0, and for -1, which overflows for the smallest integer."""
    traps = tirx.EQ(y, number(0, y))
    if is_signed(element_dtype(y)):
        traps = tirx.any(traps, tirx.EQ(y, number(-1, y)))
    return tirx.Select(traps, number(1, y), y)


def _unless_minus_one(x: tirx.Expr, y: tirx.Expr, quotient: tirx.Expr) -> tirx.Expr:
    return tirx.Select(tirx.EQ(y, number(-1, y)), _negative(x), quotient) if is_signed(element_dtype(y)) else quotient


def _crosses(tail: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    """Returns whether a remainder towards zero has another sign than the divisor."""
    if not is_signed(element_dtype(y)):
        return tirx.const(False)
    zero = number(0, y)
    return tirx.all(tirx.NE(tail, zero), _differs(tail < zero, y < zero))


def _truncated_remainder(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    return library("fmod")(x, y) if _kind(x) == "float" else tirx.truncmod(x, _safe(y))


def _remainder(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    divisor = y if _kind(x) == "float" else _safe(y)
    tail = _truncated_remainder(x, y)
    return tirx.Select(_crosses(tail, divisor), tail + divisor, tail)


def _divide_integers(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    return _unless_minus_one(x, y, tirx.truncdiv(x, _safe(y)))


def _floor_divide_integers(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    divisor = _safe(y)
    quotient = tirx.truncdiv(x, divisor)
    below = _crosses(tirx.truncmod(x, divisor), divisor)
    return _unless_minus_one(x, y, tirx.Select(below, quotient - number(1, x), quotient))


def _floor_divide_floats(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    """Divides as Python does: from the remainder, so that the quotient is exact where x / y would be rounded up."""
    zero = number(0, x)
    tail = _truncated_remainder(x, y)
    quotient = (x - tail) / y - _as(_crosses(tail, y), element_dtype(x))
    whole = tirx.floor(quotient)
    whole = tirx.Select(quotient - whole > number(0.5, x), whole + number(1, x), whole)
    by_zero, is_zero = tirx.EQ(y, zero), tirx.EQ(quotient, zero)
    return tirx.Select(by_zero, x / y, tirx.Select(is_zero, zero * (x / y), whole))


def _divide_known(x: Array, y: Array) -> Array:
    if not np.issubdtype(x.dtype, np.integer):
        return np.asarray(x / y)
    safe = np.where(y == 0, np.ones_like(y), y)
    quotient = x // safe
    return np.asarray(quotient + ((x % safe != 0) & ((x < 0) != (safe < 0))))


# Powers.

POWERS: Mapping[float, tuple[str, ...]] = {
    -2.0: ("square", "reciprocal"),
    -1.0: ("reciprocal",),
    -0.5: ("rsqrt",),
    0.5: ("sqrt",),
    1.0: (),
    2.0: ("square",),
    3.0: ("cube",),
}
"""Exponents that have a simpler form: the functions to apply."""


def _power(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    exponent = float(y.value) if isinstance(y, tirx.FloatImm | tirx.IntImm) else math.nan
    if exponent in POWERS and (_kind(x) == "float" or exponent >= 1):
        for name in POWERS[exponent]:
            x = FUNCTIONS[name].scalar(x)
        return x
    dtype, other = element_dtype(x), element_dtype(y)
    if _kind(x) == "int" and dtype == other:
        return _integer_power(x, y)
    # Of integers exact up to 53 bits.
    work = "float64" if _kind(x) == "int" or "64" in other else dtype
    return library("pow")(_as(x, work), _as(y, work))


def _bits(x: tirx.Expr) -> int:
    return int(element_dtype(x).lstrip("uint"))


def _integer_power(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    """Return x to the power y by squaring, exact if it fits; negative powers are rounded towards zero: 1, -1 or 0."""
    one, zero = number(1, x), number(0, x)
    # Beyond as many squarings as the type has bits only powers of 0, 1 and -1 fit; those of even numbers are 0.
    result, square, bits = one, x, _bits(x)
    for bit in range(bits.bit_length()):
        result = _times(result, tirx.Select(_has_bit(y, 1 << bit), square, one))
        square = _times(square, square)
    large = y >= number(min(2 * bits, 127), y)
    result = tirx.Select(tirx.all(large, tirx.Not(_has_bit(x, 1))), zero, result)
    if not is_signed(element_dtype(x)):
        return result
    parity = tirx.Select(_has_bit(y, 1), number(-1, x), one)
    fraction = tirx.Select(tirx.EQ(x, one), one, tirx.Select(tirx.EQ(x, number(-1, x)), parity, zero))
    return tirx.Select(y < zero, fraction, result)


def _has_bit(x: tirx.Expr, bit: int) -> tirx.Expr:
    return tirx.NE(tirx.bitwise_and(x, number(bit, x)), number(0, x))


def _power_known(x: Array, y: Array) -> Array:
    if not np.issubdtype(x.dtype, np.integer):
        return np.asarray(np.power(x.astype(np.float64), y))
    if x.dtype != y.dtype:
        return np.power(x.astype(np.float64), y)
    fraction = np.where(x == 1, 1, np.where(x + 1 == 0, np.where(y & 1, x, 1), 0))
    return np.where(y < 0, fraction, np.power(x, np.maximum(y, 0)))


# Exponential functions.


def _log_add_exp(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    high, low = _maximum(x, y), tirx.min(x, y)
    equal_infinities = tirx.all(tirx.EQ(x, y), tirx.abs(x) >= tirx.infinity(element_dtype(x)))
    return tirx.Select(equal_infinities, x, high + tirx.log1p(tirx.exp(low - high)))


def _exp_minus_one(x: tirx.Expr) -> tirx.Expr:
    """eˣ - 1 as tanh(x / 2) (eˣ + 1)."""
    return tirx.tanh(x * number(0.5, x)) * (tirx.exp(x) + number(1, x))


# Roundings leave integers as they are.


def _rounding(
    definition: str, scalar: Scalar, known: Callable[[Array], Array], relax: Any = None, uses: int = 1
) -> ScalarFunction:
    def known_(x: Array) -> Array:
        return known(x) if is_float(str(x.dtype)) else x

    return ScalarFunction(definition, _by_kind(bool=_itself, int=_itself, float=scalar), known_, relax, uses)


def _away_from_zero(x: tirx.Expr) -> tirx.Expr:
    whole = tirx.trunc(x)
    step = tirx.Select(x < number(0, x), number(-1, x), number(1, x))
    return tirx.Select(tirx.abs(x - whole) >= number(0.5, x), whole + step, whole)


def _away_from_zero_known(x: Array) -> Array:
    whole = np.trunc(x)
    return np.where(np.abs(x - whole) >= 0.5, whole + np.sign(x), whole)


# Bits.


def _shift(outside: Scalar, shift: Scalar) -> Scalar:
    """`outside(x)` where nothing is left after the shift; negative amounts count as large ones."""

    def scalar(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
        inside = y < number(_bits(x), y)
        if is_signed(element_dtype(y)):
            inside = tirx.all(y >= number(0, y), inside)
        amount = tirx.bitwise_and(y, number(_bits(x) - 1, y))
        return tirx.Select(inside, shift(x, _as(amount, element_dtype(x))), outside(x))

    return scalar


def _all_sign(x: tirx.Expr) -> tirx.Expr:
    return tirx.shift_right(x, number(_bits(x) - 1, x)) if is_signed(element_dtype(x)) else number(0, x)


def _shift_known(shift: Callable[..., Array]) -> Callable[[Array, Array], Array]:
    """Shifts step by step: NumPy's shifts by the width and more are undefined."""

    def known(x: Array, y: Array) -> Array:
        bits = 8 * x.dtype.itemsize
        amount = np.where((y < 0) | (y > bits), bits, y).astype(x.dtype)
        half = amount // 2
        return shift(shift(x, half), amount - half)

    return known


# Comparisons and logic.


def _differs(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    """Code generation does not compare booleans."""
    return tirx.NE(x.astype("int8"), y.astype("int8"))


def _not_equal(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    # TVM's own is false where one operand is NaN.
    return tirx.any(tirx.NE(x, y), tirx.isnan(x), tirx.isnan(y)) if _kind(x) == "float" else tirx.NE(x, y)


def _comparison(scalar: Scalar) -> Scalar:
    return _by_kind(
        bool=lambda x, y: scalar(x.astype("int8"), y.astype("int8")),
        int=scalar,
        float=lambda x, y: _not_negated(scalar(x, y)),
    )


def _not_negated(comparison: tirx.Expr) -> tirx.Expr:
    """A comparison of floats by an integer: TVM takes `not x < y` for `y <= x`, which differs for NaN."""
    return tirx.NE(comparison.astype("int8"), tirx.const(0, "int8"))


def _equal(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    """Compares floats twice, which LLVM merges to one comparison: TVM folds `x == x` to true, even for NaN."""
    return tirx.all(tirx.LE(x, y), tirx.GE(x, y)) if _kind(x) == "float" else tirx.EQ(x, y)


def _only_float(scalar: Scalar, otherwise: bool) -> Scalar:
    return lambda x: _not_negated(scalar(x)) if _kind(x) == "float" else tirx.const(otherwise)


def _infinite(x: tirx.Expr) -> tirx.Expr:
    return tirx.abs(x) >= tirx.infinity(element_dtype(x))


def _erf_known(x: Array) -> Array:
    return np.array([math.erf(element) for element in x.reshape(-1)]).reshape(x.shape)


def _compares(symbol: str, scalar: Scalar, known: Any, relax: Any, uses: int = 1) -> ScalarFunction:
    return ScalarFunction(f"`x {symbol} y`", _comparison(scalar), known, relax, uses, "bool")


def _logic(definition: str, scalar: Scalar, known: Any) -> ScalarFunction:
    return ScalarFunction(definition, scalar, known, None, 1, "bool")


def _real(definition: str, scalar: Scalar, known: Any, relax: Any = None, uses: int = 1) -> ScalarFunction:
    return ScalarFunction(definition, scalar, known, relax, uses, takes="floating-point numbers")


def _of_integers(definition: str, scalar: Scalar, known: Any, relax: Any = None, uses: int = 1) -> ScalarFunction:
    """A function of integers, too, but not of booleans."""
    return ScalarFunction(definition, scalar, known, relax, uses, takes="integers")


_op = relax.op
FUNCTIONS: Mapping[str, ScalarFunction] = {
    "add": ScalarFunction("`x + y`, of booleans whether one is true.", _plus, np.add, _op.add),
    "subtract": _of_integers("`x - y`.", _minus, np.subtract, _op.subtract),
    "multiply": ScalarFunction("`x * y`, of booleans whether both are true.", _times, np.multiply, _op.multiply),
    "divide": _of_integers(
        "`x / y`; integers are divided towards zero.",
        _by_kind(int=_divide_integers, float=operator.truediv), _divide_known, _op.divide, 3,
    ),
    "floor_divide": _of_integers(
        "The largest integer that `x / y` is not below.",
        _by_kind(int=_floor_divide_integers, float=_floor_divide_floats), np.floor_divide, None, 8,
    ),
    "remainder": _of_integers(
        "The remainder of `floor_divide`, with the divisor's sign.", _remainder, np.remainder, None, 6
    ),
    "fmod": _of_integers(
        "The remainder of the division towards zero, with the dividend's sign.", _truncated_remainder, np.fmod, None, 3
    ),
    "power": ScalarFunction("`x` to the power of `y`.", _power, _power_known, _op.power, 8),
    "maximum": ScalarFunction("The larger of two.", _maximum, np.maximum, _op.maximum, 2),
    "minimum": ScalarFunction("The smaller of two.", _minimum, np.minimum, _op.minimum, 2),
    "atan2": _real("The angle of the point (y, x), from -π to π.", tirx.atan2, np.arctan2),
    "logaddexp": _real("`log(e^x + e^y)`.", _log_add_exp, np.logaddexp, None, 8),
    "bitwise_and": ScalarFunction(
        "The bits that both have.", _by_kind(bool=tirx.all, int=tirx.bitwise_and), np.bitwise_and
    ),
    "bitwise_or": ScalarFunction("The bits that one has.", _by_kind(bool=tirx.any, int=tirx.bitwise_or), np.bitwise_or),
    "bitwise_xor": ScalarFunction(
        "The bits that only one has.", _by_kind(bool=_differs, int=tirx.bitwise_xor), np.bitwise_xor
    ),
    "bitwise_not": ScalarFunction("All bits inverted.", _by_kind(bool=tirx.Not, int=tirx.bitwise_not), np.bitwise_not),
    "left_shift": ScalarFunction(
        "The bits of `x` moved left by `y`.",
        _shift(lambda x: number(0, x), tirx.shift_left), _shift_known(np.left_shift), None, 3,
    ),
    "right_shift": ScalarFunction(
        "The bits of `x` moved right by `y`; the sign is repeated.",
        _shift(_all_sign, tirx.shift_right), _shift_known(np.right_shift), None, 3,
    ),
    "equal": _compares("==", _equal, np.equal, _op.equal),
    "not_equal": _compares("!=", _not_equal, np.not_equal, _op.not_equal, 2),
    "less": _compares("<", operator.lt, np.less, _op.less),
    "less_equal": _compares("<=", operator.le, np.less_equal, _op.less_equal),
    "greater": _compares(">", operator.gt, np.greater, _op.greater),
    "greater_equal": _compares(">=", operator.ge, np.greater_equal, _op.greater_equal),
    "logical_and": _logic("Whether both are true.", tirx.all, np.logical_and),
    "logical_or": _logic("Whether one is true.", tirx.any, np.logical_or),
    "logical_xor": _logic("Whether only one is true.", _differs, np.logical_xor),
    "logical_not": _logic("Whether it is not true.", tirx.Not, np.logical_not),
    "isnan": _logic("Whether it is not a number.", _only_float(tirx.isnan, False), np.isnan),
    "isinf": _logic("Whether it is infinite.", _only_float(_infinite, False), np.isinf),
    "isposinf": _logic(
        "Whether it is infinite and positive.",
        _only_float(lambda x: x >= tirx.infinity(element_dtype(x)), False), np.isposinf,
    ),
    "isneginf": _logic(
        "Whether it is infinite and negative.",
        _only_float(lambda x: x <= -tirx.infinity(element_dtype(x)), False), np.isneginf,
    ),
    "isfinite": _logic(
        "Whether it is a number and not infinite.",
        _only_float(lambda x: tirx.abs(x) < tirx.infinity(element_dtype(x)), True), np.isfinite,
    ),
    "negative": _of_integers("`-x`.", _negative, np.negative, _op.negative),
    "abs": ScalarFunction("`x` without its sign.", _absolute, np.abs, _op.abs, 3),
    "sign": _of_integers("-1, 0 or 1; NaN stays so.", _sign_or_nan, np.sign, None, 4),
    "sign_or_zero": _of_integers(
        "-1, 0 or 1; 0 for NaN.", _sign, lambda x: np.nan_to_num(np.sign(x)), _op.sign, 2
    ),
    "square": _of_integers("`x * x`.", lambda x: _times(x, x), np.square, lambda x: _op.multiply(x, x), 2),
    "cube": _of_integers(
        "`x * x * x`.",
        lambda x: _times(_times(x, x), x), lambda x: x * x * x, lambda x: _op.multiply(_op.multiply(x, x), x), 3,
    ),
    "reciprocal": _real(
        "`1 / x`.",
        lambda x: number(1, x) / x, np.reciprocal, lambda x: _op.divide(relax.const(1.0, str(x.ty.dtype)), x),
    ),
    "floor": _rounding("The largest integer that is not above.", tirx.floor, np.floor, _op.floor),
    "ceil": _rounding("The smallest integer that is not below.", tirx.ceil, np.ceil, _op.ceil),
    "trunc": _rounding("Without what is behind the point.", tirx.trunc, np.trunc),
    "round": _rounding("The nearest integer; of two the even one.", tirx.nearbyint, np.rint, _op.round),
    "round_half_away": _rounding(
        "The nearest integer; of two the one that is farther from zero.",
        _away_from_zero, _away_from_zero_known, None, 4,
    ),
    "sqrt": _real("The square root.", tirx.sqrt, np.sqrt, _op.sqrt),
    "rsqrt": _real("`1 / sqrt(x)`.", lambda x: number(1, x) / tirx.sqrt(x), lambda x: 1 / np.sqrt(x), _op.rsqrt),
    "exp": _real("`e^x`.", tirx.exp, np.exp, _op.exp, 3),
    "exp2": _real("`2^x`.", tirx.exp2, np.exp2),
    "expm1": _real("`e^x - 1`, exact near 0.", _exp_minus_one, np.expm1, None, 6),
    "log": _real("The natural logarithm.", tirx.log, np.log, _op.log),
    "log2": _real("The logarithm to the base of 2.", tirx.log2, np.log2),
    "log10": _real("The logarithm to the base of 10.", tirx.log10, np.log10),
    "log1p": _real("`log(1 + x)`, exact near 0.", tirx.log1p, np.log1p),
    "sin": _real("The sine.", tirx.sin, np.sin, _op.sin),
    "cos": _real("The cosine.", tirx.cos, np.cos, _op.cos),
    "tan": _real("The tangent.", tirx.tan, np.tan, _op.tan),
    "asin": _real("The inverse of the sine.", tirx.asin, np.arcsin, _op.asin),
    "acos": _real("The inverse of the cosine.", tirx.acos, np.arccos, _op.acos),
    "atan": _real("The inverse of the tangent.", tirx.atan, np.arctan, _op.atan),
    "sinh": _real("`(e^x - e^-x) / 2`.", tirx.sinh, np.sinh, _op.sinh),
    "cosh": _real("`(e^x + e^-x) / 2`.", tirx.cosh, np.cosh, _op.cosh),
    "tanh": _real("`sinh(x) / cosh(x)`.", tirx.tanh, np.tanh, _op.tanh, 3),
    "asinh": _real("The inverse of `sinh`.", tirx.asinh, np.arcsinh, _op.asinh),
    "acosh": _real("The inverse of `cosh`.", tirx.acosh, np.arccosh, _op.acosh),
    "atanh": _real("The inverse of `tanh`.", tirx.atanh, np.arctanh, _op.atanh),
    "sigmoid": _real("`1 / (1 + e^-x)`.", tirx.sigmoid, lambda x: 1 / (1 + np.exp(-x)), _op.sigmoid, 3),
    "erf": _real("The error function.", tirx.erf, _erf_known, _op.erf, 3),
    "relu": _of_integers(
        "`max(x, 0)`.", lambda x: _maximum(x, number(0, x)), lambda x: np.maximum(x, 0), _op.nn.relu, 2
    ),
}  # fmt: skip
"""All functions by name; the order is that of their arguments' number and kind."""
