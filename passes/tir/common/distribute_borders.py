"""Has each thread fill the part of a result's border that lies next to what it writes inside.

    for b in 28: P[b / 7, 0, b % 7] = 0      →      for i in parallel(20):
    for i in parallel(20): …                            if i % 5 == 0:
                                                            for b in 7: P[i / 5, 0, b] = 0
                                                        …

A thread that reads some part of the result in the next kernel has then written the border of that part, which is in its
processor's caches; else the launching thread writes all of it. A part is that of some outermost positions, such as a
block of channels, and the first of the iterations that compute these fills its border.
"""

from __future__ import annotations

import math

import tvm_ffi
from tvm import s_tir, tirx
from tvm.ir.expr import TensorLoad

from nnefc.ir.attributes import PADDING
from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import int64, substituted

__all__ = ["distribute_borders"]


def distribute_borders(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns a scheduled kernel whose parallel loop fills the borders that were filled just before it."""
    return with_fields(func, body=tvm_ffi.structural_map(func.body, (tirx.SeqStmt, _distributed)))


def _distributed(stmts: tirx.SeqStmt) -> tirx.Stmt:
    *fills, loop = stmts.seq
    if not all(map(_is_fill, fills)) or not _is_parallel(loop):
        return stmts
    if not all(_writes_inside(loop, _store(fill).buffer) for fill in fills):
        return stmts
    parts = math.gcd(int(loop.extent), *(int(fill.extent) for fill in fills))
    if parts < 2:
        return stmts
    each = int64(int(loop.extent) // parts)
    part = tirx.floordiv(loop.loop_var, each)
    shares = [_share(fill, part, parts) for fill in fills]
    filled = tirx.SeqStmt(shares) if len(shares) > 1 else shares[0]
    is_first = tirx.EQ(tirx.floormod(loop.loop_var, each), int64(0))
    return with_fields(loop, body=tirx.SeqStmt([tirx.IfThenElse(is_first, filled, None), loop.body]))


def _store(fill: tirx.For) -> tirx.BufferStore:
    return fill.body


def _is_fill(stmt: tirx.Stmt) -> bool:
    """Whether a statement is a loop that stores a constant."""
    if not isinstance(stmt, tirx.For) or stmt.kind != tirx.ForKind.SERIAL or not isinstance(stmt.extent, tirx.IntImm):
        return False
    store = stmt.body
    if not isinstance(store, tirx.BufferStore):
        return False
    value = store.value.value if isinstance(store.value, tirx.Broadcast) else store.value
    return isinstance(value, tirx.IntImm | tirx.FloatImm)


def _is_parallel(stmt: tirx.Stmt) -> bool:
    return isinstance(stmt, tirx.For) and stmt.kind == tirx.ForKind.PARALLEL and isinstance(stmt.extent, tirx.IntImm)


def _writes_inside(loop: tirx.For, buffer: tirx.Var) -> bool:
    """Whether a loop writes the interior of a padded tensor, and reads nothing of that."""
    blocks: list[s_tir.SBlock] = []
    loads: list[TensorLoad] = []
    tvm_ffi.structural_walk(loop, (s_tir.SBlock, blocks.append))
    tvm_ffi.structural_walk(loop, (TensorLoad, loads.append))
    is_read = any(load.source.same_as(buffer) for load in loads)
    return not is_read and any(PADDING in each.annotations and each.writes[0].source.same_as(buffer) for each in blocks)


def _share(fill: tirx.For, part: tirx.Expr, parts: int) -> tirx.For:
    """Returns one of several equal parts of a loop."""
    count = int(fill.extent) // parts
    var = tirx.Var(fill.loop_var.name, "int64")
    store, known = _store(fill), {fill.loop_var: part * int64(count) + var}
    share = tirx.BufferStore(store.buffer, store.value, [substituted(index, known) for index in store.indices])
    return with_fields(fill, loop_var=var, extent=int64(count), body=share)
