"""Adds the range of each dynamic dimension as a condition around the kernel, so that TVM simplifies with it.

    for i in s // 24 + 1: B[min(s // 24 * 24 + 24, 12)]         with s of 0 to 4,095
        →    if 0 <= s <= 4095: for i in s // 24 + 1: B[12]

The condition always holds. It lets TVM prove that dividends are not negative, so that flooring divisions need no
correction of signs, and simplify further.
"""

from __future__ import annotations

from collections.abc import Sequence

import tvm_ffi
from tvm import tirx

from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import converts_floats, int64, variables_of
from nnefc.symbolic.dims import Size, bounds, dimensions, may_exceed

__all__ = ["simplify_min_max", "within_ranges"]


def simplify_min_max(func: tirx.PrimFunc, sizes: Sequence[tirx.Var]) -> tirx.PrimFunc:
    """Simplifies each min or max of two integers computed from the kernel's sizes whose order is known.

    Integers that are converted from floats, as coordinates of an image are, stay.
    """
    known = set(sizes)

    def decided(node: tirx.Min | tirx.Max) -> tirx.Expr:
        if str(node.expr_ty().dtype) != "int64" or not variables_of([node]) <= known or converts_floats(node):
            return node
        one, other = dimensions((node.a, node.b))
        minimum, greatest = (node.a, node.b) if isinstance(node, tirx.Min) else (node.b, node.a)
        if not may_exceed(one, other):
            return minimum
        return node if may_exceed(other, one) else greatest

    return tvm_ffi.structural_map(func, ((tirx.Min, tirx.Max), decided)) if sizes else func


def within_ranges(func: tirx.PrimFunc, sizes: Sequence[tirx.Var]) -> tirx.PrimFunc:
    """Returns a kernel whose statements are under the condition that its sizes are in their ranges, which
    always holds.
    """
    if not sizes:
        return func
    conditions = []
    for size in sizes:
        minimum, maximum = bounds(Size(size))
        conditions += [size >= int64(minimum), size <= int64(maximum)]
    body = tirx.IfThenElse(tirx.all(*conditions), func.body, None)
    return with_fields(func, body=body)
