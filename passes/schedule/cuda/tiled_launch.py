"""The loops around a product by tiles: which tile a block has, and how the next ones are fetched while it multiplies.

for tile of the result, and slice of the depth, in blockIdx.x:
    sums = 0                                                # in registers
    for tile of the depth:
        registers ← the next tile of both operands          # from global memory, while the sum runs
        sums += left tile * right tile                      # from one half of the shared memory
        shared memory, other half ← registers
    result ← sums
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from tvm import s_tir, tirx

from nnefc.passes.schedule.cuda.nest import Nest, buffer, kernel_schedule, sequence, store, synchronize
from nnefc.passes.schedule.cuda.operand_fetch import OperandFetch
from nnefc.passes.schedule.cuda.operand_tile import OperandTile
from nnefc.passes.schedule.cuda.product import Product
from nnefc.passes.schedule.cuda.tiling import Tiling
from nnefc.passes.schedule.cuda.write_back import add_slices
from nnefc.passes.tir.expressions import number

__all__ = ["ITEMS", "TiledLaunch", "tiled"]

ITEMS = ("float32", "int32", "uint32")
"""Types of sums whose tiles, and vectors of four, have the size that the loops are made for."""


def tiled(
    product: Product, tiling: Tiling, launch: Callable[[Product, Tiling, tirx.Var | None], TiledLaunch]
) -> s_tir.Schedule:
    """The product by tiles of the given sizes, each multiplied as `launch` knows."""
    if tiling.slices == 1:
        return kernel_schedule(product.func, product.params, [launch(product, tiling, None).nest()])
    size = tiling.slices * product.batch.size * product.rows.size * product.columns.size
    slices = buffer("slices", size, product.accumulator)
    launches = [launch(product, tiling, slices).nest(), add_slices(product, slices, tiling.slices)]
    return kernel_schedule(product.func, product.params, launches, [slices])


class TiledLaunch(ABC):
    """The launch that multiplies.

    Args:
        sides: how tiles of the left and the right operand are fetched.
        item: the type of what is multiplied.
        sums: how many each thread has.
        slices: where the sums of slices of the depth go; None: through the epilogue to the result.
    """

    def __init__(
        self,
        product: Product,
        tiling: Tiling,
        slices: tirx.Var | None,
        sides: tuple[OperandTile, OperandTile],
        item: str,
        sums: int,
    ) -> None:
        self._product, self._tiling, self._slices = product, tiling, slices
        nest = self._nest = Nest(product.aligned)
        self._sums = nest.buffer("sums", sums, product.accumulator, "local")
        self._count = sums
        self._sides = [
            (
                side,
                nest.buffer(f"{name}_fetched", side.fetched, item, "local"),
                nest.buffer(f"{name}_tile", 2 * side.size, item, "shared"),
            )
            for name, side in zip(("left", "right"), sides, strict=True)
        ]

    def begin(self) -> tirx.Stmt:
        """Registers as they must be before the first tile."""
        zero = tirx.const(0, self._product.accumulator)
        return self._nest.unrolled(self._count, lambda i: store(self._sums, zero, i))

    def convert(self, registers: tirx.Var, count: int) -> tirx.Stmt | None:
        """What happens to elements between global and shared memory."""
        return None

    @abstractmethod
    def multiply(self, thread: tirx.Expr, half: tirx.Expr) -> tirx.Stmt:
        """Add the products of a tile of the depth, from one half of the shared memory."""

    @abstractmethod
    def write(
        self,
        thread: tirx.Expr,
        batch: tirx.Expr,
        first_row: tirx.Expr,
        first_column: tirx.Expr,
        which: tirx.Expr,
    ) -> tirx.Stmt:
        """The thread's sums to where they belong: the tile begins at a row and a column; the slice is `which`."""

    def nest(self) -> tirx.Stmt:
        """The loops."""
        return self._nest.launch(self._tiling.blocks, self._tiling.tile.threads, self._block)

    def _block(self, block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        nest, tile, tiling = self._nest, self._tiling.tile, self._tiling
        row_tile = tirx.floormod(block, number(tiling.row_tiles))
        rest = tirx.floordiv(block, number(tiling.row_tiles))
        column_tile = tirx.floormod(rest, number(tiling.column_tiles))
        rest = tirx.floordiv(rest, number(tiling.column_tiles))
        which, batch = tirx.floormod(rest, number(tiling.slices)), tirx.floordiv(rest, number(tiling.slices))
        first_row, first_column = row_tile * number(tile.rows), column_tile * number(tile.columns)
        first_tile = which * number(tiling.tiles_of_slice)

        operands = [
            (OperandFetch(side, nest, name, thread, batch, first), registers)
            for name, (side, registers, _), first in zip(
                ("left", "right"), self._sides, (first_row, first_column), strict=True
            )
        ]
        begin = [operand.begin() for operand, _ in operands]

        def fetch(step: tirx.Expr) -> list[tirx.Stmt]:
            tiles = tiling.slices * tiling.tiles_of_slice
            return [operand.fetch(registers, first_tile + step, tiles) for operand, registers in operands]

        def put(half: tirx.Expr) -> list[tirx.Stmt]:
            return [
                sequence(
                    self.convert(registers, side.fetched),
                    side.put(nest, thread, registers, shared, half * number(side.size)),
                )
                for side, registers, shared in self._sides
            ]

        def step(index: tirx.Expr) -> tirx.Stmt:
            more = index + number(1) < number(tiling.tiles_of_slice)
            half = tirx.floormod(index, number(2))
            return sequence(
                tirx.IfThenElse(more, sequence(*fetch(index + number(1))), None),
                self.multiply(thread, half),
                tirx.IfThenElse(more, sequence(*put(number(1) - half)), None),
                synchronize(),
            )

        if tiling.tiles_of_slice == 1:
            body = [*fetch(number(0)), *put(number(0)), synchronize(), self.multiply(thread, number(0))]
        else:
            body = [*fetch(number(0)), *put(number(0)), synchronize(), nest.rolled(tiling.tiles_of_slice, step, "step")]
        return sequence(*begin, self.begin(), *body, self.write(thread, batch, first_row, first_column, which))
