"""Lowers dot products of two rows by two columns to `smmla`, `ummla` and `bfmmla` (64-bit Arm).

    a = the next two dot operands of rows r and r + 1       b = those of columns c and c + 1
    mmla(s, a, b)[i, j] = s[i, j] + a[i] · b[j]             s: four sums, of two rows and two columns

B is packed for dot products: a vector has one dot operand of each of four columns, so that two vectors, interleaved,
are those of two columns and of the other two. Sums of pairs become rows when they are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import tirx
from tvm.ir import PrimType
from tvm.ir.expr import Call
from tvm.tirx.stmt import AllocBuffer

from nnefc.ir.rebuild import nested
from nnefc.passes.tir.common.expressions import int64
from nnefc.passes.tir.common.statements import renewed
from nnefc.passes.tir.cpu.match_tile_products import ProductLoops, TileOperand, with_products
from nnefc.targets.machine.cpu.matrix_units import ROW_PAIRS, TILE_PRODUCTS

__all__ = ["lower_i8mm", "pair_calls"]

_LANES = ROW_PAIRS.lanes
_PREFIX = "nnefc_pairs_"


def lower_i8mm(stmt: tirx.Stmt) -> tirx.Stmt:
    """Returns the body of a flat kernel; the same object if nothing in it is multiplied in pairs of rows."""
    return with_products(stmt, _summed)


def _summed(product: ProductLoops, rows: Sequence[int], around: Sequence[tirx.For]) -> tirx.Stmt | None:
    found = TILE_PRODUCTS.get(product.name)
    if found is None or found.unit is not ROW_PAIRS or product.terms != ROW_PAIRS.terms or len(rows) != 1:
        return None
    name = found.instructions[not product.of_rows]
    sums = _Sums.of(product, rows[0])
    body = nested(around, tirx.SeqStmt(list(sums.step(name))), kind=tirx.ForKind.SERIAL, annotations=None)
    return renewed(tirx.SeqStmt([AllocBuffer(sums.buffer), *sums.zeros(), body, *sums.stores()]))


@dataclass(frozen=True)
class _Sums:
    """Sums of two rows and two columns each, in a buffer that stays in registers."""

    product: ProductLoops
    rows: int
    buffer: tirx.Var

    @staticmethod
    def of(product: ProductLoops, rows: int) -> _Sums:
        size = -(-rows // 2) * 2 * product.columns * _LANES
        return _Sums(product, rows, tirx.decl_buffer((int64(size),), str(product.sums.tensor.dtype), "pairs"))

    def _position(self, row: int, column: int, half: int) -> tirx.Expr:
        """Returns the index of the accumulators of two rows and half of a vector of columns."""
        number = (row // 2 * self.product.columns + column) * 2 + half
        return tirx.Ramp(int64(number * _LANES), int64(1), _LANES)

    def _each(self) -> Iterator[tuple[int, int]]:
        return ((row, column) for row in range(0, self.rows, 2) for column in range(self.product.columns))

    def zeros(self) -> Iterator[tirx.Stmt]:
        zero = tirx.Broadcast(tirx.const(0, str(self.buffer.dtype)), _LANES)
        for row, column in self._each():
            yield from (tirx.BufferStore(self.buffer, zero, [self._position(row, column, half)]) for half in (0, 1))

    def step(self, name: str) -> Iterator[tirx.Stmt]:
        """The products of two dot operands."""
        product, sums = self.product, f"{self.buffer.dtype}x{_LANES}"
        half_vectors: list[tirx.Expr] = []
        for column in range(product.columns):
            vectors = []
            for term in (0, 1):
                vectors.append(_named("w", _vector(product.right, column, term, _LANES)))
                yield vectors[-1]
            for order in ([0, 4, 1, 5], [2, 6, 3, 7]):
                bound = _named("b", tirx.Shuffle([each.var for each in vectors], order))
                yield bound
                half_vectors.append(bound.var)
        for row in range(0, self.rows, 2):
            both = [_vector(product.left, 0, position, 2) for position in (row, min(row + 1, self.rows - 1))]
            pair = _named("a", tirx.Shuffle(both, [0, 1, 2, 3]))
            yield pair
            for number, half in enumerate(half_vectors):
                position = self._position(row, number // 2, number % 2)
                total = tirx.BufferLoad(self.buffer, [position])
                made = tirx.call_pure_extern(sums, _PREFIX + name, total, pair.var, half)
                yield tirx.BufferStore(self.buffer, made, [position])

    def stores(self) -> Iterator[tirx.Stmt]:
        """Both rows of all pairs to where the sums belong."""
        own = self.product.sums
        for row, column in self._each():
            parts = [tirx.BufferLoad(self.buffer, [self._position(row, column, half)]) for half in (0, 1)]
            for second, order in enumerate(([0, 1, 4, 5], [2, 3, 6, 7])):
                if row + second < self.rows:
                    column_offset = self.product.sums_apart * int64(column)
                    begin = own.base + own.down * int64(row + second) + column_offset
                    yield tirx.BufferStore(own.tensor, tirx.Shuffle(parts, order), [tirx.Ramp(begin, int64(1), _LANES)])


def _vector(operand: TileOperand, tile: int, row: int, lanes: int) -> tirx.Expr:
    """Elements of a row of a tile."""
    begin = operand.base + operand.apart * int64(tile) + operand.down * int64(row)
    return tirx.BufferLoad(operand.tensor, [tirx.Ramp(begin.astype("int64"), int64(1), lanes)])


def _named(name: str, value: tirx.Expr) -> tirx.Bind:
    return tirx.Bind(tirx.Var(name, PrimType(f"int32x{_LANES}")), value)


def pair_calls(stmt: tirx.Stmt) -> Iterator[str]:
    """The instructions that statements multiply pairs of rows by."""
    found: list[Call] = []
    tvm_ffi.structural_walk(stmt, (Call, found.append))
    for call in found:
        if getattr(call.op, "name", "") == "tirx.call_pure_extern":
            name = str(call.args[0].value)
            if name.startswith(_PREFIX):
                yield name.removeprefix(_PREFIX)
