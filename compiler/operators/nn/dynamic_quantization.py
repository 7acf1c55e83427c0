"""Quantizes reals with ties rounded away from zero: by known scales, or by the range of each batch element."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, tirx

from nnefc.operators.base import Array, Emitter, Operand, Operator, SameShape, Shape, shape_of
from nnefc.operators.math.elementwise import compute
from nnefc.operators.nn.quantization import RANGES, clamped

__all__ = ["AwayQuantization", "RowQuantization"]


def _away(x: Any) -> Any:
    """Returns the nearest integer, ties away from zero."""
    half = tirx.const(0.5, str(x.ty))
    return tirx.trunc(x + tirx.Select(x < tirx.const(0, str(x.ty)), -half, half))


@dataclass(frozen=True)
class RowQuantization(Operator):
    """`[N, …]` as int8, a scale and a zero point for each element of the first dimension.

    Attributes:
        asymmetric: whether the range, with zero in it, is mapped to -128 … 127; else its larger end to 127.
    """

    asymmetric: bool

    def shape(self, x: Shape) -> tuple[Shape, Shape, Shape]:
        """Return the shapes of the integers, the scales and the zero points."""
        one = (x[0], *[1] * (len(x) - 1))
        return x, one, one

    def lower(self, ctx: Emitter, x: Operand) -> tuple[Operand, Operand, Operand]:
        shape = shape_of(x)
        rows = ctx.reshaped(x, (shape[0], math.prod(shape[1:])))
        low, high = (
            ctx.reshaped(ctx.emit(function(ctx.expr(rows), [1], keepdims=True)), self.shape(shape)[1])
            for function in (relax.op.min, relax.op.max)
        )
        scale = ctx.bound(compute(ctx, self._scale, low, high, name="scale"))
        zero: Operand = np.zeros((), np.int8)
        if self.asymmetric:
            zero = ctx.bound(compute(ctx, _zero_point, low, high, name="zero_point", dtype="int8"))
            made = compute(ctx, _asymmetric, x, scale, zero, name="quantize", dtype="int8")
        else:
            made = compute(ctx, _symmetric, x, low, high, name="quantize", dtype="int8")
        return ctx.bound(made), scale, zero

    def _scale(self, low: Any, high: Any) -> Any:
        zero = tirx.const(0, "float32")
        if not self.asymmetric:
            upper = tirx.max(tirx.abs(low), tirx.abs(high))
            return tirx.Select(upper == zero, tirx.const(1, "float32"), upper / tirx.const(127, "float32"))
        low, high = tirx.min(low, zero).astype("float64"), tirx.max(high, zero).astype("float64")
        return tirx.Select(low == high, tirx.const(1, "float32"), ((high - low) / 255.0).astype("float32"))


def _zero_point(low: Any, high: Any) -> Any:
    zero = tirx.const(0, "float32")
    low, high = tirx.min(low, zero).astype("float64"), tirx.max(high, zero).astype("float64")
    is_zero = low == high
    scale = tirx.Select(is_zero, tirx.const(1, "float64"), (high - low) / 255.0)
    limits = RANGES["int8"]
    lower, upper = (tirx.const(limit, "float64") for limit in limits)
    by_low = tirx.const(128, "float64") + tirx.abs(low / scale)
    by_high = upper + tirx.abs(high / scale)
    point = tirx.Select(by_low < by_high, lower - low / scale, upper - high / scale)
    nudged = _away(clamped(point, *limits)).astype("int32")
    return tirx.Select(is_zero, tirx.const(0, "int32"), nudged)


def _asymmetric(x: Any, scale: Any, zero: Any) -> Any:
    inverse = tirx.const(1, "float32") / scale
    made = _away(zero.astype("float32") + x * inverse)
    return clamped(made, *RANGES["int8"]).astype("int32")


def _symmetric(x: Any, low: Any, high: Any) -> Any:
    end = tirx.max(tirx.abs(low), tirx.abs(high))
    inverse = tirx.Select(end == tirx.const(0, "float32"), tirx.const(0, "float32"), tirx.const(127, "float32") / end)
    made = _away(x * inverse)
    return clamped(made, -127, 127).astype("int32")


@dataclass(frozen=True)
class AwayQuantization(SameShape):
    """`round(x / scale) + zero` clipped to the range of an integer type, ties away from zero.

    Attributes:
        dtype: of 8 or 16 bits.
        axis: along which scales differ; None: there is one.
    """

    dtype: str
    axis: int | None = None

    def lower(self, ctx: Emitter, x: Operand, scale: Array, zero: Array) -> Operand:
        """`scale` is float32 and `zero` int32, both without axes or along `axis`."""
        along = [-1 if axis == self.axis else 1 for axis in range(len(shape_of(x)))]
        parts = [part if self.axis is None else part.reshape(along) for part in (scale, zero)]

        def element(x: Any, scale: Any, zero: Any) -> Any:
            made = _away(x / scale) + zero.astype("float32")
            return clamped(made, *RANGES[self.dtype]).astype("int32")

        return compute(ctx, element, x, *parts, name="quantize", dtype=self.dtype)
