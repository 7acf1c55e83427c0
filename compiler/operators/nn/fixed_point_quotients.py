"""Quotients of integers of 8 or 16 bits in fixed point; of bytes, as a table of all pairs.

The reciprocal of a divisor `d = (1 + f) · 2^n` is `2^-n / (1 + f)`, of which three of Newton's steps find 31 bits:

    x ← x + x (1 - h x)        h = (1 + f) / 2, from x = 48 / 17 - 32 / 17 · h

It is multiplied with the numerator, without its leading bits that are equal, and the quotient is scaled in fixed point:
each product is rounded to 31 bits. LiteRT divides so.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from tvm import tirx

from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, is_empty, shape_of, zeros
from nnefc.operators.dtypes import numpy_dtype
from nnefc.operators.math.elementwise import broadcast_shapes
from nnefc.operators.nn.quantization import RANGES
from nnefc.operators.statements import T, looped
from nnefc.operators.tensor.shape import Expand
from nnefc.symbolic.dims import expression

__all__ = ["FixedPointQuotient", "quotients_of_bytes"]

_ONE, _LOWEST = (1 << 31) - 1, -(1 << 31)
"""1 and -1 with 31 bits behind the point; other numbers of the iteration have 29, and two before it."""

_48_OVER_17, _32_OVER_17 = 1515870810, 1010580540
_STEPS, _MAX_BITS = 3, 17


class _Functions(NamedTuple):
    """What NumPy and TIR name differently; `kept` computes a value that is used several times once."""

    select: Callable[..., Any]
    minimum: Callable[..., Any]
    maximum: Callable[..., Any]
    kept: Callable[[Any], Any]


def _product(x: Any, y: Any) -> Any:
    """The product of fractions of 31 bits, rounded to the nearest, ties up."""
    return (x * y + (1 << 30)) >> 31


def _bits(x: Any) -> Any:
    """How many bits integers have that are not negative, and below 2^17."""
    return sum((x >> bit > 0).astype("int64") for bit in range(_MAX_BITS))


@dataclass(frozen=True)
class FixedPointQuotient(Operator):
    """`clip(round((x - zeros[0]) / (y - zeros[1]) · factor) + zeros[2])` of integers of one type, which broadcast.

    A divisor that stands for 0 gives the limit that the numerator's sign says, and 0 of 0. Of a shift by more than 31
    bits count the low five, as on x86-64 and AArch64: very small quotients are one step off, or a limit, as in LiteRT.

    Attributes:
        dtype: of the result.
        zeros: zero points of the numerator, the divisor and the result.
        factor: the multiplier and the shift that quotients are scaled with.
        ends: limits of the result.
    """

    dtype: str
    zeros: tuple[int, int, int]
    factor: tuple[int, int]
    ends: tuple[int, int]

    def shape(self, *shapes: Shape) -> Shape:
        """The common shape of the operands."""
        return broadcast_shapes(*shapes)

    def lower(self, ctx: Emitter, x: Operand, y: Operand) -> Operand:
        shape = self.shape(shape_of(x), shape_of(y))
        if is_empty(shape):
            return zeros(shape, numpy_dtype(self.dtype))
        operands = [ctx.apply(Expand(shape), each) for each in (x, y)]

        def kept(value: Any) -> Any:
            local = T.buffer_proxy(T.alloc_buffer((1,), "int64", scope="local"))
            local[0] = value
            return local[0]

        functions = _Functions(tirx.Select, tirx.min, tirx.max, kept)

        def write(x: Any, y: Any, made: Any) -> None:
            with T.serial(0, expression(math.prod(shape))) as i:
                made[i] = self.of(x[i].astype("int64"), y[i].astype("int64"), functions).astype(self.dtype)

        (result,) = looped(ctx, write, operands, [(shape, self.dtype)], "fixed_point_quotient")
        return result

    def of(self, x: Any, y: Any, by: _Functions) -> Any:
        """The quotients of arrays, or expressions, of int64."""
        divisor = by.kept(y - self.zeros[1])
        top = by.kept(by.select(divisor < 0, self.zeros[0] - x, x - self.zeros[0]))
        size = by.kept(by.maximum(divisor, 0 - divisor))
        inverse, power = self._reciprocals(by.maximum(size, 1), by)
        headroom = by.kept(31 - _bits(by.kept(by.maximum(top, -1 - top))))
        quotient = by.kept(_product(_product(top << headroom, inverse), self.factor[0]))
        made = self._divided(quotient, by.kept(power + headroom - self.factor[1]), by)
        sign = (top > 0).astype("int64") - (top < 0).astype("int64")
        made = by.select(size > 0, made, sign << 16)
        return by.maximum(by.minimum(made + self.zeros[2], self.ends[1]), self.ends[0])

    @staticmethod
    def _reciprocals(divisor: Any, by: _Functions) -> tuple[Any, Any]:
        """`2^n / d` with 31 bits behind the point, and n, of positive integers."""
        divisor = by.kept(divisor)
        bits = by.kept(_bits(divisor))
        half = by.kept(divisor << (31 - bits))

        def more_bits(x: Any, count: int) -> Any:
            """A number with fewer bits before the point, clipped to 32 bits."""
            return by.maximum(by.minimum(x << count, _ONE), _LOWEST)

        made = by.kept(_48_OVER_17 + _product(half, -_32_OVER_17))
        for _ in range(_STEPS):
            made = by.kept(made + more_bits(_product(made, (1 << 29) - _product(half, made)), 2))
        return more_bits(made, 1), bits - 1

    @staticmethod
    def _divided(x: Any, exponent: Any, by: _Functions) -> Any:
        """`x / 2^exponent` rounded to the nearest, ties away from zero; of the exponent count five bits."""
        low = by.kept(exponent & 31)
        half = ((x * 0 + 1) << low) >> 1
        sign = (x < 0).astype("int64")
        rounded = (x + half - by.select(low > 0, sign, x * 0)) >> low
        other = (exponent - low) * (exponent - low) > 0
        return by.select(other, (x >> low) + 1 - sign, rounded)


def quotients_of_bytes(
    dtype: str, zeros: tuple[int, int, int], factor: tuple[int, int], ends: tuple[int, int]
) -> Array:
    """The table `[256, 256]` of :class:`FixedPointQuotient`, by numerator and divisor in ascending order."""
    low, high = RANGES[dtype]
    values = np.arange(low, high + 1, dtype=np.int64)
    layer = FixedPointQuotient(dtype, zeros, factor, ends)
    made: Array = layer.of(
        values[:, None], values[None, :], _Functions(np.where, np.minimum, np.maximum, lambda value: value)
    ).astype(dtype)
    return made
