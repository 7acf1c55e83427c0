"""Writes accumulators back: applies the epilogue, or, where the number of tiles is dynamic, stores slices that a second
launch sums.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from nnefc.passes.schedule.gpu.contractions.analysis import SumOfProducts
from nnefc.passes.schedule.gpu.nest import Nest, load, sequence, store
from nnefc.passes.tir.common.expressions import number, substituted
from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import ceil_div
from nnefc.targets.machine.gpu.description import LOAD_BYTES

__all__ = ["VECTOR", "add_slices", "write", "write_one", "write_vector"]

VECTOR = 8
"""Neighbouring columns of :func:`write_vector`: 8 bytes, 16 bytes of 16-bit floats, or 32 of float32."""

_PARTS = 2  # vectors of a block of channels: bytes have 16
_LANES = 4  # neighbouring columns that are written together
_THREADS = 256  # of a block that adds up slices


def write(
    nest: Nest,
    product: SumOfProducts,
    batch: tirx.Expr,
    row: tirx.Expr,
    column: tirx.Expr,
    sums: Callable[[tirx.Expr], tirx.Expr],
    slices: tirx.Var | None = None,
    which: tirx.Expr | None = None,
    width: int = _LANES,
) -> tirx.Stmt:
    """Writes `width` neighbouring columns of a row, as far as the result has them.

    Args:
        column: a multiple of `width`.
        sums: of each of the columns, by its number from 0 on.
        slices: where the sums go as they are, into slice `which`; None: the results go to the output.
    """
    rows, columns = product.rows.size, product.columns.size
    inside = [c for c in product.has_row(row) if not nest.holds(c)]

    # A single variable: a sum instead of it would keep divisions from being simplified.
    group_of_columns = nest.variable("group", -(-nest.end(column) // width))
    known = {group_of_columns: nest.simplify(tirx.floordiv(column, number(width)))}

    def index_and_value(lane: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
        own_column = group_of_columns * number(width) + lane
        if slices is None:
            return product.stored(nest, batch, row, own_column, sums(lane))
        assert which is not None
        line = (which * number(product.batch.size) + batch) * number(rows) + row
        return nest.simplify(line * number(columns) + own_column), sums(lane)

    def element(lane: tirx.Expr) -> tirx.Stmt:
        position, value = (substituted(part, known) for part in index_and_value(lane))
        return store(product.output if slices is None else slices, value, position)

    if columns % width == 0 and _is_vector(nest, index_and_value, width):
        group = nest.lanes(width, element)
        inside += [c for c in (column < number(columns),) if not nest.holds(c)]
    else:
        group = nest.unrolled(
            width, lambda lane: nest.guarded(element(lane), [column + lane < number(columns)]), "lane"
        )
    return nest.guarded(group, inside)


def write_vector(
    nest: Nest,
    product: SumOfProducts,
    batch: tirx.Expr,
    row: tirx.Expr,
    column: tirx.Expr,
    sums: tirx.Var,
    results: tirx.Var,
    slices: tirx.Var | None = None,
    which: tirx.Expr | None = None,
) -> tirx.Stmt | None:
    """Writes `VECTOR` neighbouring columns of a row, up to 16 bytes at once; None where they do not lie so.

    Args:
        column: a multiple of `VECTOR`.
        sums: registers with a sum for each of the columns.
        results: registers for as many results, of the type of what is written.
        slices, which: as for :func:`write`.
    """
    if product.columns.size % VECTOR:
        return None
    written = (
        _vector_of(nest, product, (batch, row, column), (sums, results), (slices, which), parts, lanes)
        for lanes in (_LANES, 1)
        for parts in (1, _PARTS)
    )
    return next((stmt for stmt in written if stmt is not None), None)


def _vector_of(
    nest: Nest,
    product: SumOfProducts,
    at: tuple[tirx.Expr, tirx.Expr, tirx.Expr],
    registers: tuple[tirx.Var, tirx.Var],
    of_slices: tuple[tirx.Var | None, tirx.Expr | None],
    parts: int,
    lanes: int,
) -> tirx.Stmt | None:
    """Does what :func:`write_vector` does, of columns in groups of `parts` vectors, `lanes` of which are computed at
    once.

    Where channels lie in blocks of 16, TVM finds the block and the position in it for groups of 16 alone.
    """
    (batch, row, column), (sums, results), (slices, which) = at, registers, of_slices
    rows, columns = product.rows.size, product.columns.size
    target = product.output if slices is None else slices
    groups = nest.variable("group", ceil_div(-(-nest.end(column) // VECTOR), parts))
    part_of_group = nest.variable("part", parts)
    vector = tirx.floordiv(column, number(VECTOR))
    known = {
        groups: nest.simplify(tirx.floordiv(vector, number(parts))),
        part_of_group: nest.simplify(tirx.floormod(vector, number(parts))),
    }
    first = groups * number(parts * VECTOR) + (part_of_group * number(VECTOR) if parts > 1 else number(0))

    def index_and_value(lane: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
        own_column = first + lane
        if slices is None:
            return product.stored(nest, batch, row, own_column, load(sums, lane))
        assert which is not None
        line = (which * number(product.batch.size) + batch) * number(rows) + row
        return nest.simplify(line * number(columns) + own_column), load(sums, lane)

    at_once = min(VECTOR, LOAD_BYTES // element_bytes(str(target.dtype)))
    if not _lie_side_by_side(nest, index_and_value, at_once) or not _are_vectors(nest, index_and_value, lanes):
        return None

    def compute(lane: tirx.Expr) -> tirx.Stmt:
        return store(results, substituted(index_and_value(lane)[1], known), lane)

    def put(lane: tirx.Expr) -> tirx.Stmt:
        return store(target, load(results, lane), substituted(index_and_value(lane)[0], known))

    def vectors(width: int, body: Callable[[tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
        return nest.unrolled(
            VECTOR // width, lambda part: nest.lanes(width, lambda lane: body(part * number(width) + lane)), "part"
        )

    inside = [*product.has_row(row), column < number(columns)]
    return nest.guarded(sequence(vectors(lanes, compute), vectors(at_once, put)), inside)


def write_one(
    nest: Nest,
    product: SumOfProducts,
    batch: tirx.Expr,
    row: tirx.Expr,
    column: tirx.Expr,
    total: tirx.Expr,
    slices: tirx.Var | None = None,
    which: tirx.Expr | None = None,
) -> tirx.Stmt:
    """Writes what comes of one sum, if the result has it; `slices` and `which` as for :func:`write`."""
    rows, columns = product.rows.size, product.columns.size
    if slices is None:
        position, value = product.stored(nest, batch, row, column, total)
        stmt = store(product.output, value, position)
    else:
        assert which is not None
        line = (which * number(product.batch.size) + batch) * number(rows) + row
        stmt = store(slices, total, nest.simplify(line * number(columns) + column))
    return nest.guarded(stmt, [*product.has_row(row), column < number(columns)])


def _is_vector(nest: Nest, index_and_value: Callable[[tirx.Expr], tuple[tirx.Expr, tirx.Expr]], width: int) -> bool:
    """Whether the results of all lanes can be computed, and written, as one vector."""
    lane = nest.variable("lane", width)
    position, value = index_and_value(lane)
    return nest.is_aligned(position, lane, width) and nest.vectorizes(value, lane, width)


def _are_vectors(nest: Nest, index_and_value: Callable[[tirx.Expr], tuple[tirx.Expr, tirx.Expr]], width: int) -> bool:
    """Whether each part of `width` of `VECTOR` results can be computed as one vector, wherever it is written."""
    first, lane = nest.variable("first", VECTOR // width) * number(width), nest.variable("lane", width)
    return width == 1 or nest.vectorizes(index_and_value(first + lane)[1], lane, width)


def _lie_side_by_side(
    nest: Nest, index_and_value: Callable[[tirx.Expr], tuple[tirx.Expr, tirx.Expr]], width: int
) -> bool:
    """Whether each part of `width` of `VECTOR` results can be written as one vector, however it is computed."""
    first, lane = nest.variable("first", VECTOR // width) * number(width), nest.variable("lane", width)
    return nest.is_aligned(index_and_value(first + lane)[0], lane, width)


def add_slices(product: SumOfProducts, slices: tirx.Var, count: int) -> tirx.Stmt:
    """Returns a launch that adds up `count` slices of the sums, and writes the results."""
    nest = Nest(product.aligned)
    dtype = product.accumulator
    rows, columns = product.rows.size, product.columns.size
    groups = ceil_div(columns, _LANES)
    size = product.batch.size * rows * columns
    elements = product.batch.size * rows * groups
    sums = nest.buffer("sums", _LANES, dtype, "local")

    def body(block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        element = block * number(_THREADS) + thread
        line, column = tirx.floordiv(element, number(groups)), tirx.floormod(element, number(groups)) * number(_LANES)
        batch, row = tirx.floordiv(line, number(rows)), tirx.floormod(line, number(rows))

        def add(which: tirx.Expr) -> tirx.Stmt:
            def lane(of: tirx.Expr) -> tirx.Stmt:
                at = nest.simplify(which * number(size) + line * number(columns) + column + of)
                part: tirx.Expr = load(slices, at)
                if columns % _LANES:
                    part = tirx.if_then_else(column + of < number(columns), part, tirx.const(0, dtype))
                return store(sums, load(sums, of) + part, of)

            return nest.lanes(_LANES, lane) if columns % _LANES == 0 else nest.unrolled(_LANES, lane)

        start = nest.lanes(_LANES, lambda lane: store(sums, tirx.const(0, dtype), lane))
        end = write(nest, product, batch, row, column, lambda lane: load(sums, lane))
        return nest.guarded(sequence(start, nest.loop(count, add, "slice"), end), [element < number(elements)])

    return nest.launch(ceil_div(elements, _THREADS), _THREADS, body)
