"""Builds the loops of a tiled product: the tile of each block, and the prefetch of tiles while it multiplies.

for tile of the result, and slice of the depth, in blockIdx.x:
    sums = 0                                                # in registers
    for tile of the depth:
        registers ← the next tile of both operands          # from global memory, while the sum runs
        sums += left tile * right tile                      # from one half of the shared memory
        shared memory, other half ← registers
    result ← sums

Where both operands can be copied as they are, several tiles are on their way at once, past the registers:

    for tile of the depth:
        wait for its copies, and for the other threads
        begin to copy the tile after those that are on their way to where the last one was
        sums += left tile * right tile
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from tvm import s_tir, tirx

from nnefc.ir.gpu_operators import commit_copies, wait_for_copies
from nnefc.passes.schedule.gpu.contractions.analysis import SumOfProducts
from nnefc.passes.schedule.gpu.contractions.operand_fetch import OperandFetch
from nnefc.passes.schedule.gpu.contractions.operand_tile import OperandTile, UnpackedTile
from nnefc.passes.schedule.gpu.contractions.packed_fetch import fetch_of
from nnefc.passes.schedule.gpu.contractions.split_depth import DepthSlices
from nnefc.passes.schedule.gpu.contractions.tiling import Tiling
from nnefc.passes.schedule.gpu.contractions.write_back import add_slices
from nnefc.passes.schedule.gpu.nest import Nest, buffer, kernel_schedule, sequence, store, synchronize
from nnefc.passes.tir.common.expressions import number
from nnefc.symbolic.dims import is_known

__all__ = ["ELEMENTS", "BlockPosition", "OperandTiles", "TiledLaunch", "tiled"]

ELEMENTS = ("float32", "int32", "uint32")
"""Types of sums whose tiles, and vectors of four, have the size that the loops are made for."""


def tiled(
    product: SumOfProducts, tiling: Tiling, launch: Callable[[SumOfProducts, Tiling, tirx.Var | None], TiledLaunch]
) -> s_tir.Schedule:
    """Returns the product by tiles of the given sizes, each multiplied as `launch` knows.

    The last block of a tile adds up the slices of the depth; a second launch does where the number of tiles is dynamic.
    """
    if tiling.slices == 1:
        return kernel_schedule(product.func, product.params, [launch(product, tiling, None).nest()])
    if is_known(tiling.tiles):
        joined = launch(product, tiling, None)
        depth = joined.with_joined_slices()
        return kernel_schedule(product.func, product.params, [joined.nest()], [depth.parts], depth.arrived)
    size = tiling.slices * product.batch.size * product.rows.size * product.columns.size
    slices = buffer("slices", size, product.accumulator)
    launches = [launch(product, tiling, slices).nest(), add_slices(product, slices, tiling.slices)]
    return kernel_schedule(product.func, product.params, launches, [slices])


@dataclass(frozen=True)
class BlockPosition:
    """Which tile of the result a block computes, and from which slice of the depth."""

    batch: tirx.Expr
    row_tile: tirx.Expr
    column_tile: tirx.Expr
    first_row: tirx.Expr
    first_column: tirx.Expr
    which: tirx.Expr


@dataclass(frozen=True)
class OperandTiles:
    """One operand's tiles in a block.

    Attributes:
        fetched: how a tile is distributed among the threads that fetch it.
        tile: how it lies in shared memory.
        shared: where they lie, several one after the other from `first` on.
        registers: what a thread has on its way there; None if nothing.
    """

    fetched: OperandTile
    tile: OperandTile
    shared: tirx.Var
    first: int
    registers: tirx.Var | None

    def base(self, stage: tirx.Expr) -> tirx.Expr:
        """Returns where the tile with a number begins."""
        return stage * number(self.tile.size) + number(self.first)


class TiledLaunch(ABC):
    """The launch that multiplies.

    Attributes:
        multiplied: copied tiles that are in use at once, besides those on their way.

    Args:
        sides: how tiles of the left and the right operand are fetched.
        element: the type of what is multiplied.
        sums: how many each thread has.
        slices: where the sums of slices of the depth go; None: through the epilogue to the result.
    """

    multiplied: ClassVar[int] = 1

    def __init__(
        self,
        product: SumOfProducts,
        tiling: Tiling,
        slices: tirx.Var | None,
        sides: tuple[OperandTile, OperandTile],
        element: str,
        sums: int,
    ) -> None:
        self._product, self._tiling, self._slices = product, tiling, slices
        nest = self._nest = Nest(product.aligned)
        self._sums = nest.buffer("sums", sums, product.accumulator, "local")
        self._count = sums
        self._depth_slices: DepthSlices | None = None
        self._copies = tiling.tile.is_copied
        tiles, ahead = tiling.tiles_of_slice, tiling.tile.ahead
        self._ahead = min(ahead, tiles) if is_known(tiles) else ahead
        self._stages = min(self.multiplied + ahead, tiles) if is_known(tiles) else self.multiplied + ahead
        self._sides = self._in_one(sides, element) if self._copies else self._through_registers(sides, element)

    def _through_registers(self, sides: tuple[OperandTile, OperandTile], element: str) -> list[OperandTiles]:
        nest = self._nest
        return [
            OperandTiles(
                side,
                side.stored,
                nest.buffer(f"{name}_tile", 2 * side.stored.size, element, "shared"),
                0,
                self._registers_of(name, side, element),
            )
            for name, side in zip(("left", "right"), sides, strict=True)
        ]

    def _in_one(self, sides: tuple[OperandTile, OperandTile], element: str) -> list[OperandTiles]:
        """Both in one buffer: blocks have more shared memory than 48 KiB only in one piece."""
        size_of_left, size_of_right = (self._stages * side.stored.size for side in sides)
        shared = self._nest.buffer("tiles", size_of_left + size_of_right, element, "shared.dyn")
        return [
            OperandTiles(
                side,
                side.stored,
                shared,
                first,
                self._registers_of(name, side, element) if isinstance(side, UnpackedTile) else None,
            )
            for name, side, first in zip(("left", "right"), sides, (0, size_of_left), strict=True)
        ]

    def _registers_of(self, name: str, side: OperandTile, element: str) -> tirx.Var:
        return self._nest.buffer(f"{name}_fetched", side.fetched, element, "local")

    def begin(self) -> tirx.Stmt:
        """Registers as they must be before the first tile."""
        zero = tirx.const(0, self._product.accumulator)
        return self._nest.unrolled(self._count, lambda i: store(self._sums, zero, i))

    def convert(self, registers: tirx.Var, count: int) -> tirx.Stmt | None:
        """Converts elements between global and shared memory."""
        return None

    @abstractmethod
    def multiply(self, thread: tirx.Expr, half: tirx.Expr) -> tirx.Stmt:
        """Adds the products of a tile of the depth, from one half of the shared memory."""

    @abstractmethod
    def write(
        self,
        thread: tirx.Expr,
        batch: tirx.Expr,
        first_row: tirx.Expr,
        first_column: tirx.Expr,
        which: tirx.Expr,
    ) -> tirx.Stmt:
        """Stores the thread's accumulators: the tile begins at a row and a column; the slice is `which`."""

    def with_joined_slices(self) -> DepthSlices:
        """Lets the last block of a tile add up the slices of the depth."""
        tiling = self._tiling
        dtype = self._product.accumulator
        self._depth_slices = DepthSlices.of(tiling.tiles, tiling.slices, tiling.tile.threads, self._count, dtype)
        return self._depth_slices

    def nest(self) -> tirx.Stmt:
        """Returns the loops."""
        return self._nest.launch(self._tiling.blocks, self._tiling.tile.launched_threads, self._block)

    def _position(self, block: tirx.Expr) -> BlockPosition:
        tile, tiling = self._tiling.tile, self._tiling
        row_tile = tirx.floormod(block, number(tiling.row_tiles))
        tail = tirx.floordiv(block, number(tiling.row_tiles))
        column_tile = tirx.floormod(tail, number(tiling.column_tiles))
        tail = tirx.floordiv(tail, number(tiling.column_tiles))
        which, batch = tirx.floormod(tail, number(tiling.slices)), tirx.floordiv(tail, number(tiling.slices))
        first_row, first_column = row_tile * number(tile.rows), column_tile * number(tile.columns)
        return BlockPosition(batch, row_tile, column_tile, first_row, first_column, which)

    def _block(self, block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        nest, tiling, at = self._nest, self._tiling, self._position(block)
        fetches = [
            fetch_of(side.fetched, nest, name, thread, at.batch, first)
            for name, side, first in zip(("left", "right"), self._sides, (at.first_row, at.first_column), strict=True)
        ]
        begin = [fetch.begin() for fetch in fetches]
        loops = self._loops_by_copies if self._copies else self._loops_by_registers
        body = loops(thread, fetches, at.which * number(tiling.tiles_of_slice))
        end = self.write(thread, at.batch, at.first_row, at.first_column, at.which)
        if self._depth_slices is not None:
            own = (at.batch * number(tiling.column_tiles) + at.column_tile) * number(tiling.row_tiles) + at.row_tile
            end = self._depth_slices.join(nest, self._sums, nest.simplify(own), at.which, thread, end)
        return sequence(*begin, self.begin(), *body, end)

    def _loops_by_registers(
        self, thread: tirx.Expr, fetches: Sequence[OperandFetch], first_tile: tirx.Expr
    ) -> list[tirx.Stmt]:
        nest, tiling = self._nest, self._tiling

        def step(index: tirx.Expr) -> tirx.Stmt:
            more = index + number(1) < number(tiling.tiles_of_slice)
            half = tirx.floormod(index, number(2))
            following = first_tile + (index + number(1))
            return sequence(
                tirx.IfThenElse(more, sequence(*self._fetch(fetches, following)), None),
                self.multiply(thread, half),
                tirx.IfThenElse(more, sequence(*self._put(fetches, following, number(1) - half)), None),
                synchronize(),
            )

        first = [*self._fetch(fetches, first_tile), *self._put(fetches, first_tile, number(0)), synchronize()]
        if tiling.tiles_of_slice == 1:
            return [*first, self.multiply(thread, number(0))]
        return [*first, nest.rolled(tiling.tiles_of_slice, step, "step")]

    def _fetch(self, fetches: Sequence[OperandFetch], tile: tirx.Expr) -> list[tirx.Stmt]:
        """Fetches a tile of the depth into registers, of the operands that take this way."""
        tiles = self._tiling.slices * self._tiling.tiles_of_slice
        return [
            operand.fetch(side.registers, tile, tiles)
            for operand, side in zip(fetches, self._sides, strict=True)
            if side.registers is not None
        ]

    def _put(self, fetches: Sequence[OperandFetch], tile: tirx.Expr, stage: tirx.Expr) -> list[tirx.Stmt]:
        """Stores the tile that was fetched last to a stage of shared memory."""
        tiles = self._tiling.slices * self._tiling.tiles_of_slice
        return [
            operand.put(
                side.registers,
                side.shared,
                side.base(stage),
                tile,
                tiles,
                self.convert(side.registers, side.fetched.fetched),
            )
            for operand, side in zip(fetches, self._sides, strict=True)
            if side.registers is not None
        ]

    def _loops_by_copies(
        self, thread: tirx.Expr, fetches: Sequence[OperandFetch], first_tile: tirx.Expr
    ) -> list[tirx.Stmt]:
        def step(index: tirx.Expr) -> tirx.Stmt:
            return sequence(
                wait_for_copies(self._ahead - 1),
                synchronize(),
                self._copy(fetches, first_tile, index + number(self._ahead)),
                self.multiply(thread, tirx.floormod(index, number(self._stages))),
            )

        first = [self._copy(fetches, first_tile, number(tile)) for tile in range(self._ahead)]
        return [*first, self._nest.rolled(self._tiling.tiles_of_slice, step, "step")]

    def _copy(self, fetches: Sequence[OperandFetch], first_tile: tirx.Expr, step: tirx.Expr) -> tirx.Stmt:
        """Begins to copy the tile of a step, in a group of copies of its own; the group is empty if no tile is left."""
        nest, tiling = self._nest, self._tiling
        tiles, stage = tiling.slices * tiling.tiles_of_slice, tirx.floormod(step, number(self._stages))
        copies = sequence(
            *(
                operand.copy(side.shared, side.base(stage), first_tile + step, tiles)
                for operand, side in zip(fetches, self._sides, strict=True)
                if side.registers is None
            )
        )
        present = step < number(tiling.tiles_of_slice)
        return sequence(copies if nest.holds(present) else tirx.IfThenElse(present, copies, None), commit_copies())
