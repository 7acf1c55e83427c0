"""Normalization of quantized tensors in integers: rows are divided by their Euclidean norms.

The sum `s` of a row's squares is scaled by a power of four to `[1/4, 1)`. Its reciprocal root is found by Newton's
method in fixed point, `x ← 3/2 · x - s/2 · x³` from one, five times.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from nnefc.operators.base import Emitter, Operand, SameShape, dtype_of, shape_of
from nnefc.operators.nn.fixed_point import scaled_by
from nnefc.operators.nn.quantization import RANGES
from nnefc.operators.statements import T, looped
from nnefc.symbolic.dims import expression

__all__ = ["IntegerNormalization"]

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
