"""What products of one row ask for ahead: all that they read, once, some iterations before they do."""

from __future__ import annotations

import numpy as np
from test_prefetch_next_panel import prefetches, value
from tvm import tirx

from nnefc.ir.attributes import PREFETCH_STREAM
from nnefc.passes.tir.cpu.prefetch_stream import prefetch_stream

PANELS, BLOCKS, WORDS, LANES = 3, 4, 2, 16
AHEAD = 2  # blocks


def loop(name: str, extent: int, kind: tirx.ForKind = tirx.ForKind.SERIAL) -> tuple[tirx.Var, int, tirx.ForKind]:
    return tirx.Var(name, "int64"), extent, kind


def nest(body: tirx.Stmt, *loops: tuple[tirx.Var, int, tirx.ForKind]) -> tirx.Stmt:
    """A statement in loops, the outermost first."""
    for var, extent, kind in reversed(loops):
        annotations = {PREFETCH_STREAM: (AHEAD - 1) * WORDS * LANES * 4 + 1} if kind == tirx.ForKind.PARALLEL else {}
        body = tirx.For(var, tirx.IntImm("int64", 0), tirx.IntImm("int64", extent), kind, body, annotations=annotations)
    return body


def product() -> tirx.Stmt:
    """Sums of words in blocks, whose scales are applied to the sums of each; rows are the same for all panels."""
    panel = loop("panel", PANELS, tirx.ForKind.PARALLEL)
    block, word = loop("block", BLOCKS), loop("word", WORDS)
    words, scales, total, part, row = (
        tirx.decl_buffer((1 << 16,), "float32", name) for name in ("words", "scales", "total", "part", "row")
    )
    statements = []
    for source, target in ((words, part), (scales, total)):
        position = loop("slot", 4, tirx.ForKind.UNROLLED)
        lane = loop("lane", LANES, tirx.ForKind.VECTORIZED)
        inner = [word] if source is words else []
        index = panel[0] * BLOCKS + block[0]
        index = (index * WORDS + word[0] if inner else index) * LANES + lane[0]
        load = source[index] * row[block[0] * 4 + position[0]]
        store = tirx.BufferStore(target, target[lane[0]] + load, [lane[0]])
        statements.append(nest(store, *inner, position, lane))
    return nest(tirx.SeqStmt(statements), panel, block)


def test_all_that_is_read_is_asked_for_once_and_as_far_ahead() -> None:
    found = prefetches(prefetch_stream(product()))
    assert [len(loops) for loops, _ in found] == [2, 3]  # scales in the loop over blocks, words in that over words
    for loops, index in found:
        lines = [
            value(index, dict(zip((loop.loop_var for loop in loops), map(int, counters), strict=True)))
            for counters in np.ndindex(*(int(loop.extent) for loop in loops))
        ]
        of_block = WORDS if len(loops) == 3 else 1
        count = PANELS * BLOCKS * of_block
        assert lines == [LANES * (line + AHEAD * of_block) for line in range(count)]


def test_other_loops_stay_as_they_are() -> None:
    panels = product()
    without_prefetch = tirx.For(panels.loop_var, panels.min, panels.extent, panels.kind, panels.body)
    assert not prefetches(prefetch_stream(without_prefetch))
