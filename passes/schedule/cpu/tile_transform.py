"""Transforms of small tiles, as Winograd's: which formula an element has depends on its place in its tile.

    for the tiles in parallel:
        columns = each column of the tile, transformed        # in registers
        unrolled over the tile: out[place, :] = the formula of `place`, of `columns`

Unrolled, each place knows its formula, and nothing of the choice is left.
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.schedule import SBlockRV

from nnefc.passes.schedule.structure import (
    epilogue_into_one_block,
    is_reduction,
    periods_of,
    root_blocks,
    schedule_of,
)
from nnefc.targets.machine.target import Target

__all__ = ["TileTransformRule"]


class TileTransformRule:
    """An element-wise computation that has a formula for each place of a tile along two or more of its axes."""

    def apply(self, func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
        sch = schedule_of(func)
        blocks = root_blocks(sch)
        if any(is_reduction(sch, block) for block in blocks):
            return None
        choosing = [(block, periods) for block in blocks if len(periods := periods_of(sch.get(block))) > 1]
        if len(choosing) != 1:
            return None
        block, periods = choosing[0]
        lanes = target.lanes(str(sch.get(block).writes[0].source.dtype))
        if int(sch.get(sch.get_loops(block)[-1]).extent) % lanes:
            return None
        self._schedule(sch, block, periods, lanes)
        return sch

    def _schedule(self, sch: s_tir.Schedule, block: SBlockRV, periods: dict[int, int], lanes: int) -> None:
        columns = sch.get_producers(block)
        last = epilogue_into_one_block(sch, block)
        if last is None:
            last = block
        else:
            sch.compute_inline(block)
        loops = sch.get_loops(last)
        unrolled = []
        for axis, period in periods.items():
            loops[axis], inner = sch.split(loops[axis], [None, period])
            unrolled.append(inner)
        *outer, channel = loops
        channel, lane = sch.split(channel, [None, lanes])
        outer.append(channel)
        sch.reorder(*outer, *unrolled, lane)
        for column in columns:
            sch.compute_at(column, channel)
            *inner, vector = sch.get_loops(column)[len(outer) :]
            sch.vectorize(vector)
            for loop in inner:
                sch.unroll(loop)
        sch.vectorize(lane)
        for loop in unrolled:
            sch.unroll(loop)
        sch.parallel(sch.fuse(*outer[:-2]))
