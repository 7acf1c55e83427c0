"""Tiles of an operand: fetched from global memory into registers, then stored in shared memory, depth by depth.

    shared[depth][position]

Threads next to each other fetch what lies next to each other in memory: positions, or else depths (a left operand as
matrix products have it). In the second case the rows of the tile are four elements longer than needed, so that what a
warp stores falls into different banks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import tvm
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad

from nnefc.passes.schedule.cuda.nest import Nest, load, sequence, store
from nnefc.passes.schedule.cuda.product import Operand
from nnefc.passes.tir.expressions import conjuncts, inside, number, substituted, variables_of

__all__ = ["OperandTile", "PositionTile", "lanes_along", "lies_along_depth", "tile_of"]

_PADDING = 4  # elements: a row's beginning stays aligned
_NEAR = 8  # elements: threads next to each other that are no further apart share what memory delivers at once


_DIVISIONS = (tirx.FloorDiv, tirx.FloorMod)


@dataclass(frozen=True)
class Located:
    """Where a thread fetches its part of a tile.

    Attributes:
        batch, first: of the operand: which one, and the position that the tile begins at.
        ends: for the axes whose values are in `registers`, bounds of what is there.
    """

    batch: tirx.Expr
    first: tirx.Expr
    ends: Mapping[tirx.Var, int]
    registers: tirx.Var | None


@dataclass(frozen=True)
class OperandTile:
    """How the threads of a block fetch a tile.

    Attributes:
        positions, depths: of a tile.
        lanes: elements that a thread fetches at once.
        along_depth: whether these, and those of the next thread, are at one position.
        threads: of a block.
        padding: elements between the rows of the tile in shared memory.
    """

    operand: Operand
    positions: int
    depths: int
    lanes: int
    along_depth: bool
    threads: int
    padding: int

    @property
    def stride(self) -> int:
        """Elements from one depth to the next in shared memory."""
        return self.positions + self.padding

    @property
    def size(self) -> int:
        """Elements of shared memory."""
        return self.depths * self.stride

    @property
    def fetched(self) -> int:
        """Elements that a thread holds on their way."""
        return self.vectors * self.lanes

    @property
    def vectors(self) -> int:
        """What a thread fetches of a tile, `lanes` elements each."""
        return -(-self.positions * self.depths // (self.lanes * self.threads))

    @property
    def places(self) -> int:
        """Positions that one thread fetches from; 0 if each vector has one of its own."""
        return 0 if self.along_depth else max(1, self.positions // (self.lanes * self.threads))

    def locate(
        self, nest: Nest, name: str, thread: tirx.Expr, batch: tirx.Expr, first: tirx.Expr
    ) -> tuple[tirx.Stmt | None, Located]:
        """Work out once what a thread's positions are by the operand's axes, as far as that takes divisions.

        Args:
            name: of the operand, for the generated code.
            first: position that the tile begins at.

        Returns:
            A statement for the beginning, and what `fetch` needs.
        """
        value, positions = self.operand.value, self.operand.positions

        def values(vector: tirx.Expr) -> dict[tirx.Var, tirx.Expr]:
            position = first + self.place(thread, vector)[0]
            found = {**self.operand.batch.at(batch, value), **positions.at(position, value)}
            return {var: nest.simplify(item) for var, item in found.items()}

        plain = values(number(0))
        kept = [var for var, item in plain.items() if any(isinstance(part, _DIVISIONS) for part in inside(item))]
        if not kept or not self.places:
            return None, Located(batch, first, {}, None)
        registers = nest.buffer(f"{name}_at", self.places * len(kept), "int32", "local")

        def by_lanes(var: tirx.Var, item: tirx.Expr) -> tirx.Expr:
            """Where lanes run along an axis, its value is a multiple of their number; that shows, if they are apart."""
            return nest.simplify(tirx.floordiv(item, number(self.lanes))) if positions.is_fastest(var) else item

        def keep(place: tirx.Expr) -> tirx.Stmt:
            items = values(place)
            first = place * number(len(kept))
            return sequence(
                *(store(registers, by_lanes(var, items[var]), first + number(i)) for i, var in enumerate(kept))
            )

        every = values(nest.variable("place", self.places))
        bounds = {var: nest.end(by_lanes(var, every[var])) for var in kept}
        return nest.unrolled(self.places, keep), Located(batch, first, bounds, registers)

    def fetch(
        self,
        nest: Nest,
        thread: tirx.Expr,
        registers: tirx.Var,
        located: Located,
        tile: tirx.Expr,
        tiles: int,
    ) -> tirx.Stmt:
        """Elements of tile `tile` (of at most `tiles`) of the depth into `registers`; zeros beyond the operand."""
        return _Fetch(self, nest, thread, registers, located, tile, tiles).stmt()

    def put(self, nest: Nest, thread: tirx.Expr, registers: tirx.Var, shared: tirx.Var, base: tirx.Expr) -> tirx.Stmt:
        """What `fetch` has left in registers into shared memory, from the place `base` on."""

        def vector(number_of: tirx.Expr) -> tirx.Stmt:
            position, depth, present = self.place(thread, number_of)
            source = number_of * number(self.lanes)
            place = base + depth * number(self.stride) + position
            if self.along_depth:
                stmt = nest.unrolled(
                    self.lanes,
                    lambda lane: store(
                        shared, load(registers, source + lane), nest.simplify(place + lane * number(self.stride))
                    ),
                )
            else:
                stmt = nest.lanes(
                    self.lanes, lambda lane: store(shared, load(registers, source + lane), nest.simplify(place + lane))
                )
            return stmt if nest.holds(present) else tirx.IfThenElse(present, stmt, None)

        return nest.unrolled(self.vectors, vector)

    def place(self, thread: tirx.Expr, vector: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr]:
        """Position and depth in the tile of a thread's vector, and whether it is in the tile at all."""
        item = vector * number(self.threads) + thread
        if self.along_depth:
            count = self.depths // self.lanes
            position, depth = tirx.floordiv(item, number(count)), tirx.floormod(item, number(count)) * self.lanes
        else:
            count = self.positions // self.lanes
            position, depth = tirx.floormod(item, number(count)) * self.lanes, tirx.floordiv(item, number(count))
        return position, depth, item < number(self.positions * self.depths // self.lanes)


class _Fetch:
    """The statement that fetches a tile; its pieces are alike but for the vector's number, and the lane."""

    def __init__(
        self,
        side: OperandTile,
        nest: Nest,
        thread: tirx.Expr,
        registers: tirx.Var,
        located: Located,
        tile: tirx.Expr,
        tiles: int,
    ) -> None:
        self._side, self._nest, self._thread = side, nest, thread
        self._registers, self._located = registers, located
        self._zero = tirx.const(0, str(registers.dtype))
        # Divisions of variables are resolved where those of sums are not: these stand for sums meanwhile.
        self._tile = nest.variable("tile", tiles)
        self._step = side.lanes if side.along_depth else 1
        self._within = nest.variable("within", side.depths // self._step)
        self._axes = {var: nest.variable(str(var.name), end) for var, end in located.ends.items()}
        self._stands_for = {self._tile: tile}

    def stmt(self) -> tirx.Stmt:
        """Elements where the operand has them, zeros elsewhere; what holds for all vectors or none is asked once."""
        nest, count = self._nest, self._side.vectors
        any_vector = nest.variable("vector", count)
        common = [c for c in self._element(any_vector, number(0))[0] if not _depends(c, any_vector)]
        fetched = nest.unrolled(count, self._vector)
        if not common:
            return fetched
        zeros = nest.unrolled(count, lambda v: self._into_registers(v, lambda _: self._zero))
        return tirx.IfThenElse(tirx.all(*common), fetched, zeros)

    def _vector(self, vector: tirx.Expr) -> tirx.Stmt:
        own = [c for c in self._element(vector, number(0))[0] if _depends(c, vector)]

        def item(lane: tirx.Expr) -> tirx.Expr:
            element = self._element(vector, lane)[1]
            return tirx.if_then_else(tirx.all(*own), element, self._zero) if own else element

        return self._into_registers(vector, item)

    def _into_registers(self, vector: tirx.Expr, item: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Stmt:
        first = vector * number(self._side.lanes)
        return self._nest.lanes(self._side.lanes, lambda lane: store(self._registers, item(lane), first + lane))

    def _element(self, vector: tirx.Expr, lane: tirx.Expr) -> tuple[list[tirx.Expr], tirx.Expr]:
        """What must hold for the operand to have an element, and the element."""
        side, nest, operand = self._side, self._nest, self._side.operand
        position, depth, present = side.place(self._thread, vector)
        along, across = (lane, number(0)) if side.along_depth else (number(0), lane)
        own_position = self._located.first + position + across
        values = {
            **operand.batch.at(self._located.batch, operand.value),
            **operand.positions.at(own_position, operand.value),
        }
        for var, stand_in in self._axes.items():
            fastest = operand.positions.is_fastest(var)
            values[var] = stand_in * number(side.lanes) + across if fastest else stand_in
        own_depth = self._tile * number(side.depths) + self._within * number(self._step) + along
        conditions, item = _unconditional(operand.having(nest, values, own_depth))
        # Vectors never lie across ends: what their first lane needs is enough.
        limits = (
            present,
            self._located.first + position < number(operand.positions.size),
            self._tile * number(side.depths) + depth < number(operand.depth.size),
        )
        conditions += [nest.simplify(limit) for limit in limits if not nest.holds(limit)]
        stands_for = {**self._stands_for, **self._in_registers(vector)}
        stands_for[self._within] = nest.simplify(tirx.floordiv(depth, number(self._step)))
        return [substituted(c, stands_for) for c in conditions], substituted(item, stands_for)

    def _in_registers(self, vector: tirx.Expr) -> dict[tirx.Var, tirx.Expr]:
        """What `locate` has worked out for a vector."""
        first = tirx.floormod(vector, number(max(1, self._side.places))) * number(len(self._axes))
        return {
            stand_in: load(self._located.registers, self._nest.simplify(first + number(slot)))
            for slot, stand_in in enumerate(self._axes.values())
        }


def _unconditional(expr: tirx.Expr) -> tuple[list[tirx.Expr], tirx.Expr]:
    """Conditions, and what an expression is where they hold; elsewhere it is zero."""
    match expr:
        case Call(op=tvm.ir.Op(name="prim.if_then_else")) if _is_zero(expr.args[2]):
            conditions, value = _unconditional(expr.args[1])
            return [*conjuncts(expr.args[0]), *conditions], value
        case tirx.Cast():
            conditions, value = _unconditional(expr.value)
            return conditions, tirx.Cast(str(expr.expr_ty().dtype), value)
    return [], expr


def _is_zero(expr: tirx.Expr) -> bool:
    return isinstance(expr, tirx.IntImm | tirx.FloatImm) and float(expr.value) == 0


def _depends(expr: tirx.Expr, var: tirx.Expr) -> bool:
    return isinstance(var, tirx.Var) and any(var.same_as(v) for v in variables_of([expr]))


@dataclass(frozen=True)
class PositionTile(OperandTile):
    """A tile that lies in shared memory position by position, as in global memory: `shared[position][depth]`."""

    @property
    def stride(self) -> int:
        """Elements from one position to the next in shared memory."""
        return self.depths + self.padding

    @property
    def size(self) -> int:
        """Elements of shared memory."""
        return self.positions * self.stride

    def put(self, nest: Nest, thread: tirx.Expr, registers: tirx.Var, shared: tirx.Var, base: tirx.Expr) -> tirx.Stmt:
        """What `fetch` has left in registers into shared memory, from the place `base` on."""

        def vector(number_of: tirx.Expr) -> tirx.Stmt:
            position, depth, present = self.place(thread, number_of)
            place = base + position * number(self.stride) + depth
            stmt = nest.lanes(
                self.lanes,
                lambda lane: store(
                    shared, load(registers, number_of * number(self.lanes) + lane), nest.simplify(place + lane)
                ),
            )
            return stmt if nest.holds(present) else tirx.IfThenElse(present, stmt, None)

        return nest.unrolled(self.vectors, vector)


def tile_of(operand: Operand, positions: int, depths: int, threads: int) -> OperandTile:
    """The best way to fetch tiles of an operand."""
    across, along = (lanes_along(operand, positions, depths, way) for way in (False, True))
    if across == 1 and (along > 1 or lies_along_depth(operand)):
        return OperandTile(operand, positions, depths, along, True, threads, _PADDING)
    return OperandTile(operand, positions, depths, across, False, threads, 0)


def lanes_along(operand: Operand, positions: int, depths: int, along_depth: bool, widest: int = 4) -> int:
    """Elements, at most `widest`, that lie side by side in memory, aligned, wherever a tile begins."""
    extent, depth = operand.positions.size, operand.depth.size
    for lanes in (lanes for lanes in (8, 4, 2) if lanes <= widest):
        length, of_tile = (depth, depths) if along_depth else (extent, positions)
        if length % lanes or of_tile % lanes:
            continue
        nest = Nest(operand.aligned)
        batch, group = nest.variable("batch", operand.batch.size), nest.variable("group", length // lanes)
        other, lane = nest.variable("other", extent if along_depth else depth), nest.variable("lane", lanes)
        place = group * number(lanes) + lane
        value = operand.at(nest, batch, *((other, place) if along_depth else (place, other)))
        loads = [part for part in inside(value) if isinstance(part, TensorLoad)]
        if any(lane in variables_of(part.indices) for part in loads) and nest.vectorizes(value, lane, lanes):
            return lanes
    return 1


def lies_along_depth(operand: Operand) -> bool:
    """Whether elements of neighbouring depths are neighbours in memory, and those of neighbouring positions are not."""
    if operand.depth.size == 1 or operand.positions.size == 1:
        return operand.positions.size == 1
    first, next_position, next_depth = (_offset(operand, *at) for at in ((0, 0), (1, 0), (0, 1)))
    if first is None or next_position is None or next_depth is None:
        return False
    return abs(next_depth - first) == 1 and abs(next_position - first) > _NEAR


def _offset(operand: Operand, position: int, depth: int) -> int | None:
    """Where in memory an element lies, if it is loaded from one place."""
    nest = Nest()
    value = substituted(operand.value, _values(operand, position, depth))
    offsets = [nest.simplify(part.indices[0]) for part in inside(value) if isinstance(part, TensorLoad)]
    return int(offsets[0]) if len(offsets) == 1 and isinstance(offsets[0], tirx.IntImm) else None


def _values(operand: Operand, position: int, depth: int) -> dict[tirx.Var, tirx.Expr]:
    roles = ((operand.batch, 0), (operand.positions, position), (operand.depth, depth))
    return {var: value for axes, index in roles for var, value in axes.at(number(index), operand.value).items()}
