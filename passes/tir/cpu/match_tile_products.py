"""Matches loops of flat kernels that compute tiles of dot products, by their annotations.

    for r in 32, c in 32: S[r, c] = 0
    for k in 64:
        for tile in 2, column in 2, term in 16, row in 16, lane in 16:     # a `ProductLoops`
            S[…] = dot(S[…], A[…], B[…])

The loops carry annotations that name their roles; `passes/schedule/cpu/matrix_unit_tiles.py` makes them. They are
lowered by `passes/tir/cpu/lower_amx_tiles.py` and `passes/tir/cpu/lower_i8mm.py`. What is not of this form stays as
loops. The loops that follow a product may be its `Epilogue`, which stores what becomes of each row of a tile:

    for row in 32: C[row, 0:16] = f(S[row, 0:16])
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad
from tvm.sym import Analyzer, detect_linear_equation
from tvm.tirx.stmt import AllocBuffer

from nnefc.ir.attributes import TAIL_ROWS, TILE_LOOP
from nnefc.passes.tir.common.expressions import conjuncts, int64, is_number, substituted, variables_of
from nnefc.passes.tir.common.peel_tail_tiles import hoist_condition

__all__ = ["Epilogue", "FinishedTiles", "ProductLoops", "TileLoop", "TileOperand", "with_products"]


class TileLoop:
    """The loops over tiles of rows, tiles of columns, dot operands, rows and columns."""

    TILE, COLUMN, TERM, ROW, LANE = order = ("tile", "column", "term", "row", "lane")


Summed = Callable[["ProductLoops", Sequence[int], Sequence[tirx.For]], "tirx.Stmt | None"]
"""Returns the statements of a whole sum, from zero on, given the product, the rows of each of its tiles, and the loops
over further terms, the outermost first; None leaves the loops.
"""


Finished = Callable[["ProductLoops", Sequence[tirx.For], "Epilogue"], "FinishedTiles | None"]
"""Returns the statements of a sum and its epilogue, given the product, its outer loops and its epilogue; None leaves
the epilogue.
"""


@dataclass(frozen=True)
class FinishedTiles:
    """The sums of tiles with their epilogue.

    Attributes:
        before: statements before all tiles.
        tile: the statements of tiles with so many rows each.
    """

    before: Sequence[tirx.Stmt]
    tile: Callable[[Sequence[int]], tirx.Stmt]


def with_products(stmt: tirx.Stmt, summed: Summed, finished: Finished | None = None) -> tirx.Stmt:
    """Replaces products in tiles in the body of a flat kernel; returns the same object if there are none. Sums that
    only an epilogue reads are computed together with it by `finished`, if it can.
    """
    found: list[tirx.For] = []
    tvm_ffi.structural_walk(stmt, (tirx.For, lambda loop: found.append(loop) if _is(loop, TileLoop.TILE) else None))
    if not found:
        return stmt
    made: list[bool] = []

    def change(seq: tirx.SeqStmt) -> tirx.Stmt:
        parts = _in_tiles(list(seq.seq), summed, finished)
        made.append(parts is not None)
        if parts is None:
            return seq
        return tirx.SeqStmt(parts) if len(parts) > 1 else parts[0]

    changed = tvm_ffi.structural_map(stmt, (tirx.SeqStmt, change))
    return tvm_ffi.structural_map(changed, (tirx.For, hoist_condition)) if any(made) else stmt


def _is(stmt: tirx.Stmt, role: str) -> bool:
    return isinstance(stmt, tirx.For) and str(stmt.annotations.get(TILE_LOOP, "")) == role


def _in_tiles(parts: list[tirx.Stmt], summed: Summed, finished: Finished | None) -> list[tirx.Stmt] | None:
    """Returns consecutive statements with their sums in tiles; None if there are none."""
    for position, part in enumerate(parts):
        around, loop = [], part
        while isinstance(loop, tirx.For) and not _is(loop, TileLoop.TILE):
            around.append(loop)
            loop = loop.body
        if not isinstance(loop, tirx.For) or not position or not _is_zero(parts[position - 1]):
            continue
        product = ProductLoops.of(loop)
        if product is None:
            continue
        before, after = parts[: position - 1], parts[position + 1 :]
        epilogue = Epilogue.of(after[0], product) if finished and after else None
        made = None
        if finished and epilogue and not _is_used(product.sums.tensor, [*before, *after[1:]]):
            made = finished(product, around, epilogue)
        if made is not None:
            kept = [part for part in before if not _allocates(part, product.sums.tensor)]
            before, after = [*kept, *made.before], after[1:]
        sums = [made.tile(rows) if made else summed(product, rows, around) for rows in product.counts]
        if None in sums:
            continue
        whole = sums[0] if product.full is None else tirx.IfThenElse(product.full, *sums)
        return [*before, whole, *(_in_tiles(after, summed, finished) or after)]
    return None


def _is_used(tensor: tirx.Var, parts: Sequence[tirx.Stmt]) -> bool:
    """Whether statements outside a product and its epilogue may access its sums: statements that do not allocate them
    may hide accesses.
    """
    if not any(_allocates(part, tensor) for part in parts):
        return True
    used: list[bool] = []

    loads = (TensorLoad, lambda load: used.append(load.source.same_as(tensor)))
    stores = (tirx.BufferStore, lambda store: used.append(store.buffer.same_as(tensor)))
    for part in parts:
        tvm_ffi.structural_walk(part, loads)
        tvm_ffi.structural_walk(part, stores)
    return any(used)


def _allocates(stmt: tirx.Stmt, tensor: tirx.Var) -> bool:
    return isinstance(stmt, AllocBuffer) and bool(stmt.buffer.same_as(tensor))


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
    """The loops of a product of tiles, with their roles.

    Attributes:
        name: of the dot product of vectors.
        of_rows: whether its first operand is A.
        tiles, columns: of S; terms, rows: of a tile of A.
        left, right: A and B.
        sums: S, by its tiles of rows; those of columns are `sums_apart` elements apart.
        interleaved: whether the dot operands of a column of B follow each other, and not the columns.
        full: whether no row is beyond the end; None if that is always so.
        tail: how many rows there are where it is not.
        row: the variable of the loop over rows.
        conditions: under which a row is not beyond the end.
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
    row: tirx.Var
    conditions: tuple[tirx.Expr, ...]

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
            tirx.all(*full) if full else None, int(loops[3].annotations.get(TAIL_ROWS, 0)), row, tuple(conditions),
        )  # fmt: skip

    @property
    def counts(self) -> list[list[int]]:
        """Returns the rows of its tiles, and the rows of the last tiles if these have fewer."""
        counts, left = [], self.tail
        while left > 0:
            counts.append(min(left, self.rows))
            left -= self.rows
        return [[self.rows] * self.tiles, *([] if self.full is None else [counts])]


@dataclass(frozen=True)
class Epilogue:
    """The loops that store each row of a tile after the sum, in vectors of all its columns.

    Attributes:
        row, lane: the variables of the loops over rows and columns.
        columns: how many there are.
        store: the statement in the loops.
    """

    row: tirx.Var
    lane: tirx.Var
    columns: int
    store: tirx.BufferStore

    @staticmethod
    def of(stmt: tirx.Stmt, product: ProductLoops) -> Epilogue | None:
        """Matches loops as the epilogue of a product of one tile of rows; None for others."""
        loops: list[tirx.For] = []
        conditions: list[tirx.Expr] = []
        while not isinstance(stmt, tirx.BufferStore):
            if isinstance(stmt, tirx.For) and isinstance(stmt.extent, tirx.IntImm) and is_number(stmt.min, 0):
                loops.append(stmt)
                stmt = stmt.body
            elif isinstance(stmt, tirx.IfThenElse) and stmt.else_case is None:
                conditions += conjuncts(stmt.condition)
                stmt = stmt.then_case
            else:
                return None
        if len(loops) != 2 or len(stmt.indices) != 1 or product.tiles != 1:
            return None
        (row, lane), (rows, columns) = ([loop.loop_var for loop in loops], [int(loop.extent) for loop in loops])
        if rows != product.rows or loops[1].kind != tirx.ForKind.VECTORIZED or lane in variables_of(conditions):
            return None
        here = [substituted(condition, {row: product.row}) for condition in conditions]
        same = len(here) == len(product.conditions) and all(
            map(tvm_ffi.structural_equal, map(_simplified, here), map(_simplified, product.conditions))
        )
        return Epilogue(row, lane, columns, stmt) if same else None

    def steps(self, index: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr, tirx.Expr] | None:
        """Returns the strides of an index along rows and columns, and the constant part; None if it is not linear."""
        found = _steps([index], (self.row, self.lane))
        return None if found is None else (found[0], found[1], found[2])


def _simplified(expr: tirx.Expr) -> tirx.Expr:
    return Analyzer().simplify(expr)


def _load(expr: tirx.Expr) -> TensorLoad | None:
    return expr if isinstance(expr, TensorLoad) and len(expr.indices) == 1 else None


def _steps(indices: Sequence[tirx.Expr], variables: Sequence[tirx.Var]) -> list[tirx.Expr] | None:
    """Returns the stride of an index along each variable, and the constant part; None if it is not linear."""
    if len(indices) != 1:
        return None
    linear = detect_linear_equation(Analyzer().simplify(indices[0]), list(variables))
    return list(linear) if linear else None
