"""Reductions that leave the last axis: whole lines of the operand are combined into a line of the result.

for the other axes, parallel:
    for a piece of the line:
        acc[piece] = start
        for the reduced axes: acc[:] = combine(acc[:], A[…, piece])      # vectors, from the first cache
        C[…, piece] = epilogue(acc)
"""

from __future__ import annotations

from tvm import s_tir
from tvm.s_tir.schedule import SBlockRV

from nnefc.passes.schedule.analysis import KernelAnalysis, Step
from nnefc.passes.schedule.schedules import covers_result, epilogue_into_one_block, largest_divisor, trip_count
from nnefc.passes.tir.expressions import is_number
from nnefc.passes.tir.sizes import Size
from nnefc.sizes import is_known, item_count, typical
from nnefc.targets.machine.target import Target

__all__ = ["ColumnReductionRule"]

_SHORTEST_PIECE = 32  # elements: the loop around shorter pieces takes as long as the pieces


class ColumnReductionRule:
    """One reduction of one tensor; the last axis of both sides is the same."""

    def apply(self, kernel: KernelAnalysis, target: Target) -> s_tir.Schedule | None:
        if len(kernel.reductions) != 1:
            return None
        (step,) = kernel.reductions
        if step.producers or len(step.writes) != 1 or not _keeps_last_axis(step):
            return None
        sch = kernel.schedule()
        return self._schedule(sch, sch.get_sblock(step.name), step, target)

    def _schedule(self, sch: s_tir.Schedule, block: SBlockRV, step: Step, target: Target) -> s_tir.Schedule | None:
        epilogue = epilogue_into_one_block(sch, block)
        if epilogue is None:
            epilogue = sch.cache_write(block, 0, "global")
        loops = sch.get_loops(block)
        *lines, line = loops[: len(step.spatial)]
        reduced = loops[len(step.spatial) :]
        if not is_known(step.spatial[-1].size):
            return None
        piece_outer, piece = sch.split(line, [None, _piece(step.spatial[-1].size, target)])
        sch.reorder(*lines, piece_outer, *reduced, piece)
        sch.reverse_compute_at(epilogue, piece_outer)
        if not covers_result(sch, epilogue):
            return None
        if (
            typical(step.rounds) >= target.parallel_grain
            and typical(item_count(step.sizes[: len(step.spatial) - 1])) > 1
        ):
            sch.parallel(sch.fuse(*lines, piece_outer))
        lanes = target.lanes(step.dtype)
        start = sch.decompose_reduction(block, reduced[0])
        for part in (start, block, epilogue):
            inner = sch.get_loops(part)[-1]
            if trip_count(sch, inner) % lanes == 0:
                _, lane = sch.split(inner, [None, lanes])
                sch.vectorize(lane)
        return sch


def _keeps_last_axis(step: Step) -> bool:
    """Whether the reduced axes are the last ones, and the axis before them is the last of all tensors."""
    if not step.spatial or step.axes != (*step.spatial, *step.reduced) or len(step.trip_counts) != len(step.axes):
        return False
    last = [region.region[-1] for region in (*step.reads, *step.writes) if len(region.region)]
    return all(place.min.same_as(step.spatial[-1].var) and is_number(place.extent, 1) for place in last)


def _piece(length: Size, target: Target) -> Size:
    """The longest part of a line that divides it, if that is long enough; else the line."""
    longest = largest_divisor(length, target.resident)
    return longest if longest >= _SHORTEST_PIECE else length
