"""Passes the trip count and an estimate of cycles per iteration of each parallel loop to the runtime's thread pool.

    for i in parallel(n):     →     nnefc_iterations(n, about so many cycles)
        …                           for i in parallel(n):
                                        …

TVM outlines the loop as a function of a task number and the number of tasks, and does not pass the trip count to the
runtime. The runtime needs it to cut the loop into chunks; short loops are not stolen from.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.iteration_cost import cycles_of_iteration
from nnefc.targets.machine.cpu.target import Target

__all__ = ["annotate_trip_counts"]


def annotate_trip_counts(func: tirx.PrimFunc, target: Target) -> tirx.PrimFunc:
    """Returns a lowered kernel that passes these to the runtime before each of its parallel loops."""

    def annotated(loop: tirx.For) -> tirx.Stmt:
        if loop.kind != tirx.ForKind.PARALLEL:
            return loop
        trip_count, cycles = tirx.Cast("int64", loop.extent), cycles_of_iteration(loop, target)
        return tirx.SeqStmt([tirx.Evaluate(tirx.call_extern("int32", "nnefc_iterations", trip_count, cycles)), loop])

    return with_fields(func, body=tvm_ffi.structural_map(func.body, (tirx.For, annotated)))
