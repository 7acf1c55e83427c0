"""Lowers dot products of two rows by two columns to `smmla`, `ummla` and `bfmmla` (64-bit Arm).

    a = the next two dot operands of rows r and r + 1       b = those of columns c and c + 1
    mmla(s, a, b)[i, j] = s[i, j] + a[i] · b[j]             s: four sums, of two rows and two columns

B may be packed for this: the two dot operands of a column follow each other, and a vector has those of two columns.
Packed for dot products, a vector has one dot operand of each of four columns, so that two vectors, interleaved, are
those of two columns and of the other two. Two rows of A that follow each other in memory, as pixels in blocks of eight
bytes do, are one vector; of others two steps are loaded at once, and interleaved, by `ld2` where rows of 16 bytes
follow each other. Short inner loops are unrolled. The epilogue is computed in the order of the sums, see
`pair_epilogue.py`; sums of pairs become rows when they are stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
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
from nnefc.passes.tir.cpu.match_tile_products import Epilogue, FinishedTiles, ProductLoops, TileOperand, with_products
from nnefc.passes.tir.cpu.pair_epilogue import PairEpilogue
from nnefc.targets.machine.cpu.matrix_units import ROW_PAIRS, TILE_PRODUCTS

__all__ = ["LOADS", "lower_i8mm", "pair_calls"]

_LANES = ROW_PAIRS.lanes
_PREFIX = "nnefc_pairs_"
_UNROLLED, _UNROLLED_TAPS = 2, 4  # iterations, each of one or two steps of the sum, of any loop and of one over taps

LOADS = ("load_first", "load_second")
"""What is called to load the first or second two dot operands of two rows of 16 bytes that follow each other."""


def lower_i8mm(stmt: tirx.Stmt) -> tirx.Stmt:
    """Returns the body of a flat kernel; the same object if nothing in it is multiplied in pairs of rows."""
    return with_products(stmt, _summed, _finished)


def _summed(product: ProductLoops, rows: Sequence[int], around: Sequence[tirx.For]) -> tirx.Stmt | None:
    """Returns the sums of a tile, stored by rows; None for products of other units."""
    sums = _Sums.of(product, rows)
    if sums is None:
        return None
    zeros = sums.begun([tirx.Broadcast(tirx.const(0, str(sums.buffer.dtype)), _LANES)] * (2 * product.columns))
    return renewed(tirx.SeqStmt([AllocBuffer(sums.buffer), *zeros, sums.added(around), *sums.stores()]))


def _finished(product: ProductLoops, around: Sequence[tirx.For], epilogue: Epilogue) -> FinishedTiles | None:
    """Returns the sums of tiles and their epilogue; None for epilogues that are no arithmetic of vectors."""
    stored = PairEpilogue.of(epilogue, product, _LANES)
    if stored is None or any(_Sums.of(product, rows) is None for rows in product.counts):
        return None

    def tile(rows: Sequence[int]) -> tirx.Stmt:
        sums = _Sums.of(product, rows)
        assert sums is not None
        begun = sums.begun(list(_begins(stored, sums)))
        written = (stmt for row in range(0, sums.rows, 2) for stmt in stored.stored(*sums.of_rows(row)))
        return renewed(tirx.SeqStmt([AllocBuffer(sums.buffer), *begun, sums.added(around), *written]))

    return FinishedTiles(stored.bound, tile)


def _begins(epilogue: PairEpilogue, sums: _Sums) -> Iterator[tirx.Expr]:
    """What the sums of two rows begin with, by registers."""
    for column in range(sums.product.columns):
        first = epilogue.first_sums(column, _LANES)
        for half in (0, 1):
            if first is None:
                yield tirx.Broadcast(tirx.const(0, str(sums.buffer.dtype)), _LANES)
            else:
                yield tirx.Shuffle([first], [2 * half, 2 * half + 1] * 2)


def _iterations(
    product: ProductLoops, around: Sequence[tirx.For]
) -> tuple[list[list[ProductLoops]], Sequence[tirx.For]]:
    """Returns the steps of one iteration of the innermost loop that is left, in groups whose rows are loaded together,
    and the loops that are left."""
    steps, loops = list(_steps(product, around)), list(around)
    if len(steps) == 2:
        loops[-1] = with_fields(loops[-1], extent=loops[-1].extent // 2)
    groups = [steps]
    while loops and (order := _unrolled(loops[-1], product, len(groups))):
        loop = loops.pop()
        numbers = [{loop.loop_var: tirx.const(n, loop.extent.ty.dtype)} for n in order]
        groups = [[_moved(step, number) for step in group] for number in numbers for group in groups]
    return groups, loops


def _unrolled(loop: tirx.For, product: ProductLoops, groups: int) -> list[int]:
    """Returns the iterations of a loop that is written out: next to each other are those that read the same pairs of
    rows, as every second tap of a filter does. None of more: LLVM would load rows early, and store sums meanwhile."""
    numbers = range(_extent(loop))
    linear = detect_linear_equation(Analyzer().simplify(product.left.base), [loop.loop_var])
    overlap = linear and is_number(Analyzer().simplify(linear[0] - product.left.down), 0)
    if len(numbers) * groups > (_UNROLLED_TAPS if overlap else _UNROLLED):
        return []
    return [*numbers[::2], *numbers[1::2]] if overlap else list(numbers)


def _extent(loop: tirx.For) -> int:
    """Returns how many iterations a loop from 0 has; 0 where that is not known."""
    return int(loop.extent) if isinstance(loop.extent, tirx.IntImm) and is_number(loop.min, 0) else 0


def _steps(product: ProductLoops, around: Sequence[tirx.For]) -> Iterator[ProductLoops]:
    """Yields the products of one iteration of the innermost loop: of two as one iteration, where those of a row follow
    each other in A, which are then loaded at once."""
    loop = around[-1] if around else None
    if loop is None or not _extent(loop) or _extent(loop) % 2:
        yield product
        return
    linear = detect_linear_equation(Analyzer().simplify(product.left.base), [loop.loop_var])
    if not linear or not is_number(linear[0], product.terms) or is_number(product.left.down, product.terms):
        yield product
        return
    for half in (0, 1):
        yield _moved(product, {loop.loop_var: loop.loop_var * 2 + half})


def _moved(product: ProductLoops, number: Mapping[tirx.Var, tirx.Expr]) -> ProductLoops:
    """Returns the products of other iterations."""
    left, right = (
        replace(each, base=Analyzer().simplify(substituted(each.base, number)))
        for each in (product.left, product.right)
    )
    return replace(product, left=left, right=right)


@dataclass(frozen=True)
class _Sums:
    """Sums of two rows and two columns each, in a buffer that stays in registers."""

    product: ProductLoops
    rows: int
    buffer: tirx.Var

    @staticmethod
    def of(product: ProductLoops, tiles: Sequence[int]) -> _Sums | None:
        """Returns the sums of tiles with so many rows; None if other instructions compute them."""
        found = TILE_PRODUCTS.get(product.name)
        if found is None or found.unit is not ROW_PAIRS or product.terms != ROW_PAIRS.terms or len(tiles) != 1:
            return None
        size = -(-tiles[0] // 2) * 2 * product.columns * _LANES
        return _Sums(product, tiles[0], tirx.decl_buffer((int64(size),), str(product.sums.tensor.dtype), "pairs"))

    def _position(self, row: int, column: int, half: int) -> tirx.Expr:
        """Returns the index of the accumulators of two rows and half of a vector of columns."""
        number = (row // 2 * self.product.columns + column) * 2 + half
        return tirx.Ramp(int64(number * _LANES), int64(1), _LANES)

    def _each(self) -> Iterator[tuple[int, int]]:
        return ((row, column) for row in range(0, self.rows, 2) for column in range(self.product.columns))

    def begun(self, first: Sequence[tirx.Expr]) -> Iterator[tirx.Stmt]:
        """Stores what the sums of each two rows begin with, by registers."""
        for row, column in self._each():
            for half in (0, 1):
                yield tirx.BufferStore(self.buffer, first[2 * column + half], [self._position(row, column, half)])

    def added(self, around: Sequence[tirx.For]) -> tirx.Stmt:
        """The loops that add the products."""
        groups, loops = _iterations(self.product, around)
        name = TILE_PRODUCTS[self.product.name].instructions[not self.product.of_rows]
        body = tirx.SeqStmt([stmt for steps in groups for stmt in self._step(name, steps)])
        return nested(loops, body, kind=tirx.ForKind.SERIAL, annotations=None)

    def of_rows(self, row: int) -> tuple[Sequence[int], Sequence[tirx.Expr]]:
        """Returns a row and the next one, if there is one, and the registers that hold their sums."""
        positions = [self._position(row, column, half) for column in range(self.product.columns) for half in (0, 1)]
        rows = range(row, min(row + 2, self.rows))
        return rows, [tirx.BufferLoad(self.buffer, [position]) for position in positions]

    def _step(self, name: str, steps: Sequence[ProductLoops]) -> Iterator[tirx.Stmt]:
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
        if len(steps) == 2 and second > row and is_number(left.down, _LANES):
            address = tirx.address_of(tirx.BufferLoad(left.tensor, [_index(left, 0, row)]))
            return [tirx.call_pure_extern(f"int32x{_LANES}", _PREFIX + name, address) for name in LOADS]
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
    return tirx.BufferLoad(operand.tensor, [tirx.Ramp(_index(operand, tile, row), int64(1), lanes)])


def _index(operand: TileOperand, tile: int, row: int) -> tirx.Expr:
    """Returns where a row of a tile begins."""
    begin = operand.base + operand.apart * int64(tile) + operand.down * int64(row)
    return begin.astype("int64")


def _named(name: str, value: tirx.Expr) -> tirx.Bind:
    return tirx.Bind(tirx.Var(name, PrimType(f"int32x{_LANES}")), value)


def pair_calls(stmt: tirx.Stmt) -> Iterator[str]:
    """The instructions that statements multiply pairs of rows by, and what they load pairs by."""
    found: list[Call] = []
    tvm_ffi.structural_walk(stmt, (Call, found.append))
    for call in found:
        if getattr(call.op, "name", "") == "tirx.call_pure_extern":
            name = str(call.args[0].value)
            if name.startswith(_PREFIX):
                yield name.removeprefix(_PREFIX)
