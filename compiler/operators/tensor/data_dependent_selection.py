"""Selects elements by the data: a kernel counts them, and the count is a data-dependent dimension.

A kernel writes the selected elements to a buffer of the maximum size, and their number; then a computation copies the
first `n = data_dependent_size(at, number, limit, name)` elements to the result.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from nnefc.ir.kernel_calls import call_te
from nnefc.operators.base import Emitter, Operand, Operator, dtype_of, is_empty, rank_of, shape_of
from nnefc.operators.dtypes import is_float
from nnefc.operators.math.functions import truth
from nnefc.operators.statements import T, looped
from nnefc.operators.tensor.data_dependent_sizes import data_dependent_size
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.shape import Reshape, Transpose
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, expression, is_known, minimum

__all__ = ["Compress", "NonZero", "Unique", "first_of"]

_MAX_PASSES = 31
"""Passes of a merge sort, at most: tensors have fewer than 2^31 elements."""


def first_of(ctx: Emitter, elements: Operand, count: Dimension) -> relax.Expr:
    """The first elements along the first dimension."""
    shape = (count, *shape_of(elements)[1:])
    return ctx.emit(ctx.elements(shape, lambda tensors, index: tensors[0](*index), elements, name="first"))


def _int64(value: int) -> tirx.Expr:
    return tirx.const(value, "int64")


def _positions(ctx: Emitter, x: Operand, limit: Dimension, name: str) -> Operand:
    """The positions `[n]` of the elements of a flat tensor that are not zero, of the first `limit` elements; int64.

    A second call for the same tensor returns the same elements, so that their sizes are known to be equal.
    """
    if isinstance(x, np.ndarray) and is_known(limit):
        return np.flatnonzero(x[:limit]).astype(np.int64)
    (elements,), positions = shape_of(x), ctx.frames[-1].positions
    key = ctx.expr(x), limit, tuple(ctx.chosen_by)
    if key in positions:
        return positions[key]

    def write(source: Any, found: Any, count: Any) -> None:
        count[0] = _int64(0)
        with T.serial(0, expression(limit)) as position, T.If(truth(source[position])), T.Then():
            found[count[0]] = position
            count[0] = count[0] + 1

    found, count = looped(ctx, write, [x], [((elements,), "int64"), ((1,), "int64")], name)
    positions[key] = first_of(ctx, found, data_dependent_size(ctx, ctx.expr(count), limit, name))
    return positions[key]


@dataclass(frozen=True)
class NonZero(Operator):
    """The positions of the elements that are not zero, `[rank, n]` int64, in row-major order. ONNX `NonZero`.

    A tensor without dimensions has one position, of rank 1.
    """

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        if isinstance(x, np.ndarray):
            return np.array(np.nonzero(np.atleast_1d(x)), np.int64).reshape(max(x.ndim, 1), -1)
        shape = shape_of(x) or (1,)
        flat = ctx.reshaped(x, (math.prod(shape),))
        found = _positions(ctx, flat, math.prod(shape), "nonzero")
        strides = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]

        def positions(found: te.Tensor, *given: tirx.Expr) -> te.Tensor:
            sizes, strides = given[: len(shape)], given[len(shape) :]

            def position(axis: tirx.Var, element: tirx.Var) -> tirx.Expr:
                made = _int64(0)
                for number, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
                    along = tirx.floormod(tirx.floordiv(found(element), stride), size)
                    made = tirx.Select(axis == number, along, made)
                return made

            return te.compute((len(shape), *found.shape), position, name="positions")

        numbers = map(expression, (*shape, *strides))
        return ctx.emit(call_te(ctx.builder, positions, found, *numbers, name="positions"))


@dataclass(frozen=True)
class Compress(Operator):
    """The elements along a dimension for which a condition holds; those beyond the condition's end are left out.

    Attributes:
        axis: the dimension.
    """

    axis: int

    def lower(self, ctx: Emitter, x: Operand, condition: Operand) -> Operand:
        """`condition`: `[elements]` bool."""
        size, (given,) = shape_of(x)[self.axis], shape_of(condition)
        kept = _positions(ctx, condition, minimum(given, size), "compress")
        return Gather(self.axis, "clip").lower(ctx, x, kept)


@dataclass(frozen=True)
class Unique(Operator):
    """The different elements along a dimension; where each occurs first, which one each element is, how often each
    occurs.

    `numpy.unique`, ONNX `Unique`. All but the elements are int64: `[n]`, `[elements]`, `[n]`.

    Attributes:
        axis: the dimension; None takes all elements of the tensor, as one dimension.
        in_order: whether the elements are sorted, by their elements in row-major order and NaN last; else they are in
            the order in which they occur.
        is_text: whether elements that are int64 are handles of strings.
    """

    axis: int | None
    in_order: bool
    is_text: bool = False

    def lower(self, ctx: Emitter, x: Operand) -> tuple[Operand, ...]:
        if isinstance(x, np.ndarray):
            return self._known(x)
        ctx.has_text |= self.is_text
        if self.axis is None:
            x = ctx.reshaped(x, (math.prod(shape_of(x)),))
        axis = self.axis or 0
        order = (axis, *(other for other in range(rank_of(x)) if other != axis))
        lines = ctx.apply(Transpose(order), x)
        count, width = shape_of(lines)[0], math.prod(shape_of(lines)[1:])
        if is_empty((count, width)):
            raise CompileError(f"a tensor of the shape {list(shape_of(x))} has no elements to tell apart")
        first, which, often, number = self._groups(ctx, ctx.apply(Reshape((count, width)), lines))
        groups = data_dependent_size(ctx, ctx.expr(number), count, "unique")
        first = first_of(ctx, first, groups)
        return Gather(axis, "clip").lower(ctx, x, first), first, which, first_of(ctx, often, groups)

    def _known(self, x: np.ndarray) -> tuple[Operand, ...]:
        elements, first, which, often = np.unique(
            x, return_index=True, return_inverse=True, return_counts=True, axis=self.axis
        )
        if not self.in_order:
            order = np.argsort(first)
            elements, which = np.take(elements, order, self.axis or 0), np.argsort(order)[which.reshape(-1)]
            first, often = first[order], often[order]
        return elements, *(part.reshape(-1).astype(np.int64) for part in (first, which, often))

    def _groups(self, ctx: Emitter, lines: Operand) -> tuple[Operand, ...]:
        """Emit, for lines `[m, w]`, `first`, `which` and `often`, each `[m]`, and the number of groups, `[1]`."""
        (count, width), dtype = shape_of(lines), "string" if self.is_text else dtype_of(lines)
        m, w = expression(count), expression(width)

        def write(x: Any, first: Any, which: Any, often: Any, groups: Any, order: Any, other: Any, state: Any) -> None:
            _sort(x, order, other, state, m, w, dtype)
            groups[0] = _int64(0)
            with T.serial(0, m) as position:
                state[0] = _int64(1)
                with T.If(position > 0), T.Then():
                    _compare(x, order[position - 1], order[position], state, w, dtype)
                with T.If(state[0] != 0), T.Then():
                    first[groups[0]] = order[position]
                    often[groups[0]] = _int64(0)
                    groups[0] = groups[0] + 1
                which[order[position]] = groups[0] - 1
                often[groups[0] - 1] = often[groups[0] - 1] + 1
            if not self.in_order:
                _in_order_of_occurrence(first, which, often, groups, order, other, state, m)

        results = [((count,), "int64")] * 3 + [((1,), "int64")] + [((count,), "int64")] * 2 + [((4,), "int64")]
        return looped(ctx, write, [lines], results, "unique")[:4]


def _compare(x: Any, a: Any, b: Any, state: Any, width: Any, dtype: str) -> None:
    """Let `state[0]` be negative, 0 or positive as one line comes before, with or behind another; NaN is last."""
    state[0] = _int64(0)
    with T.serial(0, width) as column, T.If(state[0] == 0), T.Then():
        left, right = x[a * width + column], x[b * width + column]
        if dtype == "string":
            state[0] = tirx.call_extern("int32", "nnefc_text_order", left, right).astype("int64")
            return
        less, more = left < right, left > right
        if is_float(dtype):
            left_is_none, right_is_none = tirx.isnan(left), tirx.isnan(right)
            less = tirx.any(less, tirx.all(tirx.Not(left_is_none), right_is_none))
            more = tirx.any(more, tirx.all(left_is_none, tirx.Not(right_is_none)))
        state[0] = tirx.Select(less, _int64(-1), tirx.Select(more, _int64(1), _int64(0)))


def _sort(x: Any, order: Any, other: Any, state: Any, count: Any, width: Any, dtype: str) -> None:
    """Let `order` be the numbers of the lines in ascending order; lines that are equal stay in theirs.

    Runs of 1, 2, 4, … lines are merged; `state[1]` and `state[2]` count what is taken of the two.
    """
    with T.serial(0, count) as position:
        order[position] = position
    with T.serial(0, _MAX_PASSES) as step, T.If(tirx.shift_left(_int64(1), step.astype("int64")) < count), T.Then():
        run = tirx.shift_left(_int64(1), step.astype("int64"))
        with T.serial(0, count) as position:
            start = tirx.floordiv(position, 2 * run) * (2 * run)
            middle, end = tirx.min(start + run, count), tirx.min(start + 2 * run, count)
            with T.If(position == start), T.Then():
                state[1] = start
                state[2] = middle
            state[0] = tirx.Select(state[1] < middle, _int64(-1), _int64(1))
            with T.If(tirx.all(state[1] < middle, state[2] < end)), T.Then():
                _compare(x, order[state[1]], order[state[2]], state, width, dtype)
            with T.If(state[0] <= 0):
                with T.Then():
                    other[position] = order[state[1]]
                    state[1] = state[1] + 1
                with T.Else():
                    other[position] = order[state[2]]
                    state[2] = state[2] + 1
        with T.serial(0, count) as position:
            order[position] = other[position]


def _in_order_of_occurrence(
    first: Any, which: Any, often: Any, groups: Any, order: Any, other: Any, state: Any, count: Any
) -> None:
    """Number the groups again, by where they occur first: `order[old]` is the new number."""
    state[0] = _int64(0)
    with T.serial(0, count) as position, T.If(first[which[position]] == position), T.Then():
        order[which[position]] = state[0]
        state[0] = state[0] + 1
    for values in (first, often):
        with T.serial(0, groups[0]) as group:
            other[order[group]] = values[group]
        with T.serial(0, groups[0]) as group:
            values[group] = other[group]
    with T.serial(0, count) as position:
        which[position] = order[which[position]]
