"""Sigmoid and tanh of 16-bit fixed-point numbers, as tables of the gates of integer LSTMs.

A number with k integer bits is `raw · 2^(k - 15)`; results have none. Powers of e are products of at most seven
constants and a Taylor series for the last quarter, quotients are found by three of Newton's steps, and all products are
rounded to 15 bits: the functions of gemmlowp, which LiteRT's LSTM kernels use. Tables of other kernels
(`fixed_point_functions.py`) interpolate instead, and differ in the last bit.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np

from nnefc.operators.base import Array
from nnefc.operators.nn.fixed_point import divided_by_power

__all__ = ["MAX_INTEGER_BITS", "positive_sigmoids", "positive_tanhs"]

MAX_INTEGER_BITS = 6
"""The maximum number of integer bits of the arguments of `positive_tanhs`."""

_ONE = (1 << 15) - 1
_LOW, _HIGH = -(1 << 15), _ONE


def _constant(value: float, integer_bits: int = 0) -> int:
    """A constant of 31 bits, rounded to 15."""
    wide = np.array(math.floor(value * (1 << (31 - integer_bits)) + 0.5))
    return int(divided_by_power(wide, 16))


def _product(x: Array, y: Array | int) -> Array:
    """The product of fractions of 15 bits, rounded to the nearest one, ties away from zero."""
    wide = x * y
    moved: Array = wide + np.where(wide >= 0, 1 << 14, 1 - (1 << 14)).astype(np.int64)
    made: Array = np.minimum(np.where(moved >= 0, moved >> 15, -(-moved >> 15)), _HIGH)
    return made


def _more_bits(x: Array, bits: int) -> Array:
    """A number with fewer integer bits, clipped."""
    made: Array = np.clip(x << bits, _LOW, _HIGH)
    return made


def _power_near_zero(x: Array) -> Array:
    """`e^x` for x from -1/4 to below 0: five terms of the Taylor series around -1/8."""
    x, middle = x + (1 << 12), _constant(math.exp(-1 / 8))
    square = _product(x, x)
    cube, fourth = _product(square, x), _product(square, square)
    high = _product(divided_by_power(fourth, 2) + cube, _constant(1 / 3)) + square
    made: Array = np.minimum(middle + _product(x + divided_by_power(high, 1), middle), _HIGH)
    return made


def _power(x: Array, integer_bits: int) -> Array:
    """`e^x` for x up to 0."""
    fraction = 15 - integer_bits
    quarter = 1 << (fraction - 2)
    near = (x & (quarter - 1)) - quarter
    made, distance = _power_near_zero(_more_bits(near, integer_bits)), near - x
    for exponent in range(-2, min(integer_bits, 5)):
        has = distance & (1 << (fraction + exponent)) != 0
        made = np.where(has, _product(made, _constant(math.exp(-(2.0**exponent)))), made)
    if integer_bits > 5:
        made = np.where(x < -(32 << fraction), 0, made)
    return np.where(x == 0, _ONE, made)


def _reciprocal(x: Array) -> Array:
    """`2 / (1 + x)` with two integer bits, for x from 0 to 1."""
    half = (x + _ONE + 1) >> 1  # of the denominator
    made = _constant(48 / 17, 2) + _product(half, _constant(-32 / 17, 2))
    for _ in range(3):
        made = made + _more_bits(_product(made, (1 << 13) - _product(half, made)), 2)
    return made


def _magnitudes() -> Array:
    return np.arange((1 << 15) + 1, dtype=np.int64)


@cache
def positive_sigmoids() -> Array:
    """The sigmoid of 0 … 2^15, which have 3 integer bits; that of -x is 32767 less that of x, but for 0."""
    made = _more_bits(_reciprocal(_power(-_magnitudes(), 3)), 1)
    made[0] = 1 << 14
    return made.astype(np.int16)


@cache
def positive_tanhs(integer_bits: int) -> Array:
    """The hyperbolic tangent of 0 … 2^15; that of -x is the opposite."""
    made = _more_bits(_reciprocal(_power(-_magnitudes(), integer_bits + 1)) - (1 << 13), 2)
    made[0] = 0
    return made.astype(np.int16)
