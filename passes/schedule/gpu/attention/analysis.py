"""Analyzes attention: its queries, keys and values, scores and weights, and the bounds of the keys of a query.

    for …, query:                                     batch axes and queries
        for key: if key < end(query):                 bounds
            product = sum of left * right             queries and keys
            highest = max(score(product), highest)    scores
        for key: …
            power = exp(score(product) - highest)
            sums[…] += weight(power) * value          weights and values
        result = …                                    the result of the sums and the sum of the powers

The loops are those of `passes/compute/attention/by_query.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import tvm
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad
from tvm.sym import detect_linear_equation

from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.gpu.contractions.analysis import simplify_indices
from nnefc.passes.schedule.gpu.nest import Nest, buffer
from nnefc.passes.schedule.loop_nests import nest_of, statements_of
from nnefc.passes.schedule.schedules import scalars_of
from nnefc.passes.tir.common.expressions import (
    conjuncts,
    flat_offset,
    inside,
    is_number,
    loads_of,
    number,
    substituted,
    variables_of,
)
from nnefc.passes.tir.common.shapes import Size, elements_of, size_of
from nnefc.passes.tir.gpu.narrow_indices import MAX_ELEMENTS, narrow_index_types
from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import is_known
from nnefc.targets.machine.gpu.description import LOAD_BYTES
from nnefc.targets.machine.gpu.target import GpuTarget

__all__ = ["Attention", "Matrix", "attention_of"]


_SMALL_FACTOR = 1e-6
"""Smaller factors of scores, or larger ones than their inverse, are applied to scores: differences may overflow."""


@dataclass(frozen=True)
class Matrix:
    """Queries, keys or values.

    Attributes:
        element: of it, given values of the axes.
        row: the query or the key.
        column: goes from 0 to `columns`.
    """

    element: tirx.Expr
    row: tirx.Var
    column: tirx.Var
    columns: int

    @property
    def dtype(self) -> str:
        """The type of an element."""
        return str(self.element.expr_ty().dtype)

    @property
    def stored(self) -> Matrix:
        """The same in the type that it has in memory, where nothing but a conversion from 16 bits is done to it."""
        element = self.element
        while isinstance(element, tirx.Cast) and isinstance(element.value, tirx.Cast | TensorLoad):
            element = element.value
        is_float = "float" in str(element.expr_ty().dtype)
        return replace(self, element=element) if isinstance(element, TensorLoad) and is_float else self

    def at(self, nest: Nest, batch: Mapping[tirx.Var, tirx.Expr], row: tirx.Expr, column: tirx.Expr) -> tirx.Expr:
        """Returns the element at an index."""
        return simplified(nest, self.element, {**batch, self.row: row, self.column: column})

    def lanes(self, aligned: bool, widest: int) -> int:
        """Returns how many columns, at most `widest`, a thread loads at once in every row."""
        for lanes in (lanes for lanes in (8, 4, 2) if lanes <= widest):
            if self.columns % lanes or lanes * max(map(_load_bytes, loads_of(self.element)), default=0) > LOAD_BYTES:
                continue
            nest = Nest(aligned)
            group, lane = nest.variable("group", self.columns // lanes), nest.variable("lane", lanes)
            value = self.at(nest, {}, self.row, group * number(lanes) + lane)
            along = any(lane in variables_of(load.indices) for load in loads_of(value))
            if along and nest.vectorizes(value, lane, lanes):
                return lanes
        return 1


def _load_bytes(load: TensorLoad) -> int:
    return element_bytes(str(load.source.dtype))


def simplified(nest: Nest, expr: tirx.Expr, values: Mapping[tirx.Var, tirx.Expr]) -> tirx.Expr:
    """Returns an expression for values of the axes, with the positions that it loads from simplified."""
    return nest.simplify(simplify_indices(substituted(expr, values), nest))


@dataclass(frozen=True)
class Attention:
    """An attention as expressions.

    Attributes:
        func: the computation, of which `params` are the buffers, made flat.
        batch: axes before queries, with their sizes.
        query, key: the variables of these axes.
        queries, keys: how many there are.
        left, right, values: queries, keys and values.
        score, factor: what scores are, of the variable `product`, a query and a key, and what that is multiplied with.
        power: the variable that `weight` is made of.
        weight, chosen: the factor of a value, and whether it is chosen (None: always), of a query and a key.
        ends, firsts: keys below, and from which on, a query sees them; they never fall from a query to the next.
        output, position, result: what is written and where, of the variables `sum`, `total` and `choice`.
        aligned: whether tensors begin at multiples of a vector's size.
    """

    func: tirx.PrimFunc
    params: tuple[tirx.Var, ...]
    batch: tuple[tuple[tirx.Var, Size], ...]
    query: tirx.Var
    key: tirx.Var
    queries: Size
    keys: Size
    left: Matrix
    right: Matrix
    values: Matrix
    product: tirx.Var
    score: tirx.Expr
    factor: float
    power: tirx.Var
    weight: tirx.Expr
    chosen: tirx.Expr | None
    ends: tuple[tirx.Expr, ...]
    firsts: tuple[tirx.Expr, ...]
    output: tirx.Var
    position: tirx.Expr
    result: tirx.Expr
    sum: tirx.Var
    total: tirx.Var
    choice: tirx.Var
    aligned: bool

    @property
    def shown(self) -> tuple[tirx.Expr, list[tirx.Expr]]:
        """Returns the score without conditions that hide keys, and these conditions."""
        score, conditions = self.score, list[tirx.Expr]()
        while isinstance(score, tirx.Select) and is_number(score.false_value, -math.inf):
            conditions += conjuncts(score.condition)
            score = score.true_value
        return score, conditions

    def all_seen(self, queries: tuple[tirx.Expr, tirx.Expr], keys: tuple[tirx.Expr, tirx.Expr]) -> tirx.Expr | None:
        """Returns whether all conditions hold for queries and keys from the first to the last of these.

        None where there are no conditions, or others than comparisons of indices.
        """
        limits = []
        for condition in self.shown[1]:
            below = _difference(condition)
            found = None if below is None else detect_linear_equation(below, [self.query, self.key])
            if not found or not all(isinstance(step, tirx.IntImm) for step in found[:2]):
                return None
            steps = [int(step) for step in found[:2]]
            ends = zip(steps, (queries, keys), strict=True)
            limits.append(sum((number(step) * pair[step > 0] for step, pair in ends), start=found[2]) < number(0))
        return tirx.all(*limits) if limits else None

    @property
    def size(self) -> int:
        """The length of queries and keys."""
        return self.left.columns

    @property
    def width(self) -> int:
        """The length of values."""
        return self.values.columns

    @property
    def elements(self) -> Size:
        """Returns the batch elements: heads, of each element of the batch."""
        total: Size = 1
        for _, size in self.batch:
            total = total * size
        return total

    def batch_at(self, index: tirx.Expr) -> dict[tirx.Var, tirx.Expr]:
        """Returns the values of the batch axes of a batch element."""
        values: dict[tirx.Var, tirx.Expr] = {}
        for position, (var, size) in reversed(list(enumerate(self.batch))):
            values[var] = tirx.floormod(index, number(size)) if position else index
            index = tirx.floordiv(index, number(size))
        return values

    def keys_seen(
        self, nest: Nest, batch: Mapping[tirx.Var, tirx.Expr], first: tirx.Expr, last: tirx.Expr
    ) -> tuple[tirx.Expr, tirx.Expr]:
        """Returns the first key that queries from `first` to `last` may see, and the one behind the last."""
        begin, end = number(0), number(self.keys)
        for limit in self.ends:
            end = tirx.min(end, simplified(nest, limit, {**batch, self.query: last}))
        for limit in self.firsts:
            begin = tirx.max(begin, simplified(nest, limit, {**batch, self.query: first}))
        return nest.simplify(begin), nest.simplify(tirx.max(end, begin))

    def heads_sharing(self) -> int:
        """Returns the number of adjacent batch elements, along the last axis, that share keys and values."""
        if not self.batch or not is_known(self.batch[-1][1]):
            return 1
        head, heads = self.batch[-1]
        divisors = {self._divisor(matrix.element, head) for matrix in (self.right, self.values)} - {0}
        if not divisors:
            return int(heads)
        shared = min(divisors)
        return shared if all(divisor % shared == 0 for divisor in divisors) and heads % shared == 0 else 1

    @staticmethod
    def _divisor(element: tirx.Expr, head: tirx.Var) -> int:
        """Returns the number by which an expression divides the head wherever it uses it; 0 without uses."""
        uses = [part for part in inside(element) if part.same_as(head)]
        divisors = [
            int(part.b)
            for part in inside(element)
            if isinstance(part, tirx.FloorDiv) and part.a.same_as(head) and isinstance(part.b, tirx.IntImm)
        ]
        if not uses:
            return 0
        return divisors[0] if len(divisors) == len(uses) and len(set(divisors)) == 1 else 1


@dataclass(frozen=True)
class _Store:
    """A store of a value that is computed, with the loops and conditions around it."""

    loops: tuple[tirx.For, ...]
    conditions: tuple[tirx.Expr, ...]
    store: tirx.BufferStore

    @property
    def value(self) -> tirx.Expr:
        return self.store.value

    def is_own(self, part: tirx.Expr) -> bool:
        """Whether an expression is the element that is stored, as it was before."""
        return isinstance(part, TensorLoad) and part.source.same_as(self.store.buffer)


@lru_cache(maxsize=1)  # several rules ask for one kernel's
def attention_of(kernel: KernelAnalysis, target: GpuTarget) -> Attention | None:
    """Returns the attention that a kernel is; None if it is another computation."""
    if not _is_query_by_query(kernel.func):
        return None
    tensors = kernel.func.params
    if any(_is_too_large(tensor) or "int64" in str(tensor.dtype) for tensor in tensors):
        return None
    narrow = narrow_index_types(kernel.func, scalars_of(kernel.func))
    statements = statements_of(narrow)
    assert statements is not None
    outer = nest_of(statements[0])
    found = _Parts.of(list(_stores(outer[-1].body)))
    return None if found is None else _attention(narrow, outer, found, target.load_bytes >= LOAD_BYTES)


def _is_query_by_query(func: tirx.PrimFunc) -> bool:
    """Whether a kernel is one nest of loops around statements with two loops that end in loops."""
    statements = statements_of(func)
    if statements is None or len(statements) != 1:
        return False
    outer = nest_of(statements[0])
    body = outer[-1].body if outer else None
    if not isinstance(body, tirx.SeqStmt) or outer[-1].kind != tirx.ForKind.PARALLEL:
        return False
    return sum(isinstance(stmt, tirx.For) for stmt in body.seq) == 4


def _is_too_large(tensor: tirx.Var) -> bool:
    elements = elements_of(tensor)
    return is_known(elements) and elements >= MAX_ELEMENTS


def _stores(
    stmt: tirx.Stmt, loops: tuple[tirx.For, ...] = (), conditions: tuple[tirx.Expr, ...] = ()
) -> Iterator[_Store]:
    """Yields what is stored, but for constants, in order."""
    match stmt:
        case tirx.SeqStmt():
            for each in stmt.seq:
                yield from _stores(each, loops, conditions)
        case tirx.For():
            yield from _stores(stmt.body, (*loops, stmt), conditions)
        case tirx.IfThenElse() if stmt.else_case is None:
            yield from _stores(stmt.then_case, loops, (*conditions, *conjuncts(stmt.condition)))
        case tirx.BufferStore() if not isinstance(stmt.value, tirx.FloatImm):
            yield _Store(loops, conditions, stmt)


@dataclass(frozen=True)
class _Parts:
    """The stores of a query, by what they compute."""

    product: _Store
    highest: _Store
    power: _Store
    total: _Store
    chosen: _Store | None
    sums: _Store
    result: _Store

    @classmethod
    def of(cls, stores: Sequence[_Store]) -> _Parts | None:
        """Returns the parts if the stores compute an attention."""
        if len(stores) not in (7, 8):
            return None
        product, highest, again, power, total, *chosen, sums, result = stores
        made = cls(product, highest, power, total, chosen[0] if chosen else None, sums, result)
        if not again.store.buffer.same_as(product.store.buffer) or not made._is_attention():
            return None
        return made

    def _is_attention(self) -> bool:
        """Whether each part computes what its index among the stores says."""
        sums_up = all(
            isinstance(part.value, tirx.Add) and part.is_own(part.value.a)
            for part in (self.product, self.total, self.sums)
        )
        products = all(isinstance(part.value.b, tirx.Mul) for part in (self.product, self.sums)) if sums_up else False
        searches = isinstance(self.highest.value, tirx.Max) and self.highest.is_own(self.highest.value.b)
        is_power = isinstance(self.power.value, Call) and getattr(self.power.value.op, "name", "").endswith(".exp")
        nested = [len(part.loops) for part in (self.product, self.highest, self.power, self.sums, self.result)]
        return products and searches and is_power and nested == [2, 1, 1, 2, 1]


def _attention(func: tirx.PrimFunc, outer: Sequence[tirx.For], parts: _Parts, aligned: bool) -> Attention | None:
    """Returns the expressions of the parts over one set of axes."""
    *batch, query = outer
    key, depth = parts.product.loops
    width = parts.sums.loops[-1]
    sizes = [size_of(loop.extent) for loop in (depth, width)]
    if not is_known(*sizes):
        return None
    flat = {param: buffer(str(param.name), elements_of(param), str(param.dtype)) for param in func.params}
    names = {"product": parts.product, "power": parts.power, "sum": parts.sums, "total": parts.total}
    names |= {"choice": parts.chosen} if parts.chosen else {}
    stand_ins = {part.store.buffer: tirx.Var(name, "float32") for name, part in names.items()}
    by_name = {str(var.name): var for var in stand_ins.values()}

    def load(source: tirx.Var, at: Sequence[tirx.Expr]) -> tirx.Expr:
        return stand_ins[source] if source in stand_ins else tirx.BufferLoad(flat[source], [flat_offset(source, at)])

    def own(part: _Store, expr: tirx.Expr) -> tirx.Expr:
        """An expression of a part, whose loops over keys and values may be others than those of another part."""
        loops = {loop.loop_var: axis for loop, axis in zip(part.loops, (key, width), strict=False)}
        if part is parts.product:
            loops = {}
        elif part is parts.result:
            loops = {part.loops[0].loop_var: width}
        return substituted(expr, {var: axis.loop_var for var, axis in loops.items()}, load)

    ends, firsts = _limits(parts.product.conditions, key.loop_var)
    product, weighted = parts.product.value.b, parts.sums.value.b
    return Attention(
        func,
        tuple(flat[param] for param in func.params),
        tuple((loop.loop_var, size_of(loop.extent)) for loop in batch),
        query.loop_var,
        key.loop_var,
        size_of(query.extent),
        size_of(key.extent),
        Matrix(own(parts.product, product.a), query.loop_var, depth.loop_var, int(sizes[0])),
        Matrix(own(parts.product, product.b), key.loop_var, depth.loop_var, int(sizes[0])),
        Matrix(own(parts.sums, weighted.b), key.loop_var, width.loop_var, int(sizes[1])),
        by_name["product"],
        *_factored(own(parts.highest, parts.highest.value.a)),
        by_name["power"],
        own(parts.sums, weighted.a),
        own(parts.chosen, parts.chosen.value.b) if parts.chosen else None,
        tuple(own(parts.product, end) for end in ends),
        tuple(own(parts.product, first) for first in firsts),
        flat[parts.result.store.buffer],
        flat_offset(parts.result.store.buffer, [own(parts.result, at) for at in parts.result.store.indices]),
        own(parts.result, parts.result.value),
        by_name["sum"],
        by_name["total"],
        by_name.get("choice", tirx.Var("choice", "float32")),
        aligned,
    )


def _limits(conditions: Sequence[tirx.Expr], key: tirx.Var) -> tuple[list[tirx.Expr], list[tirx.Expr]]:
    """Returns what keys are below, and from which key on they are seen; conditions of other forms are left out.

    A key that a condition hides has a score of minus infinity, or one whose power is zero.
    """
    ends: list[tirx.Expr] = []
    firsts: list[tirx.Expr] = []
    for condition in conditions:
        below = _difference(condition)
        if below is None:
            continue
        found = detect_linear_equation(below, [key])
        step = int(found[0]) if found and isinstance(found[0], tirx.IntImm) else 0
        simplify = tvm.sym.Analyzer().simplify
        if step == 1:
            ends.append(simplify(-found[1]))
        elif step == -1:
            firsts.append(simplify(found[1] + 1))
    return ends, firsts


def _difference(condition: tirx.Expr) -> tirx.Expr | None:
    """Returns what is below zero where a comparison of integers holds; None for other conditions."""
    if not hasattr(condition, "a") or "int" not in str(condition.a.expr_ty().dtype):
        return None
    match condition:
        case tirx.LT():
            return condition.a - condition.b
        case tirx.LE():
            return condition.a - condition.b - 1
        case tirx.GT():
            return condition.b - condition.a
        case tirx.GE():
            return condition.b - condition.a - 1
    return None


def _factored(score: tirx.Expr) -> tuple[tirx.Expr, float]:
    """Returns a score as what has the same order, and the positive number that this is multiplied with."""
    match score:
        case tirx.Mul() if (
            isinstance(score.b, tirx.FloatImm) and _SMALL_FACTOR < float(score.b.value) < 1 / _SMALL_FACTOR
        ):
            return score.a, float(score.b.value)
        case tirx.Select() if is_number(score.false_value, -math.inf):
            value, factor = _factored(score.true_value)
            return tirx.Select(score.condition, value, score.false_value), factor
    return score, 1.0
