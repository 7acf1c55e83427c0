"""Lowers dot products of two rows by two columns to `smmla`, `ummla` and `bfmmla` (64-bit Arm).

    a = the next two dot operands of rows r and r + 1       b = those of columns c and c + 1
    mmla(s, a, b)[i, j] = s[i, j] + a[i] · b[j]             s: four sums, of two rows and two columns

B may be packed for this: the two dot operands of a column follow each other, and a vector has those of two columns.
Packed for dot products, a vector has one dot operand of each of four columns, so that two vectors, interleaved, are
those of two columns and of the other two. Two rows of A that follow each other in memory, as pixels in blocks of eight
bytes do, are one vector; of others two steps are loaded at once, and interleaved. Sums of pairs become rows when they
are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import tvm_ffi
from tvm import tirx
from tvm.ir import PrimType
from tvm.ir.expr import Call
from tvm.sym import Analyzer, detect_linear_equation
from tvm.tirx.stmt import AllocBuffer

from nnefc.ir.rebuild import nested, with_fields
from nnefc.passes.tir.common.expressions import int64, is_number, substituted
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
    steps, around = list(_steps(product, around)), list(around)
    if len(steps) == 2:
        around[-1] = with_fields(around[-1], extent=around[-1].extent // 2)
    body = nested(around, tirx.SeqStmt(list(sums.step(name, steps))), kind=tirx.ForKind.SERIAL, annotations=None)
    return renewed(tirx.SeqStmt([AllocBuffer(sums.buffer), *sums.zeros(), body, *sums.stores()]))


def _steps(product: ProductLoops, around: Sequence[tirx.For]) -> Iterator[ProductLoops]:
    """Yields the products of one iteration of the innermost loop: of two as one iteration, where those of a row follow
    each other in A, which are then loaded at once."""
    loop = around[-1] if around else None
    if loop is None or not isinstance(loop.extent, tirx.IntImm) or int(loop.extent) % 2 or not is_number(loop.min, 0):
        yield product
        return
    linear = detect_linear_equation(Analyzer().simplify(product.left.base), [loop.loop_var])
    if not linear or not is_number(linear[0], product.terms) or is_number(product.left.down, product.terms):
        yield product
        return
    for half in (0, 1):
        number = {loop.loop_var: loop.loop_var * 2 + half}
        left, right = (
            replace(each, base=Analyzer().simplify(substituted(each.base, number)))
            for each in (product.left, product.right)
        )
        yield replace(product, left=left, right=right)


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

    def step(self, name: str, steps: Sequence[ProductLoops]) -> Iterator[tirx.Stmt]:
        """The products of two dot operands, or of two such steps."""
        operands: list[list[tirx.Var]] = []
        for row in range(0, self.rows, 2):
            pairs = [_named("a", pair) for pair in self._two_rows(row, steps)]
            yield from pairs
            operands.append([pair.var for pair in pairs])
        for number, product in enumerate(steps):
            for column in range(self.product.columns):
                vectors_of_two = []
                for bound in _interleaved(product, column) if product.interleaved else _zipped(product, column):
                    yield bound
                    vectors_of_two += [bound.var] if bound.var.name == "b" else []
                yield from self._products(name, column, vectors_of_two, [pairs[number] for pairs in operands])

    def _products(
        self, name: str, column: int, vectors_of_two: Sequence[tirx.Var], pairs: Sequence[tirx.Var]
    ) -> Iterator[tirx.Stmt]:
        """Adds the products of all pairs of rows and a vector of columns."""
        sums = f"{self.buffer.dtype}x{_LANES}"
        for number, pair in enumerate(pairs):
            for half, value in enumerate(vectors_of_two):
                position = self._position(2 * number, column, half)
                total = tirx.BufferLoad(self.buffer, [position])
                made = tirx.call_pure_extern(sums, _PREFIX + name, total, pair, value)
                yield tirx.BufferStore(self.buffer, made, [position])

    def _two_rows(self, row: int, steps: Sequence[ProductLoops]) -> list[tirx.Expr]:
        """Returns for each step the dot operands of a row and the next one; of the last row twice."""
        left, second = steps[0].left, min(row + 1, self.rows - 1)
        if len(steps) == 2:
            loaded = [_vector(left, 0, position, _LANES) for position in (row, second)]
            return [tirx.Shuffle(loaded, order) for order in ([0, 1, 4, 5], [2, 3, 6, 7])]
        if second > row and is_number(left.down, ROW_PAIRS.terms):
            return [_vector(left, 0, row, _LANES)]
        return [tirx.Shuffle([_vector(left, 0, position, 2) for position in (row, second)], [0, 1, 2, 3])]

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


def _interleaved(product: ProductLoops, column: int) -> Iterator[tirx.Bind]:
    """Two vectors of two columns each, as they are in memory."""
    right = product.right
    for half in (0, 1):
        begin = right.base + right.apart * int64(column) + int64(half * _LANES)
        yield _named("b", tirx.BufferLoad(right.tensor, [tirx.Ramp(begin.astype("int64"), int64(1), _LANES)]))


def _zipped(product: ProductLoops, column: int) -> Iterator[tirx.Bind]:
    """Two vectors of two columns each, of two vectors with a dot operand of each of four."""
    vectors = []
    for term in (0, 1):
        vectors.append(_named("w", _vector(product.right, column, term, _LANES)))
        yield vectors[-1]
    for order in ([0, 4, 1, 5], [2, 6, 3, 7]):
        yield _named("b", tirx.Shuffle([each.var for each in vectors], order))


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
