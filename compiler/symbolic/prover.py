"""Proves facts about dynamic dimensions from their ranges and constraints while a network is built or lowered."""

from __future__ import annotations

import functools
import itertools
import operator
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Set
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeAlias, TypeVar

import tvm
import tvm_ffi
from tvm import tirx
from tvm.sym import Analyzer, ProofStrength

from nnefc.symbolic.expressions import (
    by_positive,
    factors_of,
    has_remainder,
    has_sum_as_factor,
    in_int64,
    multiplied_out,
    of_positive,
    structural_key,
    use_count,
    variables,
    without_remainders,
)
from nnefc.symbolic.ranges import MAX_ELEMENTS, Range

__all__ = ["Joins", "Known", "Sums", "known", "narrower_ranges", "ranges"]

_Answer = TypeVar("_Answer")


def _once(question: Callable[[Known, tirx.Expr], _Answer]) -> Callable[[Known, tirx.Expr], _Answer]:
    """Decorate a method of `Known` so that it caches its answer for each expression: passes ask about the same ones
    again.
    """

    @functools.wraps(question)
    def asked(known: Known, expr: tirx.Expr) -> _Answer:
        same, answers = known.answers[question.__name__]
        address = hash(expr)  # TVM hashes the address; `same` keeps the expression, so that no other gets it
        if address not in same:
            key = structural_key(expr)
            if key not in answers:
                answers[key] = question(known, expr)
            same[address] = expr, answers[key]
        answer: _Answer = same[address][1]
        return answer

    return asked


Sums: TypeAlias = "Mapping[str, tuple[tirx.Expr, int, int]]"

Joins: TypeAlias = "tuple[tuple[tirx.Expr, tirx.Expr, tirx.Expr], ...]"
"""Pairs of sizes that are broadcast at run time, each with the size to which they are broadcast."""

_MAX_REMAINDERS = 16
"""Maximum values of a remainder for which bounds are computed one by one."""

_FURTHEST = 1 << 62
"""No sizes are beyond this: TVM's bounds of products of unbounded sizes are the limits of int64."""


class Known:
    """Facts about the dynamic dimensions, and proofs from them.

    TVM uses z3 for proofs; its work is limited by a number of steps instead of time, so that results are reproducible.

    Args:
        dynamic_dimensions: the ranges of variables.
        sums: constraints by name: a sum of variables, its minimum and its maximum.
        joins: pairs of sizes that are broadcast, and their results.
    """

    def __init__(
        self, dynamic_dimensions: Mapping[tirx.Var, Range], sums: Sums | None = None, joins: Joins = ()
    ) -> None:
        self.sums, self.joins = dict(sums or {}), joins
        self._analyzer = Analyzer()
        self._size_hint: dict[tirx.Var, tirx.IntImm] = {}
        self._sample: dict[tirx.Var, tirx.IntImm] = {}
        self._locations: dict[tirx.Var, int] = {}
        self.answers: defaultdict[str, tuple[dict[int, Any], dict[Any, Any]]] = defaultdict(lambda: ({}, {}))
        self.open = dict(dynamic_dimensions)
        self.data_dependent: set[tirx.Var] = set()
        self.reported: set[tirx.Var] = set()
        self.noted: dict[tirx.Var, Range] = {}
        for var, values in dynamic_dimensions.items():
            self.note(var, values)

    def note(self, var: tirx.Var, values: Range) -> None:
        """Add the range of a variable that stands for a size."""
        self.noted[var] = values
        self._bind(var, values)

    def _bind(self, var: tirx.Var, values: Range) -> None:
        minimum, maximum = max(values.minimum, -_FURTHEST), min(values.maximum, _FURTHEST)
        self._analyzer.bind(var, tvm.ir.Range(minimum, maximum + 1))
        self._size_hint[var] = tirx.IntImm("int64", values.size_hint)
        self._locations.setdefault(var, len(self._locations))
        self._sample[var] = tirx.IntImm("int64", max(values.minimum, min(values.maximum, 37 + 24 * len(self._sample))))

    def count(self, var: tirx.Var, values: Range, has_limit: bool) -> None:
        """Add a data-dependent dimension."""
        self.note(var, values)
        self.open[var] = values
        self.reported.add(var)
        if has_limit:
            self.data_dependent.add(var)

    def forget(self, variables: Set[tirx.Var]) -> None:
        """Remove data-dependent dimensions."""
        self.reported -= variables
        self.data_dependent -= variables
        for var in [var for var in self.open if var in variables]:
            del self.open[var]

    @_once
    def simplified(self, expr: tirx.Expr) -> tirx.Expr:
        """Return an expression in TVM's simplest form, with the known ranges of its variables."""
        for var in variables(expr):
            if var not in self._size_hint:
                self._bind(var, _UNKNOWN)
        simple = self._ordered(self._analyzer.simplify(expr))
        positive = tvm_ffi.structural_map(simple, (tirx.FloorDiv, of_positive))
        positive = tvm_ffi.structural_map(positive, (tirx.FloorMod, by_positive))
        positive = tvm_ffi.structural_map(positive, (tirx.FloorDiv, self._in_a_factor))
        if not positive.same_as(simple):
            simple = self._ordered(self._analyzer.simplify(positive))
        if self.sums:
            simple = self._without_limits(simple)
        if not isinstance(simple, tirx.Add | tirx.Sub):
            return simple
        simple = self._without_mirrors(self._with_same_limits(simple))
        if not has_sum_as_factor(simple):
            return simple
        # (2 h + 2) * w - (h + 1) * w * 2 is 0
        expanded = self._ordered(self._analyzer.simplify(multiplied_out(simple)))
        return min(simple, expanded, key=use_count)

    def _in_a_factor(self, quotient: tirx.FloorDiv) -> tirx.Expr:
        """Return `(32 * n + 32) * w // 32` as `(n + 1) * w`: TVM divides no sum that is one of several factors."""
        factors = list(factors_of(quotient.a))
        if len(factors) == 1 or not isinstance(quotient.b, tirx.IntImm):
            return quotient
        for number, factor in enumerate(factors):
            if not isinstance(factor, tirx.Add | tirx.Sub):
                continue
            remainder = self._analyzer.simplify(tirx.floormod(factor, quotient.b))
            if isinstance(remainder, tirx.IntImm) and int(remainder) == 0:
                factors[number] = self._analyzer.simplify(tirx.floordiv(factor, quotient.b))
                return functools.reduce(operator.mul, factors)
        return quotient

    def _without_limits(self, simple: tirx.Expr) -> tirx.Expr:
        """Return an expression without those minima and maxima for which the constraints decide which operand they
        are.
        """

        def decided(min_max: tirx.Min | tirx.Max) -> tirx.Expr:
            difference = min_max.a - min_max.b
            minimum, maximum = self.bounds(difference)
            if minimum < 0 < maximum:
                return min_max
            return min_max.a if (maximum <= 0) == isinstance(min_max, tirx.Min) else min_max.b

        made = tvm_ffi.structural_map(tvm_ffi.structural_map(simple, (tirx.Min, decided)), (tirx.Max, decided))
        return simple if made.same_as(simple) else self._ordered(self._analyzer.simplify(made))

    def _with_same_limits(self, total: tirx.Expr) -> tirx.Expr:
        """Return a sum with equal minima, and maxima, in one form: TVM does not find that `min(h, a + b)` is
        `min(h, b + a)`.
        """
        made = total
        for kind in (tirx.Min, tirx.Max):
            found: list[Any] = []
            tvm_ffi.structural_walk(total, (kind, found.append))
            for one, other in itertools.islice(itertools.combinations(found, 2), _MAX_MIRRORS):
                if not tvm_ffi.structural_equal(one, other) and self._is_same(one, other):
                    made = tvm_ffi.structural_map(made, (kind, _exchange(other, one)))
        return total if made is total else self._ordered(self._analyzer.simplify(made))

    def _is_same(self, one: tirx.Min | tirx.Max, other: tirx.Min | tirx.Max) -> bool:
        """Return whether the operands of two minima, or of two maxima, are equal, in their order."""
        apart = (self._analyzer.simplify(left - right) for left, right in ((one.a, other.a), (one.b, other.b)))
        return all(isinstance(difference, tirx.IntImm) and not int(difference) for difference in apart)

    def _without_mirrors(self, total: tirx.Expr) -> tirx.Expr:
        """Return a sum without minima and maxima that cancel: `min(n, 300) + max(0, 300 - n)` is 300.

        If `p + a = q + b`, then `max(p, q) = p + a - min(a, b)`.
        """
        lower: list[tirx.Min] = []
        upper: list[tirx.Max] = []
        tvm_ffi.structural_walk(total, (tirx.Min, lower.append))
        if lower:
            tvm_ffi.structural_walk(total, (tirx.Max, upper.append))
        if len(lower) * len(upper) > _MAX_MIRRORS:
            return total
        pairs = itertools.product(lower, upper, (False, True))
        for minimum, maximum, commuted in pairs:
            a, b = (minimum.b, minimum.a) if commuted else (minimum.a, minimum.b)
            both = self._analyzer.simplify(maximum.a + a)
            apart = self._analyzer.simplify(both - (maximum.b + b))
            if not isinstance(apart, tirx.IntImm) or int(apart):
                continue
            stands = tirx.Var("minimum", "int64")
            made = tvm_ffi.structural_map(total, (tirx.Max, _exchange(maximum, both - stands)))
            made = self._analyzer.simplify(tvm_ffi.structural_map(made, (tirx.Min, _exchange(minimum, stands))))
            if stands not in variables(made):
                return self._ordered(made)
        return total

    def _ordered(self, simple: tirx.Expr) -> tirx.Expr:
        """Return a simplified expression with the factors of its products in a canonical order."""
        ordered = tvm_ffi.structural_map(simple, (tirx.Mul, self._in_order))
        return simple if ordered.same_as(simple) else self._analyzer.simplify(ordered)

    def _in_order(self, product: tirx.Mul) -> tirx.Expr:
        """Return a product with its factors in a canonical order, numbers last: TVM does not recognize other orders
        as equal.
        """

        def key(factor: tirx.Expr) -> tuple[bool, list[int]]:
            return isinstance(factor, tirx.IntImm), [self._locations[var] for var in variables(factor)]

        factors = list(factors_of(product))
        keys = list(map(key, factors))
        if all(map(operator.lt, keys, keys[1:])):
            ordered = factors
        else:
            ordered = sorted(factors, key=lambda factor: (*key(factor), str(factor)))
        same = all(map(operator.is_, factors, ordered)) and not isinstance(product.b, tirx.Mul)
        return product if same else functools.reduce(operator.mul, ordered)

    @_once
    def made(self, expr: tirx.Expr) -> int | tirx.Expr:
        """Return an expression as a number if its variables cancel, else in its simplest form."""
        simple = self.simplified(expr if str(expr.ty.dtype) == "int64" else in_int64(expr))
        if has_remainder(simple):
            simple = min(simple, self.simplified(without_remainders(simple)), key=has_remainder)
        if isinstance(simple, tirx.IntImm):
            return int(simple)
        minimum, maximum = self.bounds(simple)  # (h + 3) // 4 is 1 for h in 1..4: TVM finds that by its bounds alone
        return minimum if minimum == maximum else simple

    @_once
    def holds(self, condition: tirx.Expr) -> bool:
        """Returns whether a comparison is known to hold: by the bounds of both sides, or by a proof."""
        difference = condition.a - condition.b
        minimum, maximum = self.bounds(difference)
        match condition:
            case tirx.LT() | tirx.LE() if maximum < isinstance(condition, tirx.LE):
                return True
            case tirx.GT() | tirx.GE() if minimum > -isinstance(condition, tirx.GE):
                return True
        sign = {tirx.LT: operator.lt, tirx.LE: operator.le, tirx.GT: operator.gt, tirx.GE: operator.ge}[type(condition)]
        if not all(sign(example(difference), 0) for example in (self.size_hint, self.sample)):
            return False
        return bool(self._analyzer.can_prove(condition, ProofStrength.SYMBOLIC_BOUND))

    @_once
    def bounds(self, expr: tirx.Expr) -> tuple[int, int]:
        """Returns the min and max of an expression; the bounds may be loose."""
        simple = self.simplified(expr)
        each = [self._analyzer.const_int_bound(part) for part in self._by_remainder(simple)]
        minimum, maximum = min(int(bound.min_value) for bound in each), max(int(bound.max_value) for bound in each)
        used = set(variables(simple)) if self.sums else set()
        for known, lowest, highest in self.sums.values():
            if used != set(variables(known)):
                continue
            above, below = self._analyzer.simplify(simple - known), self._analyzer.simplify(simple + known)
            if isinstance(above, tirx.IntImm):
                minimum, maximum = max(minimum, lowest + int(above)), min(maximum, highest + int(above))
            elif isinstance(below, tirx.IntImm):
                minimum, maximum = max(minimum, int(below) - highest), min(maximum, int(below) - lowest)
        return minimum, maximum

    def _by_remainder(self, expr: tirx.Expr) -> list[tirx.Expr]:
        """Return the expression for each value of the only remainder in it.

        TVM bounds the parts of `(m + 1) // 2 + 1 - m` with `m = h % 3` separately, and so finds the minimum -1 instead
        of 0.
        """
        found: list[tirx.FloorMod] = []
        tvm_ffi.structural_walk(expr, (tirx.FloorMod, found.append))
        if not found or not isinstance(found[0].b, tirx.IntImm) or int(found[0].b) > _MAX_REMAINDERS:
            return [expr]
        if use_count(expr) < 2 or not all(tvm_ffi.structural_equal(other, found[0]) for other in found[1:]):
            return [expr]
        values = (tirx.IntImm("int64", value) for value in range(int(found[0].b)))
        known = (tvm_ffi.structural_map(expr, (tirx.FloorMod, lambda _, value=value: value)) for value in values)
        return [self._analyzer.simplify(part) for part in known]

    @_once
    def size_hint(self, expr: tirx.Expr) -> int:
        """Return the value at the size hints of the variables; at larger values if it would divide by 0 there."""
        try:
            return self._value(expr, self._size_hint)
        except tvm.error.InternalError:
            larger = {var: tirx.IntImm("int64", 2 * int(value) + 1) for var, value in self._size_hint.items()}
            return self._value(expr, larger)

    @_once
    def sample(self, expr: tirx.Expr) -> int:
        """Return the value at other values of the variables: if two expressions differ in it, they are not equal."""
        return self._value(expr, self._sample)

    def _value(self, expr: tirx.Expr, values: Mapping[tirx.Var, tirx.IntImm]) -> int:
        self.simplified(expr)
        return int(self._analyzer.simplify(tvm_ffi.structural_map(expr, (tirx.Var, values.__getitem__))))


def _exchange(part: tirx.Expr, other: tirx.Expr) -> Callable[[tirx.Expr], tirx.Expr]:
    """Returns a rewriter that replaces an expression equal to a part, and leaves others unchanged."""
    return lambda found: other if tvm_ffi.structural_equal(found, part) else found


_MAX_MIRRORS = 16
"""Maximum pairs of a minimum and a maximum that are examined in a sum."""

_PRESENT: ContextVar[Known | None] = ContextVar("nnefc.symbolic.prover", default=None)
_UNKNOWN = Range(0, MAX_ELEMENTS, 64)
"""The range of variables without constraints, as in a computation that is analyzed by itself."""


@contextmanager
def ranges(dynamic_dimensions: Mapping[tirx.Var, Range], sums: Sums | None = None, joins: Joins = ()) -> Iterator[None]:
    """Make the ranges of these variables and the constraints on their sums the only known facts within the context."""
    token = _PRESENT.set(Known(dynamic_dimensions, sums, joins))
    try:
        yield
    finally:
        _PRESENT.reset(token)


@contextmanager
def narrower_ranges(narrower: Mapping[str, Range], sums: Sums | None = None) -> Iterator[None]:
    """Restrict the ranges of the named dynamic dimensions within the context, and add constraints on sums."""
    outer = known()
    own = {var: narrower.get(str(var.name), values) for var, values in outer.open.items()}
    with ranges(own, {**outer.sums, **(sums or {})}, outer.joins):
        known().data_dependent |= outer.data_dependent
        known().reported |= outer.reported
        yield


def known() -> Known:
    """Return the facts known in the current context; outside of :func:`ranges`, none."""
    return _PRESENT.get() or Known({})
