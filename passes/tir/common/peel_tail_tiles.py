"""Removes the boundary checks of full tiles, and peels smaller tail tiles for the remainder of the axis.

    for i in q:                                      for i in q:
        for r in unrolled(14):                           if more than 7 are left, and e >= 14:
            c[r] = sum(A[14 i + r])                          s = min(14 i, e - 14)
        for r in unrolled(14):                →              for r in unrolled(14): c[r] = sum(A[s + r])
            if 14 i + r < e: C[14 i + r] = c[r]              for r in unrolled(14): C[s + r] = c[r]
                                                         else:
                                                             the same for 7 rows, then for 1, as often as it takes

A tile that would reach beyond the end begins earlier, and computes some elements once more: all of its elements are
there, so that nothing is compared. A kernel that may write over what it reads writes only those that are new.

`passes/schedule/full_tiles.py` makes such kernels.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.sym import detect_linear_equation

from nnefc.ir.attributes import TAIL_TILE, TILED_AXES
from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import int64, is_number, loads_of, substituted, variables_of
from nnefc.passes.tir.common.partition_windows import with_interior_version
from nnefc.passes.tir.common.statements import renewed
from nnefc.passes.tir.tvm_workarounds.opaque import opaque_binding

__all__ = ["TiledAxis", "hoist_condition", "peel_tails", "tile_axis", "tiled_axes"]


@dataclass(frozen=True)
class TiledAxis:
    """An axis that a kernel computes in tiles which do not divide it, as those of dynamic size.

    Attributes:
        end, count: the variables that stand for its size, and for how many tiles it has.
        tile: elements of a whole one.
        remainders: elements of the tiles that the last one is made of, the greatest first, then 1, or that of the last
            one of a known number of elements; none if it is like the
            others.
    """

    end: tirx.Var
    count: tirx.Var
    tile: int
    remainders: tuple[int, ...]


def tile_axis(func: tirx.PrimFunc, axis: TiledAxis) -> tirx.PrimFunc:
    """Returns a kernel that computes one more axis in tiles."""
    noted = [axis.end, axis.count, *map(int64, (axis.tile, *axis.remainders))]
    return func.with_attr(TILED_AXES, [*func.attrs.get(TILED_AXES, ()), noted])


def tiled_axes(func: tirx.PrimFunc) -> tuple[TiledAxis, ...]:
    """Returns the tiled axes of a kernel."""
    noted = func.attrs.get(TILED_AXES, ()) if func.attrs else ()
    return tuple(TiledAxis(end, count, int(tile), tuple(map(int, sizes))) for end, count, tile, *sizes in noted)


def peel_tails(stmt: tirx.Stmt, axes: Sequence[TiledAxis], once: bool = False) -> tirx.Stmt:
    """Returns the body of a flat kernel with full tiles and peeled tail tiles along its tiled axes.

    Args:
        once: whether each element is to be written once, for what it is computed from may be there before.
    """
    stmt = tvm_ffi.structural_map(stmt, (tirx.For, hoist_condition))
    for axis in (axis for axis in axes if axis.remainders):
        stmt = tvm_ffi.structural_map(stmt, (tirx.For, lambda loop, axis=axis: _over_tiles(loop, axis, once)))
    return stmt


def _over_tiles(loop: tirx.For, axis: TiledAxis, once: bool) -> tirx.For:
    if not loop.extent.same_as(axis.count):
        return loop
    first, end, tile = loop.loop_var * int64(axis.tile), axis.end, int64(axis.tile)
    if once:
        fits, whole = first + tile <= end, with_interior_version(_inside(loop.body, end))
    else:
        fits = tirx.And(tile <= end, end - first > int64(axis.remainders[0]))
        whole = _tile(loop.body, axis, first, int64(0), axis.tile, once)
    body = tirx.IfThenElse(fits, whole, _remainder(loop.body, axis, first, once))
    return _loop(loop, loop.loop_var, loop.extent, body)


def _inside(body: tirx.Stmt, end: tirx.Var, new: tirx.Expr | None = None) -> tirx.Stmt:
    """Returns the statements of a full tile; it writes only from element `new` on, if that is given."""

    def known(node: tirx.Expr | tirx.IfThenElse) -> tirx.Expr | tirx.Stmt:
        match node:
            case tirx.And():
                return next((b for a, b in ((node.a, node.b), (node.b, node.a)) if is_number(a, 1)), node)
            case tirx.LT() | tirx.LE() if end in variables_of([node]):
                linear = detect_linear_equation(node.a - node.b, [end])
                if not linear or not is_number(linear[0], -1):
                    return node
                return tirx.const(True, "bool") if new is None else new <= linear[1]
            case tirx.IfThenElse() if is_number(node.condition, 1):
                return node.then_case
        return node

    return tvm_ffi.structural_map(body, ((tirx.And, tirx.LT, tirx.LE, tirx.IfThenElse), known))


def _remainder(body: tirx.Stmt, axis: TiledAxis, first: tirx.Expr, once: bool) -> tirx.Stmt:
    """Computes the partial last tile by smaller tiles; `first` is the tile's first element."""
    made: list[tirx.Stmt] = []
    sizes = axis.remainders
    begin: tirx.Expr = int64(0)
    for size, following in zip(sizes, (*sizes[1:], 0), strict=True):
        count, number = tirx.Var("count", "int64"), tirx.Var("number", "int64")
        more = tirx.max(axis.end - first - begin - int64(following), int64(0))
        trip_count = tirx.floordiv(more + int64(size - 1), int64(size))
        trip_count = tirx.Select(axis.end >= int64(size), trip_count, int64(0)) if size > 1 else trip_count
        made.append(opaque_binding(count, trip_count))
        part = _tile(body, axis, first, begin + number * int64(size), size, once)
        smaller = {TAIL_TILE: True}
        made.append(tirx.For(number, int64(0), count, tirx.ForKind.SERIAL, part, annotations=smaller))
        begin = begin + count * int64(size)
    return tirx.SeqStmt(made)


def _tile(body: tirx.Stmt, axis: TiledAxis, first: tirx.Expr, begin: tirx.Expr, size: int, once: bool) -> tirx.Stmt:
    """Returns the statements of a tile for only `size` of its elements, from element `begin` on, or earlier if it would
    exceed the end.

    Its own buffers hold these elements from their first position on, so that they stay in registers.
    """
    if size == 1:
        return _inside(_moved(body, axis, begin, size), axis.end)
    start = tirx.Var("start", "int64")
    moved = _moved(body, axis, start, size)
    earlier = opaque_binding(start, tirx.min(begin, axis.end - int64(size) - first))
    stmt = _inside(moved, axis.end, first + begin if once else None)
    return tirx.SeqStmt([earlier, with_interior_version(stmt) if size == axis.tile else stmt])


def _moved(body: tirx.Stmt, axis: TiledAxis, begin: tirx.Expr, size: int) -> tirx.Stmt:
    """Returns the statements of a tile for other rows: `size` of them, from `begin` on."""
    body = renewed(body)
    own = {stmt.buffer for stmt in _found(body, tirx.AllocBuffer)}
    rows = _rows(body, axis, own)
    positions = {row: tirx.Var(row.name, "int64") for row in rows}
    moved = {row: begin + position for row, position in positions.items()}

    def in_place(node: TensorLoad | tirx.BufferStore | tirx.For) -> TensorLoad | tirx.Stmt:
        match node:
            case TensorLoad() if node.source in own:
                return tirx.BufferLoad(node.source, [substituted(index, positions) for index in node.indices])
            case tirx.BufferStore() if node.buffer in own:
                return tirx.BufferStore(node.buffer, node.value, [substituted(i, positions) for i in node.indices])
            case tirx.For() if node.loop_var in rows:
                return _loop(node, positions[node.loop_var], int64(size), node.body)
        return node

    body = tvm_ffi.structural_map(body, ((TensorLoad, tirx.BufferStore, tirx.For), in_place))
    return tvm_ffi.structural_map(body, (tirx.Var, lambda var: moved.get(var, var)))


def _rows(body: tirx.Stmt, axis: TiledAxis, own: Set[tirx.Var]) -> list[tirx.Var]:
    """Returns the loops over the elements of a tile: those whose index is compared with the end, and those that go
    through the tile's own buffers in the same way.
    """
    limits = [node for node in _found(body, (tirx.LT, tirx.LE)) if not loads_of(node)]  # of indices, not values
    compared = [node for node in limits if axis.end in variables_of([node])]
    loops = {loop.loop_var: loop.extent for loop in _found(body, tirx.For)}
    rows = loops.keys() & variables_of(compared)
    indices = [access.indices[0] for access in _found(body, (TensorLoad, tirx.BufferStore)) if _buffer(access) in own]
    steps = [(var, int(step)) for index in indices for var in variables_of([index]) for step in _steps(index, var)]
    of_rows = {step for var, step in steps if var in rows}
    rows |= {var for var, step in steps if step in of_rows and is_number(loops.get(var, 0), axis.tile)}
    return [var for var in loops if var in rows]


def _buffer(access: TensorLoad | tirx.BufferStore) -> tirx.Var:
    return access.source if isinstance(access, TensorLoad) else access.buffer


def _steps(index: tirx.Expr, var: tirx.Var) -> list[tirx.IntImm]:
    """Returns the stride of an index along a variable, if it is constant."""
    return [step for step in detect_linear_equation(index, [var])[:1] if isinstance(step, tirx.IntImm)]


def _found(body: tirx.Stmt, kinds: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(body, (kinds, found.append))
    return found


def hoist_condition(loop: tirx.For) -> tirx.Stmt:
    """Moves a condition that is equal for all lanes out of a vectorized loop."""
    body = loop.body
    if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(body, tirx.IfThenElse) or body.else_case is not None:
        return loop
    if loop.loop_var in variables_of([body.condition]):
        return loop
    return tirx.IfThenElse(body.condition, _loop(loop, loop.loop_var, loop.extent, body.then_case), None)


def _loop(loop: tirx.For, var: tirx.Var, extent: tirx.Expr, body: tirx.Stmt) -> tirx.For:
    single = loop.kind == tirx.ForKind.VECTORIZED and is_number(extent, 1)  # TVM knows no vectors of one element
    kind = tirx.ForKind.SERIAL if single else loop.kind
    return with_fields(loop, loop_var=var, extent=extent, kind=kind, body=body)
