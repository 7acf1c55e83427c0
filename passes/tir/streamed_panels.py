"""All that a product of one tile of rows reads, asked for one round of its parallel loop ahead.

    for panel in parallel:                       # annotated
        for block:
            prefetch(scales[panel + 1, block])
            for word:
                prefetch(B[panel + 1, block, word])
                …

Such a product reads each panel once, from memory. What processors ask for ahead by themselves goes on where a column
ends, which is not where the next panel begins, and they do not follow many short columns at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from tvm import tirx
from tvm.ir.expr import TensorLoad

from nnefc.passes.tir.expressions import loads_of, number, substituted, variables_of

__all__ = ["STREAMED", "with_streamed_panels"]

STREAMED = "nnefc.streamed"
"""Annotation of a parallel loop, each round of which reads other vectors than all before."""

_LOOPS = (tirx.ForKind.SERIAL, tirx.ForKind.PARALLEL)


def with_streamed_panels(stmt: tirx.Stmt) -> tirx.Stmt:
    """The statement with prefetches in loops that are annotated so."""
    match stmt:
        case tirx.For() if STREAMED in stmt.annotations:
            kept = {key: value for key, value in stmt.annotations.items() if key != STREAMED}
            return _rebuilt(stmt, _asking(stmt.body, stmt), kept)
        case tirx.For():
            return _rebuilt(stmt, with_streamed_panels(stmt.body), stmt.annotations)
        case tirx.SeqStmt():
            return tirx.SeqStmt([with_streamed_panels(part) for part in stmt.seq])
        case tirx.AttrStmt():
            return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, with_streamed_panels(stmt.body))
    return stmt


def _asking(stmt: tirx.Stmt, panels: tirx.For) -> tirx.Stmt:
    """The same with what its serial loops ask for."""
    match stmt:
        case tirx.SeqStmt():
            return tirx.SeqStmt([_asking(part, panels) for part in stmt.seq])
        case tirx.AttrStmt():
            return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, _asking(stmt.body, panels))
        case tirx.For() if stmt.kind in _LOOPS:
            found = {f"{load.source.name}{load.indices}": load for load in _addresses(stmt.body, panels, [], stmt)}
            read, second, data = number(0), number(2), number(1)
            asked = [
                tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", tirx.address_of(load), read, second, data))
                for load in found.values()
            ]
            body = _asking(stmt.body, panels)
            return _rebuilt(stmt, tirx.SeqStmt([*asked, body]) if asked else body, stmt.annotations)
    return stmt


def _addresses(stmt: tirx.Stmt, panels: tirx.For, unrolled: list[tirx.For], around: tirx.For) -> Iterator[tirx.Expr]:
    """What the next round reads in whole vectors in one round of the loop `around`, but not in loops in it."""
    match stmt:
        case tirx.SeqStmt():
            for part in stmt.seq:
                yield from _addresses(part, panels, unrolled, around)
        case tirx.AttrStmt():
            yield from _addresses(stmt.body, panels, unrolled, around)
        case tirx.For() if stmt.kind not in _LOOPS:
            yield from _addresses(stmt.body, panels, [*unrolled, stmt], around)
        case tirx.BufferStore() if unrolled and unrolled[-1].kind == tirx.ForKind.VECTORIZED:
            for load in loads_of(stmt.value):
                yield from _of_load(load, panels, unrolled, around)


def _of_load(load: TensorLoad, panels: tirx.For, unrolled: list[tirx.For], around: tirx.For) -> Iterator[tirx.Expr]:
    (index,) = load.indices
    used = variables_of([index])
    if not {panels.loop_var, around.loop_var, unrolled[-1].loop_var} <= used:
        return
    loops = [loop for loop in unrolled[:-1] if loop.loop_var in used]
    following = tirx.min(panels.loop_var + 1, panels.min + panels.extent - 1)
    place = {panels.loop_var: following, unrolled[-1].loop_var: unrolled[-1].min}
    for rounds in itertools.product(*(range(int(loop.extent)) for loop in loops)):
        own = {loop.loop_var: loop.min + n for loop, n in zip(loops, rounds, strict=True)}
        yield tirx.BufferLoad(load.source, [substituted(index, place | own)])


def _rebuilt(stmt: tirx.For, body: tirx.Stmt, annotations: object) -> tirx.For:
    return tirx.For(stmt.loop_var, stmt.min, stmt.extent, stmt.kind, body, stmt.thread_binding, annotations, stmt.step)
