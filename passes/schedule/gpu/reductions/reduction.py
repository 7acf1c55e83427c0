"""Schedules reductions: the split among threads depends on memory order and on the number of results.

    many results                a thread each, the sum in a register; neighbouring threads read neighbouring elements
    rows                        a warp or a block each; the threads' sums are joined by shuffles
    columns                     32 of them a block; each 32 threads of it go through every n-th line
    few results of many elements   parts of them in a first launch, which a second one joins

The element-wise blocks before and after are part of the same launch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import tvm
from tvm import s_tir
from tvm.s_tir.schedule import LoopRV
from tvm.sym import Analyzer, detect_linear_equation

from nnefc.passes.schedule.analysis import Axis, KernelAnalysis, ScheduleBlock, step_of, steps_of
from nnefc.passes.schedule.gpu.element_wise.element_wise import bind_elements
from nnefc.passes.schedule.gpu.inline_producers import inline_producers, is_simple
from nnefc.passes.schedule.gpu.reductions.cross_thread import can_share_reductions
from nnefc.passes.schedule.gpu.threads import bind_flat, rows_at_once, threads_of_row
from nnefc.passes.schedule.reducers import register_reducer
from nnefc.passes.schedule.schedules import SBlockRV, covers_result, fused, largest_divisor, trip_count
from nnefc.passes.tir.common.expressions import flat_offset
from nnefc.passes.tir.common.shapes import Size, elements_of, size_of
from nnefc.symbolic.dims import is_size, may_exceed, size_hint
from nnefc.targets.machine.gpu.description import SECTOR_BYTES, WARP, Gpu
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["ReductionRule"]

_MIN_SHARED = 32  # elements of a sum that are worth more than one thread
_MIN_WIDTH = SECTOR_BYTES // 4  # columns of a block, of four bytes each
_MANY = 2  # times the threads that keep a device busy: so many results get a thread each
_ELEMENTS_OF_A_THREAD = 8  # of a column, before it gets more threads
_LONG = 1 << 14  # elements of a sum that are worth two launches, if there are few sums
_FEW_BLOCKS = 1 / 2  # of the processors: fewer blocks leave most of a device idle
_PART = 1 << 12  # elements that a block of the first launch sums up at least


_ANYWHERE = 1 << 62  # how far apart neighbours lie that have no fixed distance


class ReductionRule:
    """Any number of reductions and element-wise steps; each reduction with the step after it is a launch of its own."""

    def apply(self, kernel: KernelAnalysis, target: GpuTarget) -> s_tir.Schedule | None:
        kernel = kernel.simplified
        if not kernel.reductions or not all(map(is_simple, kernel.steps)):
            return None
        sch = kernel.schedule()
        inline_producers(sch)
        steps = {step.name: step for step in steps_of(sch)}
        bound: set[str] = set()
        for name, step in steps.items():
            if name in bound:
                continue
            if not step.is_reduction:
                bind_elements(sch, [sch.get_sblock(name)], target)
                continue
            register_reducer(step.node)
            epilogue = _epilogue(step, steps)
            sch = _first_that_fits(sch, step, epilogue, target)
            bound.add(epilogue or name)
        return sch


def _epilogue(reduction: ScheduleBlock, steps: dict[str, ScheduleBlock]) -> str | None:
    """Returns the one step that reads a reduction's results, each of its elements one of them, in their order."""
    if len(reduction.consumers) != 1:
        return None
    reader = steps[reduction.consumers[0]]
    reductions = {name for name in reader.producers if steps[name].is_reduction}
    one_of_each = not reader.is_reduction and reduction.elements == reader.iterations and reductions == {reduction.name}
    return reader.name if one_of_each else None


def _first_that_fits(
    sch: s_tir.Schedule, step: ScheduleBlock, epilogue: str | None, target: GpuTarget
) -> s_tir.Schedule:
    """Returns the schedule with the reduction bound to threads in the best of the ways that it allows."""
    for way in _ways(step, target.gpu):
        for last in dict.fromkeys((epilogue, None)):
            trial = _Trial(sch.copy(), step, last, target)
            try:
                way(trial)
            except (s_tir.ScheduleError, tvm.error.InternalError):  # TVM's own, where it factors some scalars
                continue
            if not can_share_reductions(trial.sch):
                continue
            if last != epilogue:
                bind_elements(trial.sch, [trial.sch.get_sblock(epilogue)], target)
            return trial.sch
    raise s_tir.ScheduleError(f"{step.name} cannot be bound to threads")


def _ways(step: ScheduleBlock, gpu: Gpu) -> Iterator[Callable[[_Trial], None]]:
    """The ways to share a reduction out that are worth trying, the best first."""
    entries, elements, in_rows = size_hint(_elements(step)), size_hint(step.elements), _lies_in_rows(step)
    is_shared = elements > 0 and entries >= _MIN_SHARED
    if is_shared and entries >= _LONG and elements // (1 if in_rows else WARP) < _FEW_BLOCKS * gpu.processors:
        yield _Trial.in_parts
    if is_shared and in_rows:
        yield _Trial.by_rows
    if is_shared and not in_rows and elements < _MANY * gpu.busy_threads:
        yield _Trial.by_columns
    yield _Trial.each_thread_a_result


def _elements(step: ScheduleBlock) -> Size:
    """Returns the number of elements that each result reduces."""
    return math.prod(axis.size for axis in step.reduced)


def _lies_in_rows(step: ScheduleBlock) -> bool:
    """Whether the elements of a result lie side by side in memory, rather than those of neighbouring results."""
    return _distance_along(step, step.reduced) <= _distance_along(step, step.spatial)


def _distance_along(step: ScheduleBlock, axes: Sequence[Axis]) -> int:
    """Returns the stride along the innermost of the axes in the largest tensor that is read."""
    written = {write.source for write in step.writes}
    loads = [load for load in step.loads if load.source not in written]
    moving = [axis.var for axis in axes if may_exceed(axis.size, 1)]
    if not loads or not moving:
        return _ANYWHERE
    largest = max(loads, key=lambda load: size_hint(elements_of(load.source)))
    linear = detect_linear_equation(Analyzer().simplify(flat_offset(largest.source, largest.indices)), moving)
    steps = [abs(size_hint(size_of(distance))) for distance in linear[:-1] if is_size(distance)] if linear else []
    return min((distance for distance in steps if distance), default=_ANYWHERE)


@dataclass(frozen=True)
class _Trial:
    """One reduction on its way to threads, in a schedule that is thrown away if the way is not one for it.

    Attributes:
        last: the element-wise step that joins the launch and writes the results; None if the reduction does itself.
    """

    sch: s_tir.Schedule
    step: ScheduleBlock
    last: str | None
    target: GpuTarget

    @property
    def block(self) -> SBlockRV:
        """The reduction."""
        return self.sch.get_sblock(self.step.name)

    def each_thread_a_result(self) -> None:
        """Sums in registers, the elements one after the other."""
        spatial, reduced = self._loops()
        writers = self._in_registers(self.block, self.last, own_results_too=True)
        thread = bind_flat(self.sch, spatial, self.target)
        for writer in writers:
            self._move(writer, thread)
        self.sch.decompose_reduction(self.block, reduced[0])

    def by_rows(self) -> None:
        """A warp or a block of threads for each result."""
        results, entries = (fused(self.sch, loops) for loops in self._loops())
        self._bind_rows(self.block, self.last, results, entries)

    def by_columns(self) -> None:
        """Some neighbouring results for each block, whose lines of threads share the elements out."""
        results, entries = (fused(self.sch, loops) for loops in self._loops())
        self._bind_columns(self.block, self.last, results, entries)

    def in_parts(self) -> None:
        """Two launches: the first sums parts up, the second the parts.

        total[r] = sum of x[r, all]    →    parts[r, p] = sum of x[r, part p];  total[r] = sum of parts[r, all]
        """
        sch, block, in_rows = self.sch, self.block, _lies_in_rows(self.step)
        all_elements = _elements(self.step)
        results, entries = (fused(sch, loops) for loops in self._loops())
        width = 1 if in_rows else self.target.threads_per_warp
        wanted = self.target.gpu.processors * width // size_hint(self.step.elements)
        count = largest_divisor(all_elements, max(2, min(wanted, size_hint(all_elements) // _PART)))
        if count == 1:
            raise s_tir.ScheduleError("elements do not distribute evenly")
        part, _ = sch.split(entries, [count, None])
        parts = sch.rfactor(part, len(sch.get(block).writes[0].region) if in_rows else 0)
        results, part, element = sch.get_loops(parts)
        if in_rows:
            self._bind_rows(parts, None, fused(sch, [results, part]), element)
            self._bind_rows(block, self.last, *sch.get_loops(block))
        else:
            sch.reorder(part, results, element)
            self._bind_columns(parts, None, fused(sch, [part, results]), element)
            self._bind_columns(block, self.last, *sch.get_loops(block))

    def _bind_rows(self, block: SBlockRV, last: str | None, results: LoopRV, entries: LoopRV) -> None:
        sch, count = self.sch, trip_count(self.sch, results)
        threads = threads_of_row(count, trip_count(sch, entries), self.target)
        writers = self._in_registers(block, last, own_results_too=False)
        of_grid, row = sch.split(results, [None, rows_at_once(count, threads, self.target)])
        _, thread = sch.split(entries, [None, threads])
        sch.bind(of_grid, "blockIdx.x")
        sch.bind(row, "threadIdx.y")
        sch.bind(thread, "threadIdx.x")
        self._write_once(writers, row, "threadIdx.x", threads)

    def _bind_columns(self, block: SBlockRV, last: str | None, results: LoopRV, entries: LoopRV) -> None:
        sch, count = self.sch, trip_count(self.sch, results)
        warp = self.target.threads_per_warp
        width = largest_divisor(count, warp)  # no thread may be left over: results are written unasked
        if width < min(size_hint(count), _MIN_WIDTH):
            raise s_tir.ScheduleError("columns do not distribute evenly")
        lines = 1
        while lines < warp and lines * _ELEMENTS_OF_A_THREAD < size_hint(trip_count(sch, entries)):
            lines *= 2
        writers = self._in_registers(block, last, own_results_too=False)
        of_grid, column = sch.split(results, [None, width])
        _, line = sch.split(entries, [None, lines])
        sch.bind(of_grid, "blockIdx.x")
        sch.bind(column, "threadIdx.x")
        sch.bind(line, "threadIdx.y")
        self._write_once(writers, column, "threadIdx.y", lines)

    def _loops(self) -> tuple[list[LoopRV], list[LoopRV]]:
        """Returns the loops over results and those over elements, at least one of each, the latter inside."""
        loops = self.sch.get_loops(self.block)
        results = [loop for axis, loop in zip(self.step.axes, loops, strict=True) if not axis.is_reduced]
        entries = [loop for axis, loop in zip(self.step.axes, loops, strict=True) if axis.is_reduced]
        self.sch.reorder(*results, *entries)
        return results or [self.sch.add_unit_loop(entries[0])], entries

    def _in_registers(self, block: SBlockRV, last: str | None, own_results_too: bool) -> list[SBlockRV]:
        """Keeps results in registers that nothing but the step `last` reads; returns it, and what writes the others.

        Args:
            own_results_too: those that are the function's, too, which another step then copies.
        """
        step = step_of(self.sch, block)
        writers = [] if last is None else [self.sch.get_sblock(last)]
        parameters = list(self.sch.mod["main"].params)
        inner = [
            {*step.consumers} <= {last} and not any(write.source.same_as(param) for param in parameters)
            for write in step.writes
        ]
        for index, is_inner in enumerate(inner):
            if is_inner:  # results that threads share may be in registers all, or none of them
                self.sch.set_scope(block, index, "local" if own_results_too or all(inner) else "shared")
            elif own_results_too:
                writers.append(self.sch.cache_write(block, index, "local"))
        return writers

    def _write_once(self, writers: list[SBlockRV], loop: LoopRV, axis: str, threads: int) -> None:
        """Lets the first of the threads along an axis, which all know a result, write what is made of it."""
        for writer in writers:
            self._move(writer, loop)
            _, first = self.sch.split(self.sch.add_unit_loop(writer), [None, threads])
            self.sch.bind(first, axis)

    def _move(self, writer: SBlockRV, loop: LoopRV) -> None:
        """Computes a step that reads the results where these are computed."""
        self.sch.reverse_compute_at(writer, loop)
        if not covers_result(self.sch, writer):
            raise s_tir.ScheduleError("a step would be computed in part only")
