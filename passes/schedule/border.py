"""Fill the border of a result whose kernel writes only what is inside: see `passes/compute/padding.py`.

for the places outside, side by side: P = value    # vectors, where the last dimension is not padded
the scheduled loops, which write what is inside
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from tvm import s_tir, tirx

from nnefc.passes.compute.padding import BORDER, Border
from nnefc.passes.schedule.structure import root_blocks, vector_lanes

__all__ = ["Machine", "fill_border"]


class Machine(Protocol):
    """What all targets can say."""

    def lanes(self, dtype: str) -> int:
        """Elements of `dtype` in what is loaded at once."""


def fill_border(sch: s_tir.Schedule, target: Machine) -> tirx.PrimFunc:
    """The scheduled function; if a step of it is one that writes what is inside, with the border filled before."""
    func = sch.mod["main"]
    for block in root_blocks(sch):
        node = sch.get(block)
        if BORDER in node.annotations:
            *widths, value = [int(number) for number in node.annotations[BORDER]]
            rank = len(widths) // 2
            result = node.writes[0].source
            lanes = target.lanes(str(result.dtype))
            return _after(_filled(result, Border(tuple(widths[:rank]), tuple(widths[rank:]), value), lanes), func)
    return func


def _after(stmts: Sequence[tirx.Stmt], func: tirx.PrimFunc) -> tirx.PrimFunc:
    """`func` with these statements before its own."""
    realize = func.body
    root = realize.block
    block = s_tir.SBlock(
        root.iter_vars,
        root.reads,
        root.writes,
        root.name_hint,
        tirx.SeqStmt([*stmts, root.body]),
        root.init,
        root.alloc_buffers,
        root.match_buffers,
        root.annotations,
    )
    body = s_tir.SBlockRealize(realize.iter_values, realize.predicate, block)
    return tirx.PrimFunc(func.params, body, func.ret_type, func.attrs)


def _filled(buffer: tirx.Var, border: Border, lanes: int) -> list[tirx.Stmt]:
    """Loops over the boxes that the border consists of, which do not overlap."""
    shape = [int(extent) for extent in buffer.shape]
    whole = [(0, extent) for extent in shape]
    inside = [(low, e - high) for low, e, high in zip(border.before, shape, border.after, strict=True)]
    stmts = []
    for axis, (extent, (first, end)) in enumerate(zip(shape, inside, strict=True)):
        for side in ((0, first), (end, extent)):
            box = [*inside[:axis], side, *whole[axis + 1 :]]
            if all(start < stop for start, stop in box):
                stmts.append(_fill(buffer, box, border.value, lanes))
    return stmts


def _fill(buffer: tirx.Var, box: Sequence[tuple[int, int]], value: int, lanes: int) -> tirx.Stmt:
    """`value` into a box, given as first and end of each dimension."""
    loops = [tirx.Var(f"b{axis}", "int64") for axis in range(len(box))]
    index: list[tirx.Expr] = [loop + _index(start) for loop, (start, _) in zip(loops, box, strict=True)]
    extents = [stop - start for start, stop in box]
    lanes = vector_lanes(extents[-1], lanes)
    item: tirx.Expr = tirx.const(value, str(buffer.dtype))
    if extents[-1] % lanes == 0 and lanes > 1:
        extents[-1] //= lanes
        index[-1] = tirx.Ramp(loops[-1] * _index(lanes) + _index(box[-1][0]), _index(1), lanes)
        item = tirx.Broadcast(item, lanes)
    body: tirx.Stmt = tirx.BufferStore(buffer, item, index)
    for loop, extent in reversed(list(zip(loops, extents, strict=True))):
        body = tirx.For(loop, _index(0), _index(extent), tirx.ForKind.SERIAL, body)
    return body


def _index(value: int) -> tirx.IntImm:
    return tirx.IntImm("int64", value)
