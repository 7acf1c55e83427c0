"""Inserts or erases an element of a tensor along its first dimension at a computed index, for sequences of tensors."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import te, tirx

from nnefc.ir.kernel_calls import call_te
from nnefc.operators.base import Emitter, Operand, Operator, rank_of, shape_of
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.shape import Unsqueeze
from nnefc.symbolic.dims import MAX_ELEMENTS, Dimension, expression, greatest

__all__ = ["Erase", "Insert"]


@dataclass(frozen=True)
class Insert(Operator):
    """The elements with one more before a position. A run whose position is out of range fails."""

    moves: ClassVar[bool] = True

    def lower(self, ctx: Emitter, elements: Operand, element: Operand, position: Operand) -> Operand:
        """Emit the sequence `[n + 1, …]` from `[n, …]`, an element `[…]` and its position (negative: from the end)."""

        def order(index: Any, before: Any) -> Any:
            first = tirx.const(0, "int64")
            return tirx.Select(index < before, index + 1, tirx.Select(index.equal(before), first, index))

        count = shape_of(elements)[0]
        together = ctx.apply(Concat(0), ctx.apply(Unsqueeze((0,)), element), elements)
        return Gather(0).lower(ctx, together, _positions(ctx, position, count + 1, (count, count), order))


@dataclass(frozen=True)
class Erase(Operator):
    """The elements without the one at a position. A run whose position is out of range fails."""

    moves: ClassVar[bool] = True

    def lower(self, ctx: Emitter, elements: Operand, position: Operand) -> Operand:
        """Emit the sequence `[n - 1, …]` from `[n, …]` and a position, which may count from the end."""

        def order(index: Any, left_out: Any) -> Any:
            return tirx.Select(index < left_out, index, index + 1)

        count = shape_of(elements)[0]
        return Gather(0).lower(
            ctx, elements, _positions(ctx, position, greatest(count - 1, 0), (count, count - 1), order)
        )


def _positions(
    ctx: Emitter,
    position: Operand,
    made: Dimension,
    of: tuple[Dimension, Dimension],
    order: Callable[[Any, Any], Any],
) -> Operand:
    """Builds the index map `order` for a number of elements, of a position among so many elements, at most the second
    of these numbers.

    A position that is out of range gives positions out of range.
    """

    def positions(given: te.Tensor, count: tirx.Expr, last: tirx.Expr) -> te.Tensor:
        element = given(*[0] * rank_of(position)).astype("int64")
        found = tirx.Select(element < 0, element + count, element)
        outside = tirx.any(found < 0, found > last)
        nowhere = tirx.const(MAX_ELEMENTS, "int64")
        return te.compute((expression(made),), lambda index: tirx.Select(outside, nowhere, order(index, found)))

    call = call_te(ctx.builder, positions, ctx.expr(position), *map(expression, of), name="positions")
    return ctx.emit(call)
