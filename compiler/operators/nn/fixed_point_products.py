"""Products of the elements of quantized rows in integers: scaled behind each factor, so that 32 bits hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import tirx

from nnefc.operators.base import Emitter, Operand, Operator, Shape, dtype_of, shape_of
from nnefc.operators.nn.fixed_point import scaled_wide
from nnefc.operators.nn.quantization import RANGES
from nnefc.operators.statements import T, looped
from nnefc.symbolic.dims import expression

__all__ = ["IntegerRowProduct"]


@dataclass(frozen=True)
class IntegerRowProduct(Operator):
    """The products of rows `[N, K]` of integers of 8 or 16 bits, `[N]`: the first element, times each of the others and
    a factor of 15 bits, rounded each time, and at the end times that factor again.

    Attributes:
        zero: the zero point of the elements.
        multiplier, shift: the factor.
        point: the zero point of the result, which is of the type of the elements.
    """

    zero: int
    multiplier: int
    shift: int
    point: int

    def shape(self, x: Shape) -> Shape:
        """Return `[rows]`."""
        return x[:1]

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        dtype = dtype_of(x)
        rows, depth = map(expression, shape_of(x))
        low, high = (tirx.const(end, "int32") for end in RANGES[dtype])
        multiplier, shift = (tirx.const(part, "int32") for part in (self.multiplier, self.shift))

        def write(x: Any, made: Any) -> None:
            total = T.buffer_proxy(T.alloc_buffer((1,), "int32", scope="local"))

            def element(row: Any, j: Any) -> tirx.Expr:
                return x[row * depth + j].astype("int32") - tirx.const(self.zero, "int32")

            with T.serial(0, rows) as row:
                total[0] = element(row, 0)
                with T.serial(1, depth) as j:
                    product = total[0].astype("int64") * element(row, j).astype("int64")
                    total[0] = scaled_wide(product, multiplier, shift)
                value = scaled_wide(total[0].astype("int64"), multiplier, shift) + tirx.const(self.point, "int32")
                made[row] = tirx.max(tirx.min(value, high), low).astype(dtype)

        (result,) = looped(ctx, write, [x], [(shape_of(x)[:1], dtype)], "integer_row_product")
        return result
