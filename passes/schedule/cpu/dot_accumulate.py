"""Schedules int8 contractions for instructions that multiply two vectors and sum all products.

for o, y, x, a few output channels:
    sum[4] = 0                                    # in registers for integers
    for the reduced axes, a vector at a time:
        for each of the 4: sum[c] += A[vector] · B[c, vector]
    C = epilogue(sum)                             # a vector of four
"""

from __future__ import annotations

from tvm import s_tir, tirx
from tvm.ir.expr import TensorLoad

from nnefc.ir.attributes import DOT_ACCUMULATE
from nnefc.passes.compute.dot.dot_accumulate import vector_elements
from nnefc.passes.schedule.analysis import KernelAnalysis, ScheduleBlock
from nnefc.passes.schedule.schedules import covers_result, epilogue_into_one_block, trip_count
from nnefc.passes.tir.common.expressions import linear_strides, variables_of
from nnefc.symbolic.dims import is_known
from nnefc.targets.machine.cpu.target import Target

__all__ = ["DotAccumulateRule"]

_WRITTEN_OUT = 4
"""The iterations of the loops around an instruction that are written out, because loop counters take as long as the
instruction.
"""


class DotAccumulateRule:
    """Schedules a sum of products of bytes whose last reduced axis is the last axis of both factors."""

    def apply(self, kernel: KernelAnalysis, target: Target) -> s_tir.Schedule | None:
        if not target.summed_bytes or len(kernel.reductions) != 1:
            return None
        (step,) = kernel.reductions
        roles = step.contraction
        if roles is None or roles.steps or step.dtype != "int32" or step.producers or not roles.only_right:
            return None
        types = _bytes_side_by_side(step)
        if len(types) != 2 or not is_known(step.reduced[-1].size):
            return None
        return self._schedule(kernel.schedule(), step, types[0] == types[1], target)

    def _schedule(
        self, sch: s_tir.Schedule, step: ScheduleBlock, same_sign: bool, target: Target
    ) -> s_tir.Schedule | None:
        block, lanes = sch.get_sblock(step.name), target.lanes("int32")
        elements = vector_elements(step.reduced[-1].size, target.summed_bytes, same_sign)
        if elements == 1 or step.spatial[-1].size % lanes:
            return None
        epilogue = epilogue_into_one_block(sch, block)
        if epilogue is None:
            epilogue = sch.cache_write(block, 0, "global")
        loops = sch.get_loops(block)
        spatial, reduced = loops[: len(step.spatial)], loops[len(step.spatial) :]
        tiles, lane = sch.split(spatial[-1], [None, lanes])
        vectors, element = sch.split(reduced[-1], [None, elements])
        reduced = [*reduced[:-1], vectors]
        sch.reorder(*spatial[:-1], tiles, *reduced, lane, element)
        sch.reverse_compute_at(epilogue, tiles)
        if not covers_result(sch, epilogue):
            return None
        sch.unroll(lane)
        sch.annotate(element, DOT_ACCUMULATE, True)
        trips = 1
        for loop in reversed(reduced):
            trips *= trip_count(sch, loop)
            if trips > _WRITTEN_OUT:
                break
            sch.unroll(loop)
        start = sch.decompose_reduction(block, reduced[0])
        sch.unroll(sch.get_loops(start)[-1])
        *_, last = sch.get_loops(epilogue)
        sch.vectorize(last)
        return sch


def _bytes_side_by_side(step: ScheduleBlock) -> list[str]:
    """Returns the types of the factors, if they are bytes that lie side by side along the last reduced axis."""
    value, axis = step.value, step.axes[-1]
    if not axis.is_reduced or not isinstance(value, tirx.Add) or not isinstance(value.b, tirx.Mul):
        return []
    factors = [part.value if isinstance(part, tirx.Cast) else part for part in (value.b.a, value.b.b)]
    loads = [factor for factor in factors if isinstance(factor, TensorLoad)]
    return [
        str(load.source.dtype)
        for load in loads
        if str(load.source.dtype) in ("int8", "uint8")
        and linear_strides(load.indices[-1], [axis.var]) == [1]
        and axis.var not in variables_of(load.indices[:-1])
    ]
