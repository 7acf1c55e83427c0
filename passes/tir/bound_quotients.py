"""Quotients of loop variables by open sizes, computed once in each iteration instead of wherever an index has them.

    for i in parallel(n * h):                      for i in parallel(n * h):
        for j in w:                                    a = i / h;  b = i % h
            C[i // h, j, i % h] = …           →        for j in w: C[a, j, b] = …

By a number, TVM and LLVM divide with a multiplication, and know what follows; by a variable they write out a division
that rounds down, whatever the signs, at each place.
"""

from __future__ import annotations

from typing import Any

import tvm_ffi
from tvm import tirx

from nnefc.passes.tir.expressions import int64, is_number, variables_of

__all__ = ["with_bound_quotients"]

_QUOTIENTS = (tirx.FloorDiv, tirx.FloorMod)


def with_bound_quotients(stmt: tirx.Stmt) -> tirx.Stmt:
    """The statements of a flat kernel, whose variables outside of loops are sizes."""
    bound = tvm_ffi.structural_map(stmt, (tirx.For, _with_bound), order="pre")
    return tvm_ffi.structural_map(bound, ((tirx.Min, tirx.Max), _beside_zero))


def _beside_zero(node: tirx.Min | tirx.Max) -> tirx.Expr:
    """The smaller or the larger of 0 and what is never negative."""
    for zero, other in ((node.a, node.b), (node.b, node.a)):
        if is_number(zero, 0) and _is_positive(other):
            return zero if isinstance(node, tirx.Min) else other
    return node


def _with_bound(loop: tirx.For) -> tirx.For:
    if loop.kind in (tirx.ForKind.VECTORIZED, tirx.ForKind.UNROLLED):
        return loop
    later = {node.loop_var if isinstance(node, tirx.For) else node.var for node in _found(loop.body)}
    bound: list[tirx.Bind] = []

    def change(node: tirx.FloorDiv | tirx.FloorMod) -> tirx.Expr:
        if isinstance(node.b, tirx.IntImm) or not _is_positive(node) or variables_of([node]) & later:
            return node
        divisor = tirx.max(node.b, int64(1))  # where a loop inside has no iterations, sizes may be 0
        value = (tirx.Div if isinstance(node, tirx.FloorDiv) else tirx.Mod)(node.a, divisor)
        for other in bound:
            if tvm_ffi.structural_equal(other.value, value):
                return other.var
        bound.append(tirx.Bind(tirx.Var("i", node.ty), value))
        return bound[-1].var

    body = tvm_ffi.structural_map(loop.body, (_QUOTIENTS, change))
    if not bound:
        return loop
    return tirx.For(
        loop.loop_var, loop.min, loop.extent, loop.kind, tirx.SeqStmt([*bound, body]), loop.thread_binding,
        loop.annotations, loop.step,
    )  # fmt: skip


def _found(stmt: tirx.Stmt) -> list[Any]:
    """What defines variables in a statement."""
    found: list[Any] = []
    tvm_ffi.structural_walk(stmt, ((tirx.For, tirx.Bind), found.append))
    return found


def _is_positive(expr: tirx.Expr) -> bool:
    """Whether an expression is never negative, if no variable is."""
    match expr:
        case tirx.IntImm():
            return int(expr.value) >= 0
        case tirx.Var():
            return True
        case tirx.Add() | tirx.Mul() | tirx.FloorDiv() | tirx.FloorMod() | tirx.Min() | tirx.Max():
            return _is_positive(expr.a) and _is_positive(expr.b)
    return False
