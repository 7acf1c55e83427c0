"""Inlines element-wise producers where recomputing them costs less than a round trip through memory.

    B = f(A)            # a launch, and two ways through memory
    C = g(B)            →      C = g(f(A))

A producer is not inlined if its readers would recompute it many times.
"""

from __future__ import annotations

import math
from contextlib import suppress

from tvm import s_tir, tirx

from nnefc.passes.schedule.analysis import ScheduleBlock, step_of
from nnefc.passes.schedule.schedules import root_blocks
from nnefc.passes.tir.common.shapes import size_of

__all__ = ["inline_producers", "is_simple"]

_MAX_WORK = 64  # for an element: about as many instructions as a position in memory takes anyhow


def inline_producers(sch: s_tir.Schedule) -> None:
    """Moves steps without reductions into those that read them, the first ones first."""
    for block in root_blocks(sch):
        step = step_of(sch, block)
        if step.consumers and not step.is_reduction and step.value is not None:
            readers = [step_of(sch, reader) for reader in sch.get_consumers(block)]
            if all(step.work * _reads(reader, step.result) <= _MAX_WORK for reader in readers):
                with suppress(s_tir.ScheduleError):  # not of the form that can be moved
                    sch.compute_inline(block)


def is_simple(step: ScheduleBlock) -> bool:
    """Whether the loops of a step are its axes, in their order, each of them reduced or not; a scalar has no loops."""
    if not all(axis.is_spatial or axis.is_reduced for axis in step.axes):
        return False
    return step.loops_are_axes if step.trip_counts else step.sizes == (1,)


def _reads(reader: ScheduleBlock, tensor: tirx.Var) -> int:
    """Returns the elements of a tensor that the reader reads for one of its own; repeated reads count once."""
    positions: int = sum(load.source.same_as(tensor) for load in reader.loads)
    sizes = [position.extent for read in reader.reads if read.source.same_as(tensor) for position in read.region]
    if not all(isinstance(size, tirx.IntImm) for size in sizes):  # depends on data
        return positions
    return min(positions, math.prod(map(size_of, sizes)))
