"""Hoists divisions of loop variables by dynamic sizes: computed once per iteration instead of at each index.

    for i in parallel(n * h):                      for i in parallel(n * h):
        for j in w:                                    a = i / h;  b = i % h
            C[i // h, j, i % h] = …           →        for j in w: C[a, j, b] = …

TVM and LLVM divide by a constant with a multiplication, and simplify the result; for a variable divisor they emit a
flooring division, with a correction of signs, at each index. TVM's simplifier would write the quotients wherever they
are used again, also in branches inside of loops, where LLVM leaves divisions.
"""

from __future__ import annotations

from collections.abc import Set
from typing import Any

import tvm_ffi
from tvm import tirx

from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import int64, variables_of
from nnefc.passes.tir.common.signs import is_positive, signed_variables
from nnefc.passes.tir.tvm_workarounds.opaque import bound_value, opaque_binding

__all__ = ["hoist_divisions"]

_QUOTIENTS = (tirx.FloorDiv, tirx.FloorMod)


def hoist_divisions(stmt: tirx.Stmt) -> tirx.Stmt:
    """Hoists divisions in the statements of a flat kernel; variables without a definition count as sizes."""
    signed = signed_variables(stmt)
    return tvm_ffi.structural_map(stmt, (tirx.For, lambda loop: _with_bound(loop, signed)), order="pre")


def _with_bound(loop: tirx.For, signed: Set[tirx.Var]) -> tirx.For:
    if loop.kind in (tirx.ForKind.VECTORIZED, tirx.ForKind.UNROLLED):
        return loop
    later = {node.loop_var if isinstance(node, tirx.For) else node.var for node in _found(loop.body)}
    bound: list[tirx.Bind] = []

    def change(node: tirx.FloorDiv | tirx.FloorMod) -> tirx.Expr:
        if isinstance(node.b, tirx.IntImm) or not is_positive(node, signed) or variables_of([node]) & later:
            return node
        divisor = tirx.max(node.b, int64(1))  # where a loop inside has no iterations, sizes may be 0
        value = (tirx.Div if isinstance(node, tirx.FloorDiv) else tirx.Mod)(node.a, divisor)
        for other in bound:
            if tvm_ffi.structural_equal(bound_value(other.value), value):
                return other.var
        bound.append(opaque_binding(tirx.Var("i", node.ty), value))
        return bound[-1].var

    body = tvm_ffi.structural_map(loop.body, (_QUOTIENTS, change))
    if not bound:
        return loop
    return with_fields(loop, body=tirx.SeqStmt([*bound, body]))


def _found(stmt: tirx.Stmt) -> list[Any]:
    """Returns the statements that define variables."""
    found: list[Any] = []
    tvm_ffi.structural_walk(stmt, ((tirx.For, tirx.Bind), found.append))
    return found
