"""Quotients of bytes in fixed point, as a table of all pairs.

The reciprocal of a divisor `d = (1 + f) · 2^n` is `2^-n / (1 + f)`, of which three of Newton's steps find 31 bits:

    x ← x + x (1 - h x)        h = (1 + f) / 2, from x = 48 / 17 - 32 / 17 · h

It is multiplied with the numerator, without its leading bits that are equal, and the quotient is scaled in fixed point:
each product is rounded to 31 bits. LiteRT divides bytes so.
"""

from __future__ import annotations

import numpy as np

from nnefc.operators.base import Array
from nnefc.operators.nn.fixed_point import divided_by_power
from nnefc.operators.nn.quantization import RANGES

__all__ = ["quotients_of_bytes"]

_ONE = (1 << 31) - 1
"""1 with 31 bits behind the point; other numbers of the iteration have 29, and two before it."""

_48_OVER_17, _32_OVER_17 = 1515870810, 1010580540
_STEPS = 3


def _product(x: Array, y: Array | int) -> Array:
    """The product of fractions of 31 bits, rounded to the nearest, ties up."""
    exact: Array = x * y
    made: Array = (exact + (1 << 30)) >> 31
    return made


def _more_bits(x: Array, bits: int) -> Array:
    """A number with fewer bits before the point, clipped to 32 bits."""
    made: Array = np.clip(x << bits, -(1 << 31), _ONE)
    return made


def _bits(x: Array) -> Array:
    """How many bits numbers have that are not negative."""
    made: Array = np.frexp(x.astype(np.float64))[1].astype(np.int64)
    return made


def _reciprocals(divisor: Array) -> tuple[Array, Array]:
    """`2^n / d` with 31 bits behind the point, and n, of positive integers."""
    bits = _bits(divisor)
    fraction = (divisor << (32 - bits)) - (1 << 31)
    half = (fraction + _ONE + 1) >> 1
    made = _48_OVER_17 + _product(half, -_32_OVER_17)
    for _ in range(_STEPS):
        made = made + _more_bits(_product(made, (1 << 29) - _product(half, made)), 2)
    return _more_bits(made, 1), bits - 1


def quotients_of_bytes(
    dtype: str, zeros: tuple[int, int, int], factor: tuple[int, int], ends: tuple[int, int]
) -> Array:
    """The table `[256, 256]` of quotients of bytes, of their type, by numerator and divisor in ascending order.

    A divisor that stands for 0 gives the limit that the numerator's sign says, and 0 of 0.

    Args:
        zeros: zero points of the numerator, the divisor and the result.
        factor: the multiplier and the shift that quotients are scaled with.
        ends: limits of the result.
    """
    low, high = RANGES[dtype]
    values = np.arange(low, high + 1, dtype=np.int64)
    divisor = (values - zeros[1])[None, :]
    top = (values - zeros[0])[:, None] * np.where(divisor < 0, -1, 1)
    headroom = 31 - _bits(np.where(top < 0, ~top, top))
    inverse, power = _reciprocals(np.maximum(np.abs(divisor), 1))
    quotient = _product(_product(top << headroom, inverse), factor[0])
    scaled = divided_by_power(quotient, np.clip(power + headroom - factor[1], 0, 62))
    scaled = np.where(divisor == 0, np.sign(top) << 16, scaled)
    made: Array = np.clip(scaled + zeros[2], *ends).astype(dtype)
    return made
