"""Fills the border of a result whose kernel writes only the interior; see `compiler/ir/padding.py`.

for the positions outside, side by side: P = value    # vectors, where the last dimension is not padded
the scheduled loops, which write what is inside
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias

from tvm import s_tir, tirx
from tvm.sym import Analyzer

from nnefc.ir.attributes import INTERIOR, PADDING
from nnefc.ir.rebuild import loop_nest, with_fields
from nnefc.passes.schedule.schedules import root_blocks, vector_lanes
from nnefc.passes.tir.common.expressions import int64, substituted
from nnefc.passes.tir.common.shapes import Size, size_of, sizes_of
from nnefc.symbolic.dims import expression, is_known, may_exceed

__all__ = ["VectorMachine", "fill_border"]


class VectorMachine(Protocol):
    """The vector length of a target."""

    def lanes(self, dtype: str) -> int:
        """Returns the elements of `dtype` that are loaded at once."""


def fill_border(sch: s_tir.Schedule, target: VectorMachine) -> tirx.PrimFunc:
    """Returns the scheduled function; if one of its steps writes only the interior, the border is filled first."""
    func = sch.mod["main"]
    for block in root_blocks(sch):
        node = sch.get(block)
        if PADDING in node.annotations:
            result, value = node.writes[0].source, int(node.annotations[PADDING])
            known = node.annotations.get(INTERIOR)
            extents = list(map(int, known)) if known else [_extent(axis, node.body) for axis in node.iter_vars]
            inside = [(first, first + extent) for first, extent in zip(_beginning(node), extents, strict=True)]
            return _after(_filled(result, inside, value, target.lanes(str(result.dtype))), func)
    return func


def _beginning(node: s_tir.SBlock) -> list[Size]:
    """Returns the index of the first element that a block writes: the widths of the border before the interior."""
    first = {axis.var: int64(0) for axis in node.iter_vars}
    analyzer = Analyzer()
    return [size_of(analyzer.simplify(substituted(part.min, first))) for part in node.writes[0].region]


def _extent(axis: tirx.IterVar, body: tirx.Stmt) -> Size:
    """Returns the extent that a block writes along an axis, which may be computed in full tiles."""
    while isinstance(body, tirx.IfThenElse):
        if isinstance(body.condition, tirx.LT) and body.condition.a.same_as(axis.var):
            return size_of(body.condition.b)
        body = body.then_case
    return size_of(axis.dom.extent)


def _after(stmts: Sequence[tirx.Stmt], func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Returns `func` with these statements before its own."""
    realize = func.body
    root = realize.block
    block = with_fields(root, body=tirx.SeqStmt([*stmts, root.body]))
    body = s_tir.SBlockRealize(realize.iter_values, realize.predicate, block)
    return with_fields(func, body=body)


_Side: TypeAlias = tuple[Size, Size]
"""First and end of a box along a dimension."""


def _filled(buffer: tirx.Var, inside: Sequence[_Side], value: int, lanes: int) -> list[tirx.Stmt]:
    """Fills the boxes of a tensor that surround the interior; they do not overlap."""
    shape = sizes_of(buffer)
    whole = [(0, size) for size in shape]
    stmts = []
    for axis, (size, (first, end)) in enumerate(zip(shape, inside, strict=True)):
        for side in ((0, first), (end, size)):
            box = [*inside[:axis], side, *whole[axis + 1 :]]
            if all(may_exceed(stop, start) for start, stop in box):
                stmts.append(_fill(buffer, box, value, lanes))
    return stmts


def _fill(buffer: tirx.Var, box: Sequence[_Side], value: int, lanes: int) -> tirx.Stmt:
    """Writes `value` into a box, given by the first index and the end of each dimension."""
    sizes = [stop - start for start, stop in box]
    lanes = vector_lanes(sizes[-1], lanes)
    while sizes[-1] % lanes != 0:  # as blocks of bytes may be shorter than a vector
        lanes //= 2
    sizes[-1] //= lanes
    loops, extents, positions = _nested(sizes) if not is_known(*sizes) else _joined(sizes)
    positions[-1] = positions[-1] * int64(lanes)
    index = [position + expression(start) for position, (start, _) in zip(positions, box, strict=True)]
    element: tirx.Expr = tirx.const(value, str(buffer.dtype))
    if lanes > 1:
        index[-1], element = tirx.Ramp(index[-1], int64(1), lanes), tirx.Broadcast(element, lanes)
    return loop_nest(loops, extents, tirx.BufferStore(buffer, element, index))


_Loops: TypeAlias = tuple[list[tirx.Var], Sequence[Size], list[tirx.Expr]]
"""Loops, their trip counts, and the index in a box of an iteration."""


def _joined(sizes: Sequence[Size]) -> _Loops:
    """Returns one loop over a box, which computes its indices: LLVM would unroll the inner loops of a nest, and take
    longer for the border than for the interior.
    """
    loop = tirx.Var("b", "int64")
    positions: list[tirx.Expr] = []
    inner: Size = 1  # iterations of the loop for a step along the present axis
    for size in reversed(sizes):
        positions.insert(0, tirx.floormod(tirx.floordiv(loop, expression(inner)), expression(size)))
        inner *= size
    return [loop], [inner], positions


def _nested(sizes: Sequence[Size]) -> _Loops:
    """Returns a loop for each dimension: dividing by dynamic sizes takes long, and LLVM does not unroll such loops."""
    loops = [tirx.Var(f"b{axis}", "int64") for axis in range(len(sizes))]
    return loops, sizes, list(loops)
