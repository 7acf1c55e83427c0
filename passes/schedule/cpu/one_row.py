"""Products with matrices in blocks whose rows are known at run time: one row has code of its own.

    kernel(A, B, n):     →     kernel(A, B, n):
        many rows                  if n == 1: one row
                                   else: many rows

One row reads the whole matrix for few operations: it needs other tiles than many rows, which use each item often.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import tvm_ffi
from tvm import tirx
from tvm.ir import PointerType

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.schedules import OPEN_SIZES, open_sizes_of
from nnefc.passes.tir.expressions import int64, variables_of
from nnefc.passes.tir.kernels import Kernel
from nnefc.sizes import Size, dimension, is_known, substituted

__all__ = ["sizes_of_one_row", "with_sizes", "with_version"]


def sizes_of_one_row(kernel: KernelAnalysis) -> dict[tirx.Var, int]:
    """The open sizes with which such a product has one row; none for other kernels."""
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
    """The kernel for these sizes."""
    func, left = kernel.func, [var for var in open_sizes_of(kernel.func) if var not in sizes]
    whole = tirx.PrimFunc([*func.params, *sizes], func.body, func.ret_type, func.attrs)
    known = whole.specialize({var: int64(size) for var, size in sizes.items()})
    return KernelAnalysis(known.with_attr(OPEN_SIZES, left) if left else known.without_attr(OPEN_SIZES))


def with_version(general: Kernel, version: Kernel, sizes: Mapping[tirx.Var, int]) -> Kernel:
    """A kernel that does as `version` where it is called with these sizes; `version` has no workspace."""
    func, other = general.func, version.func
    pointers = [param for param in other.params if isinstance(param.ty, PointerType)]
    names = dict(zip(pointers, func.params, strict=False))  # after them come a workspace and the sizes
    body = tvm_ffi.structural_map(other.body, (tirx.Var, lambda var: names.get(var, var)))
    chosen = tirx.all(*(var == int64(size) for var, size in sizes.items()))
    both = tirx.SeqStmt([tirx.IfThenElse(chosen, body, None), func.body])
    return replace(
        general,
        func=tirx.PrimFunc(func.params, both, func.ret_type, func.attrs),
        scratch_bytes=max(general.scratch_bytes, version.scratch_bytes),
    )
