"""Distributes the tiles of an axis among threads, where the outer loops have too few iterations.

    for o in parallel(4):                    for g in parallel(4 p):                       # p = min(q, 64 / 4)
        for i in q: …               →            o = g / p
                                                 for i from q (g % p) / p to q (g % p + 1) / p: …

This applies to fused axes, the first of which would otherwise be distributed among threads: see
`passes/schedule/fused_axes.py`. Where the last tile overlaps its predecessor, two threads may write the same values to
the same elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi
from tvm import tirx

from nnefc.ir.attributes import GROUPED_LINES
from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import int64
from nnefc.passes.tir.common.group_lines import in_groups
from nnefc.passes.tir.common.peel_tail_tiles import TiledAxis
from nnefc.passes.tir.tvm_workarounds.opaque import opaque_binding
from nnefc.symbolic.dims import ceil_div

__all__ = ["parallelize_tiles"]


_ENOUGH = 64
"""The iterations of a parallel loop that suffice: more threads than that are rare."""


def parallelize_tiles(stmt: tirx.Stmt, axes: Sequence[TiledAxis]) -> tirx.Stmt:
    """Distributes the tiles of an axis of a flat kernel among threads: makes the loop over them a part of a parallel
    loop, or a parallel loop.
    """
    counts = {axis.count for axis in axes if axis.remainders}
    around: list[tirx.For] = []

    def note(loop: tirx.For) -> None:
        if loop.kind == tirx.ForKind.PARALLEL:
            around.append(loop)

    def alone(loop: tirx.For) -> tirx.For:
        return with_fields(loop, kind=tirx.ForKind.PARALLEL) if loop.extent in counts else loop

    tvm_ffi.structural_walk(stmt, (tirx.For, note))
    if not around:
        return tvm_ffi.structural_map(stmt, (tirx.For, alone))
    return tvm_ffi.structural_map(stmt, (tirx.For, lambda loop: _shared(loop, counts)))


def _shared(loop: tirx.For, counts: set[tirx.Var]) -> tirx.Stmt:
    tiles: list[Any] = []
    tvm_ffi.structural_walk(
        loop.body, (tirx.For, lambda inner: tiles.append(inner) if inner.extent in counts else None)
    )
    grouped = GROUPED_LINES in loop.annotations
    known = isinstance(loop.extent, tirx.IntImm) and int(loop.extent) >= _ENOUGH and not grouped
    if loop.kind != tirx.ForKind.PARALLEL or known or not tiles:
        return loop
    count = tiles[0].extent
    parts, both, part = (tirx.Var(name, "int64") for name in ("parts", "both", "part"))
    trip_count = tirx.max(loop.extent, int64(1))
    wanted = tirx.Div(trip_count + int64(_ENOUGH - 1), trip_count)
    if grouped:  # parts of an image that a cache holds
        wanted = tirx.max(wanted, ceil_div(count, int(loop.annotations[GROUPED_LINES][1])))
    begin, end = (tirx.Var(name, "int64") for name in ("begin", "end"))

    def limited(inner: tirx.For) -> tirx.For:
        return with_fields(inner, min=begin, extent=end - begin) if inner.extent in counts else inner

    body = [
        opaque_binding(loop.loop_var, tirx.Div(both, parts)),
        opaque_binding(part, tirx.Mod(both, parts)),
        opaque_binding(begin, tirx.Div(count * part, parts)),
        opaque_binding(end, tirx.Div(count * (part + int64(1)), parts)),
        tvm_ffi.structural_map(loop.body, (tirx.For, limited)),
    ]
    shared = with_fields(loop, loop_var=both, min=int64(0), extent=loop.extent * parts, body=tirx.SeqStmt(body))
    if grouped:
        shared = in_groups(shared, tirx.Div(count + parts - int64(1), parts))
    return tirx.SeqStmt([opaque_binding(parts, tirx.max(int64(1), tirx.min(count, wanted))), shared])
