"""Joins the results of attention to parts of the keys: of warps within a block, and of slices of the keys.

A part has, for each head, sums of values, and behind them the largest score, the sum of the powers, and whether a value
was chosen. Sums and powers are relative to the largest score of the part.
"""

from __future__ import annotations

from collections.abc import Callable

from tvm import tirx

from nnefc.ir.gpu_operators import maximum
from nnefc.passes.schedule.gpu.attention.analysis import Attention, simplified
from nnefc.passes.schedule.gpu.attention.fragments import LOWEST, power_of
from nnefc.passes.schedule.gpu.nest import Nest, load, sequence, store
from nnefc.passes.tir.common.expressions import number, substituted
from nnefc.symbolic.dims import ceil_div

__all__ = ["JoinedParts", "join_slices", "part_length"]

_THREADS = 128  # of a block that joins slices


def part_length(attention: Attention) -> int:
    """Returns the elements that a part has for each head."""
    return attention.width + 3


class JoinedParts:
    """Joins what some parts of the keys give for one value of the result, in registers of a thread."""

    def __init__(self, nest: Nest, attention: Attention) -> None:
        self._nest, self._attention = nest, attention
        self._highest, self._sum, self._total, self._chosen, self._factor = (
            nest.buffer(f"joined_{name}", 1, "float32", "local")
            for name in ("highest", "sum", "total", "choice", "factor")
        )

    def statements(
        self, parts: tirx.Expr, element: Callable[[tirx.Expr, tirx.Expr], tirx.Expr], column: tirx.Expr
    ) -> tirx.Stmt:
        """Joins so many parts; `element(part, index)` is what a part has."""
        nest, width, zero = self._nest, self._attention.width, tirx.const(0, "float32")

        def compare(part: tirx.Expr) -> tirx.Stmt:
            return _put(self._highest, maximum(_get(self._highest), element(part, number(width))))

        def add(part: tirx.Expr) -> tirx.Stmt:
            return sequence(
                _put(
                    self._factor, power_of(element(part, number(width)) - _get(self._highest), self._attention.factor)
                ),
                _put(self._sum, _get(self._sum) + element(part, column) * _get(self._factor)),
                _put(self._total, _get(self._total) + element(part, number(width + 1)) * _get(self._factor)),
                _put(self._chosen, maximum(_get(self._chosen), element(part, number(width + 2)))),
            )

        return sequence(
            _put(self._highest, tirx.const(LOWEST, "float32")),
            *(_put(register, zero) for register in (self._sum, self._total, self._chosen)),
            nest.until(parts, compare, "part"),
            nest.until(parts, add, "part"),
        )

    def written(self, batch: dict[tirx.Var, tirx.Expr], column: tirx.Expr) -> tirx.Stmt:
        """Returns the store of the value of the result."""
        attention = self._attention
        axes = {**batch, attention.query: number(0), attention.values.column: column}
        values = {attention.sum: _get(self._sum), attention.total: _get(self._total)}
        value = substituted(attention.result, {**values, attention.choice: _get(self._chosen)})
        return store(attention.output, value, simplified(self._nest, attention.position, axes))

    def kept(self, parts: tirx.Var, first: tirx.Expr, column: tirx.Expr) -> tirx.Stmt:
        """Returns the stores of what a later launch joins, from the index `first` on."""
        tail = [
            store(parts, _get(register), self._nest.simplify(first + number(self._attention.width + position)))
            for position, register in enumerate((self._highest, self._total, self._chosen))
        ]
        once = tirx.IfThenElse(column.equal(number(0)), sequence(*tail), None)
        return sequence(store(parts, _get(self._sum), self._nest.simplify(first + column)), once)


def _get(register: tirx.Var) -> tirx.Expr:
    return load(register, number(0))


def _put(register: tirx.Var, value: tirx.Expr) -> tirx.Stmt:
    return store(register, value, number(0))


def join_slices(attention: Attention, parts: tirx.Var, slices: int) -> tirx.Stmt:
    """Returns the launch that joins slices of the keys: a thread for each value of the result."""
    nest, elements, width = Nest(attention.aligned), attention.elements, attention.width
    joined = JoinedParts(nest, attention)
    count, length = elements * width, part_length(attention)

    def body(block: tirx.Expr, thread: tirx.Expr) -> tirx.Stmt:
        index = block * number(_THREADS) + thread
        head, column = tirx.floordiv(index, number(width)), tirx.floormod(index, number(width))

        def element(part: tirx.Expr, at: tirx.Expr) -> tirx.Expr:
            return load(parts, nest.simplify((part * number(elements) + head) * number(length) + at))

        stmt = sequence(
            joined.statements(number(slices), element, column), joined.written(attention.batch_at(head), column)
        )
        return stmt if nest.holds(index < number(count)) else tirx.IfThenElse(index < number(count), stmt, None)

    return nest.launch(ceil_div(count, _THREADS), _THREADS, body)
