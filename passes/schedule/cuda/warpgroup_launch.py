"""Schedules products of 16-bit floats and of bytes for warpgroups: they multiply shared memory while threads go on.

    for tile of the depth:
        wait for its copies, make them visible to tensor cores, wait for the other threads
        begin its products                                      # after those of the tile before
        begin to copy the tile after those that are on their way
        wait for the products of the tile before

A tile is copied to where the one of two steps before was: all warpgroups have waited for its products before they meet.
Threads have accumulators in registers, but no operands; accumulators are complete after the last wait (PTX ISA,
"Asynchronous Warpgroup Level Matrix Multiply-Accumulate Instructions").

An operand that is packed, as matrices that are quantized in blocks are, takes another way: while the products of a tile
run, threads unpack the next tile from registers and store it, swizzled, and then load the bytes of the one after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

from tvm import tirx

from nnefc.ir.gpu_operators import wait_for_copies
from nnefc.passes.schedule.cuda.portable_products import ProductTypes
from nnefc.passes.schedule.cuda.swizzled_tile import SwizzledTile
from nnefc.passes.schedule.cuda.tensor_launch import FLOATS, TensorLaunch, as_multiplied
from nnefc.passes.schedule.cuda.warp_tiles import WarpgroupTile
from nnefc.passes.schedule.cuda.warpgroup_matrices import (
    begin_products,
    commit_products,
    fence_copies,
    multiply_matrices,
    wait_for_products,
)
from nnefc.passes.schedule.gpu.contractions.analysis import Factor, SumOfProducts
from nnefc.passes.schedule.gpu.contractions.operand_fetch import OperandFetch, is_loaded
from nnefc.passes.schedule.gpu.contractions.operand_tile import OperandTile, lanes_along
from nnefc.passes.schedule.gpu.contractions.packed_fetch import unpacked_tile
from nnefc.passes.schedule.gpu.contractions.tiling import Tiling
from nnefc.passes.schedule.gpu.nest import sequence, synchronize
from nnefc.passes.tir.common.expressions import number
from nnefc.support.element_types import EIGHT_BITS
from nnefc.targets.machine.cuda.capabilities import WARPGROUP, WARPGROUP_INSTRUCTION
from nnefc.targets.machine.gpu.description import LOAD_BYTES

__all__ = ["WARPGROUP_LAUNCHES", "BrainLaunch", "ByteLaunch", "WarpgroupLaunch"]


class WarpgroupLaunch(TensorLaunch):
    """Products of float16; operands lie as they are copied, along depths or along positions."""

    _element = "float16"
    multiplied: ClassVar[int] = WarpgroupTile.multiplied

    def __init__(self, product: SumOfProducts, tiling: Tiling, slices: tirx.Var | None) -> None:
        super().__init__(product, tiling, slices)
        left, right = (str(side.tile.operand.value.expr_ty().dtype) for side in self._sides)
        self._types = ProductTypes(left, right, product.accumulator)

    def _side(self, operand: Factor, positions: int) -> OperandTile:
        tile, operand = self._tile, as_multiplied(operand, (*FLOATS, *EIGHT_BITS)) or operand
        lanes = LOAD_BYTES // tile.element_bytes
        if not is_loaded(operand):
            return unpacked_tile(SwizzledTile(operand, positions, tile.depth, lanes, True, tile.threads, 0))
        along_depth = lanes_along(operand, positions, tile.depth, True, lanes) == lanes
        return SwizzledTile(operand, positions, tile.depth, lanes, along_depth, tile.threads, 0)

    def multiply(self, thread: tirx.Expr, half: tirx.Expr) -> tirx.Stmt:
        """Begins the products of a tile of the depth."""
        nest, tile, instruction = self._nest, self._tile, WARPGROUP_INSTRUCTION
        left, right = self._sides
        rows, columns = left.tile, right.tile
        assert isinstance(rows, SwizzledTile) and isinstance(columns, SwizzledTile)
        sums = instruction.rows * tile.columns // WARPGROUP
        warpgroup = tirx.floordiv(thread, number(WARPGROUP))

        def one(row: int, depth: int) -> tirx.Stmt:
            first = warpgroup * number(instruction.rows) + number(row * tile.row_step)
            offsets = (
                nest.simplify(left.base(half) + rows.rows_at(first, depth)),
                nest.simplify(right.base(half) + columns.rows_at(number(0), depth)),
            )
            at = number(row * sums)
            return multiply_matrices(self._sums, at, self._types, tile.columns, left.shared, (rows, columns), offsets)

        depths = range(0, tile.depth, self._types.depth)
        products = [one(row, depth) for depth in depths for row in range(self._rows)]
        return sequence(begin_products((self._sums, self._count)), *products, commit_products())

    def _loops_by_copies(
        self, thread: tirx.Expr, fetches: Sequence[OperandFetch], first_tile: tirx.Expr
    ) -> list[tirx.Stmt]:
        def step(index: tirx.Expr) -> tirx.Stmt:
            return sequence(
                wait_for_copies(self._ahead - 1),
                fence_copies(),
                synchronize(),
                self.multiply(thread, tirx.floormod(index, number(self._stages))),
                self._copy(fetches, first_tile, index + number(self._ahead)),
                *self._unpack(fetches, first_tile, index + number(1)),
                wait_for_products(1, self._sums, self._count),
            )

        first = [self._copy(fetches, first_tile, number(tile)) for tile in range(self._ahead)]
        unpacked = [*self._fetch(fetches, first_tile), *self._unpack(fetches, first_tile, number(0))]
        loop = self._nest.rolled(self._tiling.tiles_of_slice, step, "step")
        return [*first, *unpacked, loop, wait_for_products(0, self._sums, self._count)]

    def _unpack(self, fetches: Sequence[OperandFetch], first_tile: tirx.Expr, step: tirx.Expr) -> list[tirx.Stmt]:
        """Stores the tile of a step from registers, of a packed operand, and loads the bytes of the one after it."""
        following, tiles = step + number(1), number(self._tiling.tiles_of_slice)
        parts = (
            (step, self._put(fetches, first_tile + step, tirx.floormod(step, number(self._stages)))),
            (following, self._fetch(fetches, first_tile + following)),
        )
        return [self._nest.guarded(sequence(*stmts), [at < tiles]) for at, stmts in parts if stmts]


class BrainLaunch(WarpgroupLaunch):
    """The same with bfloat16."""

    _element = "bfloat16"


class ByteLaunch(WarpgroupLaunch):
    """The same with bytes or floats of 8 bits, of one type or of two; operands lie along depths."""

    _element = "int8"


WARPGROUP_LAUNCHES: Mapping[str, type[WarpgroupLaunch]] = {
    "float16": WarpgroupLaunch,
    "bfloat16": BrainLaunch,
    "int8": ByteLaunch,
}
"""By the type of the operands in shared memory."""
