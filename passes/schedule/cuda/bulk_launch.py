"""Schedules products of warpgroups whose operands one thread copies, box by box, while warpgroups multiply.

The last warp of a block is the producer, the others are consumers; barriers in shared memory order them, two for each
stage: `full` when a tile of the depth is there, `empty` when all warps of consumers have multiplied it.

    producer, one thread                            consumers, by warpgroups
    for tile of the depth:                          for tile of the depth:
        wait for `empty` of the tile's stage            wait for `full` of the tile's stage
        arrive at `full`, which expects its bytes       begin its products
        begin to copy its boxes, to `full`              wait for the products of the tile before
                                                        arrive at `empty` of that tile's stage
                                                    wait for the products, write the results

In the first round all stages are empty: the producer waits for the phase before the first one (see `bulk_copies.py`).
Where consumers need more registers than an even share, the producer is a warpgroup of which one thread copies: all its
threads give registers back, which the consumers take. Convolutions have rectangles of pixels (`pixel_boxes.py`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm_ffi
from tvm import tirx

from nnefc.passes.schedule.cuda.bulk_copies import (
    BoxedOperand,
    boxed,
    copy_box,
    expect_bytes,
    initialize_barrier,
    publish_barriers,
    release_tile,
    set_registers,
    wait_for_tile,
)
from nnefc.passes.schedule.cuda.filter_boxes import filters_of
from nnefc.passes.schedule.cuda.pixel_boxes import Pixels, Rectangles
from nnefc.passes.schedule.cuda.swizzled_tile import RowTile, SwizzledTile
from nnefc.passes.schedule.cuda.tensor_launch import FLOATS, as_multiplied
from nnefc.passes.schedule.cuda.warp_tiles import BulkTile
from nnefc.passes.schedule.cuda.warpgroup_launch import BrainLaunch, ByteLaunch, WarpgroupLaunch
from nnefc.passes.schedule.cuda.warpgroup_matrices import wait_for_products
from nnefc.passes.schedule.gpu.contractions.analysis import Factor, SumOfProducts
from nnefc.passes.schedule.gpu.contractions.operand_tile import OperandTile
from nnefc.passes.schedule.gpu.contractions.tiled_launch import OperandTiles
from nnefc.passes.schedule.gpu.contractions.tiling import Tiling
from nnefc.passes.schedule.gpu.nest import load, sequence, synchronize
from nnefc.passes.tir.common.expressions import number
from nnefc.support.element_types import EIGHT_BITS
from nnefc.targets.machine.cuda.capabilities import MAX_BOX
from nnefc.targets.machine.gpu.description import LOAD_BYTES, WARP

__all__ = ["BULK_LAUNCHES", "BulkLaunch", "are_boxed", "are_boxes_of_filters", "pixels_of"]


def are_boxed(product: SumOfProducts) -> bool:
    """Whether bulk copies can fetch both operands; all but 16-bit floats lie along the depth."""
    boxes = [boxed(_stored(operand)) for operand in product.operands]
    return all(box is not None and _is_fetched(box) for box in boxes)


def pixels_of(product: SumOfProducts) -> Pixels | None:
    """Returns the pixels of a convolution that bulk copies can fetch, and its filters too; None for other products."""
    filters = _stored(product.operands[1])
    box = boxed(filters)
    is_fetched = filters_of(filters) is not None if box is None else _is_fetched(box)
    return Pixels.of(product) if is_fetched else None


def are_boxes_of_filters(product: SumOfProducts, tile: BulkTile) -> bool:
    """Whether a tile of a convolution's filters is whole boxes, where these have vectors of the depth."""
    vector = LOAD_BYTES // tile.element_bytes
    return boxed(_stored(product.operands[1])) is not None or tile.fetched_columns * vector % MAX_BOX == 0


def _is_fetched(box: BoxedOperand) -> bool:
    return box.along_depth or str(box.source.dtype) in FLOATS


def _stored(operand: Factor) -> Factor:
    return as_multiplied(operand, (*FLOATS, *EIGHT_BITS)) or operand


class BulkLaunch(WarpgroupLaunch):
    """Products of float16."""

    def __init__(
        self, product: SumOfProducts, tiling: Tiling, slices: tirx.Var | None, rectangles: Rectangles | None = None
    ) -> None:
        assert tiling.slices == 1, "threads of all warps would have to meet to add slices up"
        self._rectangles = rectangles
        super().__init__(product, tiling, slices)
        assert isinstance(tiling.tile, BulkTile)
        self._registers = tiling.tile.registers_by_role
        self._barriers = self._nest.buffer("barriers", 2 * self._stages, "uint64", "shared")

    def _side(self, operand: Factor, positions: int) -> OperandTile:
        tile, stored = self._tile, _stored(operand)
        if self._rectangles is not None and operand.positions is self._rectangles.product.rows:
            return self._rectangles.tile(stored, tile.depth, tile.threads)
        lanes = LOAD_BYTES // tile.element_bytes
        box = boxed(stored)
        if box is None:
            return RowTile(stored, positions, tile.depth, lanes, True, tile.threads, 0, lanes)
        return SwizzledTile(stored, positions, tile.depth, lanes, box.along_depth, tile.threads, 0)

    def _block(self, block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        nest, tile = self._nest, self._tile
        position = self._position(block)
        consumer = nest.variable("consumer", tile.threads)
        end = self.write(consumer, position.batch, position.first_row, position.first_column, position.which)
        consume = tvm_ffi.structural_map(
            sequence(self.begin(), *self._consume(consumer), end),
            (tirx.Var, lambda var: thread if var.same_as(consumer) else var),
        )
        at = (position.first_row, position.first_column)
        produce = self._produce(position.batch, *at)
        copying = tirx.IfThenElse(tirx.EQ(thread, number(tile.threads)), produce, None)
        if self._registers is not None:
            of_producer, of_consumers = self._registers
            copying = sequence(set_registers(of_producer, rises=False), copying)
            consume = sequence(set_registers(of_consumers, rises=True), consume)
        roles = tirx.IfThenElse(thread < number(tile.threads), consume, copying)
        return sequence(self._initialize(thread), self._meet(), roles, self._finish())

    def _meet(self) -> tirx.Stmt:
        """Returns a barrier of all threads that share operands."""
        return synchronize()

    def _initialize(self, thread: tirx.Expr) -> tirx.Stmt:
        arrivals = self._arrivals()
        each = self._nest.unrolled(
            self._stages,
            lambda stage: sequence(
                initialize_barrier(self._full(stage), number(1)), initialize_barrier(self._empty(stage), arrivals)
            ),
        )
        return tirx.IfThenElse(tirx.EQ(thread, number(0)), sequence(each, publish_barriers()), None)

    def _arrivals(self) -> tirx.Expr:
        """Returns the arrivals that give a stage back: one of each warp of consumers."""
        return number(self._tile.threads // WARP)

    def _finish(self) -> tirx.Stmt | None:
        """Returns what all threads do when they have written the results."""
        return None

    def _consume(self, thread: tirx.Expr) -> list[tirx.Stmt]:
        nest, tiles = self._nest, self._tiling.tiles_of_slice

        def step(index: tirx.Expr) -> tirx.Stmt:
            stage, before = self._stage(index), self._stage(index + number(self._stages - 1))
            release = (
                None if tiles == 1 else tirx.IfThenElse(index > number(0), release_tile(self._empty(before)), None)
            )
            return sequence(
                wait_for_tile(self._full(stage), self._parity(index)),
                self.multiply(thread, stage),
                wait_for_products(1, self._sums, self._count),
                release,
            )

        return [nest.rolled(tiles, step, "step"), wait_for_products(0, self._sums, self._count)]

    def _produce(self, batch: tirx.Expr, row: tirx.Expr, column: tirx.Expr) -> tirx.Stmt:
        """Copies the tiles of the depth, from rows and columns on."""
        at = (row, column)
        tiles = self._tiling.tiles_of_slice
        return self._nest.rolled(tiles, lambda step: self._copy_step(batch, at, step, step), "step")

    def _copy_step(
        self, batch: tirx.Expr, first: tuple[tirx.Expr, tirx.Expr], step: tirx.Expr, index: tirx.Expr
    ) -> tirx.Stmt:
        """Copies a tile of the depth, the number of which among all that are copied is `index`."""
        tile, stage = self._tile, self._stage(index)
        depth = step * number(tile.depth)
        left, right = ((batch, position, depth) for position in first)
        copies = [
            (self._copy_tile if self._rectangles is None else self._copy_pixels)(self._sides[0], left, stage),
            (self._copy_filters if isinstance(self._sides[1].tile, RowTile) else self._copy_tile)(
                self._sides[1], right, stage
            ),
        ]
        return sequence(
            wait_for_tile(self._empty(stage), number(1) - self._parity(index)),
            self._expect(self._full(stage), tile.step_bytes),
            *copies,
        )

    def _expect(self, barrier: tirx.Expr, count: int) -> tirx.Stmt:
        """Lets the phase of a barrier wait for the bytes of a tile."""
        return expect_bytes(barrier, count)

    def _copy_tile(self, side: OperandTiles, at: tuple[tirx.Expr, tirx.Expr, tirx.Expr], stage: tirx.Expr) -> tirx.Stmt:
        """Begins the copies of a tile: one along depths, along positions one for each group of a row's length."""
        nest, tile, box = self._nest, side.tile, boxed(side.tile.operand)
        assert isinstance(tile, SwizzledTile) and box is not None
        batch, position, depth = at
        length = tile.row_vectors * tile.lanes
        groups = 1 if box.along_depth else tile.positions // length
        size = tile.size // groups

        def one(group: tirx.Expr) -> tirx.Stmt:
            across = position + group * number(length)
            near, far = (depth, position) if box.along_depth else (across, depth)
            return self._copy_part(side, stage, group, size, box.map_of(tile), box.coordinates(near, far, batch))

        return nest.unrolled(groups, one, "group")

    def _copy_pixels(
        self, side: OperandTiles, at: tuple[tirx.Expr, tirx.Expr, tirx.Expr], stage: tirx.Expr
    ) -> tirx.Stmt:
        """Begins the copies of a tile of pixels: one for the blocks of channels at each tap of the window."""
        nest, tile, boxes = self._nest, side.tile, self._rectangles
        assert boxes is not None and isinstance(tile, RowTile)
        batch, position, depth = at
        of_box, blocks = boxes.blocks(tile.depths), tile.depths // tile.row_depths
        rectangle = nest.simplify(tirx.floordiv(position, number(tile.positions)))

        def one(group: tirx.Expr) -> tirx.Stmt:
            block = nest.simplify(tirx.floordiv(depth, number(tile.row_depths))) + group * number(of_box)
            coordinates = boxes.coordinates(nest, batch, rectangle, block, tile.depths)
            size = of_box * tile.row_depths * tile.positions
            return self._copy_part(side, stage, group, size, boxes.map_of(tile.depths), coordinates)

        return nest.unrolled(blocks // of_box, one, "group")

    def _copy_filters(
        self, side: OperandTiles, at: tuple[tirx.Expr, tirx.Expr, tirx.Expr], stage: tirx.Expr
    ) -> tirx.Stmt:
        """Begins the copy of a tile of filters."""
        tile, filters = side.tile, filters_of(side.tile.operand)
        assert isinstance(tile, RowTile) and filters is not None
        batch, position, depth = at
        coordinates = [self._nest.simplify(part) for part in filters.coordinates(position, depth, batch)]
        return self._copy_part(side, stage, number(0), tile.size, filters.map_of(tile), coordinates)

    def _copy_part(
        self,
        side: OperandTiles,
        stage: tirx.Expr,
        part: tirx.Expr,
        size: int,
        tensor_map: tirx.Expr,
        at: Sequence[tirx.Expr],
    ) -> tirx.Stmt:
        """Begins to copy a box to a part of a tile, of so many elements."""
        begin = self._nest.simplify(side.base(stage) + part * number(size))
        first, last = (tirx.address_of(load(side.shared, begin + number(end))) for end in (0, size - 1))
        return copy_box((first, last), self._full(stage), tensor_map, at, self._tile.blocks_of_cluster)

    def _stage(self, step: tirx.Expr) -> tirx.Expr:
        return self._nest.simplify(tirx.floormod(step, number(self._stages)))

    def _parity(self, step: tirx.Expr) -> tirx.Expr:
        return self._nest.simplify(tirx.floormod(tirx.floordiv(step, number(self._stages)), number(2)))

    def _full(self, stage: tirx.Expr) -> tirx.Expr:
        return tirx.address_of(load(self._barriers, stage))

    def _empty(self, stage: tirx.Expr) -> tirx.Expr:
        return tirx.address_of(load(self._barriers, stage + number(self._stages)))


class _BulkBrainLaunch(BulkLaunch, BrainLaunch):
    """The same with bfloat16."""


class _BulkByteLaunch(BulkLaunch, ByteLaunch):
    """The same with bytes."""


class _BulkSingleLaunch(BulkLaunch):
    """The same with single precision, which copies round to TF32; operands lie along depths."""

    _element = "float32"


BULK_LAUNCHES: Mapping[str, type[BulkLaunch]] = {
    "float16": BulkLaunch,
    "bfloat16": _BulkBrainLaunch,
    "int8": _BulkByteLaunch,
    "float32": _BulkSingleLaunch,
}
"""By the type of the operands in shared memory."""
