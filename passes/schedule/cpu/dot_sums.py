"""Sums of dot products, added up by the instructions that multiply.

    sum[i] = sum[i] + dot(0, a, b)     →     sum[i] = dot(sum[i], a, b)

TE has no such reduction, and schedules divide only sums that are additions, so that it becomes one here. Where an
instruction keeps two float16 in the place of a float32 sum, what reads the sum gets both together.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

from nnefc.passes.compute.dot_product import accumulated, is_dot_product, of_halves, whole_sum

__all__ = ["with_dot_sums"]


def with_dot_sums(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A scheduled kernel whose sums of dot products accumulate."""
    halves: list[tirx.Var] = []

    def find(stmt: tirx.BufferStore) -> tirx.BufferStore:
        made = _accumulating(stmt)
        if not made.same_as(stmt) and of_halves(made.value):
            halves.append(stmt.buffer)
        return made

    def read(load: TensorLoad) -> tirx.Expr:
        return whole_sum(load) if any(load.source.same_as(buffer) for buffer in halves) else load

    def accumulate(stmt: tirx.BufferStore) -> tirx.BufferStore:
        """What the sum itself reads stays as it is."""
        own = stmt.value
        if not (of_halves(own) and any(stmt.buffer.same_as(buffer) for buffer in halves)):
            return stmt
        total, left, right = own.args
        return tirx.BufferStore(
            stmt.buffer, tirx.call_intrin("float32", own.op.name, total.args[0], left, right), stmt.indices
        )

    made = tvm_ffi.structural_map(func, (tirx.BufferStore, find))
    if not halves:
        return made
    return tvm_ffi.structural_map(tvm_ffi.structural_map(made, (TensorLoad, read)), (tirx.BufferStore, accumulate))


def _accumulating(stmt: tirx.BufferStore) -> tirx.BufferStore:
    """A sum of dot products as one that accumulates; itself where there is none."""
    match stmt.value:
        case tirx.Add(a=total, b=product) if is_dot_product(product):
            return tirx.BufferStore(stmt.buffer, accumulated(product, total), stmt.indices)
    return stmt
