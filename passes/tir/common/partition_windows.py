"""Partitions loops over windows that may lie partly outside of a tensor, into interior and boundary iterations.

    for x in n:                                          if 0 <= 2 y - 1 and 2 y + 1 < h:
        for i, j in 3, 3:                                    for x in 0 … a: the same without limits of y
            s = max(s, X[min(max(2 y + i - 1, 0), h - 1),    for x in a … b:
                         min(max(2 x + j - 1, 0), w - 1)])       for i, j in 3, 3:
                                                        →            s = max(s, X[2 y + i - 1, 2 x + j - 1])
                                                             for x in b … n: the same without limits of y
                                                         else:
                                                             the same, but without limits of x for x in a … b

So the long part in the middle has no conditions, and LLVM makes vectors of it. Conditions, and minima and maxima in
indices, are linear in the loop's variable and in those of loops of known length inside: `a` and `b`, and the condition
on `y`, are such that they are decided for all iterations of these.

A tile of a loop is computed by one of two versions instead: without conditions where all of its windows lie inside.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad
from tvm.sym import Analyzer, detect_linear_equation

from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import (
    IF_THEN_ELSE,
    conjuncts,
    inside,
    loads_of,
    rebuilt,
    substituted,
    variables_of,
)
from nnefc.passes.tir.common.overlap_tiles import overlapping_tiles, vector_lengths, vector_of_windows
from nnefc.passes.tir.common.statements import renewed, variables_defined

__all__ = ["partition_windows", "with_interior_version"]

_SHORTEST = 5  # iterations of a loop that is partitioned
_MAX_CONDITIONS = 24


def partition_windows(stmt: tirx.Stmt, lanes: Callable[[str], int] | None = None) -> tirx.Stmt:
    """Partitions such loops in the statements of a flat kernel.

    Args:
        lanes: of the vectors of an element type that compute the interior and may overlap; None: LLVM decides.
    """
    made = tvm_ffi.structural_map(stmt, (tirx.For, lambda loop: _cut(loop, lanes) if _is_of_results(loop) else loop))
    return tvm_ffi.structural_map(stmt, (tirx.For, lambda loop: _cut(loop, None))) if made.same_as(stmt) else made


def with_interior_version(tile: tirx.Stmt) -> tirx.Stmt:
    """Returns the statements of a tile in two versions; the one for windows inside of the tensor has no conditions."""
    loops: list[tirx.For] = []
    tvm_ffi.structural_walk(tile, (tirx.For, loops.append))
    known = {loop.loop_var: int(loop.extent) for loop in loops if _is_of_known_length(loop)}
    limits = _Limits(tirx.Var("tile", "int64"), known)
    limits.read(tile)
    is_clamped = any(isinstance(part, tirx.Min | tirx.Max) for part in limits.across)
    if not is_clamped or limits.count > _MAX_CONDITIONS or variables_defined(tile) & variables_of(limits.required):
        return tile

    def decided(store: tirx.BufferStore) -> tirx.BufferStore:
        return tirx.BufferStore(store.buffer, _decided(store.value, limits.across), store.indices)

    interior = renewed(tvm_ffi.structural_map(tile, (tirx.BufferStore, decided)))
    return tirx.IfThenElse(tirx.all(*limits.required), interior, tile)


def _is_of_known_length(loop: tirx.For) -> bool:
    return isinstance(loop.min, tirx.IntImm) and int(loop.min) == 0 and isinstance(loop.extent, tirx.IntImm)


def _is_of_results(loop: tirx.For) -> bool:
    """Whether the iterations of a loop store different elements: those of loops over the window do not."""
    stores: list[tirx.BufferStore] = []
    tvm_ffi.structural_walk(loop.body, (tirx.BufferStore, stores.append))
    return all(loop.loop_var in variables_of(store.indices) for store in stores)


def _cut(loop: tirx.For, lanes: Callable[[str], int] | None) -> tirx.Stmt:
    """Splits a loop with conditions on its variable into the border before, the interior, and the border after."""
    short = isinstance(loop.extent, tirx.IntImm) and int(loop.extent) < _SHORTEST
    inner = None if short or loop.kind != tirx.ForKind.SERIAL or loop.annotations else _loops_inside(loop.body)
    if inner is None:
        return loop
    limits = _Limits(loop.loop_var, inner)
    limits.read(loop.body)
    if not (limits.begins or limits.ends) or limits.count > _MAX_CONDITIONS:
        return loop
    first, stop = loop.min, loop.min + loop.extent
    begin, end = first, stop
    for low in limits.begins:
        begin = tirx.max(begin, low)
    begin = tirx.min(begin, stop)
    for high in limits.ends:
        end = tirx.min(end, high)
    end = tirx.max(begin, end)

    def middle(decided: Sequence[tirx.Expr]) -> tirx.Stmt:
        middle_loop = over(begin, end, decided)
        dtype = vector_of_windows(middle_loop) if lanes is not None and inner else None
        if lanes is None or dtype is None:
            return middle_loop
        body = lambda index: _copied(loop.body, {loop.loop_var: index}, decided)  # noqa: E731
        return overlapping_tiles(loop.loop_var, begin, end - begin, vector_lengths(lanes(dtype), dtype), body)

    def over(start: tirx.Expr, stop: tirx.Expr, decided: Sequence[tirx.Expr]) -> tirx.For:
        var = tirx.Var(loop.loop_var.name, loop.loop_var.ty)
        body = _copied(loop.body, {loop.loop_var: var}, decided)
        return tirx.For(var, start, stop - start, tirx.ForKind.SERIAL, body)

    def whole(decided: Sequence[tirx.Expr]) -> tirx.Stmt:
        before = [over(first, begin, decided)] if limits.begins else []
        after = [over(end, stop, decided)] if limits.ends else []
        return tirx.SeqStmt([*before, middle([*decided, *limits.along]), *after])

    if not limits.across:
        return whole(())
    return tirx.IfThenElse(tirx.all(*limits.required), whole(limits.across), whole(()))


def _loops_inside(stmt: tirx.Stmt) -> dict[tirx.Var, int] | None:
    """Returns the variables of the loops in a statement, with their lengths; None if it has statements that are not
    copied.
    """
    match stmt:
        case tirx.For():
            if not isinstance(stmt.min, tirx.IntImm) or int(stmt.min) or not isinstance(stmt.extent, tirx.IntImm):
                return None
            found = _loops_inside(stmt.body)
            return None if found is None else {stmt.loop_var: int(stmt.extent), **found}
        case tirx.SeqStmt():
            parts = list(stmt.seq)
        case tirx.IfThenElse():
            parts = [stmt.then_case, *([] if stmt.else_case is None else [stmt.else_case])]
        case tirx.BufferStore():
            return {}
        case _:
            return None
    every: dict[tirx.Var, int] = {}
    for part in parts:
        found = _loops_inside(part)
        if found is None:
            return None
        every |= found
    return every


@dataclass
class _Limits:
    """The bounds at which the conditions of a loop change.

    Attributes:
        var: of the loop.
        inner: variables of loops inside, with their lengths; without any, min and max of values alone are read.
        begins, ends: from where on it is, and up to where, not with it.
        along: conditions, minima and maxima that are decided there.
        across: others that are decided in all iterations where all that is `required` holds.
        count: of all of these.
    """

    var: tirx.Var
    inner: Mapping[tirx.Var, int]
    begins: list[tirx.Expr] = field(default_factory=list)
    ends: list[tirx.Expr] = field(default_factory=list)
    along: list[tirx.Expr] = field(default_factory=list)
    across: list[tirx.Expr] = field(default_factory=list)
    required: list[tirx.Expr] = field(default_factory=list)
    count: int = 0

    def read(self, stmt: tirx.Stmt) -> None:
        """Records the conditions by which stored values select."""
        tvm_ffi.structural_walk(stmt, (tirx.BufferStore, lambda store: self._value(store.value)))

    def _value(self, expr: tirx.Expr) -> None:
        waiting = [expr]
        while waiting:
            part = waiting.pop()
            condition = _condition(part)
            if condition is not None and self.inner:
                for each in conjuncts(condition):
                    self._note(each, _slack(each))
            if isinstance(part, TensorLoad):
                for index in part.indices if self.inner else ():
                    self._index(index)
                continue
            if isinstance(part, tirx.Min | tirx.Max) and _is_of_indices(part):  # the size of a window at the boundary
                self._index(part)
                continue
            waiting += _values_in(part)

    def _index(self, index: tirx.Expr) -> None:
        for min_max in _min_max(index):
            without = _decided(min_max, None)
            other = _other_side(min_max)
            if other is not None:
                low, high = (other, without) if isinstance(min_max, tirx.Max) else (without, other)
                self._note(min_max, high - low)

    def _note(self, part: tirx.Expr, slack: tirx.Expr | None) -> None:
        """Records that a condition is decided where its slack is not negative."""
        if slack is None or any(tvm_ffi.structural_equal(part, known) for known in (*self.along, *self.across)):
            return
        names = [self.var, *self.inner]
        linear = detect_linear_equation(slack, names)
        if not linear or not all(isinstance(step, tirx.IntImm) for step in linear[:-1]):
            return
        step, *steps = (int(each) for each in linear[:-1])
        base = linear[-1]
        if variables_of([base]) & set(names) or any(isinstance(each, TensorLoad) for each in inside(base)):
            return
        dtype = str(slack.expr_ty().dtype)
        minimum = sum(min(0, own * (count - 1)) for own, count in zip(steps, self.inner.values(), strict=True))
        known, size = Analyzer().simplify(base + tirx.IntImm(dtype, minimum)), tirx.IntImm(dtype, abs(step))
        self.count += 1
        if step > 0:
            self.begins.append(tirx.floordiv(size - 1 - known, size))
        elif step < 0:
            self.ends.append(tirx.floordiv(known, size) + 1)
        else:
            self.required.append(known >= tirx.IntImm(dtype, 0))
        (self.along if step else self.across).append(part)


def _values_in(expr: tirx.Expr) -> list[tirx.Expr]:
    """Returns the values that an expression is computed from, without the conditions that select them."""
    match expr:
        case tirx.Select():
            return [expr.condition, expr.true_value, expr.false_value]
        case Call():
            return [arg for arg in expr.args[:] if isinstance(arg, tirx.Expr)]
        case tirx.Cast() | tirx.Broadcast():
            return [expr.value]
        case tirx.Let():
            return [expr.value, expr.body]
    return [getattr(expr, side) for side in "ab" if hasattr(expr, side)]


def _condition(expr: tirx.Expr) -> tirx.Expr | None:
    """Returns the condition that an expression selects by, if it depends on indices only."""
    if isinstance(expr, tirx.Select):
        condition = expr.condition
    elif isinstance(expr, Call) and getattr(expr.op, "name", "") in IF_THEN_ELSE:
        condition = expr.args[0]
    else:
        return None
    return None if any(isinstance(part, TensorLoad) for part in inside(condition)) else condition


def _slack(condition: tirx.Expr) -> tirx.Expr | None:
    """Returns the number that is not negative where a comparison holds."""
    match condition:
        case tirx.LE() | tirx.LT():
            slack = condition.b - condition.a
        case tirx.GE() | tirx.GT():
            slack = condition.a - condition.b
        case _:
            return None
    dtype = str(slack.expr_ty().dtype)
    if "int" not in dtype:
        return None
    return slack - tirx.IntImm(dtype, 1) if isinstance(condition, tirx.LT | tirx.GT) else slack


def _is_of_indices(part: tirx.Min | tirx.Max) -> bool:
    """Whether a min or max is of integers that depend on loop variables only."""
    return str(part.a.expr_ty().dtype).startswith("int") and not loads_of(part)


def _min_max(index: tirx.Expr) -> list[tirx.Min | tirx.Max]:
    """Returns the minima and maxima in an index."""
    return [part for part in inside(index) if isinstance(part, tirx.Min | tirx.Max)]


def _other_side(min_max: tirx.Min | tirx.Max) -> tirx.Expr | None:
    """Returns the bound of an index in a min or max: the second operand, a dimension or a number."""
    return None if any(isinstance(part, tirx.Min | tirx.Max) for part in inside(min_max.b)) else min_max.b


def _decided(expr: tirx.Expr, decided: Sequence[tirx.Expr] | None) -> tirx.Expr:
    """Returns an expression in which these conditions hold and these minima and maxima are their first operand; None:
    all.
    """

    def is_decided(part: tirx.Expr) -> bool:
        return decided is None or any(tvm_ffi.structural_equal(part, known) for known in decided)

    def change(part: tirx.Expr) -> tirx.Expr:
        if isinstance(part, tirx.Min | tirx.Max) and is_decided(part):
            return change(part.a)
        if isinstance(part, tirx.Let):  # each copy has a name of its own
            name, value, body = tirx.Var(part.var.name, part.var.ty), change(part.value), change(part.body)
            return value if body.same_as(part.var) else tirx.Let(name, value, substituted(body, {part.var: name}))
        condition = None if decided is None else _condition(part)
        if condition is None:
            return rebuilt(part, change)
        left = [each for each in conjuncts(condition) if not is_decided(each)]
        chosen, other = (part.true_value, part.false_value) if isinstance(part, tirx.Select) else part.args[1:]
        if not left:
            return change(chosen)
        choose = tirx.Select if isinstance(part, tirx.Select) else tirx.if_then_else
        return choose(tirx.all(*left), change(chosen), change(other))

    return change(expr)


def _copied(stmt: tirx.Stmt, values: Mapping[tirx.Var, tirx.Expr], decided: Sequence[tirx.Expr]) -> tirx.Stmt:
    """Returns a copy of a statement with its own loop variables, in which these conditions are decided."""
    match stmt:
        case tirx.For():
            var = tirx.Var(stmt.loop_var.name, stmt.loop_var.ty)
            body = _copied(stmt.body, {**values, stmt.loop_var: var}, decided)
            return with_fields(stmt, loop_var=var, body=body)
        case tirx.SeqStmt():
            return tirx.SeqStmt([_copied(part, values, decided) for part in stmt.seq])
        case tirx.IfThenElse():
            other = None if stmt.else_case is None else _copied(stmt.else_case, values, decided)
            condition = substituted(stmt.condition, values)
            return tirx.IfThenElse(condition, _copied(stmt.then_case, values, decided), other)
    value = _decided(stmt.value, decided)
    positions = [substituted(position, values) for position in stmt.indices]
    return tirx.BufferStore(stmt.buffer, substituted(value, values), positions)
