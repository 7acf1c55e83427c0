"""Sizes that must be equal for a network's operators to fit each other, though its file does not say so.

    [n, 3] + [n_1, 3]                   only if n = n_1
    [h] joined with [(h // 16) * 16]    only if h is a multiple of 16
    [n, 4] seen as [2, 4]               only if n = 2
    [h // 32, w] seen as [1, w]         only if h is from 32 to 63
    [n // min(n, 512) * min(n, 512)]    of the size n only if n is at most 512

An operator asks for equal sizes with :func:`agree`. Where they are not equal for every size in the ranges, but for
some, building the network ends with :class:`Narrowed`, and begins again with open dimensions that are narrowed so far
that they are: one dimension instead of two, a multiple, one size. What a library is given is checked against these.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations
from typing import TypeVar

import tvm_ffi
from tvm import tirx

from nnefc.diagnostics import CompileError
from nnefc.sizes import (
    LARGEST,
    Dimension,
    OpenSize,
    Range,
    Size,
    bounds,
    is_counted,
    is_known,
    known_less,
    may_exceed,
    open_variables,
    range_of,
    ranges,
    substituted,
    variables,
)

__all__ = ["Narrowed", "Narrowing", "agree", "agree_all", "covers", "narrowed"]

_T = TypeVar("_T")
_MOST_DIVISOR = 1 << 12
_MOST_ATTEMPTS = 64


class Narrowed(Exception):
    """Open dimensions are to be narrowed.

    Attributes:
        same: a dimension by the name of one that it is the same as.
        multiples: numbers that the sizes of dimensions must be multiples of, by name.
        fixed: sizes that dimensions must have, by name.
        ends: the least and the most that they may have, or None. These and `fixed` are divided by their multiples.
    """

    def __init__(
        self,
        same: Mapping[str, str] | None = None,
        multiples: Mapping[str, int] | None = None,
        fixed: Mapping[str, int] | None = None,
        ends: Mapping[str, tuple[int, int | None]] | None = None,
    ) -> None:
        super().__init__("open dimensions must be narrowed")
        self.same, self.multiples, self.fixed, self.ends = same or {}, multiples or {}, fixed or {}, ends or {}

    @property
    def names(self) -> set[str]:
        """Of the dimensions."""
        return {*self.same, *self.same.values(), *self.multiples, *self.fixed, *self.ends}


@dataclass
class Narrowing:
    """What is known of open dimensions after some attempts to build a network.

    Attributes:
        same: the name of the dimension that another one is the same as.
        sizes: of all open dimensions, by name, as far as they are narrowed.
        notes: what a user should know of that, by name.
    """

    same: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, OpenSize] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def of(self, name: str, size: OpenSize) -> tuple[str, OpenSize]:
        """The name and the sizes of a dimension that may have these as far as a user says."""
        while name in self.same:
            name = self.same[name]
        return name, self.sizes.setdefault(name, size)

    def add(self, found: Narrowed) -> None:
        """Narrow further.

        Raises:
            CompileError: no size is left, or only the data tell a size.
        """
        if not found.names <= set(self.sizes):
            sizes = " and ".join(f"'{name}'" for name in sorted(found.names))
            raise CompileError(
                f"the network's operators fit each other for some values of {sizes} only, "
                "and not all of these are sizes of inputs: only the data tell"
            )
        for name, other in found.same.items():
            one, two = self.sizes[name], self.sizes[other]
            most = min(one.most or LARGEST, two.most or LARGEST) if one.most or two.most else None
            multiple = math.lcm(one.multiple, two.multiple)
            self.same[name] = other
            self._narrow(other, replace(two, least=max(one.least, two.least), most=most, multiple=multiple))
        for name, factor in found.multiples.items():
            own = self.sizes[name]
            self._narrow(name, replace(own, multiple=own.multiple * factor))
            self.notes[name] = f"the sizes of '{name}' must be multiples of {own.multiple * factor} for its operators"
        for name, value in found.fixed.items():
            only = value * self.sizes[name].multiple
            self._narrow(name, OpenSize(only, only))
            self.notes[name] = f"the size of '{name}' must be {only} for its operators"
        for name, (least, most) in found.ends.items():
            own = self.sizes[name]
            size = replace(own, least=least * own.multiple, most=own.most if most is None else most * own.multiple)
            self._narrow(name, size)
            span = f"no less than {size.least}" if size.most is None else f"from {size.least} to {size.most}"
            self.notes[name] = f"the size of '{name}' must be {span} for its operators"

    def _narrow(self, name: str, size: OpenSize) -> None:
        if size.values.least > size.values.most:
            raise CompileError(
                f"no size of '{name}' fits the network's operators: it would have to be a multiple of {size.multiple} "
                f"from {size.least} to {size.most or LARGEST}",
                hint="give a wider range, such as --shape NAME=LEAST..MOST",
            )
        self.sizes[name] = size


def narrowed(build: Callable[[Narrowing], _T]) -> tuple[_T, Narrowing]:
    """What `build` makes when open dimensions are narrowed as far as it asks for; it begins anew each time.

    Raises:
        CompileError: no size is left.
    """
    narrowing = Narrowing()
    for _ in range(_MOST_ATTEMPTS):
        try:
            return build(narrowing), narrowing
        except Narrowed as found:
            narrowing.add(found)
    raise CompileError("the network's operators ask for ever narrower ranges of its open dimensions")


def agree(one: Dimension, other: Dimension) -> bool:
    """Whether two sizes are equal.

    Raises:
        Narrowed: they are where open dimensions are narrowed.
    """
    difference = one - other
    if not isinstance(difference, Size):
        return difference == 0
    least, most = bounds(difference)
    if least <= 0 <= most:
        for find in (_same, _enough, _up_to, _multiple, _between):
            found = find(difference)
            if found is not None:
                raise found
    return False


def agree_all(one: Sequence[Dimension], other: Sequence[Dimension]) -> bool:
    """Whether two shapes are equal, as :func:`agree` says."""
    return len(one) == len(other) and all(map(agree, one, other))


def covers(size: Dimension, part: Dimension) -> bool:
    """Whether a size is no less than another one, or may be where only the data tell: then the run has to look.

    Raises:
        Narrowed: it is where open dimensions are narrowed: to a larger least size, or to one dimension instead of two.
    """
    if not may_exceed(part, size):
        return True
    if known_less(size, part):
        return False
    if is_counted(size) and is_known(part):  # there is memory for the greatest size
        return True
    found = _least(size - part)
    if found is not None:
        raise found
    return agree(size, part)


def _least(difference: Dimension) -> Narrowed | None:
    """The smallest sizes of one dimension from which on a difference is not negative."""
    assert isinstance(difference, Size)
    return _from_least(difference, lambda: bounds(difference)[0] >= 0, share=1)


def _enough(difference: Size) -> Narrowed | None:
    """The smallest sizes of one dimension from which on there is no difference: no more than half of its range."""
    return _from_least(difference, lambda: _is_nothing(substituted(difference, {})), share=2)


def _up_to(difference: Size) -> Narrowed | None:
    """The sizes of one dimension up to a number that the difference holds it to, where there is none below that."""
    own = _ranges_of(difference)
    if len(own) != 1:
        return None
    ((var, values),) = own.items()
    limits: set[int] = set()

    def note(node: tirx.Min) -> None:
        limits.update(int(side) for side in (node.a, node.b) if isinstance(side, tirx.IntImm))

    tvm_ffi.structural_walk(difference.expr, (tirx.Min, note))
    for most in sorted(limits, reverse=True):
        part = replace(values, most=most, typical=min(most, values.typical))
        if values.least <= most < values.most and _is_zero(difference, {}, {var: part}):
            return Narrowed(ends={str(var.name): (values.least, most)})
    return None


def _from_least(difference: Size, holds: Callable[[], bool], share: int) -> Narrowed | None:
    """The smallest sizes of one dimension from which on a difference is as wanted, within a share of its range."""
    own = _ranges_of(difference)
    if len(own) != 1:
        return None
    ((var, values),) = own.items()
    below, enough = values.least, values.least + (values.most - values.least) // share

    def holds_from(least: int) -> bool:
        with ranges({var: replace(values, least=least, typical=max(least, values.typical))}):
            return holds()

    if holds_from(below) or not holds_from(enough):
        return None
    while enough - below > 1:
        middle = (below + enough) // 2
        below, enough = (below, middle) if holds_from(middle) else (middle, enough)
    return Narrowed(ends={str(var.name): (enough, None)})


def _same(difference: Size) -> Narrowed | None:
    """Two dimensions as one."""
    own = _ranges_of(difference)
    for (one, a), (other, b) in combinations(own.items(), 2):
        common = math.lcm(a.multiple, b.multiple)
        shared = tirx.Var("shared", "int64")
        values = {one: Size(shared) * (common // a.multiple), other: Size(shared) * (common // b.multiple)}
        if _is_zero(difference, values, own | {shared: a}):
            return Narrowed(same={str(other.name): str(one.name)})
    return None


def _multiple(difference: Size) -> Narrowed | None:
    """Dimensions as multiples of the smallest number that is enough."""
    own = _ranges_of(difference)
    whole = math.lcm(*_divisors(difference.expr))
    if whole > _MOST_DIVISOR:
        return None
    for factor in (number for number in range(2, whole + 1) if whole % number == 0):
        values: dict[tirx.Var, Dimension] = {var: Size(var) * factor for var in own}
        parts = {var: Range(-(-r.least // factor), r.most // factor, r.typical // factor) for var, r in own.items()}
        if any(part.most < max(part.least, 1) for part in parts.values()):
            return None
        if _is_zero(difference, values, parts):
            return Narrowed(multiples={str(var.name): factor for var in own})
    return None


def _between(difference: Size) -> Narrowed | None:
    """The sizes of one dimension between which, both included, the difference is 0; if it is one size, only that."""
    own = _ranges_of(difference)
    for var, values in own.items():
        least, most = _zeros(difference, var)
        if least > most:
            continue
        part = replace(values, least=least, most=most, typical=max(least, min(most, values.typical)))
        if _is_zero(difference, {}, {**own, var: part}):
            name = str(var.name)
            return Narrowed(fixed={name: least}) if least == most else Narrowed(ends={name: (least, most)})
    return None


def _zeros(difference: Size, var: tirx.Var) -> tuple[int, int]:
    """The first and the last size of a dimension for which the difference is 0, if it never falls or never rises.

    Where the others have their typical sizes; the first is greater than the last if there is none.
    """
    own = _ranges_of(difference)
    others: dict[tirx.Var, Dimension] = {other: known.typical for other, known in own.items() if other is not var}

    def value(size: int) -> int:
        return bounds(substituted(difference, {**others, var: size}))[0]

    values = own[var]
    sign = 1 if value(values.most) >= value(values.least) else -1
    least = bisect_left(range(values.most), 0, values.least, key=lambda size: sign * value(size))
    most = bisect_right(range(values.most), 0, least, key=lambda size: sign * value(size))
    return least, most - (value(most) != 0)


def _divisors(expr: tirx.Expr) -> list[int]:
    found = [1]

    def note(node: tirx.FloorDiv | tirx.FloorMod) -> None:
        if isinstance(node.b, tirx.IntImm):
            found.append(int(node.b))

    for kind in (tirx.FloorDiv, tirx.FloorMod):
        tvm_ffi.structural_walk(expr, (kind, note))
    return found


def _is_zero(difference: Size, values: Mapping[tirx.Var, Dimension], known: Mapping[tirx.Var, Range]) -> bool:
    with ranges(known):
        return _is_nothing(substituted(difference, values))


def _is_nothing(size: Dimension) -> bool:
    return isinstance(size, int) and size == 0


def _ranges_of(difference: Size) -> dict[tirx.Var, Range]:
    """The ranges of the dimensions in a size, in the order in which the network has these."""
    used = variables(difference.expr)
    return {var: range_of(var) for var in sorted(used, key=open_variables().index)}
