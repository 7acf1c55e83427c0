"""Whole tiles without a word of the end of their axis, and smaller tiles for what is left of it.

    for i in q:                                             for i in q:
        for r in unrolled(14):                                  if 14 i + 14 <= e:
            c[r] = sum(A[min(14 i + r, e - 1)])                     for r in unrolled(14): c[r] = sum(A[14 i + r])
        for r in unrolled(14):                       →              for r in unrolled(14): C[14 i + r] = c[r]
            if 14 i + r < e: C[14 i + r] = c[r]                 else:
                                                                    the same as before for 7 rows, then for 4,
                                                                    as often as it takes

`passes/schedule/whole_tiles.py` makes such kernels.
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass
from typing import Any

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.sym import detect_linear_equation

from nnefc.passes.tir.expressions import int64, is_number, loads_of, substituted, variables_of

__all__ = ["TiledAxis", "tiled_axes", "with_remainders", "with_tiled_axis"]

_TILED = "nnefc.tiled_axes"
"""Attribute of kernels: their tiled axes."""


@dataclass(frozen=True)
class TiledAxis:
    """An axis of open size that a kernel computes in tiles.

    Attributes:
        end, count: the variables that stand for its size, and for how many tiles it has.
        tile: items of a whole one.
        remainders: items of the tiles that the last one is made of, the greatest first; none if it is like the others.
        alone: whether the one item of an axis that has no other is a tile of its own.
    """

    end: tirx.Var
    count: tirx.Var
    tile: int
    remainders: tuple[int, ...]
    alone: bool = False


def with_tiled_axis(func: tirx.PrimFunc, axis: TiledAxis) -> tirx.PrimFunc:
    """A kernel that computes one more axis in tiles."""
    noted = [axis.end, axis.count, *map(int64, (axis.alone, axis.tile, *axis.remainders))]
    return func.with_attr(_TILED, [*func.attrs.get(_TILED, ()), noted])


def tiled_axes(func: tirx.PrimFunc) -> tuple[TiledAxis, ...]:
    """Those of a kernel."""
    noted = func.attrs.get(_TILED, ()) if func.attrs else ()
    return tuple(
        TiledAxis(end, count, int(tile), tuple(map(int, sizes)), bool(alone))
        for end, count, alone, tile, *sizes in noted
    )


def with_remainders(stmt: tirx.Stmt, axes: Sequence[TiledAxis]) -> tirx.Stmt:
    """The body of a flat kernel with whole and smaller tiles along its axes."""
    stmt = tvm_ffi.structural_map(stmt, (tirx.For, _hoisted))
    for axis in (axis for axis in axes if axis.remainders):
        stmt = tvm_ffi.structural_map(stmt, (tirx.For, lambda loop, axis=axis: _over_tiles(loop, axis)))
    return stmt


def _over_tiles(loop: tirx.For, axis: TiledAxis) -> tirx.For:
    if not loop.extent.same_as(axis.count):
        return loop
    first = loop.loop_var * int64(axis.tile)
    remainder = _remainder(loop.body, axis, first)
    if axis.alone:
        only = _smaller(loop.body, axis, int64(0), 1)
        remainder = tirx.IfThenElse(axis.end <= int64(1), only, remainder)
    body = tirx.IfThenElse(first + int64(axis.tile) <= axis.end, _inside(loop.body, axis.end), remainder)
    return _loop(loop, loop.loop_var, loop.extent, body)


def _inside(body: tirx.Stmt, end: tirx.Var) -> tirx.Stmt:
    """The statements of a tile that lies inside as a whole."""

    def known(node: tirx.Expr | tirx.IfThenElse) -> tirx.Expr | tirx.Stmt:
        match node:
            case tirx.Min() if end in variables_of([node]):
                return next((side for side in (node.a, node.b) if end not in variables_of([side])), node)
            case tirx.And():
                return next((b for a, b in ((node.a, node.b), (node.b, node.a)) if is_number(a, 1)), node)
            case tirx.LT() | tirx.LE() if end in variables_of([node]):
                linear = detect_linear_equation(node.a - node.b, [end])
                return tirx.const(True, "bool") if linear and is_number(linear[0], -1) else node
            case tirx.IfThenElse() if is_number(node.condition, 1):
                return node.then_case
        return node

    return tvm_ffi.structural_map(body, ((tirx.Min, tirx.And, tirx.LT, tirx.LE, tirx.IfThenElse), known))


def _remainder(body: tirx.Stmt, axis: TiledAxis, first: tirx.Expr) -> tirx.Stmt:
    """What a tile that the axis ends in computes, in smaller ones; `first` is the tile's first item."""
    made: list[tirx.Stmt] = []
    sizes = axis.remainders
    begin: tirx.Expr = int64(0)
    for size, following in zip(sizes, (*sizes[1:], 0), strict=True):
        count, number = tirx.Var("count", "int64"), tirx.Var("number", "int64")
        more = tirx.max(axis.end - first - begin - int64(following), int64(0))
        made.append(tirx.Bind(count, tirx.floordiv(more + int64(size - 1), int64(size))))
        part = _smaller(body, axis, begin + number * int64(size), size)
        made.append(tirx.For(number, int64(0), count, tirx.ForKind.SERIAL, part))
        begin = begin + count * int64(size)
    return tirx.SeqStmt(made)


def _smaller(body: tirx.Stmt, axis: TiledAxis, begin: tirx.Expr, size: int) -> tirx.Stmt:
    """The statements of a tile for `size` of its items alone, from item `begin` on.

    Its own buffers hold these items from their first place on, so that they stay in registers.
    """
    body = _RENEW(tirx.PrimFunc([], body)).body
    own = {stmt.buffer for stmt in _found(body, tirx.AllocBuffer)}
    rows = _rows(body, axis, own)
    places = {row: tirx.Var(row.name, "int64") for row in rows}
    moved = {row: begin + place for row, place in places.items()}

    def in_place(node: TensorLoad | tirx.BufferStore | tirx.For) -> TensorLoad | tirx.Stmt:
        match node:
            case TensorLoad() if node.source in own:
                return tirx.BufferLoad(node.source, [substituted(index, places) for index in node.indices])
            case tirx.BufferStore() if node.buffer in own:
                return tirx.BufferStore(node.buffer, node.value, [substituted(i, places) for i in node.indices])
            case tirx.For() if node.loop_var in rows:
                return _loop(node, places[node.loop_var], int64(size), node.body)
        return node

    body = tvm_ffi.structural_map(body, ((TensorLoad, tirx.BufferStore, tirx.For), in_place))
    return tvm_ffi.structural_map(body, (tirx.Var, lambda var: moved.get(var, var)))


_RENEW = tvm.get_global_func("s_tir.RenewDefs")


def _rows(body: tirx.Stmt, axis: TiledAxis, own: Set[tirx.Var]) -> set[tirx.Var]:
    """The loops over the items of a tile: what is compared with the end depends on them; and those that go through the
    tile's own buffers as these do, which is what begins a sum, or adds up its parts."""
    limits = [node for node in _found(body, (tirx.Min, tirx.LT, tirx.LE)) if not loads_of(node)]  # of places, no values
    compared = [node for node in limits if axis.end in variables_of([node])]
    loops = {loop.loop_var: loop.extent for loop in _found(body, tirx.For)}
    rows = loops.keys() & variables_of(compared)
    indices = [access.indices[0] for access in _found(body, (TensorLoad, tirx.BufferStore)) if _buffer(access) in own]
    steps = [(var, int(step)) for index in indices for var in variables_of([index]) for step in _steps(index, var)]
    of_rows = {step for var, step in steps if var in rows}
    return rows | {var for var, step in steps if step in of_rows and is_number(loops.get(var, 0), axis.tile)}


def _buffer(access: TensorLoad | tirx.BufferStore) -> tirx.Var:
    return access.source if isinstance(access, TensorLoad) else access.buffer


def _steps(index: tirx.Expr, var: tirx.Var) -> list[tirx.IntImm]:
    """How far an index goes with each step of a variable, if that is always as far."""
    return [step for step in detect_linear_equation(index, [var])[:1] if isinstance(step, tirx.IntImm)]


def _found(body: tirx.Stmt, kinds: Any) -> list[Any]:
    found: list[Any] = []
    tvm_ffi.structural_walk(body, (kinds, found.append))
    return found


def _hoisted(loop: tirx.For) -> tirx.Stmt:
    """A vectorized loop under a condition that is the same for all its lanes, instead of around it."""
    body = loop.body
    if loop.kind != tirx.ForKind.VECTORIZED or not isinstance(body, tirx.IfThenElse) or body.else_case is not None:
        return loop
    if loop.loop_var in variables_of([body.condition]):
        return loop
    return tirx.IfThenElse(body.condition, _loop(loop, loop.loop_var, loop.extent, body.then_case), None)


def _loop(loop: tirx.For, var: tirx.Var, extent: tirx.Expr, body: tirx.Stmt) -> tirx.For:
    return tirx.For(var, loop.min, extent, loop.kind, body, loop.thread_binding, loop.annotations, loop.step)
