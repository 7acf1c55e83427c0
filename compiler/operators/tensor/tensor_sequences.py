"""Items of a tensor along its first dimension, at positions that are computed: what sequences of tensors come to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

from tvm import te, tirx

from nnefc.ir.kernel_calls import call_te
from nnefc.operators.base import Emitter, Operand, Operator, rank_of, shape_of
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.shape import Concat, Unsqueeze
from nnefc.symbolic.dims import MAX_ITEMS, Dimension, expression, greatest

__all__ = ["Erase", "Insert"]


@dataclass(frozen=True)
class Insert(Operator):
    """The items with one more before a position. A run whose position is out of range fails."""

    moves: ClassVar[bool] = True

    def lower(self, at: Emitter, items: Operand, item: Operand, position: Operand) -> Operand:
        """Of `[n, …]`, `[…]` and one integer, which may count from the end."""

        def order(place: Any, before: Any) -> Any:
            first = tirx.const(0, "int64")
            return tirx.Select(place < before, place + 1, tirx.Select(place.equal(before), first, place))

        count = shape_of(items)[0]
        together = at.apply(Concat(0), at.apply(Unsqueeze((0,)), item), items)
        return Gather(0).lower(at, together, _places(at, position, count + 1, (count, count), order))


@dataclass(frozen=True)
class Erase(Operator):
    """The items without the one at a position. A run whose position is out of range fails."""

    moves: ClassVar[bool] = True

    def lower(self, at: Emitter, items: Operand, position: Operand) -> Operand:
        """Of `[n, …]` and one integer, which may count from the end."""

        def order(place: Any, left_out: Any) -> Any:
            return tirx.Select(place < left_out, place, place + 1)

        count = shape_of(items)[0]
        return Gather(0).lower(at, items, _places(at, position, greatest(count - 1, 0), (count, count - 1), order))


def _places(
    at: Emitter,
    position: Operand,
    made: Dimension,
    of: tuple[Dimension, Dimension],
    order: Callable[[Any, Any], Any],
) -> Operand:
    """What `order` says for so many places, of a position among so many items, at most the second of these numbers.

    A position that is out of range gives places that are not there.
    """

    def places(given: te.Tensor, count: tirx.Expr, last: tirx.Expr) -> te.Tensor:
        item = given(*[0] * rank_of(position)).astype("int64")
        found = tirx.Select(item < 0, item + count, item)
        outside = tirx.any(found < 0, found > last)
        nowhere = tirx.const(MAX_ITEMS, "int64")
        return te.compute((expression(made),), lambda place: tirx.Select(outside, nowhere, order(place, found)))

    call = call_te(at.builder, places, at.expr(position), *map(expression, of), name="places")
    return at.emit(call)
