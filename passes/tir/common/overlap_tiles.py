"""Computes a loop over windows in tiles of one length, the last of which overlaps the one before it.

    for x in n:                            if n >= 8:
        for i in 3:                            for t in ceil(n / 8):
            if i == 0: s[x] = start                x0 = min(8 t, n - 8)
            s[x] = f(s[x], X[x + i])    →          for x in x0 … x0 + 8, as a vector: the same
                                           else:
                                               for x in n: the same

A loop of dynamic length that LLVM vectorizes leaves a tail of scalars, each of which takes as many instructions as a
vector: of images with rows of a few vectors, most of the time. Elements in two tiles are computed twice. This is
correct where each iteration initializes what it accumulates, and where the result overwrites no operand.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import tvm_ffi
from tvm import tirx

from nnefc.passes.tir.common.expressions import linear_strides, loads_of
from nnefc.support.element_types import bits_of

__all__ = ["overlapping_tiles", "vector_lengths", "vector_of_windows"]

_SHORTEST = 128  # bits of a vector


def overlapping_tiles(
    var: tirx.Var, start: tirx.Expr, extent: tirx.Expr, lanes: Sequence[int], body: Callable[[tirx.Expr], tirx.Stmt]
) -> tirx.Stmt:
    """Returns a loop in vectors of the largest of some lane counts that its length reaches, or else in scalars.

    Args:
        var: of the loop, for its name and type.
        body: an iteration, given the loop's variable.
    """
    dtype = str(var.ty.dtype)
    zero = tirx.IntImm(dtype, 0)

    def loop(first: tirx.Expr, count: tirx.Expr, kind: int = tirx.ForKind.SERIAL) -> tirx.For:
        own = tirx.Var(var.name, var.ty)
        return tirx.For(own, zero, count, kind, body(first + own))

    if not lanes:
        return loop(start, extent, tirx.ForKind.SERIAL)
    length, tile = tirx.IntImm(dtype, lanes[0]), tirx.Var("tile", var.ty)
    if isinstance(extent, tirx.IntImm) and int(extent) < lanes[0]:
        return overlapping_tiles(var, start, extent, lanes[1:], body)
    vector = loop(start + tirx.min(tile * length, extent - length), length, tirx.ForKind.VECTORIZED)
    tiles = tirx.For(tile, zero, tirx.ceildiv(extent, length), tirx.ForKind.SERIAL, vector)
    if isinstance(extent, tirx.IntImm):
        return tiles
    return tirx.IfThenElse(extent >= length, tiles, overlapping_tiles(var, start, extent, lanes[1:], body))


def vector_lengths(lanes: int, dtype: str) -> list[int]:
    """Returns the lane counts to try: a full vector, half of it, and a quarter."""
    return [count for count in (lanes, lanes // 2, lanes // 4) if count * bits_of(dtype) >= _SHORTEST]


def vector_of_windows(loop: tirx.For) -> str | None:
    """Returns the element type that a loop accumulates in, if its iterations can be lanes of vectors that overlap; else
    None.
    """
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(loop.body, (tirx.BufferStore, stores.append))
    initial, *others = stores
    if not others or loads_of(initial.value) or not _begins_with(loop.body, initial):
        return None
    index = initial.indices
    if any(not store.buffer.same_as(initial.buffer) or not _is_equal(store.indices, index) for store in others):
        return None
    for load in (load for store in others for load in loads_of(store.value)):
        own = load.source.same_as(initial.buffer)
        if not (_is_equal(load.indices, index) if own else _stride(load.indices, loop) in (0, 1, 2)):
            return None
    return str(initial.value.expr_ty().dtype) if _stride(index, loop) == 1 else None


def _stride(index: Sequence[tirx.Expr], loop: tirx.For) -> object:
    strides = linear_strides(index[-1], [loop.loop_var])
    return None if strides is None else strides[0]


def _begins_with(stmt: tirx.Stmt, initial: tirx.BufferStore) -> bool:
    """Whether the first iteration of the loops in a statement executes this store first."""
    match stmt:
        case tirx.For():
            return _begins_with(stmt.body, initial)
        case tirx.SeqStmt():
            return _begins_with(stmt.seq[0], initial)
        case tirx.IfThenElse():
            return _begins_with(stmt.then_case, initial)
    return bool(stmt.same_as(initial))


def _is_equal(index: Sequence[tirx.Expr], other: Sequence[tirx.Expr]) -> bool:
    return all(tvm_ffi.structural_equal(a, b) for a, b in zip(index, other, strict=True))
