"""Everything that no other rule knows: element-wise steps joined, an element of the result for each thread.

    for block in blockIdx.x:
        for thread in threadIdx.x:
            sum = 0
            for reduced axes: sum += …    # in a register
            C[block * 256 + thread] = sum

Each computation that is left after joining is a launch of its own. What has no loops that may run side by side runs in
one thread.
"""

from __future__ import annotations

import math
from contextlib import suppress

from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV, SBlockRV

from nnefc.passes.schedule.structure import is_reduction, root_blocks, schedule_of
from nnefc.targets.machine.cuda_target import CudaTarget

__all__ = ["FallbackRule"]

_THREADS = 256  # of a block
_LEAST_BLOCKS = 128  # smaller blocks, rather than fewer of them: devices have about so many processors


class FallbackRule:
    """Any computation."""

    def apply(self, func: tirx.PrimFunc, target: CudaTarget) -> s_tir.Schedule | None:
        sch = schedule_of(func)
        for block in root_blocks(sch):
            if sch.get_consumers(block) and not is_reduction(sch, block):
                with suppress(s_tir.ScheduleError):  # not of the form that can be inlined: it keeps its own loops
                    sch.compute_inline(block)
        for name in [sch.get(block).name_hint for block in root_blocks(sch)]:
            sch = _bound(sch, name, target)
        return sch


def _bound(sch: s_tir.Schedule, name: str, target: CudaTarget) -> s_tir.Schedule:
    """The schedule with the computation `name` bound to threads by the first way that it allows."""
    for way in (_each_thread_an_element, _one_thread):
        trial = sch.copy()
        try:
            way(trial, trial.get_sblock(name), target)
        except s_tir.ScheduleError:
            continue
        return trial
    raise AssertionError(f"{name} cannot run in one thread")


def _each_thread_an_element(sch: s_tir.Schedule, block: SBlockRV, target: CudaTarget) -> None:
    loops, axes = sch.get_loops(block), list(sch.get(block).iter_vars)
    if len(loops) != len(axes):
        _one_thread(sch, block, target)
        return
    kinds = [axis.iter_type for axis in axes]
    spatial = [loop for loop, kind in zip(loops, kinds, strict=True) if kind == tirx.IterVar.DataPar]
    others = [loop for loop, kind in zip(loops, kinds, strict=True) if kind != tirx.IterVar.DataPar]
    if not spatial:
        _one_thread(sch, block, target)
        return
    sch.reorder(*spatial, *others)
    results = []
    if others and all(kind in (tirx.IterVar.DataPar, tirx.IterVar.CommReduce) for kind in kinds):
        results = [sch.cache_write(block, index, "local") for index in range(len(sch.get(block).writes))]
    thread = _bind(sch, spatial, target)
    for result in results:
        sch.reverse_compute_at(result, thread)
    if results:
        sch.decompose_reduction(block, others[0])


def _bind(sch: s_tir.Schedule, loops: list[LoopRV], target: CudaTarget) -> LoopRV:
    """Share the rounds of some loops among blocks of threads; returns the loop over the threads."""
    rounds = math.prod(int(sch.get(loop).extent) for loop in loops)
    threads = _THREADS
    while threads > target.threads_per_warp and rounds < threads * _LEAST_BLOCKS:
        threads //= 2
    blocks, thread = sch.split(sch.fuse(*loops), [None, min(threads, rounds)])
    sch.bind(blocks, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return thread


def _one_thread(sch: s_tir.Schedule, block: SBlockRV, _target: CudaTarget) -> None:
    loops = sch.get_loops(block)
    sch.bind(sch.add_unit_loop(loops[0] if loops else block), "threadIdx.x")
