"""Analyzes statements: what they compute, and how often they run."""

from __future__ import annotations

import math

import tvm
import tvm_ffi
from tvm import s_tir, tirx

from nnefc.ir.attributes import SIZE_HINT
from nnefc.passes.tir.common.shapes import size_of
from nnefc.symbolic.dims import is_size, size_hint

__all__ = ["iterations_of", "renewed", "values_of", "variables_defined"]

_RENEW = tvm.get_global_func("s_tir.RenewDefs")


def renewed(stmt: tirx.Stmt) -> tirx.Stmt:
    """Returns a copy of a statement with its own loop variables, bindings and buffers."""
    return _RENEW(tirx.PrimFunc([], stmt)).body


def variables_defined(stmt: tirx.Stmt) -> set[tirx.Var]:
    """Returns the loop variables and bindings of a statement."""
    found: set[tirx.Var] = set()
    tvm_ffi.structural_walk(stmt, (tirx.For, lambda loop: found.add(loop.loop_var)))
    tvm_ffi.structural_walk(stmt, (tirx.Bind, lambda binding: found.add(binding.var)))
    return found


def iterations_of(stmt: tirx.Stmt) -> float:
    """Returns the largest trip count of the innermost statements, by size hints and data; infinity if unknown."""
    match stmt:
        case tirx.For():
            hinted = math.inf if SIZE_HINT not in stmt.annotations else int(stmt.annotations[SIZE_HINT])
            return (size_hint(size_of(stmt.extent)) if is_size(stmt.extent) else hinted) * iterations_of(stmt.body)
        case tirx.While():
            return math.inf
        case tirx.SeqStmt():
            return sum(iterations_of(part) for part in stmt.seq)
        case tirx.IfThenElse():
            return max(iterations_of(stmt.then_case), 0 if stmt.else_case is None else iterations_of(stmt.else_case))
        case s_tir.SBlockRealize():
            return iterations_of(stmt.block.body)
        case tirx.AttrStmt():
            return iterations_of(stmt.body)
    return 1


def values_of(stmt: tirx.Stmt) -> list[tirx.Expr]:
    """Returns the values that the assignments of a block compute, and the indices that they write to."""
    match stmt:
        case tirx.BufferStore():
            return [stmt.value, *stmt.indices]
        case tirx.Bind():
            return [stmt.value]
        case tirx.SeqStmt():
            return [value for part in stmt.seq for value in values_of(part)]
        case tirx.IfThenElse():
            tail = [] if stmt.else_case is None else values_of(stmt.else_case)
            return [stmt.condition, *values_of(stmt.then_case), *tail]
        case tirx.For():
            return values_of(stmt.body)
    return []
