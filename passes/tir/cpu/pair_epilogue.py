"""Computes the epilogue of products of pairs of rows in the order in which registers hold the sums.

    register     S[r, c], S[r, c + 1], S[r + 1, c], S[r + 1, c + 1]

    for r in 2: C[r, 0:16] = byte(float(S[r, 0:16] + bias[0:16]) * scale[0:16])
                                         ↓
    S = paired(bias, bias)                                                   # before the products are added
    made[0:32] = byte(float(S) * paired(scale, scale))                       # both rows
    C[0, 0:16] = made's pairs of columns 0, 2, 4 …                           # uzp1
    C[1, 0:16] = made's pairs of columns 1, 3, 5 …                           # uzp2

Rows are so brought apart when they are bytes, by two instructions and not by eight. An integer that is added to a sum,
one for each column, is what the sum begins with. The last row of an odd number is computed alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import PrimType
from tvm.ir.expr import Call, TensorLoad
from tvm.sym import Analyzer

from nnefc.passes.tir.common.expressions import (
    int64,
    is_number,
    loads_of,
    parts_of,
    replaced,
    substituted,
    variables_of,
)
from nnefc.passes.tir.cpu.match_tile_products import Epilogue, ProductLoops

__all__ = ["PairEpilogue"]

_LANEWISE = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Min, tirx.Max)
_COLUMNS = 2  # of two rows, whose sums are in one register
_MOVED = ("int8", "uint8", "int16", "uint16", "int32", "float16", "float32")  # elements, two of which move as one


@dataclass(frozen=True)
class PairEpilogue:
    """An epilogue as a function of vectors.

    Attributes:
        epilogue: its loops.
        sums: the tensor of sums that they read.
        begin: what all sums of a column begin with, an int32 that does not depend on the row; None for zero.
        value: what is stored, without `begin`.
        columns: loads that do not depend on the row, and a vector of each, for all tiles.
    """

    epilogue: Epilogue
    sums: tirx.Var
    begin: tirx.Expr | None
    value: tirx.Expr
    columns: tuple[tuple[TensorLoad, tirx.Bind], ...]

    @staticmethod
    def of(epilogue: Epilogue, product: ProductLoops, lanes: int) -> PairEpilogue | None:
        """Returns the epilogue of pairs of rows; None if it is more than arithmetic of elements at the same index.

        Args:
            lanes: of a vector of sums.
        """
        store, columns = epilogue.store, product.columns * lanes
        if epilogue.columns != columns or not (columns == lanes or is_number(product.sums_apart, lanes)):
            return None
        steps = epilogue.steps(store.indices[0])
        if steps is None or not is_number(steps[1], 1) or str(store.buffer.dtype) not in _MOVED:
            return None
        if not _is_lanewise(store.value, epilogue, product):
            return None
        begin, value = _begun(store.value, epilogue, product.sums.tensor)
        return PairEpilogue(epilogue, product.sums.tensor, begin, value, tuple(_columns(store.value, epilogue)))

    @property
    def bound(self) -> list[tirx.Stmt]:
        """Returns statements that bind the vectors of `columns`: before all tiles, so that LLVM takes them out of
        loops."""
        return [bind for _, bind in self.columns]

    def first_sums(self, column: int, lanes: int) -> tirx.Expr | None:
        """Returns the initial sums of a vector of columns, in column order."""
        return None if self.begin is None else self._vector(self.begin, [0], lanes, [], column * lanes)

    def computed(self, rows: Sequence[int], sums: Sequence[tirx.Expr], first: int) -> tirx.Bind:
        """Binds the values to store for one or two rows.

        Args:
            sums: registers of two rows.
            first: the column that they begin with.
        """
        columns = len(sums) * _COLUMNS
        value = self._vector(self.value, rows, columns, sums, first)
        return tirx.Bind(tirx.Var("made", value.expr_ty()), value)

    def stored(self, rows: Sequence[int], parts: Sequence[tirx.Var]) -> Iterator[tirx.Stmt]:
        """Stores one or two rows.

        Args:
            parts: what was computed of them for all columns, in order.
        """
        columns, store = self.epilogue.columns, self.epilogue.store
        made = parts[0] if len(parts) == 1 else tirx.Shuffle(list(parts), list(range(len(rows) * columns)))
        for half, row in enumerate(rows):
            own = made if len(rows) == 1 else _row_of(made, half)
            index = self._index(store.indices[0], row, 0)
            yield tirx.BufferStore(store.buffer, own, [tirx.Ramp(index, int64(1), columns)])

    def _index(self, index: tirx.Expr, row: int, lane: int) -> tirx.Expr:
        values = {self.epilogue.row: int64(row), self.epilogue.lane: int64(lane)}
        return Analyzer().simplify(substituted(index, values)).astype("int64")

    def _vector(
        self, expr: tirx.Expr, rows: Sequence[int], columns: int, sums: Sequence[tirx.Expr], first: int
    ) -> tirx.Expr:
        """Returns an expression for all columns from the first one on, for one row, or for two in the order of sums."""
        lanes = len(rows) * columns

        def change(part: tirx.Expr) -> tirx.Expr:
            dtype = str(part.expr_ty().dtype)
            match part:
                case TensorLoad() if part.source.same_as(self.sums):
                    both = tirx.Shuffle(list(sums), list(range(2 * columns)))
                    return both if len(rows) == 2 else _row_of(both, 0)
                case TensorLoad():
                    return loaded(part)
                case tirx.Cast():
                    return tirx.Cast(f"{dtype}x{lanes}", change(part.value))
                case Call():
                    args = [change(arg) for arg in part.args]
                    return Call(part.op, args, part.attrs, ret_ty=PrimType(f"{dtype}x{lanes}"))
            if isinstance(part, _LANEWISE):
                return type(part)(change(part.a), change(part.b))
            return tirx.Broadcast(part, lanes)

        def loaded(load: TensorLoad) -> tirx.Expr:
            (index,), tensor = load.indices, load.source
            steps = self.epilogue.steps(index)
            assert steps is not None
            whole = [bind.var for known, bind in self.columns if tvm_ffi.structural_equal(known, load)]
            starts = [self._index(index, row, first) for row in (rows[:1] if is_number(steps[0], 0) else rows)]
            if whole:
                every = columns == self.epilogue.columns
                found = whole if every else [tirx.Shuffle(whole, list(range(first, first + columns)))]
            elif is_number(steps[1], 1):
                found = [tirx.BufferLoad(tensor, [tirx.Ramp(start, int64(1), columns)]) for start in starts]
            else:
                found = [tirx.Broadcast(tirx.BufferLoad(tensor, [start]), columns) for start in starts]
            return found[0] if len(rows) == 1 else _paired(found[0], found[-1])

        return change(expr)


def _columns(expr: tirx.Expr, epilogue: Epilogue) -> Iterator[tuple[TensorLoad, tirx.Bind]]:
    """Yields the loads of one element for each column that do not depend on the row, each once, and its vector."""
    found: list[TensorLoad] = []
    for load in loads_of(expr):
        steps = epilogue.steps(load.indices[0])
        if steps is None or not is_number(steps[0], 0) or not is_number(steps[1], 1):
            continue
        if not any(tvm_ffi.structural_equal(known, load) for known in found):
            found.append(load)
            lanes = tirx.Ramp(steps[2].astype("int64"), int64(1), epilogue.columns)
            value = tirx.BufferLoad(load.source, [lanes])
            yield load, tirx.Bind(tirx.Var("column", value.expr_ty()), value)


def _is_lanewise(expr: tirx.Expr, epilogue: Epilogue, product: ProductLoops) -> bool:
    """Whether each element of a result depends only on elements at the same row and column, or on fewer."""
    match expr:
        case TensorLoad():
            steps = epilogue.steps(expr.indices[0]) if len(expr.indices) == 1 else None
            if steps is None or str(expr.source.dtype) not in _MOVED:
                return False
            if not expr.source.same_as(product.sums.tensor):
                return is_number(steps[1], 0) or is_number(steps[1], 1)
            begins = Analyzer().simplify(steps[2] - product.sums.base)
            return is_number(steps[1], 1) and is_number(begins, 0) and _are_equal(steps[0], product.sums.down)
        case tirx.IntImm() | tirx.FloatImm():
            return True
        case tirx.Var():
            return expr not in (epilogue.row, epilogue.lane)
        case Call():
            if not isinstance(expr.op, tvm.ir.Op) or expr.op.get_attr("TVectorizable") is not True:
                return False
        case _ if not isinstance(expr, (tirx.Cast, *_LANEWISE)):
            return False
    return all(_is_lanewise(part, epilogue, product) for part in parts_of(expr))


def _are_equal(left: tirx.Expr, right: tirx.Expr) -> bool:
    return is_number(Analyzer().simplify(left - right), 0)


def _begun(expr: tirx.Expr, epilogue: Epilogue, sums: tirx.Var) -> tuple[tirx.Expr | None, tirx.Expr]:
    """Returns the int32 that is added to the sums wherever they are read, and the expression without it; None for both
    zero and others.
    """
    reads = [load for load in loads_of(expr) if load.source.same_as(sums)]
    found: list[tuple[tirx.Expr, tirx.Expr, tirx.Expr]] = []

    def find(part: tirx.Expr) -> None:
        if isinstance(part, tirx.Add):
            for read, added in ((part.a, part.b), (part.b, part.a)):
                if isinstance(read, TensorLoad) and read.source.same_as(sums):
                    found.append((part, read, added))
        for each in parts_of(part):
            find(each)

    find(expr)
    if len(reads) != 1 or len(found) != 1 or str(sums.dtype) != "int32":
        return None, expr
    ((total, read, added),) = found
    loads = loads_of(added)
    fixed = epilogue.row not in variables_of([added]) and not any(load.source.same_as(sums) for load in loads)
    return (added, replaced(expr, [(total, read)])) if fixed and loads else (None, expr)


def _paired(first: tirx.Expr, second: tirx.Expr) -> tirx.Expr:
    """Interleaves two rows in the order of sums: two columns of the first, the same ones of the second, and so on."""
    kind = tvm.DataType(str(first.expr_ty().dtype))
    count = int(kind.lanes) // 2
    rows = [tirx.reinterpret(f"int{2 * kind.bits}x{count}", row) for row in (first, second)]
    order = [number for pair in range(count) for number in (pair, count + pair)]
    return tirx.reinterpret(str(kind.with_lanes(4 * count)), tirx.Shuffle(rows, order))


def _row_of(pairs: tirx.Expr, half: int) -> tirx.Expr:
    """Returns the first or the second of two interleaved rows."""
    kind = tvm.DataType(str(pairs.expr_ty().dtype))
    count = int(kind.lanes) // 2
    wide = tirx.reinterpret(f"int{2 * kind.bits}x{count}", pairs)
    return tirx.reinterpret(str(kind.with_lanes(count)), tirx.Shuffle([wide], list(range(half, count, 2))))
