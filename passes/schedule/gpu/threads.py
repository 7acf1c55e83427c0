"""Distributes loops among the threads of a device."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import s_tir
from tvm.s_tir.schedule import LoopRV

from nnefc.passes.schedule.schedules import fused, largest_divisor, trip_count
from nnefc.passes.tir.common.shapes import Size
from nnefc.symbolic.dims import is_known, size_hint
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["bind_flat", "rows_at_once", "threads_for", "threads_of_row"]

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
    flat = fused(sch, loops)
    threads = threads_for(iterations // lanes, target)
    if lanes > 1 and is_known(iterations):
        blocks, thread, lane = sch.split(flat, [None, threads, lanes])
        sch.vectorize(lane)
    elif lanes > 1:  # full vectors first: then it is not asked for each of their elements whether it is inside
        vectors, lane = sch.split(flat, [None, lanes])
        blocks, thread = sch.split(vectors, [None, threads])
        sch.vectorize(lane)
    else:
        blocks, thread = sch.split(flat, [None, threads])
    sch.bind(blocks, "blockIdx.x")
    sch.bind(thread, "threadIdx.x")
    return thread


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
