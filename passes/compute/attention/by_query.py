"""Computes softmax(score(Q Kᵀ)) V query by query: the form of attention that schedule rules of GPUs recognize.

    for batch element, query in parallel:
        highest = lowest;  total = 0;  sums[…] = 0
        for key that the query may see:
            product = sum of Q[query, …] * K[key, …]
            highest = max(score(product), highest)
        for key that the query may see:
            product = sum of Q[query, …] * K[key, …]
            power = exp(score(product) - highest)
            total += power
            sums[…] += weight(power) * V[key, …]
        result[query, …] = sums[…] / total

The loops define the result. `passes/schedule/gpu/attention/analysis.py` reads products, scores, weights and bounds out
of them, and rules compute tiles of queries and keys instead; what they do not take is divided among threads as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from tvm import te, tirx
from tvm.tirx.stmt import AllocBuffer

from nnefc.ir.rebuild import loop_nest
from nnefc.passes.compute.attention.problem import LOWEST, Attended, Index, Loads
from nnefc.passes.compute.loops import local, loop, sequence
from nnefc.passes.tir.common.expressions import int64
from nnefc.symbolic.dims import expression

__all__ = ["attend_by_query"]

_ZERO, _START = int64(0), [int64(0)]


def attend_by_query(problem: Attended, dtype: str, operands: Sequence[te.Tensor]) -> te.Tensor:
    """Returns the result of an attention in the element type `dtype`; it computes in float32."""
    sources = [tirx.decl_buffer(x.shape, x.dtype, f"x{n}", elem_offset=0) for n, x in enumerate(operands)]
    shape = tuple(map(expression, problem.shape))
    target = tirx.decl_buffer(shape, dtype, "y", elem_offset=0)
    return te.extern(
        [shape],
        list(operands),
        lambda ins, outs: _computed(problem, ins, outs[0]),
        dtype=[dtype],
        in_buffers=sources,
        out_buffers=[target],
        name="attention",
    )


def _computed(problem: Attended, sources: Sequence[tirx.Var], target: tirx.Var) -> tirx.Stmt:
    axes = [tirx.Var(f"b{n}", "int64") for n in range(len(problem.batch))]
    query = tirx.Var("query", "int64")
    one = _Query(problem, [_load_of(source) for source in sources], target, axes, query)
    variables, sizes = [*axes, query], [*problem.batch, problem.queries]
    return loop_nest(variables, sizes, sequence(one.statements()), tirx.ForKind.PARALLEL)


def _load_of(source: tirx.Var) -> Callable[[Index], tirx.Expr]:
    return lambda index: tirx.BufferLoad(source, list(index))


class _Query:
    """The statements of one query."""

    def __init__(self, problem: Attended, loads: Loads, target: tirx.Var, batch: Index, query: tirx.Expr) -> None:
        self._problem, self._loads, self._target = problem, loads, target
        self._batch, self._query = batch, query
        names = ("highest", "total", "product", "power", "chosen")
        self._highest, self._total, self._product, self._power, self._chosen = (local(name, 1) for name in names)
        self._sums = local("sums", problem.width)

    def statements(self) -> Iterator[tirx.Stmt]:
        problem, zero = self._problem, tirx.const(0, "float32")
        buffers = [self._highest, self._total, self._product, self._power, self._sums]
        yield from map(AllocBuffer, [*buffers, self._chosen] if problem.chosen else buffers)
        yield tirx.BufferStore(self._highest, tirx.const(LOWEST, "float32"), _START)
        yield tirx.BufferStore(self._total, zero, _START)
        if problem.chosen:
            yield tirx.BufferStore(self._chosen, zero, _START)
        yield loop(problem.width, lambda d: [tirx.BufferStore(self._sums, zero, [d])], "d")
        yield self._each_key(self._compared)
        yield self._each_key(self._weighted)
        yield loop(problem.width, lambda d: [self._result(d)], "d")

    def _each_key(self, body: Callable[[tirx.Expr], Iterator[tirx.Stmt]]) -> tirx.Stmt:
        """Returns statements for the keys within the bounds of the query."""
        problem, where = self._problem, (self._loads, self._batch, self._query)

        def guarded(key: tirx.Expr) -> Iterator[tirx.Stmt]:
            limits = [key < end(*where) for end in problem.ends] + [first(*where) <= key for first in problem.firsts]
            stmt = sequence(body(key))
            yield tirx.IfThenElse(tirx.all(*limits), stmt, None) if limits else stmt

        return loop(expression(problem.keys), guarded, "key")

    def _scored(self, key: tirx.Expr) -> Iterator[tirx.Stmt]:
        problem, loads, batch = self._problem, self._loads, self._batch

        def add(e: tirx.Expr) -> list[tirx.Stmt]:
            factor = problem.query(loads, batch, self._query, e) * problem.key(loads, batch, key, e)
            return [tirx.BufferStore(self._product, self._product[_ZERO] + factor, _START)]

        yield tirx.BufferStore(self._product, tirx.const(0, "float32"), _START)
        yield loop(problem.size, add, "e")

    def _score(self, key: tirx.Expr) -> tirx.Expr:
        return self._problem.score(self._loads, self._batch, self._query, key, self._product[_ZERO])

    def _compared(self, key: tirx.Expr) -> Iterator[tirx.Stmt]:
        yield from self._scored(key)
        yield tirx.BufferStore(self._highest, tirx.Max(self._score(key), self._highest[_ZERO]), _START)

    def _weighted(self, key: tirx.Expr) -> Iterator[tirx.Stmt]:
        problem, where = self._problem, (self._loads, self._batch, self._query, key)
        power = self._power[_ZERO]
        weight = problem.weight(*where, power) if problem.weight else power

        def add(d: tirx.Expr) -> list[tirx.Stmt]:
            value = problem.value(self._loads, self._batch, key, d)
            return [tirx.BufferStore(self._sums, self._sums[d] + weight * value, [d])]

        yield from self._scored(key)
        yield tirx.BufferStore(self._power, tirx.exp(self._score(key) - self._highest[_ZERO]), _START)
        yield tirx.BufferStore(self._total, self._total[_ZERO] + power, _START)
        if problem.chosen:
            yield tirx.BufferStore(self._chosen, tirx.Max(self._chosen[_ZERO], problem.chosen(*where)), _START)
        yield loop(problem.width, add, "d")

    def _result(self, d: tirx.Expr) -> tirx.Stmt:
        """Divides a sum of values by the sum of the powers."""
        problem, zero = self._problem, tirx.const(0, "float32")
        share = problem.share(self._total[_ZERO], 1)
        if problem.chosen:
            share = tirx.Select(self._chosen[_ZERO] == zero, zero, share)
        value = self._sums[d] * share
        if problem.defined:
            value = tirx.Select(share > zero, value, zero)
        dtype = str(self._target.dtype)
        index = problem.result(self._batch, self._query, d)
        return tirx.BufferStore(self._target, value if dtype == "float32" else value.astype(dtype), list(index))
