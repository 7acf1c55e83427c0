"""Computations without reductions, element by element: arithmetic, concatenations, paddings, slices, gathers, resizes.

    for block in blockIdx.x:
        for thread in threadIdx.x:
            for lane in vectorized(4):
                i = (block * 256 + thread) * 4 + lane
                C[i] = f(A[i], B[i // 49 % 64], …)

Neighbouring threads write neighbouring elements, whatever is read. Of dimensions along which all tensors lie as the
result does, or are not indexed at all, one thread takes 16 bytes at once.
"""

from __future__ import annotations

import math

import tvm
from tvm import s_tir, tirx
from tvm.sym import Analyzer, detect_linear_equation

from nnefc.passes.schedule.cuda.analysis import conditions_of, flat_index, loads_of, strides_of
from nnefc.passes.schedule.cuda.joining import is_simple, join_steps
from nnefc.passes.schedule.cuda.threads import bind_flat
from nnefc.passes.schedule.structure import SBlockRV, is_reduction, root_blocks, schedule_of, variables_of
from nnefc.targets.machine.cuda_target import CudaTarget

__all__ = ["ElementWiseRule", "bind_elements"]

_LEAST_THREADS = 1 << 14  # that keep a device busy: before, shorter vectors rather than fewer threads


class ElementWiseRule:
    """Steps without reductions; those that are not joined with their readers are launches of their own."""

    def apply(self, func: tirx.PrimFunc, target: CudaTarget) -> s_tir.Schedule | None:
        sch = schedule_of(func)
        if any(is_reduction(sch, block) or not is_simple(sch, block) for block in root_blocks(sch)):
            return None
        join_steps(sch)
        for block in root_blocks(sch):
            bind_elements(sch, block, target)
        return sch


def bind_elements(sch: s_tir.Schedule, block: SBlockRV, target: CudaTarget) -> None:
    """Bind a simple block without reductions to threads."""
    lanes = _lanes(sch.get(block), target)
    bind_flat(sch, sch.get_loops(block) or [sch.add_unit_loop(block)], target, lanes)


def _lanes(node: s_tir.SBlock, target: CudaTarget) -> int:
    """How many neighbouring elements one thread computes: as many as it can load and store as a vector."""
    if not isinstance(node.body, tirx.BufferStore) or not node.iter_vars:
        return 1
    value, target_buffer = node.body.value, node.writes[0].source
    loads = list(loads_of(value))
    dtypes = [str(buffer.dtype) for buffer in (target_buffer, *(load.source for load in loads))]
    if any(dtype == "bool" for dtype in dtypes) or any(isinstance(i, tirx.Ramp) for i in node.body.indices):
        return 1
    rounds = math.prod(int(axis.dom.extent) for axis in node.iter_vars)
    most = max(1, min(min(map(target.lanes, dtypes)), 8, rounds // _LEAST_THREADS))
    lanes = 1
    while lanes * 2 <= most and _is_whole(node, loads, lanes * 2):
        lanes *= 2
    return lanes


def _is_whole(node: s_tir.SBlock, loads: list[tirx.Expr], lanes: int) -> bool:
    """Whether vectors of `lanes` elements along the last axes are, of each tensor, a vector or one element."""
    axes = list(node.iter_vars)
    extents = [int(axis.dom.extent) for axis in axes]
    inner = next((n for n in range(1, len(axes) + 1) if math.prod(extents[-n:]) % lanes == 0), None)
    if inner is None:
        return False
    analyzer = Analyzer()
    for axis in axes:
        analyzer.bind(axis.var, tvm.ir.Range(0, axis.dom.extent))
    moving = [axis.var for axis in axes[-inner:]]
    if any(variables_of([c]) & set(moving) for c in conditions_of(node.body.value)):
        return False
    strides = strides_of(extents)[-inner:]
    places = [flat_index(load.source, load.indices) for load in loads]
    written = flat_index(node.writes[0].source, node.body.indices)

    def steps(place: tirx.Expr) -> list[int] | None:
        linear = detect_linear_equation(analyzer.simplify(place), moving)
        if not linear or not all(isinstance(step, tirx.IntImm) for step in linear[:-1]):
            return None
        aligned = analyzer.modular_set(linear[-1])
        found = [int(step) if e > 1 else 0 for step, e in zip(linear[:-1], extents[-inner:], strict=True)]
        whole = aligned.coeff % lanes == 0 and aligned.base % lanes == 0
        return found if whole or not any(found) else None

    line = [stride if extent > 1 else 0 for stride, extent in zip(strides, extents[-inner:], strict=True)]
    return steps(written) == line and all(steps(place) in (line, [0] * inner) for place in places)
