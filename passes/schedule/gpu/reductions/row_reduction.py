"""Schedules row-wise reductions whose results are used along the row (softmax, normalizations) in one launch.

    for row in blockIdx.x:
        for threads in threadIdx.x:
            m = max of the row            # each thread some of its elements, then shuffles
            for a share of the row: e[i] = exp(x[i] - m)      # in shared memory, if more than one step reads it
            s = sum of e
            for a share of the row: y[i] = e[i] / s

Rows of up to a warp's reach have a warp each, longer ones a block. Rows that lie across memory, and very short ones,
have a thread each: neighbouring threads then read neighbouring elements.
"""

from __future__ import annotations

import math

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV

from nnefc.passes.schedule.analysis import KernelAnalysis, ScheduleBlock, step_of, steps_of
from nnefc.passes.schedule.gpu.inline_producers import inline_producers, is_simple
from nnefc.passes.schedule.gpu.reductions.cross_thread import can_share_reductions
from nnefc.passes.schedule.gpu.threads import bind_flat, rows_at_once, threads_of_row
from nnefc.passes.schedule.reducers import register_reducer
from nnefc.passes.schedule.schedules import SBlockRV, fused, is_reduction, largest_divisor, root_blocks, trip_count
from nnefc.passes.tir.common.expressions import loads_of, variables_of
from nnefc.passes.tir.common.shapes import Size
from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import is_known, may_exceed, size_hint
from nnefc.targets.machine.gpu.description import WARP
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["RowReductionRule"]

_MIN_LENGTH = 32  # of rows that are shared by threads
_MANY_ROWS = WARP  # for each processor: they are worth a thread each, however long they are
_SHORT = 64  # elements of rows that a thread alone goes through, however few they are
_LONG = 1 << 16  # elements of rows that are too much for a block each, if there are few of them
_FEW_ROWS = 1 / 8  # for each processor
_SUMS_BYTES = 8 << 10  # of shared memory that the sums of a block may take: its blocks keep the rest


class RowReductionRule:
    """Reductions which all have the same results' axes, and one step at the end that has these and others."""

    def apply(self, kernel: KernelAnalysis, target: GpuTarget) -> s_tir.Schedule | None:
        kernel = kernel.simplified
        if len(kernel.outputs) != 1 or kernel.outputs[0].is_reduction or not kernel.reductions:
            return None
        if not all(map(is_simple, kernel.steps)):
            return None
        sch = kernel.schedule()
        for step in kernel.steps:
            if step.is_reduction:
                register_reducer(step.node)
            elif len(step.consumers) == 1:
                sch.compute_inline(sch.get_sblock(step.name))
        block = sch.get_sblock(kernel.outputs[0].name)
        output = step_of(sch, block)
        axes = _row_axes(sch, output)
        if axes is None or not output.iterations:
            return None
        rows = size_hint(math.prod(output.sizes[axis] for axis in axes))
        length = size_hint(math.prod(size for axis, size in enumerate(output.sizes) if axis not in axes))
        leading = all(output.sizes[axis] == 1 or axis in axes for axis in range(max(axes, default=-1) + 1))
        if leading and length >= _MIN_LENGTH and (length < _LONG or rows > _FEW_ROWS * target.gpu.processors):
            _share_rows(sch, block, axes, target)
        elif rows >= _MANY_ROWS * target.gpu.processors or length <= _SHORT:
            _a_thread_each(sch, block, axes, target)
        else:
            return None
        return sch if can_share_reductions(sch) else None


def _row_axes(sch: s_tir.Schedule, output: ScheduleBlock) -> list[int] | None:
    """Positions of the output's axes that tell its rows; None if the reductions are of anything else than its rows."""
    reductions = [step for step in steps_of(sch) if step.is_reduction]
    results = {region.source for step in reductions for region in step.writes}
    if output.value is None:
        return None
    used = {var for load in loads_of(output.value) if load.source in results for var in variables_of(load.indices)}
    axes = [position for position, axis in enumerate(output.axes) if axis.var in used]
    rows = math.prod(output.sizes[axis] for axis in axes)
    of_rows = rows != output.iterations and all(step.elements == rows for step in reductions)
    return axes if of_rows else None


def _share_rows(sch: s_tir.Schedule, output: SBlockRV, axes: list[int], target: GpuTarget) -> None:
    """A warp or a block of threads for each row."""
    loops = sch.get_loops(output)
    outer = [loops[axis] for axis in axes] or [sch.add_unit_loop(loops[0])]
    inner = [loop for axis, loop in enumerate(loops) if axis not in axes]
    rows, length = (trip_count(sch, *part) for part in (outer, inner))
    threads = threads_of_row(rows, length, target)
    at_once = rows_at_once(rows, threads, target)
    longer = [size for size in (trip_count(sch, loop) for loop in outer) if size != 1]
    if len(longer) > 1:  # rows of a block that go on along another axis: TVM would keep all of both
        at_once = largest_divisor(longer[-1], at_once)
    free = target.shared_bytes - _SUMS_BYTES
    _inline_what_need_not_be_kept(sch, output, rows * length, at_once * length, free)
    sch.reorder(*outer, *inner)
    of_grid, row = sch.split(fused(sch, outer), [None, at_once])
    sch.bind(of_grid, "blockIdx.x")
    sch.bind(row, "threadIdx.y")
    for block in reversed(root_blocks(sch)):
        if sch.get(block).name_hint != sch.get(output).name_hint:
            _compute_once(sch, block, row, rows)
            for index in range(len(sch.get(block).writes)):
                sch.set_scope(block, index, "local" if is_reduction(sch, block) else "shared")
    for block in sch.get_child_blocks(row):
        loops = sch.get_loops(block)[2:]
        if loops:  # else each thread has the one element for itself
            sch.bind(sch.split(fused(sch, loops), [None, threads])[1], "threadIdx.x")


def _inline_what_need_not_be_kept(
    sch: s_tir.Schedule, output: SBlockRV, elements: Size, of_a_block: Size, free: int
) -> None:
    """Computes steps again for each of their readers that are of rows as a whole, or too large for shared memory.

    How much of that a block takes must be known: steps of rows of dynamic length are computed again, too.
    """
    for block in root_blocks(sch):
        step = step_of(sch, block)
        if step.is_reduction or step.name == sch.get(output).name_hint:
            continue
        size = of_a_block * element_bytes(step.dtype)
        if may_exceed(elements, step.iterations) or not is_known(size) or size > free:
            sch.compute_inline(block)
        else:
            free -= size


def _a_thread_each(sch: s_tir.Schedule, output: SBlockRV, axes: list[int], target: GpuTarget) -> None:
    """A thread for each row, with the results of the reductions in registers."""
    inline_producers(sch)
    loops = sch.get_loops(output)
    outer = [loops[axis] for axis in axes] or [sch.add_unit_loop(loops[0])]
    sch.reorder(*outer, *(loop for axis, loop in enumerate(loops) if axis not in axes))
    rows = trip_count(sch, *outer)
    thread = bind_flat(sch, outer, target)
    for block in reversed(root_blocks(sch)):
        if not is_reduction(sch, block):
            if sch.get(block).name_hint != sch.get(output).name_hint:
                sch.compute_inline(block)
            continue
        _compute_once(sch, block, thread, rows)
        for index in range(len(sch.get(block).writes)):
            sch.set_scope(block, index, "local")


def _compute_once(sch: s_tir.Schedule, block: SBlockRV, loop: LoopRV, rows: Size) -> None:
    """Moves a block to the loop over rows, unless some of it would be computed for more than one of them."""
    work = step_of(sch, block).iterations
    sch.compute_at(block, loop)
    _, _, *inner = sch.get_loops(block)
    if may_exceed(rows * trip_count(sch, *inner), work):
        raise s_tir.ScheduleError("rows overlap")
