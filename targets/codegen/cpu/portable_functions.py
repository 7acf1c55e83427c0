"""Computes float32 elementary functions with +, ×, ÷ and √ of float64 only.

These operations are rounded alike on all processors, and so the results are the same, with an error of little more than
half a ULP. Vectors remain vectors; there are no branches and no tables. Taylor series are truncated where the remainder
is below 1e-11 of the result.

Values that are read more than once are kept in buffers, which LLVM promotes to registers. TVM would substitute
let-bound values at each use, and expressions would grow exponentially.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import tirx

__all__ = ["FUNCTIONS", "Kept"]

_LN2 = math.log(2)
_LN2_HIGH, _LN2_LOW = (
    float.fromhex("0x1.62e42feep-1"),
    float.fromhex("0x1.a39ef35793c76p-33"),
)  # n times the first is exact
_ROUNDING = 1.5 * 2**52
"""The sum of a number below 2⁵¹ and this one is rounded to an integer, which is in the low bits of the sum."""
_ROUNDING_BITS = 0x4338000000000000
_ONE_BITS = 1023 << 52
_ROOT_OF_HALF = 0x3FE6A09E667F3BCD  # the bits of √½
_LARGEST = 200.0  # powers of e beyond are infinite or zero in float32, and numbers in float64
_SMALL = 0.01  # below, two or three terms of a series do, and differences would lose what counts

_EXP = [1 / math.factorial(k) for k in range(12)]
_SIN = [(-1) ** k / math.factorial(2 * k + 1) for k in range(8)]  # of x² and times x, as those below
_COS = [(-1) ** k / math.factorial(2 * k) for k in range(9)]
_ATANH = [1 / (2 * k + 1) for k in range(9)]
_ATAN = [(-1) ** k / (2 * k + 1) for k in range(16)]
_SINH = [1.0, 1 / 6, 1 / 120]
_ASINH = [1.0, -1 / 6, 3 / 40]

_TWO_OVER_PI = (
    0xA2F983, 0x6E4E44, 0x1529FC, 0x2757D1, 0xF534DD, 0xC0DB62, 0x95993C, 0x439041, 0xFE5163,
)  # fmt: skip
"""The digits of 2/π behind the point, 24 bits each,"""
_DIGITS = 5
"""The number of consecutive digits that are used for one argument."""


_Function = Callable[..., tirx.Expr]
"""A function of the keeper of values and of operands."""


def _lanes(x: tirx.Expr) -> int:
    return int(tvm.DataType(str(x.expr_ty().dtype)).lanes)


def _type(x: tirx.Expr, scalar: str) -> str:
    lanes = _lanes(x)
    return f"{scalar}x{lanes}" if lanes > 1 else scalar


def _like(x: tirx.Expr, value: float, scalar: str = "float64") -> tirx.Expr:
    """Return a constant with as many lanes as `x`."""
    constant = tirx.const(value, scalar)
    return tirx.Broadcast(constant, _lanes(x)) if _lanes(x) > 1 else constant


def _bits(x: tirx.Expr) -> tirx.Expr:
    return tirx.reinterpret(_type(x, "int64"), x)


def _number(bits: tirx.Expr) -> tirx.Expr:
    return tirx.reinterpret(_type(bits, "float64"), bits)


@dataclass
class Kept:
    """Values that are computed once, each in a buffer of its own.

    Attributes:
        statements: that allocate the buffers and store the values, in order.
    """

    statements: list[tirx.Stmt] = field(default_factory=list)

    def __call__(self, value: tirx.Expr) -> tirx.Expr:
        """Builds the expression that reads the value, a float or a vector, after the statements."""
        lanes = _lanes(value)
        scalar, _, _ = str(value.expr_ty().dtype).partition("x")
        buffer = tirx.decl_buffer((lanes,), scalar, "kept", scope="local")
        position = tirx.Ramp(0, 1, lanes) if lanes > 1 else tirx.IntImm("int32", 0)
        self.statements += [tirx.AllocBuffer(buffer), tirx.BufferStore(buffer, value, [position])]
        return tirx.BufferLoad(buffer, [position])


def _rounded(keep: Kept, x: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
    """Returns the whole number that is nearest to x, and the same as int64."""
    total = keep(x + _like(x, _ROUNDING))
    whole = _bits(total) - _like(x, _ROUNDING_BITS, "int64")
    return keep(total - _like(x, _ROUNDING)), whole


def _series(coefficients: Sequence[float], x: tirx.Expr) -> tirx.Expr:
    """Lowest power first, by Horner's rule."""
    result = _like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + _like(x, coefficient)
    return result


def _odd(keep: Kept, coefficients: Sequence[float], x: tirx.Expr) -> tirx.Expr:
    return x * _series(coefficients, keep(x * x))


def _where(condition: tirx.Expr, then: tirx.Expr, other: tirx.Expr) -> tirx.Expr:
    return tirx.Select(condition, then, other)


def _sqrt(x: tirx.Expr) -> tirx.Expr:
    return tirx.call_intrin(_type(x, "float64"), "tirx.sqrt", x)


def _magnitude(x: tirx.Expr) -> tirx.Expr:
    return _number(_bits(x) & _like(x, (1 << 63) - 1, "int64"))


def _signed(magnitude: tirx.Expr, x: tirx.Expr) -> tirx.Expr:
    """Returns the magnitude with the sign of x."""
    return _number(_bits(magnitude) | (_bits(x) & _like(x, -(1 << 63), "int64")))


def _exp(keep: Kept, x: tirx.Expr) -> tirx.Expr:
    """eˣ = 2ⁿ eʳ with n = round(x / ln 2)."""
    clamped = keep(tirx.Min(tirx.Max(x, _like(x, -_LARGEST)), _like(x, _LARGEST)))
    n, whole = _rounded(keep, clamped * _like(x, 1 / _LN2))
    scale = _number((whole << _like(x, 52, "int64")) + _like(x, _ONE_BITS, "int64"))
    tail = keep(clamped - n * _like(x, _LN2_HIGH) - n * _like(x, _LN2_LOW))
    return _where(x == x, _series(_EXP, tail) * scale, x)


def _log(keep: Kept, x: tirx.Expr) -> tirx.Expr:
    """Computes log x = k ln 2 + 2 atanh(f / (2 + f)) for x = 2ᵏ (1 + f)."""
    bits = _bits(x)
    exponent = (bits - _like(x, _ROOT_OF_HALF, "int64")) >> _like(x, 52, "int64")
    fraction = _number(bits - (exponent << _like(x, 52, "int64")))
    k, f = keep(exponent.astype(_type(x, "float64"))), keep(fraction - _like(x, 1.0))
    ratio = keep(f / (_like(x, 2.0) + f))
    value = k * _like(x, _LN2) + _like(x, 2.0) * _odd(keep, _ATANH, ratio)
    value = _where(x > _like(x, 0.0), value, _like(x, math.nan))
    value = _where(x == _like(x, 0.0), _like(x, -math.inf), value)
    return _where(x < _like(x, math.inf), value, x + x)


def _quadrant(keep: Kept, x: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
    """q and r of x = (n + r) π/2, |r| ≤ ½, and q = n modulo 4 as int64; for float32, of any size.

    Digits of 2/π are multiplied one by one, which is exact, and each product is taken modulo 4. The first digit is the
    first whose products are not all multiples of 4; what follows the last is below 2⁻⁷¹. Rounding errors are relative
    to what is left of the sum, for digits that follow are smaller by 2²⁴. (Payne and Hanek, Radian reduction for
    trigonometric functions, 1983.)
    """
    tail = count = _like(x, 0.0)
    for position in range(_DIGITS):
        product = keep(x * _digit(x, position))
        turns, _ = _rounded(keep, product * _like(x, 0.25))
        total = keep(tail + (product - turns * _like(x, 4.0)))
        whole, _ = _rounded(keep, total)
        tail, count = keep(total - whole), keep(count + whole)
    _, bits = _rounded(keep, count)
    return bits & _like(x, 3, "int64"), tail


def _digit(x: tirx.Expr, position: int) -> tirx.Expr:
    """Of 2/π, at a position from the first one on that matters for x: below 2⁴⁹ the very first one, below 2⁷³ the
    next."""
    values = [digit * 2.0 ** (-24 * (number + 1)) for number, digit in enumerate(_TWO_OVER_PI)]
    last = len(values) - _DIGITS
    chosen = _like(x, values[position + last])
    for first in reversed(range(last)):
        chosen = _where(_magnitude(x) < _like(x, 2.0 ** (49 + 24 * first)), _like(x, values[position + first]), chosen)
    return chosen


def _turning(choose: Callable[[tirx.Expr, tirx.Expr, tirx.Expr], tirx.Expr]) -> _Function:
    """Returns a function of the quadrant, and of the sine and the cosine of the rest."""

    def function(keep: Kept, x: tirx.Expr) -> tirx.Expr:
        q, tail = _quadrant(keep, x)
        angle = keep(tail * _like(x, math.pi / 2))
        sine, cosine = keep(_odd(keep, _SIN, angle)), keep(_series(_COS, angle * angle))
        return _where(_magnitude(x) < _like(x, math.inf), choose(q, sine, cosine), _like(x, math.nan))

    return function


def _is_odd(q: tirx.Expr) -> tirx.Expr:
    return (q & _like(q, 1, "int64")) == _like(q, 1, "int64")


def _of_circle(q: tirx.Expr, even: tirx.Expr, odd: tirx.Expr) -> tirx.Expr:
    """One of two in even and odd quadrants, negative in the last two."""
    value = _where(_is_odd(q), odd, even)
    return _number(_bits(value) ^ ((q & _like(q, 2, "int64")) << _like(q, 62, "int64")))


_sin = _turning(_of_circle)
_cos = _turning(lambda q, s, c: _of_circle(q, c, _number(_bits(s) ^ _like(s, -(1 << 63), "int64"))))
_tan = _turning(lambda q, s, c: _where(_is_odd(q), _like(s, -1.0) * c, s) / _where(_is_odd(q), s, c))


def _atan(keep: Kept, x: tirx.Expr) -> tirx.Expr:
    """By atan(z) = π/2 − atan(1/z), and π/4 + atan((z − 1) / (z + 1))."""
    one = _like(x, 1.0)
    m = keep(_magnitude(x))
    z = keep(_where(m > one, one / m, m))
    upper = z > _like(x, math.tan(math.pi / 8))
    angle = _odd(keep, _ATAN, keep(_where(upper, (z - one) / (z + one), z)))
    a = keep(angle + _where(upper, _like(x, math.pi / 4), _like(x, 0.0)))
    return _where(x == x, _signed(_where(m > one, _like(x, math.pi / 2) - a, a), x), x)


def _asin(keep: Kept, x: tirx.Expr) -> tirx.Expr:
    one = _like(x, 1.0)
    return _atan(keep, keep(x / _sqrt((one - x) * (one + x))))


def _acos(keep: Kept, x: tirx.Expr) -> tirx.Expr:
    one = _like(x, 1.0)
    return _like(x, 2.0) * _atan(keep, keep(_sqrt((one - x) / (one + x))))


def _atan2(keep: Kept, y: tirx.Expr, x: tirx.Expr) -> tirx.Expr:
    zero, infinite = _like(x, 0.0), _like(x, math.inf)
    a, b = keep(_magnitude(y)), keep(_magnitude(x))
    ratio = _where(b == zero, _where(a == zero, zero, infinite), a / b)
    ratio = _where(tirx.all(a == infinite, b == infinite), _like(x, 1.0), ratio)
    angle = keep(_atan(keep, keep(ratio)))
    is_negative = _bits(x) < _like(x, 0, "int64")
    value = _signed(_where(is_negative, _like(x, math.pi) - angle, angle), y)
    return _where(x == x, _where(y == y, value, y), x)


def _sinh(keep: Kept, x: tirx.Expr) -> tirx.Expr:
    e = keep(_exp(keep, x))
    large = (e - _like(x, 1.0) / e) * _like(x, 0.5)
    return _where(_magnitude(x) < _like(x, _SMALL), _odd(keep, _SINH, x), large)


def _cosh(keep: Kept, x: tirx.Expr) -> tirx.Expr:
    e = keep(_exp(keep, x))
    return (e + _like(x, 1.0) / e) * _like(x, 0.5)


def _asinh(keep: Kept, x: tirx.Expr) -> tirx.Expr:
    m = keep(_magnitude(x))
    large = _signed(_log(keep, keep(m + _sqrt(m * m + _like(x, 1.0)))), x)
    return _where(_magnitude(x) < _like(x, _SMALL), _odd(keep, _ASINH, x), large)


def _acosh(keep: Kept, x: tirx.Expr) -> tirx.Expr:
    one = _like(x, 1.0)
    return _log(keep, keep(x + _sqrt(x - one) * _sqrt(x + one)))  # NaN below 1


def _pow(keep: Kept, x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    """xʸ = e^(y log |x|), negative for negative x and odd y, and NaN for negative x and y that is not an integer."""
    one, zero = _like(x, 1.0), _like(x, 0.0)
    n, whole = _rounded(keep, keep(_where(_magnitude(y) < _like(x, 2.0**31), y, zero)))
    size = _magnitude(y)
    is_whole = tirx.any(size >= _like(x, 2.0**31), n == y)
    is_odd = tirx.all(size < _like(x, 2.0**31), tirx.all(n == y, _is_odd(whole)))
    log = keep(_log(keep, keep(_magnitude(x))))
    value = _exp(keep, keep(_where(y == zero, zero, y * log)))
    negative = _bits(x) < _like(x, 0, "int64")
    minus = _where(tirx.all(negative, is_odd), _like(x, -1.0), one)
    lost = tirx.all(x < zero, tirx.all(_magnitude(x) < _like(x, math.inf), tirx.Not(is_whole)))
    value = _where(lost, _like(x, math.nan), minus * value)
    value = _where(x == x, _where(y == y, value, y), x)
    value = _where(tirx.any(x == one, y == zero), one, value)
    # 1 to any power: log 1 is 0, and 0 · ∞ is NaN
    return _where(tirx.all(x == _like(x, -1.0), _magnitude(y) == _like(x, math.inf)), one, value)


def _of_single(function: _Function) -> _Function:
    """Returns a function of float64 for operands of float32."""

    def of(keep: Kept, *operands: tirx.Expr) -> tirx.Expr:
        wide = [keep(operand.astype(_type(operand, "float64"))) for operand in operands]
        return function(keep, *wide).astype(_type(operands[0], "float32"))

    return of


def _of_product(function: _Function, before: float = 1.0, after: float = 1.0) -> _Function:
    """`after · f(before · x)`."""

    def of(keep: Kept, x: tirx.Expr) -> tirx.Expr:
        value = function(keep, x if before == 1.0 else keep(x * _like(x, before)))
        return value if after == 1.0 else value * _like(x, after)

    return of


def _with_zeros(function: _Function) -> _Function:
    """Returns the same, with the sign of a zero."""
    return lambda keep, x: _where(x == _like(x, 0.0), x, function(keep, x))


_WIDE: dict[str, _Function] = {
    "acos": _acos,
    "acosh": _acosh,
    "asin": _asin,
    "asinh": _asinh,
    "atan": _atan,
    "atan2": _atan2,
    "cos": _cos,
    "cosh": _cosh,
    "exp10": _of_product(_exp, before=math.log(10)),
    "exp2": _of_product(_exp, before=_LN2),
    "log10": _of_product(_log, after=1 / math.log(10)),
    "log2": _of_product(_log, after=1 / _LN2),
    "pow": _pow,
    "sin": _with_zeros(_sin),
    "sinh": _sinh,
    "tan": _with_zeros(_tan),
}

FUNCTIONS = {name: _of_single(function) for name, function in _WIDE.items()}
"""By the operators of TIR, for float32 or vectors of it, after what keeps their values."""
