"""Everything that no other rule knows: element-wise steps joined, outer loops parallel, inner loops in vectors."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress

import tvm
from tvm import s_tir, tirx
from tvm.ir.expr import Call, TensorLoad
from tvm.s_tir.schedule import LoopRV, SBlockRV

from nnefc.passes.schedule.structure import (
    is_reduction,
    largest_divisor,
    root_blocks,
    schedule_of,
    variables_of,
    vector_lanes,
)
from nnefc.targets.machine.target import Target

__all__ = ["FallbackRule"]

_PARALLEL_ROUNDS = 64  # of a parallel loop that can be shared out evenly


class FallbackRule:
    """Any computation; each of its blocks by itself, except that element-wise ones are joined with their readers."""

    def apply(self, func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
        sch = schedule_of(func)
        for block in root_blocks(sch):
            if sch.get_consumers(block) and not is_reduction(sch, block):
                self._inline(sch, block)
        for block in root_blocks(sch):
            self._schedule(sch, block, target)
        return sch

    def _inline(self, sch: s_tir.Schedule, block: SBlockRV) -> None:
        with suppress(s_tir.ScheduleError):  # not of the form that can be inlined: it keeps its own loops
            sch.compute_inline(block)

    def _schedule(self, sch: s_tir.Schedule, block: SBlockRV, target: Target) -> None:
        loops = sch.get_loops(block)
        if not loops:
            return
        axes = sch.get(block).iter_vars
        kinds = [axis.iter_type for axis in axes]
        work = math.prod(int(axis.dom.extent) for axis in axes)
        spatial = kinds.index(tirx.IterVar.CommReduce) if is_reduction(sch, block) else len(loops)
        if len(loops) != len(axes) or any(kind != tirx.IterVar.DataPar for kind in kinds[:spatial]) or not spatial:
            return
        if spatial < len(loops):
            outer = loops[:spatial]
        elif not _gathers_along(sch, block, spatial - 1):
            outer = self._vectorize(sch, block, loops, target)
        elif (partner := _partner(sch, block)) is not None:
            outer = self._transpose(sch, block, loops, partner, target)
        else:
            outer = _bring_forward(sch, loops)[:-1]
        if work >= target.parallel_grain and math.prod(int(sch.get(loop).extent) for loop in outer) > 1:
            sch.parallel(sch.fuse(*_enough(sch, outer)))

    def _transpose(
        self, sch: s_tir.Schedule, block: SBlockRV, loops: list[LoopRV], partner: int, target: Target
    ) -> list[LoopRV]:
        """Tiles of registers: lines of the source in, lines of the result out. Returns the loops around them."""
        lanes = target.lanes(str(sch.get(block).writes[0].source.dtype))
        last = len(loops) - 1
        length = largest_divisor(int(sch.get(loops[last]).extent), lanes)
        count = largest_divisor(int(sch.get(loops[partner]).extent), lanes)
        column, lane = sch.split(loops[last], [None, length])
        line, step = sch.split(loops[partner], [None, count])
        outer = [line if axis == partner else loop for axis, loop in enumerate(loops[:last])]
        sch.reorder(*outer, column, step, lane)
        if length > 1 and not _chooses_by(sch, block, last):
            sch.vectorize(lane)
        sch.unroll(step)
        return [*outer, column]

    def _vectorize(self, sch: s_tir.Schedule, block: SBlockRV, loops: list[LoopRV], target: Target) -> list[LoopRV]:
        """Vectorize the last loop where whole vectors fit; LLVM may still do it elsewhere. Returns the loops around."""
        *outer, last = loops
        extent = int(sch.get(last).extent)
        lanes = vector_lanes(extent, target.lanes(str(sch.get(block).writes[0].source.dtype)))
        if extent % lanes:
            return outer
        vectors, lane = sch.split(last, [None, lanes])
        sch.vectorize(lane)
        alone = math.prod(int(sch.get(loop).extent) for loop in outer) == 1
        return [*outer, vectors] if alone else outer


def _enough(sch: s_tir.Schedule, loops: list[LoopRV]) -> list[LoopRV]:
    """The first loops, as many as give every thread something: indices of fused loops cost divisions."""
    rounds = 1
    for count, loop in enumerate(loops, 1):
        rounds *= int(sch.get(loop).extent)
        if rounds >= _PARALLEL_ROUNDS:
            return loops[:count]
    return loops


def _gathers_along(sch: s_tir.Schedule, block: SBlockRV, axis: int) -> bool:
    """Whether neighbours along the last axis of the result are read from places far apart, as when layouts change."""
    node = sch.get(block)
    var = list(node.iter_vars)[axis].var
    last = [read.region[-1].min for read in node.reads if len(read.region)]
    elsewhere = [variables_of([r.min for r in read.region[:-1]]) for read in node.reads if len(read.region)]
    return any(
        not index.same_as(var) and any(var.same_as(v) for v in (*outer, *variables_of([index])))
        for index, outer in zip(last, elsewhere, strict=True)
    )


def _partner(sch: s_tir.Schedule, block: SBlockRV) -> int | None:
    """The axis of the result along which its only gathered operand lies line by line, as in a transposition."""
    node = sch.get(block)
    axes = list(node.iter_vars)
    partners: set[int] = set()
    for read in node.reads:
        if len(read.region):
            inner = variables_of([read.region[-1].min])
            partners |= {i for i, a in enumerate(axes[:-1]) if any(a.var.same_as(v) for v in inner)}
    return partners.pop() if len(partners) == 1 else None


def _chooses_by(sch: s_tir.Schedule, block: SBlockRV, axis: int) -> bool:
    """Whether a condition of the block depends on one of its axes: as vectors, conditions have no code of their own."""
    var = list(sch.get(block).iter_vars)[axis].var
    body = sch.get(block).body
    return not isinstance(body, tirx.BufferStore) or any(
        any(var.same_as(v) for v in variables_of([condition])) for condition in _conditions(body.value)
    )


def _conditions(node: object) -> Iterator[tirx.Expr]:
    match node:
        case Call(op=tvm.ir.Op(name="prim.if_then_else")):
            yield node.args[0]
            parts = list(node.args[1:])
        case Call():
            parts = list(node.args)
        case tirx.Select():
            parts = [node.condition, node.true_value, node.false_value]
        case tirx.Cast():
            parts = [node.value]
        case TensorLoad():
            parts = list(node.indices)
        case _:
            parts = [part for side in "ab" if (part := getattr(node, side, None)) is not None]
    for part in parts:
        yield from _conditions(part)


def _bring_forward(sch: s_tir.Schedule, loops: list[LoopRV]) -> list[LoopRV]:
    """Make the last loop the third, so that the inner ones step through both tensors at a fixed distance."""
    if len(loops) < 5:
        return loops
    *outer, last = loops
    sch.reorder(*outer[:2], last, *outer[2:])
    return [*outer[:2], last, *outer[2:]]
