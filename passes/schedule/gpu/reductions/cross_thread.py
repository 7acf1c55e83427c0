"""Checks whether TVM can lower a reduction across threads."""

from __future__ import annotations

import tvm
from tvm import s_tir, tirx

from nnefc.passes.tir.common.expressions import variables_of

__all__ = ["can_share_reductions"]


def can_share_reductions(sch: s_tir.Schedule) -> bool:
    """Whether TVM lowers all reductions whose elements threads share; one that it does not lower would be a race."""
    try:
        lowered = s_tir.transform.LowerCrossThreadReduction()(sch.mod)["main"]
    except (ValueError, tvm.error.InternalError):  # it does not know how results are combined; or trips over bool
        return False
    return not _has_shared_reduction(lowered.body, set())


def _has_shared_reduction(stmt: tirx.Stmt, threads: set[tirx.Var]) -> bool:
    match stmt:
        case tirx.For():
            bound = {stmt.loop_var} if stmt.kind == tirx.ForKind.THREAD_BINDING else set()
            return _has_shared_reduction(stmt.body, threads | bound)
        case tirx.SeqStmt():
            return any(_has_shared_reduction(part, threads) for part in stmt.seq)
        case s_tir.SBlockRealize():
            block = stmt.block
            elements = [
                v for a, v in zip(block.iter_vars, stmt.iter_values, strict=True) if a.iter_type == a.CommReduce
            ]
            shared = block.init is not None and not threads.isdisjoint(variables_of(elements))
            return shared or _has_shared_reduction(block.body, threads)
    return False
