"""Distributes the tile of an operand among the threads of a block, and lays it out in shared memory.

    shared[depth][position]          shared[position][depth]
    OperandTile                      PositionTile, for matrix units

Threads next to each other fetch what lies next to each other in memory: positions, or else depths (a left operand as
matrix products have it). A tile of 64 positions and 8 depths, fetched by 128 threads, four elements each:

    along positions                                    along depths
    thread 0   positions 0 to 3 of depth 0             thread 0   depths 0 to 3 of position 0
    thread 1   positions 4 to 7 of depth 0             thread 1   depths 4 to 7 of position 0
    thread 16  positions 0 to 3 of depth 1             thread 2   depths 0 to 3 of position 1

In the second case the rows of an OperandTile are four elements longer than needed, so that what a warp stores falls
into different banks. How elements are fetched is in `operand_fetch.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

from nnefc.passes.schedule.gpu.contractions.analysis import Factor
from nnefc.passes.schedule.gpu.nest import Nest, load, store
from nnefc.passes.tir.common.expressions import loads_of, number, substituted, variables_of
from nnefc.passes.tir.common.shapes import elements_of, size_of
from nnefc.symbolic.dims import is_size, size_hint
from nnefc.targets.machine.gpu.description import SECTOR_BYTES

__all__ = [
    "OperandTile",
    "PositionTile",
    "UnpackedTile",
    "lanes_along",
    "lies_along_depth",
    "main_load",
    "shares_bytes",
    "tile_of",
]

_PADDING = 4  # elements: a row's beginning stays aligned
_NEAR = (
    SECTOR_BYTES // 4
)  # elements: threads next to each other that are no further apart share what memory delivers at once


@dataclass(frozen=True)
class OperandTile:
    """The distribution of a tile among the threads of a block; the tile lies in shared memory depth by depth.

    Attributes:
        positions, depths: of a tile.
        lanes: elements that a thread fetches at once, a vector.
        along_depth: whether these, and those of the next thread, are at one position.
        threads: of a block.
        padding: elements between the rows of the tile in shared memory.
    """

    operand: Factor
    positions: int
    depths: int
    lanes: int
    along_depth: bool
    threads: int
    padding: int

    @property
    def stride(self) -> int:
        """Elements from one row to the next in shared memory: from one depth to the next."""
        return self.positions + self.padding

    @property
    def size(self) -> int:
        """Elements of shared memory."""
        return self.depths * self.stride

    @property
    def vectors(self) -> int:
        """Returns the number of vectors of a tile that a thread fetches."""
        return -(-self.positions * self.depths // (self.lanes * self.threads))

    @property
    def fetched(self) -> int:
        """Elements that a thread holds on their way."""
        return self.vectors * self.lanes

    @property
    def stored(self) -> OperandTile:
        """Returns the tile as it lies in shared memory."""
        return self

    @property
    def slots(self) -> int:
        """Positions that one thread fetches from: along depths, one for each vector."""
        return self.vectors if self.along_depth else max(1, self.positions // (self.lanes * self.threads))

    def position(self, thread: tirx.Expr, vector: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr]:
        """Position and depth in the tile of a thread's vector, and whether it is in the tile at all."""
        element = vector * number(self.threads) + thread
        if self.along_depth:
            count = self.depths // self.lanes
            position, depth = tirx.floordiv(element, number(count)), tirx.floormod(element, number(count)) * self.lanes
        else:
            count = self.positions // self.lanes
            position, depth = tirx.floormod(element, number(count)) * self.lanes, tirx.floordiv(element, number(count))
        return position, depth, element < number(self.positions * self.depths // self.lanes)

    def put(self, nest: Nest, thread: tirx.Expr, registers: tirx.Var, shared: tirx.Var, base: tirx.Expr) -> tirx.Stmt:
        """Stores a thread's fetched registers to shared memory, from the position `base` on."""
        distance = self._lane_distance

        def vector(which: tirx.Expr) -> tirx.Stmt:
            position, depth, present = self.position(thread, which)
            source = which * number(self.lanes)
            slot = base + self.at(position, depth)

            def lane(of: tirx.Expr) -> tirx.Stmt:
                return store(shared, load(registers, source + of), nest.simplify(slot + of * number(distance)))

            stmt = nest.lanes(self.lanes, lane) if distance == 1 else nest.unrolled(self.lanes, lane)
            return stmt if nest.holds(present) else tirx.IfThenElse(present, stmt, None)

        return nest.unrolled(self.vectors, vector)

    def offset(self, thread: tirx.Expr, vector: tirx.Expr) -> tirx.Expr:
        """Returns the offset in shared memory of a thread's vector."""
        position, depth, _ = self.position(thread, vector)
        return self.at(position, depth)

    def at(self, position: tirx.Expr, depth: tirx.Expr) -> tirx.Expr:
        """Returns the offset of an element in shared memory."""
        return depth * number(self.stride) + position

    @property
    def _lane_distance(self) -> int:
        """Returns the stride in shared memory between the elements of a vector."""
        return self.stride if self.along_depth else 1


@dataclass(frozen=True)
class PositionTile(OperandTile):
    """A tile that lies in shared memory position by position, as in global memory; it is fetched along depths."""

    @property
    def stride(self) -> int:
        """Elements from one position to the next in shared memory."""
        return self.depths + self.padding

    @property
    def size(self) -> int:
        """Elements of shared memory."""
        return self.positions * self.stride

    def at(self, position: tirx.Expr, depth: tirx.Expr) -> tirx.Expr:
        """Returns the offset of an element in shared memory."""
        return position * number(self.stride) + depth

    @property
    def _lane_distance(self) -> int:
        return 1


@dataclass(frozen=True)
class UnpackedTile(OperandTile):
    """A tile whose vectors are unpacked from a few bytes, as those of a matrix that is quantized in blocks.

    Attributes:
        packed: bytes of a vector, which a thread loads at once.
        layout: how the elements lie in shared memory.
    """

    packed: int
    layout: OperandTile

    @property
    def stored(self) -> OperandTile:
        """Returns the tile as it lies in shared memory."""
        return self.layout

    @property
    def fetched(self) -> int:
        """Elements that a thread unpacks at once."""
        return self.lanes


def tile_of(operand: Factor, positions: int, depths: int, threads: int) -> OperandTile:
    """Returns the best way to fetch tiles of an operand."""
    across, along = (lanes_along(operand, positions, depths, way) for way in (False, True))
    if across == 1 and (along > 1 or lies_along_depth(operand)):
        return OperandTile(operand, positions, depths, along, True, threads, _PADDING)
    return OperandTile(operand, positions, depths, across, False, threads, 0)


def lanes_along(operand: Factor, positions: int, depths: int, along_depth: bool, widest: int = 4) -> int:
    """Elements, at most `widest`, that lie side by side in memory, aligned, wherever a tile begins."""
    size, depth = operand.positions.size, operand.depth.size
    for lanes in (lanes for lanes in (16, 8, 4, 2) if lanes <= widest):
        length, of_tile = (depth, depths) if along_depth else (size, positions)
        if length % lanes or of_tile % lanes:
            continue
        nest = Nest(operand.aligned)
        batch, group = nest.variable("batch", operand.batch.size), nest.variable("group", length // lanes)
        other, lane = nest.variable("other", size if along_depth else depth), nest.variable("lane", lanes)
        slot = group * number(lanes) + lane
        value = operand.at(nest, batch, *((other, slot) if along_depth else (slot, other)))
        loads = loads_of(value)
        if any(lane in variables_of(load.indices) for load in loads) and nest.vectorizes(value, lane, lanes):
            return lanes
    return 1


def lies_along_depth(operand: Factor) -> bool:
    """Whether elements of neighbouring depths are neighbours in memory, and those of neighbouring positions are not.

    Of dynamic sizes the hints count.
    """
    if operand.depth.size == 1 or operand.positions.size == 1:
        return operand.positions.size == 1
    first, next_position, next_depth = (_offset(operand, *at) for at in ((0, 0), (1, 0), (0, 1)))
    if first is None or next_position is None or next_depth is None:
        return False
    step = abs(next_depth - first)
    return (step == 1 or (step == 0 and shares_bytes(operand))) and abs(next_position - first) > _NEAR


def shares_bytes(operand: Factor) -> bool:
    """Whether elements of neighbouring depths lie in one byte, of which each takes some bits."""
    load = main_load(operand.value)
    first, following = (_offset(operand, 0, depth) for depth in (0, 1))
    return load is not None and str(load.source.dtype) == "uint8" and first is not None and first == following


def main_load(value: tirx.Expr) -> TensorLoad | None:
    """Returns the load of the largest tensor, if there is one; others have one element for many of its elements, as
    scales of blocks do."""
    loads = sorted(loads_of(value), key=lambda load: size_hint(elements_of(load.source)))
    if not loads:
        return None
    *others, largest = loads
    different = [load for load in others if not tvm_ffi.structural_equal(load, largest)]
    size = size_hint(elements_of(largest.source))
    return None if different and size_hint(elements_of(different[-1].source)) == size else largest


def _offset(operand: Factor, position: int, depth: int) -> int | None:
    """Where in memory an element lies, if what it is made of is loaded from one position, but for what many share."""
    nest = Nest()
    load = main_load(substituted(operand.value, _values(operand, position, depth)))
    if load is None:
        return None
    offset = nest.simplify(load.indices[0])
    return size_hint(size_of(offset)) if is_size(offset) else None


def _values(operand: Factor, position: int, depth: int) -> dict[tirx.Var, tirx.Expr]:
    roles = ((operand.batch, 0), (operand.positions, position), (operand.depth, depth))
    return {var: value for axes, index in roles for var, value in axes.at(number(index), operand.value).items()}
