"""Fetches a thread's part of tiles that are packed in memory, and unpacks it on the way to shared memory.

Bytes, and what vectors share, wait in registers while the tile before them is multiplied.
"""

from __future__ import annotations

from tvm import tirx

from nnefc.passes.schedule.gpu.contractions.operand_fetch import OperandFetch, TileElement
from nnefc.passes.schedule.gpu.contractions.operand_tile import OperandTile, UnpackedTile
from nnefc.passes.schedule.gpu.contractions.packed_vectors import PackedVectors, Packing, packing_of
from nnefc.passes.schedule.gpu.nest import Nest, load, sequence, store
from nnefc.passes.tir.common.expressions import number
from nnefc.passes.tir.common.shapes import Size

__all__ = ["PackedFetch", "fetch_of", "unpacked_tile"]


class PackedFetch(OperandFetch):
    """The fetch of a tile that is unpacked."""

    def __init__(
        self, side: UnpackedTile, nest: Nest, name: str, thread: tirx.Expr, batch: tirx.Expr, first: tirx.Expr
    ) -> None:
        super().__init__(side, nest, name, thread, batch, first)
        self._layout = side.layout
        self._packed = PackedVectors(nest, name, side.operand, Packing(side.lanes, side.packed), side.vectors)

    def fetch(self, registers: tirx.Var, tile: tirx.Expr, tiles: Size) -> tirx.Stmt:
        """Loads the bytes of tile `tile` (of at most `tiles`) of the depth; beyond the operand, nothing."""
        element = TileElement(self, tile, tiles)

        def one(vector: tirx.Expr) -> tirx.Stmt:
            conditions, value = element.at(vector, number(0))
            return self.nest.guarded(self._packed.load(vector, value), conditions)

        return self.nest.unrolled(self.side.vectors, one)

    def put(
        self,
        registers: tirx.Var,
        shared: tirx.Var,
        base: tirx.Expr,
        tile: tirx.Expr,
        tiles: Size,
        convert: tirx.Stmt | None,
    ) -> tirx.Stmt:
        """Unpacks the tile, vector by vector, and stores it to shared memory; zeros beyond the operand."""
        nest, side, layout = self.nest, self.side, self._layout
        element = TileElement(self, tile, tiles)
        zero = tirx.const(0, str(registers.dtype))

        def one(vector: tirx.Expr) -> tirx.Stmt:
            position, depth, present = side.position(self.thread, vector)
            conditions, _ = element.at(vector, number(0))
            lanes = [
                self._packed.element(vector, lane, element.at(vector, number(lane))[1]) for lane in range(side.lanes)
            ]
            filled = sequence(*(store(registers, value, number(lane)) for lane, value in enumerate(lanes)))
            if conditions:
                zeros = nest.unrolled(side.lanes, lambda lane: store(registers, zero, lane))
                filled = tirx.IfThenElse(tirx.all(*conditions), filled, zeros)

            def stored(part: int) -> tirx.Stmt:
                first = number(part * layout.lanes)
                slot = nest.simplify(base + layout.at(position, depth + first))
                return nest.lanes(layout.lanes, lambda lane: store(shared, load(registers, first + lane), slot + lane))

            stmt = sequence(filled, convert, *map(stored, range(side.lanes // layout.lanes)))
            return nest.guarded(stmt, [present])

        return nest.unrolled(side.vectors, one)


def unpacked_tile(layout: OperandTile) -> OperandTile:
    """Returns a tile that threads unpack on its way to shared memory, where it lies as `layout`.

    It is `layout` itself, for threads to fetch element by element, where the operand is not packed along the depth.
    """
    longest = max(layout.lanes, layout.positions * layout.depths // layout.threads)  # each thread has a part
    packing = packing_of(layout.operand, layout.depths, layout.lanes, longest)
    if packing is None:
        return layout
    of_layout = (layout.operand, layout.positions, layout.depths)
    return UnpackedTile(*of_layout, packing.lanes, True, layout.threads, 0, packing.bytes, layout)


def fetch_of(
    side: OperandTile, nest: Nest, name: str, thread: tirx.Expr, batch: tirx.Expr, first: tirx.Expr
) -> OperandFetch:
    """Returns the fetch of tiles that begin at one position; arguments are those of :class:`OperandFetch`."""
    if isinstance(side, UnpackedTile):
        return PackedFetch(side, nest, name, thread, batch, first)
    return OperandFetch(side, nest, name, thread, batch, first)
