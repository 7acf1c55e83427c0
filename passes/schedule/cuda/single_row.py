"""Specializes products with a dynamic number of rows for a single row, as matrix-vector products.

kernel(A[n, k], B[m, k], n)     for n == 1     →     the kernel of a matrix and a vector
"""

from __future__ import annotations

from collections.abc import Collection

from tvm import s_tir, tirx

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.cuda.contraction_analysis import product_of
from nnefc.passes.tir.common.expressions import int64, variables_of
from nnefc.symbolic.dims import Size, dimension, substituted
from nnefc.targets.machine.cuda.target import CudaTarget

__all__ = ["sizes_of_one_row"]


def sizes_of_one_row(kernel: KernelAnalysis, sizes: Collection[tirx.Var], target: CudaTarget) -> dict[tirx.Var, int]:
    """Returns the values of a kernel's dynamic dimensions for which it multiplies one row; empty if it is no product,
    or its row count is static."""
    try:
        product = product_of(kernel, target)
    except s_tir.ScheduleError:
        return {}
    if product is None:
        return {}
    rows = product.rows.size
    if not isinstance(rows, Size):
        return {}
    ones = {var: 1 for var in variables_of([rows.expr]) if var in sizes}
    return ones if substituted(rows, {var: dimension(int64(1)) for var in ones}) == 1 else {}
