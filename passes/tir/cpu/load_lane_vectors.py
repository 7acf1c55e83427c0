"""Loads the scalar factors of products as vectors, and multiplies by their lanes.

    for k in 64:                                   for ko in 16:
        for row, column:                               for ki in unrolled(4):
            sum[row, column] += A[row, k] * B[…]   →       for row, column:
                                                               sum[row, column] += (A[row, 4 ko : 4 ko + 4])[ki] * B[…]

Such machines multiply a vector by one lane of another, so that four numbers are loaded at once. Where neighbours are
not along the sum but along the rows of a tile, as quads of pixels are, the lanes are those of four rows; of seven rows,
the second vector begins at the fourth. All that is loaded is also read without this.
"""

from __future__ import annotations

import math

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

from nnefc.ir.attributes import LANE_FACTORS, MASK
from nnefc.ir.rebuild import nested, perfect_nest, with_fields
from nnefc.passes.tir.common.expressions import (
    conditions_of,
    linear_strides,
    loads_of,
    replaced,
    substituted,
    variables_of,
)
from nnefc.support.element_types import bits_of

__all__ = ["load_lane_vectors"]


_BITS, _WORD = 128, 32  # of a vector, and at most of a number, or of several that are multiplied at once


def load_lane_vectors(stmt: tirx.Stmt) -> tirx.Stmt:
    """Returns the statement with vector loads of scalar factors in the loops that are annotated for it."""
    masked: list[tirx.AttrStmt] = []

    def note(part: tirx.AttrStmt) -> None:
        if part.attr_key == MASK:
            masked.append(part)

    tvm_ffi.structural_walk(stmt, (tirx.AttrStmt, note))
    if masked:  # of the lanes of all vectors that are read
        return stmt
    return tvm_ffi.structural_map(
        stmt, (tirx.For, lambda loop: _by_lane(loop) if LANE_FACTORS in loop.annotations else loop)
    )


def _by_lane(loop: tirx.For) -> tirx.For:
    """Returns the innermost loop of a sum without the annotation, and with vector loads if neighbours are known."""
    annotations = dict(loop.annotations)
    lanes = int(annotations.pop(LANE_FACTORS))
    loop = with_fields(loop, annotations=annotations)
    nest = perfect_nest(loop)
    store, vector = nest[-1].body, nest[-1]
    if not isinstance(store, tirx.BufferStore) or vector.kind != tirx.ForKind.VECTORIZED:
        return loop
    if any(True for _ in conditions_of(store.value)):  # hidden elements may lie outside
        return loop
    together = math.gcd(_extent(loop), lanes)
    if together > 1 and _neighbours(store, vector, loop, lanes):
        return _along_the_sum(loop, nest[1:], store, together, lanes)
    for row in nest[1:-1]:
        if row.kind == tirx.ForKind.UNROLLED and _extent(row) >= lanes and _neighbours(store, vector, row, lanes):
            last = tirx.const(_extent(row) - lanes, str(row.loop_var.ty.dtype))
            first = tirx.min(row.loop_var // lanes * lanes, last)
            return nested(nest[:-1], _loading(store, vector, row, first, lanes, lanes))
    return loop


def _along_the_sum(
    loop: tirx.For, inner: list[tirx.For], store: tirx.BufferStore, together: int, lanes: int
) -> tirx.For:
    """Computes `together` terms of the sum in one iteration, from `lanes` loaded at once."""
    var, zero = loop.loop_var, tirx.const(0, str(loop.loop_var.ty.dtype))
    part = tirx.For(
        tirx.Var(f"{var.name}_lane", str(var.ty.dtype)), zero, together + zero, tirx.ForKind.UNROLLED, store
    )
    moved = {var: var * together + part.loop_var}
    store = tirx.BufferStore(
        store.buffer, substituted(store.value, moved), [substituted(index, moved) for index in store.indices]
    )
    repeated = with_fields(loop, extent=_extent(loop) // together + zero, body=store)
    return nested([repeated, part, *inner[:-1]], _loading(store, inner[-1], part, zero, together, lanes))


def _loading(
    store: tirx.BufferStore, vector: tirx.For, along: tirx.For, first: tirx.Expr, together: int, lanes: int
) -> tirx.Stmt:
    """Returns the vector statement on numbers from vectors, which begin with what is read when the loop is at
    `first`.
    """
    known, bound = [], []
    for load in _neighbours(store, vector, along, lanes):
        start = substituted(load.indices[0], {along.loop_var: first})
        one = tirx.const(1, str(start.expr_ty().dtype))
        loaded = tirx.BufferLoad(load.source, [tirx.Ramp(start, one, together)])
        factor = tirx.Var(f"{load.source.name}_lane", str(load.source.dtype))
        bound.append(tirx.Bind(factor, tirx.Shuffle([loaded], [along.loop_var - first])))
        known.append((load, factor))
    made = tirx.BufferStore(store.buffer, replaced(store.value, known), store.indices)
    return tirx.SeqStmt([*bound, nested([vector], made)])


def _neighbours(store: tirx.BufferStore, vector: tirx.For, along: tirx.For, lanes: int) -> list[TensorLoad]:
    """Returns the scalars of a statement that are contiguous across iterations, so that several are loaded at once."""
    return [
        load
        for load in loads_of(store.value)
        if not load.source.same_as(store.buffer)
        and bits_of(str(load.source.dtype)) == min(_BITS // lanes, _WORD)
        and vector.loop_var not in variables_of(load.indices)
        and linear_strides(load.indices[0], [along.loop_var]) == [1]
    ]


def _extent(loop: tirx.For) -> int:
    """Returns the trip count; 1 if it is unknown."""
    return int(loop.extent) if isinstance(loop.extent, tirx.IntImm) else 1
