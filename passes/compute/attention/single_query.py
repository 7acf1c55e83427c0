"""Computes attention of a single query (decoding): reads each key and value once for all query heads that share it.

    for batch element, group of heads in parallel:
        for block of keys:
            for some keys, as many as lanes:  S[head, keys] = score(sums of Q · K along both)
            highest, powers and their sums as in `attention.py`, of one number for each head
            O[head, V] = O · rescaled + P[head, key] · V[key]          # vectors of values
        result = O / total

Vectors lie along keys and values, as memory does, and the time goes into reading it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from tvm import tirx
from tvm.tirx.stmt import AllocBuffer

from nnefc.passes.compute.attention.problem import LOWEST, Attended, AttentionTiles, Index, Loads, keys_seen
from nnefc.passes.compute.loops import lane_loop, lanes_at, local, loop, over_lanes, spread, summed_rows, unrolled
from nnefc.passes.compute.vector_math import exp_of_negative
from nnefc.passes.tir.common.expressions import int64
from nnefc.symbolic.dims import expression

__all__ = ["one_query"]

_BLOCK = 128


def one_query(
    problem: Attended,
    tiles: AttentionTiles,
    loads: Loads,
    target: tirx.Var,
    batch: Index,
) -> tirx.Stmt:
    """Returns the statements of `tiles.heads` heads, which share keys and values; the first of them is at `batch`."""
    return _Heads(problem, tiles, loads, target, batch).statement()


class _Heads:
    def __init__(
        self,
        problem: Attended,
        tiles: AttentionTiles,
        loads: Loads,
        target: tirx.Var,
        batch: Index,
    ) -> None:
        self.problem, self.loads, self.target, self.batch = problem, loads, target, batch
        self.lanes, self.heads = tiles.lanes, tiles.heads
        self.vectors, self.wide = problem.size // self.lanes, problem.width // self.lanes
        self.queries = local("queries", self.heads * problem.size)
        self.sums = local("sums", self.heads * problem.width)
        self.powers = local("powers", self.heads * _BLOCK)
        self.highest, self.top, self.total, self.rescaled, self.chosen = (
            local(name, self.heads * self.lanes) for name in ("highest", "top", "total", "rescaled", "chosen")
        )

    def statement(self) -> tirx.Stmt:
        """Returns all keys, block by block."""
        first, end = keys_seen(self.problem, self.loads, self.batch, int64(0), int64(0))
        blocks = (end - first + int64(_BLOCK - 1)) // int64(_BLOCK)
        buffers = [self.queries, self.sums, self.powers, self.highest, self.top, self.total, self.rescaled]
        buffers += [self.chosen] if self.problem.chosen else []
        return tirx.SeqStmt(
            [
                *map(AllocBuffer, buffers),
                *self._start(),
                loop(blocks, lambda block: self._block(first + block * int64(_BLOCK), end), "block"),
                *self._result(),
            ]
        )

    def _of_head(self, head: tirx.Expr) -> list[tirx.Expr]:
        """Returns the batch index of a head."""
        return [*self.batch[:-1], self.batch[-1] + head] if self.batch else []

    def _own(self, head: tirx.Expr) -> tirx.Expr:
        """Returns the vector of a head in a buffer of one vector each."""
        return lanes_at(head * self.lanes, self.lanes)

    def _each(self, body: Callable[[tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
        return unrolled(self.heads, body)

    def _start(self) -> Iterator[tirx.Stmt]:
        problem, lanes = self.problem, self.lanes
        zero, minimum = (spread(tirx.const(x, "float32"), lanes) for x in (0, -float("inf")))

        def read(head: tirx.Expr, position: tirx.Expr) -> list[tirx.Stmt]:
            value = problem.query(self.loads, self._of_head(head), int64(0), position)
            return [tirx.BufferStore(self.queries, value, [head * problem.size + position])]

        for head in range(self.heads):
            yield loop(problem.size, partial(read, int64(head)), "e")
        yield loop(self.heads * self.wide, lambda n: [tirx.BufferStore(self.sums, zero, [self._own(n)])], "n")
        yield self._each(lambda head: tirx.BufferStore(self.highest, minimum, [self._own(head)]))
        yield self._each(lambda head: tirx.BufferStore(self.total, zero, [self._own(head)]))
        if self.problem.chosen:
            yield self._each(lambda head: tirx.BufferStore(self.chosen, zero, [self._own(head)]))

    def _block(self, start: tirx.Expr, end: tirx.Expr) -> Iterator[tirx.Stmt]:
        lanes = self.lanes
        count = tirx.min(int64(_BLOCK), end - start)
        whole = (count + int64(lanes - 1)) // int64(lanes)
        minimum = spread(tirx.const(-float("inf"), "float32"), lanes)
        yield self._each(lambda head: tirx.BufferStore(self.top, minimum, [self._own(head)]))
        yield loop(whole, lambda n: self._scores(start, n * int64(lanes), end), "some")
        for head in range(self.heads):
            yield from self._highest(int64(head))
        yield loop(whole, lambda n: [self._each(lambda head: self._power(head, n))], "some")
        if self.problem.weight:
            yield loop(count, lambda key: [self._each(lambda head: self._weight(head, start, key))], "key")
        yield from self._weighted(start, count)

    def _scores(self, start: tirx.Expr, first: tirx.Expr, end: tirx.Expr) -> Iterator[tirx.Stmt]:
        """Scores of as many keys as there are lanes; minus infinity beyond the end."""
        problem, lanes = self.problem, self.lanes
        for head in range(self.heads):
            square, number = local("square", lanes * lanes), int64(head)
            yield AllocBuffer(square)
            yield from self._products(square, number, start + first)
            yield from summed_rows(square, lanes)

            def scored(lane: tirx.Expr, number: tirx.Expr = number, square: tirx.Var = square) -> tirx.Stmt:
                key = start + first + lane
                last = tirx.min(key, expression(problem.keys - 1))
                score = problem.score(self.loads, self._of_head(number), int64(0), last, square[lane])
                seen = tirx.Select(key < end, score, tirx.const(-float("inf"), "float32"))
                return tirx.BufferStore(square, seen, [lane])

            yield lane_loop(lanes, scored)
            made = square[lanes_at(0, lanes)]
            yield tirx.BufferStore(self.powers, made, [lanes_at(number * _BLOCK + first, lanes)])
            top = self._own(number)
            yield tirx.BufferStore(self.top, tirx.Max(made, self.top[top]), [top])

    def _products(self, square: tirx.Var, head: tirx.Expr, first: tirx.Expr) -> Iterator[tirx.Stmt]:
        """Products of a query and keys, a row for each key, not yet summed up over the lanes."""
        problem, lanes = self.problem, self.lanes
        zero = spread(tirx.const(0, "float32"), lanes)
        yield unrolled(lanes, lambda row: tirx.BufferStore(square, zero, [lanes_at(row * lanes, lanes)]))

        def part(n: tirx.Expr) -> list[tirx.Stmt]:
            def one(row: tirx.Expr) -> tirx.Stmt:
                key = tirx.min(first + row, expression(problem.keys - 1))

                def multiplied(lane: tirx.Expr) -> tirx.Stmt:
                    position = n * lanes + lane
                    number = problem.key(self.loads, self._of_head(int64(0)), key, position)
                    own = self.queries[head * problem.size + position]
                    return tirx.BufferStore(square, square[row * lanes + lane] + number * own, [row * lanes + lane])

                return lane_loop(lanes, multiplied)

            return [unrolled(lanes, one)]

        yield loop(self.vectors, part, "n")

    def _highest(self, head: tirx.Expr) -> Iterator[tirx.Stmt]:
        """Updates the running maximum of a head, in all lanes, and the factor that rescales its sums."""
        own, all_lanes = self._own(head), local("lanes", self.lanes)
        lowest = spread(tirx.const(LOWEST, "float32"), self.lanes)
        yield AllocBuffer(all_lanes)
        yield from over_lanes(tirx.Max(self.top[own], self.highest[own]), tirx.Max, all_lanes)
        made = tirx.Max(all_lanes[lanes_at(0, self.lanes)], lowest)
        yield tirx.BufferStore(self.top, made, [own])
        yield tirx.BufferStore(self.rescaled, exp_of_negative(self.highest[own] - self.top[own]), [own])
        yield tirx.BufferStore(self.highest, self.top[own], [own])
        yield tirx.BufferStore(self.total, self.total[own] * self.rescaled[own], [own])

    def _power(self, head: tirx.Expr, n: tirx.Expr) -> tirx.Stmt:
        there, own = lanes_at(head * _BLOCK + n * int64(self.lanes), self.lanes), self._own(head)
        power = exp_of_negative(self.powers[there] - self.highest[own])
        return tirx.SeqStmt(
            [
                tirx.BufferStore(self.powers, power, [there]),
                tirx.BufferStore(self.total, self.total[own] + self.powers[there], [own]),
            ]
        )

    def _weight(self, head: tirx.Expr, start: tirx.Expr, key: tirx.Expr) -> tirx.Stmt:
        """Replaces the exponential of a score by the weight of the key's value."""
        problem, at, own = self.problem, head * _BLOCK + key, head * self.lanes
        where = self.loads, self._of_head(head), int64(0), start + key
        assert problem.weight is not None
        made = tirx.BufferStore(self.powers, problem.weight(*where, self.powers[at]), [at])
        if problem.chosen is None:
            return made
        chosen = tirx.Max(self.chosen[own], problem.chosen(*where))
        return tirx.SeqStmt([made, tirx.BufferStore(self.chosen, chosen, [own])])

    def _weighted(self, start: tirx.Expr, count: tirx.Expr) -> Iterator[tirx.Stmt]:
        """Adds the values of a block, weighted by the exponentials, to the sums: up to four vectors at a time."""
        at_once = next(n for n in (4, 2, 1) if self.wide % n == 0)
        lanes, made = self.lanes, local("made", self.heads * at_once * self.lanes)

        def position(head: tirx.Expr, vector: tirx.Expr) -> tirx.Expr:
            return lanes_at((head * at_once + vector) * lanes, lanes)

        def each(body: Callable[[tirx.Expr, tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
            return self._each(lambda head: unrolled(at_once, lambda vector: body(head, vector)))

        def some(n: tirx.Expr) -> Iterator[tirx.Stmt]:
            def there(head: tirx.Expr, vector: tirx.Expr) -> tirx.Expr:
                return lanes_at(head * self.problem.width + (n * at_once + vector) * lanes, lanes)

            def rescaled(head: tirx.Expr, vector: tirx.Expr) -> tirx.Stmt:
                value = self.sums[there(head, vector)] * self.rescaled[self._own(head)]
                return tirx.BufferStore(made, value, [position(head, vector)])

            def added(key: tirx.Expr) -> list[tirx.Stmt]:
                def one(head: tirx.Expr, vector: tirx.Expr) -> tirx.Stmt:
                    def of_lane(lane: tirx.Expr) -> tirx.Stmt:
                        at = (n * at_once + vector) * lanes + lane
                        value = self.problem.value(self.loads, self._of_head(int64(0)), start + key, at)
                        own = (head * at_once + vector) * lanes + lane
                        power = self.powers[head * _BLOCK + key]
                        return tirx.BufferStore(made, made[own] + value * power, [own])

                    return lane_loop(lanes, of_lane)

                return [each(one)]

            def stored(head: tirx.Expr, vector: tirx.Expr) -> tirx.Stmt:
                return tirx.BufferStore(self.sums, made[position(head, vector)], [there(head, vector)])

            yield AllocBuffer(made)
            yield each(rescaled)
            yield loop(count, added, "key")
            yield each(stored)

        yield loop(self.wide // at_once, some, "n")

    def _result(self) -> Iterator[tirx.Stmt]:
        """Divides the weighted sums by the sum of the exponentials."""
        problem, lanes, zero = self.problem, self.lanes, tirx.const(0, "float32")
        for head in range(self.heads):
            number = int64(head)
            own, total = self._own(number), local("lanes", lanes)
            yield AllocBuffer(total)
            yield from over_lanes(self.total[own], lambda a, b: a + b, total)
            whole = total[lanes_at(0, lanes)]
            share = problem.share(whole, lanes)
            if problem.chosen:
                some = spread(self.chosen[number * lanes], lanes) > spread(zero, lanes)
                share = tirx.Select(some, share, spread(zero, lanes))
            yield tirx.BufferStore(self.rescaled, share, [own])

            def write(position: tirx.Expr, number: tirx.Expr = number) -> list[tirx.Stmt]:
                index, share = problem.result(self._of_head(number), int64(0), position), self.rescaled[number * lanes]
                value = self.sums[number * problem.width + position] * share
                value = tirx.Select(share > zero, value, zero) if problem.defined else value
                return [tirx.BufferStore(self.target, value, list(index))]

            yield loop(problem.width, write, "v")
