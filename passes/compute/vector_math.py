"""Computes elementary functions of float32 by polynomials, which vectorize; libm takes one element at a time.

The largest errors over all finite arguments, in ULP, are measured by the tests: exp 2, log 1,
log1p 3, atanh 4, tanh 8, sigmoid 3, erf 8. Powers of e below 2⁻¹²⁵ (2.4e-38) become zero. The coefficients were fitted
here, by iterated weighted least squares on Chebyshev points.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import tvm
from tvm import tirx

from nnefc.passes.tir.tvm_workarounds.opaque import opaque

__all__ = [
    "VECTOR_FUNCTIONS",
    "atanh",
    "erf",
    "exp",
    "exp_of_negative",
    "like",
    "log",
    "log1p",
    "named",
    "polynomial",
    "sigmoid",
    "tanh",
    "typed",
    "use_vector_math",
]

_LOG2E = 1.44269504088896341
_LN2_HIGH = 0.693359375  # few bits, so that n · _LN2_HIGH is exact
_LN2_LOW = -2.12194440e-4
_LARGEST_EXP = 88.72283905206835  # the argument of the largest finite result
_SMALLEST_EXP = -86.64339756999316  # 2⁻¹²⁵

# (eʳ − 1 − r) / r² for |r| ≤ ln 2 / 2, lowest power first
_EXP = (0.4999999403953552, 0.1666652113199234, 0.04166839271783829, 0.008368746377527714, 0.0013814532430842519)

# (log(1 + f) − f + f² / 2) / f³ for √½ ≤ 1 + f < √2, lowest power first
_LOG = (
    0.3333333134651184,
    -0.2500081956386566,
    0.20001226663589478,
    -0.16623356938362122,
    0.14201758801937103,
    -0.13160182535648346,
    0.12761574983596802,
    -0.07634492963552475,
)
_ROOT_OF_HALF = 0x3F3504F3  # the bits of √½
_SMALLEST_NORMAL = 2.0**-126

# e⁻ʳ for such r
_EXP_NEGATIVE = (1.0, -1.0, *(-c if k % 2 else c for k, c in enumerate(_EXP)))
# Added to a small number, it rounds it to n; the sum's last bits are n + 127, the exponent's bits of 2ⁿ.
_ROUNDING = 1.5 * 2**23 + 127
_ZERO_FROM = -88.02969193111305  # -127 ln 2: the exponent is that of 0
_SIGMOID_RANGE = (-88.8, 87.0)  # at the ends the exponent is 255, of infinity, and 1

# tanh(x) ≈ x P(x²) / Q(x²) for |x| ≤ 9, where the result is 1 in float32
_TANH_RANGE = 9.0
_TANH_P = (
    1.0,
    0.13084016740322113,
    0.003103962866589427,
    1.115437589760404e-05,
    -2.022548351021669e-08,
    5.278063749947215e-11,
    -8.488984526173332e-14,
)
_TANH_Q = (1.0, 0.46417343616485596, 0.024495204910635948, 0.00025461550103500485)

# erf(x) ≈ x P(x²) / Q(x²) for |x| ≤ 4, where the result is 1 in float32
_ERF_RANGE = 4.0
_ERF_P = (
    1.1283791065216064,
    0.20711496472358704,
    0.051523491740226746,
    0.003990126308053732,
    0.00014727533562108874,
    -1.942265726029291e-06,
    1.911106650709371e-08,
)
_ERF_Q = (1.0, 0.5168821215629578, 0.11796646565198898, 0.01495717279613018, 0.001021003001369536)


def like(x: tirx.Expr, value: float, code: str | None = None) -> tirx.Expr:
    """Returns a constant with as many lanes as `x`; of its type, or of the type `code`."""
    dtype = tvm.DataType(str(x.expr_ty().dtype))
    scalar = tirx.const(value, code or f"{str(dtype).split('x')[0]}")
    return tirx.Broadcast(scalar, dtype.lanes) if dtype.lanes > 1 else scalar


def typed(x: tirx.Expr, code: str) -> str:
    """Returns the type of as many elements `code` as `x` has."""
    lanes = tvm.DataType(str(x.expr_ty().dtype)).lanes
    return f"{code}x{lanes}" if lanes > 1 else code


def polynomial(coefficients: Sequence[float], x: tirx.Expr) -> tirx.Expr:
    """Horner's rule, lowest power first; becomes fused multiply-adds."""
    result = like(x, coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = result * x + like(x, coefficient)
    return result


def named(value: tirx.Expr, name: str, body: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Expr:
    """Returns `body(value)` with `value` computed once.

    TVM meets the binding more than once, and fails if it has replaced `value` by a constant or a variable in the
    meantime: an opaque one it never replaces.
    """
    var = tirx.Var(name, value.expr_ty())
    return tirx.Let(var, opaque(value), body(var))


def _clamped(x: tirx.Expr, low: float, high: float) -> tirx.Expr:
    return tirx.Min(tirx.Max(x, like(x, low)), like(x, high))


def exp(x: tirx.Expr) -> tirx.Expr:
    """eˣ = 2ⁿ eʳ with n = round(x / ln 2)."""

    def of_parts(n: tirx.Expr, r: tirx.Expr) -> tirx.Expr:
        power = r * r * polynomial(_EXP, r) + r + like(x, 1.0)
        exponent = n.astype(typed(x, "int32")) + like(x, 126, "int32")  # one too small: 2¹²⁸ has no bits of its own
        scale = tirx.reinterpret(typed(x, "float32"), exponent << like(x, 23, "int32"))
        value = power * like(x, 2.0) * scale
        value = tirx.Select(x > like(x, _LARGEST_EXP), like(x, float("inf")), value)
        value = tirx.Select(x < like(x, _SMALLEST_EXP), like(x, 0.0), value)
        return tirx.Select(x == x, value, x)  # NaN propagates

    def of_clamped(c: tirx.Expr) -> tirx.Expr:
        def of_n(n: tirx.Expr) -> tirx.Expr:
            tail = c - n * like(x, _LN2_HIGH) - n * like(x, _LN2_LOW)
            return named(tail, "r", lambda r: of_parts(n, r))

        return named(tirx.nearbyint(c * like(x, _LOG2E)), "n", of_n)

    return named(_clamped(x, _SMALLEST_EXP, _LARGEST_EXP), "c", of_clamped)


def exp_of_negative(x: tirx.Expr) -> tirx.Expr:
    """eˣ for x ≤ 0, in half the instructions: n is rounded as in :func:`sigmoid`, and 2ⁿ is 0 for the smallest results.

    NaN stays so.
    """

    def of_sum(total: tirx.Expr, c: tirx.Expr) -> tirx.Expr:
        n = total - like(x, _ROUNDING)
        tail = c - n * like(x, _LN2_HIGH) - n * like(x, _LN2_LOW)
        scale = tirx.reinterpret(
            typed(x, "float32"), tirx.reinterpret(typed(x, "int32"), total) << like(x, 23, "int32")
        )
        return named(tail, "r", lambda r: polynomial((1.0, 1.0, *_EXP), r)) * scale

    def of_clamped(c: tirx.Expr) -> tirx.Expr:
        return named(c * like(x, _LOG2E) + like(x, _ROUNDING), "t", lambda total: of_sum(total, c))

    return named(tirx.Max(like(x, _ZERO_FROM), x), "c", of_clamped)


def log(x: tirx.Expr) -> tirx.Expr:
    """Returns the natural logarithm: of x = 2ⁿ (1 + f) it is n ln 2 + log(1 + f)."""

    def of_parts(n: tirx.Expr, f: tirx.Expr) -> tirx.Expr:
        tail = f * f * (f * polynomial(_LOG, f) - like(x, 0.5)) + n * like(x, _LN2_LOW)
        value = n * like(x, _LN2_HIGH) + (f + tail)
        outside = tirx.Select(x == like(x, 0.0), like(x, -float("inf")), like(x, float("nan")))
        value = tirx.Select(x > like(x, 0.0), value, outside)
        return tirx.Select(x < like(x, float("inf")), value, x + x)  # infinity and NaN stay

    def of_scaled(scaled: tirx.Expr) -> tirx.Expr:
        """Return the logarithm from `scaled`, which is x, or 2²³ x if x is subnormal."""
        bits = tirx.reinterpret(typed(x, "int32"), scaled)
        exponent = (bits - like(x, _ROOT_OF_HALF, "int32")) >> like(x, 23, "int32")
        fraction = tirx.reinterpret(typed(x, "float32"), bits - (exponent << like(x, 23, "int32")))
        less = tirx.Select(x < like(x, _SMALLEST_NORMAL), like(x, 23.0), like(x, 0.0))
        n = exponent.astype(typed(x, "float32")) - less
        return named(n, "n", lambda n: named(fraction - like(x, 1.0), "f", lambda f: of_parts(n, f)))

    scaled = tirx.Select(x < like(x, _SMALLEST_NORMAL), x * like(x, 2.0**23), x)
    return named(scaled, "s", of_scaled)


def log1p(x: tirx.Expr) -> tirx.Expr:
    """log(1 + x) = log(u) x / (u - 1) with u = 1 + x as it is rounded: the errors of both factors cancel.

    (Higham, Accuracy and Stability of Numerical Algorithms, 2002, section 1.14.1.)
    """

    def of_sum(u: tirx.Expr) -> tirx.Expr:
        value = log(u) * (x / (u - like(x, 1.0)))
        unchanged = tirx.any(u == like(x, 1.0), u == like(x, float("inf")))
        return tirx.Select(unchanged, x, value)

    return named(x + like(x, 1.0), "u", of_sum)


def atanh(x: tirx.Expr) -> tirx.Expr:
    """Returns the inverse hyperbolic tangent: log1p(2 |x| / (1 − |x|)) / 2 with the sign of x."""

    def of_magnitude(m: tirx.Expr) -> tirx.Expr:
        twice = named((m + m) / (like(x, 1.0) - m), "v", log1p)
        sign = tirx.bitwise_and(tirx.reinterpret(typed(x, "int32"), x), like(x, -(1 << 31), "int32"))
        bits = tirx.reinterpret(typed(x, "int32"), twice * like(x, 0.5))
        return tirx.reinterpret(typed(x, "float32"), tirx.bitwise_or(bits, sign))

    return named(tirx.Max(x, like(x, 0.0) - x), "m", of_magnitude)


def _odd_rational(x: tirx.Expr, limit: float, above: Sequence[float], below: Sequence[float]) -> tirx.Expr:
    def of_clamped(c: tirx.Expr) -> tirx.Expr:
        ratio = named(c * c, "u", lambda u: c * polynomial(above, u) / polynomial(below, u))
        return tirx.Select(x == x, _clamped(ratio, -1.0, 1.0), x)

    return named(_clamped(x, -limit, limit), "c", of_clamped)


def tanh(x: tirx.Expr) -> tirx.Expr:
    """Returns the hyperbolic tangent."""
    return _odd_rational(x, _TANH_RANGE, _TANH_P, _TANH_Q)


def erf(x: tirx.Expr) -> tirx.Expr:
    """Returns the error function."""
    return _odd_rational(x, _ERF_RANGE, _ERF_P, _ERF_Q)


def sigmoid(x: tirx.Expr) -> tirx.Expr:
    """Returns 1 / (1 + e⁻ˣ), with e⁻ˣ = 2ⁿ e⁻ʳ and n = −round(x / ln 2).

    The denominator hides errors of e⁻ˣ: where it overflows, the result is 0, and where it is tiny, 1 outweighs it. So n
    is rounded by adding a number whose ULP is 1, and read from the bits of that sum.

    The denominator forgives: e⁻ˣ may overflow, where the result is 0, and needs no care where 1 is much larger. So n is
    rounded by adding a number whose ULP is 1, and read off that sum's bits.
    """

    def of_sum(total: tirx.Expr, c: tirx.Expr) -> tirx.Expr:
        n = total - like(x, _ROUNDING)
        tail = c + n * like(x, _LN2_HIGH) + n * like(x, _LN2_LOW)
        scale = tirx.reinterpret(
            typed(x, "float32"), tirx.reinterpret(typed(x, "int32"), total) << like(x, 23, "int32")
        )
        power = named(tail, "r", lambda r: polynomial(_EXP_NEGATIVE, r))
        return like(x, 1.0) / (like(x, 1.0) + power * scale)

    def of_clamped(c: tirx.Expr) -> tirx.Expr:
        return named(c * like(x, -_LOG2E) + like(x, _ROUNDING), "t", lambda total: of_sum(total, c))

    low, high = _SIGMOID_RANGE
    return named(tirx.Max(like(x, low), tirx.Min(like(x, high), x)), "c", of_clamped)  # in this order for NaN


_FUNCTIONS = {"exp": exp, "log": log, "log1p": log1p, "atanh": atanh, "tanh": tanh, "erf": erf, "sigmoid": sigmoid}

VECTOR_FUNCTIONS = frozenset(f"tirx.{name}" for name in _FUNCTIONS)
"""The operators of TIR that polynomials replace."""

# Other types of what TVM has no lowering for.
_FALLBACKS: dict[str, Callable[[tirx.Call], tirx.Expr]] = {
    "sigmoid": lambda call: like(call, 1.0) / (like(call, 1.0) + tirx.exp(like(call, 0.0) - call.args[0]))
}


def _lowering(name: str, function: Callable[[tirx.Expr], tirx.Expr]) -> Callable[[tirx.Call], tirx.Expr]:
    operation = tvm.ir.Op.get(f"tirx.{name}")
    own = (
        operation.get_attr("llvm.FLowerIntrinsic") or operation.get_attr("default.FLowerIntrinsic") or _FALLBACKS[name]
    )

    def lower(call: tirx.Call) -> tirx.Expr:
        (x,) = call.args
        dtype = tvm.DataType(str(x.expr_ty().dtype))
        if dtype.bits != 32 or not str(dtype).startswith("float32"):
            return own(call)
        return named(x, "x", function)

    return lower


@functools.cache  # TVM refuses a second registration
def use_vector_math() -> None:
    """Makes TVM's code generator for CPUs use these functions in this process."""
    for name, function in _FUNCTIONS.items():
        tirx.register_intrin_lowering(f"tirx.{name}", target="llvm", f=_lowering(name, function), level=100)
    for name in ("cosh", "sinh"):  # TVM lowers the others of the C library's functions itself
        tirx.register_intrin_lowering(f"tirx.{name}", target="llvm", f=_library(name), level=100)


def _library(name: str) -> Callable[[tirx.Call], tirx.Expr]:
    """Calls the function `name` of the C library for each lane."""

    def lower(call: tirx.Call) -> tirx.Expr:
        (x,) = call.args
        dtype = tvm.DataType(str(x.expr_ty().dtype))
        scalar, _, _ = str(dtype).partition("x")
        wide = "float64" if scalar == "float64" else "float32"
        symbol = name if wide == "float64" else f"{name}f"

        def of(value: tirx.Expr) -> tirx.Expr:
            return tirx.call_pure_extern(wide, symbol, value.astype(wide)).astype(scalar)

        if dtype.lanes == 1:
            return of(x)
        return tirx.Shuffle([of(tirx.Shuffle([x], [lane])) for lane in range(dtype.lanes)], list(range(dtype.lanes)))

    return lower
