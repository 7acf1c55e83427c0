"""Schedules transforms of small tiles (Winograd), in which an element's expression depends on its position in the tile.

    for the tiles in parallel:
        columns = each column of the tile, transformed        # in registers
        unrolled over the tile: out[slot, :] = the formula of `position`, of `columns`

Unrolled, each position knows its formula, and nothing of the choice is left.
"""

from __future__ import annotations

import math

from tvm import s_tir

from nnefc.passes.schedule.analysis import KernelAnalysis, ScheduleBlock
from nnefc.passes.schedule.full_tiles import in_full_tiles
from nnefc.passes.schedule.schedules import epilogue_into_one_block
from nnefc.symbolic.dims import is_known
from nnefc.targets.machine.cpu.target import Target

__all__ = ["TileTransformRule"]


class TileTransformRule:
    """Schedules an element-wise computation that has a formula for each position of a tile along two or more of its
    axes.
    """

    def apply(self, kernel: KernelAnalysis, target: Target) -> s_tir.Schedule | None:
        choosing = [step for step in kernel.steps if len(step.periods) > 1]
        if kernel.reductions or len(choosing) != 1:
            return None
        (step,) = choosing
        lanes = math.gcd(target.lanes(step.dtype), step.trip_counts[-1])
        return self._schedule(kernel.schedule(), step, lanes) if lanes >= target.lanes("int32") else None

    def _schedule(self, sch: s_tir.Schedule, step: ScheduleBlock, lanes: int) -> s_tir.Schedule | None:
        block = sch.get_sblock(step.name)
        columns = sch.get_producers(block)
        last = epilogue_into_one_block(sch, block)
        if last is None:
            last = block
        else:
            sch.compute_inline(block)
        for axis, period in step.periods.items():
            if not is_known(step.sizes[axis]):
                names = [str(sch.get(made).name_hint) for made in (last, *columns)]
                tiled = in_full_tiles(sch, names[0], axis, period)
                if tiled is None:
                    return None
                sch, (last, *columns) = tiled, map(tiled.get_sblock, names)
        loops = sch.get_loops(last)
        unrolled = []
        for axis, period in step.periods.items():
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
        return sch
