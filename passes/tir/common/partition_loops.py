"""Partitions loops where a condition on the loop variable changes, as at the ends of padding (index-set splitting).

    for i in n:                                        for i in a: P[i] = 0
        P[i] = X[i - a] if a <= i and i < b else 0  →  for i in a … b: P[i] = X[i - a]
                                                       for i in b … n: P[i] = 0

The long middle part then has no conditions, and LLVM vectorizes it. Of loops inside each other with one
assignment in the innermost, each is cut by what depends on its variable and on none of those inside. Independent
choices multiply the loops: where there would be too many, the parts where conditions hold are cut first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import tvm_ffi
from tvm import tirx
from tvm.ir.expr import Call, TensorLoad

from nnefc.ir.rebuild import with_fields
from nnefc.passes.tir.common.expressions import IF_THEN_ELSE, conjuncts, inside, substituted, variables_of

__all__ = ["is_cut_along", "limits_of", "partition_loops"]

_MAX_CHOICES = 8
"""The maximum number of selects in a value: a concatenation of many tensors would become a loop for each, guarded by
all before.
"""

_MAX_LOOPS = 32
"""The maximum number of innermost loops that one nest becomes: enough for the middle of seven tensors padded in a
plane.
"""

_SHORTEST = 5  # iterations of a loop that is partitioned
_COPIED = (tirx.ForKind.SERIAL, tirx.ForKind.VECTORIZED, tirx.ForKind.UNROLLED)


def partition_loops(stmt: tirx.Stmt) -> tirx.Stmt:
    """Partitions such loops in the statements of a flat kernel."""
    done: set[tirx.Var] = set()  # loops of nests that are cut: the map visits them, too

    def change(loop: tirx.For) -> tirx.Stmt:
        if loop.loop_var in done or _nest_in(loop) is None:
            return loop
        made, _ = _cut(loop, _MAX_LOOPS)
        tvm_ffi.structural_walk(made, (tirx.For, lambda each: done.add(each.loop_var)))
        return made

    return tvm_ffi.structural_map(stmt, (tirx.For, change), order="pre")


def is_cut_along(var: tirx.Var, extent: tirx.Expr, choices: Sequence[Call], unknown: set[tirx.Var]) -> bool:
    """Whether partitioning a loop removes selects from the value that it computes.

    Args:
        choices: all those of the value.
        unknown: variables that limits must not depend on.
    """
    if (isinstance(extent, tirx.IntImm) and int(extent) < _SHORTEST) or len(choices) > _MAX_CHOICES:
        return False
    conditions = (condition for choice in choices for condition in conjuncts(choice.args[0]))
    return any(any(limits_of(condition, var, unknown)) for condition in conditions)


def limits_of(condition: tirx.Expr, var: tirx.Var, unknown: set[tirx.Var]) -> tuple[list[tirx.Expr], list[tirx.Expr]]:
    """Return the lower (inclusive) and upper (exclusive) limits between which a condition on `var` holds.

    Both lists are empty if the condition is not an inequality of `var`.

    Args:
        unknown: variables that limits must not depend on.
    """
    match condition:
        case tirx.LE() | tirx.LT():
            low, high = condition.a, condition.b
        case tirx.GE() | tirx.GT():
            low, high = condition.b, condition.a
        case _:
            return [], []
    strict = int(isinstance(condition, tirx.LT | tirx.GT))
    begin, end = _solved(high, low, var, unknown), _solved(low, high, var, unknown)
    return [] if begin is None else [begin + strict], [] if end is None else [end + 1 - strict]


def _solved(side: tirx.Expr, other: tirx.Expr, var: tirx.Var, unknown: set[tirx.Var]) -> tirx.Expr | None:
    """Solves an inequality for the variable, where `side` is the variable plus or minus something and `other` is the
    other side.
    """
    while not side.same_as(var):
        match side:
            case tirx.Add() if var not in variables_of([side.b]):
                side, other = side.a, other - side.b
            case tirx.Add() if var not in variables_of([side.a]):
                side, other = side.b, other - side.a
            case tirx.Sub() if var not in variables_of([side.b]):
                side, other = side.a, other + side.b
            case _:
                return None
    reads = any(isinstance(part, TensorLoad | Call) for part in inside(other))
    return None if reads or variables_of([other]) & {var, *unknown} else other


@dataclass(frozen=True)
class _Nest:
    """Nested loops inside a loop, the outer ones first, with the assignment in the innermost."""

    loops: Sequence[tirx.For]
    store: tirx.BufferStore

    def repeated(self, values: dict[tirx.Var, tirx.Expr], value: tirx.Expr) -> tirx.Stmt:
        """Returns a copy of the nest with variables of its own, another value, and substituted outer variables."""
        known = dict(values)
        around: list[tuple[tirx.Var, tirx.Expr, tirx.Expr]] = []
        for loop in self.loops:
            var = tirx.Var(loop.loop_var.name, loop.loop_var.ty)
            around.append((var, substituted(loop.min, known), substituted(loop.extent, known)))
            known[loop.loop_var] = var
        index = [substituted(position, known) for position in self.store.indices]
        stmt: tirx.Stmt = tirx.BufferStore(self.store.buffer, substituted(value, known), index)
        for loop, (var, first, extent) in reversed(list(zip(self.loops, around, strict=True))):
            stmt = with_fields(loop, loop_var=var, min=first, extent=extent, body=stmt)
        return stmt


def _nest_in(loop: tirx.For) -> _Nest | None:
    loops, stmt = [], loop.body
    while isinstance(stmt, tirx.For) and stmt.kind in _COPIED:
        loops.append(stmt)
        stmt = stmt.body
    return _Nest(loops, stmt) if isinstance(stmt, tirx.BufferStore) else None


def _cut(stmt: tirx.Stmt, maximum: int) -> tuple[tirx.Stmt, int]:
    """Partitions the loops of a nest into at most the given number; returns the statements and the number of innermost
    loops.
    """
    nest = _nest_in(stmt) if isinstance(stmt, tirx.For) else None
    if nest is None:
        return stmt, 1
    unknown = {each.loop_var for each in nest.loops}
    choices = [part for part in inside(nest.store.value) if isinstance(part, Call) and part.op.name in IF_THEN_ELSE]
    if not choices:
        return stmt, 1
    is_serial = stmt.kind == tirx.ForKind.SERIAL and not stmt.annotations
    if is_serial and is_cut_along(stmt.loop_var, stmt.extent, choices, unknown):
        for choice in choices:
            made = _cut_by(stmt, nest, choice, maximum)
            if made is not None:
                return made
    body, count = _cut(stmt.body, maximum)
    if body.same_as(stmt.body):
        return stmt, count
    return with_fields(stmt, body=body), count


def _cut_by(loop: tirx.For, nest: _Nest, choice: Call, maximum: int) -> tuple[tirx.Stmt, int] | None:
    """Splits a loop into up to three parts, the conditions of a choice holding in the middle one; returns them and
    their number.
    """
    condition, chosen, other = choice.args
    var, unknown = loop.loop_var, {each.loop_var for each in nest.loops}
    begins: list[tirx.Expr] = []
    ends: list[tirx.Expr] = []
    tail = []
    for part in conjuncts(condition):
        lows, highs = limits_of(part, var, unknown)
        begins += lows
        ends += highs
        tail += [] if lows or highs else [part]
    if not begins and not ends:
        return None
    first, stop = loop.min, loop.min + loop.extent
    begin = _between(first, stop, begins[0] if begins else first)
    for low in begins[1:]:
        begin = tirx.max(begin, _between(first, stop, low))
    end = stop
    for high in ends:
        end = tirx.min(end, high)
    end = tirx.max(begin, end) if ends else end

    depends = bool(variables_of(tail) & {var, *unknown})
    asked = bool(tail) and not depends
    spare = maximum - 1 - bool(begins) - bool(ends) - asked
    if spare < 0:
        return None
    count = 0

    def over(start: tirx.Expr, end: tirx.Expr, value: tirx.Expr) -> tirx.Stmt:
        nonlocal count, spare
        own = tirx.Var(var.name, var.ty)
        replaced = tvm_ffi.structural_map(
            nest.store.value, (Call, lambda call: value if call.same_as(choice) else call), order="pre"
        )
        body = nest.repeated({var: own}, replaced)
        made, loops = _cut(tirx.For(own, start, end - start, tirx.ForKind.SERIAL, body), spare + 1)
        count, spare = count + loops, spare - loops + 1
        return made

    middle = over(begin, end, tirx.if_then_else(tirx.all(*tail), chosen, other) if depends else chosen)
    if asked:
        middle = tirx.IfThenElse(tirx.all(*tail), middle, over(begin, end, other))
    before = [over(first, begin, other)] if begins else []
    after = [over(end, stop, other)] if ends else []
    return tirx.SeqStmt([*before, middle, *after]), count


def _between(first: tirx.Expr, stop: tirx.Expr, position: tirx.Expr) -> tirx.Expr:
    return tirx.max(first, tirx.min(stop, position))
