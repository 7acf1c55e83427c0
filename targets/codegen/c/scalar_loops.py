"""Converts vectorized loops to ordinary ones, since C99 has no vectors.

    s = alloc(4)                                s = alloc(4)
    for rc in 16:                               for rc in 16:
        for lane in vectorized(4):        →         for lane in unrolled(4):
            s[lane] += A[rc] * B[rc, lane]              s[lane] += A[rc] * B[rc, lane]
    for lane in vectorized(4):                  for lane in unrolled(4):
        C[lane] = s[lane]                           C[lane] = s[lane]

A loop over the elements of a small buffer is unrolled: then its elements are variables, which any compiler keeps in
registers. Others remain loops.
"""

from __future__ import annotations

from collections.abc import Collection

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad

from nnefc.ir.rebuild import with_fields

__all__ = ["has_vectors", "serialize_vectors"]

_LONGEST = 16
"""Maximum trip count of an unrolled loop."""


def serialize_vectors(func: tirx.PrimFunc, operators: Collection[str] = ()) -> tirx.PrimFunc:
    """Return a flat function without vectorized loops, except for those whose lanes are not independent.

    These call one of `operators`, which take the bytes of a word as a vector, or read elements that other lanes write.
    """
    own: set[tirx.Var] = set()
    tvm_ffi.structural_walk(func.body, (tirx.AllocBuffer, lambda stmt: own.add(stmt.buffer)))

    def changed(loop: tirx.For) -> tirx.For:
        if loop.kind != tirx.ForKind.VECTORIZED or _calls(loop.body, operators) or _crosses_lanes(loop.body):
            return loop
        is_short = isinstance(loop.extent, tirx.IntImm) and int(loop.extent) <= _LONGEST
        unrolled = is_short and bool(own & _accessed(loop.body))
        return with_fields(loop, kind=tirx.ForKind.UNROLLED if unrolled else tirx.ForKind.SERIAL)

    return tvm_ffi.structural_map(func, (tirx.For, changed))


def has_vectors(func: tirx.PrimFunc) -> bool:
    """Return whether a function still has vectorized loops."""
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(
        func.body, (tirx.For, lambda loop: found.append(loop) if loop.kind == tirx.ForKind.VECTORIZED else None)
    )
    return bool(found)


def _calls(stmt: tirx.Stmt, operators: Collection[str]) -> bool:
    found: list[Call] = []
    tvm_ffi.structural_walk(
        stmt, (Call, lambda call: found.append(call) if getattr(call.op, "name", "") in operators else None)
    )
    return bool(found)


def _crosses_lanes(stmt: tirx.Stmt) -> bool:
    """Return whether an iteration reads elements that other iterations write, before any is written."""
    written: dict[tirx.Var, tirx.Expr] = {}

    def note(store: tirx.BufferStore) -> None:
        written[store.buffer] = store.indices[0]

    tvm_ffi.structural_walk(stmt, (tirx.BufferStore, note))
    found: list[TensorLoad] = []

    def look(load: TensorLoad) -> None:
        index = written.get(load.source)
        if index is not None and not tvm_ffi.structural_equal(load.indices[0], index):
            found.append(load)

    tvm_ffi.structural_walk(stmt, (TensorLoad, look))
    return bool(found)


def _accessed(stmt: tirx.Stmt) -> set[tirx.Var]:
    """Returns the buffers that statements read or write."""
    found: set[tirx.Var] = set()
    tvm_ffi.structural_walk(
        stmt,
        [
            (TensorLoad, lambda load: found.add(load.source)),
            (tirx.BufferStore, lambda store: found.add(store.buffer)),
        ],
    )
    return found
