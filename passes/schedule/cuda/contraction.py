"""Convolutions and matrix products: tiles of the operands in shared memory, a tile of sums in each thread's registers.

    for tile of the result, and slice of the depth, in blockIdx.x:
        sums[thread rows, thread columns] = 0                   # in registers
        for tile of the depth:
            registers ← the next tile of both operands          # from global memory, while the sum runs
            for depth in the tile: sums += left[depth, rows] * right[depth, columns]
            shared memory, other half ← registers
        C = epilogue(sums)                                      # bias, activation, residual: in the write-back

The pixels of a convolution are columns and its window is part of the depth, without a matrix of windows anywhere:
operands are fetched by their own indices, and padding is a condition on the fetch (Chetlur et al., 2014). Where there
are few tiles, the depth is cut into slices whose sums a second launch adds up.
"""

from __future__ import annotations

from tvm import s_tir, tirx

from nnefc.passes.schedule.cuda.expressions import number
from nnefc.passes.schedule.cuda.nest import Nest, buffer, kernel_schedule, load, sequence, store, synchronize
from nnefc.passes.schedule.cuda.operand_tile import OperandTile, tile_of
from nnefc.passes.schedule.cuda.product import Product, product_of
from nnefc.passes.schedule.cuda.tiling import Tiling, choose_tiling
from nnefc.passes.schedule.cuda.write_back import add_slices, write
from nnefc.targets.cuda_target import CudaTarget

__all__ = ["ContractionRule"]

_GROUP = 4  # neighbouring rows, and columns, of a thread: one load from shared memory


class ContractionRule:
    """A sum of products with axes that index one operand only, on both sides."""

    def apply(self, func: tirx.PrimFunc, target: CudaTarget) -> s_tir.Schedule | None:
        product = product_of(func, target)
        if product is None or not product.columns.variables:
            return None
        tiling = choose_tiling(product.batch.extent, product.rows.extent, product.columns.extent, product.depth.extent)
        return tiled(product, tiling)


def tiled(product: Product, tiling: Tiling) -> s_tir.Schedule:
    """The product by tiles of the given sizes."""
    if tiling.slices == 1:
        launch = _Launch(product, tiling).nest(None)
        return kernel_schedule(product.func, product.params, [launch])
    size = tiling.slices * product.batch.extent * product.rows.extent * product.columns.extent
    slices = buffer("slices", size, product.accumulator)
    launches = [_Launch(product, tiling).nest(slices), add_slices(product, slices, tiling.slices)]
    return kernel_schedule(product.func, product.params, launches, [slices])


class _Launch:
    """The launch that multiplies."""

    def __init__(self, product: Product, tiling: Tiling) -> None:
        tile = tiling.tile
        self._product, self._tiling, self._tile = product, tiling, tile
        left, right = product.operands
        self._left = tile_of(left, tile.rows, tile.depth, tile.threads)
        self._right = tile_of(right, tile.columns, tile.depth, tile.threads)
        self._nest = Nest(product.aligned)

    def nest(self, slices: tirx.Var | None) -> tirx.Stmt:
        """The loops; sums go to `slices`, if given, else through the epilogue to the result."""
        nest, dtype = self._nest, self._product.accumulator
        self._sums = nest.buffer("sums", self._tile.thread_rows * self._tile.thread_columns, dtype, "local")
        self._sides = [
            (
                side,
                nest.buffer(f"{name}_fetched", side.fetched, dtype, "local"),
                nest.buffer(f"{name}_tile", 2 * side.size, dtype, "shared"),
            )
            for name, side in (("left", self._left), ("right", self._right))
        ]
        self._fragments = (
            nest.buffer("left_part", self._tile.thread_rows, dtype, "local"),
            nest.buffer("right_part", self._tile.thread_columns, dtype, "local"),
        )
        return nest.launch(self._tiling.blocks, self._tile.threads, lambda b, t: self._block(b, t, slices))

    def _block(self, block: tirx.Expr, thread: tirx.Expr, slices: tirx.Var | None) -> tirx.Stmt:
        nest, tile, tiling = self._nest, self._tile, self._tiling
        row_tile = tirx.floormod(block, number(tiling.row_tiles))
        rest = tirx.floordiv(block, number(tiling.row_tiles))
        column_tile = tirx.floormod(rest, number(tiling.column_tiles))
        rest = tirx.floordiv(rest, number(tiling.column_tiles))
        which, batch = tirx.floormod(rest, number(tiling.slices)), tirx.floordiv(rest, number(tiling.slices))
        first_row, first_column = row_tile * number(tile.rows), column_tile * number(tile.columns)
        first_tile = which * number(tiling.tiles_of_slice)

        begin, located = zip(
            *(
                side.locate(nest, name, thread, batch, first)
                for name, (side, _, _), first in zip(
                    ("left", "right"), self._sides, (first_row, first_column), strict=True
                )
            ),
            strict=True,
        )

        def fetch(step: tirx.Expr) -> list[tirx.Stmt]:
            return [
                side.fetch(nest, thread, registers, where, first_tile + step, tiling.slices * tiling.tiles_of_slice)
                for (side, registers, _), where in zip(self._sides, located, strict=True)
            ]

        def put(half: tirx.Expr) -> list[tirx.Stmt]:
            return [
                side.put(nest, thread, registers, shared, half * number(side.size))
                for side, registers, shared in self._sides
            ]

        def step(index: tirx.Expr) -> tirx.Stmt:
            more = index + number(1) < number(tiling.tiles_of_slice)
            half = tirx.floormod(index, number(2))
            return sequence(
                tirx.IfThenElse(more, sequence(*fetch(index + number(1))), None),
                self._multiply(thread, half),
                tirx.IfThenElse(more, sequence(*put(number(1) - half)), None),
                synchronize(),
            )

        zero = tirx.const(0, self._product.accumulator)
        start = nest.unrolled(tile.thread_rows * tile.thread_columns, lambda i: store(self._sums, zero, i))
        if tiling.tiles_of_slice == 1:
            body = [*fetch(number(0)), *put(number(0)), synchronize(), self._multiply(thread, number(0))]
        else:
            body = [*fetch(number(0)), *put(number(0)), synchronize(), nest.loop(tiling.tiles_of_slice, step, "step")]
        return sequence(*begin, start, *body, self._write(thread, batch, first_row, first_column, which, slices))

    def _multiply(self, thread: tirx.Expr, half: tirx.Expr) -> tirx.Stmt:
        """The sums of a tile of the depth, from one half of the shared memory."""
        nest, tile = self._nest, self._tile
        places = self._tile.place(thread)
        sizes = (tile.thread_rows, tile.thread_columns)

        def depth(index: tirx.Expr) -> tirx.Stmt:
            parts = []
            for (side, _, shared), part, place, size, distance in zip(
                self._sides, self._fragments, places, sizes, (tile.row_distance, tile.column_distance), strict=True
            ):
                parts.append(self._read(side, shared, part, half, index, place, size, distance))
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
        side: OperandTile,
        shared: tirx.Var,
        part: tirx.Var,
        half: tirx.Expr,
        depth: tirx.Expr,
        place: tirx.Expr,
        size: int,
        distance: int,
    ) -> tirx.Stmt:
        """One depth of the thread's rows or columns, group by group."""
        nest = self._nest
        base = half * number(side.size) + depth * number(side.stride) + place

        def group(index: tirx.Expr) -> tirx.Stmt:
            def lane(of: tirx.Expr) -> tirx.Stmt:
                at = nest.simplify(base + index * number(distance) + of)
                return store(part, load(shared, at), index * number(_GROUP) + of)

            return nest.lanes(_GROUP, lane)

        return nest.unrolled(size // _GROUP, group)

    def _write(
        self,
        thread: tirx.Expr,
        batch: tirx.Expr,
        first_row: tirx.Expr,
        first_column: tirx.Expr,
        which: tirx.Expr,
        slices: tirx.Var | None,
    ) -> tirx.Stmt:
        """The thread's sums to where they belong."""
        nest, tile, product = self._nest, self._tile, self._product
        row_place, column_place = tile.place(thread)

        def group(row_group: tirx.Expr, row: tirx.Expr, column_group: tirx.Expr) -> tirx.Stmt:
            own_row = row_group * number(_GROUP) + row
            at = own_row * number(tile.thread_columns) + column_group * number(_GROUP)
            return write(
                nest,
                product,
                batch,
                first_row + row_place + row_group * number(tile.row_distance) + row,
                first_column + column_place + column_group * number(tile.column_distance),
                lambda lane: load(self._sums, at + lane),
                slices,
                which,
            )

        return nest.unrolled(
            tile.thread_rows // _GROUP,
            lambda a: nest.unrolled(
                _GROUP, lambda i: nest.unrolled(tile.thread_columns // _GROUP, lambda b: group(a, i, b))
            ),
        )
