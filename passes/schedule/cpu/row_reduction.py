"""Reductions of rows and the element-wise steps around them, as softmax and layer normalization: row after row.

for row in parallel:
    partial[lanes] = start
    for the row, in vectors: partial[:] = combine(partial[:], x[row, :])
    total = combine of the lanes of partial
    for the row, in vectors: y[row, :] = f(x[row, :], total)
"""

from __future__ import annotations

import math

from tvm import s_tir, tirx
from tvm.ir.expr import Call, TensorLoad
from tvm.s_tir.schedule import LoopRV

from nnefc.passes.schedule.reducers import register_reducer
from nnefc.passes.schedule.structure import SBlockRV, is_reduction, root_blocks, schedule_of
from nnefc.targets.machine.target import Target

__all__ = ["RowsRule"]


class RowsRule:
    """Reductions over the last axes, all of the same rows, which keep the reduced axes; and element-wise steps."""

    def apply(self, func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
        sch = schedule_of(func)
        reductions = [b for b in root_blocks(sch) if is_reduction(sch, b)]
        if not reductions:
            return None
        shapes = {_rows(sch, b) for b in reductions}
        rows = shapes.pop()
        if shapes or rows is None:
            return None
        outputs = [b for b in root_blocks(sch) if not sch.get_consumers(b)]
        if len(outputs) != 1 or not sch.get_loops(outputs[0]):
            return None  # TVM cannot compute anything at the only element of a scalar
        self._inline_spread(sch, rows)
        if not all(_is_of_rows(sch, b, rows) for b in root_blocks(sch)):
            return None
        self._inline(sch, outputs[0])
        self._schedule(sch, outputs[0], len(rows), math.prod(rows), target)
        return sch

    def _inline_spread(self, sch: s_tir.Schedule, rows: tuple[int, ...]) -> None:
        """Compute cheap steps on operands that all rows share, or several, where they are used."""
        for block in root_blocks(sch):
            if is_reduction(sch, block) or not sch.get_consumers(block) or not sch.get_loops(block):
                continue
            if not sch.get_producers(block) and not _is_of_rows(sch, block, rows) and _is_element_wise(sch, block):
                sch.compute_inline(block)

    def _inline(self, sch: s_tir.Schedule, output: SBlockRV) -> None:
        """Compute cheap steps where they are used; costly ones only if they are used once."""
        for block in root_blocks(sch):
            if is_reduction(sch, block) or sch.get(block).name_hint == sch.get(output).name_hint:
                continue
            if len(sch.get_consumers(block)) == 1 or not _is_costly(sch.get(block).body):
                sch.compute_inline(block)

    def _schedule(self, sch: s_tir.Schedule, output: SBlockRV, rank: int, rows: int, target: Target) -> None:
        lanes = target.lanes(str(sch.get(output).writes[0].source.dtype))
        partial: set[str] = set()
        longest = 0
        for block in root_blocks(sch):
            if is_reduction(sch, block):
                first = next(
                    i for i, a in enumerate(sch.get(block).iter_vars) if a.iter_type == tirx.IterVar.CommReduce
                )
                loops = sch.get_loops(block)
                column = sch.fuse(*loops[first:]) if len(loops) - first > 1 else loops[first]
                length = int(sch.get(column).extent)
                longest = max(longest, length)
                if length % lanes == 0 and length > lanes:
                    register_reducer(sch.get(block))
                    _, lane = sch.split(column, [None, lanes])
                    partial.add(sch.get(sch.rfactor(lane, first)).name_hint)
        loops = sch.get_loops(output)
        row = sch.fuse(*loops[:rank]) if rank > 1 else loops[0] if rank else sch.add_unit_loop(loops[0])
        for block in reversed(root_blocks(sch)):
            if sch.get(block).name_hint != sch.get(output).name_hint:
                sch.compute_at(block, row, preserve_unit_loops=True)
        steps = []  # of the sums in vectors, along their rows
        for block in sch.get_child_blocks(row):
            inner = sch.get_loops(block)[1:]
            if sch.get(block).name_hint in partial:
                steps.append((block, self._accumulate_in_vectors(sch, block, inner)))
            elif not is_reduction(sch, block) and inner:
                column = sch.fuse(*inner) if len(inner) > 1 else inner[0]
                if int(sch.get(column).extent) % lanes == 0:
                    _, lane = sch.split(column, [None, lanes])
                    sch.vectorize(lane)
        if rows > 1 and rows * longest >= target.parallel_grain:
            sch.parallel(row)
        for block, step in steps:  # last, for the other primitives refuse a block in two parts
            sch.vectorize(sch.get_loops(sch.decompose_reduction(block, step))[-1])

    def _accumulate_in_vectors(self, sch: s_tir.Schedule, block: SBlockRV, loops: list[LoopRV]) -> LoopRV:
        """Order the loops of a block made by `rfactor`: along the row outside, which is returned, the lanes inside."""
        axes = sch.get(block).iter_vars
        roles = list(zip(axes, loops, strict=True))
        step = next(loop for axis, loop in roles if axis.iter_type == tirx.IterVar.CommReduce)
        lane = next(
            loop for axis, loop in roles if axis.iter_type == tirx.IterVar.DataPar and int(sch.get(loop).extent) > 1
        )
        sch.reorder(step, lane)
        sch.vectorize(lane)
        return step


def _rows(sch: s_tir.Schedule, block: SBlockRV) -> tuple[int, ...] | None:
    """Extents of the rows' axes of a reduction that keeps its reduced axes, the last ones."""
    axes = list(sch.get(block).iter_vars)
    spatial = [int(a.dom.extent) for a in axes if a.iter_type == tirx.IterVar.DataPar]
    reduced = [int(a.dom.extent) for a in axes if a.iter_type == tirx.IterVar.CommReduce]
    rows = len(spatial) - len(reduced)
    if rows < 0 or any(extent != 1 for extent in spatial[rows:]):
        return None
    for region in sch.get(block).reads:  # the row must be read along its axes, and nothing else
        if [r.min.same_as(a.var) for r, a in zip(region.region[:rows], axes[:rows], strict=False)] != [True] * rows:
            return None
    return tuple(spatial[:rows])


def _is_of_rows(sch: s_tir.Schedule, block: SBlockRV, rows: tuple[int, ...]) -> bool:
    """Whether the block's first axes are the rows', and it writes each element of a row in its place."""
    node = sch.get(block)
    axes = list(node.iter_vars)[: len(rows)]
    if tuple(int(a.dom.extent) for a in axes) != rows or len(node.writes) != 1:
        return False
    own = node.writes[0].region[: len(rows)]
    if not all(int(a.dom.extent) == 1 or r.min.same_as(a.var) for r, a in zip(own, axes, strict=False)):
        return False
    inner = {
        producer_name
        for producer in sch.get_producers(block)
        for producer_name in [sch.get(producer).writes[0].source.name]
    }
    for read in node.reads:  # what other blocks of the kernel made is read from the same row
        if read.source.name in inner:
            pairs = zip(read.region[: len(rows)], axes, strict=False)
            if not all(int(a.dom.extent) == 1 or r.min.same_as(a.var) for r, a in pairs):
                return False
    return True


def _is_element_wise(sch: s_tir.Schedule, block: SBlockRV) -> bool:
    """Whether a block writes each element in its place, by cheap arithmetic."""
    node = sch.get(block)
    if len(node.writes) != 1 or _is_costly(node.body):
        return False
    places = zip(node.writes[0].region, node.iter_vars, strict=False)
    return len(node.writes[0].region) == len(node.iter_vars) and all(r.min.same_as(a.var) for r, a in places)


def _is_costly(node: object) -> bool:
    """Whether an expression calls an elementary function."""
    match node:
        case tirx.BufferStore():
            return _is_costly(node.value)
        case TensorLoad():
            return False
        case tirx.Cast():
            return _is_costly(node.value)
        case tirx.Select():
            return any(map(_is_costly, (node.condition, node.true_value, node.false_value)))
        case Call():
            return True
    return any(_is_costly(part) for part in (getattr(node, "a", None), getattr(node, "b", None)) if part is not None)
