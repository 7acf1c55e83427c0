"""Fetches a thread's part of an operand's tiles from global memory, one tile of the reduced axis after another.

Indices take divisions: of a convolution's data, position p is row `p // 28` and column `p % 28` of the image, and depth
d is channel `d // 9` and tap `d % 9` of the window. The positions of a thread are the same in all tiles of the depth,
so what takes divisions of them is worked out once, and kept in registers:

    begin     data_at[0] = p // 28; data_at[1] = p % 28
    fetch     data_fetched[…] = if 0 <= data_at[0] + d % 9 // 3 - 1 < 28 && …: data[d // 9, data_at[0] + …, …] else 0

What needs no conversion and is contiguous for 16 bytes needs no registers on its way to shared memory: an
asynchronous copy moves it while the thread goes on, where devices have one.
"""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad

from nnefc.ir.gpu_operators import copy_either, copy_vector
from nnefc.passes.schedule.gpu.contractions.analysis import Factor
from nnefc.passes.schedule.gpu.contractions.operand_tile import OperandTile
from nnefc.passes.schedule.gpu.nest import Nest, load, sequence, store
from nnefc.passes.tir.common.expressions import (
    IF_THEN_ELSE,
    conjuncts,
    inside,
    is_number,
    number,
    substituted,
    variables_of,
)
from nnefc.passes.tir.common.shapes import Size

__all__ = ["OperandFetch", "TileElement", "begin_copy", "is_loaded"]

_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod)


def is_loaded(operand: Factor) -> bool:
    """Whether elements are multiplied as they lie in memory, be it in one of several tensors, or zero."""
    return _is_load(_unconditional(operand.value)[1])


def _is_load(value: tirx.Expr) -> bool:
    if isinstance(value, Call) and getattr(value.op, "name", "") in IF_THEN_ELSE:
        return all(map(_is_load, value.args[1:]))
    return isinstance(value, TensorLoad)


def begin_copy(
    nest: Nest, shared: tirx.Var, position: tirx.Expr, value: tirx.Expr, inside: tirx.Expr, lanes: int
) -> tirx.Stmt:
    """Begins to copy the 16 bytes that begin with the element `value`, or zeros, to a position of shared memory.

    Of two tensors that `value` is from, the address is chosen, and one copy begins.
    """
    first, last = (load(shared, nest.simplify(position + number(step))) for step in (0, lanes - 1))
    to = tirx.address_of(first), tirx.address_of(last)
    if not isinstance(value, Call) or getattr(value.op, "name", "") not in IF_THEN_ELSE:
        return copy_vector(to, tirx.address_of(value), inside)
    condition, *values = value.args
    if all(isinstance(part, TensorLoad) for part in values):
        one, other = map(tirx.address_of, values)
        return copy_either(to, (one, other), condition, inside)
    return tirx.IfThenElse(condition, *(begin_copy(nest, shared, position, part, inside, lanes) for part in values))


class OperandFetch:
    """Fetches a thread's part of tiles that begin at one position.

    Args:
        name: of the operand, for the generated code.
        batch: which of the operands of a batch.
        first: the position that the tiles begin at.
    """

    def __init__(
        self, side: OperandTile, nest: Nest, name: str, thread: tirx.Expr, batch: tirx.Expr, first: tirx.Expr
    ) -> None:
        self.side, self.nest, self.thread = side, nest, thread
        self.batch, self.first = batch, first
        self._kept = self._axes_that_take_divisions()
        if self._kept:
            self._registers = nest.buffer(f"{name}_at", side.slots * len(self._kept), "int32", "local")
            every = self._axis_values(nest.variable("slot", side.slots))
            self._ends = [nest.end(self._as_kept(var, every[var])) for var in self._kept]

    def begin(self) -> tirx.Stmt | None:
        """Returns the statement that works out, before the first tile, what is kept."""

        def keep(position: tirx.Expr) -> tirx.Stmt:
            values = self._axis_values(position)
            first = position * number(len(self._kept))
            return sequence(
                *(
                    store(self._registers, self._as_kept(var, values[var]), first + number(slot))
                    for slot, var in enumerate(self._kept)
                )
            )

        return self.nest.unrolled(self.side.slots, keep) if self._kept else None

    def fetch(self, registers: tirx.Var, tile: tirx.Expr, tiles: Size) -> tirx.Stmt:
        """Elements of tile `tile` (of at most `tiles`) of the depth into `registers`; zeros beyond the operand.

        What holds for all vectors, or none, is asked once.
        """
        nest, count = self.nest, self.side.vectors
        zero = tirx.const(0, str(registers.dtype))
        element = TileElement(self, tile, tiles)
        any_vector = nest.variable("vector", count)
        common = [c for c in element.at(any_vector, number(0))[0] if not _depends(c, any_vector)]

        def into_registers(vector: tirx.Expr, scalar: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Stmt:
            first = vector * number(self.side.lanes)
            return nest.lanes(self.side.lanes, lambda lane: store(registers, scalar(lane), first + lane))

        def fetched(vector: tirx.Expr) -> tirx.Stmt:
            own = [c for c in element.at(vector, number(0))[0] if _depends(c, vector)]

            def scalar(lane: tirx.Expr) -> tirx.Expr:
                value = element.at(vector, lane)[1]
                return tirx.if_then_else(tirx.all(*own), value, zero) if own else value

            return into_registers(vector, scalar)

        all_fetched = nest.unrolled(count, fetched)
        if not common:
            return all_fetched
        zeros = nest.unrolled(count, lambda vector: into_registers(vector, lambda _: zero))
        return tirx.IfThenElse(tirx.all(*common), all_fetched, zeros)

    def put(
        self,
        registers: tirx.Var,
        shared: tirx.Var,
        base: tirx.Expr,
        tile: tirx.Expr,
        tiles: Size,
        convert: tirx.Stmt | None,
    ) -> tirx.Stmt:
        """Stores the tile that :meth:`fetch` was called for to shared memory, from the position `base` on.

        Args:
            convert: converts `registers` on their way.
        """
        return sequence(convert, self.side.put(self.nest, self.thread, registers, shared, base))

    def copy(self, shared: tirx.Var, base: tirx.Expr, tile: tirx.Expr, tiles: Size) -> tirx.Stmt:
        """Begins to copy a tile, as :meth:`fetch` has it, into shared memory from the position `base` on.

        Vectors are 16 bytes, and :func:`is_loaded` holds.
        """
        nest, side, element = self.nest, self.side, TileElement(self, tile, tiles)

        def one(vector: tirx.Expr) -> tirx.Stmt:
            conditions, value = element.at(vector, number(0))
            *_, present = side.position(self.thread, vector)
            position = nest.simplify(base + side.offset(self.thread, vector))
            inside = tirx.all(*conditions) if conditions else tirx.const(True, "bool")
            stmt = begin_copy(nest, shared, position, value, inside, side.lanes)
            return stmt if nest.holds(present) else tirx.IfThenElse(present, stmt, None)

        return nest.unrolled(side.vectors, one)

    def stand_ins(self) -> dict[tirx.Var, tirx.Var]:
        """Returns a new variable for each value that is kept, with its bounds."""
        if not self._kept:
            return {}
        return {var: self.nest.variable(str(var.name), end) for var, end in zip(self._kept, self._ends, strict=True)}

    def kept(self, vector: tirx.Expr, slot: int) -> tirx.Expr:
        """Returns the registers that are kept for a vector."""
        first = tirx.floormod(vector, number(self.side.slots)) * number(len(self._kept))
        return load(self._registers, self.nest.simplify(first + number(slot)))

    def _axes_that_take_divisions(self) -> list[tirx.Var]:
        """Returns the axes to keep; what divides the number of a thread alone is left to the compiler."""
        operand = self.side.operand
        if self.side.along_depth:
            values = operand.positions.at(self.nest.variable("position", operand.positions.size), operand.value)
        else:
            values = self._axis_values(number(0))
        return [var for var, value in values.items() if any(isinstance(part, _DIVISIONS) for part in inside(value))]

    def _axis_values(self, vector: tirx.Expr) -> dict[tirx.Var, tirx.Expr]:
        """Returns the values of the operand's axes, but for the depth, for a vector of the thread."""
        operand = self.side.operand
        position = self.first + self.side.position(self.thread, vector)[0]
        found = {**operand.batch.at(self.batch, operand.value), **operand.positions.at(position, operand.value)}
        return {var: self.nest.simplify(value) for var, value in found.items()}

    def _as_kept(self, var: tirx.Var, value: tirx.Expr) -> tirx.Expr:
        """Returns the value to keep: divided by the lanes along whose axis they run, so that TVM sees a multiple of
        them.
        """
        if self.side.along_depth or not self.side.operand.positions.is_fastest(var):
            return value
        return self.nest.simplify(tirx.floordiv(value, number(self.side.lanes)))


class TileElement:
    """Makes expressions for the elements of one tile.

    TVM resolves divisions of variables with bounds where it does not resolve those of sums: of `(8 t + w) // 9` it
    knows nothing, if `t` and `w` are sums themselves. So indices are made of variables that stand for the number of the
    tile, for the position in its depth, and for what is kept in registers; in the end these are substituted.
    """

    def __init__(self, source: OperandFetch, tile: tirx.Expr, tiles: Size) -> None:
        self._source, self._nest, self._side = source, source.nest, source.side
        self._step = self._side.lanes if self._side.along_depth else 1  # depths from a vector to the next
        self._tile = self._nest.variable("tile", tiles)
        self._within = self._nest.variable("within", self._side.depths // self._step)
        self._kept = source.stand_ins()
        self._tile_value = tile

    def at(self, vector: tirx.Expr, lane: tirx.Expr) -> tuple[list[tirx.Expr], tirx.Expr]:
        """Returns the condition under which the operand has an element, and the element."""
        position, depth, present = self._side.position(self._source.thread, vector)
        along, across = (lane, number(0)) if self._side.along_depth else (number(0), lane)
        own_depth = self._tile * number(self._side.depths) + self._within * number(self._step) + along
        values = self._axis_values(self._source.first + position + across, across)
        conditions, value = _unconditional(self._side.operand.having(self._nest, values, own_depth))
        conditions += self._limits(position, depth, present)
        meant = {
            self._tile: self._tile_value,
            self._within: self._nest.simplify(tirx.floordiv(depth, number(self._step))),
            **{var: self._source.kept(vector, slot) for slot, var in enumerate(self._kept.values())},
        }
        return [substituted(condition, meant) for condition in conditions], substituted(value, meant)

    def _axis_values(self, position: tirx.Expr, across: tirx.Expr) -> dict[tirx.Var, tirx.Expr]:
        operand = self._side.operand
        values = {
            **operand.batch.at(self._source.batch, operand.value),
            **operand.positions.at(position, operand.value),
        }
        for var, kept in self._kept.items():
            has_lanes = not self._side.along_depth and operand.positions.is_fastest(var)
            values[var] = kept * number(self._side.lanes) + across if has_lanes else kept
        return values

    def _limits(self, position: tirx.Expr, depth: tirx.Expr, present: tirx.Expr) -> list[tirx.Expr]:
        """Whether a vector is in the tile, and in the operand; none lies across an end: its first lane is enough."""
        operand = self._side.operand
        limits = (
            present,
            self._source.first + position < number(operand.positions.size),
            self._tile * number(self._side.depths) + depth < number(operand.depth.size),
        )
        return [self._nest.simplify(limit) for limit in limits if not self._nest.holds(limit)]


def _unconditional(expr: tirx.Expr) -> tuple[list[tirx.Expr], tirx.Expr]:
    """Conditions, and what an expression is where they hold; elsewhere it is zero."""
    match expr:
        case Call(op=tvm.ir.Op(name="prim.if_then_else")) if is_number(expr.args[2], 0):
            conditions, value = _unconditional(expr.args[1])
            return [*conjuncts(expr.args[0]), *conditions], value
        case tirx.Cast():
            conditions, value = _unconditional(expr.value)
            return conditions, tirx.Cast(str(expr.expr_ty().dtype), value)
    return [], expr


def _depends(expr: tirx.Expr, var: tirx.Expr) -> bool:
    return isinstance(var, tirx.Var) and any(var.same_as(v) for v in variables_of([expr]))
