"""Schedules attention of a single query (decoding), which is bound by reading each key and value once.

    for batch element, group of heads that share keys, slice of the keys in blockIdx.x:
        for keys of the slice, some for each team of threads:          # a team reads a key at once, 16 bytes a thread
            product of each head = sum of Q · K, over the team by shuffles
            highest, powers and sums of values of each head            # each team's own
        the same of all teams                                          # by shuffles, and through shared memory
        result = sums / total, or what the last block of the group makes the result of

Slices of the keys give a device enough blocks where there are few heads (Dao et al., "Flash-Decoding", 2023). Where the
number of groups is dynamic, a second launch joins them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from tvm import s_tir, tirx

from nnefc.ir.gpu_operators import exchanged, maximum
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.attention.analysis import Attention, attention_of, simplified
from nnefc.passes.schedule.gpu.attention.fragments import HIDDEN, LOWEST, power_of
from nnefc.passes.schedule.gpu.attention.join_parts import JoinedParts, join_slices, part_length
from nnefc.passes.schedule.gpu.last_block import if_last
from nnefc.passes.schedule.gpu.nest import (
    Nest,
    buffer,
    kernel_schedule,
    load,
    sequence,
    store,
    synchronize,
)
from nnefc.passes.schedule.schedules import largest_divisor
from nnefc.passes.tir.common.expressions import number, substituted
from nnefc.passes.tir.common.shapes import Size
from nnefc.passes.tir.gpu.narrow_indices import MAX_ELEMENTS
from nnefc.symbolic.dims import bounds, is_known, size_hint
from nnefc.targets.machine.gpu.description import LOAD_BYTES, WARP, Gpu
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["SingleQueryRule"]

_WARPS = 4  # of a block
_AT_ONCE = 4  # keys of a team that are on their way together
_MAX_HEADS = 8  # of a block, whose sums stay in registers
_MAX_REGISTERS = 192
_MIN_KEYS_OF_SLICE = 128
_BLOCKS_OF_PROCESSOR = 2  # that keep it busy


class SingleQueryRule:
    """An attention of one query for each head."""

    def apply(self, kernel: KernelAnalysis, target: GpuTarget) -> s_tir.Schedule | None:
        attention = attention_of(kernel, target)
        if attention is None or attention.queries != 1:
            return None
        launch = _SingleQuery(attention, target.gpu)
        return launch.schedule() if launch.registers <= _MAX_REGISTERS else None


class _SingleQuery:
    """The launches."""

    def __init__(self, attention: Attention, gpu: Gpu) -> None:
        self._attention = attention
        self._keys, self._values = attention.right.stored, attention.values.stored
        self._lanes = min(matrix.lanes(attention.aligned, LOAD_BYTES // 2) for matrix in (self._keys, self._values))
        longest = max(attention.size, attention.width) // self._lanes
        self._team = min(WARP, 1 << max(0, longest - 1).bit_length())
        self._chunks = [-(-matrix.columns // (self._lanes * self._team)) for matrix in (self._keys, self._values)]
        self._at_once = _AT_ONCE if max(self._chunks) * self._lanes <= 8 else 1
        self._teams = WARP * _WARPS // self._team
        shared = attention.heads_sharing()
        self._heads = largest_divisor(shared, max(1, min(_MAX_HEADS, _MAX_REGISTERS // 2 // self._of_head)))
        self._groups = attention.elements // self._heads
        self._slices = self._choose_slices(gpu)
        self._length = part_length(attention)
        self._nest = Nest(attention.aligned)

    @property
    def _of_head(self) -> int:
        """Registers of a head: its query, its sums of values, and its scores."""
        return sum(self._chunks) * self._lanes + self._at_once + 4

    @property
    def registers(self) -> int:
        """Estimates the registers of one thread."""
        return self._heads * self._of_head + self._at_once * sum(self._chunks) * self._lanes

    def _choose_slices(self, gpu: Gpu) -> int:
        blocks = _BLOCKS_OF_PROCESSOR * gpu.processors
        wanted = blocks // max(1, size_hint(self._groups))
        slices = max(1, min(wanted, size_hint(self._attention.keys) // _MIN_KEYS_OF_SLICE))
        upper = bounds(self._attention.elements)[1] * slices * part_length(self._attention)
        return slices if upper <= MAX_ELEMENTS else 1

    def schedule(self) -> s_tir.Schedule:
        """Returns one launch, or one and another that joins slices where the number of groups is dynamic."""
        attention = self._attention
        if self._slices == 1:
            return kernel_schedule(attention.func, attention.params, [self._launch(None)])
        size: Size = self._slices * attention.elements * self._length
        parts = buffer("slices", size, "float32")
        if is_known(self._groups):
            arrived = buffer("arrived", self._groups, "uint32")
            return kernel_schedule(attention.func, attention.params, [self._launch(parts, arrived)], [parts], arrived)
        launches = [self._launch(parts), join_slices(attention, parts, self._slices)]
        return kernel_schedule(attention.func, attention.params, launches, [parts])

    def _launch(self, parts: tirx.Var | None, arrived: tirx.Var | None = None) -> tirx.Stmt:
        nest, heads = self._nest, self._heads
        self._query = nest.buffer("query", heads * self._chunks[0] * self._lanes, "float32", "local")
        self._sums = nest.buffer("sums", heads * self._chunks[1] * self._lanes, "float32", "local")
        self._highest, self._totals, self._chosen = (
            nest.buffer(name, heads, "float32", "local") for name in ("highest", "totals", "chosen")
        )
        self._before = nest.buffer("before", 1, "float32", "local")
        self._scores = nest.buffer("scores", self._at_once, "float32", "local")
        self._parts = [
            nest.buffer(f"{name}_part", self._at_once * chunks * self._lanes, matrix.dtype, "local")
            for name, chunks, matrix in zip(("key", "value"), self._chunks, (self._keys, self._values), strict=True)
        ]
        self._shared = nest.buffer("warps", _WARPS * heads * self._length, "float32", "shared")
        return nest.launch(self._groups * self._slices, WARP * _WARPS, partial(self._block, parts, arrived))

    def _block(
        self, parts: tirx.Var | None, arrived: tirx.Var | None, block: tirx.Expr, thread: tirx.Expr
    ) -> tirx.Stmt:
        nest, attention = self._nest, self._attention
        which, group = tirx.floormod(block, number(self._slices)), tirx.floordiv(block, number(self._slices))
        self._thread = thread
        self._lane = tirx.floormod(thread, number(self._team))
        self._first_head = group * number(self._heads)
        self._batch = attention.batch_at(self._first_head)
        begin, end = attention.keys_seen(nest, self._batch, number(0), number(0))
        step = self._teams * self._at_once
        steps = tirx.floordiv(end - begin + number(step * self._slices - 1), number(step * self._slices))
        first = nest.simplify(begin + which * steps * number(step))
        self._end = nest.simplify(tirx.min(end, first + steps * number(step)))
        return sequence(
            self._zeros(),
            nest.until(
                nest.simplify(steps), lambda index: self._step(nest.simplify(first + index * number(step))), "step"
            ),
            self._of_warp(),
            self._of_block(),
            self._finish(which, parts),
            None if parts is None or arrived is None else self._join(group, parts, arrived),
        )

    def _heads_each(self, body: Callable[[tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
        return self._nest.unrolled(self._heads, body, "head")

    def _of_value(self, head: tirx.Expr, chunk: tirx.Expr, lane: tirx.Expr) -> tirx.Expr:
        """Returns the index of a sum of values."""
        return (head * number(self._chunks[1]) + chunk) * number(self._lanes) + lane

    def _each_value(self, body: Callable[[tirx.Expr, tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
        """`body(chunk, lane)` for the values of a thread."""
        nest = self._nest
        return nest.unrolled(
            self._chunks[1], lambda chunk: nest.unrolled(self._lanes, lambda lane: body(chunk, lane), "lane"), "chunk"
        )

    def _column(self, chunk: tirx.Expr, lane: tirx.Expr) -> tirx.Expr:
        return (chunk * number(self._team) + self._lane) * number(self._lanes) + lane

    def _batch_of(self, head: tirx.Expr) -> dict[tirx.Var, tirx.Expr]:
        """Returns the batch axes of one of the heads."""
        if not self._attention.batch:
            return {}
        last = self._attention.batch[-1][0]
        return {**self._batch, last: self._nest.simplify(self._batch[last] + head)}

    def _zeros(self) -> tirx.Stmt:
        """Registers as they must be before the first key; the queries among them."""
        nest, attention, zero = self._nest, self._attention, tirx.const(0, "float32")

        def query(head: tirx.Expr) -> tirx.Stmt:
            def one(chunk: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
                column = self._column(chunk, lane)
                value = attention.left.at(nest, self._batch_of(head), number(0), column)
                value = self._where(column < number(attention.size), value)
                slot = (head * number(self._chunks[0]) + chunk) * number(self._lanes) + lane
                return store(self._query, value, slot)

            return nest.unrolled(
                self._chunks[0],
                lambda chunk: nest.unrolled(self._lanes, lambda lane: one(chunk, lane), "lane"),
                "chunk",
            )

        def head(of: tirx.Expr) -> tirx.Stmt:
            lowest = store(self._highest, tirx.const(LOWEST, "float32"), of)
            return sequence(lowest, store(self._totals, zero, of), store(self._chosen, zero, of))

        count = self._heads * self._chunks[1] * self._lanes
        return sequence(
            self._heads_each(query),
            self._heads_each(head),
            nest.unrolled(count, lambda i: store(self._sums, zero, i)),
        )

    def _where(self, condition: tirx.Expr, value: tirx.Expr) -> tirx.Expr:
        """Returns a value, or zero where a condition does not hold."""
        if self._nest.holds(condition):
            return value
        zero = tirx.const(0, str(value.expr_ty().dtype))
        return tirx.if_then_else(self._nest.simplify(condition), value, zero)

    def _step(self, start: tirx.Expr) -> tirx.Stmt:
        """Some keys of each team: teams next to each other have keys next to each other."""
        nest = self._nest
        team = tirx.floordiv(self._thread, number(self._team))

        def key(index: tirx.Expr) -> tirx.Expr:
            return nest.simplify(start + index * number(self._teams) + team)

        def fetch(index: tirx.Expr) -> tirx.Stmt:
            return sequence(*(self._fetch(side, index, key(index)) for side in (0, 1)))

        return sequence(
            nest.unrolled(self._at_once, fetch, "key"), self._heads_each(lambda head: self._of_keys(head, key))
        )

    def _fetch(self, side: int, index: tirx.Expr, key: tirx.Expr) -> tirx.Stmt:
        """Loads a thread's part of a key or a value; zeros beyond the last one."""
        nest, matrix = self._nest, (self._keys, self._values)[side]

        def chunk(which: tirx.Expr) -> tirx.Stmt:
            first = (index * number(self._chunks[side]) + which) * number(self._lanes)

            def one(lane: tirx.Expr) -> tirx.Stmt:
                value = matrix.at(nest, self._batch, key, self._column(which, lane))
                inside = [key < self._end]
                column = self._column(which, number(0))
                inside += [] if nest.holds(column < number(matrix.columns)) else [column < number(matrix.columns)]
                return store(self._parts[side], self._where(tirx.all(*inside), value), first + lane)

            return nest.lanes(self._lanes, one)

        return nest.unrolled(self._chunks[side], chunk, "chunk")

    def _of_keys(self, head: tirx.Expr, key: Callable[[tirx.Expr], tirx.Expr]) -> tirx.Stmt:
        """Adds some keys to the sums of a head."""
        nest, scores, highest, totals = self._nest, self._scores, self._highest, self._totals

        def compare(index: tirx.Expr) -> tirx.Stmt:
            return store(highest, maximum(load(highest, head), load(scores, index)), head)

        def add(index: tirx.Expr) -> tirx.Stmt:
            power = power_of(load(scores, index) - load(highest, head), self._attention.factor)
            return sequence(
                store(scores, power, index),
                store(totals, load(totals, head) + load(scores, index), head),
                self._weighted(head, index, key(index)),
                self._each_value(partial(self._added, head, index)),
            )

        return sequence(
            nest.unrolled(self._at_once, lambda index: self._score(head, index, key(index)), "key"),
            store(self._before, load(highest, head), number(0)),
            nest.unrolled(self._at_once, compare, "key"),
            self._rescaled(head, load(self._before, number(0))),
            nest.unrolled(self._at_once, add, "key"),
        )

    def _score(self, head: tirx.Expr, index: tirx.Expr, key: tirx.Expr) -> tirx.Stmt:
        """The score of a key: minus infinity beyond the last one."""
        nest, attention, scores = self._nest, self._attention, self._scores

        def product(chunk: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
            at = (index * number(self._chunks[0]) + chunk) * number(self._lanes) + lane
            own = load(self._query, (head * number(self._chunks[0]) + chunk) * number(self._lanes) + lane)
            element = load(self._parts[0], at)
            element = element if self._keys.dtype == "float32" else element.astype("float32")
            return store(scores, load(scores, index) + own * element, index)

        def exchange(step: tirx.Expr) -> tirx.Stmt:
            other = exchanged(load(scores, index), tirx.shift_left(number(1), step))
            return store(scores, load(scores, index) + other, index)

        axes = {**self._batch_of(head), attention.query: number(0), attention.key: key}
        score = substituted(simplified(nest, attention.score, axes), {attention.product: load(scores, index)})
        seen = tirx.if_then_else(key < self._end, score, tirx.const(HIDDEN, "float32"))
        return sequence(
            store(scores, tirx.const(0, "float32"), index),
            nest.unrolled(
                self._chunks[0],
                lambda chunk: nest.unrolled(self._lanes, lambda lane: product(chunk, lane), "lane"),
                "chunk",
            ),
            nest.unrolled(self._team.bit_length() - 1, exchange, "step"),
            store(scores, seen, index),
        )

    def _rescaled(self, head: tirx.Expr, before: tirx.Expr) -> tirx.Stmt:
        """Makes the sums of a head relative to its new largest score."""
        factor = load(self._before, number(0))

        def scale(chunk: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
            slot = self._of_value(head, chunk, lane)
            return store(self._sums, load(self._sums, slot) * factor, slot)

        return sequence(
            store(self._before, power_of(before - load(self._highest, head), self._attention.factor), number(0)),
            store(self._totals, load(self._totals, head) * factor, head),
            self._each_value(scale),
        )

    def _weighted(self, head: tirx.Expr, index: tirx.Expr, key: tirx.Expr) -> tirx.Stmt | None:
        """The factor of the values in place of the power, where that is another one."""
        nest, attention, scores = self._nest, self._attention, self._scores
        if attention.weight.same_as(attention.power):
            return None
        axes = {**self._batch_of(head), attention.query: number(0), attention.key: key}
        weight = substituted(simplified(nest, attention.weight, axes), {attention.power: load(scores, index)})
        made = store(scores, self._where(key < self._end, weight), index)
        if attention.chosen is None:
            return made
        chosen = self._where(key < self._end, simplified(nest, attention.chosen, axes))
        return sequence(made, store(self._chosen, maximum(load(self._chosen, head), chosen), head))

    def _added(self, head: tirx.Expr, index: tirx.Expr, chunk: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
        at = (index * number(self._chunks[1]) + chunk) * number(self._lanes) + lane
        value = load(self._parts[1], at)
        value = value if self._values.dtype == "float32" else value.astype("float32")
        slot = self._of_value(head, chunk, lane)
        return store(self._sums, load(self._sums, slot) + load(self._scores, index) * value, slot)

    def _of_warp(self) -> tirx.Stmt | None:
        """Joins the teams of each warp, by shuffles."""
        nest = self._nest

        def join(head: tirx.Expr, step: tirx.Expr) -> tirx.Stmt:
            distance = tirx.shift_left(number(self._team), step)

            def add(buffer: tirx.Var, slot: tirx.Expr) -> tirx.Stmt:
                return store(buffer, load(buffer, slot) + exchanged(load(buffer, slot), distance), slot)

            def summed(chunk: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
                return add(self._sums, self._of_value(head, chunk, lane))

            highest, chosen = load(self._highest, head), load(self._chosen, head)
            return sequence(
                store(self._before, highest, number(0)),
                store(self._highest, maximum(highest, exchanged(highest, distance)), head),
                self._rescaled(head, load(self._before, number(0))),
                add(self._totals, head),
                self._each_value(summed),
                store(self._chosen, maximum(chosen, exchanged(chosen, distance)), head),
            )

        steps = (WARP // self._team).bit_length() - 1
        if not steps:
            return None
        return self._heads_each(lambda head: nest.unrolled(steps, partial(join, head), "step"))

    def _of_block(self) -> tirx.Stmt:
        """Puts what each warp has into shared memory."""
        width, zero = self._attention.width, number(0)
        warp, lane = tirx.floordiv(self._thread, number(WARP)), tirx.floormod(self._thread, number(WARP))

        def head(of: tirx.Expr) -> tirx.Stmt:
            first = (warp * number(self._heads) + of) * number(self._length)

            def value(chunk: tirx.Expr, position: tirx.Expr) -> tirx.Stmt:
                column = self._column(chunk, position)
                stmt = store(self._shared, load(self._sums, self._of_value(of, chunk, position)), first + column)
                known = self._nest.holds(column < number(width))
                return stmt if known else tirx.IfThenElse(column < number(width), stmt, None)

            buffers = (self._highest, self._totals, self._chosen)
            tail = [
                store(self._shared, load(buffer, of), first + number(width + position))
                for position, buffer in enumerate(buffers)
            ]
            return sequence(self._each_value(value), tirx.IfThenElse(lane.equal(zero), sequence(*tail), None))

        stmt = tirx.IfThenElse(lane < number(self._team), self._heads_each(head), None)
        return sequence(stmt, synchronize())

    def _finish(self, which: tirx.Expr, parts: tirx.Var | None) -> tirx.Stmt:
        """Joins the warps, and writes results, or what has yet to be joined with other slices."""
        nest, attention = self._nest, self._attention
        joined = JoinedParts(nest, attention)

        def one(head: tirx.Expr, column: tirx.Expr) -> tirx.Stmt:
            def element(warp: tirx.Expr, at: tirx.Expr) -> tirx.Expr:
                return load(
                    self._shared, nest.simplify((warp * number(self._heads) + head) * number(self._length) + at)
                )

            if parts is None:
                written = joined.written(self._batch_of(head), column)
            else:
                of_head = which * number(attention.elements) + self._first_head + head
                written = joined.kept(parts, nest.simplify(of_head * number(self._length)), column)
            return sequence(joined.statements(number(_WARPS), element, column), written)

        return self._each_result(one)

    def _join(self, group: tirx.Expr, parts: tirx.Var, arrived: tirx.Var) -> tirx.Stmt:
        """Returns what the last block of a group does: it joins the slices of the keys."""
        nest, attention = self._nest, self._attention
        joined = JoinedParts(nest, attention)

        def one(head: tirx.Expr, column: tirx.Expr) -> tirx.Stmt:
            def element(part: tirx.Expr, at: tirx.Expr) -> tirx.Expr:
                of_head = part * number(attention.elements) + self._first_head + head
                return load(parts, nest.simplify(of_head * number(self._length) + at))

            return sequence(
                joined.statements(number(self._slices), element, column), joined.written(self._batch_of(head), column)
            )

        return if_last(nest, arrived, group, self._slices, self._each_result(one))

    def _each_result(self, body: Callable[[tirx.Expr, tirx.Expr], tirx.Stmt]) -> tirx.Stmt:
        """`body(head, column)` for the results of a block, divided among its threads."""
        nest, threads = self._nest, WARP * _WARPS
        count, width = self._heads * self._attention.width, self._attention.width

        def one(turn: tirx.Expr) -> tirx.Stmt:
            index = nest.simplify(turn * number(threads) + self._thread)
            stmt = body(tirx.floordiv(index, number(width)), tirx.floormod(index, number(width)))
            return stmt if nest.holds(index < number(count)) else tirx.IfThenElse(index < number(count), stmt, None)

        return nest.unrolled(-(-count // threads), one, "turn")
