"""Lowered statements: rebuilding them, and how often they run."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import s_tir, tirx

__all__ = ["rounds_of", "with_parts", "with_values"]


def with_parts(stmt: tirx.Stmt, change: Callable[[tirx.Stmt], tirx.Stmt]) -> tirx.Stmt:
    """The statement with `change` applied to each statement right inside it; one without parts is returned as it is."""
    match stmt:
        case tirx.SeqStmt():
            return tirx.SeqStmt([change(part) for part in stmt.seq])
        case tirx.For():
            body, binding = change(stmt.body), stmt.thread_binding
            return tirx.For(stmt.loop_var, stmt.min, stmt.extent, stmt.kind, body, binding, stmt.annotations, stmt.step)
        case tirx.AttrStmt():
            return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, change(stmt.body))
        case tirx.IfThenElse():
            rest = None if stmt.else_case is None else change(stmt.else_case)
            return tirx.IfThenElse(stmt.condition, change(stmt.then_case), rest)
    return stmt


def with_values(stmt: tirx.Stmt, change: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Stmt:
    """The statement with `change` applied to all that it, or one inside it, stores, binds, evaluates or decides by."""

    def inside(part: tirx.Stmt) -> tirx.Stmt:
        return with_values(part, change)

    match stmt:
        case s_tir.SBlockRealize():
            block = stmt.block
            changed = s_tir.SBlock(
                block.iter_vars, block.reads, block.writes, block.name_hint, inside(block.body),
                None if block.init is None else inside(block.init), block.alloc_buffers, block.match_buffers,
                block.annotations,
            )  # fmt: skip
            return s_tir.SBlockRealize(stmt.iter_values, stmt.predicate, changed)
        case tirx.BufferStore():
            return tirx.BufferStore(stmt.buffer, change(stmt.value), stmt.indices)
        case tirx.Bind():
            return tirx.Bind(stmt.var, change(stmt.value))
        case tirx.Evaluate():
            return tirx.Evaluate(change(stmt.value))
        case tirx.While():
            return tirx.While(change(stmt.condition), inside(stmt.body))
        case tirx.IfThenElse():
            rest = None if stmt.else_case is None else inside(stmt.else_case)
            return tirx.IfThenElse(change(stmt.condition), inside(stmt.then_case), rest)
    return with_parts(stmt, inside)


def rounds_of(stmt: tirx.Stmt) -> float:
    """How often the innermost statements run, at most; without end, where that is not known."""
    match stmt:
        case tirx.For():
            known = isinstance(stmt.extent, tirx.IntImm)
            return (int(stmt.extent) if known else math.inf) * rounds_of(stmt.body)
        case tirx.While():
            return math.inf
        case tirx.SeqStmt():
            return sum(rounds_of(part) for part in stmt.seq)
        case tirx.IfThenElse():
            return max(rounds_of(stmt.then_case), 0 if stmt.else_case is None else rounds_of(stmt.else_case))
        case s_tir.SBlockRealize():
            return rounds_of(stmt.block.body)
        case tirx.AttrStmt():
            return rounds_of(stmt.body)
    return 1
