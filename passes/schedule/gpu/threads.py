"""Distributes loops among the threads of a device."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV

from nnefc.passes.schedule.schedules import fused, largest_divisor, trip_count
from nnefc.passes.tir.common.shapes import Size
from nnefc.symbolic.dims import is_known, size_hint
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["bind_flat", "rows_at_once", "split_vectors", "threads_for", "threads_of_row"]

_THREADS = 256  # of a block
_MAX_THREADS = 512  # of blocks that are few
_ELEMENTS_OF_A_THREAD = 8  # of a row, before it gets more threads
_WARPS_OF_A_BLOCK = 4  # with a row each


def threads_for(iterations: Size, target: GpuTarget) -> int:
    """Returns the threads of each block where each thread has one of `iterations` iterations; not more than iterations.

    Blocks are smaller, rather than fewer than the device has processors.
    """
    threads = _THREADS
    while threads > target.threads_per_warp and size_hint(iterations) < threads * target.gpu.processors:
        threads //= 2
    return max(1, min(threads, iterations)) if is_known(iterations) else threads


def bind_flat(sch: s_tir.Schedule, loops: Sequence[LoopRV], target: GpuTarget, lanes: int = 1) -> LoopRV:
    """Gives each thread one iteration of some nested loops, or `lanes` iterations as a vector; returns the loop over
    threads."""
    iterations = trip_count(sch, *loops)
    if not iterations:  # nothing to do; TVM would divide by the extents
        sch.bind(loops[0], "blockIdx.x")
        return loops[-1]
    threads = threads_for(iterations // lanes, target)
    blocks, thread = sch.split(split_vectors(sch, loops, lanes), [None, threads])
    sch.bind(blocks, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return thread


def split_vectors(sch: s_tir.Schedule, loops: Sequence[LoopRV], lanes: int) -> LoopRV:
    """Fuses nested loops to one over vectors of `lanes` elements; the trip count of the last loops is a multiple of it.

    Of dynamic loops, the last ones whose trip count is such a multiple are split by themselves: then no element of a
    vector has its own division by a size.
    """
    if lanes == 1:
        return fused(sch, loops)
    count = next(n for n in range(1, len(loops) + 1) if trip_count(sch, *loops[-n:]) % lanes == 0)
    last, lane = sch.split(fused(sch, loops[-count:]), [None, lanes])
    sch.vectorize(lane)
    return fused(sch, [*loops[:-count], last])


def threads_of_row(rows: Size, length: Size, target: GpuTarget) -> int:
    """Threads that share a row: a warp, or as many as leave each some elements; the more, the fewer rows there are."""
    threads = target.threads_per_warp
    maximum = _THREADS if size_hint(rows) >= target.gpu.processors else _MAX_THREADS
    while threads < maximum and threads * _ELEMENTS_OF_A_THREAD < size_hint(length):
        threads *= 2
    return threads


def rows_at_once(rows: Size, threads: int, target: GpuTarget) -> int:
    """Rows of a block, if each has so many threads: several where these are warps, and there are enough rows."""
    if threads > target.threads_per_warp:
        return 1
    return largest_divisor(rows, max(1, min(_WARPS_OF_A_BLOCK, size_hint(rows) // target.gpu.processors)))
