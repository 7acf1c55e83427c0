"""Finds the range of keys that each query can attend to, so that attention skips blocks that are masked by -inf.

select(key <= query + 3, p, -inf)             keys from 0 up to query + 4
p + mask[query, key], a constant              keys from the first to the last at which the mask is not minus infinity
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad
from tvm.sym import detect_linear_equation

from nnefc.passes.graph.attention.terms import KEY, QUERY, AttentionOperand, Terms
from nnefc.passes.graph.rewriter import array_of, constant, is_constant
from nnefc.passes.tir.common.expressions import IF_THEN_ELSE, conjuncts, inside, parts_of, variables_of

__all__ = ["with_mask_bounds"]

_LOW = -1e30
"""Scores below it are given to hide keys; where a row has others, their powers are zero."""


def with_mask_bounds(terms: Terms) -> Terms:
    """Returns the terms with bounds of the keys that each query sees.

    Where weights are chosen from, every key is looked at: that one is chosen of a row of NaN makes its result NaN.
    """
    return _Reader(terms).terms() if terms.chosen is None else terms


class _Reader:
    def __init__(self, terms: Terms) -> None:
        self._terms = terms
        self._arrays = {buffer: operand for operand, buffer in terms.operands if is_constant(operand.expr)}
        self._ends: list[tirx.Expr] = []
        self._firsts: list[tirx.Expr] = []
        self._operands: list[tuple[AttentionOperand, tirx.Var]] = []

    def terms(self) -> Terms:
        """Returns the terms with the bounds that were found."""
        for condition in self._seen_where(self._terms.score):
            match condition:
                case tirx.LT():
                    self._compare(condition.a - condition.b)
                case tirx.LE():
                    self._compare(condition.a - condition.b - 1)
                case tirx.GT():
                    self._compare(condition.b - condition.a)
                case tirx.GE():
                    self._compare(condition.b - condition.a - 1)
        operands = [*self._terms.operands, *self._operands]
        return replace(self._terms, operands=operands, ends=self._ends, firsts=self._firsts)

    def _seen_where(self, score: tirx.Expr) -> Iterator[tirx.Expr]:
        """Yields the conditions under which a score is not minus infinity; bounds by constants are recorded at once."""
        match score:
            case tirx.Select():
                yield from self._of_choice(score.condition, score.true_value, score.false_value)
            case Call() if _is_choice(score):
                yield from self._of_choice(*score.args)
            case tirx.Add():
                yield from self._seen_where(score.a)
                yield from self._seen_where(score.b)
            case tirx.Mul() if _is_positive(score.b):
                yield from self._seen_where(score.a)
            case TensorLoad() if score.source in self._arrays and "float" in str(score.expr_ty().dtype):
                self._constant(score, self._is_seen(self._array(score), score))

    def _of_choice(self, condition: tirx.Expr, seen: tirx.Expr, hidden: tirx.Expr) -> Iterator[tirx.Expr]:
        """Yields the conditions under which a key is seen, of a select between scores and the value of hidden ones.

        If that value is finite, a score may equal it, so that only the whole condition says which keys are seen.
        """
        if not isinstance(hidden, tirx.FloatImm):
            return
        whole = hidden.value == -math.inf
        if whole:
            yield from self._seen_where(seen)
        for part in conjuncts(condition) if whole else [condition]:
            if isinstance(part, TensorLoad) and part.source in self._arrays:
                array = np.where(self._array(part), np.float32(0), np.float32(hidden.value))
                self._constant(part, self._is_seen(array, part))
            elif whole:
                yield part

    def _array(self, load: TensorLoad) -> np.ndarray:
        operand = self._arrays[load.source]
        array = array_of(operand.expr)
        return np.swapaxes(array, -1, -2) if operand.exchanged else array

    def _is_seen(self, array: np.ndarray, load: TensorLoad) -> np.ndarray:
        """Returns where a mask that is added leaves a key visible: where it is not minus infinity.

        Very low finite values hide keys, too, if each row has other values and no other mask hides these.
        """
        keys = [axis for axis, position in enumerate(load.indices) if position.same_as(KEY)]
        low = array > _LOW
        if len(keys) == 1 and low.any(axis=keys[0]).all() and not self._others_hide(load):
            return low
        return ~np.isneginf(array)

    def _others_hide(self, load: TensorLoad) -> bool:
        """Whether scores may be low, or minus infinity, by other tensors or other conditions."""
        for part in inside(self._terms.score):
            if isinstance(part, TensorLoad) and not part.source.same_as(load.source):
                return True
            if _is_choice(part) and not parts_of(part)[0].same_as(load):
                return True
        return False

    def _constant(self, load: TensorLoad, seen: np.ndarray) -> None:
        """Records bounds of the keys that some row of a constant mask sees."""
        keys = [axis for axis, position in enumerate(load.indices) if position.same_as(KEY)]
        queries = [axis for axis, position in enumerate(load.indices) if position.same_as(QUERY)]
        if (
            len(keys) != 1
            or len(queries) > 1
            or any(QUERY in variables_of([i]) for i in load.indices if not i.same_as(QUERY))
        ):
            return
        others = tuple(axis for axis in range(seen.ndim) if axis not in (*keys, *queries))
        rows: np.ndarray = np.asarray(seen.any(axis=others, keepdims=True))
        rows = np.moveaxis(rows, (*queries, keys[0]), range(-1 - len(queries), 0)).reshape(-1, seen.shape[keys[0]])
        positions = np.arange(rows.shape[1])
        ends = np.maximum.accumulate(np.where(rows, positions + 1, 0).max(1))
        firsts = np.minimum.accumulate(np.where(rows, positions, rows.shape[1]).min(1)[::-1])[::-1]
        if ends.min() < rows.shape[1]:
            self._ends.append(self._by_query(ends, rows.shape[1]))
        if firsts.max() > 0:
            self._firsts.append(self._by_query(firsts, rows.shape[1]))

    def _by_query(self, values: np.ndarray, keys: int) -> tirx.Expr:
        """Returns a bound for each query as an expression, if the bounds never fall: a table, or the query plus a
        constant between two limits.

        Limits are left out that follow from the number of keys.
        """
        low, high = int(values[0]), int(values[-1])
        if low == high:
            return tirx.IntImm("int64", low)
        rise = int(np.argmax(values > low))
        start = int(values[rise]) - rise
        line = np.arange(len(values)) + start
        if not np.array_equal(np.clip(line, low, high), values):
            return self._table(values)
        limit = QUERY + start
        if line[0] < low and low > 0:
            limit = tirx.max(limit, tirx.IntImm("int64", low))
        if line[-1] > high and high < keys:
            limit = tirx.min(limit, tirx.IntImm("int64", high))
        return limit

    def _table(self, values: np.ndarray) -> tirx.Expr:
        """Returns the element of `values` for the query, which is loaded from a new operand."""
        buffer = tirx.decl_buffer((len(values),), "int64", f"ends{len(self._operands)}")
        self._operands.append((AttentionOperand(constant(values.astype(np.int64)), False), buffer))
        return tirx.BufferLoad(buffer, [QUERY])

    def _compare(self, difference: tirx.Expr) -> None:
        """Records the bound that follows from a value below zero."""
        if not _is_of_integers(difference):
            return
        key, base = _coefficient(difference, KEY)
        if key not in (1, -1) or base is None:
            return
        limit = -base if key == 1 else base + 1
        step, tail = _coefficient(limit, QUERY)
        if step is not None and step >= 0 and tail is not None:
            (self._ends if key == 1 else self._firsts).append(limit)


def _coefficient(expr: tirx.Expr, var: tirx.Var) -> tuple[int | None, tirx.Expr | None]:
    """Splits a sum into the factor of a variable and the terms that do not depend on it."""
    found = detect_linear_equation(expr, [var])
    if not found or not isinstance(found[0], tirx.IntImm) or var in variables_of([found[1]]):
        return None, None
    return int(found[0]), found[1]


def _is_of_integers(expr: tirx.Expr) -> bool:
    return "int" in str(expr.expr_ty().dtype)


def _is_choice(expr: tirx.Expr) -> bool:
    return isinstance(expr, tirx.Select) or (isinstance(expr, Call) and getattr(expr.op, "name", "") in IF_THEN_ELSE)


def _is_positive(expr: tirx.Expr) -> bool:
    return isinstance(expr, tirx.FloatImm) and expr.value > 0
