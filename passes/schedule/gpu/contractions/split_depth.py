"""Adds up the slices of a product's depth in the launch that computes them.

    parts[tile, slice] = sums                               # of each block, from its registers
    if this block is the last of the tile's to arrive:
        sums = parts[tile, 0] + parts[tile, 1] + …          # in this order, whichever block is the last
        result = epilogue(sums)

So results are the same bits in every run. A thread reads what the threads of its number have written for the other
slices; parts lie as registers do, those of neighbouring threads side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tvm import tirx

from nnefc.passes.schedule.gpu.contractions.tiling import slices_at_once
from nnefc.passes.schedule.gpu.last_block import if_last
from nnefc.passes.schedule.gpu.nest import Nest, buffer, load, sequence, store, synchronize
from nnefc.passes.tir.common.expressions import number

__all__ = ["DepthSlices"]

_FETCHED = 32  # sums of another block that a thread has in registers besides its own


@dataclass(frozen=True)
class DepthSlices:
    """The slices of the depth of each tile of a product, whose sums the last block of a tile adds up.

    Attributes:
        count: of each tile.
        threads: of a block.
        sums: of a thread.
        parts: the sums of all slices of all tiles.
        arrived: how many blocks of each tile have written theirs; 0 before and after the launch.
    """

    count: int
    threads: int
    sums: int
    parts: tirx.Var
    arrived: tirx.Var

    @staticmethod
    def of(tiles: int, count: int, threads: int, sums: int, dtype: str) -> DepthSlices:
        """Returns `count` slices of each of so many tiles, with memory for their sums."""
        parts = buffer("parts", tiles * count * threads * sums, dtype)
        return DepthSlices(count, threads, sums, parts, buffer("arrived", tiles, "uint32"))

    def join(
        self, nest: Nest, sums: tirx.Var, tile: tirx.Expr, which: tirx.Expr, thread: tirx.Expr, write: tirx.Stmt
    ) -> tirx.Stmt:
        """Returns what follows when a block has the sums of a slice in its registers.

        Args:
            sums: registers of each thread.
            tile, which: the tile, and the slice.
            write: writes the results for the sums of all slices, which are in the registers then.
        """
        lanes = next(lanes for lanes in (4, 2, 1) if self.sums % lanes == 0)
        groups, zero = self.sums // lanes, tirx.const(0, str(self.parts.dtype))
        at_once = slices_at_once(self.count, self.sums)

        def position(part: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Expr:
            line = ((tile * number(self.count) + part) * number(groups) + group) * number(self.threads) + thread
            return nest.simplify(line * number(lanes) + lane)

        def keep(group: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
            return store(self.parts, load(sums, group * number(lanes) + lane), position(which, group, lane))

        def add(part: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
            at, value = group * number(lanes) + lane, load(self.parts, position(part, group, lane))
            if not nest.holds(part < number(self.count)):
                value = tirx.if_then_else(part < number(self.count), value, zero)
            return store(sums, load(sums, at) + value, at)

        def each(body: Callable[[tirx.Expr, tirx.Expr], tirx.Stmt], count: int = groups) -> tirx.Stmt:
            return nest.unrolled(count, lambda group: nest.lanes(lanes, lambda lane: body(group, lane)), "group")

        def add_from(first: int, part: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
            return add(part, number(first) + group, lane)

        def one(part: tirx.Expr) -> tirx.Stmt:
            if self.sums <= _FETCHED:
                return each(partial(add, part))
            # The barrier keeps the compiler from fetching more at once, for which there are no registers.
            some, parts = _FETCHED // lanes, []
            for first in range(0, groups, some):
                parts += [each(partial(add_from, first, part), min(some, groups - first)), synchronize()]
            return sequence(*parts)

        def several(index: tirx.Expr) -> tirx.Stmt:
            return nest.unrolled(at_once, lambda of: one(index * number(at_once) + of), "slice")

        zeros = nest.unrolled(self.sums, lambda index: store(sums, zero, index))
        all_slices = sequence(zeros, nest.rolled(-(-self.count // at_once), several, "slices"), write)
        return sequence(each(keep), if_last(nest, self.arrived, tile, self.count, all_slices))
