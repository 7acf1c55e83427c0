"""Proves that indices are in bounds, from loop ranges, enclosing conditions, and the elements of constant tables.

TVM's analyzer knows the range of each variable. What it does not see are conditions on sums: that of `i < 7` and
`8 * i + j < 60` the element `100 * (8 * i + j) + k` is one of 6,000. So indices are sums of multiples here, from which
multiples of what conditions say to be at most 0 are subtracted.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from functools import reduce

import tvm
import tvm_ffi
from tvm import sym, tirx
from tvm.ir.expr import Call, StringImm, TensorLoad

from nnefc.targets.codegen.cpu.expressions import (
    LIKELY,
    dtype_of,
    inside,
    is_integer,
    is_pure,
    lanes_of,
    name_of,
    rebuilt,
)

__all__ = ["QUOTIENTS", "Ranges", "known_part"]

QUOTIENTS = (tirx.FloorDiv, tirx.FloorMod, tirx.Div, tirx.Mod)
_SUMS = (tirx.Add, tirx.Sub, tirx.Mul)
_SURE = 1 << 62  # integers of 64 bits below it did not overflow
_MAX_TERMS = 12
"""Of a sum that stands for a name."""
_MAX_CONDITIONS = 5
"""Subtracted from an index, one after the other."""
_MAX_TRIES = 32
"""Choices of them for an index."""


class Ranges:
    """The known ranges of integers at a position in a kernel.

    Attributes:
        tables: the smallest and the largest element of tensors that hold the same numbers in each run, and of pointers
            to such tensors.
    """

    def __init__(self) -> None:
        self.tables: dict[tirx.Var, tuple[int, int]] = {}
        self._analyzer = sym.Analyzer()
        self._elements: dict[int, list[tuple[TensorLoad, tirx.Var]]] = {}  # of tables, by their hash
        self._sums: dict[tirx.Var, _Sum] = {}  # that names stand for
        self._conditions: list[_Sum] = []  # each is at most 0
        self._facts: dict[object, list[_Sum]] = {}  # of terms: what is at most 0 for what they are

    def bind(self, var: tirx.Var, value: tirx.Expr) -> None:
        """A name for an integer, as far as something is known of it."""
        value = self._known(value)
        self._sums.pop(var, None)
        if not is_pure(value):
            self._analyzer.update(var, self._analyzer.const_int_bound(known_part(value)), override=True)
            return
        self._analyzer.bind(var, value, allow_override=True)
        if not self.may_overflow(value):
            total = self._sum(value)
            if len(total.terms) <= _MAX_TERMS:
                self._sums[var] = total

    @contextmanager
    def within(self, loop: tirx.For) -> Iterator[None]:
        """In the body of a loop."""
        var, span = loop.loop_var, tvm.ir.Range.from_min_extent(loop.min, loop.extent)
        self._sums.pop(var, None)
        self._analyzer.bind(var, span, allow_override=True)
        with self.under(tirx.And(loop.extent > 0, var < loop.min + loop.extent)):
            yield

    @contextmanager
    def under(self, condition: tirx.Expr) -> Iterator[None]:
        """While a condition holds: what it says of memory, which may change, is left out."""
        parts = map(self._known, _conjuncts(condition))
        known = [part for part in parts if is_pure(part) and lanes_of(part) == 1]
        if not known:
            yield
            return
        before = len(self._conditions)
        self._conditions += [total for part in known for total in self._at_most_zero(part)]
        with self._analyzer.constraint_scope(reduce(tirx.And, known)):
            yield
        del self._conditions[before:]

    def is_short(self, extent: tirx.Expr, maximum: int) -> bool:
        """Whether a loop has fewer iterations than `maximum`."""
        return bool(self._analyzer.const_int_bound(self._known(extent)).max_value < maximum)

    def proves(self, condition: tirx.Expr) -> bool:
        """Whether a condition is sure."""
        return bool(self._analyzer.can_prove(condition))

    def is_inside(self, position: tirx.Expr, extent: tirx.Expr) -> bool:
        """Whether an index is sure to be from 0 to below `extent`."""
        position = self._known(position)
        if self.may_overflow(position):
            return False
        bound = self._analyzer.const_int_bound(position)
        return (
            bound.min_value >= 0 or self.proves(position >= 0) or self._is_at_most_zero(self._sum(position) * -1)
        ) and (
            (isinstance(extent, tirx.IntImm) and bound.max_value < int(extent))
            or self.proves(position < extent)
            or self._is_at_most_zero(self._sum(position) + self._sum(extent) * -1 + _Sum({}, Fraction(1)))
        )

    def may_overflow(self, index: tirx.Expr) -> bool:
        """Whether a sum or product in an index may be beyond its type, by the ranges of what it is computed from."""
        for part in inside(index):
            if isinstance(part, _SUMS):
                limit = min(1 << (int(tvm.DataType(dtype_of(part)).bits) - 1), _SURE)
                bound = self._analyzer.const_int_bound(part)
                if bound.max_value >= limit or bound.min_value < -limit:
                    return True
        return False

    def _known(self, value: tirx.Expr) -> tirx.Expr:
        """Returns the same with names for elements of tables, and for quotients: where a check fails, either is 0."""
        if isinstance(value, StringImm):  # names a function of C
            return value
        value = rebuilt(value, self._known)
        if lanes_of(value) > 1 or not is_integer(value):
            return value
        if isinstance(value, TensorLoad) and value.source in self.tables and all(map(is_pure, value.indices)):
            return self._element(value, *self.tables[value.source])
        if isinstance(value, QUOTIENTS) and not isinstance(value.b, tirx.IntImm) and not self.proves(value.b != 0):
            bound = self._analyzer.const_int_bound(value)
            return self._named("quotient", value, bound.min_value, bound.max_value)
        return value

    def _element(self, load: TensorLoad, minimum: int, greatest: int) -> tirx.Expr:
        """Returns the same name for each time that an element of a table is read."""
        alike = self._elements.setdefault(tvm_ffi.structural_hash(load), [])
        for other, var in alike:
            if tvm_ffi.structural_equal(other, load):
                return var
        var = self._named("item", load, minimum, greatest)
        alike.append((load, var))
        return var

    def _named(self, name: str, value: tirx.Expr, minimum: int, greatest: int) -> tirx.Var:
        """Returns a name for a number within bounds, or for 0."""
        var = tirx.Var(name, value.expr_ty())
        if max(abs(minimum), abs(greatest)) < _SURE:
            self._analyzer.update(var, sym.ConstIntBound(min(minimum, 0), max(greatest, 0)), override=True)
        return var

    def _sum(self, value: tirx.Expr) -> _Sum:
        match value:
            case tirx.IntImm():
                return _Sum({}, Fraction(int(value)))
            case tirx.Var() if value in self._sums:
                return self._sums[value]
            case tirx.Add():
                return self._sum(value.a) + self._sum(value.b)
            case tirx.Sub():
                return self._sum(value.a) + self._sum(value.b) * -1
            case tirx.Mul() if isinstance(value.b, tirx.IntImm):
                return self._sum(value.a) * int(value.b)
            case tirx.Mul() if isinstance(value.a, tirx.IntImm):
                return self._sum(value.b) * int(value.a)
            case tirx.FloorMod() if isinstance(value.b, tirx.IntImm) and int(value.b) > 0:
                return self._sum(value.a) + self._sum(tirx.FloorDiv(value.a, value.b)) * -int(value.b)
            case tirx.Cast() if dtype_of(value.value) == "int32" and dtype_of(value) == "int64":
                return self._sum(value.value)
        key = value if isinstance(value, tirx.Var) else tvm_ffi.structural_hash(value)
        made = _Sum({key: (value, Fraction(1))}, Fraction(0))
        match value:
            case tirx.FloorDiv() if isinstance(value.b, tirx.IntImm) and int(value.b) > 0:
                tail = self._sum(value.a) + made * -int(value.b)
                self._facts[key] = [tail * -1, tail + _Sum({}, Fraction(1 - int(value.b)))]
            case tirx.Min():
                self._facts[key] = [made + self._sum(part) * -1 for part in (value.a, value.b)]
            case tirx.Max():
                self._facts[key] = [self._sum(part) + made * -1 for part in (value.a, value.b)]
        return made

    def _at_most_zero(self, condition: tirx.Expr) -> list[_Sum]:
        """Returns an expression that is at most 0 if a condition on integers holds."""
        is_wrong = isinstance(condition, tirx.Not)
        part = condition.a if is_wrong else condition
        if not isinstance(part, tirx.LT | tirx.LE | tirx.GT | tirx.GE | tirx.EQ) or not is_integer(part.a):
            return []
        if self.may_overflow(part.a) or self.may_overflow(part.b):
            return []
        above, one = self._sum(part.a) + self._sum(part.b) * -1, _Sum({}, Fraction(1))
        match part:
            case tirx.EQ():
                return [] if is_wrong else [above, above * -1]
            case tirx.LT():
                return [above * -1 if is_wrong else above + one]
            case tirx.LE():
                return [above * -1 + one if is_wrong else above]
            case tirx.GT():
                return [above if is_wrong else above * -1 + one]
        return [above + one if is_wrong else above * -1]

    def _is_at_most_zero(self, total: _Sum) -> bool:
        """Whether a sum is, for that is what it is without multiples of what conditions say to be at most 0."""
        known = [*self._conditions]
        named = dict.fromkeys(key for each in (total, *known) for key in each.terms)
        for key in (keys := list(named)):  # which grows
            for fact in self._facts.get(key, ()):
                known.append(fact)
                keys += [each for each in fact.terms if each not in named]
                named |= dict.fromkeys(fact.terms)
        waiting, tries = [(total, 0)], 0
        while waiting and tries < _MAX_TRIES:
            tries += 1
            total, used = waiting.pop()
            if self._greatest(total) <= 0:
                return True
            if used == _MAX_CONDITIONS or not total.terms:
                continue
            widest = max(total.terms, key=lambda key: self._width(*total.terms[key]))
            for condition in known:
                _, share = condition.terms.get(widest, (None, Fraction(0)))
                factor = total.terms[widest][1] / share if share else Fraction(0)
                if factor > 0:
                    waiting.append((total + condition * -factor, used + 1))
        return False

    def _greatest(self, total: _Sum) -> Fraction | float:
        found = total.more
        for value, factor in total.terms.values():
            bound = self._analyzer.const_int_bound(value)
            limit = bound.max_value if factor > 0 else bound.min_value
            if abs(limit) >= _SURE:
                return math.inf
            found += factor * limit
        return found

    def _width(self, value: tirx.Expr, factor: Fraction) -> float:
        """Returns the max distance between multiples of an integer."""
        bound = self._analyzer.const_int_bound(value)
        is_bounded = abs(bound.min_value) < _SURE and abs(bound.max_value) < _SURE
        return float(abs(factor) * (bound.max_value - bound.min_value)) if is_bounded else math.inf


class _Sum:
    """A sum of multiples.

    Attributes:
        terms: what there are multiples of, and how many, by the variable or what tells the expression from others.
        more: is added to them.
    """

    def __init__(self, terms: Mapping[object, tuple[tirx.Expr, Fraction]], more: Fraction) -> None:
        self.terms = {key: (value, factor) for key, (value, factor) in terms.items() if factor}
        self.more = more

    def __add__(self, other: _Sum) -> _Sum:
        terms = dict(self.terms)
        for key, (value, factor) in other.terms.items():
            terms[key] = (value, factor + (terms[key][1] if key in terms else 0))
        return _Sum(terms, self.more + other.more)

    def __mul__(self, factor: int | Fraction) -> _Sum:
        return _Sum({key: (value, own * factor) for key, (value, own) in self.terms.items()}, self.more * factor)


def known_part(value: tirx.Expr) -> tirx.Expr:
    """Returns the value of a variable that TVM does not substitute, such as the min with the largest integer."""
    if isinstance(value, Call) and name_of(value) == "tirx.call_llvm_intrin" and len(value.args) == 3:
        return value.args[2]
    return value


def _conjuncts(condition: tirx.Expr) -> list[tirx.Expr]:
    match condition:
        case tirx.And():
            return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
        case Call() if name_of(condition) == LIKELY:
            return _conjuncts(condition.args[0])
        case tirx.Not() if isinstance(condition.a, Call) and name_of(condition.a) == LIKELY:
            return [tirx.Not(condition.a.args[0])]
    return [condition]
