"""Removes blocks of a kernel that compute a tensor which nothing reads.

    for i in range(n): first[i] = a[i]
    for i in range(n): y[i] = x[0]              →     for i in range(n): y[i] = x[0]

A gather along a dimension of one element does not read its indices; what computes them may be fused with it all the
same. Schedule rules inline such a block into its readers, and it has none.
"""

from __future__ import annotations

from collections import Counter

import tvm_ffi
from tvm import s_tir, tirx

from nnefc.ir.rebuild import with_fields

__all__ = ["drop_unread_blocks"]


def drop_unread_blocks(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Removes the statements of a kernel that only write its own tensors, if no other statement mentions these."""
    root = func.body.block
    own, stmts = set(root.alloc_buffers), list(root.body) if isinstance(root.body, tirx.SeqStmt) else [root.body]
    named = Counter(var for stmt in stmts for var in _named(stmt))
    dropped = {which: written for which, stmt in enumerate(stmts) if (written := _written(stmt)) and written <= own}
    dropped = {which: written for which, written in dropped.items() if all(named[var] == 1 for var in written)}
    if not dropped:
        return func
    kept = [stmt for which, stmt in enumerate(stmts) if which not in dropped]
    buffers = [tensor for tensor in root.alloc_buffers if not any(tensor in written for written in dropped.values())]
    block = with_fields(root, body=kept[0] if len(kept) == 1 else tirx.SeqStmt(kept), alloc_buffers=buffers)
    realized = s_tir.SBlockRealize(func.body.iter_values, func.body.predicate, block)
    return drop_unread_blocks(with_fields(func, body=realized))  # what those alone have read


def _named(stmt: tirx.Stmt) -> list[tirx.Var]:
    """Returns the variables of a statement, each once."""
    found: list[tirx.Var] = []
    tvm_ffi.structural_walk(stmt, (tirx.Var, found.append))
    return list(dict.fromkeys(found))


def _written(stmt: tirx.Stmt) -> set[tirx.Var]:
    """Returns the tensors that a statement writes; none where calls may write others."""
    found: set[tirx.Var] = set()
    calls: list[tirx.Stmt] = []
    stores = (tirx.BufferStore, lambda store: found.add(store.buffer))
    tvm_ffi.structural_walk(stmt, (stores, (tirx.Evaluate, calls.append)))
    return set() if calls else found
