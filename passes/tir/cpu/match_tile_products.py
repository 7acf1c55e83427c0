"""Matches loops of flat kernels that compute tiles of dot products, by their annotations.

    for r in 32, c in 32: S[r, c] = 0
    for k in 64:
        for tile in 2, column in 2, term in 16, row in 16, lane in 16:     # a `ProductLoops`
            S[…] = dot(S[…], A[…], B[…])

The loops carry annotations that name their roles; `passes/schedule/cpu/matrix_unit_tiles.py` makes them. They are
lowered by `passes/tir/cpu/lower_amx_tiles.py` and `passes/tir/cpu/lower_i8mm.py`. What is not of this form stays as
loops.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad
from tvm.sym import Analyzer, detect_linear_equation

from nnefc.ir.attributes import TAIL_ROWS, TILE_LOOP
from nnefc.passes.tir.common.expressions import conjuncts, int64, is_number, substituted, variables_of
from nnefc.passes.tir.common.peel_tail_tiles import hoist_condition

__all__ = ["ProductLoops", "TileLoop", "TileOperand", "with_products"]


class TileLoop:
    """The loops over tiles of rows, tiles of columns, dot operands, rows and columns."""

    TILE, COLUMN, TERM, ROW, LANE = order = ("tile", "column", "term", "row", "lane")


Summed = Callable[["ProductLoops", Sequence[int], Sequence[tirx.For]], "tirx.Stmt | None"]
"""Given a product, how many rows each of its tiles has, and the loops around it that go on to further terms, the
outermost first: the statements of the whole sum, from zero on; None to leave the loops."""


def with_products(stmt: tirx.Stmt, summed: Summed) -> tirx.Stmt:
    """Returns the body of a flat kernel whose products in tiles are computed by other statements; else the
    same object.
    """
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(stmt, (tirx.For, lambda loop: found.append(loop) if _is(loop, TileLoop.TILE) else None))
    if not found:
        return stmt
    made: list[bool] = []

    def change(seq: tirx.SeqStmt) -> tirx.SeqStmt:
        parts = _in_tiles(list(seq.seq), summed)
        made.append(parts is not None)
        return seq if parts is None else tirx.SeqStmt(parts)

    changed = tvm_ffi.structural_map(stmt, (tirx.SeqStmt, change))
    return tvm_ffi.structural_map(changed, (tirx.For, hoist_condition)) if any(made) else stmt


def _is(stmt: tirx.Stmt, role: str) -> bool:
    return isinstance(stmt, tirx.For) and str(stmt.annotations.get(TILE_LOOP, "")) == role


def _in_tiles(parts: list[tirx.Stmt], summed: Summed) -> list[tirx.Stmt] | None:
    """Statements that follow each other, with sums in tiles; None where there are none."""
    for position, part in enumerate(parts):
        around, loop = [], part
        while isinstance(loop, tirx.For) and not _is(loop, TileLoop.TILE):
            around.append(loop)
            loop = loop.body
        if not isinstance(loop, tirx.For) or not position or not _is_zero(parts[position - 1]):
            continue
        product = ProductLoops.of(loop)
        sums = None if product is None else [summed(product, rows, around) for rows in product.counts]
        if product is None or sums is None or None in sums:
            continue
        whole = sums[0] if product.full is None else tirx.IfThenElse(product.full, *sums)
        tail = _in_tiles(parts[position + 1 :], summed) or parts[position + 1 :]
        return [*parts[: position - 1], whole, *tail]
    return None


def _is_zero(stmt: tirx.Stmt) -> bool:
    while isinstance(stmt, tirx.For | tirx.IfThenElse):
        stmt = stmt.body if isinstance(stmt, tirx.For) else stmt.then_case
    value = stmt.value if isinstance(stmt, tirx.BufferStore) else None
    value = value.value if isinstance(value, tirx.Broadcast) else value
    return value is not None and is_number(value, 0)


@dataclass(frozen=True)
class TileOperand:
    """A tensor that tiles are read from, or written to.

    Attributes:
        base: where the first element of the first tile is.
        down: elements from one row of a tile to the next.
        apart: elements from a tile to the next.
    """

    tensor: tirx.Var
    base: tirx.Expr
    down: tirx.Expr
    apart: tirx.Expr

    def address(self, number: int, offset: tirx.Expr | None = None) -> list[tirx.Expr]:
        """Returns the address of a tile, offset by `offset` elements if given, and the bytes between its rows."""
        position = self.base + self.apart * int64(number)
        position = position if offset is None else position + offset
        return [tirx.address_of(tirx.BufferLoad(self.tensor, [position])), self.down * int64(4)]


@dataclass(frozen=True)
class ProductLoops:
    """Loops that a product of tiles stands for.

    Attributes:
        name: of the dot product of vectors.
        of_rows: whether its first operand is A.
        tiles, columns: of S; terms, rows: of a tile of A.
        left, right: A and B.
        sums: S, by its tiles of rows; those of columns are `sums_apart` elements apart.
        interleaved: whether the dot operands of a column of B follow each other, and not the columns.
        full: whether no row is beyond the end; None if that is always so.
        tail: how many rows there are where it is not.
    """

    name: str
    of_rows: bool
    tiles: int
    columns: int
    terms: int
    rows: int
    left: TileOperand
    right: TileOperand
    sums: TileOperand
    sums_apart: tirx.Expr
    interleaved: bool
    full: tirx.Expr | None
    tail: int

    @staticmethod
    def of(loop: tirx.For) -> ProductLoops | None:
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
        a, b = (first, second) if of_rows else (second, first)
        left = _steps(a.indices, (row, term, tile, column, lane))
        right = _steps(b.indices, (term, lane, column, row, tile))
        sums = _steps(stmt.indices, (row, lane, tile, column, term))
        if left is None or right is None or sums is None:
            return None
        interleaved = is_number(right[0], 1) and is_number(right[1], int(loops[2].extent))
        units = (left[1], right[0] if interleaved else right[1], sums[1])
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
        return ProductLoops(
            stmt.value.op.name, of_rows, sizes[0], sizes[1], sizes[2], sizes[3],
            TileOperand(a.source, left[-1], left[0], left[2]), TileOperand(b.source, right[-1], right[0], right[2]),
            TileOperand(stmt.buffer, sums[-1], sums[0], sums[2]), sums[3], interleaved,
            tirx.all(*full) if full else None, int(loops[3].annotations.get(TAIL_ROWS, 0)),
        )  # fmt: skip

    @property
    def counts(self) -> list[list[int]]:
        """Returns the rows of its tiles, and those of the last ones if these have fewer."""
        counts, left = [], self.tail
        while left > 0:
            counts.append(min(left, self.rows))
            left -= self.rows
        return [[self.rows] * self.tiles, *([] if self.full is None else [counts])]


def _load(expr: tirx.Expr) -> TensorLoad | None:
    return expr if isinstance(expr, TensorLoad) and len(expr.indices) == 1 else None


def _steps(indices: Sequence[tirx.Expr], variables: Sequence[tirx.Var]) -> list[tirx.Expr] | None:
    """Returns the stride of an index along each variable, and the constant part; None if it is not linear."""
    if len(indices) != 1:
        return None
    linear = detect_linear_equation(Analyzer().simplify(indices[0]), list(variables))
    return list(linear) if linear else None
