"""Writes selections of vectors by one condition as branches.

    select(broadcast(i < n, 2), x[2 i : 2 i + 2], y[2 i : 2 i + 2])      →      if_then_else(i < n, x[…], y[…])

TVM's code generator gives a repeated condition the type of the result: `float2 v = make_ushort2(i < n, i < n)`.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

from nnefc.ir.rebuild import with_fields

__all__ = ["branch_on_uniform_conditions"]


def branch_on_uniform_conditions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a function of the device's whose selections have a condition for each element of a vector."""

    def written(expr: tirx.Select) -> tirx.Expr:
        if not isinstance(expr.condition, tirx.Broadcast):
            return expr
        return tirx.if_then_else(expr.condition.value, expr.true_value, expr.false_value)

    return with_fields(func, body=tvm_ffi.structural_map(func.body, (tirx.Select, written)))
