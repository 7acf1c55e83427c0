"""Specializes products with a dynamic number of rows for small numbers of rows.

    kernel(A, B, n):     →     kernel(A, B, n):
        many rows                  if n < 8: few rows
                                   else: many rows

Few rows read the whole matrix for few operations: they need other tiles than many rows, which use each element often.
With matrices in blocks, one row has code of its own; with others that the second cache does not hold, up to seven rows.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import tvm_ffi
from tvm import tirx
from tvm.ir import PointerType

from nnefc.ir.attributes import DYNAMIC_DIMENSIONS, FOR_FEW_ROWS
from nnefc.ir.rebuild import with_fields
from nnefc.passes.compute.tile_sizes import FEW_ROWS
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.schedules import dynamic_sizes_of
from nnefc.passes.tir.common.expressions import int64, variables_of
from nnefc.passes.tir.common.lower_kernel import Kernel
from nnefc.support.element_types import bits_of
from nnefc.symbolic.dims import Size, bounds, dimension, expression, is_known, substituted
from nnefc.targets.machine.cpu.target import Target

__all__ = ["has_few_rows", "is_of_one_row", "of_few_rows", "sizes_of_one_row", "with_sizes", "with_version"]


def sizes_of_one_row(kernel: KernelAnalysis) -> dict[tirx.Var, int]:
    """Returns the dynamic sizes with which a product has a single row; none for other kernels."""
    if len(kernel.reductions) != 1:
        return {}
    (step,) = kernel.reductions
    roles = step.contraction
    if roles is None or not roles.steps:
        return {}
    rows = [step.axes[axis].size for axis in (*roles.both, *roles.only_left)]
    ones = {var: 1 for size in rows if isinstance(size, Size) for var in variables_of([size.expr])}
    single = [substituted(size, {var: dimension(int64(1)) for var in ones}) for size in rows]
    return ones if all(is_known(size) and size == 1 for size in single) else {}


def with_sizes(kernel: KernelAnalysis, sizes: Mapping[tirx.Var, int]) -> KernelAnalysis:
    """Returns the kernel for these sizes."""
    func, left = kernel.func, [var for var in dynamic_sizes_of(kernel.func) if var not in sizes]
    whole = with_fields(func, params=[*func.params, *sizes])
    known = whole.specialize({var: int64(size) for var, size in sizes.items()})
    return KernelAnalysis(known.with_attr(DYNAMIC_DIMENSIONS, left) if left else known.without_attr(DYNAMIC_DIMENSIONS))


def of_few_rows(kernel: KernelAnalysis, target: Target) -> tuple[KernelAnalysis, Size] | None:
    """Returns the kernel for few rows, and their largest number; None for kernels that would not gain."""
    if len(kernel.reductions) != 1:
        return None
    (step,) = kernel.reductions
    roles = step.contraction
    if roles is None or roles.steps:
        return None
    rows = [step.sizes[axis] for axis in (*roles.both, *roles.only_left) if step.sizes[axis] != 1]
    others = [step.sizes[axis] for axis in (*roles.only_right, *roles.reduced)]
    if len(rows) != 1 or not isinstance(rows[0], Size) or bounds(rows[0])[0] > FEW_ROWS[-1] or not is_known(*others):
        return None
    if math.prod(others) * bits_of(step.dtype) // 8 <= target.costs.l2_bytes:
        return None
    return KernelAnalysis(kernel.func.with_attr(FOR_FEW_ROWS, True)), rows[0]


def is_of_one_row(sizes: Mapping[tirx.Var, int]) -> tirx.Expr:
    """Whether the dynamic sizes are those of a single row."""
    return tirx.all(*(var == int64(size) for var, size in sizes.items()))


def has_few_rows(rows: Size) -> tirx.Expr:
    """Whether a kernel for few rows computes this number of rows."""
    return expression(rows) <= int64(FEW_ROWS[-1])


def with_version(general: Kernel, version: Kernel, chosen: tirx.Expr) -> Kernel:
    """Returns a kernel that branches to `version` for its sizes; `version` has no workspace."""
    func, other = general.func, version.func
    pointers = [param for param in other.params if isinstance(param.ty, PointerType)]
    names = dict(zip(pointers, func.params, strict=False))  # after them come a workspace and the sizes
    body = tvm_ffi.structural_map(other.body, (tirx.Var, lambda var: names.get(var, var)))
    both = tirx.SeqStmt([tirx.IfThenElse(chosen, body, None), func.body])
    return replace(
        general,
        func=with_fields(func, body=both),
        scratch_bytes=max(general.scratch_bytes, version.scratch_bytes),
    )
