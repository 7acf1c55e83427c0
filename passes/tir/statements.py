"""How often lowered statements run."""

from __future__ import annotations

import math

from tvm import s_tir, tirx

__all__ = ["rounds_of"]


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
