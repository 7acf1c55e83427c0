"""Transforms of small tiles, as Winograd's: which formula an element has depends on its place in its tile.

    for the tiles in parallel:
        columns = each column of the tile, transformed        # in registers
        unrolled over the tile: out[place, :] = the formula of `place`, of `columns`

Unrolled, each place knows its formula, and nothing of the choice is left.
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.s_tir.schedule import SBlockRV

from nnefc.passes.schedule.structure import (
    epilogue_into_one_block,
    is_reduction,
    root_blocks,
    schedule_of,
)
from nnefc.targets.machine.target import Target

__all__ = ["TileTransformRule"]


class TileTransformRule:
    """An element-wise computation that selects a formula by the place of an element along two or more of its axes."""

    def apply(self, func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
        sch = schedule_of(func)
        blocks = root_blocks(sch)
        if any(is_reduction(sch, block) for block in blocks):
            return None
        choosing = [(block, periods) for block in blocks if len(periods := _periods(sch, block)) > 1]
        if len(choosing) != 1:
            return None
        block, periods = choosing[0]
        lanes = target.lanes(str(sch.get(block).writes[0].source.dtype))
        if int(sch.get(sch.get_loops(block)[-1]).extent) % lanes:
            return None
        self._schedule(sch, block, periods, lanes)
        return sch

    def _schedule(self, sch: s_tir.Schedule, block: SBlockRV, periods: dict[int, int], lanes: int) -> None:
        columns = sch.get_producers(block)
        last = epilogue_into_one_block(sch, block)
        if last is None:
            last = block
        else:
            sch.compute_inline(block)
        loops = sch.get_loops(last)
        unrolled = []
        for axis, period in periods.items():
            loops[axis], inner = sch.split(loops[axis], [None, period])
            unrolled.append(inner)
        *outer, channel = loops
        channel, lane = sch.split(channel, [None, lanes])
        outer.append(channel)
        sch.reorder(*outer, *unrolled, lane)
        for column in columns:
            sch.compute_at(column, channel)
            *inner, vector = sch.get_loops(column)[len(outer) :]
            sch.vectorize(vector)
            for loop in inner:
                sch.unroll(loop)
        sch.vectorize(lane)
        for loop in unrolled:
            sch.unroll(loop)
        sch.parallel(sch.fuse(*outer[:-2]))


def _periods(sch: s_tir.Schedule, block: SBlockRV) -> dict[int, int]:
    """Axes by whose value, or value modulo a period, the block's formula is selected; and that period."""
    node = sch.get(block)
    if not isinstance(node.body, tirx.BufferStore):
        return {}
    axes = list(node.iter_vars)
    found: dict[int, int] = {}

    def visit(expr: tirx.Expr) -> None:
        if not isinstance(expr, tirx.Select):
            return
        if isinstance(expr.condition, tirx.EQ):
            index = expr.condition.a
            period = int(index.b) if isinstance(index, tirx.FloorMod) else None
            var = index.a if isinstance(index, tirx.FloorMod) else index
            for position, axis in enumerate(axes):
                if axis.var.same_as(var):
                    found[position] = period or int(axis.dom.extent)
        visit(expr.true_value)
        visit(expr.false_value)

    visit(node.body.value)
    return dict(sorted(found.items()))
