"""Keep the roundings and the NaN of floats, which TVM's simplifier takes for real numbers where they cancel.

    (x + y) - y     →     (x + y) + y * -1          LLVM makes the subtraction of it that it was
    x - x           →     x + x * -1                NaN for infinities and for NaN, else 0
    x == x          →     not isnan(x)
    not (x < y)     →     x >= y or isnan(x) or isnan(y)

What is added and subtracted again is rounded to the digits that are left: with 1.5 · 2²³ to integers, in float32.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

__all__ = ["with_float_cancellations"]


def with_float_cancellations(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """A kernel in which the simplifier finds no floats that cancel."""
    changes = [(tirx.Sub, _difference), (tirx.EQ, _comparison), (tirx.Not, _negation)]
    return tvm_ffi.structural_map(func, changes)


def _difference(node: tirx.Sub) -> tirx.Expr:
    if not _of_floats(node) or not _cancels(node.a, node.b):
        return node
    return node.a + node.b * tirx.const(-1, node.expr_ty().dtype)


def _of_floats(node: Any) -> bool:
    return "float" in str(node.a.expr_ty().dtype)


def _cancels(a: tirx.Expr, b: tirx.Expr) -> bool:
    """Whether `a - b` has a term in both."""
    left = [a, *((a.a, a.b) if isinstance(a, tirx.Add) else ())]
    right = [b, *((b.a, b.b) if isinstance(b, tirx.Add) else ())]
    return any(tvm_ffi.structural_equal(one, other) for one in left for other in right)


def _comparison(node: tirx.EQ) -> tirx.Expr:
    if not _of_floats(node) or not tvm_ffi.structural_equal(node.a, node.b):
        return node
    return tirx.Not(tirx.isnan(node.a))


_OPPOSITES = {tirx.LT: tirx.GE, tirx.LE: tirx.GT, tirx.GT: tirx.LE, tirx.GE: tirx.LT, tirx.EQ: tirx.NE}


def _negation(node: tirx.Not) -> tirx.Expr:
    opposite = _opposite(node.a)
    return node if opposite is None else opposite


def _opposite(condition: tirx.Expr) -> tirx.Expr | None:
    """What holds where a condition does not; None if it compares no floats."""
    if isinstance(condition, tirx.Or | tirx.And):
        parts = [_opposite(part) for part in (condition.a, condition.b)]
        if all(part is None for part in parts):
            return None
        joined = tirx.And if isinstance(condition, tirx.Or) else tirx.Or
        owns = zip(parts, (condition.a, condition.b), strict=True)
        return joined(*(tirx.Not(own) if part is None else part for part, own in owns))
    opposite = _OPPOSITES.get(type(condition))
    if opposite is None or not _of_floats(condition):
        return None
    return tirx.any(opposite(condition.a, condition.b), tirx.isnan(condition.a), tirx.isnan(condition.b))
