"""Prefetches the next panel of a product's right factor while the current panel is multiplied.

A contraction reads a panel of B, a few vectors of columns by the whole sum, once for each tile of rows: for the first
of them from memory, for all others from the second cache. While the first tile waits for memory, nothing is multiplied.
So each tile asks for a part of the next panel:

    for panel, tile of rows in parallel:
        for k:                                   # annotated with the distance between panels
            prefetch(B[next panel, tile % columns, k])
            for row, column: sum[row, column] += A[tile, row, k] * B[panel, column, k]

Tiles beyond the number of columns ask for what is there already, which costs one load in a step and no branch.
"""

from __future__ import annotations

from tvm import tirx
from tvm.ir.expr import TensorLoad

from nnefc.ir.attributes import PREFETCH_NEXT_PANEL
from nnefc.ir.rebuild import perfect_nest, with_fields
from nnefc.passes.tir.common.expressions import loads_of, number, substituted, variables_of

__all__ = ["prefetch_next_panel"]


def prefetch_next_panel(stmt: tirx.Stmt) -> tirx.Stmt:
    """Returns the statement with prefetches in the loops that are annotated for it."""
    return _visited(stmt, [])


def _visited(stmt: tirx.Stmt, around: list[tirx.For]) -> tirx.Stmt:
    """Inserts prefetches into a statement of annotated loops, the outermost first."""
    match stmt:
        case tirx.For() if PREFETCH_NEXT_PANEL in stmt.annotations:
            return _with_prefetch(stmt, around)
        case tirx.For():
            return with_fields(stmt, body=_visited(stmt.body, [*around, stmt]))
        case tirx.SeqStmt():
            return tirx.SeqStmt([_visited(part, around) for part in stmt.seq])
        case tirx.AttrStmt():
            return tirx.AttrStmt(stmt.node, stmt.attr_key, stmt.value, _visited(stmt.body, around))
        case tirx.IfThenElse() if stmt.else_case is None:
            return tirx.IfThenElse(stmt.condition, _visited(stmt.then_case, around), None)
    return stmt


def _with_prefetch(stmt: tirx.For, around: list[tirx.For]) -> tirx.For:
    address = _of_next_panel(stmt, around)
    body = stmt.body
    if address is not None:
        read, second, data = number(0), number(2), number(1)
        body = tirx.SeqStmt(
            [tirx.Evaluate(tirx.call_llvm_intrin("void", "llvm.prefetch", address, read, second, data)), body]
        )
    annotations = {key: value for key, value in stmt.annotations.items() if key != PREFETCH_NEXT_PANEL}
    return with_fields(stmt, body=body, annotations=annotations)


def _of_next_panel(stmt: tirx.For, around: list[tirx.For]) -> tirx.Expr | None:
    """Returns the address that an iteration of an annotated loop prefetches; None if its loops are not those of a
    contraction.
    """
    parallel = next((loop for loop in around if loop.kind == tirx.ForKind.PARALLEL), None)
    inner = perfect_nest(stmt.body)
    if parallel is None or not inner or inner[-1].kind != tirx.ForKind.VECTORIZED:
        return None
    load = _panel_load(inner[-1])
    if load is None:
        return None
    (index,) = load.indices
    used = variables_of([index])
    apart = int(stmt.annotations[PREFETCH_NEXT_PANEL])
    tile: tirx.Expr = parallel.loop_var % apart
    for loop in around[around.index(parallel) + 1 :]:
        if loop.loop_var not in used:  # over tiles of rows
            tile = tile * loop.extent + loop.loop_var
    columns = [loop for loop in inner[:-1] if loop.loop_var in used]
    there = {loop.loop_var: loop.min for loop in inner}
    if columns:
        there[columns[-1].loop_var] = tile % columns[-1].extent
    there[parallel.loop_var] = tirx.min(parallel.loop_var + apart, parallel.extent - 1)
    return tirx.address_of(tirx.BufferLoad(load.source, [substituted(index, there)]))


def _panel_load(lanes: tirx.For) -> TensorLoad | None:
    """Returns the only full-vector load of a tensor that the statement does not write; None if there is not exactly
    one.
    """
    if not isinstance(lanes.body, tirx.BufferStore):
        return None
    found = [
        load
        for load in loads_of(lanes.body.value)
        if not load.source.same_as(lanes.body.buffer) and lanes.loop_var in variables_of(load.indices)
    ]
    return found[0] if len(found) == 1 else None
