"""Schedules pooling and depthwise convolutions: small windows over a tensor whose last axis fills vectors.

for n, c, y in parallel:
    for a few x at once:
        acc[x, lanes] = start
        for the window: acc[x, :] = combine(acc[x, :], A[window, :])
        C = epilogue(acc)

Convolutions in small groups are such windows too, in which a lane reads those of its group one after the other. What
a step before copies in parts (`STAGED`) is copied part by part, in the loops over them.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm
from tvm import s_tir, tirx
from tvm.ir.expr import TensorRegion
from tvm.s_tir.schedule import LoopRV, SBlockRV

from nnefc.ir.attributes import COMPUTED_OPERANDS, FP16_ACCUMULATORS, FULL_BLOCKS, SHARED_WORDS, STAGED
from nnefc.passes.schedule.analysis import KernelAnalysis, ScheduleBlock
from nnefc.passes.schedule.cpu.fp16_accumulators import type_of_sums
from nnefc.passes.schedule.full_tiles import in_full_tiles
from nnefc.passes.schedule.schedules import (
    covers_result,
    epilogue_into_one_block,
    fused,
    largest_divisor,
    trip_count,
    vector_lanes,
)
from nnefc.passes.tir.common.expressions import is_number
from nnefc.passes.tir.common.shapes import Size
from nnefc.passes.tir.cpu.permute_lanes import is_permuted
from nnefc.passes.tir.dot.dot_instructions import FLOAT16_PART
from nnefc.support.element_types import bits_of
from nnefc.symbolic.dims import element_count, is_known
from nnefc.targets.machine.cpu.target import Target

__all__ = ["WindowsRule"]

_LARGEST_UNROLLED = 16
"""The largest window that is written out, 4 × 4: the code of larger ones exceeds the cache of decoded instructions, and
saves only a loop's branch in several loads. Where operands are computed and not only loaded, rows of larger windows are
written out, because neighbouring results share most of them.
"""

_LARGEST_PERMUTED = 40
"""The largest number of positions of a filter row times turns in groups that is written out: rows of five in groups of
eight.
"""

_RESULTS_AT_ONCE = 7
"""The number of neighbouring results that are computed together, which share the filter and most of their windows:
enough to hide the latency of multiply-adds (four cycles, two begin in each), and a divisor of the widths that images
have after halving: 7, 14, 28, …
"""

_MIN_AT_ONCE = 2
"""The number of results from which on narrower vectors pay, because shared operands are loaded once."""

_FEWER_AT_ONCE = (3, 1)
"""The tail tiles of a row of dynamic length after the last full tile of seven: few, because their code takes time to
compile.
"""


class WindowsRule:
    """Schedules one reduction whose last spatial axis is the last axis of all that it reads and writes, in full
    vectors.
    """

    def apply(self, kernel: KernelAnalysis, target: Target) -> s_tir.Schedule | None:
        if len(kernel.reductions) != 1:
            return None
        (step,) = kernel.reductions
        staged = [kernel.by_name[name] for name in step.producers]
        if any(STAGED not in producer.node.annotations for producer in staged):
            return None
        if len(step.spatial) < 2 or not step.axes[0].is_spatial:
            return None
        channels = step.spatial[-1]
        lanes = vector_lanes(channels.size, target.lanes(type_of_sums(step)))
        if channels.size % lanes:
            return None
        width = lanes * bits_of(type_of_sums(step)) // 8
        registers = target.for_sums(step.dtype).for_vectors(width).vectors.registers
        narrows = bits_of(kernel.steps[-1].dtype) < bits_of(step.dtype) and target.quirks.converts_lane_by_lane
        if FULL_BLOCKS in step.node.annotations or (narrows and int(channels.size) == 2 * lanes):
            registers = registers * lanes // int(channels.size)
            lanes = int(channels.size)
        permuted = _is_permuted(step, channels.var)
        if not all(_ends_with(region, channels.var) for region in (*(() if permuted else step.reads), *step.writes)):
            return None
        room = registers // 2
        if target.vectors.group > 1:  # no operand comes from memory, so that the window needs registers too
            lanes, room = _in_groups(step, lanes, room, target)
        at_once = min(_RESULTS_AT_ONCE, room) if registers >= 8 or target.vectors.group > 1 else 1
        return self._schedule(kernel.schedule(), step, staged, lanes, at_once, permuted)

    def _schedule(
        self,
        sch: s_tir.Schedule,
        step: ScheduleBlock,
        staged: Sequence[ScheduleBlock],
        lanes: int,
        max_at_once: int,
        permuted: bool,
    ) -> s_tir.Schedule | None:
        block, count = sch.get_sblock(step.name), len(step.spatial)
        epilogue = epilogue_into_one_block(sch, block)
        if epilogue is None:
            epilogue = sch.cache_write(block, 0, "global")
        if not is_known(step.spatial[-2].size):
            tiled = in_full_tiles(sch, step.name, count - 2, _RESULTS_AT_ONCE, _FEWER_AT_ONCE)
            if tiled is not None:
                names = [str(sch.get(part).name_hint) for part in (block, epilogue)]
                sch, (block, epilogue) = tiled, map(tiled.get_sblock, names)
        loops = sch.get_loops(block)
        outer, channel, window = loops[: count - 1], loops[count - 1], loops[count:]
        channel, lane = sch.split(channel, [None, lanes])
        at_once = _at_once(trip_count(sch, outer[-1]), int(step.node.annotations.get(SHARED_WORDS, 1)), max_at_once)
        outer[-1], results = sch.split(outer[-1], [None, at_once])
        sch.reorder(*outer, channel, *window, results, lane)
        sch.reverse_compute_at(epilogue, channel)
        if not covers_result(sch, epilogue):
            return None
        around = outer[:-1] or outer
        for copy in staged:
            around = outer[: int(copy.node.annotations[STAGED])]
            _stage(sch, sch.get_sblock(copy.name), around[-1])
        sch.parallel(fused(sch, around))
        sch.vectorize(lane)
        sch.unroll(results)
        window_size = element_count([axis.size for axis in step.reduced])
        if is_known(window_size) and window_size <= _LARGEST_UNROLLED:
            for loop in window:
                sch.unroll(loop)
        elif COMPUTED_OPERANDS in step.node.annotations and trip_count(sch, window[-1]) <= _LARGEST_UNROLLED:
            sch.unroll(window[-1])
        elif permuted:  # neighbouring results share the loads of one turn
            short = trip_count(sch, *window[-2:]) <= _LARGEST_PERMUTED
            for loop in window[-2:] if short else window[-2:-1]:
                sch.unroll(loop)
        if type_of_sums(step) != step.dtype and is_known(window_size) and window_size <= FLOAT16_PART:
            sch.annotate(block, FP16_ACCUMULATORS, True)
        start = sch.decompose_reduction(block, window[0])
        for part in (start, epilogue):
            *others, last = sch.get_loops(part)
            sch.vectorize(last)
            if at_once > 1:
                sch.unroll(others[-1])
        return sch


def _stage(sch: s_tir.Schedule, copy: SBlockRV, loop: LoopRV) -> None:
    """Copies the part of the tensor of `copy` that each iteration of a loop reads."""
    sch.compute_at(copy, loop)
    *_, column, lane = sch.get_loops(copy)
    sch.vectorize(lane)
    if trip_count(sch, column) <= _LARGEST_UNROLLED:
        sch.unroll(column)  # whether a column lies in the border is then known


def _is_permuted(step: ScheduleBlock, lane: tirx.Var) -> bool:
    """Whether one tensor is read channel after channel of a group, and each other one by the lane."""
    positions = [load.indices[-1] for load in step.loads if not load.source.same_as(step.result)]
    turns = [position for position in positions if is_permuted(position) and position.a.same_as(lane)]
    return len(turns) == 1 and sum(position.same_as(lane) for position in positions) == len(positions) - 1


def _in_groups(step: ScheduleBlock, lanes: int, room: int, target: Target) -> tuple[int, int]:
    """Returns the lanes of a vector, and the results at once, such that registers also hold a vector for each position
    of the window.
    """
    positions = element_count([axis.size for axis in step.reduced])
    if not is_known(positions) or positions > _LARGEST_UNROLLED or FULL_BLOCKS in step.node.annotations:
        return lanes, room
    width = lanes * bits_of(type_of_sums(step)) // 8
    for part in (1, 2, 4, 8):
        registers = target.for_vectors(width // part).vectors.registers
        left = registers - positions - 2
        if lanes % part == 0 and left >= _MIN_AT_ONCE:
            return lanes // part, left
    return lanes, room


def _at_once(count: Size, sharing: int, maximum: int) -> int:
    """Returns the number of neighbouring results that are computed together: whole groups of those that share
    operands.
    """
    if isinstance(count, int) and count % sharing:
        return count
    return sharing * largest_divisor(count // sharing if sharing > 1 else count, maximum)


def _ends_with(region: TensorRegion, var: tirx.Var) -> bool:
    """Whether the last index of a load is this variable."""
    positions: list[tvm.ir.Range] = list(region.region)
    return bool(positions) and positions[-1].min.same_as(var) and is_number(positions[-1].extent, 1)
