"""Integer arithmetic of quantized tensors in fixed point: a real factor is 31 bits and a power of two.

    factor = multiplier · 2^(shift - 31)        round(x · factor) in int32, ties as Jacob et al. (2018) round them

The products with the multiplier are rounded to the nearest integer (ties up), then shifted right, rounded again
(ties away from zero). So results are the same bits on every machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from nnefc.operators.base import (
    Array,
    Emitter,
    Operand,
    Operator,
    SameShape,
    Shape,
    dtype_of,
    is_empty,
    shape_of,
    zeros,
)
from nnefc.operators.dtypes import numpy_dtype
from nnefc.operators.math.elementwise import broadcast_shapes, compute, element_at, fitted
from nnefc.operators.nn.quantization import RANGES
from nnefc.support.diagnostics import CompileError

__all__ = [
    "FixedPointScaling",
    "IntegerTable",
    "PairTable",
    "RoundedQuotient",
    "divided_by_power",
    "fixed_point_of",
    "fixed_points_of",
    "scaled",
    "scaled_by",
    "scaled_integers",
    "scaled_wide",
    "table_of",
]


def fixed_point_of(factor: float) -> tuple[int, int]:
    """A factor that is not negative as a multiplier of 31 bits and a shift."""
    if factor == 0 or not math.isfinite(factor):
        return 0, 0
    fraction, shift = math.frexp(factor)
    multiplier = math.floor(fraction * (1 << 31) + 0.5)
    if multiplier == 1 << 31:
        multiplier, shift = multiplier // 2, shift + 1
    if shift < -31:
        return 0, 0
    if shift > 30:
        return (1 << 31) - 1, 30
    return multiplier, shift


def fixed_points_of(factors: Array) -> tuple[Array, Array]:
    """Multipliers and shifts of factors, int32 of their shape."""
    pairs = [fixed_point_of(float(factor)) for factor in factors.reshape(-1)]
    return tuple(np.array([pair[k] for pair in pairs], np.int32).reshape(factors.shape) for k in (0, 1))  # type: ignore[return-value]


def scaled_integers(x: Array, multiplier: int, shift: int) -> Array:
    """`x` times a factor, as :class:`FixedPointScaling` computes it of int32; int64."""
    wide = (x.astype(np.int64) << max(shift, 0)).astype(np.int32).astype(np.int64)
    return divided_by_power((wide * multiplier + (1 << 30)) >> 31, max(-shift, 0))


def divided_by_power(x: Array, exponent: int) -> Array:
    """`x / 2^exponent` rounded to the nearest integer, ties away from zero."""
    mask = (1 << exponent) - 1
    made: Array = (x >> exponent) + ((x & mask) > (mask >> 1) + (x < 0))
    return made


def scaled_by(x: tirx.Expr, multiplier: Any, shift: Any, shifts: Array) -> tirx.Expr:
    """An int32 times a factor; `shifts` are the values that the shift has.

    The product with the multiplier is never the smallest nor the largest int32, so that nothing here overflows.
    """
    zero, one = tirx.const(0, "int32"), tirx.const(1, "int32")
    if (shifts > 0).any():
        x = x << tirx.max(shift, zero)
    wide = x.astype("int64") * multiplier.astype("int64") + tirx.const(1 << 30, "int64")
    high = (wide >> tirx.const(31, "int64")).astype("int32")
    if (shifts >= 0).all():
        return high
    # floor((high + 2^(e - 1) - (high < 0)) / 2^e), without the sum, which may not fit.
    less = high + (high >> tirx.const(31, "int32"))
    made = ((less >> tirx.max(zero - shift - one, zero)) + one) >> one
    return made if (shifts < 0).all() else tirx.Select(shift < zero, made, high)


def scaled(x: tirx.Expr, multiplier: int, shift: int) -> tirx.Expr:
    """An int32 times a known factor, as :class:`FixedPointScaling` computes it."""
    return scaled_by(x, tirx.const(multiplier, "int32"), tirx.const(shift, "int32"), np.array(shift))


_MAX_SIZE = 1 << 29
_MAX_RIGHT = 20
_MAX_ZERO = 1 << 8
"""Limits of what fits the 32 bits of :class:`_HighProduct`: of elements, of shifts, and of zero points."""


@dataclass(frozen=True)
class _HighProduct:
    """A factor as the upper half of one product of 32 bits, and one shift for all that is rounded.

        (((x · 2^(left + 2)) · multiplier >> 32) + added) >> right

    Floors of quotients by powers of two are the floor of one quotient: what each rounding adds before its shift is
    added here at once, and the zero point too. Rounding ties away from zero takes one more from a negative product.

    Attributes:
        added, right: int32, of one element or one for each factor.
        minus: whether one more is taken from negative products; where the results of all of them are clipped to the
            zero point, it makes no difference.
    """

    added: Array
    right: Array
    minus: bool

    @staticmethod
    def of(shift: Array, zero: int, low: int | None, is_exact: bool) -> _HighProduct | None:
        """Returns the parameters for shifts that are not positive; None where the sums do not fit."""
        right = -np.asarray(shift, np.int64)
        if (right < 0).any() or (right > _MAX_RIGHT).any() or abs(zero) > _MAX_ZERO:
            return None
        minus = not is_exact and bool(right.any()) and (low is None or low < zero)
        if minus and not right.all():
            return None  # a product without a shift is not rounded twice
        half = np.where(right > 0, 1 << right, 0) if not is_exact else 1 << right
        added = half + (not is_exact) + (zero << (right + 1))
        return _HighProduct(np.asarray(added, np.int32), np.asarray(right + 1, np.int32), minus)

    def scaled(self, x: tirx.Expr, left: int, multiplier: Any, added: Any, right: Any) -> tirx.Expr:
        """Returns `x · 2^left` times a factor; it is below 2^29 in size."""
        wide = (x << tirx.const(left + 2, "int32")).astype("int64") * multiplier.astype("int64")
        made = (wide >> tirx.const(32, "int64")).astype("int32") + added
        if self.minus:
            made = made + ((x >> tirx.const(31, "int32")) << tirx.const(1, "int32"))
        return made >> right


def scaled_wide(x: tirx.Expr, multiplier: Any, shift: Any) -> tirx.Expr:
    """An int64 of 48 bits times a factor, whose multiplier is rounded to 15 bits."""
    edge = tirx.const(0x7FFF0000, "int32")
    narrow = (multiplier + tirx.const(1 << 15, "int32")) >> tirx.const(16, "int32")
    factor = tirx.Select(multiplier < edge, narrow, tirx.const(0x7FFF, "int32")).astype("int64")
    total = tirx.const(15, "int64") - shift.astype("int64")
    half = tirx.const(1, "int64") << (total - tirx.const(1, "int64"))
    return ((x * factor + half) >> total).astype("int32")


def _scaled_exactly(x: tirx.Expr, multiplier: Any, shift: Any) -> tirx.Expr:
    """An int32, or an int64 of 48 bits in parts that fit 64 bits, times a factor, rounded once, ties up."""
    is_wide, x = str(x.ty) == "int64", x.astype("int64")
    wide, sixteen = multiplier.astype("int64"), tirx.const(16, "int64")
    total = tirx.const(31, "int64") - shift.astype("int64")
    half = tirx.const(1, "int64") << (total - tirx.const(1, "int64"))
    if not is_wide:
        return ((x * wide + half) >> total).astype("int32")
    low = ((x & tirx.const(0xFFFF, "int64")) * wide + half) >> sixteen
    return (((x >> sixteen) * wide + low) >> (total - sixteen)).astype("int32")


@dataclass(frozen=True)
class FixedPointScaling(SameShape):
    """`((x + offset) · 2^left) · factor + zero`, clipped, in an integer type; factors broadcast to `x`.

    Sums in int64, which activations of 16 bits have, are scaled with a multiplier of 15 bits, or exactly.

    Attributes:
        dtype: of the result.
        offset, left: added to the elements, and by how many bits they are shifted to the left then.
        zero: added to the products.
        low, high: limits of the result; None: those of its type.
        exact: whether products are rounded once, ties up; shifts do not exceed 15 then.
        size: the largest absolute value of an int32 `x`; None: unknown. Few bits are scaled in fewer instructions.
    """

    dtype: str = "int32"
    offset: int = 0
    left: int = 0
    zero: int = 0
    low: int | None = None
    high: int | None = None
    exact: bool = False
    size: int | None = None

    def lower(self, ctx: Emitter, x: Operand, multiplier: Array, shift: Array) -> Operand:
        """`multiplier` and `shift` are int32; `x` is of an integer type."""
        if is_empty(shape_of(x)):
            return zeros(shape_of(x), numpy_dtype(self.dtype))
        low, high = RANGES.get(self.dtype, (None, None))
        low, high = low if self.low is None else self.low, high if self.high is None else self.high
        is_wide = dtype_of(x) == "int64"
        product = _HighProduct.of(shift, self.zero, low, self.exact) if self._is_small(dtype_of(x)) else None

        def element(x: Any, *factor: Any) -> Any:
            if not is_wide:
                x = x.astype("int32")
            if self.offset:
                x = x + tirx.const(self.offset, str(x.ty))
            if product is not None:
                made = product.scaled(x, self.left, *factor)
            else:
                x = x << tirx.const(self.left, "int32") if self.left else x
                if self.exact:
                    made = _scaled_exactly(x, *factor)
                else:
                    made = scaled_wide(x, *factor) if is_wide else scaled_by(x, factor[0], factor[1], shift)
                made = made + tirx.const(self.zero, "int32") if self.zero else made
            made = made if low is None else tirx.max(made, tirx.const(low, "int32"))
            return made if high is None else tirx.min(made, tirx.const(high, "int32"))

        factor = (multiplier, shift) if product is None else (multiplier, product.added, product.right)
        return compute(ctx, element, x, *factor, name="fixed_point", dtype=self.dtype)

    def _is_small(self, dtype: str) -> bool:
        """Whether elements of a type, with their offset and shifted to the left, are below 2^29 in size."""
        if dtype == "int64" or (dtype == "int32" and self.size is None):
            return False
        low, high = (-self.size, self.size) if self.size is not None else RANGES[dtype]
        return max(abs(low + self.offset), abs(high + self.offset)) << self.left < _MAX_SIZE


def table_of(dtype: str, function: Callable[[Array], Array]) -> Array:
    """The values of a function of all integers of 8 or 16 bits, from the smallest on; `function` takes int64."""
    low, high = RANGES[dtype]
    made: Array = np.asarray(function(np.arange(low, high + 1, dtype=np.int64)))
    return made


@dataclass(frozen=True)
class IntegerTable(SameShape):
    """The entry of a table for each element: `table[x - min]` of an integer of 8 or 16 bits."""

    def lower(self, ctx: Emitter, x: Operand, table: Array) -> Operand:
        """`table` has an entry for each value of the type of `x`, and the type of the result."""
        low, high = RANGES[dtype_of(x)]
        if table.shape != (high - low + 1,):
            raise CompileError(f"a table of {dtype_of(x)} has {high - low + 1} entries, not {list(table.shape)}")
        if isinstance(x, np.ndarray):
            made: Array = table[x.astype(np.int64) - low]
            return made

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            return tensors[1](tensors[0](*index).astype("int32") - low)

        return ctx.elements(shape_of(x), element, x, table, name="table")


@dataclass(frozen=True)
class PairTable(Operator):
    """The entry of a table for each pair of bytes of one type: `table[x - min, y - min]`; both broadcast."""

    def shape(self, *shapes: Shape) -> Shape:
        """The common shape of the bytes."""
        return broadcast_shapes(*shapes[:2])

    def lower(self, ctx: Emitter, x: Operand, y: Operand, table: Array) -> Operand:
        """`table` is `[256, 256]`, of the type of the result."""
        low, shape = RANGES[dtype_of(x)][0], self.shape(shape_of(x), shape_of(y))
        if is_empty(shape):
            return zeros(shape, table.dtype)
        x, y = (fitted(ctx, each, shape) for each in (x, y))

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            row, column = (element_at(each, index, shape).astype("int32") - low for each in tensors[:2])
            return tensors[2](row, column)

        return ctx.elements(shape, element, x, y, table, name="pair_table")


@dataclass(frozen=True)
class RoundedQuotient(SameShape):
    """`x / n` of int32 or int64, rounded to the nearest, ties away from zero; `n` is positive and broadcasts."""

    def lower(self, ctx: Emitter, x: Operand, n: Array) -> Operand:
        dtype = dtype_of(x)

        def element(x: Any, n: Any) -> Any:
            half = tirx.truncdiv(n, tirx.const(2, dtype))
            return tirx.truncdiv(tirx.Select(x > tirx.const(0, dtype), x + half, x - half), n)

        return compute(ctx, element, x, n.astype(dtype), name="rounded_quotient", dtype=dtype)
