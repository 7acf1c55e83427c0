"""Normalization of quantized tensors in integers: rows are divided by their Euclidean norms, or standardized.

The sum `s` of a row's squares is scaled by a power of four to `[1/4, 1)`. Its reciprocal root is found by Newton's
method in fixed point, `x ← 3/2 · x - s/2 · x³` from one, five times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from nnefc.operators.base import Array, Emitter, Operand, SameShape, dtype_of, shape_of
from nnefc.operators.nn.fixed_point import fixed_point_of, scaled, scaled_by
from nnefc.operators.nn.quantization import RANGES
from nnefc.operators.statements import T, looped
from nnefc.symbolic.dims import expression

__all__ = ["GateNormalization", "IntegerNormalization"]

_STEPS = 5
_ONE, _FIRST_FACTOR = 1 << 28, 3 << 27
"""1 and 3/2 with 28 bits behind the point, as all numbers of the iteration."""

_HALF_ROOT_OF_TWO = 1518500250
"""`sqrt(2) / 2` with 31 bits behind the point."""

_LEFT = 7
"""Bits behind the point of results."""


@dataclass(frozen=True)
class IntegerNormalization(SameShape):
    """Bytes along the last dimension, divided by their Euclidean norm, in steps of 2^-7.

    Attributes:
        zero: the zero point of the input; that of the result is the middle of its type.
    """

    zero: int

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        shape, dtype = shape_of(x), dtype_of(x)
        depth, rows = expression(shape[-1]), expression(math.prod(shape[:-1]))
        low, high = RANGES[dtype]
        middle = _int32((low + high + 1) // 2)

        def quotient(x: tirx.Expr, factor: tirx.Expr, shift: tirx.Expr) -> tirx.Expr:
            """Unsigned bytes get the bits behind the point before the product, signed ones with its shift."""
            if dtype == "uint8":
                return scaled_by(x << _int32(_LEFT), factor, shift, np.array([-1, 0]))
            return scaled_by(x, factor, shift + _int32(_LEFT), np.array([-1, 1]))

        def write(x: Any, made: Any) -> None:
            total, factor, shift = (T.buffer_proxy(T.alloc_buffer((1,), "int32", scope="local")) for _ in range(3))

            def centred(row: Any, j: Any) -> tirx.Expr:
                return x[row * depth + j].astype("int32") - _int32(self.zero)

            with T.serial(0, rows) as row:
                total[0] = _int32(0)
                with T.serial(0, depth) as j:
                    total[0] = total[0] + centred(row, j) * centred(row, j)
                _write_reciprocal_root(total, factor, shift)
                with T.serial(0, depth) as j:
                    value = quotient(centred(row, j), factor[0], shift[0]) + middle
                    made[row * depth + j] = tirx.max(tirx.min(value, _int32(high)), _int32(low)).astype(dtype)

        (result,) = looped(ctx, write, [x], [(shape, dtype)], "integer_normalization")
        return result


_MEAN_BITS, _RESULT_BITS = 10, 12
"""Bits behind the point of means, and of results."""


@dataclass(frozen=True, eq=False)
class GateNormalization(SameShape):
    """Rows int16 less their mean, divided by their standard deviation, times weights, plus a bias; int16.

    Li, Alvarez, "On the Quantization of Recurrent Neural Networks" (2021). Results have 3 integer bits.

    Attributes:
        weights, bias: int16 and int32, `[H]`.
        factor: what a product with a weight stands for, 10 bits to the left.
        floor: the variance of rows whose own is below 1.
    """

    weights: Array
    bias: Array
    factor: float
    floor: int

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        """`x` is `[N, H]`."""
        shape = shape_of(x)
        rows, depth = map(expression, shape)
        multiplier, shift = fixed_point_of(self.factor)
        half, one = _int32(1 << (_MEAN_BITS - 1)), _int32(1 << _MEAN_BITS)
        share = tirx.truncdiv(tirx.const(1 << (2 * _MEAN_BITS), "int64"), depth)

        def write(x: Any, weights: Any, bias: Any, made: Any) -> None:
            variance, factor, exponent, mean = (
                T.buffer_proxy(T.alloc_buffer((1,), "int32", scope="local")) for _ in range(4)
            )
            total, squares = (T.buffer_proxy(T.alloc_buffer((1,), "int64", scope="local")) for _ in range(2))
            with T.serial(0, rows) as row:
                total[0] = tirx.const(0, "int64")
                squares[0] = tirx.const(0, "int64")
                with T.serial(0, depth) as j:
                    value = x[row * depth + j].astype("int64")
                    total[0] = total[0] + value
                    squares[0] = squares[0] + value * value
                mean[0] = tirx.truncdiv(total[0] * (1 << _MEAN_BITS), depth).astype("int32")
                own = squares[0] * share - mean[0].astype("int64") * mean[0].astype("int64")
                variance[0] = tirx.truncdiv(own, tirx.const(1 << (2 * _MEAN_BITS), "int64")).astype("int32")
                variance[0] = tirx.Select(variance[0] < _int32(1), _int32(self.floor), variance[0])
                _write_reciprocal_root(variance, factor, exponent)
                with T.serial(0, depth) as j:
                    centred = x[row * depth + j].astype("int32") * one - mean[0]
                    unit = scaled_by(centred, factor[0], exponent[0], np.array([-1, 0]))
                    product = unit * weights[j].astype("int32") + bias[j]
                    away = tirx.Select(product > _int32(0), product + half, product - half)
                    value = scaled(tirx.truncdiv(away, one), multiplier, shift + _RESULT_BITS)
                    made[row * depth + j] = tirx.max(tirx.min(value, _int32(32767)), _int32(-32768)).astype("int16")

        operands = [x, self.weights, self.bias.astype(np.int32)]
        (result,) = looped(ctx, write, operands, [(shape, "int16")], "gate_normalization")
        return result


def _write_reciprocal_root(total: Any, factor: Any, shift: Any) -> None:
    """Writes `1 / sqrt(total)` as `factor · 2^(shift - 31)`, of which the shift is not positive; 1 for 0.

    The sum is written over.
    """
    factor[0], shift[0] = _int32((1 << 31) - 1), _int32(0)
    with T.If(total[0] > _int32(1)), T.Then():
        shift[0] = _int32(-11)
        with T.While(total[0] >= _int32(1 << 29)):
            total[0] = total[0] >> _int32(2)
            shift[0] = shift[0] - _int32(1)
        with T.While(total[0] < _int32(1 << 27)):
            total[0] = total[0] << _int32(2)
            shift[0] = shift[0] + _int32(1)
        total[0] = ((total[0] >> _int32(1)) + _int32(1)) >> _int32(1)  # a half, with 28 bits behind the point
        factor[0] = _int32(_ONE)
        with T.serial(0, _STEPS):
            cube = _moved(_product(_product(factor[0], factor[0]), factor[0]), 6)
            factor[0] = _moved(_product(_int32(_FIRST_FACTOR), factor[0]) - _product(total[0], cube), 3)
        factor[0] = _product(factor[0], _int32(_HALF_ROOT_OF_TWO)) << tirx.max(shift[0], _int32(0))
        shift[0] = tirx.min(shift[0], _int32(0))


def _int32(value: int) -> tirx.Expr:
    return tirx.const(value, "int32")


def _product(x: tirx.Expr, y: tirx.Expr) -> tirx.Expr:
    """The upper 32 bits of twice the product of two int32, rounded to the nearest integer."""
    wide = x.astype("int64") * y.astype("int64") + tirx.const(1 << 30, "int64")
    return (wide >> tirx.const(31, "int64")).astype("int32")


def _moved(x: tirx.Expr, bits: int) -> tirx.Expr:
    """Moves an int32 to the left, with saturation: each product has three bits fewer behind the point."""
    low, high = (tirx.const(end, "int64") for end in (-(1 << 31), (1 << 31) - 1))
    return tirx.max(tirx.min(x.astype("int64") << tirx.const(bits, "int64"), high), low).astype("int32")
