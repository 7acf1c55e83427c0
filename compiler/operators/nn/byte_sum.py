"""Sums of bytes with scales of their own: one shift of a linear form where that gives the bits of fixed point.

    clip((a · x + b · y + c) >> right)

Residual additions of LiteRT scale each operand, and then the sum, in fixed point, and round each time. Here integers
are searched for near the real factors, ties included, and the form is compared with that result for all 65,536 pairs
of bytes, while compiling.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import tirx

from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, dtype_of
from nnefc.operators.math.elementwise import broadcast_shapes, compute
from nnefc.operators.nn.quantization import RANGES

__all__ = ["ByteSum"]

_SPARE = 2
"""How far from the nearest integers of the factors others are tried."""

_MAX_SHIFT = 24
_UNBOUNDED = 1 << 60


@dataclass(frozen=True)
class ByteSum(Operator):
    """`clip((a · x + b · y + c) >> right)` of two bytes of one type, in int32.

    Attributes:
        a, b, c, right: the form; its products and sums fit int32.
        low, high: limits of the result, which has the type of the operands.
    """

    a: int
    b: int
    c: int
    right: int
    low: int
    high: int

    @staticmethod
    def of(wanted: Array, dtype: str, factors: tuple[float, float, float], low: int, high: int) -> ByteSum | None:
        """Returns the form whose results are `wanted`; None where none is found.

        Args:
            wanted: `[256, 256]`, int64, of each `x` and each `y` in ascending order.
            factors: of which the form is an approximation: those of `x` and `y`, and what is added before rounding.
        """
        values = np.arange(RANGES[dtype][0], RANGES[dtype][1] + 1, dtype=np.int64)
        ends = [
            sum(pair) for pair in itertools.product(*(sorted((f * values[0], f * values[-1])) for f in factors[:2]))
        ]
        reach = max(abs(end + added) for end in (*ends, 0.0) for added in (0.0, factors[2] + 0.5)) + 1
        if not math.isfinite(reach):
            return None
        right = min(31 - math.ceil(math.log2(reach)), _MAX_SHIFT)
        if right < 1:
            return None
        at_least = np.where(wanted > low, wanted << right, -_UNBOUNDED)
        at_most = np.where(wanted < high, ((wanted + 1) << right) - 1, _UNBOUNDED)
        nearest = [round(factor * (1 << right)) for factor in factors[:2]]
        for apart in _NEIGHBOURS:
            a, b = (factor + by for factor, by in zip(nearest, apart, strict=True))
            sums = a * values[:, None] + b * values[None, :]
            lower, upper = int((at_least - sums).max()), int((at_most - sums).min())
            c = (lower + upper) // 2
            if lower <= upper and max(abs(c), np.abs(sums).max(), np.abs(sums + c).max()) < 1 << 31:
                return ByteSum(a, b, c, right, low, high)
        return None

    def shape(self, *shapes: Shape) -> Shape:
        """The common shape of the operands."""
        return broadcast_shapes(*shapes)

    def lower(self, ctx: Emitter, x: Operand, y: Operand) -> Operand:
        a, b, c, right, low, high = (
            tirx.const(value, "int32") for value in (self.a, self.b, self.c, self.right, self.low, self.high)
        )

        def element(x: Any, y: Any) -> Any:
            made = x.astype("int32") * a + y.astype("int32") * b + c
            return tirx.min(tirx.max(made >> right, low), high)

        return compute(ctx, element, x, y, name="byte_sum", dtype=dtype_of(x))


_NEIGHBOURS = sorted(itertools.product(range(-_SPARE, _SPARE + 1), repeat=2), key=lambda pair: sum(map(abs, pair)))
