"""Caches that hold the last positions of each sequence, as rings: a position's row is its remainder by their length.

    all = ReadRing(P + S)(new, ring, first)               rows before the run from the ring, those of the run from `new`
    ring' = WriteToRing()(new, ring, first, lengths)      the last new rows of each sequence replace the oldest ones
    limits' = RewindLimits(window, rows)(limits, first, lengths)

`new` is `[N, G, S, E]`, a ring `[M, G, R, E]`; `first`, `[N]`, is the first new position of each batch element, and
`lengths`, `[N]`, how many of its new positions are its own. `elements`, `[N]`, int64, are the ring's numbers of the
batch elements, all different; without these, N is M.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx

from nnefc.ir.attributes import UPDATES
from nnefc.operators.base import Emitter, Operand, Operator, Shape, dtype_of, shape_of
from nnefc.operators.statements import T, each, looped, report
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, expression
from nnefc.symbolic.unification import unify_shapes

__all__ = ["ReadRing", "RewindLimits", "WriteToRing"]

_REWOUND = (
    "a sequence is set back by more tokens than the caches of its windows hold: let it begin again from 0, "
    "or compile the model with a larger rewind"
)


def _check(new: Shape, ring: Shape, elements: Shape | None, *counts: Shape) -> None:
    """Checks the operands of a ring.

    Raises:
        CompileError: shapes do not fit.
    """
    own = ring if elements is None else (*elements, *ring[1:])
    fits = len(new) == len(ring) == 4 and unify_shapes((*own[:2], own[3]), (*new[:2], new[3]))
    if not fits or not all(unify_shapes(count, new[:1]) for count in counts):
        raise CompileError(f"a ring {list(ring)} does not fit new positions {list(new)}")


@dataclass(frozen=True)
class ReadRing(Operator):
    """The rows of all positions up to the last new one, `[N, G, T, E]`.

    Rows that the ring no longer has, and those behind a sequence's last position, are rows of other positions.

    Attributes:
        total: T.
    """

    total: Dimension

    def shape(self, new: Shape, ring: Shape, first: Shape, elements: Shape | None = None) -> Shape:
        """Return the shape of the new rows, with T positions."""
        _check(new, ring, elements, first)
        return (*new[:2], self.total, new[3])

    def lower(
        self, ctx: Emitter, new: Operand, ring: Operand, first: Operand, elements: Operand | None = None
    ) -> relax.Expr:
        given = [new, ring, first, *([] if elements is None else [elements])]
        shape = self.shape(*map(shape_of, given))
        count, zero = expression(shape_of(new)[2]), tirx.const(0, "int64")
        kept, _, rows, _ = shape_of(ring)

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            (new, ring, first, *numbers), (n, group, position, e) = tensors, index
            position = position.astype("int64")
            offset = position - first(n).astype("int64")
            own = n
            if numbers:
                own = tirx.max(tirx.min(numbers[0](n).astype("int64"), expression(kept) - 1), zero)
            held = ring(own, group, tirx.floormod(position, expression(rows)), e)
            return tirx.Select(offset < zero, held, new(n, group, tirx.max(tirx.min(offset, count - 1), zero), e))

        return ctx.emit(ctx.elements(shape, element, *given, name="read_ring"))


@dataclass(frozen=True)
class WriteToRing(Operator):
    """A ring with the last new positions of each sequence in place of the oldest ones.

    Where the ring is a state, and this its new value, nothing but these rows is touched.
    """

    def shape(self, new: Shape, ring: Shape, first: Shape, lengths: Shape, elements: Shape | None = None) -> Shape:
        """Return the shape of the ring."""
        _check(new, ring, elements, first, lengths)
        return ring

    def lower(
        self,
        ctx: Emitter,
        new: Operand,
        ring: Operand,
        first: Operand,
        lengths: Operand,
        elements: Operand | None = None,
    ) -> Operand:
        others = [] if elements is None else [elements]
        shape = self.shape(*map(shape_of, [new, ring, first, lengths, *others]))
        kept, groups, rows, width = map(expression, shape)
        batch, _, count, _ = shape_of(new)
        lines = batch * shape[1] * count

        def write(new: Any, first: Any, ring: Any, lengths: Any, *others: Any) -> None:
            *numbers, result = others
            with each(lines, lines * shape[3]) as line:
                row, offset = tirx.floordiv(line, expression(count)), tirx.floormod(line, expression(count))
                n = tirx.floordiv(row, groups)
                length = tirx.min(lengths[n].astype("int64"), expression(count))
                position = first[n].astype("int64") + offset
                there, fits = row, [position >= 0, offset < length, offset >= length - rows]
                if numbers:
                    own = numbers[0][n].astype("int64")
                    there = own * groups + tirx.floormod(row, groups)
                    fits += [own >= 0, own < kept]
                with T.If(tirx.all(*fits)), T.Then(), T.serial(width) as e:
                    result[(there * rows + tirx.floormod(position, rows)) * width + e] = new[line * width + e]

        given = [new, first, ring, lengths, *others]
        return looped(ctx, write, given, [(shape, dtype_of(ring))], "write_to_ring", {UPDATES: 2})[0]


@dataclass(frozen=True)
class RewindLimits(Operator):
    """The smallest number of positions, `[M]`, int64, that each sequence can be set back to without beginning again.

    A run fails that goes on from fewer positions, but 0: the ring has overwritten what its queries see.

    Attributes:
        window: how many positions a query sees, its own the last of them.
        rows: of the ring.
    """

    window: int
    rows: int

    def shape(self, limits: Shape, first: Shape, lengths: Shape, elements: Shape | None = None) -> Shape:
        """Return the shape of the limits."""
        if not unify_shapes((*first, *lengths), (*(limits if elements is None else elements), *first)):
            raise CompileError(f"limits {list(limits)} do not fit {list(first)} sequences")
        return limits

    def lower(
        self, ctx: Emitter, limits: Operand, first: Operand, lengths: Operand, elements: Operand | None = None
    ) -> Operand:
        given = [limits, first, lengths, *([] if elements is None else [elements])]
        shape = self.shape(*map(shape_of, given))
        (kept,), (batch,) = shape, shape_of(first)
        zero = tirx.const(0, "int64")

        def limited(result: Any, own: Any, before: Any, length: Any) -> None:
            after = before + length
            with T.If(tirx.all(before > zero, before < result[own])), T.Then():
                report(_REWOUND)
            known = tirx.Select(before > zero, result[own], zero)
            overwritten = tirx.Select(after > self.rows, after - (self.rows - self.window + 1), zero)
            result[own] = tirx.max(known, overwritten)

        def write(limits: Any, first: Any, lengths: Any, *others: Any) -> None:
            *numbers, result = others
            with each(batch, batch) as n:
                counts = first[n].astype("int64"), lengths[n].astype("int64")
                if not numbers:
                    limited(result, n, *counts)
                else:
                    own = numbers[0][n].astype("int64")
                    with T.If(tirx.all(own >= zero, own < expression(kept))), T.Then():
                        limited(result, own, *counts)

        return looped(ctx, write, given, [(shape, "int64")], "rewind_limits", {UPDATES: 0})[0]
