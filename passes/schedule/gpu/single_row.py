"""Specializes products with a dynamic number of rows, and attention of a dynamic number of queries, for a single one.

kernel(A[n, k], B[m, k], n)     for n == 1     →     the kernel of a matrix and a vector
"""

from __future__ import annotations

from collections.abc import Collection

from tvm import s_tir, tirx

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.attention.analysis import attention_of
from nnefc.passes.schedule.gpu.attention.single_query import SingleQueryRule
from nnefc.passes.schedule.gpu.contractions.analysis import product_of
from nnefc.passes.schedule.gpu.vector_products.matvec import VectorProductRule
from nnefc.passes.tir.common.expressions import int64, variables_of
from nnefc.symbolic.dims import Dimension, Size, dimension, substituted
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["RULES_OF_ONE_ROW", "sizes_of_one_row"]

RULES_OF_ONE_ROW = frozenset(rule.__name__ for rule in (VectorProductRule, SingleQueryRule))
"""The names of the rules for a single row or query."""


def sizes_of_one_row(kernel: KernelAnalysis, sizes: Collection[tirx.Var], target: GpuTarget) -> dict[tirx.Var, int]:
    """Returns the values of a kernel's dynamic dimensions for which it multiplies one row, or has one query.

    They are empty for other kernels, and where that number is static.
    """
    rows = _rows_of(kernel, target)
    if not isinstance(rows, Size):
        return {}
    ones = {var: 1 for var in variables_of([rows.expr]) if var in sizes}
    return ones if substituted(rows, {var: dimension(int64(1)) for var in ones}) == 1 else {}


def _rows_of(kernel: KernelAnalysis, target: GpuTarget) -> Dimension | None:
    """Returns the rows of a product, or the queries of an attention."""
    attention = attention_of(kernel, target)
    if attention is not None:
        return attention.queries
    try:
        product = product_of(kernel, target)
    except s_tir.ScheduleError:
        return None
    return None if product is None else product.rows.size
