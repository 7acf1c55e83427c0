"""Keep the roundings and the NaN of floats, which TVM's simplifier takes for real numbers where they cancel.

    (x + y) - y     →     (x + y) + y * -1          LLVM makes the subtraction of it that it was
    x - x           →     x + x * -1                NaN for infinities and for NaN, else 0
    x == x          →     not isnan(x)

What is added and subtracted again is rounded to the digits that are left: with 1.5 · 2²³ to integers, in float32.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx

__all__ = ["with_float_cancellations"]


def with_float_cancellations(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel in which the simplifier finds no floats that cancel."""
    changes = [(tirx.Sub, _difference), (tirx.EQ, _comparison)]
    return tvm_ffi.structural_map(func, changes)


def _difference(node: tirx.Sub) -> tirx.Expr:
    dtype = str(node.expr_ty().dtype)
    if not dtype.startswith(("float", "bfloat")) or not _cancels(node.a, node.b):
        return node
    return node.a + node.b * tirx.const(-1, dtype)


def _cancels(a: tirx.Expr, b: tirx.Expr) -> bool:
    """Whether `a - b` has a term in both."""
    left = [a, *((a.a, a.b) if isinstance(a, tirx.Add) else ())]
    right = [b, *((b.a, b.b) if isinstance(b, tirx.Add) else ())]
    return any(tvm_ffi.structural_equal(one, other) for one in left for other in right)


def _comparison(node: tirx.EQ) -> tirx.Expr:
    dtype = str(node.a.expr_ty().dtype)
    if not dtype.startswith(("float", "bfloat")) or not tvm_ffi.structural_equal(node.a, node.b):
        return node
    return tirx.Not(tirx.isnan(node.a))
