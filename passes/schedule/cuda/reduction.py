"""Reductions: how threads share the work depends on where neighbours lie in memory, and on how many results there are.

    many results                a thread each, the sum in a register; neighbouring threads read neighbouring places
    rows                        a warp or a block each; the threads' sums are joined by shuffles
    columns                     32 of them a block; each 32 threads of it go through every n-th line
    few results of many items   parts of them in a first launch, which a second one joins

The element-wise steps before and after are part of the same launch.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import tvm
from tvm import s_tir, tirx
from tvm.s_tir.schedule import LoopRV
from tvm.sym import Analyzer, detect_linear_equation

from nnefc.passes.schedule.cuda.analysis import flat_index, loads_of, values_of
from nnefc.passes.schedule.cuda.element_wise import bind_elements
from nnefc.passes.schedule.cuda.joining import is_simple, join_steps
from nnefc.passes.schedule.cuda.shared_reductions import can_share_reductions
from nnefc.passes.schedule.cuda.threads import bind_flat, fused, rows_at_once, threads_of_row
from nnefc.passes.schedule.reducers import register_reducer
from nnefc.passes.schedule.structure import (
    SBlockRV,
    covers_result,
    is_reduction,
    largest_divisor,
    root_blocks,
    schedule_of,
)
from nnefc.targets.machine.cuda_target import CudaTarget

__all__ = ["ReductionRule"]

_LEAST_SHARED = 32  # items of a sum that are worth more than one thread
_LEAST_WIDTH = 8  # columns of a block: 32 bytes, the least that memory gives at once
_MANY = 1 << 15  # results that keep a device busy with a thread each
_ITEMS_OF_A_THREAD = 8  # of a column, before it gets more threads
_LONG = 1 << 14  # items of a sum that are worth two launches, if there are few sums
_FEW_BLOCKS = 64  # that leave most of a device idle
_PART = 1 << 12  # items that a block of the first launch sums up at least


class ReductionRule:
    """Any number of reductions and element-wise steps; each reduction with the step after it is a launch of its own."""

    def apply(self, func: tirx.PrimFunc, target: CudaTarget) -> s_tir.Schedule | None:
        func = s_tir.transform.StmtSimplify()(tvm.IRModule({"main": func}))["main"]
        sch = schedule_of(func)
        blocks = root_blocks(sch)
        if not any(is_reduction(sch, b) for b in blocks) or not all(is_simple(sch, b) for b in blocks):
            return None
        join_steps(sch)
        bound: set[str] = set()
        for name in [sch.get(block).name_hint for block in root_blocks(sch)]:
            block = sch.get_sblock(name)
            if name in bound:
                continue
            if not is_reduction(sch, block):
                bind_elements(sch, block, target)
                continue
            register_reducer(sch.get(block))
            epilogue = _epilogue(sch, block)
            sch = _first_that_fits(sch, name, epilogue, target)
            bound.add(epilogue or name)
        return sch


@dataclass(frozen=True)
class _Shape:
    """Of a reduction: how many results, of how many items each, and whether those of one lie side by side."""

    results: int
    items: int
    in_rows: bool


def _shape(node: s_tir.SBlock) -> _Shape:
    axes = list(node.iter_vars)
    reduced = [axis for axis in axes if axis.iter_type == tirx.IterVar.CommReduce]
    items = math.prod(int(axis.dom.extent) for axis in reduced)
    results = math.prod(int(axis.dom.extent) for axis in axes) // max(1, items)
    others = [axis for axis in axes if axis.iter_type != tirx.IterVar.CommReduce]
    return _Shape(results, items, _step_along(node, reduced) <= _step_along(node, others))


def _step_along(node: s_tir.SBlock, axes: Sequence[tirx.IterVar]) -> int:
    """How far apart in memory neighbours along the nearest of the axes lie, in the largest tensor that is read."""
    written = {store.source for store in node.writes}
    loads = [load for value in values_of(node.body) for load in loads_of(value) if load.source not in written]
    moving = [axis.var for axis in axes if int(axis.dom.extent) > 1]
    if not loads or not moving:
        return 1 << 62
    largest = max(loads, key=lambda load: math.prod(map(int, load.source.shape)))
    linear = detect_linear_equation(Analyzer().simplify(flat_index(largest.source, largest.indices)), moving)
    steps = [abs(int(step)) for step in linear[:-1] if isinstance(step, tirx.IntImm)] if linear else []
    return min((step for step in steps if step), default=1 << 62)


def _epilogue(sch: s_tir.Schedule, block: SBlockRV) -> str | None:
    """The one step that reads a reduction's results, each of its elements one of them, in their order."""
    readers = sch.get_consumers(block)
    if len(readers) != 1 or is_reduction(sch, readers[0]):
        return None
    node, reader = sch.get(block), sch.get(readers[0])
    results = math.prod(int(a.dom.extent) for a in node.iter_vars if a.iter_type == tirx.IterVar.DataPar)
    elements = math.prod(int(axis.dom.extent) for axis in reader.iter_vars)
    makers = {sch.get(maker).name_hint for maker in sch.get_producers(readers[0]) if is_reduction(sch, maker)}
    return str(reader.name_hint) if results == elements and makers == {node.name_hint} else None


def _first_that_fits(sch: s_tir.Schedule, name: str, epilogue: str | None, target: CudaTarget) -> s_tir.Schedule:
    """The schedule with the reduction bound to threads in the best of the ways that it allows."""
    shape = _shape(sch.get(sch.get_sblock(name)))
    for way in _ways(shape):
        for last in dict.fromkeys((epilogue, None)):
            trial = sch.copy()
            try:
                way(trial, name, last, shape, target)
            except (s_tir.ScheduleError, tvm.error.InternalError):  # TVM's own, where it factors some scalars
                continue
            if not can_share_reductions(trial):
                continue
            if last != epilogue:
                bind_elements(trial, trial.get_sblock(epilogue), target)
            return trial
    raise s_tir.ScheduleError(f"{name} cannot be bound to threads")


_Way: TypeAlias = "Callable[[s_tir.Schedule, str, str | None, _Shape, CudaTarget], None]"


def _ways(shape: _Shape) -> Iterator[_Way]:
    """The ways to share a reduction out that are worth trying, the best first."""
    shared = shape.results > 0 and shape.items >= _LEAST_SHARED
    if shared and shape.items >= _LONG and shape.results // (1 if shape.in_rows else 32) < _FEW_BLOCKS:
        yield _in_parts
    if shared and shape.in_rows:
        yield _by_rows
    if shared and not shape.in_rows and shape.results < _MANY:
        yield _by_columns
    yield _each_thread_a_result


def _each_thread_a_result(sch: s_tir.Schedule, name: str, last: str | None, _: _Shape, target: CudaTarget) -> None:
    block = sch.get_sblock(name)
    spatial, reduced = _loops(sch, block)
    writers = _in_registers(sch, block, last, own_results_too=True)
    thread = bind_flat(sch, spatial, target)
    for writer in writers:
        sch.reverse_compute_at(writer, thread)
        _require_all_of(sch, writer)
    sch.decompose_reduction(block, reduced[0])


def _by_rows(sch: s_tir.Schedule, name: str, last: str | None, shape: _Shape, target: CudaTarget) -> None:
    block = sch.get_sblock(name)
    results, items = (fused(sch, loops) for loops in _loops(sch, block))
    _bind_rows(sch, block, last, (results, items), target)


def _bind_rows(
    sch: s_tir.Schedule, block: SBlockRV, last: str | None, loops: tuple[LoopRV, LoopRV], target: CudaTarget
) -> None:
    """A warp or a block for each result."""
    results, items = (int(sch.get(loop).extent) for loop in loops)
    threads = threads_of_row(results, items, target)
    writers = _in_registers(sch, block, last, own_results_too=False)
    of_grid, row = sch.split(loops[0], [None, rows_at_once(results, threads, target)])
    _, thread = sch.split(loops[1], [None, threads])
    sch.bind(of_grid, "blockIdx.x")
    sch.bind(row, "threadIdx.y")
    sch.bind(thread, "threadIdx.x")
    _write_once(sch, writers, row, "threadIdx.x", threads)


def _by_columns(sch: s_tir.Schedule, name: str, last: str | None, shape: _Shape, target: CudaTarget) -> None:
    block = sch.get_sblock(name)
    results, items = (fused(sch, loops) for loops in _loops(sch, block))
    _bind_columns(sch, block, last, (results, items), target)


def _bind_columns(
    sch: s_tir.Schedule, block: SBlockRV, last: str | None, loops: tuple[LoopRV, LoopRV], target: CudaTarget
) -> None:
    """Some neighbouring results for each block, whose lines of threads share the items out."""
    results, items = (int(sch.get(loop).extent) for loop in loops)
    width = largest_divisor(results, target.threads_per_warp)  # no thread may be left over: results are written unasked
    if width < min(results, _LEAST_WIDTH):
        raise s_tir.ScheduleError("columns do not share out evenly")
    lines = 1
    while lines < target.threads_per_warp and lines * _ITEMS_OF_A_THREAD < items:
        lines *= 2
    writers = _in_registers(sch, block, last, own_results_too=False)
    of_grid, column = sch.split(loops[0], [None, width])
    _, line = sch.split(loops[1], [None, lines])
    sch.bind(of_grid, "blockIdx.x")
    sch.bind(column, "threadIdx.x")
    sch.bind(line, "threadIdx.y")
    _write_once(sch, writers, column, "threadIdx.y", lines)


def _in_parts(sch: s_tir.Schedule, name: str, last: str | None, shape: _Shape, target: CudaTarget) -> None:
    """Two launches: the first sums parts up, the second the parts."""
    block = sch.get_sblock(name)
    results, items = (fused(sch, loops) for loops in _loops(sch, block))
    width = 1 if shape.in_rows else target.threads_per_warp
    wanted = 2 * _FEW_BLOCKS * width // shape.results
    count = largest_divisor(shape.items, max(2, min(wanted, shape.items // _PART)))
    if count == 1:
        raise s_tir.ScheduleError("items do not share out evenly")
    part, _ = sch.split(items, [count, None])
    rank = len(sch.get(block).writes[0].region)
    parts = sch.rfactor(part, rank if shape.in_rows else 0)
    results, part, item = sch.get_loops(parts)
    if shape.in_rows:
        _bind_rows(sch, parts, None, (fused(sch, [results, part]), item), target)
    else:
        sch.reorder(part, results, item)
        _bind_columns(sch, parts, None, (fused(sch, [part, results]), item), target)
    bind = _bind_rows if shape.in_rows else _bind_columns
    bind(sch, block, last, tuple(sch.get_loops(block)), target)


def _loops(sch: s_tir.Schedule, block: SBlockRV) -> tuple[list[LoopRV], list[LoopRV]]:
    """The loops over results and those over items, at least one of each, the latter inside."""
    axes, loops = list(sch.get(block).iter_vars), sch.get_loops(block)
    kinds = [axis.iter_type == tirx.IterVar.CommReduce for axis in axes]
    results = [loop for loop, reduced in zip(loops, kinds, strict=True) if not reduced]
    items = [loop for loop, reduced in zip(loops, kinds, strict=True) if reduced]
    sch.reorder(*results, *items)
    return results or [sch.add_unit_loop(items[0])], items


def _in_registers(sch: s_tir.Schedule, block: SBlockRV, last: str | None, own_results_too: bool) -> list[SBlockRV]:
    """Keep results in registers that nothing but the step `last` reads; returns it, and what writes the others.

    Args:
        own_results_too: those that are the function's, too, which another step then copies.
    """
    writers = [] if last is None else [sch.get_sblock(last)]
    readers = {sch.get(reader).name_hint for reader in sch.get_consumers(block)}
    results = [region.source for region in sch.get(block).writes]
    parameters = list(sch.mod["main"].params)
    inner = [readers <= {last} and not any(result.same_as(p) for p in parameters) for result in results]
    for index, is_inner in enumerate(inner):
        if is_inner:  # results that threads share may be in registers all, or none of them
            sch.set_scope(block, index, "local" if own_results_too or all(inner) else "shared")
        elif own_results_too:
            writers.append(sch.cache_write(block, index, "local"))
    return writers


def _write_once(sch: s_tir.Schedule, writers: list[SBlockRV], loop: LoopRV, axis: str, threads: int) -> None:
    """Let the first of the threads along an axis, which all know a result, write what is made of it."""
    for writer in writers:
        sch.reverse_compute_at(writer, loop)
        _require_all_of(sch, writer)
        _, first = sch.split(sch.add_unit_loop(writer), [None, threads])
        sch.bind(first, axis)


def _require_all_of(sch: s_tir.Schedule, block: SBlockRV) -> None:
    if not covers_result(sch, block):
        raise s_tir.ScheduleError("a step would be computed in part only")
