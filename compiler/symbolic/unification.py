"""Sizes that must be equal for a network's operators to fit each other, though its file does not say so.

    [n, 3] + [n_1, 3]                   only if n = n_1
    [h] joined with [(h // 16) * 16]    only if h is a multiple of 16
    [n, 4] seen as [2, 4]               only if n = 2
    [h // 32, w] seen as [1, w]         only if h is from 32 to 63
    [n // min(n, 512) * min(n, 512)]    of the size n only if n is at most 512
    [t] + [past + n]                    only if t is past + n
    [min(past + n, 64)] + [past + n]    only if past + n is at most 64
    [n, 4] taken from at [k, 4] places  only if n - k is at least 0

An operator asks for equal sizes with :func:`agree`. Where they are not equal for every size in the ranges, but for
some, building the network ends with :class:`~nnefc.symbolic.refinement.Narrowed`, and begins again with open
dimensions that are
narrowed so far that they are: one dimension instead of two, a sum of others, a multiple, one size. What a library is
given is checked against these.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, islice, product

import tvm_ffi
from tvm import tirx

from nnefc.symbolic.dims import (
    Dimension,
    Range,
    Size,
    bounds,
    is_counted,
    is_known,
    is_told,
    known_less,
    known_sums,
    may_exceed,
    open_variables,
    range_of,
    ranges,
    substituted,
    variables,
)
from nnefc.symbolic.formulas import factor_of, formula_of, value_of
from nnefc.symbolic.named_formulas import spelled
from nnefc.symbolic.refinement import Narrowed, parts_within

__all__ = ["agree", "agree_all", "covers", "within"]

_MOST_DIVISOR = 1 << 12
_MOST_ENDS = 4
"""Ends of a dimension that are tried together with those of others."""
_MOST_POINTS = 125
"""Sizes for which a difference is computed."""
_NO_END = 1 << 60


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
        for find in (_ordered, _same, _enough, _up_to, _computed, _multiple, _up_to_each, _between):
            found = find(difference)
            if found is not None and not _is_nothing_then((one, other), found):
                raise found
    return False


def agree_all(one: Sequence[Dimension], other: Sequence[Dimension]) -> bool:
    """Whether two shapes are equal, as :func:`agree` says."""
    return len(one) == len(other) and all(map(agree, one, other))


def covers(size: Dimension, part: Dimension) -> bool:
    """Whether a size is no less than another one, or may be where only the data tell: then the run has to look.

    Raises:
        Narrowed: it is where open dimensions are narrowed: to a larger least size or a smaller largest one, to a
            limit of a difference, or to one dimension instead of two.
    """
    if not may_exceed(part, size):
        return True
    if known_less(size, part):
        return False
    if is_counted(size) and is_known(part):  # there is memory for the greatest size
        return True
    difference = size - part
    assert isinstance(difference, Size)
    found = (
        _least(difference)
        or _most(difference)
        or _at_most(part - size, _ranges_of(difference), lambda: not may_exceed(part, size))
    )
    if found is not None:
        raise found
    return agree(size, part)


def within(size: Dimension, least: int, most: int) -> bool:
    """Whether a size is in a range, both ends included.

    Raises:
        Narrowed: it is where the open dimension is narrowed to that range.
    """
    lowest, greatest = bounds(size)
    if least <= lowest and greatest <= most:
        return True
    if most < lowest or greatest < least or not isinstance(size, Size) or not isinstance(size.expr, tirx.Var):
        return False
    raise Narrowed(ends={str(size.expr.name): (max(least, lowest), min(most, greatest))})


def _least(difference: Size) -> Narrowed | None:
    """The smallest sizes of one dimension from which on a difference is not negative."""
    own = list(_ranges_of(difference))
    return _from_least(own[0], lambda: bounds(difference)[0] >= 0, share=1) if len(own) == 1 else None


def _most(difference: Size) -> Narrowed | None:
    """The largest size of one dimension up to which a difference is not negative."""
    own = _ranges_of(difference)
    if len(own) != 1:
        return None
    ((var, values),) = own.items()
    sizes = range(values.least, values.most + 1)
    end = bisect_left(sizes, True, key=lambda size: bounds(substituted(difference, {var: size}))[0] < 0)
    if not 0 < end < len(sizes) or is_told(var):
        return None
    part = replace(values, most=sizes[end] - 1, typical=min(values.typical, sizes[end] - 1))
    with ranges({var: part}):
        holds = bounds(substituted(difference, {}))[0] >= 0
    return Narrowed(ends={str(var.name): (part.least, part.most)}) if holds else None


def _enough(difference: Size) -> Narrowed | None:
    """The smallest sizes of one dimension from which on there is no difference: no more than half of its range."""
    for var in _ranges_of(difference):
        found = _from_least(var, lambda: _is_nothing(substituted(difference, {})), share=2)
        if found is not None:
            return found
    return None


def _up_to(difference: Size) -> Narrowed | None:
    """The sizes of one dimension up to a number that the difference holds it to, where there is none below that."""
    own = _ranges_of(difference)
    if len(own) != 1:
        return None
    (var,) = own
    for part in _parts_up_to(difference, var, (tirx.Min,)):
        if _is_zero(difference, {}, {var: part}):
            return Narrowed(ends={str(var.name): (part.least, part.most)})
    return None


def _up_to_each(difference: Size) -> Narrowed | None:
    """The sizes of several dimensions up to numbers that the difference holds each of them to by itself.

    Where it is not proved that there is no difference then, none for some of the sizes is enough: the network is built
    again with these ranges, in which its sizes may be simpler, and the question is asked again.
    """
    own = _ranges_of(difference)
    parts = {var: _parts_up_to(difference, var, (tirx.Min, tirx.Max))[:_MOST_ENDS] for var in own}
    if len(own) < 2 or not all(parts.values()):
        return None
    for chosen in islice(product(*parts.values()), _MOST_ENDS**2):
        ranges_ = dict(zip(own, chosen, strict=True))
        if _is_zero(difference, {}, ranges_) or _seems_zero(difference, ranges_):
            return Narrowed(ends={str(var.name): (part.least, part.most) for var, part in ranges_.items()})
    return None


def _seems_zero(difference: Size, parts: Mapping[tirx.Var, Range]) -> bool:
    """Whether there is no difference for a few sizes of each dimension, those at the ends of its range among them."""
    tried = []
    for part in parts.values():
        near = (part.most, part.most - 1, part.least, part.least + 1, (part.least + part.most) // 2)
        tried.append(sorted({size for size in near if part.least <= size <= part.most}, reverse=True))
    points = (dict(zip(parts, sizes, strict=True)) for sizes in islice(product(*tried), _MOST_POINTS))
    return all(_is_nothing(substituted(difference, point)) for point in points)


def _parts_up_to(difference: Size, var: tirx.Var, kinds: tuple[type, ...]) -> list[Range]:
    """The ranges of a dimension up to where a minimum or a maximum of it alone changes sides; the longest first."""
    values = range_of(var)
    limits: set[int] = set()

    def note(node: tirx.Min | tirx.Max) -> None:
        if set(variables(node)) == {var}:
            limits.update(int(side) for side in (node.a, node.b) if isinstance(side, tirx.IntImm))
            limits.add(_last_of_sign(Size(node.a) - Size(node.b), var))

    for kind in kinds:
        tvm_ffi.structural_walk(difference.expr, (kind, note))
    ends = [most for most in sorted(limits, reverse=True) if values.least <= most < values.most]
    return [replace(values, most=most, typical=min(most, values.typical)) for most in ends]


def _is_nothing_then(sizes: Sequence[Dimension], found: Narrowed) -> bool:
    """Whether two open sizes are equal with fixed dimensions because there is nothing then: nobody runs that."""
    if not found.fixed or is_known(*sizes):
        return False
    values: dict[tirx.Var, Dimension] = {
        var: found.fixed[str(var.name)] for var in open_variables() if str(var.name) in found.fixed
    }
    return all(isinstance(size, Size) and _is_nothing(substituted(size, values)) for size in sizes)


def _last_of_sign(difference: Dimension, var: tirx.Var) -> int:
    """The largest size of a dimension up to which a difference is on the side of 0 on which it begins."""
    values = range_of(var)

    def is_over(size: int) -> bool:
        return bounds(substituted(difference, {var: size}))[0] > 0

    starts_over = is_over(values.least)
    return bisect_left(range(values.most + 1), True, values.least, key=lambda size: is_over(size) != starts_over) - 1


def _from_least(var: tirx.Var, holds: Callable[[], bool], share: int) -> Narrowed | None:
    """The smallest sizes of a dimension from which on a difference is as wanted, within a share of its range."""
    values = range_of(var)
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


def _computed(difference: Size) -> Narrowed | None:
    """One of several dimensions as what follows from the others: the one of which they are the parts."""
    own = _ranges_of(difference)
    if len(own) < 2:
        return None
    told = [var for var in own if is_told(var)][-1:]  # the last: what a size follows from is known before it
    candidates = []
    for var in told or own:
        factor = factor_of(difference, var)
        if factor not in (1, -1):
            continue
        value = substituted(difference, {var: 0}) * -factor
        least, most = bounds(value)
        if own[var].multiple == 1 and max(least, own[var].least) <= min(most, own[var].most) and most < 1 << 62:
            candidates.append((-least, str(var.name), value))
    if not candidates:
        return None
    _, name, value = min(candidates, key=lambda found: found[0])
    names = {var: value_of(str(var.name), known.multiple) for var, known in own.items()}
    formula = formula_of(value, names)
    return None if formula is None else Narrowed(computed={name: formula})


def _ordered(difference: Size) -> Narrowed | None:
    """Which of two sums of dimensions is the smaller one, where there is no difference then."""
    extremes: list[tirx.Min | tirx.Max] = []

    def no_difference() -> bool:
        return _is_nothing(substituted(difference, {}))

    for kind in (tirx.Min, tirx.Max):
        tvm_ffi.structural_walk(difference.expr, (kind, extremes.append))
    for extreme in extremes:
        for low, high in ((extreme.a, extreme.b), (extreme.b, extreme.a)):
            found = _at_most(Size(low) - Size(high), _ranges_of(difference), no_difference)
            if found is not None:
                return found
    return None


def _at_most(above: Dimension, used: Mapping[tirx.Var, Range], holds: Callable[[], bool]) -> Narrowed | None:
    """That `above`, a sum of several dimensions and a number, is not more than 0, if what is wanted holds then."""
    if not isinstance(above, Size):
        return None
    own = _ranges_of(above)
    if any(map(is_told, own)):  # nobody could be asked to keep to a limit
        return None
    factors = [factor_of(above, var) for var in own]
    constant = substituted(above, dict.fromkeys(own, 0))
    if len(own) < 2 or None in factors or not isinstance(constant, int):
        return None
    total, lowest, highest = above - constant, 0, -constant
    if sum(factor < 0 for factor in factors if factor is not None) * 2 >= len(factors):
        total, lowest, highest = -total, max(constant, 0), _NO_END
    assert isinstance(total, Size)
    least, most = bounds(total)
    if lowest > min(highest, most) or least > highest or any(values.multiple > 1 for values in own.values()):
        return None
    everywhere = {**used, **own}
    name = next((name for name, (known, _, _) in known_sums().items() if Size(known) == total), None)
    with ranges(everywhere | parts_within(total, lowest, highest, own), {"": (total.expr, lowest, highest)}):
        if not holds():
            return None
    formula = formula_of(total, {var: str(var.name) for var in own})
    if formula is None:
        return None
    end = None if highest == _NO_END else highest
    return Narrowed(limited={name or spelled(formula, str): (formula, lowest, end)})


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
        if least > most or (most == 0 < values.most and is_counted(Size(var))):  # nothing is what nobody counts
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
