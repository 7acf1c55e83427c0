"""Schedules attention as one launch: its scores stay in registers.

    scores = Q Kᵀ;  weights = softmax(mask(scores));  result = weights V          →          one launch

Queries, keys and values are multiplied by multiply-adds of float32. A single query has a rule of its own,
`single_query.py`, and a back end may have one for its matrix units.
"""

from __future__ import annotations

from tvm import s_tir, tirx

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.attention.analysis import Attention, attention_of
from nnefc.passes.schedule.gpu.attention.fragments import Fragment
from nnefc.passes.schedule.gpu.attention.launch import SerialLaunch
from nnefc.passes.schedule.gpu.attention.tiles import FmaTile, choose_tile, fma_tiles
from nnefc.passes.schedule.gpu.nest import load, sequence, store
from nnefc.passes.tir.common.expressions import number
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["AttentionRule"]


class AttentionRule:
    """An attention of any number of queries."""

    def apply(self, kernel: KernelAnalysis, target: GpuTarget) -> s_tir.Schedule | None:
        attention = attention_of(kernel, target)
        tile = None if attention is None else choose_tile(attention, fma_tiles(attention), target)
        return None if attention is None or tile is None else _FmaLaunch(attention, tile, target).schedule()


class _FmaLaunch(SerialLaunch):
    """Products by multiply-adds: eight threads share four queries, and the powers go through shared memory."""

    _tile: FmaTile

    def __init__(self, attention: Attention, tile: FmaTile, target: GpuTarget) -> None:
        self._distance = tile.threads // tile.columns  # from a thread's query to its next one
        stride = tile.stride(tile.size)
        self._powers_stride = tile.stride(tile.keys)
        further = tile.queries * self._powers_stride
        super().__init__(
            attention, tile, target, "float32", (stride, stride, tile.width), sharing=tile.columns, further=further
        )
        nest, rows = self._nest, tile.rows
        self._left = nest.buffer("left_part", 4 * rows, "float32", "local")
        self._right = nest.buffer("right_part", 4 * self._scores.groups, "float32", "local")
        self._value = nest.buffer("value_part", self._sums.groups * tile.lanes, "float32", "local")

    def _fragments(self) -> tuple[Fragment, Fragment]:
        return self._fragment("scores", self._tile.keys, 1), self._fragment("sums", self._tile.width, self._tile.lanes)

    def _fragment(self, name: str, columns: int, lanes: int) -> Fragment:
        tile = self._tile
        groups = columns // (tile.columns * lanes)

        def slot(row: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Expr:
            return (row * number(groups) + group) * number(lanes) + lane

        def column(group: tirx.Expr) -> tirx.Expr:
            return (group * number(tile.columns) + self._of_row()) * number(lanes)

        registers = self._nest.buffer(name, tile.rows * groups * lanes, "float32", "local")
        return Fragment(tile.rows, groups, lanes, column, slot, registers)

    def _of_row(self) -> tirx.Expr:
        """Returns the number of a thread among those that share queries."""
        return tirx.floormod(self._thread, number(self._tile.columns))

    def _row(self, row: tirx.Expr) -> tirx.Expr:
        return row * number(self._distance) + tirx.floordiv(self._thread, number(self._tile.columns))

    def _begin(self) -> tirx.Stmt | None:
        return None

    def _vectors(self, into: tirx.Var, at: tirx.Expr, position: tirx.Expr, lanes: int = 4) -> tirx.Stmt:
        """Reads neighbouring elements of shared memory into registers."""
        position = self._nest.simplify(position)
        return self._nest.lanes(lanes, lambda lane: store(into, load(self._shared, position + lane), at + lane))

    def _multiply_keys(self) -> tirx.Stmt:
        nest, scores, queries, keys = self._nest, self._scores, self._queries, self._keys
        zero = tirx.const(0, "float32")

        def step(index: tirx.Expr) -> tirx.Stmt:
            column = index * number(4)

            def query(row: tirx.Expr) -> tirx.Stmt:
                position = number(queries.first) + self._row(row) * number(queries.stride) + column
                return self._vectors(self._left, row * number(4), position)

            def key(group: tirx.Expr) -> tirx.Stmt:
                position = number(keys.first) + scores.column(group) * number(keys.stride) + column
                return self._vectors(self._right, group * number(4), position)

            def product(row: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
                def add(of: tirx.Expr) -> tirx.Stmt:
                    factors = load(self._left, row * number(4) + of) * load(self._right, group * number(4) + of)
                    return scores.put(scores.at(row, group, lane) + factors, row, group, lane)

                return nest.unrolled(4, add, "of")

            return sequence(
                nest.unrolled(scores.rows, query, "row"),
                nest.unrolled(scores.groups, key, "group"),
                scores.each(nest, product),
            )

        return sequence(
            nest.unrolled(scores.size, lambda i: store(scores.registers, zero, i)),
            nest.loop(self._tile.size // 4, step, "depth"),
        )

    def _publish(self) -> tirx.Stmt:
        scores = self._scores

        def one(row: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
            position = self._power_at(self._row(row), scores.column(group) + lane)
            return store(self._shared, scores.at(row, group, lane), position)

        return scores.each(self._nest, one)

    def _power_at(self, row: tirx.Expr, column: tirx.Expr) -> tirx.Expr:
        return self._nest.simplify(number(self._values.end) + row * number(self._powers_stride) + column)

    def _multiply_values(self) -> tirx.Stmt:
        nest, sums, values = self._nest, self._sums, self._values

        def step(index: tirx.Expr) -> tirx.Stmt:
            first = index * number(4)

            def powers(row: tirx.Expr) -> tirx.Stmt:
                return self._vectors(self._left, row * number(4), self._power_at(self._row(row), first))

            def key(of: tirx.Expr) -> tirx.Stmt:
                def value(group: tirx.Expr) -> tirx.Stmt:
                    position = number(values.first) + (first + of) * number(values.stride) + sums.column(group)
                    return self._vectors(self._value, group * number(sums.lanes), position, sums.lanes)

                def add(row: tirx.Expr, group: tirx.Expr, lane: tirx.Expr) -> tirx.Stmt:
                    factor = load(self._left, row * number(4) + of)
                    product = factor * load(self._value, group * number(sums.lanes) + lane)
                    return sums.put(sums.at(row, group, lane) + product, row, group, lane)

                return sequence(nest.unrolled(sums.groups, value, "group"), sums.each(nest, add))

            return sequence(nest.unrolled(sums.rows, powers, "row"), nest.unrolled(4, key, "key"))

        return nest.loop(self._tile.keys // 4, step, "depth")
