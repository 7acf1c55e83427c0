"""Rebuilding lowered statements: what the steps after scheduling share."""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

__all__ = ["with_parts"]


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
