"""Whether the rounds of a loop, written as statements, could run in any order, and thus side by side.

    for v in range(12):
        for k in range(2):
            out[v % 3 + v // 3 % 4 * 3 + place[…] * 15] = …       # where 0 <= place[…] < 4

They could if each round has its own places in every tensor that is written. A place is a sum of digits, here of v
(3 values, 4 values) and of `place`, each times the number of places that the digits below it tell apart: so it tells
the digits, and these tell v.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir.expr import TensorLoad
from tvm.sym import Analyzer

from nnefc.passes.tir.expressions import conjuncts, inside

__all__ = ["independent_loops"]


@dataclass(frozen=True)
class _Access:
    """A place of a tensor that is read or written, the loops around it and the conditions under which it is."""

    buffer: tirx.Var
    index: tirx.Expr
    writes: bool
    loops: tuple[tirx.For, ...]
    conditions: tuple[tirx.Expr, ...]


class _Unknown(Exception):
    """Statements that nothing is known about."""


def independent_loops(nest: Sequence[tirx.For]) -> list[tirx.For]:
    """Those of some perfectly nested loops, the last of which holds the statements, whose rounds are independent.

    Rounds of different loops among them are independent of each other, too. The order of the others' must be kept.
    """
    try:
        if _leaves(nest[-1].body):
            return []
        accesses = list(_accesses(nest[-1].body, tuple(nest), ()))
    except _Unknown:
        return []
    written = {access.buffer for access in accesses if access.writes}
    matter = [access for access in accesses if access.buffer in written]
    chosen: list[tirx.For] = []
    for loop in nest:
        if all(_tells(matter, buffer, [*chosen, loop]) for buffer in written):
            chosen.append(loop)
    return chosen


def _accesses(stmt: tirx.Stmt, loops: tuple[tirx.For, ...], conditions: tuple[tirx.Expr, ...]) -> Iterator[_Access]:
    def reads(*exprs: tirx.Expr) -> Iterator[_Access]:
        for expr in exprs:
            for part in inside(expr):
                if isinstance(part, TensorLoad):
                    (index,) = part.indices  # tensors of such kernels are flat
                    yield _Access(part.source, index, False, loops, conditions)

    match stmt:
        case tirx.SeqStmt():
            for part in stmt.seq:
                yield from _accesses(part, loops, conditions)
        case tirx.For():
            yield from reads(stmt.min, stmt.extent)
            if not isinstance(stmt.extent, tirx.IntImm) or int(stmt.min):
                raise _Unknown
            yield from _accesses(stmt.body, (*loops, stmt), conditions)
        case tirx.IfThenElse():
            yield from reads(stmt.condition)
            yield from _accesses(stmt.then_case, loops, (*conditions, *conjuncts(stmt.condition)))
            if stmt.else_case is not None:
                yield from _accesses(stmt.else_case, loops, conditions)
        case tirx.BufferStore():
            yield from reads(stmt.value, *stmt.indices)
            if len(stmt.indices) != 1:
                raise _Unknown
            yield _Access(stmt.buffer, stmt.indices[0], True, loops, conditions)
        case tirx.Evaluate():  # a failure is reported
            yield from reads(stmt.value)
        case tirx.Break():
            return
        case _:
            raise _Unknown


def _leaves(stmt: tirx.Stmt) -> bool:
    """Whether statements may end the loop that they stand in."""
    match stmt:
        case tirx.Break() | tirx.Continue() | tirx.Return():
            return True
        case tirx.SeqStmt():
            return any(map(_leaves, stmt.seq))
        case tirx.IfThenElse():
            return _leaves(stmt.then_case) or (stmt.else_case is not None and _leaves(stmt.else_case))
    return False


@dataclass(frozen=True)
class _Digit:
    """A part of a place: `step` times a number from `low` to `high`; of some, `var // divisor % values` of a loop's."""

    step: int
    low: int
    high: int
    var: tirx.Var | None = None
    divisor: int = 1

    @property
    def values(self) -> int:
        """How many values the number has, if it begins with 0."""
        return self.high + 1

    @property
    def ends(self) -> tuple[int, int]:
        """What it adds to a place, at its lowest and its highest."""
        return self.step * self.low, self.step * self.high


def _tells(accesses: Sequence[_Access], buffer: tirx.Var, loops: Sequence[tirx.For]) -> bool:
    """Whether from any place of `buffer` that is accessed one can tell the rounds of `loops` in which it is."""
    extents = {loop.loop_var: int(loop.extent) for loop in loops}
    places = [_digits(access, extents) for access in accesses if access.buffer.same_as(buffer)]
    told = {frozenset(digit for digit in digits if digit.var is not None) for digits in places}
    if len(told) != 1:
        return False
    (common,) = told
    return all(_is_apart(digit, places) for digit in common) and all(
        _covers(common, var, extent) for var, extent in extents.items()
    )


def _is_apart(digit: _Digit, places: Iterable[Sequence[_Digit]]) -> bool:
    """Whether a digit is `place % period // digit.step`, whatever the other parts of the places are."""
    if digit.step <= 0:
        return False
    below, period = digit.step * digit.values, 0
    for digits in places:
        low = high = 0
        for other in digits:
            if other == digit:
                continue
            if abs(other.step) >= below:
                period = math.gcd(period, other.step)
            else:
                low, high = low + min(other.ends), high + max(other.ends)
        if low < 0 or high >= digit.step:
            return False
    return not period or period >= below


def _covers(digits: Iterable[_Digit], var: tirx.Var, extent: int) -> bool:
    """Whether the digits of a variable tell its value, up to `extent`."""
    told = 1
    own = [digit for digit in digits if digit.var is not None and digit.var.same_as(var)]
    for digit in sorted(own, key=lambda digit: digit.divisor):
        if digit.divisor == told:
            told *= digit.values
    return told >= extent


def _digits(access: _Access, extents: Mapping[tirx.Var, int]) -> list[_Digit]:
    analyzer = Analyzer()
    for loop in access.loops:
        analyzer.bind(loop.loop_var, tvm.ir.Range(0, loop.extent))
    return [_digit(part, step, access, extents, analyzer) for part, step in _terms(access.index, 1)]


def _terms(expr: tirx.Expr, step: int) -> Iterator[tuple[tirx.Expr, int]]:
    """The parts whose sum, each times its number, an index is."""
    match expr:
        case tirx.Add():
            yield from _terms(expr.a, step)
            yield from _terms(expr.b, step)
        case tirx.Sub():
            yield from _terms(expr.a, step)
            yield from _terms(expr.b, -step)
        case tirx.Mul(b=tirx.IntImm()):
            yield from _terms(expr.a, step * int(expr.b))
        case tirx.Mul(a=tirx.IntImm()):
            yield from _terms(expr.b, step * int(expr.a))
        case tirx.IntImm():
            yield tirx.IntImm("int64", 1), step * int(expr)
        case _:
            yield expr, step


def _digit(expr: tirx.Expr, step: int, access: _Access, extents: Mapping[tirx.Var, int], analyzer: Analyzer) -> _Digit:
    base, values = (expr.a, int(expr.b)) if _is_of_number(expr, tirx.FloorMod) else (expr, 0)
    base, divisor = (base.a, int(base.b)) if _is_of_number(base, tirx.FloorDiv) else (base, 1)
    if base in extents:
        most = -(-extents[base] // divisor)
        return _Digit(step, 0, min(values or most, most) - 1, base, divisor)
    bound = analyzer.const_int_bound(expr)
    low, high = int(bound.min_value), int(bound.max_value)
    for condition in access.conditions:
        match condition:
            case tirx.GE(b=tirx.IntImm()) if tvm_ffi.structural_equal(condition.a, expr):
                low = max(low, int(condition.b))
            case tirx.LT(b=tirx.IntImm()) if tvm_ffi.structural_equal(condition.a, expr):
                high = min(high, int(condition.b) - 1)
    return _Digit(step, low, high)


def _is_of_number(expr: tirx.Expr, kind: type[tirx.FloorDiv] | type[tirx.FloorMod]) -> bool:
    return isinstance(expr, kind) and isinstance(expr.b, tirx.IntImm)
