"""Schedules convolutions and matrix products: operand tiles in shared memory, accumulators in each thread's registers.

    for tile of the result, and slice of the depth, in blockIdx.x:
        sums[thread rows, thread columns] = 0                   # in registers
        for tile of the depth:
            registers ← the next tile of both operands          # from global memory, while the sum runs
            for depth in the tile: sums += left[depth, rows] * right[depth, columns]
            shared memory, other half ← registers
        C = epilogue(sums)                                      # bias, activation, residual: in the write-back

The pixels of a convolution are columns and its window is part of the depth, without a matrix of windows anywhere:
operands are fetched by their own indices, and padding is a condition on the fetch (Chetlur et al., 2014). Where there
are few tiles, the depth is cut into slices whose sums the last block of a tile adds up, see `split_depth.py`.
"""

from __future__ import annotations

from tvm import s_tir, tirx

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.contractions.analysis import SumOfProducts, product_of
from nnefc.passes.schedule.gpu.contractions.operand_tile import tile_of
from nnefc.passes.schedule.gpu.contractions.tiled_launch import ELEMENTS, OperandTiles, TiledLaunch, tiled
from nnefc.passes.schedule.gpu.contractions.tiling import BlockTile, Tiling, choose_tiling
from nnefc.passes.schedule.gpu.contractions.write_back import write
from nnefc.passes.schedule.gpu.nest import load, sequence, store
from nnefc.passes.tir.common.expressions import number
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["ContractionRule"]

_GROUP = 4  # neighbouring rows, and columns, of a thread: one load from shared memory


class ContractionRule:
    """A sum of products with axes that index one operand only, on both sides."""

    def apply(self, kernel: KernelAnalysis, target: GpuTarget) -> s_tir.Schedule | None:
        product = product_of(kernel, target)
        if product is None or product.accumulator not in ELEMENTS or not product.columns.variables:
            return None
        sizes = (product.batch.size, product.rows.size, product.columns.size, product.depth.size)
        tiling = choose_tiling(*sizes, target.gpu, moved_bytes=product.moved_bytes)
        return tiled(product, tiling, _Launch)


class _Launch(TiledLaunch):
    """Each thread multiplies rows and columns of its own, every depth of a tile after the other."""

    def __init__(self, product: SumOfProducts, tiling: Tiling, slices: tirx.Var | None) -> None:
        tile = tiling.tile
        assert isinstance(tile, BlockTile)
        self._tile = tile
        left, right = product.operands
        sides = (
            tile_of(left, tile.rows, tile.depth, tile.threads),
            tile_of(right, tile.columns, tile.depth, tile.threads),
        )
        dtype = product.accumulator
        super().__init__(product, tiling, slices, sides, dtype, tile.thread_rows * tile.thread_columns)
        self._fragments = (
            self._nest.buffer("left_part", tile.thread_rows, dtype, "local"),
            self._nest.buffer("right_part", tile.thread_columns, dtype, "local"),
        )

    def multiply(self, thread: tirx.Expr, half: tirx.Expr) -> tirx.Stmt:
        """Returns the sums of a tile of the depth, from one half of the shared memory."""
        nest, tile = self._nest, self._tile
        positions = self._tile.position(thread)
        sizes = (tile.thread_rows, tile.thread_columns)

        def depth(index: tirx.Expr) -> tirx.Stmt:
            parts = []
            for side, part, position, size, distance in zip(
                self._sides, self._fragments, positions, sizes, (tile.row_distance, tile.column_distance), strict=True
            ):
                parts.append(self._read(side, part, half, index, position, size, distance))
            left, right = self._fragments

            def add(row: tirx.Expr, column: tirx.Expr) -> tirx.Stmt:
                at = row * number(tile.thread_columns) + column
                return store(self._sums, load(self._sums, at) + load(left, row) * load(right, column), at)

            sums = nest.unrolled(
                tile.thread_rows, lambda row: nest.unrolled(tile.thread_columns, lambda column: add(row, column))
            )
            return sequence(*parts, sums)

        return nest.unrolled(tile.depth, depth, "depth")

    def _read(
        self,
        side: OperandTiles,
        part: tirx.Var,
        half: tirx.Expr,
        depth: tirx.Expr,
        position: tirx.Expr,
        size: int,
        distance: int,
    ) -> tirx.Stmt:
        """One depth of the thread's rows or columns, group by group."""
        nest = self._nest
        base = side.base(half) + depth * number(side.tile.stride) + position

        def group(index: tirx.Expr) -> tirx.Stmt:
            def lane(of: tirx.Expr) -> tirx.Stmt:
                at = nest.simplify(base + index * number(distance) + of)
                return store(part, load(side.shared, at), index * number(_GROUP) + of)

            return nest.lanes(_GROUP, lane)

        return nest.unrolled(size // _GROUP, group)

    def write(
        self,
        thread: tirx.Expr,
        batch: tirx.Expr,
        first_row: tirx.Expr,
        first_column: tirx.Expr,
        which: tirx.Expr,
    ) -> tirx.Stmt:
        """Returns the thread's sums to where they belong."""
        nest, tile, product = self._nest, self._tile, self._product
        row_offset, column_offset = tile.position(thread)

        def group(row_group: tirx.Expr, row: tirx.Expr, column_group: tirx.Expr) -> tirx.Stmt:
            own_row = row_group * number(_GROUP) + row
            at = own_row * number(tile.thread_columns) + column_group * number(_GROUP)
            return write(
                nest,
                product,
                batch,
                first_row + row_offset + row_group * number(tile.row_distance) + row,
                first_column + column_offset + column_group * number(tile.column_distance),
                lambda lane: load(self._sums, at + lane),
                self._slices,
                which,
            )

        return nest.unrolled(
            tile.thread_rows // _GROUP,
            lambda a: nest.unrolled(
                _GROUP, lambda i: nest.unrolled(tile.thread_columns // _GROUP, lambda b: group(a, i, b))
            ),
        )
