"""Checks whether the iterations of a loop in TIR statements are independent, so that they can run in parallel.

    for v in range(12):
        for k in range(2):
            out[v % 3 + v // 3 % 4 * 3 + slot[…] * 15] = …       # where 0 <= slot[…] < 4

Iterations are independent if each has its own indices in every tensor that is written. An index is read as a number
in a mixed radix, whose digits are the terms of the index:

    digit            step   values        the digits below it add up to
    v % 3               1   0 to 2        0
    v // 3 % 4          3   0 to 3        2 at most: less than its step, so that it can be read off
    slot[…]           15   0 to 3        11 at most

From any position `p` one can tell `v % 3` as `p % 3` and `v // 3 % 4` as `p % 15 // 3`, and from these two, v itself.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer

from nnefc.passes.tir.common.expressions import conjuncts, is_number, loads_of
from nnefc.passes.tir.common.shapes import size_of
from nnefc.symbolic.dims import bounds, is_known, is_size

__all__ = ["independent_loops"]


@dataclass(frozen=True)
class _Access:
    """An access to a tensor: its index, the loops around it, and the conditions under which it runs."""

    buffer: tirx.Var
    index: tirx.Expr
    writes: bool
    loops: tuple[tirx.For, ...]
    conditions: tuple[tirx.Expr, ...]


class _Unknown(Exception):
    """Statements that nothing is known about."""


def independent_loops(nest: Sequence[tirx.For]) -> list[tirx.For]:
    """Returns the loops with independent iterations, of perfectly nested loops whose last one holds the statements.

    Iterations of different loops among them are independent of each other, too. The order of the others' must be kept.
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
        if all(_are_distinct([*chosen, loop], matter, tensor) for tensor in written):
            chosen.append(loop)
    return chosen


def _accesses(stmt: tirx.Stmt, loops: tuple[tirx.For, ...], conditions: tuple[tirx.Expr, ...]) -> Iterator[_Access]:
    def reads(*exprs: tirx.Expr) -> Iterator[_Access]:
        for expr in exprs:
            for load in loads_of(expr):
                if len(load.indices) != 1:
                    raise _Unknown
                yield _Access(load.source, load.indices[0], False, loops, conditions)

    match stmt:
        case tirx.SeqStmt():
            for part in stmt.seq:
                yield from _accesses(part, loops, conditions)
        case tirx.For():
            yield from reads(stmt.min, stmt.extent)
            if not is_number(stmt.min, 0) or not is_size(stmt.extent):
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
    """A term of a position: `step` times a number from `low` to `high`; of some, `var // divisor % values` of a
    loop's."""

    step: int
    low: int
    high: int
    var: tirx.Var | None = None
    divisor: int = 1

    @property
    def values(self) -> int:
        """Returns the number of values that the number has, if it begins with 0."""
        return self.high + 1

    @property
    def ends(self) -> tuple[int, int]:
        """The smallest and the largest that it adds to a position."""
        minimum, maximum = sorted((self.step * self.low, self.step * self.high))
        return minimum, maximum


def _are_distinct(loops: Sequence[tirx.For], accesses: Sequence[_Access], tensor: tirx.Var) -> bool:
    """Whether any position of a tensor that is accessed tells the iterations of `loops` in which it is."""
    sizes = {loop.loop_var: _maximum(loop) for loop in loops}
    positions = [_digits(access, sizes) for access in accesses if access.buffer.same_as(tensor)]
    of_loops = {frozenset(digit for digit in digits if digit.var is not None) for digits in positions}
    if len(of_loops) != 1:
        return False  # the same iteration has another form elsewhere
    (digits,) = of_loops
    can_be_read = all(_can_be_read(digit, positions) for digit in digits)
    return can_be_read and all(_tell(digits, var, size) for var, size in sizes.items())


def _maximum(loop: tirx.For) -> int:
    """Returns the trip count of a loop; for a dynamic one its max: what holds for more iterations holds for fewer."""
    size = size_of(loop.extent)
    return size if is_known(size) else bounds(size)[1]


def _can_be_read(digit: _Digit, positions: Iterable[Sequence[_Digit]]) -> bool:
    """Whether a digit is `position % period // digit.step`, whatever the other digits of the positions are.

    The higher ones must be multiples of the period, and the sum of the lower ones less than the digit's step.
    """
    if digit.step <= 0:
        return False
    end, period = digit.step * digit.values, 0
    for digits in positions:
        others = [other for other in digits if other != digit]
        higher = [other for other in others if abs(other.step) >= end]
        lower = [other.ends for other in others if abs(other.step) < end]
        period = math.gcd(period, *(other.step for other in higher))
        if sum(minimum for minimum, _ in lower) < 0 or sum(maximum for _, maximum in lower) >= digit.step:
            return False
    return not period or period >= end


def _tell(digits: Iterable[_Digit], var: tirx.Var, size: int) -> bool:
    """Whether digits of a variable below `size` tell its value: `var % 3` and `var // 3 % 4` do, up to 12."""
    distinct = 1
    own = [digit for digit in digits if digit.var is not None and digit.var.same_as(var)]
    for digit in sorted(own, key=lambda digit: digit.divisor):
        if digit.divisor == distinct:
            distinct *= digit.values
    return distinct >= size


def _digits(access: _Access, sizes: Mapping[tirx.Var, int]) -> list[_Digit]:
    """Returns the terms of a position as digits; those of loops in `sizes` by their variables."""
    analyzer = Analyzer()
    for loop in access.loops:
        analyzer.bind(loop.loop_var, tvm.ir.Range(0, loop.extent))
    return [
        _digit_of_loop(part, step, sizes) or _Digit(step, *_bounds(part, access.conditions, analyzer))
        for part, step in _terms(access.index, 1)
    ]


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


def _digit_of_loop(expr: tirx.Expr, step: int, sizes: Mapping[tirx.Var, int]) -> _Digit | None:
    """`var`, `var // divisor`, `var % values` or `var // divisor % values` of one of the loops."""
    base, values = (expr.a, int(expr.b)) if _is_by_number(expr, tirx.FloorMod) else (expr, 0)
    base, divisor = (base.a, int(base.b)) if _is_by_number(base, tirx.FloorDiv) else (base, 1)
    if base not in sizes:
        return None
    maximum = -(-sizes[base] // divisor)
    return _Digit(step, 0, min(values or maximum, maximum) - 1, base, divisor)


def _is_by_number(expr: tirx.Expr, kind: type[tirx.FloorDiv] | type[tirx.FloorMod]) -> bool:
    return isinstance(expr, kind) and isinstance(expr.b, tirx.IntImm)


def _bounds(expr: tirx.Expr, conditions: Iterable[tirx.Expr], analyzer: Analyzer) -> tuple[int, int]:
    """Returns the smallest and the largest value of an expression where the conditions hold."""
    bound = analyzer.const_int_bound(expr)
    low, high = int(bound.min_value), int(bound.max_value)
    for condition in conditions:
        match condition:
            case tirx.GE(b=tirx.IntImm()) if tvm_ffi.structural_equal(condition.a, expr):
                low = max(low, int(condition.b))
            case tirx.LE(a=tirx.IntImm()) if tvm_ffi.structural_equal(condition.b, expr):
                low = max(low, int(condition.a))
            case tirx.LT(b=tirx.IntImm()) if tvm_ffi.structural_equal(condition.a, expr):
                high = min(high, int(condition.b) - 1)
    return low, high
