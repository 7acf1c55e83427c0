"""Schedules all other kernels: inlines element-wise blocks, parallelizes outer loops, vectorizes inner loops."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from tvm import s_tir, tirx
from tvm.ir.expr import Call, TensorLoad
from tvm.s_tir.schedule import LoopRV, SBlockRV

from nnefc.ir.attributes import STAGED
from nnefc.passes.schedule.analysis import Axis, KernelAnalysis, ScheduleBlock, step_of
from nnefc.passes.schedule.cpu.vectors import in_vectors
from nnefc.passes.schedule.full_tiles import in_full_tiles
from nnefc.passes.schedule.schedules import largest_divisor, root_blocks, trip_count, vector_lanes
from nnefc.passes.tir.common.expressions import IF_THEN_ELSE, inside, int64, is_number, loads_of, variables_of
from nnefc.passes.tir.common.partition_loops import is_cut_along
from nnefc.passes.tir.common.shapes import Size
from nnefc.symbolic.dims import is_known, size_hint
from nnefc.targets.machine.cpu.target import Target

__all__ = ["FallbackRule"]

_LINES_AT_ONCE = 4  # of a transposition, where fewer are left than a tile has
_FEWEST_BYTES = 8
"""The fewest bytes in a vector where rows of bytes are not full vectors: bytes are computed in wider types, of which
these are one vector.
"""

_PARALLEL_ITERATIONS = 64  # of a parallel loop that can be distributed evenly


class FallbackRule:
    """Schedules any computation: each block by itself, except that element-wise blocks are inlined into their
    readers.
    """

    def apply(self, kernel: KernelAnalysis, target: Target) -> s_tir.Schedule | None:
        sch = kernel.schedule()
        for step in kernel.steps:
            if step.consumers and not step.is_reduction and STAGED not in step.node.annotations:
                with suppress(s_tir.ScheduleError):  # not of the form that can be inlined: it keeps its own loops
                    sch.compute_inline(sch.get_sblock(step.name))
        sch = _in_tiles(sch, target)
        for block in root_blocks(sch):
            self._schedule(sch, block, step_of(sch, block), target)
        return sch

    def _schedule(self, sch: s_tir.Schedule, block: SBlockRV, step: ScheduleBlock, target: Target) -> None:
        loops = sch.get_loops(block)
        spatial = next((n for n, axis in enumerate(step.axes) if axis.is_reduced), len(loops))
        own_loops = len(loops) == len(step.axes) and all(axis.is_spatial for axis in step.axes[:spatial])
        if not own_loops or not spatial:
            return
        large = size_hint(step.iterations) >= target.parallel_grain
        single = large and size_hint(trip_count(sch, *loops[:-1])) == 1  # threads can share nothing but the last loop
        if step.is_reduction:
            along = spatial - 1 if _is_of_windows(step, spatial - 1) else spatial  # that loop is cut at its ends
            outer = loops[: along if size_hint(trip_count(sch, *loops[:along])) > 1 else spatial]
        elif _looks_up_each(step):  # of vectors, lanes would be taken out and put in one by one
            parts = _even_parts(step.trip_counts[-1]) if single else 1
            outer = sch.split(loops[-1], [parts, None])[:1] if parts > 1 else loops[:-1]
        elif _is_cut_along(step, step.axes[-1]) and not single:
            outer = loops[:-1]
        elif _is_cut_along(step, step.axes[-1]) and (parts := _even_parts(step.trip_counts[-1])) > 1:
            outer = sch.split(loops[-1], [parts, None])[:1]
        elif not _gathers_along(step, step.axes[-1]):
            outer = self._vectorize(sch, step, loops, target)
        elif (partner := _partner(step)) is not None and not (target.vectors.by_lane and _looks_up(step)):
            outer = self._transpose(sch, step, loops, partner, target)
        else:
            outer = _bring_forward(sch, loops)[:-1]
        if outer and large and size_hint(trip_count(sch, *outer)) > 1:
            sch.parallel(sch.fuse(*_enough(sch, outer)))

    def _transpose(
        self, sch: s_tir.Schedule, step: ScheduleBlock, loops: list[LoopRV], partner: int, target: Target
    ) -> list[LoopRV]:
        """Transposes tiles in registers: reads lines of the source, writes lines of the result. Returns the loops
        around them.
        """
        lanes = target.lanes(step.dtype)
        last = len(loops) - 1
        length = largest_divisor(step.trip_counts[last], lanes)
        count = largest_divisor(step.trip_counts[partner], lanes)
        column, lane = sch.split(loops[last], [None, length])
        line, inner_line = sch.split(loops[partner], [None, count])
        outer = [line if axis == partner else loop for axis, loop in enumerate(loops[:last])]
        sch.reorder(*outer, column, inner_line, lane)
        if length > 1 and not _chooses_by(step, step.axes[last]):
            sch.vectorize(lane)
        sch.unroll(inner_line)
        around = [*outer, column]
        tiled = [axis for axis in (partner, last) if not is_known(step.trip_counts[axis])]
        return around[: min(tiled)] if tiled else around  # the loops over tiles that the last one of is smaller stay

    def _vectorize(self, sch: s_tir.Schedule, step: ScheduleBlock, loops: list[LoopRV], target: Target) -> list[LoopRV]:
        """Vectorizes the last loop where full vectors fit; LLVM may still do it elsewhere. Returns the loops
        around it.
        """
        *outer, last = loops
        size = step.trip_counts[-1]
        lanes = vector_lanes(size, target.lanes(step.dtype))
        while is_known(size) and size % lanes and lanes >= 2 * _FEWEST_BYTES and lanes > target.lanes("float32"):
            lanes //= 2
        if is_known(size) and size % lanes:
            return outer
        vectors = in_vectors(sch, last, lanes, step.value, target)
        return [*outer, vectors] if size_hint(trip_count(sch, *outer)) == 1 else outer


def _in_tiles(sch: s_tir.Schedule, target: Target) -> s_tir.Schedule:
    """Returns a kernel that moves data as a transposition does, in full tiles along the axes of them that are open."""
    if len(root_blocks(sch)) != 1:
        return sch
    step = step_of(sch, root_blocks(sch)[0])
    if step.is_reduction or not step.axes or not step.loops_are_axes or not _gathers_along(step, step.axes[-1]):
        return sch
    lanes, partner = target.lanes(step.dtype), _partner(step)
    if partner is not None and not is_known(step.sizes[partner]):
        fewer = [lines for lines in (_LINES_AT_ONCE, 1) if lines < lanes]
        return in_full_tiles(sch, step.name, partner, lanes, fewer) or sch
    return sch


def _enough(sch: s_tir.Schedule, loops: list[LoopRV]) -> list[LoopRV]:
    """Returns the first loops that together have an iteration for every thread: indices of fused loops cost
    divisions.
    """
    for count in range(1, len(loops)):
        if size_hint(trip_count(sch, *loops[:count])) >= _PARALLEL_ITERATIONS:
            return loops[:count]
    return loops


def _even_parts(size: Size) -> int:
    """Returns the number of equal parts into which a loop is distributed over threads; 1 for none, as with dynamic
    sizes.
    """
    return largest_divisor(size, _PARALLEL_ITERATIONS) if is_known(size) else 1


def _gathers_along(step: ScheduleBlock, axis: Axis) -> bool:
    """Whether neighbours along an axis of the result are read from distant addresses, as in layout conversions."""
    for read in step.reads:
        if len(read.region):
            *outer, last = (position.min for position in read.region)
            if not last.same_as(axis.var) and axis.var in variables_of([*outer, last]):
                return True
    return False


def _looks_up(step: ScheduleBlock) -> bool:
    """Whether a step reads an index from a table; the index is the same along the axes that the table lacks."""
    return any(isinstance(part, TensorLoad) for load in step.loads for index in load.indices for part in inside(index))


def _looks_up_each(step: ScheduleBlock) -> bool:
    """Whether a step only reads tables at indices that come element by element from a tensor in the result's layout."""
    own = [axis.var for axis in step.axes]
    return (
        bool(step.loads)
        and all(
            _is_at(load, own) or any(_is_at(part, own) for index in load.indices for part in loads_of(index))
            for load in step.loads
        )
        and any(loads_of(index) for load in step.loads for index in load.indices)
    )


def _is_at(load: TensorLoad, axes: Sequence[tirx.Var]) -> bool:
    """Whether a tensor is read at the element that these axes have."""
    if len(load.indices) != len(axes):
        return False
    return all(i.same_as(var) or is_number(i, 0) for i, var in zip(load.indices, axes, strict=True))


def _partner(step: ScheduleBlock) -> int | None:
    """Returns the axis of the result along which its only gathered operand is contiguous, as in a transposition."""
    partners: set[int] = set()
    for read in step.reads:
        if len(read.region):
            inner = variables_of([read.region[-1].min])
            partners |= {position for position, axis in enumerate(step.axes[:-1]) if axis.var in inner}
    return partners.pop() if len(partners) == 1 else None


def _is_cut_along(step: ScheduleBlock, axis: Axis) -> bool:
    """Whether a step selects by the index along an axis alone, so that its loop is partitioned where the choice
    changes.
    """
    if not isinstance(step.node.body, tirx.BufferStore):
        return False
    others = {other.var for other in step.axes} - {axis.var}
    return is_cut_along(axis.var, int64(axis.size), _choices(step) or (), others)


def _is_of_windows(step: ScheduleBlock, position: int) -> bool:
    """Whether a reduction is of windows along an axis, with conditions or clamped indices that depend on it."""
    if position < 1 or not isinstance(step.node.body, tirx.BufferStore):
        return False
    parts = [part for part in inside(step.node.body.value) if isinstance(part, tirx.Select | tirx.Min | tirx.Max)]
    return any(step.axes[position].var in variables_of([part]) for part in parts)


def _chooses_by(step: ScheduleBlock, axis: Axis) -> bool:
    """Whether a condition of a step depends on one of its axes: vectors of conditions would need masks."""
    choices = _choices(step)
    return choices is None or axis.var in variables_of(choice.args[0] for choice in choices)


def _choices(step: ScheduleBlock) -> list[Call] | None:
    """Returns the conditionals that compute only one of two values; None if a block does more than assign one value."""
    body = step.node.body
    while isinstance(body, tirx.IfThenElse) and body.else_case is None:  # of full tiles
        body = body.then_case
    if not isinstance(body, tirx.BufferStore):
        return None
    return [
        part for part in inside(body.value) if isinstance(part, Call) and getattr(part.op, "name", "") in IF_THEN_ELSE
    ]


def _bring_forward(sch: s_tir.Schedule, loops: list[LoopRV]) -> list[LoopRV]:
    """Makes the last loop the third, so that the inner ones step through both tensors at a fixed distance."""
    if len(loops) < 5:
        return loops
    *outer, last = loops
    sch.reorder(*outer[:2], last, *outer[2:])
    return [*outer[:2], last, *outer[2:]]
