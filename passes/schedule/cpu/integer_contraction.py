"""Convolutions and matrix products of narrow integers: the tile of a contraction, with dot product instructions.

    tile[row, column, :] = tile[row, column, :] + dot(A[row], B[column, :])
→   tile[row, column, :] = dot(tile[row, column, :], A[row], B[column, :])

The instruction adds to the sum by itself. TE has no such reduction, so that it becomes one here.
"""

from __future__ import annotations

import tvm_ffi
from tvm import s_tir, tirx

from nnefc.passes.compute.dot_product import accumulated, is_dot_product
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cpu.contraction import ContractionRule
from nnefc.targets.machine.target import Target

__all__ = ["IntegerContractionRule"]


class IntegerContractionRule:
    """A sum of dot products of packed operands whose last axis indexes one factor only, in whole vectors."""

    def __init__(self) -> None:
        self._contraction = ContractionRule()

    def apply(self, kernel: KernelAnalysis, target: Target) -> s_tir.Schedule | None:
        made = tvm_ffi.structural_map(kernel.func, (tirx.BufferStore, _accumulating))
        return None if made.same_as(kernel.func) else self._contraction.apply(KernelAnalysis(made), target)


def _accumulating(stmt: tirx.BufferStore) -> tirx.BufferStore:
    """A sum of dot products as one that accumulates; itself where there is none."""
    match stmt.value:
        case tirx.Add(a=total, b=product) if is_dot_product(product):
            return tirx.BufferStore(stmt.buffer, accumulated(product, total), stmt.indices)
    return stmt
