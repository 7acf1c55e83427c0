"""Schedules blocks without reductions: arithmetic, concatenation, padding, slices, gathers, resizing.

    for block in blockIdx.x:
        for thread in threadIdx.x:
            for lane in vectorized(4):
                i = (block * 256 + thread) * 4 + lane
                C[i] = f(A[i], B[i // 49 % 64], …)

Neighbouring threads write neighbouring elements, whatever is read. Of dimensions along which all tensors lie as the
result does, or are not indexed at all, one thread takes 16 bytes at once.

Steps of the same size are one launch where each thread needs no results of others but its own:

    C[i] = f(A[i], B[i])        # a launch           for i in threads:
    D[i] = g(C[i])              # another     →          C[i] = f(A[i], B[i])
                                                         D[i] = g(C[i])
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir.expr import Call, TensorLoad
from tvm.sym import Analyzer, detect_linear_equation

from nnefc.passes.schedule.analysis import KernelAnalysis, ScheduleBlock, step_of
from nnefc.passes.schedule.gpu.inline_producers import inline_producers, is_simple
from nnefc.passes.schedule.gpu.threads import bind_flat, split_vectors
from nnefc.passes.schedule.schedules import SBlockRV, root_blocks
from nnefc.passes.tir.common.expressions import flat_offset, inside, loads_of, substituted, variables_of
from nnefc.passes.tir.common.shapes import Size, strides_of
from nnefc.symbolic.dims import is_known, size_hint
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["ElementWiseRule", "bind_elements"]

_OF_ONE = ("tirx.isnan",)  # operators that TVM makes vectors of for CPUs, and GPUs have of single numbers alone


class ElementWiseRule:
    """Steps without reductions; those that are not joined with their readers are launches of their own."""

    def apply(self, kernel: KernelAnalysis, target: GpuTarget) -> s_tir.Schedule | None:
        if kernel.reductions or not all(map(is_simple, kernel.steps)):
            return None
        sch = kernel.schedule()
        inline_producers(sch)
        for blocks in _of_one_launch(sch):
            bind_elements(sch, blocks, target)
        return sch


def bind_elements(sch: s_tir.Schedule, blocks: Sequence[SBlockRV], target: GpuTarget) -> None:
    """Binds simple blocks without reductions to threads, one after another in each: see `_of_one_launch`."""
    lanes = min(_lanes(step_of(sch, block), target) for block in blocks)
    if len(blocks) == 1:
        bind_flat(sch, sch.get_loops(blocks[0]) or [sch.add_unit_loop(blocks[0])], target, lanes)
        return
    _keep_in_registers(sch, blocks)
    # A vector of each block: TVM takes an intermediate inside of a vector for one number.
    bind_flat(sch, [sch.merge(*(split_vectors(sch, sch.get_loops(block), lanes) for block in blocks))], target)


def _keep_in_registers(sch: s_tir.Schedule, blocks: Sequence[SBlockRV]) -> None:
    """Makes results that only blocks of the same launch read registers of the thread that computes them."""
    for block in blocks:
        own = list(map(sch.get, blocks))
        readers = list(map(sch.get, sch.get_consumers(block)))
        if readers and all(any(reader.same_as(each) for each in own) for reader in readers):
            with suppress(s_tir.ScheduleError):  # an output of the kernel
                sch.set_scope(block, 0, "local")


def _of_one_launch(sch: s_tir.Schedule) -> list[list[SBlockRV]]:
    """Returns the blocks in their order, in groups that follow each other in each thread."""
    groups: list[list[SBlockRV]] = []
    for block in root_blocks(sch):
        step = step_of(sch, block)
        if groups and all(_may_follow(step, step_of(sch, earlier)) for earlier in groups[-1]):
            groups[-1].append(block)
        else:
            groups.append([block])
    return groups


def _may_follow(step: ScheduleBlock, earlier: ScheduleBlock) -> bool:
    """Whether a thread may compute an element of a step behind the same element of an earlier one.

    The step may read no other element of the earlier one's result, as another thread may not have written it yet.
    """
    if step.sizes != earlier.sizes or not step.trip_counts or step.value is None or earlier.value is None:
        return False
    if step.result.same_as(earlier.result) or any(read.source.same_as(step.result) for read in earlier.reads):
        return False
    axes = {axis.var: own.var for axis, own in zip(earlier.axes, step.axes, strict=True)}
    written = [substituted(index, axes) for index in earlier.node.body.indices]
    return all(
        tvm_ffi.structural_equal(index, own)
        for load in step.loads
        if load.source.same_as(earlier.result)
        for index, own in zip(load.indices, written, strict=True)
    )


def _lanes(step: ScheduleBlock, target: GpuTarget) -> int:
    """Returns how many neighbouring elements one thread computes: as many as it can load and store as a vector.

    Vectors are shorter, rather than threads too few to keep the device busy.
    """
    if step.value is None or not step.axes:
        return 1
    if any(isinstance(part, Call) and getattr(part.op, "name", "") in _OF_ONE for part in inside(step.value)):
        return 1
    loads = loads_of(step.value)
    dtypes = [step.dtype, *(str(load.source.dtype) for load in loads)]
    if "bool" in dtypes or any(isinstance(index, tirx.Ramp) for index in step.node.body.indices):
        return 1
    maximum = max(1, min(min(map(target.lanes, dtypes)), 8, size_hint(step.iterations) // target.gpu.busy_threads))
    lanes = 1
    while lanes * 2 <= maximum and _is_whole(step, loads, lanes * 2):
        lanes *= 2
    return lanes


def _is_whole(step: ScheduleBlock, loads: Sequence[TensorLoad], lanes: int) -> bool:
    """Whether vectors of `lanes` elements along the last axes are, of each tensor, a vector or one element."""
    sizes = step.sizes
    inner = next((n for n in range(1, len(sizes) + 1) if math.prod(sizes[-n:]) % lanes == 0), None)
    if inner is None or not is_known(*sizes[-inner:]):
        return False
    moving = step.axes[-inner:]
    if variables_of(step.conditions) & {axis.var for axis in moving}:
        return False
    analyzer = Analyzer()
    for own in step.node.iter_vars:
        analyzer.bind(own.var, own.dom)

    def steps(position: tirx.Expr) -> list[Size] | None:
        """Returns the stride of the index along each axis, if it begins at a multiple of the lanes or never moves."""
        linear = detect_linear_equation(analyzer.simplify(position), [axis.var for axis in moving])
        if not linear or not all(isinstance(step, tirx.IntImm) for step in linear[:-1]):
            return None
        aligned = analyzer.modular_set(linear[-1])
        found = [int(step) if axis.size > 1 else 0 for step, axis in zip(linear[:-1], moving, strict=True)]
        whole = aligned.coeff % lanes == 0 and aligned.base % lanes == 0
        return found if whole or not any(found) else None

    line = [stride if axis.size > 1 else 0 for stride, axis in zip(strides_of(sizes)[-inner:], moving, strict=True)]
    positions = [flat_offset(load.source, load.indices) for load in loads]
    written = flat_offset(step.result, step.node.body.indices)
    return steps(written) == line and all(steps(position) in (line, [0] * inner) for position in positions)
