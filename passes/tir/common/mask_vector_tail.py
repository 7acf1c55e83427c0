"""Splits vector loops over rows of dynamic length into full vectors and one masked vector for the tail.

    for v in (n + 15) // 16:                        for v in n // 16:
        for lane in vectorized(16):                     for lane in vectorized(16): S
            if 16 v + lane < n: S            →      if n % 16 > 0:
                                                        v = n // 16
                                                        for lane in vectorized(16), the first n - 16 v of them: S

How vectors leave out lanes: see `targets/codegen/cpu/masks.py`. Kernels of known shapes are not
concerned: see `passes/tir/common/split_vector_tail.py`.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from functools import reduce
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad
from tvm.sym import detect_linear_equation

from nnefc.ir.attributes import MASK
from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import IF_THEN_ELSE, conjuncts, int64, is_number, variables_of
from nnefc.passes.tir.common.peel_tail_tiles import TiledAxis

__all__ = ["mask_vector_tails"]

_MASKED_TYPES = ("float32", "float64", "int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")


def mask_vector_tails(stmt: tirx.Stmt, axes: Sequence[TiledAxis]) -> tirx.Stmt:
    """Splits vectorized loops with conditions on their lanes into full vectors and masked tails.

    Args:
        axes: those that are computed in full tiles; what is reduced along them has its first value beyond the end.
    """
    ends = {axis.end for axis in axes}
    return tvm_ffi.structural_map(stmt, (tirx.For, lambda loop: _in_two_versions(loop, ends)), order="pre")


def _in_two_versions(loop: tirx.For, ends: Set[tirx.Var]) -> tirx.Stmt:
    if loop.kind == tirx.ForKind.VECTORIZED:
        vector = _Vector.of(loop, ends)
        if vector is None:
            return loop
        return tirx.IfThenElse(vector.left >= loop.extent, vector.whole, vector.masked)
    inner = loop.body
    if loop.kind != tirx.ForKind.SERIAL or not isinstance(inner, tirx.For) or inner.kind != tirx.ForKind.VECTORIZED:
        return loop
    vector = _Vector.of(inner, ends)
    linear = detect_linear_equation(vector.left, [loop.loop_var]) if vector is not None else None
    if vector is None or not linear or not is_number(linear[0], -int(inner.extent)):
        return loop
    length, last = linear[1], tirx.Var("last", "int64")
    first = loop.min  # of a part of the row that a loop was partitioned into
    count = tirx.max(tirx.min(tirx.floordiv(length, inner.extent) - first, loop.extent), int64(0))
    whole = with_fields(loop, extent=count, body=vector.whole)
    tail = tvm_ffi.structural_map(vector.masked, (tirx.Var, lambda var: last if var.same_as(loop.loop_var) else var))
    more = tirx.And(last < first + loop.extent, length > last * inner.extent)
    return tirx.SeqStmt([whole, tirx.Bind(last, first + count), tirx.IfThenElse(more, tail, None)])


@dataclass(frozen=True)
class _Vector:
    """A vectorized loop under conditions on its lanes.

    Attributes:
        left: how many lanes they let through, if not all.
        whole, masked: the loop without the conditions, over all lanes and over those.
    """

    left: tirx.Expr
    whole: tirx.For

    @property
    def masked(self) -> tirx.Stmt:
        return tirx.AttrStmt(int64(0), MASK, self.left, self.whole)

    @staticmethod
    def of(loop: tirx.For, ends: Set[tirx.Var]) -> _Vector | None:
        """Returns the vectorized loop with its mask; None where there are no conditions on lanes, or others."""
        body, conditions = loop.body, []
        while isinstance(body, tirx.IfThenElse) and body.else_case is None:
            conditions += conjuncts(body.condition)
            body = body.then_case

        def inside(value: Call) -> tirx.Expr:
            if getattr(value.op, "name", "") in IF_THEN_ELSE and variables_of([value.args[0]]) & ends:
                conditions.extend(conjuncts(value.args[0]))
                return value.args[1]
            return value

        body = tvm_ffi.structural_map(body, (Call, inside))
        left = [_lanes_before(condition, loop) for condition in conditions]
        if (
            not left
            or not all(lanes is not None and variables_of([lanes]) for lanes in left)
            or not _can_be_masked(body)
        ):
            return None
        known = [n for i, n in enumerate(left) if not any(tvm_ffi.structural_equal(n, other) for other in left[:i])]
        return _Vector(reduce(tirx.min, known), with_fields(loop, body=body))


def _lanes_before(condition: tirx.Expr, loop: tirx.For) -> tirx.Expr | None:
    """Returns the number of lanes before the first one for which a condition fails."""
    if not isinstance(condition, tirx.LT):
        return None
    linear = detect_linear_equation(condition.b - condition.a, [loop.loop_var])
    return linear[1] if linear and is_number(linear[0], -1) else None


def _can_be_masked(stmt: tirx.Stmt) -> bool:
    """Whether a statement is an assignment of numbers that masked vectors can store."""
    if not isinstance(stmt, tirx.BufferStore):
        return False
    loads: list[Any] = []
    tvm_ffi.structural_walk(stmt, (TensorLoad, loads.append))
    return all(str(tensor.dtype) in _MASKED_TYPES for tensor in (stmt.buffer, *(load.source for load in loads)))
