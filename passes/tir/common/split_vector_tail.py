"""Versions vectorized loops with a boundary check: full vectors without the check, and scalars for the tail.

    for lane in vectorized(16):              if 16 i + 15 < 197:
        if 16 i + lane < 197:           →        for lane in vectorized(16): S
            S                                else:
                                                 for lane in unrolled(16): if 16 i + lane < 197: S

TVM scalarizes statements under a condition on a vector's lanes, even where the condition holds for all lanes.
"""

from __future__ import annotations

import tvm_ffi
from tvm import tirx
from tvm.sym import detect_linear_equation

from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import conjuncts

__all__ = ["split_loop_tails"]


def split_loop_tails(stmt: tirx.Stmt, tail: int = tirx.ForKind.UNROLLED) -> tirx.Stmt:
    """Splits vectorized loops with conditions on their lanes into full vectors and scalars for the tail.

    Args:
        tail: how the lanes of vectors that are not full are computed. Unrolled, they are as many copies of the loop's
            body; with dynamic dimensions, nearly every kernel has them.
    """
    return tvm_ffi.structural_map(stmt, (tirx.For, lambda loop: _in_two_versions(loop, tail)))


def _in_two_versions(stmt: tirx.For, tail: int) -> tirx.Stmt:
    body = stmt.body
    if stmt.kind != tirx.ForKind.VECTORIZED or not isinstance(stmt.extent, tirx.IntImm):
        return stmt
    if not isinstance(body, tirx.IfThenElse) or body.else_case is not None:
        return stmt
    last = [_of_last_lane(condition, stmt) for condition in conjuncts(body.condition)]
    if any(condition is None for condition in last):
        return stmt
    all_lanes = last[0]
    for condition in last[1:]:
        all_lanes = tirx.And(all_lanes, condition)
    whole = with_fields(stmt, kind=tirx.ForKind.VECTORIZED, body=body.then_case)
    return tirx.IfThenElse(all_lanes, whole, with_fields(stmt, kind=tail, body=body))


def _of_last_lane(condition: tirx.Expr, loop: tirx.For) -> tirx.Expr | None:
    """Returns a condition that holds for all lanes exactly if it holds for the last; None where that is unknown."""
    if not isinstance(condition, tirx.LT):
        return None
    linear = detect_linear_equation(condition.a - condition.b, [loop.loop_var])
    if not linear:
        return None
    step, base = linear
    if not isinstance(step, tirx.IntImm) or int(step) < 0:
        return None
    end = int(step) * (int(loop.extent) - 1)
    return base + tirx.const(end, base.expr_ty().dtype) < tirx.const(0, base.expr_ty().dtype)
