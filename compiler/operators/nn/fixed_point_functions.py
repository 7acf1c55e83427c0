"""Functions of quantized tensors in integers: tables of sigmoid, tanh and hard swish; softmax by a table of powers.

Tables have an entry for each integer of 8 or 16 bits; they are computed here, in NumPy, at compile time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import te, tirx

from nnefc.operators.base import Array, Emitter, Operand, SameShape, dtype_of, shape_of
from nnefc.operators.nn.fixed_point import FixedPointScaling, divided_by_power, fixed_point_of
from nnefc.operators.nn.quantization import RANGES
from nnefc.operators.statements import T, looped
from nnefc.symbolic.dims import expression

__all__ = ["InterpolatedSoftmax", "TableSoftmax", "hard_swish_table", "real_table", "sigmoid_table", "tanh_table"]

_Scaled = tuple[np.float32, int]
"""A scale and a zero point."""


def _integers(dtype: str) -> Array:
    low, high = RANGES[dtype]
    return np.arange(low, high + 1, dtype=np.int64)


def _clipped(x: Array, dtype: str) -> Array:
    made: Array = np.clip(x, *RANGES[dtype]).astype(dtype)
    return made


def _away(x: Array) -> Array:
    return np.asarray(np.trunc(x + np.copysign(np.float32(0.5), x)))


def real_table(dtype: str, given: _Scaled, result: _Scaled, function: Callable[[Array], Array]) -> Array:
    """The table of a function of reals in float32; of 16 bits it is interpolated between 513 values.

    What is NaN becomes the smallest integer.
    """
    (scale, zero), (out, point) = given, result
    if dtype == "int16":
        return _piecewise_linear(given, result, function)
    with np.errstate(all="ignore"):
        x = scale * (_integers(dtype) - zero).astype(np.float32)
        scaled = function(x).astype(np.float32) * (np.float32(1) / out)
        rounded = np.nan_to_num(_away(scaled), nan=-(1 << 30), posinf=1 << 30, neginf=-(1 << 30))
    return _clipped(np.clip(rounded, -(1 << 30), 1 << 30).astype(np.int64) + point, dtype)


_STEPS = 512
"""Steps of 128 integers, between whose ends a function of 16 bits is interpolated."""


def _piecewise_linear(given: _Scaled, result: _Scaled, function: Callable[[Array], Array]) -> Array:
    """A function of all integers of 16 bits, by linear interpolation between values in float32.

    The value at the beginning of a step is moved by half of what the interpolation is off in its middle.
    """
    low, high = RANGES["int16"]
    first, last = (given[0] * np.float32(end - given[1]) for end in (low, high))
    step = (last - first) / np.float32(_STEPS)
    lowest, highest = (result[0] * np.float32(end - result[1]) for end in (low, high))
    inverse = np.float32(high - low + 1) / (highest - lowest)
    starts = first + np.arange(_STEPS, dtype=np.float32) * step

    def values(x: Any) -> Array:
        made: Array = function(np.asarray(x, np.float32)).astype(np.float32) * inverse
        return made

    with np.errstate(all="ignore"):
        value = _away(values(starts))
        following = values(first + np.arange(1, _STEPS + 1, dtype=np.float32) * step)
        error = _away((following + value) / np.float32(2)) - _away(values(starts + step / np.float32(2)))
        ends = np.append(value - _away(error / np.float32(2)), _away(values(last)))
    table = np.nan_to_num(np.clip(ends, low, high), nan=low).astype(np.int64)
    x = _integers("int16")
    index = _STEPS // 2 + (x >> 7)
    slope = ((table[index + 1] - table[index] + (1 << 15)) & 0xFFFF) - (1 << 15)
    made: Array = (table[index] + ((slope * (x & 0x7F) + (1 << 6)) >> 7)).astype(np.int16)
    return made


# 16 bits: interpolated between 256 values of the sigmoid, for arguments up to 10.6. The values lie above the curve by
# half of what the interpolation is below it in the middle of each step.


def _sigmoids() -> Array:
    x = np.arange(257)
    value, middle, following = (1 / (1 + np.exp(-(x + part) / 24)) for part in (0, 0.5, 1))
    made: Array = np.round(65536 * (value + (middle - (value + following) / 2) / 2)).astype(np.int64)
    made[255:] = 65535
    return made


_SIGMOIDS = _sigmoids()


def _table_input(scale: np.float32, shifts: tuple[int, ...]) -> Array:
    """All integers of 16 bits in steps of 1 / 12288; exact where the scale is one of these powers of two."""
    power = math.log2(scale)
    if power == round(power) and int(power) + 12 in shifts:
        return _integers("int16") * (3 << (int(power) + 12))
    multiplier, left = float(scale) * 4096.0 * 3.0, 0
    while multiplier <= 32767.0 / 2.0 and left <= 30:
        multiplier, left = multiplier * 2.0, left + 1
    half = 1 << (left - 1) if left else 0
    return (_integers("int16") * int(multiplier) + half) >> left


def sigmoid_table(scale: np.float32) -> Array:
    """The sigmoid of integers of 16 bits, in steps of 2^-15."""
    x = _table_input(scale, (0,))
    high, low = np.abs(x) >> 9, np.abs(x) & 0x1FF
    index = np.minimum(high, 255)
    inner = (_SIGMOIDS[index] << 9) + low * (_SIGMOIDS[index + 1] - _SIGMOIDS[index])
    made = np.where(high >= 255, 0x7FFF << 10, inner)
    made = np.where(x >= 0, made + (1 << 9), (1 << 25) - made + (1 << 9) - 1)
    return (made >> 10).astype(np.int16)


def tanh_table(scale: np.float32) -> Array:
    """The hyperbolic tangent of integers of 16 bits, in steps of 2^-15."""
    x = _table_input(scale, (0, 1))
    high, low = np.abs(x) >> 8, np.abs(x) & 0xFF
    index = np.minimum(high, 255)
    inner = (_SIGMOIDS[index] << 8) + low * (_SIGMOIDS[index + 1] - _SIGMOIDS[index])
    made = np.where(high >= 255, 0xFFFF << 8, inner)
    made = np.where(x >= 0, made - (1 << 23) + (1 << 7), (1 << 23) - made + (1 << 7) - 1)
    return (made >> 8).astype(np.int16)


# Hard swish in 16 bits.


def _high_product(x: Array, factor: int) -> Array:
    """`x · factor / 2^15`, rounded to the nearest integer."""
    return (x * factor + (1 << 14)) >> 15


def _narrow_point(factor: np.float32) -> tuple[int, int]:
    multiplier, shift = fixed_point_of(float(factor))
    return (0x7FFF if multiplier >= (1 << 31) - 1 - (1 << 15) else (multiplier + (1 << 15)) >> 16), shift


def hard_swish_table(dtype: str, given: _Scaled, result: _Scaled) -> Array:
    """`x · min(max(x + 3, 0), 6) / 6` of integers of 8 bits: the second factor has 15 bits (Howard et al., 2019)."""
    fine = np.float32(1 / 128) * given[0]
    out_factor, out_shift = _narrow_point(fine / result[0])
    gate_factor, gate_shift = _narrow_point(fine / np.float32(3 / 32768))
    x = (_integers(dtype) - given[1]) << 7
    product = _high_product(x, out_factor)
    gate = x
    if gate_shift > 0:
        gate = np.clip(gate << (gate_shift - 1), *RANGES["int16"])
    gate = _high_product(gate, gate_factor)
    if gate_shift > 0:
        gate = np.clip(gate << 1, *RANGES["int16"])
    gate = divided_by_power(gate, max(-gate_shift, 0))
    gate = (gate + (1 << 15)) >> 1
    made = np.trunc(gate * product / (1 << 15)).astype(np.int64)
    return _clipped(divided_by_power(made, max(-out_shift, 0)) + result[1], dtype)


@dataclass(frozen=True)
class TableSoftmax(SameShape):
    """The softmax along the last dimension of integers of 8 bits: powers from a table in float32, summed in order.

    Attributes:
        factor: the scale of the input, times what exponents are multiplied by.
        scale, zero: of the result.
        dtype: of the result.
    """

    factor: float
    scale: float
    zero: int
    dtype: str

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        shape = shape_of(x)
        depth, rows = expression(shape[-1]), expression(math.prod(shape[:-1]))
        powers = np.exp(-np.float32(self.factor) * np.arange(256, dtype=np.float32)).astype(np.float32)
        lowest = RANGES[dtype_of(x)][0]
        ends = [tirx.const(end, "int32") for end in RANGES[self.dtype]]
        one, half = tirx.const(1, "float32"), tirx.const(0.5, "float32")

        def write(x: Any, powers: Any, made: Any) -> None:
            largest = T.buffer_proxy(T.alloc_buffer((1,), "int32", scope="local"))
            total = T.buffer_proxy(T.alloc_buffer((1,), "float32", scope="local"))
            with T.serial(0, rows) as row:
                largest[0] = tirx.const(lowest, "int32")
                total[0] = tirx.const(0, "float32")
                with T.serial(0, depth) as j:
                    largest[0] = tirx.max(largest[0], x[row * depth + j].astype("int32"))
                with T.serial(0, depth) as j:
                    total[0] = total[0] + powers[largest[0] - x[row * depth + j].astype("int32")]
                with T.serial(0, depth) as j:
                    inverse = one / (total[0] * tirx.const(self.scale, "float32"))
                    value = powers[largest[0] - x[row * depth + j].astype("int32")] * inverse
                    rounded = (value + half).astype("int32") + tirx.const(self.zero, "int32")
                    made[row * depth + j] = tirx.max(tirx.min(rounded, ends[1]), ends[0]).astype(self.dtype)

        (result,) = looped(ctx, write, [x, powers], [(shape, self.dtype)], "table_softmax")
        return result


def _samples(function: Callable[[Array], Array], low: float, high: float) -> Array:
    """513 values of a function in steps of 2^-15, moved by half of the interpolation's error between each two."""
    step = (high - low) / 512
    x = low + step * np.arange(513)
    values, following, middle = (function(at) * 32768 for at in (x, x + step, x + step / 2))
    sample = _away(values)
    error = _away((following + sample) / 2) - _away(middle)
    made = np.clip(sample - _away(error / 2), -32768, 32767)
    made[512] = min(32767, _away(function(np.array(high)) * 32768))
    narrow: Array = made.astype(np.int16)
    return narrow


def _interpolated(samples: Any, x: tirx.Expr) -> tirx.Expr:
    """Between two samples, at an integer of 16 bits; int32."""
    index = (x >> tirx.const(7, "int32")) + tirx.const(256, "int32")
    base, following = (samples[index + k].astype("int32") for k in (0, 1))
    part = (following - base) * (x & tirx.const(127, "int32")) + tirx.const(64, "int32")
    made: tirx.Expr = base + (part >> tirx.const(7, "int32"))
    return made


def _narrow(x: tirx.Expr) -> tirx.Expr:
    return tirx.max(tirx.min(x, tirx.const(32767, "int32")), tirx.const(-32768, "int32"))


@dataclass(frozen=True)
class InterpolatedSoftmax(SameShape):
    """The softmax along the last dimension of integers of 16 bits, in steps of 2^-15: powers and the reciprocal of
    their sum are interpolated.

    Attributes:
        factor: the scale of the input, times what exponents are multiplied by.
    """

    factor: float

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        shape = shape_of(x)
        depth, rows = expression(shape[-1]), expression(math.prod(shape[:-1]))
        powers, inverses = _samples(np.exp, -10.0, 0.0), _samples(lambda x: 1 / (1 + x), 0.0, 1.0)
        largest = ctx.bound(ctx.compute(_largest, x, name="largest"))
        distance = ctx.bound(ctx.elements(shape, _distance, x, largest, name="distance"))
        multiplier, shift = (np.array(part, np.int32) for part in fixed_point_of(self.factor / (10.0 / 65535.0)))
        scaled = ctx.apply(FixedPointScaling(), distance, multiplier, shift)

        def write(x: Any, powers: Any, inverses: Any, made: Any) -> None:
            total, kept = (T.buffer_proxy(T.alloc_buffer((1,), "int32", scope="local")) for _ in range(2))
            zeros = T.buffer_proxy(T.alloc_buffer((1,), "int32", scope="local"))
            one, wide = tirx.const(1, "int32"), tirx.const(1, "int64")

            def power(position: Any) -> tirx.Expr:
                return _interpolated(powers, _narrow(x[position] + tirx.const(32767, "int32")))

            with T.serial(0, rows) as row:
                total[0] = tirx.const(0, "int32")
                with T.serial(0, depth) as j:
                    total[0] = total[0] + power(row * depth + j)
                zeros[0] = tirx.const(0, "int32")
                with T.While((total[0] >> (tirx.const(30, "int32") - zeros[0])) == tirx.const(0, "int32")):
                    zeros[0] = zeros[0] + one
                moved = (total[0].astype("int64") << zeros[0].astype("int64")) + tirx.const(1 << 13, "int64")
                centred = (moved >> tirx.const(14, "int64")).astype("int32") - tirx.const(
                    (1 << 15) + (1 << 16), "int32"
                )
                kept[0] = _interpolated(inverses, _narrow(centred))
                with T.serial(0, depth) as j:
                    right = (tirx.const(30, "int32") - zeros[0]).astype("int64")
                    product = power(row * depth + j).astype("int64") * kept[0].astype("int64")
                    rounded = (product + (wide << (right - wide))) >> right
                    ends = tirx.const(0, "int64"), tirx.const(32767, "int64")
                    made[row * depth + j] = tirx.max(tirx.min(rounded, ends[1]), ends[0]).astype("int16")

        (result,) = looped(ctx, write, [scaled, powers, inverses], [(shape, "int16")], "interpolated_softmax")
        return result


def _largest(x: te.Tensor) -> te.Tensor:
    axis = te.reduce_axis((0, x.shape[-1]), "axis")
    lead = tuple(x.shape[:-1])
    return te.compute((*lead, 1), lambda *i: te.max(x(*i[:-1], axis), axis=axis), name="largest")


def _distance(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
    x, largest = tensors
    return x(*index).astype("int32") - largest(*index[:-1], 0).astype("int32")
