"""Builds the launch of an attention: a block of threads takes a tile of queries through all keys that these may see.

    for batch element, tile of queries in blockIdx.x:
        shared memory ← queries, and the first keys
        for tile of keys:
            begin to copy the tile's values
            scores = queries · keysᵀ                               # in registers
            highest, powers and their sums, of each query          # among the threads that share a query, by shuffles
            begin to copy the next keys, for all threads are done with these
            sums = sums · rescaled + powers · values               # in registers
        result = sums / total

The softmax follows the largest score so far (Milakov and Gimelshein, "Online normalizer calculation for softmax",
2018; Dao, "FlashAttention-2", 2023). Keys and values have a tile each in shared memory: one is on its way while the
other is multiplied. A launch whose products run while threads go on may take these steps in another order.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import partial

from tvm import s_tir, tirx
from tvm.ir.expr import TensorLoad

from nnefc.ir.gpu_operators import commit_copies, exchanged, maximum, wait_for_copies
from nnefc.passes.schedule.gpu.attention.analysis import Attention, Matrix, simplified
from nnefc.passes.schedule.gpu.attention.fragments import HIDDEN, LOWEST, Fragment, SharedTile, power_of
from nnefc.passes.schedule.gpu.attention.tiles import AttentionTile
from nnefc.passes.schedule.gpu.contractions.operand_fetch import begin_copy
from nnefc.passes.schedule.gpu.nest import Nest, kernel_schedule, load, sequence, store, synchronize
from nnefc.passes.tir.common.expressions import number, substituted
from nnefc.symbolic.dims import ceil_div
from nnefc.targets.machine.gpu.description import LOAD_BYTES
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["AttentionLaunch", "SerialLaunch"]


class AttentionLaunch(ABC):
    """The part that matrix units and multiply-adds share: tiles, bounds, the softmax, and the results.

    Args:
        element: the type in shared memory.
        strides: of rows of queries, keys and values in shared memory.
        further: elements of shared memory behind these.
        sharing: threads next to each other that share queries.
    """

    def __init__(
        self,
        attention: Attention,
        tile: AttentionTile,
        target: GpuTarget,
        element: str,
        strides: tuple[int, int, int],
        sharing: int,
        further: int = 0,
    ) -> None:
        self._attention, self._tile, self._target, self._element = attention, tile, target, element
        self._sharing = sharing
        self._nest = Nest(attention.aligned)
        self._queries = self._shared_tile(attention.left, tile.queries, tile.size, 0, strides[0])
        self._keys = self._shared_tile(attention.right, tile.keys, tile.size, self._queries.end, strides[1])
        self._values = self._shared_tile(attention.values, tile.keys, tile.width, self._keys.end, strides[2])
        self._shared = self._nest.buffer("tiles", self._values.end + further, element, "shared.dyn")
        self._scores, self._sums = self._fragments()
        rows = self._scores.rows
        self._highest, self._totals, self._rescaled = (
            self._nest.buffer(name, rows, "float32", "local") for name in ("highest", "totals", "rescaled")
        )
        self._chosen = self._nest.buffer("chosen", rows, "float32", "local") if attention.chosen is not None else None
        self._thread: tirx.Expr = number(0)

    def _shared_tile(self, matrix: Matrix, rows: int, columns: int, first: int, stride: int) -> SharedTile:
        """Copies past the registers what is stored in the type of the tile, 16 bytes at once, if devices can."""
        stored = matrix.stored
        matrix = stored if stored.dtype == self._element else matrix
        bits = 16 if self._element.endswith("16") else 32
        widest = LOAD_BYTES * 8 // bits
        lanes = matrix.lanes(self._attention.aligned, widest)
        is_loaded = isinstance(matrix.element, TensorLoad)
        is_same = is_loaded and matrix.dtype == self._element
        copied = is_same and lanes == widest and self._target.has_asynchronous_copies
        return SharedTile(matrix, rows, columns, first, stride, lanes if is_loaded else 1, copied, stages=1)

    # What the instructions determine.

    @abstractmethod
    def _fragments(self) -> tuple[Fragment, Fragment]:
        """Returns a thread's scores, and its sums of values; both of the same rows."""

    @abstractmethod
    def _row(self, row: tirx.Expr) -> tirx.Expr:
        """Returns the query of the tile that a row of a thread is."""

    @abstractmethod
    def _steps(self, first: tirx.Expr, count: tirx.Expr) -> tirx.Stmt:
        """Takes the queries through `count` tiles of keys from `first` on, the first of which is on its way."""

    # The loops.

    def schedule(self) -> s_tir.Schedule:
        """Returns the kernel."""
        attention, tile = self._attention, self._tile
        blocks = attention.elements * ceil_div(attention.queries, tile.queries)
        launch = self._nest.launch(blocks, tile.threads, self._block)
        return kernel_schedule(attention.func, attention.params, [launch])

    def _block(self, block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        nest, attention, tile = self._nest, self._attention, self._tile
        self._thread = thread
        tiles = ceil_div(attention.queries, tile.queries)
        which = tirx.floormod(block, number(tiles))
        if attention.ends:  # queries that see more keys first
            which = number(tiles) - number(1) - which
        self._batch = attention.batch_at(tirx.floordiv(block, number(tiles)))
        self._first_query = nest.simplify(which * number(tile.queries))
        end = number(attention.queries) - number(1)
        self._last_query = nest.simplify(tirx.min(self._first_query + number(tile.queries - 1), end))
        begin, self._end = attention.keys_seen(nest, self._batch, self._first_query, self._last_query)
        first = nest.simplify(tirx.floordiv(begin, number(tile.keys)) * number(tile.keys))
        count = nest.simplify(tirx.floordiv(self._end - first + number(tile.keys - 1), number(tile.keys)))
        return sequence(
            self._fetch(self._queries, self._first_query, number(attention.queries)),
            self._fetch(self._keys, first, self._end),
            self._zeros(),
            self._steps(first, count),
            self._results(),
        )

    def _zeros(self) -> tirx.Stmt:
        """Registers as they must be before the first tile."""
        nest, zero = self._nest, tirx.const(0, "float32")
        rows = [(self._highest, tirx.const(LOWEST, "float32")), (self._totals, zero), (self._rescaled, zero)]
        rows += [(self._chosen, zero)] if self._chosen is not None else []
        return sequence(
            nest.unrolled(self._sums.size, lambda i: store(self._sums.registers, zero, i)),
            nest.unrolled(self._scores.size, lambda i: store(self._scores.registers, zero, i)),
            *(nest.unrolled(self._scores.rows, partial(_stored, *each)) for each in rows),
        )

    # Shared memory.

    def _fetch(self, side: SharedTile, first: tirx.Expr, end: tirx.Expr, stage: tirx.Expr | None = None) -> tirx.Stmt:
        """Begins to copy rows from `first` on, those before `end`, to a stage, or the first; zeros for the others."""
        nest, groups = self._nest, side.columns // side.lanes
        base = number(side.first) + (number(0) if stage is None else stage * number(side.size))
        count = -(-side.rows * groups // self._tile.threads)

        def one(vector: tirx.Expr) -> tirx.Stmt:
            element = nest.simplify(vector * number(self._tile.threads) + self._thread)
            row, column = tirx.floordiv(element, number(groups)), tirx.floormod(element, number(groups)) * side.lanes
            present = element < number(side.rows * groups)
            limits = [first + row < end, column < number(side.matrix.columns)]
            limits = [nest.simplify(limit) for limit in limits if not nest.holds(limit)]
            inside = tirx.all(*limits) if limits else tirx.const(True, "bool")
            position = nest.simplify(base + side.at(row, column))
            stmt = self._put(side, position, first + row, column, inside)
            return stmt if nest.holds(present) else tirx.IfThenElse(nest.simplify(present), stmt, None)

        fetched = nest.unrolled(count, one, "vector")
        return sequence(fetched, commit_copies()) if side.copied else fetched

    def _wait(self) -> tirx.Stmt | None:
        """Waits for all copies of the thread, if any tile is copied: older devices have no instruction for it."""
        sides = (self._queries, self._keys, self._values)
        return wait_for_copies(0) if any(side.copied for side in sides) else None

    def _put(
        self, side: SharedTile, position: tirx.Expr, row: tirx.Expr, column: tirx.Expr, inside: tirx.Expr
    ) -> tirx.Stmt:
        nest, matrix = self._nest, side.matrix
        if side.copied:
            value = matrix.at(nest, self._batch, row, column)
            return begin_copy(nest, self._shared, position, value, inside, side.lanes)

        def lane(of: tirx.Expr) -> tirx.Stmt:
            value = matrix.at(nest, self._batch, row, column + of)
            zero = tirx.const(0, matrix.dtype)
            value = tirx.if_then_else(inside, value, zero)
            value = value if matrix.dtype == self._element else value.astype(self._element)
            return store(self._shared, value, position + of)

        return nest.lanes(side.lanes, lane)

    # The softmax.

    def _softmax(self, start: tirx.Expr) -> tirx.Stmt:
        """Computes the powers of the scores in place, relative to the largest of each query so far."""
        nest = self._nest
        attention, last_key = self._attention, start + number(self._tile.keys - 1)
        all_seen = attention.all_seen((self._first_query, self._last_query), (start, last_key))
        score, conditions = attention.score, [last_key < self._end]
        if all_seen is not None:
            score, conditions = attention.shown[0], [*conditions, substituted(all_seen, self._batch)]
        whole, part = self._scored(start, score), self._scored(start, attention.score, guarded=True)
        scored = tirx.IfThenElse(nest.simplify(tirx.all(*conditions)), whole, part)
        return sequence(scored, nest.unrolled(self._scores.rows, partial(self._powers, start), "row"))

    def _scored(self, start: tirx.Expr, score: tirx.Expr, guarded: bool = False) -> tirx.Stmt:
        """Computes scores of the products; where they are guarded, minus infinity beyond the last key."""
        nest, attention, scores = self._nest, self._attention, self._scores

        def one(row: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
            key = start + scores.column(group) + lane
            value = self._of(score, row, key, {attention.product: scores.at(row, group, lane)})
            if guarded:
                value = tirx.if_then_else(key < self._end, value, tirx.const(HIDDEN, "float32"))
            return scores.put(value, row, group, lane)

        return scores.each(nest, one)

    def _of(self, expr: tirx.Expr, row: tirx.Expr, key: tirx.Expr, values: dict[tirx.Var, tirx.Expr]) -> tirx.Expr:
        """Returns an expression of a query and a key; of the last query in rows beyond it."""
        attention, nest = self._attention, self._nest
        query = self._first_query + self._row(row)
        last = number(attention.queries) - number(1)
        query = query if nest.holds(query <= last) else tirx.min(query, last)
        axes = {**self._batch, attention.query: nest.simplify(query), attention.key: nest.simplify(key)}
        return substituted(simplified(nest, expr, axes), values)

    def _powers(self, start: tirx.Expr, row: tirx.Expr) -> tirx.Stmt:
        nest, scores, highest = self._nest, self._scores, self._highest
        before = load(self._rescaled, row)

        def compare(group: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
            return store(highest, maximum(load(highest, row), scores.at(row, group, lane)), row)

        def exchange(step: tirx.Expr) -> tirx.Stmt:
            other = exchanged(load(highest, row), tirx.shift_left(number(1), step))
            return store(highest, maximum(load(highest, row), other), row)

        def power(group: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
            made = power_of(scores.at(row, group, lane) - load(highest, row), self._attention.factor)
            return sequence(
                scores.put(made, row, group, lane),
                store(self._totals, load(self._totals, row) + scores.at(row, group, lane), row),
                self._weighted(start, row, group, lane),
            )

        return sequence(
            store(self._rescaled, load(highest, row), row),
            scores.each_of_row(nest, compare),
            nest.unrolled(self._sharing.bit_length() - 1, exchange, "step"),
            store(self._rescaled, power_of(before - load(highest, row), self._attention.factor), row),
            store(self._totals, load(self._totals, row) * load(self._rescaled, row), row),
            scores.each_of_row(nest, power),
        )

    def _rescale(self) -> tirx.Stmt:
        """Makes the sums relative to the largest score of each query so far, as :meth:`_softmax` has found it."""
        sums = self._sums

        def scaled(row: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
            return sums.put(sums.at(row, group, lane) * load(self._rescaled, row), row, group, lane)

        return sums.each(self._nest, scaled)

    def _weighted(self, start: tirx.Expr, row: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt | None:
        """Computes the factor of the values in place of the power, where that is another one."""
        attention, scores = self._attention, self._scores
        if attention.weight.same_as(attention.power):
            return None
        key, zero = start + scores.column(group) + lane, tirx.const(0, "float32")
        weight = self._of(attention.weight, row, key, {attention.power: scores.at(row, group, lane)})
        made = scores.put(tirx.if_then_else(key < self._end, weight, zero), row, group, lane)
        if attention.chosen is None or self._chosen is None:
            return made
        chosen = tirx.if_then_else(key < self._end, self._of(attention.chosen, row, key, {}), zero)
        return sequence(made, store(self._chosen, maximum(load(self._chosen, row), chosen), row))

    # The results.

    def _results(self) -> tirx.Stmt:
        """Adds up the powers of the threads that share a query, and writes the results."""
        nest = self._nest

        def joined(row: tirx.Expr) -> tirx.Stmt:
            def step(index: tirx.Expr) -> tirx.Stmt:
                distance = tirx.shift_left(number(1), index)
                total = load(self._totals, row)
                added = store(self._totals, total + exchanged(total, distance), row)
                if self._chosen is None:
                    return added
                chosen = load(self._chosen, row)
                return sequence(added, store(self._chosen, maximum(chosen, exchanged(chosen, distance)), row))

            return nest.unrolled(self._sharing.bit_length() - 1, step, "step")

        rows = self._sums.rows
        return sequence(nest.unrolled(rows, joined, "row"), nest.unrolled(rows, self._written, "row"))

    def _written(self, row: tirx.Expr) -> tirx.Stmt:
        nest, attention, sums = self._nest, self._attention, self._sums
        query = nest.simplify(self._first_query + self._row(row))

        def group(which: tirx.Expr) -> tirx.Stmt:
            def element(lane: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
                axes = {**self._batch, attention.query: query, attention.values.column: sums.column(which) + lane}
                position = simplified(nest, attention.position, axes)
                values = {attention.sum: sums.at(row, which, lane), attention.total: load(self._totals, row)}
                values |= {attention.choice: load(self._chosen, row)} if self._chosen is not None else {}
                return position, substituted(attention.result, values)

            def one(lane: tirx.Expr) -> tirx.Stmt:
                position, value = element(lane)
                return store(attention.output, value, position)

            lane = nest.variable("lane", sums.lanes)
            whole = attention.width % sums.lanes == 0 and nest.is_aligned(element(lane)[0], lane, sums.lanes)
            if whole and not _has_choice(attention.result):
                return self._if(sums.column(which) < number(attention.width), nest.lanes(sums.lanes, one))
            return nest.unrolled(
                sums.lanes, lambda lane: self._if(sums.column(which) + lane < number(attention.width), one(lane))
            )

        return self._if(query < number(attention.queries), nest.unrolled(sums.groups, group, "group"))

    def _if(self, condition: tirx.Expr, stmt: tirx.Stmt) -> tirx.Stmt:
        if self._nest.holds(condition):
            return stmt
        return tirx.IfThenElse(self._nest.simplify(condition), stmt, None)


class SerialLaunch(AttentionLaunch):
    """Multiplies a tile of keys, then one of values: one of them is on its way while the other is multiplied."""

    def _steps(self, first: tirx.Expr, count: tirx.Expr) -> tirx.Stmt:
        nest, tile = self._nest, self._tile

        def step(index: tirx.Expr) -> tirx.Stmt:
            start = nest.simplify(first + index * number(tile.keys))
            following = nest.simplify(start + number(tile.keys))
            more = index + number(1) < count
            return sequence(
                self._wait(),
                synchronize(),
                self._fetch(self._values, start, self._end),
                self._multiply_keys(),
                self._softmax(start),
                self._rescale(),
                self._publish(),
                self._wait(),
                synchronize(),
                tirx.IfThenElse(more, self._fetch(self._keys, following, self._end), None),
                self._multiply_values(),
            )

        return sequence(self._wait(), synchronize(), self._begin(), nest.until(count, step, "step"))

    @abstractmethod
    def _begin(self) -> tirx.Stmt | None:
        """Reads the queries once they are in shared memory."""

    @abstractmethod
    def _multiply_keys(self) -> tirx.Stmt:
        """Computes the products of all queries and keys of the tile."""

    @abstractmethod
    def _multiply_values(self) -> tirx.Stmt:
        """Adds the products of the powers and the values of the tile to the sums."""

    def _publish(self) -> tirx.Stmt | None:
        """Passes the powers on to the threads that multiply them with values."""
        return None


def _has_choice(result: tirx.Expr) -> bool:
    """Whether the result is chosen by conditions, which TVM does not compute in vectors here."""
    found = isinstance(result, tirx.Select)
    parts = [getattr(result, name) for name in ("a", "b", "value") if hasattr(result, name)]
    return found or any(_has_choice(part) for part in parts if isinstance(part, tirx.Expr))


def _stored(registers: tirx.Var, value: tirx.Expr, index: tirx.Expr) -> tirx.Stmt:
    return store(registers, value, index)
