"""Sums of dot products by a unit that multiplies whole tiles of a matrix, in place of loops over their items.

    for r in 32, c in 32: S[r, c] = 0                 configure
    for k in 64:                                      zero 4 tiles of S
        for tile in 2, column in 2:                   for k in 64:
            for term in 16, row in 16, lane in 16: →      load 2 tiles of A, 2 of B
                S[…] = dot(S[…], A[…], B[…])              S tiles += A tiles * B tiles
                                                      store 4 tiles of S

A tile has up to 16 rows of 64 bytes: of A 16 dot operands of 16 rows, of B those of 16 columns, of S 16 sums. The loops
carry annotations that name their roles; `passes/schedule/cpu/matrix_tiles.py` makes them. Tiles of S, A and B have
fixed numbers, so that none is ever moved. Rows that are beyond the end of an axis are left out of a tile: a shorter
tile is another configuration. What is not of this form stays as loops.

The functions that are called, `nnefc_tile_…`, are one instruction each: see `passes/schedule/cpu/llvm_functions.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad
from tvm.sym import Analyzer, detect_linear_equation

from nnefc.passes.tir.expressions import conjuncts, int64, is_number, substituted, variables_of
from nnefc.passes.tir.remainders import with_hoisted_condition

__all__ = ["LEFT", "TILES", "TileLoop", "tile_calls", "with_matrix_tiles"]

TILES = "nnefc.tile_loop"
"""Annotation of the loops of a product of tiles: which of `TileLoop`, all in this order."""

LEFT = "nnefc.left"
"""Annotation of the loop over a tile's rows: how many are left for the last tiles; 0 if they are whole."""

_REGISTERS = 8


class TileLoop:
    """The loops over tiles of rows, tiles of columns, dot operands, rows and columns."""

    TILE, COLUMN, TERM, ROW, LANE = order = ("tile", "column", "term", "row", "lane")


_PRODUCTS = {
    ("nnefc.vdpbf16ps", True): "bf16ps",
    ("nnefc.vdpbf16ps", False): "bf16ps",
    ("nnefc.vpdpbusd", True): "busd",
    ("nnefc.vpdpbusd", False): "bsud",
}
"""What multiplies tiles, by the instruction for vectors, and whether its first operand has the rows."""


def with_matrix_tiles(stmt: tirx.Stmt) -> tirx.Stmt:
    """The body of a flat kernel; the same object if nothing in it is computed in tiles."""
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(stmt, (tirx.For, lambda loop: found.append(loop) if _is(loop, TileLoop.TILE) else None))
    if not found:
        return stmt
    made: list[bool] = []

    def change(seq: tirx.SeqStmt) -> tirx.SeqStmt:
        parts = _in_tiles(list(seq.seq))
        made.append(parts is not None)
        return seq if parts is None else tirx.SeqStmt(parts)

    changed = tvm_ffi.structural_map(stmt, (tirx.SeqStmt, change))
    return _released(tvm_ffi.structural_map(changed, (tirx.For, with_hoisted_condition))) if any(made) else stmt


def _released(stmt: tirx.Stmt) -> tirx.Stmt:
    """Leave the unit unused at the end of the statements, or of each round of the parallel loops in them: the system
    then need not save its registers. Where all tiles of a round have the same shapes, it is configured once."""
    rounds: list[tirx.For] = []

    def release(loop: tirx.For) -> tirx.For:
        if loop.kind != tirx.ForKind.PARALLEL or not any(tile_calls(loop.body)):
            return loop
        rounds.append(loop)
        body = _configured_once(loop.body)
        return tirx.For(
            loop.loop_var, loop.min, loop.extent, loop.kind, body, loop.thread_binding, loop.annotations, loop.step
        )

    changed = tvm_ffi.structural_map(stmt, (tirx.For, release))
    return changed if rounds else _configured_once(changed)


def _configured_once(stmt: tirx.Stmt) -> tirx.Stmt:
    shapes = {name for name in tile_calls(stmt) if name.startswith("shape")}
    if len(shapes) > 1:
        return tirx.SeqStmt([stmt, _call("release")])

    def without(node: tirx.Evaluate) -> tirx.Evaluate:
        return tirx.Evaluate(tirx.const(0, "int32")) if set(tile_calls(node)) & shapes else node

    inner = tvm_ffi.structural_map(stmt, (tirx.Evaluate, without))
    return tirx.SeqStmt([*map(_call, shapes), inner, _call("release")])


def _is(stmt: tirx.Stmt, role: str) -> bool:
    return isinstance(stmt, tirx.For) and str(stmt.annotations.get(TILES, "")) == role


def _in_tiles(parts: list[tirx.Stmt]) -> list[tirx.Stmt] | None:
    """Statements that follow each other, with sums in tiles; None where there are none."""
    for place, part in enumerate(parts):
        around, loop = [], part
        while isinstance(loop, tirx.For) and not _is(loop, TileLoop.TILE):
            around.append(loop)
            loop = loop.body
        if not isinstance(loop, tirx.For) or not place or not _is_zero(parts[place - 1]):
            continue
        product = _Product.of(loop)
        if product is not None:
            rest = _in_tiles(parts[place + 1 :]) or parts[place + 1 :]
            return [*parts[: place - 1], product.summed(around), *rest]
    return None


def _is_zero(stmt: tirx.Stmt) -> bool:
    while isinstance(stmt, tirx.For | tirx.IfThenElse):
        stmt = stmt.body if isinstance(stmt, tirx.For) else stmt.then_case
    value = stmt.value if isinstance(stmt, tirx.BufferStore) else None
    value = value.value if isinstance(value, tirx.Broadcast) else value
    return value is not None and is_number(value, 0)


@dataclass(frozen=True)
class _Operand:
    """A tensor that tiles are read from, or written to.

    Attributes:
        base: where the first item of the first tile is.
        down: items from one row of a tile to the next.
        apart: items from a tile to the next.
    """

    tensor: tirx.Var
    base: tirx.Expr
    down: tirx.Expr
    apart: tirx.Expr

    def address(self, number: int, beside: tirx.Expr | None = None) -> list[tirx.Expr]:
        """Of a tile, items `beside` it if given, and the bytes between its rows."""
        place = self.base + self.apart * int64(number)
        place = place if beside is None else place + beside
        return [tirx.address_of(tirx.BufferLoad(self.tensor, [place])), self.down * int64(4)]


@dataclass(frozen=True)
class _Product:
    """Loops that a product of tiles stands for.

    Attributes:
        name: of the instruction.
        tiles, columns: of S; terms, rows: of a tile of A.
        left, right: A and B.
        sums: S, by its tiles of rows; those of columns are `sums_apart` items apart.
        full: whether no row is beyond the end; None if that is always so.
        rest: how many rows there are where it is not.
    """

    name: str
    tiles: int
    columns: int
    terms: int
    rows: int
    left: _Operand
    right: _Operand
    sums: _Operand
    sums_apart: tirx.Expr
    full: tirx.Expr | None
    rest: int

    @staticmethod
    def of(loop: tirx.For) -> _Product | None:
        loops: list[tirx.For] = []
        stmt: tirx.Stmt = loop
        for role in TileLoop.order:
            if not _is(stmt, role) or not isinstance(stmt.extent, tirx.IntImm):
                return None
            loops.append(stmt)
            stmt = stmt.body
        conditions: list[tirx.Expr] = []
        while isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
            conditions += conjuncts(stmt.condition)
            stmt = stmt.then_case
        if not isinstance(stmt, tirx.BufferStore) or not isinstance(stmt.value, Call):
            return None
        tile, column, term, row, lane = (each.loop_var for each in loops)
        _, first, second = (_load(arg) for arg in stmt.value.args)
        if first is None or second is None:
            return None
        of_rows = lane not in variables_of(first.indices)
        name = _PRODUCTS.get((stmt.value.op.name, of_rows))
        a, b = (first, second) if of_rows else (second, first)
        left = _steps(a.indices, (row, term, tile, column, lane))
        right = _steps(b.indices, (term, lane, column, row, tile))
        sums = _steps(stmt.indices, (row, lane, tile, column, term))
        if name is None or left is None or right is None or sums is None:
            return None
        units = (left[1], right[1], sums[1])
        unused = (*left[3:5], *right[3:5], sums[4])
        if not all(is_number(step, 1) for step in units) or not all(is_number(step, 0) for step in unused):
            return None
        sizes = [int(each.extent) for each in loops]
        last = {
            var: tirx.const(int(loop.extent) - 1, loop.extent.ty.dtype)
            for var, loop in ((tile, loops[0]), (row, loops[3]))
        }
        full = [substituted(condition, last) for condition in conditions]
        if variables_of(full) & {column, term, lane}:
            return None
        return _Product(
            name, sizes[0], sizes[1], sizes[2], sizes[3],
            _Operand(a.source, left[-1], left[0], left[2]), _Operand(b.source, right[-1], right[0], right[2]),
            _Operand(stmt.buffer, sums[-1], sums[0], sums[2]), sums[3],
            tirx.all(*full) if full else None, int(loops[3].annotations.get(LEFT, 0)),
        )  # fmt: skip

    def summed(self, around: Sequence[tirx.For]) -> tirx.Stmt:
        """The whole sum, whose loops `around` the product go on to further terms."""
        whole = self._tiles_of([self.rows] * self.tiles, around)
        if self.full is None:
            return whole
        counts, left = [], self.rest
        while left > 0:
            counts.append(min(left, self.rows))
            left -= self.rows
        return tirx.IfThenElse(self.full, whole, self._tiles_of(counts, around))

    def _tiles_of(self, rows: Sequence[int], around: Sequence[tirx.For]) -> tirx.Stmt:
        """The sum of tiles with so many rows."""
        count = len(rows)
        sums = {(r, c): r * self.columns + c for r in range(count) for c in range(self.columns)}
        of_left = [len(sums) + r for r in range(count)]
        of_right = [*range(len(sums) + count, _REGISTERS)]
        shapes = {number: (rows[r], 16) for (r, _), number in sums.items()}
        shapes |= {number: (rows[r], self.terms) for r, number in enumerate(of_left)}
        shapes |= dict.fromkeys(of_right, (self.terms, 16))
        step = [_call(f"load_{of_left[r]}", *self.left.address(r)) for r in range(count)]
        for c in range(self.columns):
            number = of_right[c % len(of_right)]
            step.append(_call(f"load_{number}", *self.right.address(c)))
            step += [_call(f"{self.name}_{sums[r, c]}_{of_left[r]}_{number}") for r in range(count)]
        body: tirx.Stmt = tirx.SeqStmt(step)
        for loop in reversed(around):
            body = tirx.For(loop.loop_var, loop.min, loop.extent, tirx.ForKind.SERIAL, body)
        stores = [
            _call(f"store_{number}", *self.sums.address(r, self.sums_apart * int64(c)))
            for (r, c), number in sums.items()
        ]
        begin = [_call(_configuration(shapes)), *(_call(f"zero_{number}") for number in sums.values())]
        renewed = _RENEW(tirx.PrimFunc([], body)).body if self.full is not None else body
        return tirx.SeqStmt([*begin, renewed, *stores])


_RENEW = tvm.get_global_func("s_tir.RenewDefs")


def _configuration(shapes: dict[int, tuple[int, int]]) -> str:
    """The name of what sets the shapes of tiles: rows and words of each."""
    return "shape" + "".join(f"_{shapes.get(n, (0, 0))[0]}x{shapes.get(n, (0, 0))[1]}" for n in range(_REGISTERS))


def _load(expr: tirx.Expr) -> TensorLoad | None:
    return expr if isinstance(expr, TensorLoad) and len(expr.indices) == 1 else None


def _steps(indices: Sequence[tirx.Expr], variables: Sequence[tirx.Var]) -> list[tirx.Expr] | None:
    """How far a place moves with each variable, then where it is without them; None if that is not always as far."""
    if len(indices) != 1:
        return None
    linear = detect_linear_equation(Analyzer().simplify(indices[0]), list(variables))
    return list(linear) if linear else None


def _call(name: str, *args: tirx.Expr) -> tirx.Stmt:
    return tirx.Evaluate(tirx.call_extern("void", f"nnefc_tile_{name}", *args))


def tile_calls(stmt: tirx.Stmt) -> Iterator[str]:
    """The names of the functions on tiles that statements call, without `nnefc_tile_`."""
    found: list[Call] = []
    tvm_ffi.structural_walk(stmt, (Call, found.append))
    for call in found:
        if getattr(call.op, "name", "") == "tirx.call_extern":
            name = str(call.args[0].value)
            if name.startswith("nnefc_tile_"):
                yield name.removeprefix("nnefc_tile_")
