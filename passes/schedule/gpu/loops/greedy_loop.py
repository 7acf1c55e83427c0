"""Recognizes loops that select elements of lines greedily, and returns their parts.

total[0] = 0
for i in range(elements of rows): rows[i] = 0                                  (or not)
for line in lines:
    state[0], state[1] = 0, 0
    for box in range(count):
        if is_candidate(box): left[state[0]] = box; state[0] += 1
    while state[0] > 0 and state[1] < maximum:
        rows[total[0] * 2], rows[total[0] * 2 + 1] = line, left[0]
        for k in range(state[0]):
            if score(left[k]) > score(rows[total[0] * 2 + 1]): rows[total[0] * 2 + 1] = left[k]
        state[2] = state[0]
        state[0] = 0
        for k in range(state[2]):
            if left[k] != rows[total[0] * 2 + 1] and stays(left[k], rows[total[0] * 2 + 1]):
                left[state[0]] = left[k]; state[0] += 1
        total[0] += 1
        state[1] += 1
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import tirx
from tvm.ir import Op
from tvm.ir.expr import Call

from nnefc.ir.attributes import SCRATCH_RESULTS
from nnefc.passes.schedule.loop_nests import nest_of, statements_of
from nnefc.passes.tir.common.expressions import int64, loads_of, replaced, substituted
from nnefc.passes.tir.common.shapes import Size, elements_of, size_of
from nnefc.symbolic.dims import greatest

__all__ = ["GreedyLoop"]

_SCRATCH = 2  # tensors: elements that are left, and three numbers


@dataclass(frozen=True)
class GreedyLoop:
    """A loop that selects elements of lines greedily.

    Attributes:
        nest: the loops over lines.
        count: elements of a line.
        box, best: variables that stand for elements in the expressions below, int64.
        is_candidate: whether `box` may be selected.
        score: what the order is by, of `box`; no NaN of candidates.
        stays: whether `box` may be selected behind `best`.
        maximum: how many are selected of a line at most.
        rows: the tensor of the results, rows of `columns` and the element.
        columns: what a row has before the element.
        total: the tensor of one element that becomes the number of rows.
        is_filled: whether zeros follow the rows.
    """

    nest: Sequence[tirx.For]
    count: Size
    box: tirx.Var
    best: tirx.Var
    is_candidate: tirx.Expr
    score: tirx.Expr
    stays: tirx.Expr
    maximum: tirx.Expr
    rows: tirx.Var
    columns: Sequence[tirx.Expr]
    total: tirx.Var
    is_filled: bool

    @classmethod
    def of(cls, func: tirx.PrimFunc) -> GreedyLoop | None:
        """Returns the loop that a kernel is; None if it is something else.

        The parts are taken from where they stand in such a loop. The kernel is one if it is equal to the loop that
        these parts make.
        """
        statements = statements_of(func) if int(func.attrs.get(SCRATCH_RESULTS, 0)) == _SCRATCH else None
        if statements is None:
            return None
        results = func.params[-_SCRATCH - 2 :]
        nest = nest_of(statements[-1])
        match nest[-1].body if nest else None:
            case tirx.SeqStmt(
                seq=[
                    tirx.BufferStore(),
                    tirx.BufferStore(),
                    tirx.For(body=tirx.IfThenElse() as collected) as collect,
                    tirx.While(
                        condition=tirx.And(b=tirx.LT(b=maximum)),
                        body=tirx.SeqStmt(
                            seq=[
                                *columns,
                                tirx.BufferStore(),
                                tirx.For(body=tirx.IfThenElse(condition=tirx.GT() as better)) as choose,
                                tirx.BufferStore(),
                                tirx.BufferStore(),
                                tirx.For(body=tirx.IfThenElse(condition=tirx.And(b=stays))) as remove,
                                tirx.BufferStore(),
                                tirx.BufferStore(),
                            ]
                        ),
                    ),
                ]
            ) if all(isinstance(each, tirx.BufferStore) for each in columns):
                pass
            case _:
                return None
        rows, total, left, _ = results
        box, best = (tirx.Var(name, "int64") for name in ("box", "best"))
        selected = tirx.BufferLoad(rows, [_row(total, len(columns) + 1, len(columns))])
        found = cls(
            nest,
            size_of(collect.extent),
            box,
            best,
            substituted(collected.condition, {collect.loop_var: box}),
            replaced(better.a, [(_element(left, choose.loop_var), box)]),
            replaced(stays, [(_element(left, remove.loop_var), box), (selected, best)]),
            maximum,
            rows,
            [each.value for each in columns],
            total,
            len(statements) == 3,
        )
        loops = collect.loop_var, choose.loop_var, remove.loop_var
        fill = statements[1].loop_var if found.is_filled and isinstance(statements[1], tirx.For) else None
        same = found._has_order() and tvm_ffi.structural_equal(
            tirx.SeqStmt(list(statements)), found._written(results, loops, fill)
        )
        return found if same and found._reads_others(results) else None

    def _has_order(self) -> bool:
        """Whether no score of a candidate is NaN."""
        match self.is_candidate:
            case tirx.Not(a=Call(op=Op(name="tirx.isnan"), args=[score])) | tirx.GT(a=score):
                return bool(tvm_ffi.structural_equal(score, self.score))
        return False

    def _reads_others(self, results: Sequence[tirx.Var]) -> bool:
        """Whether nothing that is written decides."""
        read = (self.is_candidate, self.score, self.stays, self.maximum, *self.columns)
        return not any(each.source.same_as(result) for expr in read for each in loads_of(expr) for result in results)

    def _written(self, results: Sequence[tirx.Var], loops: Sequence[tirx.Var], fill: tirx.Var | None) -> tirx.SeqStmt:
        """Returns the statements of such a loop of these parts, with these variables in its inner loops."""
        rows, total, left, state = results
        collect, choose, remove = loops
        width, zero, one = len(self.columns) + 1, int64(0), int64(1)
        number_left, taken = (_element(state, int64(k)) for k in (0, 1))
        best = tirx.BufferLoad(rows, [_row(total, width, width - 1)])

        def put(tensor: tirx.Var, value: tirx.Expr, at: tirx.Expr) -> tirx.Stmt:
            return tirx.BufferStore(tensor, value, [at])

        def serial(var: tirx.Var, extent: tirx.Expr, body: tirx.Stmt) -> tirx.Stmt:
            return tirx.For(var, zero, extent, tirx.ForKind.SERIAL, body)

        def kept(value: tirx.Expr) -> tirx.Stmt:
            return tirx.SeqStmt([put(left, value, number_left), put(state, number_left + one, zero)])

        def with_box(expr: tirx.Expr, element: tirx.Expr) -> tirx.Expr:
            return substituted(expr, {self.box: element, self.best: best})

        candidate, chosen, removed = collect, _element(left, choose), _element(left, remove)
        is_better = tirx.GT(with_box(self.score, chosen), with_box(self.score, best))
        survives = tirx.And(tirx.NE(removed, best), with_box(self.stays, removed))
        body = tirx.SeqStmt(
            [
                *(put(rows, value, _row(total, width, k)) for k, value in enumerate(self.columns)),
                put(rows, _element(left, zero), _row(total, width, width - 1)),
                serial(choose, number_left, tirx.IfThenElse(is_better, put(rows, chosen, best.indices[0]), None)),
                put(state, number_left, int64(2)),
                put(state, zero, zero),
                serial(remove, _element(state, int64(2)), tirx.IfThenElse(survives, kept(removed), None)),
                put(total, _element(total, zero) + one, zero),
                put(state, taken + one, one),
            ]
        )
        line: tirx.Stmt = tirx.SeqStmt(
            [
                put(state, zero, zero),
                put(state, zero, one),
                serial(
                    collect,
                    int64(self.count),
                    tirx.IfThenElse(with_box(self.is_candidate, candidate), kept(candidate), None),
                ),
                tirx.While(tirx.And(tirx.GT(number_left, zero), tirx.LT(taken, self.maximum)), body),
            ]
        )
        for loop in reversed(self.nest):
            line = serial(loop.loop_var, loop.extent, line)
        filled = [] if fill is None else [serial(fill, int64(elements_of(rows)), put(rows, zero, fill))]
        return tirx.SeqStmt([put(total, zero, zero), *filled, line])

    @property
    def lines(self) -> Size:
        """Returns how many lines there are."""
        return math.prod(size_of(loop.extent) for loop in self.nest)

    def at_line(
        self, expr: tirx.Expr, line: tirx.Expr, elements: Mapping[tirx.Var, tirx.Expr] | None = None
    ) -> tirx.Expr:
        """Returns an expression of a line, with these elements for `box` and `best`."""
        values, step = dict[tirx.Var, tirx.Expr](), math.prod(())
        for loop in reversed(self.nest):
            extent = greatest(1, size_of(loop.extent))  # without lines there is nothing to divide by
            values[loop.loop_var] = tirx.floormod(tirx.floordiv(line.astype("int64"), int64(step)), int64(extent))
            step *= extent
        values |= {var: element.astype("int64") for var, element in (elements or {}).items()}
        return substituted(expr, values)


def _element(tensor: tirx.Var, index: tirx.Expr) -> tirx.Expr:
    return tirx.BufferLoad(tensor, [index])


def _row(total: tirx.Var, width: int, column: int) -> tirx.Expr:
    """Returns the index of a column of the next row."""
    first = _element(total, int64(0)) * int64(width)
    return first + int64(column) if column else first
