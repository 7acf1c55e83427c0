"""Schedules Strassen's algorithm: the seven tiles of one position in each submatrix at a time.

    for a tile's columns, its rows, in parallel:
        for p in 7: tiles[p] = a tile of the product p               # in registers, then in the first cache
        for each block:   C[its tile] = epilogue(sum of tiles)       # bias, activation, residual

and the sums of submatrices before them:

    for row in parallel, for a vector of columns: the seven sums of the four vectors    # in registers
"""

from __future__ import annotations

import math

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV, SBlockRV

from nnefc.ir.attributes import STRASSEN_PRODUCTS
from nnefc.passes.compute.tile_sizes import RegisterTile, choose_tile
from nnefc.passes.schedule.analysis import KernelAnalysis, step_of
from nnefc.passes.schedule.cpu.partial_sums import keep_totals_aligned, sum_in_parts
from nnefc.passes.schedule.schedules import epilogue_into_one_block
from nnefc.targets.machine.cpu.target import Target

__all__ = ["StrassenProductsRule", "StrassenSumsRule"]


class StrassenProductsRule:
    """Schedules seven products whose sums are the submatrices of a matrix."""

    def apply(self, kernel: KernelAnalysis, target: Target) -> s_tir.Schedule | None:
        found = [step for step in kernel.steps if STRASSEN_PRODUCTS in step.node.annotations]
        if len(found) != 1:
            return None
        (products,) = found
        *batch, _, rows, columns = (axis.size for axis in products.spatial)
        lanes = target.lanes(products.dtype)
        if math.prod(batch) != 1 or columns % lanes:
            return None
        tile = choose_tile(1, rows, columns // lanes, target)
        sch = kernel.schedule()
        self._schedule(sch, sch.get_sblock(products.name), tile, lanes, target)
        return sch

    def _schedule(
        self, sch: s_tir.Schedule, products: SBlockRV, tile: RegisterTile, lanes: int, target: Target
    ) -> None:
        parts = sum_in_parts(sch, products, target)
        result = epilogue_into_one_block(sch, products)
        tiles = sch.cache_write(products, 0, "global")

        *_, row, column = sch.get_loops(result)
        row, row_inner, lower = sch.split(row, [None, tile.rows, 2])
        column, column_inner, right, lane = sch.split(column, [None, tile.columns, 2, lanes])
        sch.reorder(column, row, row_inner, column_inner, lower, right, lane)
        sch.vectorize(lane)
        for loop in (column_inner, lower, right):
            sch.unroll(loop)
        position = sch.fuse(column, row)

        sch.compute_at(tiles, position)
        *_, product, row, column = sch.get_loops(tiles)
        vectors, lane = sch.split(column, [None, lanes])
        sch.vectorize(lane)
        sch.unroll(row)
        sch.unroll(vectors)
        sch.parallel(position)
        part = _sums_in_registers(sch, products, product, lanes)
        if parts is not None:
            _sums_in_registers(sch, parts, part, lanes)
            keep_totals_aligned(sch, position, target)


def _sums_in_registers(sch: s_tir.Schedule, block: SBlockRV, position: LoopRV, lanes: int) -> LoopRV:
    """Computes a tile of sums inside `position`, with its reduced loops outermost.

    Returns:
        The outermost reduced loop.
    """
    sch.compute_at(block, position, preserve_unit_loops=True)
    axes = step_of(sch, block).axes
    loops = list(zip(sch.get_loops(block)[-len(axes) :], axes, strict=True))
    reduced = [loop for loop, axis in loops if axis.is_reduced]
    *_, row, column = [loop for loop, axis in loops if axis.is_spatial]
    vectors, lane = sch.split(column, [None, lanes])
    sch.reorder(*reduced, row, vectors, lane)
    sch.vectorize(lane)
    sch.unroll(row)
    sch.unroll(vectors)
    start = sch.decompose_reduction(block, reduced[0])
    *_, row, vectors, lane = sch.get_loops(start)
    sch.vectorize(lane)
    sch.unroll(row)
    sch.unroll(vectors)
    return reduced[0]


class StrassenSumsRule:
    """Schedules an element-wise computation that has seven formulas, one for each index of an axis before the
    last two.
    """

    def apply(self, kernel: KernelAnalysis, target: Target) -> s_tir.Schedule | None:
        if len(kernel.steps) != 1 or len(kernel.steps[0].trip_counts) < 4:
            return None
        (step,) = kernel.steps
        lanes = target.lanes(step.dtype)
        choices = list(step.periods)
        if len(choices) != 1 or choices[0] > len(step.trip_counts) - 3 or step.trip_counts[-1] % lanes:
            return None
        sch = kernel.schedule()
        *outer, column = sch.get_loops(sch.get_sblock(step.name))
        choice = outer.pop(choices[0])
        column, lane = sch.split(column, [None, lanes])
        sch.reorder(*outer, column, choice, lane)
        sch.vectorize(lane)
        sch.unroll(choice)
        sch.parallel(sch.fuse(*outer[:-1]))
        return sch
