"""Splits loops over pairs of quads into those over shared, direct and folded pairs, and pairs apart.

for p in n: S += quad_pair(X, …, p, s, d, j, e)
    →
for p in s / 2: S += quad_pair(X of pairs 2 p and 2 p + 1, …, 0, 1, 1, 1, 1)
for p in s … d: S += quad_pair(X of pair p, …, 0, 0, 1, 1, 1)
for p in d … j: S += quad_pair(X of pair p, …, 0, 0, 0, 1, 1)
for p in j … e: S += quad_pair(X of pair p, …, 0, 0, 0, 0, 1)

Limits are numbers, or loaded from a tensor that has those of each block. Of a kind that no block has, both are one
expression.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import tvm
import tvm_ffi
from tvm import tirx

from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import is_number, substituted
from nnefc.passes.tir.common.lower_kernel import with_values
from nnefc.passes.tir.common.statements import renewed
from nnefc.passes.tir.dot.dot_instructions import QUAD_LIMITS, is_quad_pair, quad_kind, quad_operands, quad_pair

__all__ = ["partition_quad_pairs"]


def partition_quad_pairs(stmt: tirx.Stmt) -> tirx.Stmt:
    """Partitions such loops in the statements of a flat kernel."""
    return tvm_ffi.structural_map(stmt, (tirx.For, _split))


def _split(loop: tirx.For) -> tirx.Stmt:
    limits = _limits(loop)
    if limits is None or not is_number(loop.min, 0):
        return loop
    dtype = str(loop.loop_var.expr_ty().dtype)
    bounds = [tirx.const(0, dtype), *(limit.astype(dtype) for limit in limits)]
    parts = []
    for kind, (first, end) in enumerate(pairwise(bounds)):
        if tvm_ffi.structural_equal(first, end):
            continue
        var = tirx.Var(loop.loop_var.name, loop.loop_var.ty)
        doubled = tirx.const(2, dtype) * var
        pairs = [var] if kind else [doubled, doubled + tirx.const(1, dtype)]
        body = with_values(_decided(loop.body, loop.loop_var, pairs, kind), {loop.loop_var: var})
        extent = end - first if kind else end >> tirx.const(1, dtype)
        parts.append(with_fields(loop, loop_var=var, min=first, extent=extent, body=renewed(body)))
    return parts[0] if len(parts) == 1 else tirx.SeqStmt(parts)


def _limits(loop: tirx.For) -> Sequence[tirx.Expr] | None:
    """Returns the ends of the kinds of pairs; None for loops over other things."""
    found: list[Sequence[tirx.Expr]] = []

    def note(call: tvm.ir.Call) -> None:
        if is_quad_pair(call):
            pair, limits = quad_kind(call)
            if pair.same_as(loop.loop_var):
                found.append(limits)

    tvm_ffi.structural_walk(loop.body, (tvm.ir.Call, note))
    return found[0] if found else None


def _decided(stmt: tirx.Stmt, var: tirx.Var, pairs: Sequence[tirx.Expr], kind: int) -> tirx.Stmt:
    """Returns statements with the sums of pairs of one kind in place of those of the pair `var`."""

    def change(call: tvm.ir.Call) -> tirx.Expr:
        if not is_quad_pair(call):
            return call
        operands = [substituted(operand, {var: pair}) for pair in pairs for operand in quad_operands(call)]
        limits = [tirx.const(int(kind <= limit), "int32") for limit in range(QUAD_LIMITS)]
        return quad_pair(operands, tirx.const(0, "int32"), limits)

    return tvm_ffi.structural_map(stmt, (tvm.ir.Call, change))
