"""Convolutions and matrix products of narrow integers: the tile of a contraction, with instructions that sum up words.

    tile[row, column, :] = tile[row, column, :] + dot(A[row], B[column, :])
→   tile[row, column, :] = dot(tile[row, column, :], A[row], B[column, :])

The instruction adds to the sum by itself. TE has no such reduction, so that it becomes one here.
"""

from __future__ import annotations

from tvm import s_tir, tirx

from nnefc.passes.compute.dot_product import accumulated, is_dot_product
from nnefc.passes.schedule.cpu.contraction import ContractionRule
from nnefc.targets.machine.target import Target

__all__ = ["IntegerContractionRule"]


class IntegerContractionRule:
    """A sum of dot products of words whose last axis indexes one factor only, in whole vectors."""

    def __init__(self) -> None:
        self._contraction = ContractionRule()

    def apply(self, func: tirx.PrimFunc, target: Target) -> s_tir.Schedule | None:
        body = _accumulating(func.body)
        if body.same_as(func.body):
            return None
        return self._contraction.apply(tirx.PrimFunc(func.params, body, func.ret_type, func.attrs), target)


def _accumulating(stmt: tirx.Stmt) -> tirx.Stmt:
    """The statement with sums of dot products as dot products that accumulate; itself where there are none."""
    match stmt:
        case tirx.SeqStmt():
            parts = [_accumulating(part) for part in stmt.seq]
            return stmt if all(a.same_as(b) for a, b in zip(parts, stmt.seq, strict=True)) else tirx.SeqStmt(parts)
        case tirx.For():
            body = _accumulating(stmt.body)
            if body.same_as(stmt.body):
                return stmt
            return tirx.For(
                stmt.loop_var, stmt.min, stmt.extent, stmt.kind, body, stmt.thread_binding, stmt.annotations
            )
        case s_tir.SBlockRealize():
            block = _accumulating(stmt.block)
            return stmt if block.same_as(stmt.block) else s_tir.SBlockRealize(stmt.iter_values, stmt.predicate, block)
        case s_tir.SBlock():
            body = _accumulating(stmt.body)
            if body.same_as(stmt.body):
                return stmt
            return s_tir.SBlock(
                stmt.iter_vars, stmt.reads, stmt.writes, stmt.name_hint, body, stmt.init, stmt.alloc_buffers,
                stmt.match_buffers, stmt.annotations,
            )  # fmt: skip
        case tirx.BufferStore(value=tirx.Add(a=total, b=product)) if is_dot_product(product):
            return tirx.BufferStore(stmt.buffer, accumulated(product, total), stmt.indices)
    return stmt
