"""Computes softmax(score(Q Kᵀ)) V tile by tile, without the matrix of scores (Dao et al., "FlashAttention", 2022).

A tile is some vectors of queries, one query a lane, and goes through the keys in blocks, with the largest score so far,
and sums of powers and of values relative to it, for each lane (Milakov and Gimelshein, "Online normalizer calculation
for softmax", 2018):

    for batch element, head, tile of queries in parallel:
        Qᵀ[E, lanes] = the tile's queries, transposed
        for block of keys:
            P[keys, lanes] = score(K · Qᵀ);  highest = max(highest, P)        # numbers of K in all lanes
            P = exp(P − highest);  total = total · rescaled + sum of P
            Oᵀ[V, lanes] = Oᵀ · rescaled + Vᵀ · P                             # numbers of V in all lanes
        result = Oᵀ / total, transposed

Keys and values are read where they lie, in whatever order of axes, for no vector is loaded of them. The largest of some
scores and their sum are operations between vectors, and P is written as the second product reads it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from tvm import te, tirx
from tvm.tirx.stmt import AllocBuffer

from nnefc.passes.compute.attention.problem import LOWEST, Attended, AttentionTiles, Datum, Index, Loads, keys_seen
from nnefc.passes.compute.attention.single_query import one_query
from nnefc.passes.compute.loops import (
    lane_loop,
    lanes_at,
    local,
    loop,
    sequence,
    spread,
    transposed,
    unrolled,
)
from nnefc.passes.compute.vector_math import exp_of_negative
from nnefc.passes.tir.common.expressions import int64
from nnefc.symbolic.dims import Dimension, ceil_div, element_count, expression, may_exceed

__all__ = ["attend"]


def attend(problem: Attended, tiles: AttentionTiles, operands: Sequence[te.Tensor]) -> te.Tensor:
    """Returns the result of an attention of float32."""
    sources = [tirx.decl_buffer(x.shape, x.dtype, f"x{n}", elem_offset=0) for n, x in enumerate(operands)]
    shape = tuple(map(expression, problem.shape))
    target = tirx.decl_buffer(shape, "float32", "y", elem_offset=0)
    return te.extern(
        [shape],
        list(operands),
        lambda ins, outs: _computed(problem, tiles, ins, outs[0]),
        dtype=["float32"],
        in_buffers=sources,
        out_buffers=[target],
        name="attention",
    )


def _computed(problem: Attended, tiles: AttentionTiles, sources: Sequence[tirx.Var], target: tirx.Var) -> tirx.Stmt:
    """Returns the attention of all queries: in tiles, or without tiles where each head has one query."""
    loads = [_load_of(source) for source in sources]
    if not tiles.heads:
        return _all_tiles(problem, tiles, loads, target)
    alone = _all_groups(problem, tiles, loads, target)
    if problem.queries == 1:
        return alone
    many = _all_tiles(problem, tiles, loads, target)
    return tirx.IfThenElse(expression(problem.queries) == int64(1), alone, many)


def _load_of(source: tirx.Var) -> Callable[[Index], tirx.Expr]:
    return lambda index: tirx.BufferLoad(source, list(index))


def _all_tiles(problem: Attended, tiles: AttentionTiles, loads: Loads, target: tirx.Var) -> tirx.Stmt:
    """Returns one loop over the tiles of all heads."""
    sizes = [*problem.batch, sum(_tile_counts(problem.queries, tiles))]

    def one(number: tirx.Expr) -> tirx.Stmt:
        *batch, tile = _digits(number, sizes)
        return _one_of_sizes(problem, tiles, loads, target, batch, tile)

    return _shared(element_count(sizes), one, tiles)


def _all_groups(problem: Attended, tiles: AttentionTiles, loads: Loads, target: tirx.Var) -> tirx.Stmt:
    """Returns one loop over groups of heads that share keys; each head has one query."""
    *outer, heads = problem.batch or (1,)
    sizes = [*outer, heads // tiles.heads]

    def one(number: tirx.Expr) -> tirx.Stmt:
        *batch, group = _digits(number, sizes)
        first = [*batch, group * int64(tiles.heads)] if problem.batch else []
        return one_query(problem, tiles, loads, target, first)

    return _shared(element_count(sizes), one, tiles)


def _shared(count: Dimension, body: Callable[[tirx.Expr], tirx.Stmt], tiles: AttentionTiles) -> tirx.Stmt:
    var = tirx.Var("tile", "int64")
    kind = tirx.ForKind.PARALLEL if tiles.parallel else tirx.ForKind.SERIAL
    return tirx.For(var, int64(0), expression(count), kind, body(var))


def _digits(number: tirx.Expr, sizes: Sequence[Dimension]) -> list[tirx.Expr]:
    """Splits a flat index into indices of dimensions of these sizes."""
    index: list[tirx.Expr] = []
    for size in reversed(sizes[1:]):
        index.insert(0, int64(0) if size == 1 else number % expression(size))
        number = number if size == 1 else number // expression(size)
    return [number, *index]


# Of each size as many tiles as there is room for; the last one of all begins so early that it ends with the last query.


def _tile_counts(queries: Dimension, tiles: AttentionTiles) -> list[Dimension]:
    """Returns the number of tiles of each size for the queries of a head."""
    counts: list[Dimension] = []
    for vectors, _ in tiles.sizes[:-1]:
        counts.append(queries // (vectors * tiles.lanes))
        queries = queries % (vectors * tiles.lanes)
    return [*counts, ceil_div(queries, tiles.lanes)]


def _one_of_sizes(
    problem: Attended,
    tiles: AttentionTiles,
    loads: Loads,
    target: tirx.Var,
    batch: Index,
    tile: tirx.Expr,
) -> tirx.Stmt:
    """Returns a tile by its number, of the size that tile has."""
    last = expression(problem.queries - tiles.lanes)
    made: tirx.Stmt | None = None
    tiles_before, queries_before = [0], [0]
    counts = _tile_counts(problem.queries, tiles)
    for count, (vectors, _) in zip(counts, tiles.sizes, strict=True):
        tiles_before.append(tiles_before[-1] + count)
        queries_before.append(queries_before[-1] + count * (vectors * tiles.lanes))
    for n, (count, (vectors, rows)) in reversed(list(enumerate(zip(counts, tiles.sizes, strict=True)))):
        if count == 0:
            continue
        across = int64(vectors * tiles.lanes)
        begin = expression(queries_before[n]) + (tile - expression(tiles_before[n])) * across
        clamped = vectors == 1 and may_exceed(tiles.lanes, problem.queries)
        begin = tirx.min(begin, last) if vectors == 1 else begin
        begin = tirx.max(begin, int64(0)) if clamped else begin
        own = _Tile(problem, tiles, rows, loads, target, batch, begin, vectors, clamped).statement()
        made = own if made is None else tirx.IfThenElse(tile < expression(tiles_before[n + 1]), own, made)
    assert made is not None
    return made


class _Tile:
    """The statements of one tile: its vectors of queries from `begin` on, all keys, all values."""

    def __init__(
        self,
        problem: Attended,
        tiles: AttentionTiles,
        rows: int,
        loads: Loads,
        target: tirx.Var,
        batch: Index,
        begin: tirx.Expr,
        vectors: int,
        clamped: bool,
    ) -> None:
        self.problem, self.loads, self.target = problem, loads, target
        self.batch, self.begin, self.clamped = batch, begin, clamped
        self.lanes, self.vectors, self.rows = tiles.lanes, vectors, rows
        self.across = self.lanes * vectors
        self.block = -(-tiles.block // self.rows) * self.rows
        padded = -(-problem.size // self.lanes) * self.lanes
        wide = -(-problem.width // self.lanes) * self.lanes
        self.queries = local("queries", padded * self.across)
        self.sums = local("sums", wide * self.across)
        self.powers = local("powers", self.block * self.across)
        self.highest, self.top, self.total, self.rescaled, self.chosen = (
            local(name, self.across) for name in ("highest", "top", "total", "rescaled", "chosen")
        )
        self.converted = local("converted", self.block * max(problem.size, problem.width))

    def statement(self) -> tirx.Stmt:
        buffers = [self.queries, self.sums, self.powers, self.highest, self.top, self.total, self.rescaled]
        buffers += [self.chosen] if self.problem.chosen else []
        buffers += [self.converted] if self.problem.is_converted else []
        rows = self._row(int64(0)), self._row(int64(self.across - 1))
        first, end = keys_seen(self.problem, self.loads, self.batch, *rows)
        blocks = (end - first + int64(self.block - 1)) // int64(self.block)
        return tirx.SeqStmt(
            [
                *map(AllocBuffer, buffers),
                *self._start(),
                *self._transposed_queries(),
                loop(blocks, lambda block: self._block(first + block * int64(self.block), end), "block"),
                *self._result(),
            ]
        )

    def _row(self, lane: tirx.Expr) -> tirx.Expr:
        """Returns the index of the query of a lane, clamped to the last query."""
        row = self.begin + lane
        return tirx.min(row, expression(self.problem.queries - 1)) if self.clamped else row

    def _each(self, buffer: tirx.Var, value: tirx.Expr | Callable[[tirx.Expr], tirx.Expr]) -> Iterator[tirx.Stmt]:
        """Stores a value to each vector of a buffer with one element per query; a function is given its position."""
        for vector in range(self.vectors):
            position = lanes_at(vector * self.lanes, self.lanes)
            yield tirx.BufferStore(buffer, value(position) if callable(value) else value, [position])

    def _start(self) -> Iterator[tirx.Stmt]:
        zero, minimum = (spread(tirx.const(x, "float32"), self.lanes) for x in (0, -float("inf")))
        yield from self._each(self.highest, minimum)
        yield from self._each(self.total, zero)
        if self.problem.chosen:
            yield from self._each(self.chosen, zero)
        rows = int(self.sums.shape[0]) // self.lanes
        yield loop(
            rows,
            lambda n: [tirx.BufferStore(self.sums, zero, [lanes_at(n * int64(self.lanes), self.lanes)])],
            "n",
        )

    def _transposed_queries(self) -> Iterator[tirx.Stmt]:
        """Transposes square blocks in registers, and the tail of the queries' length element by element."""
        problem, lanes = self.problem, self.lanes
        whole = problem.size // lanes if lanes > 1 else 0

        def read(row: tirx.Expr, position: tirx.Expr) -> tirx.Expr:
            return problem.query(self.loads, self.batch, self._row(row), position)

        def square(vector: tirx.Expr, n: tirx.Expr) -> Iterator[tirx.Stmt]:
            square = local("square", lanes * lanes)
            yield AllocBuffer(square)
            yield unrolled(
                lanes,
                lambda row: self._lanes(
                    lambda lane: tirx.BufferStore(
                        square, read(vector * lanes + row, n * lanes + lane), [row * lanes + lane]
                    )
                ),
            )
            yield from transposed(square, lanes)

            def store(row: tirx.Expr) -> tirx.Stmt:
                at = self._position(n * lanes + row, vector)
                return tirx.BufferStore(self.queries, square[lanes_at(row * lanes, lanes)], [at])

            yield unrolled(lanes, store)

        def column(e: tirx.Expr) -> Iterator[tirx.Stmt]:
            def one(lane: tirx.Expr) -> list[tirx.Stmt]:
                at = (e + whole * lanes) * self.across + lane
                return [tirx.BufferStore(self.queries, read(lane, e + whole * lanes), [at])]

            yield loop(self.across, one, "lane")

        if whole:
            yield loop(self.vectors, lambda vector: [loop(whole, lambda n: square(vector, n), "n")], "vector")
        if problem.size > whole * lanes:
            yield loop(problem.size - whole * lanes, column, "e")

    def _position(self, row: tirx.Expr, vector: tirx.Expr) -> tirx.Expr:
        """Returns a vector of a row of a buffer with one number a lane."""
        return lanes_at(row * self.across + vector * self.lanes, self.lanes)

    def _lanes(self, body: Callable[[tirx.Var], tirx.Stmt]) -> tirx.Stmt:
        return lane_loop(self.lanes, body)

    def _tile(self, rows: int, body: Callable[[tirx.Expr, tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
        """Returns a statement for each row and vector of a tile of registers."""
        return unrolled(rows, lambda row: unrolled(self.vectors, lambda vector: body(row, vector)))

    def _block(self, start: tirx.Expr, end: tirx.Expr) -> Iterator[tirx.Stmt]:
        """Updates the running max and sums with a block of keys."""
        count = tirx.min(int64(self.block), end - start)
        minimum = spread(tirx.const(-float("inf"), "float32"), self.lanes)
        whole, rows = count // int64(self.rows), int64(self.rows)
        yield from self._each(self.top, minimum)
        yield from self._conversion(self.problem.key, start, count, self.problem.size)
        yield loop(whole, lambda n: self._scores(start, n * rows, count, clamped=False), "rows")
        left = self._scores(start, whole * rows, count, clamped=True)
        yield tirx.IfThenElse(whole * rows < count, sequence(left), None)
        yield from self._normalized(start, count)
        yield from self._conversion(self.problem.value, start, count, self.problem.width)
        yield from self._weighted(start, count)

    def _conversion(self, datum: Datum, start: tirx.Expr, count: tirx.Expr, size: int) -> Iterator[tirx.Stmt]:
        """Converts the keys or values of a block for all queries of the tile, if they are not stored as float32."""
        whole = size // self.lanes * self.lanes

        def stored(key: tirx.Expr, position: tirx.Expr) -> tirx.Stmt:
            number = datum(self.loads, self.batch, start + key, position)
            return tirx.BufferStore(self.converted, number, [key * int64(size) + position])

        def one(key: tirx.Expr) -> Iterator[tirx.Stmt]:
            def vector(n: tirx.Expr) -> list[tirx.Stmt]:
                return [self._lanes(lambda lane: stored(key, n * int64(self.lanes) + lane))]

            if whole:
                yield loop(whole // self.lanes, vector, "n")
            if size > whole:
                yield loop(size - whole, lambda e: [stored(key, e + int64(whole))], "e")

        if self.problem.is_converted:
            yield loop(count, one, "key")

    def _scores(self, start: tirx.Expr, first: tirx.Expr, count: tirx.Expr, clamped: bool) -> Iterator[tirx.Stmt]:
        """Computes the scores of keys of a block, from `first` on; `clamped` reads the last key for those beyond it."""
        problem, lanes = self.problem, self.lanes
        products = local("products", self.rows * self.across)
        last = expression(problem.keys - 1)

        def key(row: tirx.Expr) -> tirx.Expr:
            position = start + first + row
            return tirx.min(position, last) if clamped else position

        def cleared(row: tirx.Expr, vector: tirx.Expr) -> tirx.Stmt:
            return tirx.BufferStore(products, spread(tirx.const(0, "float32"), lanes), [self._position(row, vector)])

        def multiplied(e: tirx.Expr) -> tirx.Stmt:
            def one(row: tirx.Expr, vector: tirx.Expr) -> tirx.Stmt:
                if problem.is_converted:
                    own = tirx.min(first + row, count - int64(1)) if clamped else first + row
                    found = self.converted[own * int64(problem.size) + e]
                else:
                    found = problem.key(self.loads, self.batch, key(row), e)
                number = spread(found, lanes)
                position = self._position(row, vector)
                return tirx.BufferStore(
                    products, products[position] + number * self.queries[self._position(e, vector)], [position]
                )

            return self._tile(self.rows, one)

        def scored(row: tirx.Expr, vector: tirx.Expr) -> tirx.Stmt:
            def one(lane: tirx.Expr) -> tirx.Stmt:
                at = row * self.across + vector * lanes + lane
                query = self._row(vector * lanes + lane)
                score = problem.score(self.loads, self.batch, query, key(row), products[at])
                return tirx.BufferStore(products, score, [at])

            return self._lanes(one)

        def stored(row: tirx.Expr, vector: tirx.Expr) -> tirx.Stmt:
            made = products[self._position(row, vector)]
            return tirx.BufferStore(self.powers, made, [self._position(first + row, vector)])

        def compared(row: tirx.Expr, vector: tirx.Expr) -> tirx.Stmt:
            """Store the running maximum. In this order of operands `Max` may lose a NaN, which is allowed here."""
            top = lanes_at(vector * lanes, lanes)
            return tirx.BufferStore(self.top, tirx.Max(products[self._position(row, vector)], self.top[top]), [top])

        yield AllocBuffer(products)
        yield self._tile(self.rows, cleared)
        yield loop(problem.size, lambda e: [multiplied(e)], "e")
        yield from (self._tile(self.rows, step) for step in (scored, stored, compared))

    def _normalized(self, start: tirx.Expr, count: tirx.Expr) -> Iterator[tirx.Stmt]:
        """Powers of the scores of a block, what the sums so far are multiplied with, and weights in place of
        powers."""
        lanes = self.lanes
        lowest = spread(tirx.const(LOWEST, "float32"), lanes)

        def rescaled(position: tirx.Expr) -> tirx.Expr:
            return exp_of_negative(self.highest[position] - self.top[position])

        yield from self._each(
            self.top, lambda position: tirx.Max(tirx.Max(self.top[position], self.highest[position]), lowest)
        )
        yield from self._each(self.rescaled, rescaled)
        yield from self._each(self.highest, lambda position: self.top[position])
        yield from self._each(self.total, lambda position: self.total[position] * self.rescaled[position])

        def powers(key: tirx.Expr) -> Iterator[tirx.Stmt]:
            for vector in range(self.vectors):
                own = lanes_at(vector * lanes, lanes)
                there = lanes_at(key * int64(self.across) + int64(vector * lanes), lanes)
                power = exp_of_negative(self.powers[there] - self.highest[own])
                yield tirx.BufferStore(self.powers, power, [there])
                yield tirx.BufferStore(self.total, self.total[own] + self.powers[there], [own])
                if self.problem.weight:
                    yield self._lanes(partial(self._weight, start, key, vector))

        yield loop(count, powers, "key")

    def _weight(self, start: tirx.Expr, key: tirx.Expr, vector: int, lane: tirx.Expr) -> tirx.Stmt:
        """Replaces the exponential of a score by the weight of the key's value."""
        lane = vector * self.lanes + lane
        problem, at = self.problem, key * int64(self.across) + lane
        where = self.loads, self.batch, self._row(lane), start + key
        assert problem.weight is not None
        made = tirx.BufferStore(self.powers, problem.weight(*where, self.powers[at]), [at])
        if problem.chosen is None:
            return made
        chosen = tirx.Max(self.chosen[lane], problem.chosen(*where))
        return tirx.SeqStmt([made, tirx.BufferStore(self.chosen, chosen, [lane])])

    def _weighted(self, start: tirx.Expr, count: tirx.Expr) -> Iterator[tirx.Stmt]:
        """Adds the values of a block, weighted by the exponentials of its scores, to the sums."""
        whole = self.problem.width // self.rows
        if whole:
            yield loop(whole, lambda n: self._weighted_rows(start, count, n * int64(self.rows), self.rows), "rows")
        if self.problem.width % self.rows:
            yield from self._weighted_rows(start, count, int64(whole * self.rows), self.problem.width % self.rows)

    def _weighted_rows(self, start: tirx.Expr, count: tirx.Expr, first: tirx.Expr, rows: int) -> Iterator[tirx.Stmt]:
        own = local("own", rows * self.across)

        def rescaled(row: tirx.Expr, vector: tirx.Expr) -> tirx.Stmt:
            factor = self.rescaled[lanes_at(vector * self.lanes, self.lanes)]
            value = self.sums[self._position(first + row, vector)] * factor
            return tirx.BufferStore(own, value, [self._position(row, vector)])

        def multiplied(key: tirx.Expr) -> tirx.Stmt:
            def one(row: tirx.Expr, vector: tirx.Expr) -> tirx.Stmt:
                if self.problem.is_converted:
                    value = self.converted[key * int64(self.problem.width) + first + row]
                else:
                    value = self.problem.value(self.loads, self.batch, start + key, first + row)
                position = self._position(row, vector)
                product = spread(value, self.lanes) * self.powers[self._position(key, vector)]
                return tirx.BufferStore(own, own[position] + product, [position])

            return self._tile(rows, one)

        def stored(row: tirx.Expr, vector: tirx.Expr) -> tirx.Stmt:
            return tirx.BufferStore(self.sums, own[self._position(row, vector)], [self._position(first + row, vector)])

        yield AllocBuffer(own)
        yield self._tile(rows, rescaled)
        yield loop(count, lambda key: [multiplied(key)], "key")
        yield self._tile(rows, stored)

    def _result(self) -> Iterator[tirx.Stmt]:
        """Divides the weighted sums by the sum of the exponentials, and stores them transposed."""
        problem, lanes = self.problem, self.lanes
        shares = local("shares", self.across)
        zero = spread(tirx.const(0, "float32"), lanes)

        def share(position: tirx.Expr) -> tirx.Expr:
            made = problem.share(self.total[position], lanes)
            return tirx.Select(self.chosen[position] == zero, zero, made) if problem.chosen else made

        yield AllocBuffer(shares)
        yield from self._each(shares, share)

        def square(vector: tirx.Expr, n: tirx.Expr, tail: int) -> Iterator[tirx.Stmt]:
            made = local("square", lanes * lanes)

            def load(row: tirx.Expr) -> tirx.Stmt:
                share = shares[lanes_at(vector * lanes, lanes)]
                value = self.sums[self._position(n * lanes + row, vector)] * share
                value = tirx.Select(share > zero, value, zero) if problem.defined else value
                return tirx.BufferStore(made, value, [lanes_at(row * lanes, lanes)])

            def store(row: tirx.Expr) -> tirx.Stmt:
                def one(lane: tirx.Expr) -> tirx.Stmt:
                    index = problem.result(self.batch, self._row(vector * lanes + row), n * lanes + lane)
                    return tirx.BufferStore(self.target, made[row * lanes + lane], list(index))

                return loop(tail, lambda lane: [one(lane)], "lane") if tail else self._lanes(one)

            yield AllocBuffer(made)
            yield unrolled(lanes, load)
            yield from transposed(made, lanes)
            yield unrolled(lanes, store)

        whole, tail = divmod(problem.width, lanes)
        if whole:
            yield loop(self.vectors, lambda vector: [loop(whole, lambda n: square(vector, n, 0), "n")], "vector")
        if tail:
            yield loop(self.vectors, lambda vector: square(vector, int64(whole), tail), "vector")
