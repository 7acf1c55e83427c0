"""Parallelizes ordered loops over independent columns, such as scatters that add rows, by blocks of columns.

    for k in rows:                                parallel for block in columns / 32:
        for j in columns:                →            for k in rows:
            if 0 <= slot[k] < n:                         if 0 <= slot[k] < n:
                out[slot[k], j] += x[k, j]                   for j in the block: out[slot[k], j] += x[k, j]
            else: report(…)                               else: report(…)

What is the same for all columns is looked at once, so that the inner loop is one over lines of memory, which LLVM
vectorizes. Threads share the columns: each adds to its own in the order of the rows, so that results do not depend on
how many threads there are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import s_tir, tirx

from nnefc.ir.rebuild import root_block, with_fields
from nnefc.passes.schedule.analysis import KernelAnalysis
from nnefc.passes.schedule.loop_nests import is_independent, nest_of, statements_of
from nnefc.passes.schedule.schedules import largest_divisor, schedule_of
from nnefc.passes.tir.common.expressions import int64, variables_of
from nnefc.passes.tir.common.shapes import Size, size_of
from nnefc.symbolic.dims import is_known, size_hint
from nnefc.targets.machine.cpu.target import Target

__all__ = ["IndependentColumnsRule"]

_MIN, _MAX = 8, 32
"""The minimum and maximum number of vectors of columns that a thread takes: each part of a row looks up its position
again. Rows of lengths in between are divided in two.
"""
_ENOUGH = 4
"""The iterations of an outer independent loop from which on threads share that loop instead."""


class IndependentColumnsRule:
    """Schedules a kernel of statements in which an ordered loop has a loop over independent columns inside."""

    def apply(self, kernel: KernelAnalysis, target: Target) -> s_tir.Schedule | None:
        func = kernel.func
        statements = statements_of(func)
        if statements is None:
            return None
        nests = [nest_of(statement) for statement in statements]
        if not any(map(_has_columns, nests)):
            return None
        made = [
            _by_columns(nest, target) if _has_columns(nest) else statement
            for statement, nest in zip(statements, nests, strict=True)
        ]
        body = made[0] if len(made) == 1 else tirx.SeqStmt(made)
        return schedule_of(with_fields(func, body=root_block(body)))


def _has_columns(nest: Sequence[tirx.For]) -> bool:
    """Whether the loops are one over columns in one whose order matters, and perhaps an independent one around both."""
    if not 2 <= len(nest) <= 3:
        return False
    *lines, rows, columns = nest
    return is_independent(columns) and not is_independent(rows) and all(map(is_independent, lines))


def _by_columns(nest: Sequence[tirx.For], target: Target) -> tirx.Stmt:
    *lines, rows, columns = nest
    count = math.prod(size_of(loop.extent) for loop in lines)
    size = size_of(columns.extent)
    large = size_hint(count * size_of(rows.extent) * size) >= target.parallel_grain
    width = _width(size, target) if large and size_hint(count) < _ENOUGH else size
    parts = size // width if is_known(width) else 1
    shared, column = tirx.Var("part", "int64"), tirx.Var("column", "int64")
    position = tirx.floormod(shared, int64(parts)) * int64(width) + column
    body = _once_for_all(columns, column, width, position)
    body = with_fields(rows, kind=tirx.ForKind.SERIAL, body=body, annotations=None)
    for loop in lines:
        body = tirx.SeqStmt([tirx.Bind(loop.loop_var, tirx.floordiv(shared, int64(parts))), body])
    kind = tirx.ForKind.PARALLEL if large and size_hint(count * parts) > 1 else tirx.ForKind.SERIAL
    return tirx.For(shared, int64(0), int64(count * parts), kind, body)


def _width(size: Size, target: Target) -> Size:
    """Returns the number of columns that a thread takes at a time."""
    if not is_known(size):
        return size
    lanes = target.lanes("float32")
    return largest_divisor(size, max(_MIN * lanes, min(size // 2, _MAX * lanes)))


def _once_for_all(columns: tirx.For, column: tirx.Var, width: Size, position: tirx.Expr) -> tirx.Stmt:
    """Returns the body of a loop over columns for `width` of them, with conditions that are equal for all columns
    outside of the inner loop.
    """

    def each(body: tirx.Stmt) -> tirx.Stmt:
        body = tirx.SeqStmt([tirx.Bind(columns.loop_var, position), body])
        return tirx.For(column, int64(0), int64(width), tirx.ForKind.SERIAL, body)

    choice = columns.body
    if not isinstance(choice, tirx.IfThenElse) or columns.loop_var in variables_of([choice.condition]):
        return each(choice)
    return tirx.IfThenElse(choice.condition, each(choice.then_case), choice.else_case)
