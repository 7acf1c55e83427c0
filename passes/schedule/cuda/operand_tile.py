"""Tiles of an operand: fetched from global memory into registers, then stored in shared memory, depth by depth.

    shared[depth][position]

Threads next to each other fetch what lies next to each other in memory: positions, or else depths (a left operand as
matrix products have it). In the second case the rows of the tile are four elements longer than needed, so that what a
warp stores falls into different banks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tvm import tirx
from tvm.ir.expr import TensorLoad

from nnefc.passes.schedule.cuda.expressions import inside, number
from nnefc.passes.schedule.cuda.nest import Nest, load, store
from nnefc.passes.schedule.structure import variables_of

__all__ = ["OperandTile", "tile_of"]

Element = Callable[[Nest, tirx.Expr, tirx.Expr, tirx.Expr], tirx.Expr]
"""The operand for a batch, a position (a fused row or column) and a depth, in simple form."""

_PADDING = 4  # elements: a row's beginning stays aligned
_NEAR = 8  # elements: threads next to each other that are no further apart share what memory delivers at once


@dataclass(frozen=True)
class OperandTile:
    """How the threads of a block fetch a tile.

    Attributes:
        element: the operand.
        extent, depth: of the whole operand: positions, and what is summed over.
        positions, depths: of a tile.
        lanes: elements that a thread fetches at once.
        along_depth: whether these, and those of the next thread, are at one position.
        threads: of a block.
    """

    element: Element
    extent: int
    depth: int
    positions: int
    depths: int
    lanes: int
    along_depth: bool
    threads: int

    @property
    def stride(self) -> int:
        """Elements from one depth to the next in shared memory."""
        return self.positions + (_PADDING if self.along_depth else 0)

    @property
    def size(self) -> int:
        """Elements of shared memory."""
        return self.depths * self.stride

    @property
    def fetched(self) -> int:
        """Elements that a thread holds on their way."""
        return self._vectors * self.lanes

    @property
    def _vectors(self) -> int:
        return -(-self.positions * self.depths // (self.lanes * self.threads))

    def fetch(
        self,
        nest: Nest,
        thread: tirx.Expr,
        registers: tirx.Var,
        batch: tirx.Expr,
        first: tirx.Expr,
        first_depth: tirx.Expr,
    ) -> tirx.Stmt:
        """Elements from position `first` and depth `first_depth` on into `registers`; zeros beyond the operand."""
        dtype = str(registers.dtype)

        def vector(number_of: tirx.Expr) -> tirx.Stmt:
            position, depth, _ = self._place(thread, number_of)

            def value(lane: tirx.Expr) -> tirx.Expr:
                own_position = first + position + (number(0) if self.along_depth else lane)
                own_depth = first_depth + depth + (lane if self.along_depth else number(0))
                return self.element(nest, batch, own_position, own_depth)

            guard = self._guard(nest, thread, number_of, first + position, first_depth + depth)

            def fetch_lane(lane: tirx.Expr) -> tirx.Stmt:
                element = value(lane)
                item = tirx.if_then_else(guard, element, tirx.const(0, dtype)) if guard is not None else element
                return store(registers, item, number_of * number(self.lanes) + lane)

            return nest.lanes(self.lanes, fetch_lane)

        return nest.unrolled(self._vectors, vector)

    def put(self, nest: Nest, thread: tirx.Expr, registers: tirx.Var, shared: tirx.Var, base: tirx.Expr) -> tirx.Stmt:
        """What `fetch` has left in registers into shared memory, from the place `base` on."""

        def vector(number_of: tirx.Expr) -> tirx.Stmt:
            position, depth, present = self._place(thread, number_of)
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

        return nest.unrolled(self._vectors, vector)

    def _place(self, thread: tirx.Expr, vector: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr]:
        """Position and depth in the tile of a thread's vector, and whether it is in the tile at all."""
        item = vector * number(self.threads) + thread
        if self.along_depth:
            count = self.depths // self.lanes
            position, depth = tirx.floordiv(item, number(count)), tirx.floormod(item, number(count)) * self.lanes
        else:
            count = self.positions // self.lanes
            position, depth = tirx.floormod(item, number(count)) * self.lanes, tirx.floordiv(item, number(count))
        return position, depth, item < number(self.positions * self.depths // self.lanes)

    def _guard(
        self, nest: Nest, thread: tirx.Expr, vector: tirx.Expr, position: tirx.Expr, depth: tirx.Expr
    ) -> tirx.Expr | None:
        """What must hold for the operand to have a vector, as far as it is not known. Vectors never lie across ends."""
        conditions = [
            self._place(thread, vector)[2],
            position < number(self.extent),
            depth < number(self.depth),
        ]
        unknown = [nest.simplify(c) for c in conditions if not nest.holds(c)]
        return tirx.all(*unknown) if unknown else None


def tile_of(
    element: Element, batch: int, extent: int, depth: int, positions: int, depths: int, threads: int
) -> OperandTile:
    """The best way to fetch tiles of an operand, of which there are `batch`."""
    shape = (batch, extent, depth)
    across, along = (_lanes(element, shape, positions, depths, way) for way in (False, True))
    if across == 1 and (along > 1 or _lies_along_depth(element, shape)):
        return OperandTile(element, extent, depth, positions, depths, along, True, threads)
    return OperandTile(element, extent, depth, positions, depths, across, False, threads)


def _lanes(element: Element, shape: tuple[int, int, int], positions: int, depths: int, along_depth: bool) -> int:
    """Elements that lie side by side in memory, aligned, wherever a tile begins."""
    batch, extent, depth = shape
    for lanes in (4, 2):
        length, of_tile = (depth, depths) if along_depth else (extent, positions)
        if length % lanes or of_tile % lanes:
            continue
        nest = Nest()
        which, group = nest.variable("batch", batch), nest.variable("group", length // lanes)
        other, lane = nest.variable("other", extent if along_depth else depth), nest.variable("lane", lanes)
        place = group * number(lanes) + lane
        value = element(nest, which, *((other, place) if along_depth else (place, other)))
        loads = [part for part in inside(value) if isinstance(part, TensorLoad)]
        if any(lane in variables_of(part.indices) for part in loads) and nest.vectorizes(value, lane, lanes):
            return lanes
    return 1


def _lies_along_depth(element: Element, shape: tuple[int, int, int]) -> bool:
    """Whether elements of neighbouring depths are neighbours in memory, and those of neighbouring positions are not."""
    _, extent, depth = shape
    if depth == 1 or extent == 1:
        return extent == 1
    first, next_position, next_depth = (_offset(element, *at) for at in ((0, 0), (1, 0), (0, 1)))
    if first is None or next_position is None or next_depth is None:
        return False
    return abs(next_depth - first) == 1 and abs(next_position - first) > _NEAR


def _offset(element: Element, position: int, depth: int) -> int | None:
    """Where in memory an element lies, if it is loaded from one place."""
    nest = Nest()
    value = element(nest, number(0), number(position), number(depth))
    offsets = [nest.simplify(part.indices[0]) for part in inside(value) if isinstance(part, TensorLoad)]
    return int(offsets[0]) if len(offsets) == 1 and isinstance(offsets[0], tirx.IntImm) else None
