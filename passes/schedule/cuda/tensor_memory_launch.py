"""Schedules products whose sums are in tensor memory: one thread begins them, while another one copies tiles.

    producer, one thread                            consumers
    for tile of the depth:                          thread 0: for tile of the depth:
        wait for `empty` of the tile's stage            wait for `full` of the tile's stage
        arrive at `full`, which expects its bytes       begin its products
        begin to copy its boxes, to `full`              let them arrive at `empty` of the stage
                                                    thread 0: let all products arrive at `complete`
                                                    wait for `complete`
                                                    for columns of the tile: load their sums, write the results
                            all threads meet; a warp frees the tensor memory

Sums get to registers a few columns at a time, laid out as those of other tensor cores (`tensor_launch.py`).
"""

from __future__ import annotations

from collections.abc import Mapping

from tvm import tirx

from nnefc.passes.schedule.cuda.bulk_copies import initialize_barrier, wait_for_tile
from nnefc.passes.schedule.cuda.bulk_launch import BulkLaunch
from nnefc.passes.schedule.cuda.pixel_boxes import Rectangles
from nnefc.passes.schedule.cuda.swizzled_tile import SwizzledTile
from nnefc.passes.schedule.cuda.tensor_launch import COLUMNS
from nnefc.passes.schedule.cuda.tensor_memory import (
    LOADED_COLUMNS,
    MemoryProduct,
    allocate_sums,
    arrivals_of_tile,
    begins_products,
    commit_tile,
    free_sums,
    load_sums,
    order_after_wait,
)
from nnefc.passes.schedule.cuda.warp_tiles import TensorMemoryTile
from nnefc.passes.schedule.cuda.warpgroup_launch import BrainLaunch, ByteLaunch
from nnefc.passes.schedule.gpu.contractions.analysis import SumOfProducts
from nnefc.passes.schedule.gpu.contractions.tiling import Tiling
from nnefc.passes.schedule.gpu.nest import load, sequence, store
from nnefc.passes.tir.common.expressions import number
from nnefc.targets.machine.cuda.capabilities import TENSOR_MEMORY_INSTRUCTION, default_gpu
from nnefc.targets.machine.gpu.description import WARP

__all__ = ["TENSOR_MEMORY_LAUNCHES", "TensorMemoryLaunch"]

_DEVICE = default_gpu(TENSOR_MEMORY_INSTRUCTION.oldest)  # later ones have room for as many blocks
_MIN_BLOCKS = "tirx.launch_bounds_min_blocks_per_sm"
"""TVM's attribute for the second number of `__launch_bounds__`. Without it, NVIDIA's compiler spills registers to make
room for more blocks than shared memory has."""


class TensorMemoryLaunch(BulkLaunch):
    """Products of float16."""

    def __init__(
        self, product: SumOfProducts, tiling: Tiling, slices: tirx.Var | None, rectangles: Rectangles | None = None
    ) -> None:
        super().__init__(product, tiling, slices, rectangles)
        assert isinstance(tiling.tile, TensorMemoryTile)
        self._memory_columns = tiling.tile.memory_columns
        nest, part = self._nest, tiling.tile.warp_rows * LOADED_COLUMNS // WARP
        self._complete_barrier = nest.buffer("complete", 1, "uint64", "shared")
        self._allocated = nest.buffer("tensor_memory", 1, "uint32", "shared")
        self._memory = nest.buffer("memory", 1, "uint32", "local")
        # `write` has a part of the sums at once; all of them are in registers where there is no tensor memory.
        self._all_sums, self._sums = self._sums, nest.buffer("part", part, product.accumulator, "local")
        self._columns = LOADED_COLUMNS // COLUMNS

    def begin(self) -> tirx.Stmt:
        """Returns zeros for sums in registers, and the address of those in tensor memory."""
        zero = tirx.const(0, self._product.accumulator)
        zeros = self._nest.unrolled(self._count, lambda i: store(self._all_sums, zero, i))
        return sequence(zeros, store(self._memory, load(self._allocated, number(0)), number(0)))

    def write(
        self, thread: tirx.Expr, batch: tirx.Expr, first_row: tirx.Expr, first_column: tirx.Expr, which: tirx.Expr
    ) -> tirx.Stmt:
        """Loads sums and stores results, some columns after the others."""
        tile = self._tile
        assert isinstance(tile, TensorMemoryTile)

        def addresses(column: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
            lower, upper = (tile.memory_column(at) for at in (column, column + number(LOADED_COLUMNS // 2)))
            return self._address + self._nest.simplify(lower), self._address + self._nest.simplify(upper)

        def some(index: tirx.Expr) -> tirx.Stmt:
            column = index * number(LOADED_COLUMNS)
            write = super(TensorMemoryLaunch, self).write(thread, batch, first_row, first_column + column, which)
            return sequence(load_sums(self._sums, self._all_sums, index, addresses(column)), write)

        return self._nest.unrolled(self._tile.columns // LOADED_COLUMNS, some, "columns")

    def _block(self, block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        resident = number(self._tile.resident_blocks(_DEVICE))
        return tirx.AttrStmt(number(0), _MIN_BLOCKS, resident, super()._block(block, thread))

    def _initialize(self, thread: tirx.Expr) -> tirx.Stmt:
        allocated = tirx.address_of(load(self._allocated, number(0)))
        complete = tirx.IfThenElse(
            tirx.EQ(thread, number(0)), initialize_barrier(self._complete, self._arrivals()), None
        )
        allocate = allocate_sums(allocated, self._memory_columns, self._tile.blocks_of_cluster)
        return sequence(complete, super()._initialize(thread), allocate)

    def _arrivals(self) -> tirx.Expr:
        return arrivals_of_tile(self._tile.threads // WARP)

    def _consume(self, thread: tirx.Expr) -> list[tirx.Stmt]:
        products = sequence(self._multiply(), commit_tile(self._complete, self._tile.blocks_of_cluster))
        return [
            tirx.IfThenElse(begins_products(self._number), products, None),
            wait_for_tile(self._complete, number(0)),
            order_after_wait(),
        ]

    @property
    def _number(self) -> tirx.Expr:
        """Returns the block's number among those that share an instruction."""
        return number(0)

    def _multiply(self) -> tirx.Stmt:
        """Begins the products of all tiles of the depth."""
        return self._multiply_tiles(number(0), number(0))

    def _multiply_tiles(self, before: tirx.Expr, first_sum: tirx.Expr) -> tirx.Stmt:
        """Begins the products of the tiles of the depth that are copied after others.

        Args:
            before: how many others.
            first_sum: where sums begin that are in registers.
        """

        def step(index: tirx.Expr) -> tirx.Stmt:
            copied = index + before
            stage = self._stage(copied)
            return sequence(
                wait_for_tile(self._full(stage), self._parity(copied)),
                order_after_wait(),
                *self._products(stage, index, first_sum),
                commit_tile(self._empty(stage), self._tile.blocks_of_cluster),
            )

        return self._nest.rolled(self._tiling.tiles_of_slice, step, "step")

    def _products(self, stage: tirx.Expr, step: tirx.Expr, first_sum: tirx.Expr) -> list[tirx.Stmt]:
        """Begins the products of a tile of the depth, the first of which are not added to what is in tensor memory."""
        nest, tile = self._nest, self._tile
        left, right = self._sides
        rows, columns = left.tile, right.tile
        assert isinstance(tile, TensorMemoryTile)
        assert isinstance(rows, SwizzledTile) and isinstance(columns, SwizzledTile)

        def one(depth: int, part: range) -> tirx.Stmt:
            offsets = (
                nest.simplify(left.base(stage) + rows.rows_at(number(0), depth)),
                nest.simplify(right.base(stage) + columns.rows_at(number(part.start), depth)),
            )
            follows = step > number(0) if depth == 0 else tirx.const(True, "bool")
            product = MemoryProduct(self._types, tile.blocks_of_cluster, rows, columns, part)
            sums = load(self._all_sums, nest.simplify(first_sum + number(tile.warp_rows * part.start // WARP)))
            memory = self._address + number(part.start * tile.blocks_of_cluster)
            return product.begin(tirx.address_of(sums), memory, left.shared, offsets, follows)

        depths = range(0, tile.depth, self._types.depth)
        return [one(depth, part) for depth in depths for part in tile.parts]

    def _finish(self) -> tirx.Stmt:
        address, blocks = load(self._allocated, number(0)), self._tile.blocks_of_cluster
        return sequence(self._meet(), free_sums(address, self._memory_columns, blocks))

    @property
    def _complete(self) -> tirx.Expr:
        return tirx.address_of(load(self._complete_barrier, number(0)))

    @property
    def _address(self) -> tirx.Expr:
        return load(self._memory, number(0))


class _TensorMemoryBrainLaunch(TensorMemoryLaunch, BrainLaunch):
    """The same with bfloat16."""


class _TensorMemoryByteLaunch(TensorMemoryLaunch, ByteLaunch):
    """The same with bytes or floats of 8 bits."""


class _TensorMemorySingleLaunch(TensorMemoryLaunch):
    """The same with single precision, which copies round to TF32."""

    _element = "float32"


TENSOR_MEMORY_LAUNCHES: Mapping[str, type[BulkLaunch]] = {
    "float16": TensorMemoryLaunch,
    "bfloat16": _TensorMemoryBrainLaunch,
    "int8": _TensorMemoryByteLaunch,
    "float32": _TensorMemorySingleLaunch,
}
"""By the type of the operands in shared memory."""
