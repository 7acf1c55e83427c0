"""Compute element-wise steps where they are read, if that costs less than writing them to memory and reading them.

    B = f(A)            # a launch, and two ways through memory
    C = g(B)            →      C = g(f(A))

A step stays by itself if its readers would do its work many times over.
"""

from __future__ import annotations

import math
from contextlib import suppress

from tvm import s_tir, tirx

from nnefc.passes.schedule.cuda.analysis import loads_of, values_of, work_of
from nnefc.passes.schedule.structure import SBlockRV, is_reduction, root_blocks

__all__ = ["is_simple", "join_steps"]

_MOST_WORK = 64  # for an element: about as many instructions as a place in memory takes anyhow


def join_steps(sch: s_tir.Schedule) -> None:
    """Move steps without reductions into those that read them, the first ones first."""
    for block in root_blocks(sch):
        if sch.get_consumers(block) and not is_reduction(sch, block) and _is_worth_joining(sch, block):
            with suppress(s_tir.ScheduleError):  # not of the form that can be moved
                sch.compute_inline(block)


def is_simple(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Whether the loops of a block are its axes, in their order, each of them reduced or not; a scalar has no loops."""
    axes, loops = list(sch.get(block).iter_vars), sch.get_loops(block)
    extents = [int(axis.dom.extent) for axis in axes]
    if any(axis.iter_type not in (tirx.IterVar.DataPar, tirx.IterVar.CommReduce) for axis in axes):
        return False
    return [int(sch.get(loop).extent) for loop in loops] == extents if loops else extents == [1]


def _is_worth_joining(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    node = sch.get(block)
    if not isinstance(node.body, tirx.BufferStore):
        return False
    work, (write,) = work_of(node.body.value), node.writes
    return all(work * _reads(sch.get(reader), write.source) <= _MOST_WORK for reader in sch.get_consumers(block))


def _reads(reader: s_tir.SBlock, buffer: tirx.Var) -> int:
    """How many elements of `buffer` the reader reads for one of its own; one that it reads twice counts as one."""
    places = [load for value in values_of(reader.body) for load in loads_of(value) if load.source.same_as(buffer)]
    extents = [r.extent for region in reader.reads if region.source.same_as(buffer) for r in region.region]
    if not all(isinstance(extent, tirx.IntImm) for extent in extents):  # depends on data
        return len(places)
    return min(len(places), math.prod(map(int, extents)))
