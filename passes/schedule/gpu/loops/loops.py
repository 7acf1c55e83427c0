"""Schedules kernels written as ordered loops: distributes the loops with independent iterations among threads.

    for line in range(1000):                          for line in blockIdx.x, threadIdx.x:
        for k in range(7):                    →           for k in range(7):
            out[line, slot[k]] = …                           out[line, slot[k]] = …

Loops may be of dynamic length. Every statement at the top is a launch of its own. Scatters keep the order of their
updates of a position this way.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import s_tir, tirx
from tvm.ir import Range

from nnefc.ir.rebuild import root_block, with_fields
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.loops.independence import independent_loops
from nnefc.passes.schedule.gpu.threads import threads_for
from nnefc.passes.schedule.loop_nests import is_independent, nest_of, statements_of
from nnefc.passes.schedule.schedules import schedule_of
from nnefc.passes.tir.common.expressions import int64
from nnefc.passes.tir.common.shapes import Size, size_of
from nnefc.passes.tir.common.statements import iterations_of
from nnefc.symbolic.dims import ceil_div, size_hint
from nnefc.targets.machine.gpu.description import Gpu
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["LoopsRule"]


class LoopsRule:
    """Schedules kernels of statements with at least one loop of independent iterations."""

    def apply(self, kernel: KernelAnalysis, target: GpuTarget) -> s_tir.Schedule | None:
        func = kernel.func
        statements = statements_of(func)
        if statements is None:
            return None
        nests = [nest_of(statement) for statement in statements]
        shared = [_independent(nest) for nest in nests]
        if not any(shared):
            return None
        if any(_is_serial(*each, target.gpu) for each in zip(statements, nests, shared, strict=True)):
            return None
        launches = [
            _launch(statement, nest, loops, target)
            for statement, nest, loops in zip(statements, nests, shared, strict=True)
        ]
        body = launches[0] if len(launches) == 1 else tirx.SeqStmt(launches)
        return schedule_of(with_fields(func, body=root_block(body)))


def _independent(nest: Sequence[tirx.For]) -> list[tirx.For]:
    """Returns the loops of a nest whose iterations may run in parallel; loops that are marked parallel are trusted."""
    if not nest:
        return []
    return independent_loops(nest) or [loop for loop in nest[:1] if is_independent(loop)]


def _iterations(loops: Sequence[tirx.For]) -> Size:
    return math.prod(size_of(loop.extent) for loop in loops)


def _is_serial(stmt: tirx.Stmt, nest: Sequence[tirx.For], shared: Sequence[tirx.For], gpu: Gpu) -> bool:
    """Whether each of the threads that share a statement has much work, and these are few."""
    iterations = iterations_of(nest[-1].body if nest else stmt)
    for loop in nest:
        if not any(loop.same_as(other) for other in shared):
            iterations *= size_hint(size_of(loop.extent))
    return iterations == math.inf or (
        iterations > gpu.serial_trip_count and size_hint(_iterations(shared)) < gpu.host_threads
    )


def _launch(stmt: tirx.Stmt, nest: Sequence[tirx.For], shared: Sequence[tirx.For], target: GpuTarget) -> tirx.Stmt:
    """Returns a statement with its shared loops as threads around the others."""
    iterations = _iterations(shared)
    threads = threads_for(iterations, target)
    block, thread = (tirx.Var(name, "int64") for name in ("block", "thread"))
    body = nest[-1].body if nest else stmt
    for loop in reversed(nest):
        if not any(loop.same_as(other) for other in shared):
            body = with_fields(loop, kind=tirx.ForKind.SERIAL, body=body, annotations=None)
    number = block * int64(threads) + thread
    for index, loop in enumerate(shared):
        position = tirx.floormod(tirx.floordiv(number, int64(_iterations(shared[index + 1 :]))), loop.extent)
        body = tirx.SeqStmt([tirx.Bind(loop.loop_var, position), body])
    if iterations % threads:
        body = tirx.IfThenElse(number < int64(iterations), body, None)
    for var, size, name in ((thread, threads, "threadIdx.x"), (block, ceil_div(iterations, threads), "blockIdx.x")):
        values = Range(int64(0), int64(size))
        binding = tirx.IterVar(values, tirx.Var(name, "int64"), tirx.IterVar.ThreadIndex, name)
        body = tirx.For(var, values.min, values.extent, tirx.ForKind.THREAD_BINDING, body, binding)
    return body
