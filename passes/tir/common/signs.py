"""Finds expressions that are never negative, and decides minima and maxima of them and 0.

    C[i % (n * h) // h - max(0, i % (n * h) // h), r]        →        C[0, r]

TVM subtracts `max(0, index)` from the indices of a local tensor that holds the elements from `index` on. It knows the
sign of a quotient by one size, but not by a product of sizes: the index is then no constant, the kernel matches no
microkernel, and the tensor's elements are not kept in registers.
"""

from __future__ import annotations

from collections.abc import Set

import tvm_ffi
from tvm import tirx

from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import is_number
from nnefc.passes.tir.tvm_workarounds.opaque import bound_value

__all__ = ["decide_signs", "is_positive", "signed_variables"]


def decide_signs(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Simplifies the min or max of 0 and an expression that is never negative; variables without a definition count as
    sizes.
    """
    signed = signed_variables(func.body)

    def decided(node: tirx.Min | tirx.Max) -> tirx.Expr:
        for zero, other in ((node.a, node.b), (node.b, node.a)):
            if is_number(zero, 0) and is_positive(other, signed):
                return zero if isinstance(node, tirx.Min) else other
        return node

    return with_fields(func, body=tvm_ffi.structural_map(func.body, ((tirx.Min, tirx.Max), decided)))


def signed_variables(stmt: tirx.Stmt) -> set[tirx.Var]:
    """Returns the variables that statements define and that may be negative."""
    signed: set[tirx.Var] = set()

    def note(node: tirx.For | tirx.Bind) -> None:
        var, first = (node.loop_var, node.min) if isinstance(node, tirx.For) else (node.var, node.value)
        if not is_positive(bound_value(first), signed):
            signed.add(var)

    tvm_ffi.structural_walk(stmt, ((tirx.For, tirx.Bind), note), order="pre")
    return signed


def is_positive(expr: tirx.Expr, signed: Set[tirx.Var]) -> bool:
    """Whether an expression is never negative, if only these variables may be."""
    match expr:
        case tirx.IntImm():
            return int(expr.value) >= 0
        case tirx.Var():
            return expr not in signed
        case tirx.Max():
            return is_positive(expr.a, signed) or is_positive(expr.b, signed)
        case tirx.Add() | tirx.Mul() | tirx.Div() | tirx.FloorDiv() | tirx.Mod() | tirx.FloorMod() | tirx.Min():
            return is_positive(expr.a, signed) and is_positive(expr.b, signed)
    return False
