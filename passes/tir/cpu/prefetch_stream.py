"""Prefetches the operands of a product of one row, a few iterations ahead.

    for panel in parallel:                       # annotated
        for block:
            prefetch(scales[panel, block + 40])
            for word:
                prefetch(B[panel, block + 40, word])
                …

Such a product reads its matrix once, from memory, and panels of one vector lie one after the other: what is so many
iterations ahead of the end of a panel is the beginning of the next one. Hardware
prefetchers do not run far enough ahead where each line takes so much computation. Prefetches beyond the end of the
matrix are safe: a prefetch is not an access.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Set

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad

from nnefc.ir.attributes import PREFETCH_STREAM
from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import linear_strides, loads_of, number, substituted, variables_of
from nnefc.support.element_types import bits_of
from nnefc.symbolic.dims import ceil_div

__all__ = ["prefetch_stream"]


_LOOPS = (tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL)


def prefetch_stream(stmt: tirx.Stmt) -> tirx.Stmt:
    """Returns the statement with prefetches in the loops that are annotated for it."""
    match stmt:
        case tirx.For() if PREFETCH_STREAM in stmt.annotations:
            kept = {key: value for key, value in stmt.annotations.items() if key != PREFETCH_STREAM}
            ahead = int(stmt.annotations[PREFETCH_STREAM])
            return with_fields(stmt, body=_in_panels(stmt.body, stmt, ahead), annotations=kept)
        case tirx.For():
            return with_fields(stmt, body=prefetch_stream(stmt.body))
        case tirx.SeqStmt():
            return tirx.SeqStmt([prefetch_stream(part) for part in stmt.seq])
        case tirx.AttrStmt():
            return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, prefetch_stream(stmt.body))
    return stmt


def _in_panels(stmt: tirx.Stmt, panels: tirx.For, ahead: int) -> tirx.Stmt:
    """Inserts prefetches into the outermost serial loops."""
    match stmt:
        case tirx.SeqStmt():
            return tirx.SeqStmt([_in_panels(part, panels, ahead) for part in stmt.seq])
        case tirx.AttrStmt():
            return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, _in_panels(stmt.body, panels, ahead))
        case tirx.For() if stmt.kind in _LOOPS:
            of_iteration = _bytes_of_iteration(stmt, panels)
            return (
                _asking(stmt, panels, {stmt.loop_var: stmt.loop_var + ceil_div(ahead, of_iteration)})
                if of_iteration
                else stmt
            )
    return stmt


def _bytes_of_iteration(blocks: tirx.For, panels: tirx.For) -> int:
    """Returns the largest stride per iteration of a tensor that is read; 0 if there is none."""
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(blocks, (tirx.BufferStore, stores.append))
    both = {panels.loop_var, blocks.loop_var}
    loads = [load for store in stores for load in loads_of(store.value) if both <= variables_of(load.indices)]
    steps = [(linear_strides(load.indices[0], [blocks.loop_var]), load) for load in loads]
    return max((by[0] * bits_of(str(load.source.dtype)) // 8 for by, load in steps if by is not None), default=0)


def _asking(stmt: tirx.Stmt, panels: tirx.For, later: Mapping[tirx.Var, tirx.Expr]) -> tirx.Stmt:
    """Inserts prefetches of iterations that are `distance` later into serial loops."""
    match stmt:
        case tirx.SeqStmt():
            return tirx.SeqStmt([_asking(part, panels, later) for part in stmt.seq])
        case tirx.AttrStmt():
            return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, _asking(stmt.body, panels, later))
        case tirx.For() if stmt.kind in _LOOPS:
            loads = _addresses(stmt.body, {panels.loop_var, stmt.loop_var, *later}, later, [])
            found = {f"{load.source.name}{load.indices}": load for load in loads}
            read, nearest, data = number(0), number(3), number(1)
            asked = [
                tirx.Evaluate(
                    tirx.call_llvm_intrin("void", "llvm.prefetch", tirx.address_of(load), read, nearest, data)
                )
                for load in found.values()
            ]
            body = _asking(stmt.body, panels, later)
            return with_fields(stmt, body=tirx.SeqStmt([*asked, body]) if asked else body)
    return stmt


def _addresses(
    stmt: tirx.Stmt, needed: Set[tirx.Var], later: Mapping[tirx.Var, tirx.Expr], unrolled: list[tirx.For]
) -> Iterator[TensorLoad]:
    """Returns the addresses that an iteration of a loop reads in full vectors, except in inner serial loops.

    Args:
        needed: variables that positions depend on.
        unrolled: the loops around the statement inside of that one.
    """
    match stmt:
        case tirx.SeqStmt():
            for part in stmt.seq:
                yield from _addresses(part, needed, later, unrolled)
        case tirx.AttrStmt():
            yield from _addresses(stmt.body, needed, later, unrolled)
        case tirx.For() if stmt.kind not in _LOOPS:
            yield from _addresses(stmt.body, needed, later, [*unrolled, stmt])
        case tirx.BufferStore() if unrolled and unrolled[-1].kind == tirx.ForKind.VECTORIZED:
            for load in loads_of(stmt.value):
                yield from _of_load(load, needed, later, unrolled)


def _of_load(
    load: TensorLoad, needed: Set[tirx.Var], later: Mapping[tirx.Var, tirx.Expr], unrolled: list[tirx.For]
) -> Iterator[TensorLoad]:
    (index,) = load.indices
    used = variables_of([index])
    if not needed | {unrolled[-1].loop_var} <= used:
        return
    loops = [loop for loop in unrolled[:-1] if loop.loop_var in used]
    position = {**later, unrolled[-1].loop_var: unrolled[-1].min}
    for counters in itertools.product(*(range(int(loop.extent)) for loop in loops)):
        own = {loop.loop_var: loop.min + n for loop, n in zip(loops, counters, strict=True)}
        yield tirx.BufferLoad(load.source, [substituted(index, position | own)])
