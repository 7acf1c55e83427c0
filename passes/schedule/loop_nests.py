"""Recognizes kernels that are written as statements instead of blocks, and returns their loops."""

from __future__ import annotations

from tvm import s_tir, tirx

from nnefc.ir.attributes import INDEPENDENT
from nnefc.passes.tir.common.expressions import is_number
from nnefc.symbolic.dims import is_size

__all__ = ["is_independent", "nest_of", "statements_of"]


def statements_of(func: tirx.PrimFunc) -> list[tirx.Stmt] | None:
    """Returns the statements at the top of a kernel that consists of nothing else; None for other kernels."""
    block = func.body.block
    while isinstance(block.body, s_tir.SBlockRealize):
        block = block.body.block
    if block.iter_vars or block.alloc_buffers or block.init is not None:
        return None
    body = block.body
    statements = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    return None if any(map(_has_blocks, statements)) else statements


def _has_blocks(stmt: tirx.Stmt) -> bool:
    match stmt:
        case tirx.For():
            return _has_blocks(stmt.body)
        case tirx.SeqStmt():
            return any(map(_has_blocks, stmt.seq))
    return isinstance(stmt, s_tir.SBlockRealize)


def nest_of(stmt: tirx.Stmt) -> list[tirx.For]:
    """Returns the perfectly nested loops at the top of a statement."""
    nest = []
    while isinstance(stmt, tirx.For) and is_number(stmt.min, 0) and is_size(stmt.extent):
        nest.append(stmt)
        stmt = stmt.body
    return nest


def is_independent(loop: tirx.For) -> bool:
    """Whether a loop is marked as parallel."""
    return loop.kind == tirx.ForKind.PARALLEL or INDEPENDENT in (loop.annotations or {})
