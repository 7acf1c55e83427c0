"""Schedules what no other rule matches: inlines element-wise blocks, one element of the result per thread.

    for block in blockIdx.x:
        for thread in threadIdx.x:
            sum = 0
            for reduced axes: sum += …    # in a register
            C[block * 256 + thread] = sum

Each block that is left after inlining is a launch of its own. Blocks without parallel loops run in one thread.
"""

from __future__ import annotations

from contextlib import suppress

from tvm import s_tir
from tvm.s_tir.schedule import SBlockRV

from nnefc.passes.schedule.analysis import KernelAnalysis, step_of, steps_of
from nnefc.passes.schedule.gpu.threads import bind_flat
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["FallbackRule"]


class FallbackRule:
    """Any computation."""

    def apply(self, kernel: KernelAnalysis, target: GpuTarget) -> s_tir.Schedule | None:
        sch = kernel.schedule()
        for step in kernel.steps:
            if step.consumers and not step.is_reduction:
                with suppress(s_tir.ScheduleError):  # not of the form that can be inlined: it keeps its own loops
                    sch.compute_inline(sch.get_sblock(step.name))
        for step in steps_of(sch):
            sch = _bound(sch, step.name, target)
        return sch


def _bound(sch: s_tir.Schedule, name: str, target: GpuTarget) -> s_tir.Schedule:
    """Returns the schedule with the computation `name` bound to threads by the first way that it allows."""
    for way in (_each_thread_an_element, _one_thread):
        trial = sch.copy()
        try:
            way(trial, trial.get_sblock(name), target)
        except s_tir.ScheduleError:
            continue
        return trial
    raise AssertionError(f"{name} cannot run in one thread")


def _each_thread_an_element(sch: s_tir.Schedule, block: SBlockRV, target: GpuTarget) -> None:
    step, loops = step_of(sch, block), sch.get_loops(block)
    spatial = [loop for axis, loop in zip(step.axes, loops, strict=False) if axis.is_spatial]
    others = [loop for axis, loop in zip(step.axes, loops, strict=False) if not axis.is_spatial]
    if len(loops) != len(step.axes) or not spatial or 0 in step.sizes:
        _one_thread(sch, block, target)
        return
    sch.reorder(*spatial, *others)
    results = []
    if others and all(axis.is_spatial or axis.is_reduced for axis in step.axes):
        results = [sch.cache_write(block, index, "local") for index in range(len(step.writes))]
    thread = bind_flat(sch, spatial, target)
    for result in results:
        sch.reverse_compute_at(result, thread)
    if results:
        sch.decompose_reduction(block, others[0])


def _one_thread(sch: s_tir.Schedule, block: SBlockRV, _target: GpuTarget) -> None:
    loops = sch.get_loops(block)
    sch.bind(sch.add_unit_loop(loops[0] if loops else block), "threadIdx.x")
