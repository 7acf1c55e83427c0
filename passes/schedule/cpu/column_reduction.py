"""Schedules reductions that keep the last axis: combines whole rows of the operand into a row of the result.

for the other axes, parallel:
    for a piece of the line:
        acc[piece] = start
        for the reduced axes: acc[:] = combine(acc[:], A[…, piece])      # vectors, from the first cache
        C[…, piece] = epilogue(acc)
"""

from __future__ import annotations

from tvm import s_tir
from tvm.s_tir.schedule import SBlockRV

from nnefc.passes.schedule.analysis import KernelAnalysis, ScheduleBlock, step_of
from nnefc.passes.schedule.schedules import covers_result, epilogue_into_one_block, largest_divisor, trip_count
from nnefc.passes.tir.common.expressions import is_number
from nnefc.passes.tir.common.shapes import Size
from nnefc.symbolic.dims import element_count, is_known, size_hint
from nnefc.targets.machine.cpu.target import Target

__all__ = ["ColumnReductionRule"]

_SHORTEST_PIECE = 32  # elements: the loop around shorter pieces takes as long as the pieces


class ColumnReductionRule:
    """Schedules one reduction of one tensor that keeps the last axis."""

    def apply(self, kernel: KernelAnalysis, target: Target) -> s_tir.Schedule | None:
        if len(kernel.reductions) != 1:
            return None
        (step,) = kernel.reductions
        sch = kernel.schedule()
        if step.producers and not _join_producers(sch, kernel, step):
            return None
        block = sch.get_sblock(step.name)
        step = step_of(sch, block)
        if len(step.writes) != 1 or not _keeps_last_axis(step):
            return None
        return self._schedule(sch, block, step, target)

    def _schedule(
        self, sch: s_tir.Schedule, block: SBlockRV, step: ScheduleBlock, target: Target
    ) -> s_tir.Schedule | None:
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
        pieces = element_count([*step.sizes[: len(step.spatial) - 1], trip_count(sch, piece_outer)])
        if size_hint(step.iterations) >= target.parallel_grain and size_hint(pieces) > 1:
            sch.parallel(sch.fuse(*lines, piece_outer))
        lanes = target.lanes(step.dtype)
        _vectorize(sch, block, lanes)  # before decomposition: afterwards TVM no longer treats the block as a reduction
        _vectorize(sch, sch.decompose_reduction(block, reduced[0]), lanes)
        _vectorize(sch, epilogue, lanes)
        return sch


def _vectorize(sch: s_tir.Schedule, block: SBlockRV, lanes: int) -> None:
    """Vectorizes the innermost loop, if full vectors fill it."""
    *_, inner = sch.get_loops(block)
    if trip_count(sch, inner) % lanes == 0:
        _, lane = sch.split(inner, [None, lanes])
        sch.vectorize(lane)


def _join_producers(sch: s_tir.Schedule, kernel: KernelAnalysis, step: ScheduleBlock) -> bool:
    """Computes the operand where it is read, once for each element; returns whether no other step comes before."""
    waiting = list(step.producers)
    before: list[ScheduleBlock] = []
    while waiting:
        producer = kernel.by_name[waiting.pop()]
        if producer.is_reduction or len(producer.consumers) != 1 or len(before) > len(kernel.steps):
            return False
        before.append(producer)
        waiting += producer.producers
    for producer in reversed(before):
        sch.compute_inline(sch.get_sblock(producer.name))
    return True


def _keeps_last_axis(step: ScheduleBlock) -> bool:
    """Whether the reduced axes are the last ones, and the axis before them is the last of all tensors."""
    if not step.spatial or step.axes != (*step.spatial, *step.reduced) or len(step.trip_counts) != len(step.axes):
        return False
    last = [region.region[-1] for region in (*step.reads, *step.writes) if len(region.region)]
    return all(position.min.same_as(step.spatial[-1].var) and is_number(position.extent, 1) for position in last)


def _piece(length: Size, target: Target) -> Size:
    """Returns the longest part of a line that divides it, if that is long enough; else the line."""
    longest = largest_divisor(length, target.resident)
    return longest if longest >= _SHORTEST_PIECE else length
