"""Schedules row-wise reductions and the element-wise blocks around them (softmax, layer normalization) row by row.

for row in parallel:
    partial[4][lanes] = start
    for the row, in vectors, four at a time: partial[i][:] = combine(partial[i][:], x[row, :])
    total = combine of the lanes of the combined four
    for the row, in vectors: y[row, :] = f(x[row, :], total)

The steps of a kernel, for rows of 8 and a vector of 4:

    m[i, 0]  = max over j of x[i, j]            a reduction that keeps its axis; becomes a partial one, and one of lanes
    e[i, j]  = exp(x[i, j] - m[i, 0])           element-wise along rows, costly: once, where its first reader is
    b[j]     = scale[j] * 2                     of no row: computed where it is read
    y[i, j]  = e[i, j] * b[j]                   the output, whose loop over `i` all others move into
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tvm import s_tir, tirx
from tvm.ir import Range
from tvm.ir.expr import Call, TensorLoad
from tvm.s_tir.schedule import LoopRV

from nnefc.passes.schedule.analysis import Axis, KernelAnalysis, ScheduleBlock, step_of, steps_of
from nnefc.passes.schedule.cpu.vectors import in_vectors
from nnefc.passes.schedule.full_tiles import rows_in_full_vectors
from nnefc.passes.schedule.reducers import register_reducer
from nnefc.passes.schedule.schedules import SBlockRV, fused, is_reduction, root_blocks, trip_count
from nnefc.passes.tir.common.expressions import parts_of
from nnefc.passes.tir.common.shapes import Size
from nnefc.symbolic.dims import element_count, is_known, may_exceed, size_hint
from nnefc.targets.machine.cpu.target import Target

__all__ = ["RowReductionRule"]

_MAX_AT_ONCE = (4, 2)
_MIN_ITERATIONS = 4
"""The number of independent partial vectors of a reduction, and the fewest iterations over all of them in a row."""


class RowReductionRule:
    """Schedules reductions over the last axes of the same rows, which keep the reduced axes, with element-wise
    steps.
    """

    def apply(self, kernel: KernelAnalysis, target: Target) -> s_tir.Schedule | None:
        rows = _common_rows(kernel.reductions)
        if rows is None or len(kernel.outputs) != 1 or not kernel.outputs[0].trip_counts:
            return None  # TVM cannot compute anything at the only element of a scalar
        sch = kernel.schedule()
        _inline_operands_of_all_rows(sch, rows)
        steps = steps_of(sch)
        made = {step.result for step in steps}
        if not all(_is_of_rows(step, rows, made) for step in steps):
            return None
        output = sch.get_sblock(kernel.outputs[0].name)
        _inline_cheap_blocks(sch, kernel.outputs[0].name)
        lengths = [axis.size for step in steps_of(sch) for axis in step.axes[-1:]]
        lanes = _lanes_of_rows(lengths, step_of(sch, output).dtype, target)
        if any(not is_known(length) and length % lanes != 0 for length in lengths):
            vectorized = rows_in_full_vectors(sch, len(rows), lanes)
            if vectorized is not None:
                sch, output = vectorized, vectorized.get_sblock(kernel.outputs[0].name)
        _compute_row_by_row(sch, output, rows, lanes, target)
        return sch


def _lanes_of_rows(lengths: Sequence[Size | int], dtype: str, target: Target) -> int:
    """Returns the elements of a vector along rows: for narrow types, which are computed in float32, as few as divide
    all rows of known lengths.
    """
    lanes, fewest = target.lanes(dtype), target.lanes("float32")
    while lanes > fewest and any(is_known(length) and length != 1 and length % lanes for length in lengths):
        lanes //= 2
    return lanes


def _common_rows(reductions: Sequence[ScheduleBlock]) -> tuple[Size, ...] | None:
    """Returns the sizes of the axes that count the rows, if these are the same for all reductions."""
    shapes = {_rows_of(step) for step in reductions}
    return shapes.pop() if len(shapes) == 1 else None


def _rows_of(step: ScheduleBlock) -> tuple[Size, ...] | None:
    """Returns the sizes of the rows' axes of a reduction that keeps its reduced axes, the last ones."""
    rank = len(step.spatial) - len(step.reduced)
    if rank < 0 or any(axis.size != 1 for axis in step.spatial[rank:]):
        return None
    for read in step.reads:  # the row must be read along its axes, and nothing else
        if len(read.region) < rank or not all(map(_goes_along, read.region[:rank], step.axes)):
            return None
    return tuple(axis.size for axis in step.spatial[:rank])


def _goes_along(position: Range, axis: Axis) -> bool:
    return bool(position.min.same_as(axis.var))


def _is_of_rows(step: ScheduleBlock, rows: tuple[Size, ...], made: Collection[tirx.Var]) -> bool:
    """Whether a step works row by row: its first axes are the rows', it writes each element at its own index, and reads
    only the same row of results in `made`.
    """
    axes = step.axes[: len(rows)]
    if tuple(axis.size for axis in axes) != rows or len(step.writes) != 1:
        return False
    own = [*step.writes, *(read for read in step.reads if read.source in made)]
    return all(
        axis.size == 1 or _goes_along(position, axis)
        for region in own
        for position, axis in zip(region.region[: len(rows)], axes, strict=False)
    )


def _inline_operands_of_all_rows(sch: s_tir.Schedule, rows: tuple[Size, ...]) -> None:
    """Inlines cheap steps on operands that all rows, or several, share."""
    for block in root_blocks(sch):
        step = step_of(sch, block)
        if step.is_reduction or step.producers or not step.consumers or not step.trip_counts:
            continue
        if not _is_of_rows(step, rows, ()) and _is_element_wise(step) and not _is_costly(step):
            sch.compute_inline(block)


def _inline_cheap_blocks(sch: s_tir.Schedule, output: str) -> None:
    """Inlines cheap steps into their readers; costly ones only if they are used once."""
    for block in root_blocks(sch):
        step = step_of(sch, block)
        if not step.is_reduction and step.name != output and (len(step.consumers) == 1 or not _is_costly(step)):
            sch.compute_inline(block)


def _compute_row_by_row(
    sch: s_tir.Schedule, output: SBlockRV, rows: tuple[Size, ...], lanes: int, target: Target
) -> None:
    """Makes one loop over the rows with all steps inside, each of them along the row in vectors."""
    longest, partial = _reduce_in_lanes(sch, lanes)
    row = _row_loop(sch, output, len(rows))
    for block in reversed(root_blocks(sch)):
        if sch.get(block).name_hint != sch.get(output).name_hint:
            sch.compute_at(block, row, preserve_unit_loops=True)
    along_row = [(block, sch.get_loops(block)[1:]) for block in sch.get_child_blocks(row)]
    accumulated = []
    for block, loops in along_row:
        if sch.get(block).name_hint in partial:
            accumulated.append((block, _accumulate_in_vectors(sch, block, loops)))
        elif not is_reduction(sch, block) and loops:
            _vectorize(sch, block, loops, lanes, target)
    if size_hint(element_count(rows)) > 1 and size_hint(element_count(rows) * longest) >= target.parallel_grain:
        sch.parallel(row)
    for block, step in accumulated:  # last, for the other primitives refuse a block in two parts
        sch.vectorize(sch.get_loops(sch.decompose_reduction(block, step))[-1])


def _reduce_in_lanes(sch: s_tir.Schedule, lanes: int) -> tuple[Size, set[str]]:
    """Gives reductions of rows of several full vectors a partial result for each lane.

    Returns:
        The length of the longest row, and the names of the new steps that compute partial results.
    """
    longest, partial = 0, set()
    for block in root_blocks(sch):
        step = step_of(sch, block)
        if step.is_reduction:
            first = next(position for position, axis in enumerate(step.axes) if axis.is_reduced)
            column = _joined(sch, sch.get_loops(block)[first:])
            length = trip_count(sch, column)
            longest = max(longest, size_hint(element_count([axis.size for axis in step.reduced])))
            if length % lanes == 0 and may_exceed(length, lanes):
                register_reducer(sch.get(block))
                vectors = _vectors_at_once(length, lanes)
                _, lane = sch.split(column, [None, vectors * lanes])
                partial.add(sch.get(sch.rfactor(lane, first)).name_hint)
                if vectors > 1:  # joined into one vector before its lanes are joined
                    _, lane = sch.split(sch.get_loops(block)[-1], [None, lanes])
                    partial.add(sch.get(sch.rfactor(lane, first)).name_hint)
    return longest, partial


def _vectors_at_once(length: Size, lanes: int) -> int:
    """Returns the number of independent partial results of a long row, which hides the latency of the combiner."""
    fitting = (count for count in _MAX_AT_ONCE if length % (count * lanes) == 0)
    return next((count for count in fitting if size_hint(length) >= _MIN_ITERATIONS * count * lanes), 1)


def _joined(sch: s_tir.Schedule, loops: Sequence[LoopRV]) -> LoopRV:
    """Fuses the loops along a row, or returns the last one where dividing by its trip count would take time."""
    return fused(sch, loops) if is_known(*(trip_count(sch, loop) for loop in loops[1:])) else loops[-1]


def _row_loop(sch: s_tir.Schedule, output: SBlockRV, rank: int) -> LoopRV:
    """Fuses the loops over the output's rows; makes one if there is a single row."""
    loops = sch.get_loops(output)
    return fused(sch, loops[:rank]) if rank else sch.add_unit_loop(loops[0])


def _accumulate_in_vectors(sch: s_tir.Schedule, block: SBlockRV, loops: Sequence[LoopRV]) -> LoopRV:
    """Orders the loops of a block made by `rfactor`: along the row outside, which is returned, the lanes inside."""
    axes = step_of(sch, block).axes
    steps = [loop for axis, loop in zip(axes, loops, strict=True) if axis.is_reduced]
    lane = next(loop for axis, loop in zip(axes, loops, strict=True) if axis.is_spatial and trip_count(sch, loop) != 1)
    sch.reorder(*steps, lane)
    sch.vectorize(lane)
    return steps[0]


def _vectorize(sch: s_tir.Schedule, block: SBlockRV, loops: Sequence[LoopRV], lanes: int, target: Target) -> None:
    """Vectorizes loops along a row, where vectors fit; not functions that would be inlined once for each register."""
    step = step_of(sch, block)
    column = _joined(sch, loops)
    if trip_count(sch, column) % lanes == 0 and not (target.vectors.are_scalars and _is_costly(step)):
        in_vectors(sch, column, lanes, step.value, target)


def _is_element_wise(step: ScheduleBlock) -> bool:
    """Whether a step writes each element at its own index."""
    if len(step.writes) != 1 or len(step.writes[0].region) != len(step.axes):
        return False
    return all(map(_goes_along, step.writes[0].region, step.axes))


def _is_costly(step: ScheduleBlock) -> bool:
    """Whether a step calls an elementary function."""
    return step.value is not None and _has_call(step.value)


def _has_call(expr: tirx.Expr) -> bool:
    match expr:
        case TensorLoad():
            return False
        case Call():
            return True
    return any(map(_has_call, parts_of(expr)))
