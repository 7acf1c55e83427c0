"""Reductions that leave the last axis: whole lines of the operand are combined into a line of the result.

for the other axes, parallel:
    for a piece of the line:
        acc[piece] = start
        for the reduced axes: acc[:] = combine(acc[:], A[…, piece])      # vectors, from the first cache
        C[…, piece] = epilogue(acc)
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx
from tvm.s_tir.schedule import SBlockRV

from nnefc.passes.schedule.structure import (
    covers_result,
    epilogue_into_one_block,
    is_reduction,
    largest_divisor,
    root_blocks,
    schedule_of,
)
from nnefc.targets.machine.target import Target

__all__ = ["ColumnsRule"]

_LEAST_PIECE = 32  # shorter ones are all loop


class ColumnsRule:
    """One reduction of one tensor; the last axis of both sides is the same."""

    def apply(self, func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
        sch = schedule_of(func)
        reductions = [b for b in root_blocks(sch) if is_reduction(sch, b)]
        if len(reductions) != 1 or sch.get_producers(reductions[0]):
            return None
        block = reductions[0]
        axes = list(sch.get(block).iter_vars)
        kinds = [axis.iter_type for axis in axes]
        spatial = kinds.index(tirx.IterVar.CommReduce)
        if not spatial or tirx.IterVar.DataPar in kinds[spatial:] or len(sch.get_loops(block)) != len(axes):
            return None
        node, line = sch.get(block), axes[spatial - 1]
        last = [region.region[-1] for region in (*node.reads, *node.writes) if len(region.region)]
        if len(node.writes) != 1 or not all(r.min.same_as(line.var) and int(r.extent) == 1 for r in last):
            return None
        return self._schedule(sch, block, spatial, target)

    def _schedule(self, sch: s_tir.Schedule, block: SBlockRV, spatial: int, target: Target) -> s_tir.Schedule | None:
        extents = [int(axis.dom.extent) for axis in sch.get(block).iter_vars]
        lanes = target.lanes(str(sch.get(block).writes[0].source.dtype))
        epilogue = epilogue_into_one_block(sch, block)
        if epilogue is None:
            epilogue = sch.cache_write(block, 0, "global")
        loops = sch.get_loops(block)
        reduced = loops[spatial:]
        piece_outer, piece = sch.split(loops[spatial - 1], [None, _piece(extents[spatial - 1], target)])
        sch.reorder(*loops[: spatial - 1], piece_outer, *reduced, piece)
        sch.reverse_compute_at(epilogue, piece_outer)
        if not covers_result(sch, epilogue):
            return None
        outer = [*loops[: spatial - 1], piece_outer]
        if math.prod(extents) >= target.parallel_grain and math.prod(extents[: spatial - 1]) > 1:
            sch.parallel(sch.fuse(*outer))
        start = sch.decompose_reduction(block, reduced[0])
        for part in (start, block, epilogue):
            line = sch.get_loops(part)[-1]
            if int(sch.get(line).extent) % lanes == 0:
                _, lane = sch.split(line, [None, lanes])
                sch.vectorize(lane)
        return sch


def _piece(extent: int, target: Target) -> int:
    """The longest part of a line that divides it, if that is long enough; else the line."""
    longest = largest_divisor(extent, target.resident)
    return longest if longest >= _LEAST_PIECE else extent
