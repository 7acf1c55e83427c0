"""Elementary functions of float32, of additions, products, quotients and square roots of float64 alone.

These are rounded alike on all processors, and so are the results, whose error is hardly more than the last rounding:
half a unit in the last place. Vectors stay vectors; there are no branches and no tables. Series are Taylor's, to where
what is left out is below 1e-11 of the result.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import tvm
from tvm import tirx

__all__ = ["FUNCTIONS"]

_LN2 = math.log(2)
_LN2_HIGH, _LN2_LOW = (
    float.fromhex("0x1.62e42feep-1"),
    float.fromhex("0x1.a39ef35793c76p-33"),
)  # n times the first is exact
_ROUNDING = 1.5 * 2**52
"""A number below 2⁵¹ plus this one is rounded to a whole one, which is in the last bits of the sum."""
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
"""and how many follow each other for one number."""


def _lanes(x: tirx.Expr) -> int:
    return int(tvm.DataType(str(x.expr_ty().dtype)).lanes)


def _type(x: tirx.Expr, scalar: str) -> str:
    lanes = _lanes(x)
    return f"{scalar}x{lanes}" if lanes > 1 else scalar


def _like(x: tirx.Expr, value: float, scalar: str = "float64") -> tirx.Expr:
    """A constant with as many lanes as `x`."""
    constant = tirx.const(value, scalar)
    return tirx.Broadcast(constant, _lanes(x)) if _lanes(x) > 1 else constant


def _bits(x: tirx.Expr) -> tirx.Expr:
    return tirx.reinterpret(_type(x, "int64"), x)


def _number(bits: tirx.Expr) -> tirx.Expr:
    return tirx.reinterpret(_type(bits, "float64"), bits)


def _named(value: tirx.Expr, body: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """`body(value)` with a `value` of float64 that is computed once.

    TVM puts the value of a name in the place of the name when it simplifies what follows: values of values that are
    read twice grow by themselves, for seconds. It leaves those alone that might have an effect, for all that it knows.
    """
    lanes = _lanes(value)
    fence = f"llvm.arithmetic.fence.{f'v{lanes}' if lanes > 1 else ''}f64"
    var = tirx.Var("v", value.expr_ty())
    return tirx.Let(var, tirx.call_llvm_intrin(_type(value, "float64"), fence, value), body(var))


def _rounded(x: tirx.Expr, body: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """`body(n, bits)` with the whole number n that is nearest to x, the second time as int64."""

    def of_sum(total: tirx.Expr) -> tirx.Expr:
        whole = _bits(total) - _like(x, _ROUNDING_BITS, "int64")
        return _named(total - _like(x, _ROUNDING), lambda n: body(n, whole))

    return _named(x + _like(x, _ROUNDING), of_sum)


def _series(coefficients: Sequence[float], x: tirx.Expr) -> tirx.Expr:
    """Lowest power first, by Horner's rule."""
    result = _like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + _like(x, coefficient)
    return result


def _odd(coefficients: Sequence[float], x: tirx.Expr) -> tirx.Expr:
    return _named(x * x, lambda square: x * _series(coefficients, square))


def _where(condition: tirx.Expr, then: tirx.Expr, other: tirx.Expr) -> tirx.Expr:
    return tirx.Select(condition, then, other)


def _sqrt(x: tirx.Expr) -> tirx.Expr:
    return tirx.call_intrin(_type(x, "float64"), "tirx.sqrt", x)


def _magnitude(x: tirx.Expr) -> tirx.Expr:
    return _number(_bits(x) & _like(x, (1 << 63) - 1, "int64"))


def _signed(magnitude: tirx.Expr, x: tirx.Expr) -> tirx.Expr:
    """The magnitude with the sign of x."""
    return _number(_bits(magnitude) | (_bits(x) & _like(x, -(1 << 63), "int64")))


def _exp(x: tirx.Expr) -> tirx.Expr:
    """eˣ = 2ⁿ eʳ with n = round(x / ln 2)."""

    def of_parts(c: tirx.Expr, n: tirx.Expr, whole: tirx.Expr) -> tirx.Expr:
        scale = _number((whole << _like(x, 52, "int64")) + _like(x, _ONE_BITS, "int64"))
        rest = c - n * _like(x, _LN2_HIGH) - n * _like(x, _LN2_LOW)
        return _named(rest, lambda r: _series(_EXP, r)) * scale

    def of_clamped(c: tirx.Expr) -> tirx.Expr:
        return _rounded(c * _like(x, 1 / _LN2), lambda n, whole: of_parts(c, n, whole))

    clamped = tirx.Min(tirx.Max(x, _like(x, -_LARGEST)), _like(x, _LARGEST))
    return _where(x == x, _named(clamped, of_clamped), x)


def _log(x: tirx.Expr) -> tirx.Expr:
    """Of x = 2ᵏ (1 + f) it is k ln 2 + 2 atanh(f / (2 + f))."""

    def of_parts(k: tirx.Expr, f: tirx.Expr) -> tirx.Expr:
        ratio = f / (_like(x, 2.0) + f)
        value = k * _like(x, _LN2) + _like(x, 2.0) * _named(ratio, lambda s: _odd(_ATANH, s))
        value = _where(x > _like(x, 0.0), value, _like(x, math.nan))
        value = _where(x == _like(x, 0.0), _like(x, -math.inf), value)
        return _where(x < _like(x, math.inf), value, x + x)

    bits = _bits(x)
    k = (bits - _like(x, _ROOT_OF_HALF, "int64")) >> _like(x, 52, "int64")
    fraction = _number(bits - (k << _like(x, 52, "int64")))
    return _named(k.astype(_type(x, "float64")), lambda k: _named(fraction - _like(x, 1.0), lambda f: of_parts(k, f)))


def _quadrant(x: tirx.Expr, body: Callable[[tirx.Expr, tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """`body(q, r)` with x = (n + r) π/2, |r| ≤ ½, and q = n modulo 4 as int64; for float32, of any size.

    Digits of 2/π are multiplied one by one, which is exact, and each product is taken modulo 4. The first digit is the
    first whose products are not all multiples of 4; what follows the last is below 2⁻⁷¹. Rounding errors are relative
    to what is left of the sum, for digits that follow are smaller by 2²⁴. (Payne and Hanek, Radian reduction for
    trigonometric functions, 1983.)
    """

    def step(place: int, rest: tirx.Expr, count: tirx.Expr) -> tirx.Expr:
        if place == _DIGITS:
            return _rounded(count, lambda _, whole: body(whole & _like(x, 3, "int64"), rest))

        def of_product(p: tirx.Expr) -> tirx.Expr:
            part = _rounded(p * _like(x, 0.25), lambda n, _: p - n * _like(x, 4.0))
            return _named(rest + part, of_sum)

        def of_sum(s: tirx.Expr) -> tirx.Expr:
            return _rounded(s, lambda n, _: _named(s - n, lambda r: _named(count + n, lambda c: step(place + 1, r, c))))

        return _named(x * _digit(x, place), of_product)

    return step(0, _like(x, 0.0), _like(x, 0.0))


def _digit(x: tirx.Expr, place: int) -> tirx.Expr:
    """Of 2/π, at a place from the first one on that matters for x: below 2⁴⁹ the very first one, below 2⁷³ the next."""
    values = [digit * 2.0 ** (-24 * (number + 1)) for number, digit in enumerate(_TWO_OVER_PI)]
    last = len(values) - _DIGITS
    chosen = _like(x, values[place + last])
    for first in reversed(range(last)):
        chosen = _where(_magnitude(x) < _like(x, 2.0 ** (49 + 24 * first)), _like(x, values[place + first]), chosen)
    return chosen


def _turning(
    choose: Callable[[tirx.Expr, tirx.Expr, tirx.Expr], tirx.Expr],
) -> Callable[[tirx.Expr], tirx.Expr]:
    """A function of the quadrant, and of the sine and the cosine of the rest."""

    def function(x: tirx.Expr) -> tirx.Expr:
        def of_rest(q: tirx.Expr, r: tirx.Expr) -> tirx.Expr:
            return _named(
                r * _like(x, math.pi / 2),
                lambda y: _named(_odd(_SIN, y), lambda s: _named(_series(_COS, y * y), lambda c: choose(q, s, c))),
            )

        return _where(_magnitude(x) < _like(x, math.inf), _quadrant(x, of_rest), _like(x, math.nan))

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


def _atan(x: tirx.Expr) -> tirx.Expr:
    """By atan(z) = π/2 − atan(1/z), and π/4 + atan((z − 1) / (z + 1))."""
    one = _like(x, 1.0)

    def of_magnitude(m: tirx.Expr) -> tirx.Expr:
        return _named(_where(m > one, one / m, m), lambda z: of_small(m, z))

    def of_small(m: tirx.Expr, z: tirx.Expr) -> tirx.Expr:
        upper = z > _like(x, math.tan(math.pi / 8))
        angle = _named(_where(upper, (z - one) / (z + one), z), lambda u: _odd(_ATAN, u))
        angle = angle + _where(upper, _like(x, math.pi / 4), _like(x, 0.0))
        return _named(angle, lambda a: _signed(_where(m > one, _like(x, math.pi / 2) - a, a), x))

    return _where(x == x, _named(_magnitude(x), of_magnitude), x)


def _asin(x: tirx.Expr) -> tirx.Expr:
    one = _like(x, 1.0)
    return _named(x / _sqrt((one - x) * (one + x)), _atan)


def _acos(x: tirx.Expr) -> tirx.Expr:
    one = _like(x, 1.0)
    return _like(x, 2.0) * _named(_sqrt((one - x) / (one + x)), _atan)


def _atan2(y: tirx.Expr, x: tirx.Expr) -> tirx.Expr:
    zero, infinite = _like(x, 0.0), _like(x, math.inf)

    def of_magnitudes(a: tirx.Expr, b: tirx.Expr) -> tirx.Expr:
        ratio = _where(b == zero, _where(a == zero, zero, infinite), a / b)
        ratio = _where(tirx.all(a == infinite, b == infinite), _like(x, 1.0), ratio)
        angle = _named(ratio, _atan)
        turned = _bits(x) < _like(x, 0, "int64")
        return _named(angle, lambda t: _signed(_where(turned, _like(x, math.pi) - t, t), y))

    value = _named(_magnitude(y), lambda a: _named(_magnitude(x), lambda b: of_magnitudes(a, b)))
    return _where(x == x, _where(y == y, value, y), x)


def _sinh(x: tirx.Expr) -> tirx.Expr:
    large = _named(_exp(x), lambda e: (e - _like(x, 1.0) / e) * _like(x, 0.5))
    return _where(_magnitude(x) < _like(x, _SMALL), _odd(_SINH, x), large)


def _cosh(x: tirx.Expr) -> tirx.Expr:
    return _named(_exp(x), lambda e: (e + _like(x, 1.0) / e) * _like(x, 0.5))


def _asinh(x: tirx.Expr) -> tirx.Expr:
    def of_magnitude(m: tirx.Expr) -> tirx.Expr:
        return _signed(_named(m + _sqrt(m * m + _like(x, 1.0)), _log), x)

    large = _named(_magnitude(x), of_magnitude)
    return _where(_magnitude(x) < _like(x, _SMALL), _odd(_ASINH, x), large)


def _acosh(x: tirx.Expr) -> tirx.Expr:
    one = _like(x, 1.0)
    return _named(x + _sqrt(x - one) * _sqrt(x + one), _log)  # no number below 1


def _pow(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    """xʸ = e^(y log |x|), negative for negative x and odd y, and no number for negative x and y that is not whole."""
    one, zero = _like(x, 1.0), _like(x, 0.0)

    def of_whole(n: tirx.Expr, whole: tirx.Expr) -> tirx.Expr:
        size = _magnitude(y)
        is_whole = tirx.any(size >= _like(x, 2.0**31), n == y)
        is_odd = tirx.all(size < _like(x, 2.0**31), tirx.all(n == y, _is_odd(whole)))
        exponent = _named(_named(_magnitude(x), _log), lambda log: _where(y == zero, zero, y * log))
        value = _named(exponent, _exp)
        negative = _bits(x) < _like(x, 0, "int64")
        minus = _where(tirx.all(negative, is_odd), _like(x, -1.0), one)
        lost = tirx.all(x < zero, tirx.all(_magnitude(x) < _like(x, math.inf), tirx.Not(is_whole)))
        value = _where(lost, _like(x, math.nan), minus * value)
        value = _where(x == x, _where(y == y, value, y), x)
        return _where(tirx.any(x == one, y == zero), one, value)

    near = _where(_magnitude(y) < _like(x, 2.0**31), y, zero)
    result = _named(near, lambda c: _rounded(c, of_whole))
    # 1 to any power: log 1 is 0, and 0 · ∞ no number
    return _where(tirx.all(x == _like(x, -1.0), _magnitude(y) == _like(x, math.inf)), one, result)


def _of_single(function: Callable[..., tirx.Expr]) -> Callable[..., tirx.Expr]:
    """A function of float64 for operands of float32."""

    def of(*operands: tirx.Expr) -> tirx.Expr:
        wide: list[tirx.Expr] = []

        def bound(rest: Sequence[tirx.Expr]) -> tirx.Expr:
            if not rest:
                return function(*wide)

            def next_one(value: tirx.Expr) -> tirx.Expr:
                wide.append(value)
                return bound(rest[1:])

            return _named(rest[0].astype(_type(rest[0], "float64")), next_one)

        return bound(operands).astype(_type(operands[0], "float32"))

    return of


def _of_product(
    function: Callable[[tirx.Expr], tirx.Expr], before: float = 1.0, after: float = 1.0
) -> Callable[[tirx.Expr], tirx.Expr]:
    """`after · f(before · x)`."""

    def of(x: tirx.Expr) -> tirx.Expr:
        given = x if before == 1.0 else x * _like(x, before)
        value = _named(given, function)
        return value if after == 1.0 else value * _like(x, after)

    return of


def _with_zeros(function: Callable[[tirx.Expr], tirx.Expr]) -> Callable[[tirx.Expr], tirx.Expr]:
    """The same, with the sign of a zero."""
    return lambda x: _where(x == _like(x, 0.0), x, function(x))


_WIDE: dict[str, Callable[..., tirx.Expr]] = {
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
"""By the operators of TIR, for float32 or vectors of it."""
