"""Poolings and depthwise convolutions: small windows over a tensor whose last axis fills vectors.

for n, c, y in parallel:
    for a few x at once:
        acc[x, lanes] = start
        for the window: acc[x, :] = combine(acc[x, :], A[window, :])
        C = epilogue(acc)
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx
from tvm.ir.expr import TensorRegion
from tvm.s_tir.schedule import SBlockRV

from nnefc.passes.schedule.structure import (
    covers_result,
    epilogue_into_one_block,
    is_reduction,
    largest_divisor,
    root_blocks,
    schedule_of,
    vector_lanes,
)
from nnefc.targets.machine.target import Target

__all__ = ["WindowsRule"]

_LARGEST_UNROLLED = 16  # positions of a window
_POSITIONS_AT_ONCE = 7  # of the result: they share the filter, and what their windows have in common


class WindowsRule:
    """One reduction whose last spatial axis is the last axis of all that it reads and writes, in whole vectors."""

    def apply(self, func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
        sch = schedule_of(func)
        blocks = root_blocks(sch)
        reductions = [b for b in blocks if is_reduction(sch, b)]
        if len(reductions) != 1 or sch.get_producers(reductions[0]):
            return None
        block = reductions[0]
        node = sch.get(block)
        spatial = [a for a in node.iter_vars if a.iter_type == tirx.IterVar.DataPar]
        if len(spatial) < 2:
            return None
        channels = int(spatial[-1].dom.extent)
        lanes = vector_lanes(channels, target.lanes(str(node.writes[0].source.dtype)))
        if channels % lanes or not node.iter_vars[0].same_as(spatial[0]):
            return None
        if not all(self._last_index_is(region, spatial[-1].var) for region in (*node.reads, *node.writes)):
            return None
        return self._schedule(sch, block, len(spatial), lanes)

    def _last_index_is(self, region: TensorRegion, var: tirx.Var) -> bool:
        if not len(region.region):
            return False
        last = region.region[-1]
        return isinstance(last.min, tirx.Var) and last.min.same_as(var) and int(last.extent) == 1

    def _schedule(self, sch: s_tir.Schedule, block: SBlockRV, spatial: int, lanes: int) -> s_tir.Schedule | None:
        epilogue = epilogue_into_one_block(sch, block)
        if epilogue is None:
            epilogue = sch.cache_write(block, 0, "global")
        loops = sch.get_loops(block)
        outer, channel, window = loops[: spatial - 1], loops[spatial - 1], loops[spatial:]
        channel, lane = sch.split(channel, [None, lanes])
        positions = math.prod(int(sch.get(loop).extent) for loop in window)
        tile = largest_divisor(int(sch.get(outer[-1]).extent), _POSITIONS_AT_ONCE)
        outer[-1], at_once = sch.split(outer[-1], [None, tile])
        sch.reorder(*outer, channel, *window, at_once, lane)
        sch.reverse_compute_at(epilogue, channel)
        if not covers_result(sch, epilogue):
            return None
        fused = sch.fuse(*outer[:-1]) if len(outer) > 1 else outer[0]
        sch.parallel(fused)
        sch.vectorize(lane)
        sch.unroll(at_once)
        if positions <= _LARGEST_UNROLLED:
            for loop in window:
                sch.unroll(loop)
        start = sch.decompose_reduction(block, window[0])
        for part in (start, epilogue):
            *others, last = sch.get_loops(part)
            sch.vectorize(last)
            if tile > 1:
                sch.unroll(others[-1])
        return sch
