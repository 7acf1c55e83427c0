"""Lowers dot products of two rows by two columns to `smmla`, `ummla` and `bfmmla` (64-bit Arm).

    a = the next two dot operands of rows r and r + 1       b = those of columns c and c + 1
    mmla(s, a, b)[i, j] = s[i, j] + a[i] · b[j]             s: four sums, of two rows and two columns

B may be packed for this: the two dot operands of a column follow each other, and a vector has those of two columns.
Packed for dot products, a vector has one dot operand of each of four columns, so that two vectors, interleaved, are
those of two columns and of the other two. Rows of A that follow each other in memory, as pixels in blocks of 8 or 16
bytes do, are loaded in pairs, see `row_pairs.py`: eight rows and eight columns at a time, so that registers are left
for loads of four vectors, in a loop that may become assembly, see `microkernels/aarch64_smmla.py`. Of other rows two
steps are loaded at once, and interleaved. The epilogue is computed in the order of the sums, see `pair_epilogue.py`,
for all columns of a tile; sums of pairs become rows when they are stored.
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

from nnefc.ir.attributes import ASSEMBLY_MICROKERNEL
from nnefc.ir.rebuild import nested, with_fields
from nnefc.passes.tir.common.expressions import int64, is_number, substituted
from nnefc.passes.tir.common.statements import renewed
from nnefc.passes.tir.cpu.match_tile_products import Epilogue, FinishedTiles, ProductLoops, TileOperand, with_products
from nnefc.passes.tir.cpu.pair_epilogue import PairEpilogue
from nnefc.passes.tir.cpu.row_pairs import PREFIX, RowPair, pairs_in_memory, pairs_of
from nnefc.targets.machine.cpu.matrix_units import ROW_PAIRS, TILE_PRODUCTS

__all__ = ["lower_i8mm", "pair_calls"]

_LANES = ROW_PAIRS.lanes
_UNROLLED = 2  # iterations, each of one or two steps of the sum, of a loop that LLVM compiles
_TOGETHER, _TERMS = 4, 18  # of assembly: vectors that one instruction loads; terms of each sum that are unrolled


def lower_i8mm(stmt: tirx.Stmt) -> tirx.Stmt:
    """Returns the body of a flat kernel; the same object if nothing in it is multiplied in pairs of rows."""
    return with_products(stmt, _summed, _finished)


def _summed(product: ProductLoops, rows: Sequence[int], around: Sequence[tirx.For]) -> tirx.Stmt | None:
    """Returns the statements that compute the sums of a tile and store them by rows; None for products of other
    units.
    """
    stmts: list[tirx.Stmt] = []
    for _, part in _in_columns(product, around):
        sums = _Sums.of(part, rows, around)
        if sums is None:
            return None
        zeros = [tirx.Broadcast(tirx.const(0, str(sums.buffer.dtype)), _LANES)] * (2 * part.columns)
        stmts += [AllocBuffer(sums.buffer), *sums.begun(zeros), sums.added(), *sums.stores()]
    return renewed(tirx.SeqStmt(stmts))


def _finished(product: ProductLoops, around: Sequence[tirx.For], epilogue: Epilogue) -> FinishedTiles | None:
    """Returns the statements that compute the sums of tiles and their epilogue; None for epilogues that are more than
    vector arithmetic.
    """
    stored = PairEpilogue.of(epilogue, product, _LANES)
    if stored is None or any(_Sums.of(product, rows, around) is None for rows in product.counts):
        return None
    return FinishedTiles(stored.bound, lambda rows: _tile(stored, product, around, rows))


def _tile(epilogue: PairEpilogue, product: ProductLoops, around: Sequence[tirx.For], tiles: Sequence[int]) -> tirx.Stmt:
    """Computes the sums of a tile, some columns after the other, and the epilogue of full rows."""
    stmts: list[tirx.Stmt] = []
    made: dict[tuple[int, ...], list[tirx.Var]] = {}
    for columns, part in _in_columns(product, around):
        sums = _Sums.of(part, tiles, around)
        assert sums is not None
        begins = [each for column in columns for each in _begin(epilogue, sums, column)]
        stmts += [AllocBuffer(sums.buffer), *sums.begun(begins), sums.added()]
        for rows, registers in sums.of_pairs():
            bound = epilogue.computed(rows, registers, columns.start * _LANES)
            made.setdefault(rows, []).append(bound.var)
            stmts += [bound, *(epilogue.stored(rows, made[rows]) if columns.stop == product.columns else [])]
    return renewed(tirx.SeqStmt(stmts))


def _in_columns(product: ProductLoops, around: Sequence[tirx.For]) -> Iterator[tuple[range, ProductLoops]]:
    """Yields the vectors of columns whose sums are in registers together, with their product: all, or as many as leave
    registers for loads of several vectors if rows follow each other in memory.
    """
    count, part = product.columns, ROW_PAIRS.columns[1]
    if count % part == 0 and _are_contiguous(product, len(_steps(product, around))):
        count = part
    for first in range(0, product.columns, count):
        right = replace(product.right, base=product.right.base + product.right.apart * int64(first))
        sums = replace(product.sums, base=product.sums.base + product.sums_apart * int64(first))
        yield range(first, first + count), replace(product, columns=count, right=right, sums=sums)


def _begin(epilogue: PairEpilogue, sums: _Sums, column: int) -> list[tirx.Expr]:
    """Returns the initial sums of two rows and a vector of columns, by registers."""
    first = epilogue.first_sums(column, _LANES)
    if first is None:
        return [tirx.Broadcast(tirx.const(0, str(sums.buffer.dtype)), _LANES)] * 2
    return [tirx.Shuffle([first], [2 * half, 2 * half + 1] * 2) for half in (0, 1)]


def _are_contiguous(product: ProductLoops, steps: int) -> bool:
    """Whether rows follow each other in memory, so that several steps are loaded at once."""
    return bool(is_number(product.left.down, steps * ROW_PAIRS.terms))


def _steps(product: ProductLoops, around: Sequence[tirx.For]) -> list[ProductLoops]:
    """Returns the products of one iteration of the innermost loop, or of two if their left operands are contiguous and
    loaded at once.
    """
    loop = around[-1] if around else None
    if loop is None or not _extent(loop) or _extent(loop) % 2:
        return [product]
    linear = detect_linear_equation(Analyzer().simplify(product.left.base), [loop.loop_var])
    if not linear or not is_number(linear[0], product.terms) or is_number(product.left.down, product.terms):
        return [product]
    return [_moved(product, {loop.loop_var: loop.loop_var * 2 + half}) for half in (0, 1)]


def _extent(loop: tirx.For) -> int:
    """Returns the trip count of a loop from 0; 0 if it is unknown."""
    return int(loop.extent) if isinstance(loop.extent, tirx.IntImm) and is_number(loop.min, 0) else 0


def _moved(product: ProductLoops, number: Mapping[tirx.Var, tirx.Expr]) -> ProductLoops:
    """Returns the products shifted to other iterations."""
    left, right = (
        replace(each, base=Analyzer().simplify(substituted(each.base, number)))
        for each in (product.left, product.right)
    )
    return replace(product, left=left, right=right)


@dataclass(frozen=True)
class _Sums:
    """Sums of two rows and two columns each, in a buffer that stays in registers.

    Attributes:
        product: what is summed.
        pairs: the pairs of rows.
        steps: the products of one iteration of the innermost loop, whose rows are loaded together.
        loops: that add the products.
        buffer: the sums, two registers for each pair and vector of columns.
    """

    product: ProductLoops
    pairs: Sequence[RowPair]
    steps: Sequence[ProductLoops]
    loops: Sequence[tirx.For]
    buffer: tirx.Var

    @staticmethod
    def of(product: ProductLoops, tiles: Sequence[int], around: Sequence[tirx.For]) -> _Sums | None:
        """Returns the sums of tiles with so many rows; None if other instructions compute them.

        Args:
            around: the loops around the product.
        """
        found = TILE_PRODUCTS.get(product.name)
        if found is None or found.unit is not ROW_PAIRS or product.terms != ROW_PAIRS.terms or len(tiles) != 1:
            return None
        steps, loops = _steps(product, around), list(around)
        if len(steps) == 2:
            loops[-1] = with_fields(loops[-1], extent=loops[-1].extent // 2)
        contiguous = _are_contiguous(product, len(steps))
        pairs = pairs_in_memory(tiles[0], len(steps)) if contiguous else pairs_of(tiles[0])
        size = len(pairs) * 2 * product.columns * _LANES
        buffer = tirx.decl_buffer((int64(size),), str(product.sums.tensor.dtype), "pairs")
        return _Sums(product, pairs, steps, loops, buffer)

    def _position(self, pair: int, column: int, half: int) -> tirx.Expr:
        """Returns the index of the accumulators of two rows and half of a vector of columns."""
        number = (pair * self.product.columns + column) * 2 + half
        return tirx.Ramp(int64(number * _LANES), int64(1), _LANES)

    def _each(self) -> Iterator[tuple[int, int]]:
        return ((pair, column) for pair in range(len(self.pairs)) for column in range(self.product.columns))

    def begun(self, first: Sequence[tirx.Expr]) -> Iterator[tirx.Stmt]:
        """Stores the initial sums of each pair of rows, by registers."""
        for pair, column in self._each():
            for half in (0, 1):
                yield tirx.BufferStore(self.buffer, first[2 * column + half], [self._position(pair, column, half)])

    def added(self) -> tirx.Stmt:
        """Returns the loops that add the products. They may become assembly; else short ones are unrolled, because LLVM
        would load rows early and spill sums.
        """
        groups, loops = [self.steps], list(self.loops)
        assembly = bool(self.pairs[0].load) and self.product.interleaved
        if assembly and not loops:
            once = tirx.Var("once", "int64")
            loops.append(tirx.For(once, int64(0), int64(1), tirx.ForKind.SERIAL, tirx.Evaluate(0)))
        while not assembly and loops and 0 < _extent(loops[-1]) * len(groups) <= _UNROLLED:
            loop = loops.pop()
            numbers = [{loop.loop_var: tirx.const(n, loop.extent.ty.dtype)} for n in range(_extent(loop))]
            groups = [[_moved(step, number) for step in group] for number in numbers for group in groups]
        made: tirx.Stmt = tirx.SeqStmt([stmt for steps in groups for stmt in self._step(steps)])
        notes = {ASSEMBLY_MICROKERNEL: [_TOGETHER, _TERMS]} if assembly else None
        made = nested(loops[-1:], made, kind=tirx.ForKind.SERIAL, annotations=notes)
        return renewed(nested(loops[:-1], made, kind=tirx.ForKind.SERIAL, annotations=None))

    def of_pairs(self) -> Iterator[tuple[tuple[int, ...], Sequence[tirx.Expr]]]:
        """Yields the rows of each pair, with the registers that hold their sums."""
        for number, pair in enumerate(self.pairs):
            columns = range(self.product.columns)
            positions = [self._position(number, column, half) for column in columns for half in (0, 1)]
            yield pair.rows, [tirx.BufferLoad(self.buffer, [position]) for position in positions]

    def _step(self, steps: Sequence[ProductLoops]) -> Iterator[tirx.Stmt]:
        """Adds the products of two dot operands, or of two such steps."""
        operands: list[list[tirx.Var]] = []
        for pair in self.pairs:
            vectors = [_named("a", vector) for vector in _two_rows(pair, steps)]
            yield from vectors
            operands.append([vector.var for vector in vectors])
        for number, product in enumerate(steps):
            for column in range(product.columns):
                vectors_of_two = []
                for bound in _interleaved(product, column) if product.interleaved else _zipped(product, column):
                    yield bound
                    vectors_of_two += [bound.var] if bound.var.name == "b" else []
                yield from self._products(column, vectors_of_two, [pairs[number] for pairs in operands])

    def _products(
        self, column: int, vectors_of_two: Sequence[tirx.Var], pairs: Sequence[tirx.Var]
    ) -> Iterator[tirx.Stmt]:
        """Adds the products of all pairs of rows with a vector of columns."""
        name = TILE_PRODUCTS[self.product.name].instructions[not self.product.of_rows]
        sums = f"{self.buffer.dtype}x{_LANES}"
        for number, pair in enumerate(pairs):
            for half, value in enumerate(vectors_of_two):
                position = self._position(number, column, half)
                total = tirx.BufferLoad(self.buffer, [position])
                made = tirx.call_pure_extern(sums, PREFIX + name, total, pair, value)
                yield tirx.BufferStore(self.buffer, made, [position])

    def stores(self) -> Iterator[tirx.Stmt]:
        """Stores all rows in their destination."""
        own = self.product.sums
        for number, column in self._each():
            parts = [tirx.BufferLoad(self.buffer, [self._position(number, column, half)]) for half in (0, 1)]
            orders = ([0, 1, 4, 5], [2, 3, 6, 7])
            for row, order in zip(self.pairs[number].rows, orders, strict=False):
                begin = own.base + own.down * int64(row) + self.product.sums_apart * int64(column)
                yield tirx.BufferStore(own.tensor, tirx.Shuffle(parts, order), [tirx.Ramp(begin, int64(1), _LANES)])


def _two_rows(pair: RowPair, steps: Sequence[ProductLoops]) -> list[tirx.Expr]:
    """Returns for each step the dot operands of a pair of rows; of a single row twice."""
    left, (first, last) = steps[0].left, (pair.rows[0], pair.rows[-1])
    if pair.load == "ld1":
        return [_vector(left, 0, first, _LANES)]
    if pair.load:
        address = tirx.address_of(tirx.BufferLoad(left.tensor, [_index(left, 0, pair.begin)]))
        names = [f"{PREFIX}{pair.load}_{pair.register + step}" for step in range(len(steps))]
        return [tirx.call_pure_extern(f"int32x{_LANES}", name, address) for name in names]
    if len(steps) == 2:
        loaded = [_vector(left, 0, row, _LANES) for row in (first, last)]
        return [tirx.Shuffle(loaded, order) for order in ([0, 1, 4, 5], [2, 3, 6, 7])]
    return [tirx.Shuffle([_vector(left, 0, row, 2) for row in (first, last)], [0, 1, 2, 3])]


def _interleaved(product: ProductLoops, column: int) -> Iterator[tirx.Bind]:
    """Returns two vectors of two columns each, which memory has in this order."""
    right = product.right
    for half in (0, 1):
        begin = right.base + right.apart * int64(column) + int64(half * _LANES)
        yield _named("b", tirx.BufferLoad(right.tensor, [tirx.Ramp(begin.astype("int64"), int64(1), _LANES)]))


def _zipped(product: ProductLoops, column: int) -> Iterator[tirx.Bind]:
    """Returns two vectors of two columns each, interleaved from two vectors with a dot operand of each of four
    columns.
    """
    vectors = []
    for term in (0, 1):
        vectors.append(_named("w", _vector(product.right, column, term, _LANES)))
        yield vectors[-1]
    for order in ([0, 4, 1, 5], [2, 6, 3, 7]):
        yield _named("b", tirx.Shuffle([each.var for each in vectors], order))


def _vector(operand: TileOperand, tile: int, row: int, lanes: int) -> tirx.Expr:
    """Returns a vector of elements of a row of a tile."""
    return tirx.BufferLoad(operand.tensor, [tirx.Ramp(_index(operand, tile, row), int64(1), lanes)])


def _index(operand: TileOperand, tile: int, row: int) -> tirx.Expr:
    """Returns the index at which a row of a tile begins."""
    begin = operand.base + operand.apart * int64(tile) + operand.down * int64(row)
    return begin.astype("int64")


def _named(name: str, value: tirx.Expr) -> tirx.Bind:
    return tirx.Bind(tirx.Var(name, PrimType(f"int32x{_LANES}")), value)


def pair_calls(stmt: tirx.Stmt) -> Iterator[str]:
    """Returns the instructions by which statements multiply and load pairs of rows."""
    found: list[Call] = []
    tvm_ffi.structural_walk(stmt, (Call, found.append))
    for call in found:
        if getattr(call.op, "name", "") == "tirx.call_pure_extern":
            name = str(call.args[0].value)
            if name.startswith(PREFIX):
                yield name.removeprefix(PREFIX)
