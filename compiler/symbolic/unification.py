"""Unifies dimensions that operators of a network require to be equal, although the model's file does not say so.

    [n, 3] + [n_1, 3]                   only if n = n_1
    [h] joined with [(h // 16) * 16]    only if h is a multiple of 16
    [n, 4] seen as [2, 4]               only if n = 2
    [h // 32, w] seen as [1, w]         only if h is from 32 to 63
    [n // min(n, 512) * min(n, 512)]    of the size n only if n is at most 512
    [t] + [past + n]                    only if t is past + n
    [min(past + n, 64)] + [past + n]    only if past + n is at most 64
    [n, 4] taken from at [k, 4] indices only if n - k is at least 0
    heads of queries that share those of keys   only if queries % keys is 0

An operator requests equal sizes by :func:`unify_dims`. If they are equal for some sizes in the ranges but not for all,
building the network ends with :class:`~nnefc.symbolic.refinement.Refined`, and is restarted with refined dynamic
dimensions for which they are equal: one dimension instead of two, a sum of others, a multiple, a single size. The
library checks its inputs against these constraints.

Sizes that depend on data, such as `min(a, n) + max(n - b, 0)`, are not refined unless one of their dimensions can be
computed from the others: of an operand they are compared in each run, see :func:`compared_in_run`.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from itertools import combinations, islice, product

import tvm_ffi
from tvm import tirx

from nnefc.symbolic.dims import (
    Dimension,
    Range,
    Size,
    bounds,
    dynamic_variables,
    is_data_dependent,
    is_data_dependent_dimension,
    is_known,
    known_less,
    known_sum_dims,
    may_exceed,
    range_of,
    ranges,
    substituted,
    variables,
)
from nnefc.symbolic.formulas import factor_of, formula_of, value_of
from nnefc.symbolic.named_formulas import spelled
from nnefc.symbolic.refinement import Refined, parts_within

__all__ = [
    "ComparedInRun",
    "compared_in_run",
    "covers",
    "divides",
    "unify_counts",
    "unify_dims",
    "unify_repeated",
    "unify_shapes",
    "within",
]

_MAX_DIVISOR = 1 << 12
_MAX_ENDS = 4
"""Maximum number of bounds of a dimension that are tried together with those of others."""
_MAX_POINTS = 125
"""Maximum number of sizes for which a difference is computed."""
_NO_END = 1 << 60


class ComparedInRun(Exception):
    """Raised to request that each run checks whether two sizes are equal.

    Attributes:
        size: of an operand, depends on data.
        wanted: the size that it must have.
    """

    def __init__(self, size: Dimension, wanted: Dimension) -> None:
        super().__init__(f"a run must check whether {size} is {wanted}")
        self.size, self.wanted = size, wanted


_COMPARED: ContextVar[Sequence[Dimension]] = ContextVar("nnefc.compared", default=())


@contextmanager
def compared_in_run(sizes: Sequence[Dimension]) -> Iterator[None]:
    """Let :func:`unify_dims` raise `ComparedInRun` for these sizes, where it cannot compute a dimension from others."""
    token = _COMPARED.set((*_COMPARED.get(), *sizes))
    try:
        yield
    finally:
        _COMPARED.reset(token)


def unify_dims(one: Dimension, other: Dimension) -> bool:
    """Return whether two sizes are equal, or request constraints under which they are.

    Raises:
        Refined: they are equal under constraints on dynamic dimensions.
        ComparedInRun: one of them is to be compared in each run.
    """
    difference = one - other
    if not isinstance(difference, Size):
        return difference == 0
    minimum, maximum = bounds(difference)
    if minimum <= 0 <= maximum:
        for size, wanted in ((one, other), (other, one)):
            if size in _COMPARED.get() and not _is_computed(difference):
                raise ComparedInRun(size, wanted)
        for find in (_ordered, _same, _enough, _up_to, _computed, _multiple, _up_to_each, _between):
            found = find(difference)
            if found is not None and not _is_nothing_then((one, other), found):
                raise found
    return False


def _is_computed(difference: Size) -> bool:
    """Return whether two sizes are equal exactly if one dimension is another one, or is computed from others."""
    used = variables(difference.expr)
    if len(used) < 2:
        return True
    is_linear = all(factor_of(difference, var) is not None for var in used)
    return (is_linear and _same(difference) is not None) or _computed(difference) is not None


def unify_shapes(one: Sequence[Dimension], other: Sequence[Dimension]) -> bool:
    """Unifies two shapes dimension by dimension: see :func:`unify_dims`."""
    return len(one) == len(other) and all(map(unify_dims, one, other))


def unify_counts(one: Sequence[Dimension], other: Sequence[Dimension]) -> bool:
    """Unifies the numbers of elements of two shapes; dynamic shapes of the same rank dimension by dimension."""
    if len(one) == len(other) and not is_known(*one, *other):
        return unify_shapes(one, other)
    return unify_dims(math.prod(one), math.prod(other))


def unify_repeated(count: Dimension, size: Dimension) -> bool:
    """Return whether so many elements are one for each of `size`, or one for all.

    A count that is not known is unified with `size`: see :func:`unify_dims`.
    """
    return (is_known(count) and count == 1) or unify_dims(count, size)


def divides(divisor: Dimension, size: Dimension) -> bool:
    """Return whether a size is a multiple of another, which is not 0.

    Raises:
        Refined: it is under constraints: for a dynamic divisor, that the remainder is 0, which libraries check.
    """
    remainder = size % divisor
    if not isinstance(remainder, Size) or is_known(divisor):
        return unify_dims(remainder, 0)
    if any(maximum == 0 and Size(known) == remainder for known, _, maximum in known_sum_dims().values()):
        return True
    names = {var: value_of(str(var.name), known.multiple) for var, known in _ranges_of(remainder).items()}
    one, other = formula_of(size, names), formula_of(divisor, names)
    if one is None or other is None:
        return False
    formula = "%", one, other
    raise Refined(limited={spelled(formula, str): (formula, 0, 0)})


def covers(size: Dimension, part: Dimension) -> bool:
    """Return whether a size is at least `part`; data-dependent sizes are checked at run time.

    Raises:
        Refined: it is under constraints: a larger minimum, a smaller maximum, a bounded difference, or one dimension
            instead of two.
    """
    if not may_exceed(part, size):
        return True
    if known_less(size, part):
        return False
    if is_data_dependent(size) and is_known(part):  # there is memory for the greatest size
        return True
    difference = size - part
    assert isinstance(difference, Size)
    found = (
        _minimum(difference)
        or _maximum(difference)
        or _at_most(part - size, _ranges_of(difference), lambda: not may_exceed(part, size))
    )
    if found is not None:
        raise found
    return unify_dims(size, part)


def within(size: Dimension, minimum: int, maximum: int) -> bool:
    """Return whether a size is in a range, whose bounds are included.

    Raises:
        Refined: it is if the dynamic dimension is restricted to that range.
    """
    lowest, greatest = bounds(size)
    if minimum <= lowest and greatest <= maximum:
        return True
    if maximum < lowest or greatest < minimum or not isinstance(size, Size) or not isinstance(size.expr, tirx.Var):
        return False
    raise Refined(ends={str(size.expr.name): (max(minimum, lowest), min(maximum, greatest))})


def _minimum(difference: Size) -> Refined | None:
    """Return the minimum of one dimension from which a difference is not negative."""
    own = list(_ranges_of(difference))
    return _from_minimum(own[0], lambda: bounds(difference)[0] >= 0, share=1) if len(own) == 1 else None


def _maximum(difference: Size) -> Refined | None:
    """Return the maximum of one dimension up to which a difference is not negative."""
    own = _ranges_of(difference)
    if len(own) != 1:
        return None
    ((var, values),) = own.items()
    sizes = range(values.minimum, values.maximum + 1)
    end = bisect_left(sizes, True, key=lambda size: bounds(substituted(difference, {var: size}))[0] < 0)
    if not 0 < end < len(sizes) or is_data_dependent_dimension(var):
        return None
    part = replace(values, maximum=sizes[end] - 1, size_hint=min(values.size_hint, sizes[end] - 1))
    with ranges({var: part}):
        holds = bounds(substituted(difference, {}))[0] >= 0
    return Refined(ends={str(var.name): (part.minimum, part.maximum)}) if holds else None


def _enough(difference: Size) -> Refined | None:
    """Return the minimum of one dimension from which a difference is zero, within half of its range."""
    for var in _ranges_of(difference):
        found = _from_minimum(var, lambda: _is_nothing(substituted(difference, {})), share=2)
        if found is not None:
            return found
    return None


def _up_to(difference: Size) -> Refined | None:
    """Return the maximum of one dimension up to which a difference is zero."""
    own = _ranges_of(difference)
    if len(own) != 1:
        return None
    (var,) = own
    for part in _parts_up_to(difference, var, (tirx.Min,)):
        if _is_zero(difference, {}, {var: part}):
            return Refined(ends={str(var.name): (part.minimum, part.maximum)})
    return None


def _up_to_each(difference: Size) -> Refined | None:
    """Return the maxima of several dimensions, each derived from the difference by itself.

    If the difference is not proved to be zero then, it suffices that it is zero for some sizes: the network is rebuilt
    with these ranges, in which its sizes may be simpler, and the question is asked again.
    """
    own = _ranges_of(difference)
    parts = {var: _parts_up_to(difference, var, (tirx.Min, tirx.Max))[:_MAX_ENDS] for var in own}
    if len(own) < 2 or not all(parts.values()):
        return None
    for chosen in islice(product(*parts.values()), _MAX_ENDS**2):
        ranges_ = dict(zip(own, chosen, strict=True))
        if _is_zero(difference, {}, ranges_) or _seems_zero(difference, ranges_):
            return Refined(ends={str(var.name): (part.minimum, part.maximum) for var, part in ranges_.items()})
    return None


def _seems_zero(difference: Size, parts: Mapping[tirx.Var, Range]) -> bool:
    """Return whether a difference is zero for a few sizes of each dimension, the bounds of its range included."""
    tried = []
    for part in parts.values():
        near = (part.maximum, part.maximum - 1, part.minimum, part.minimum + 1, (part.minimum + part.maximum) // 2)
        tried.append(sorted({size for size in near if part.minimum <= size <= part.maximum}, reverse=True))
    points = (dict(zip(parts, sizes, strict=True)) for sizes in islice(product(*tried), _MAX_POINTS))
    return all(_is_nothing(substituted(difference, point)) for point in points)


def _parts_up_to(difference: Size, var: tirx.Var, kinds: tuple[type, ...]) -> list[Range]:
    """Return the ranges of a dimension up to each point at which a minimum or maximum of it changes sides; the
    longest first.
    """
    values = range_of(var)
    limits: set[int] = set()

    def note(node: tirx.Min | tirx.Max) -> None:
        if set(variables(node)) == {var}:
            limits.update(int(side) for side in (node.a, node.b) if isinstance(side, tirx.IntImm))
            limits.add(_last_of_sign(Size(node.a) - Size(node.b), var))

    for kind in kinds:
        tvm_ffi.structural_walk(difference.expr, (kind, note))
    ends = [maximum for maximum in sorted(limits, reverse=True) if values.minimum <= maximum < values.maximum]
    return [replace(values, maximum=maximum, size_hint=min(maximum, values.size_hint)) for maximum in ends]


def _is_nothing_then(sizes: Sequence[Dimension], found: Refined) -> bool:
    """Return whether two dynamic sizes are equal for fixed dimensions only because both are empty, which is useless."""
    if not found.fixed or is_known(*sizes):
        return False
    values: dict[tirx.Var, Dimension] = {
        var: found.fixed[str(var.name)] for var in dynamic_variables() if str(var.name) in found.fixed
    }
    return all(isinstance(size, Size) and _is_nothing(substituted(size, values)) for size in sizes)


def _last_of_sign(difference: Dimension, var: tirx.Var) -> int:
    """Return the largest size of a dimension up to which a difference has the sign that it has at the minimum."""
    values = range_of(var)

    def is_over(size: int) -> bool:
        return bounds(substituted(difference, {var: size}))[0] > 0

    starts_over = is_over(values.minimum)
    return (
        bisect_left(range(values.maximum + 1), True, values.minimum, key=lambda size: is_over(size) != starts_over) - 1
    )


def _from_minimum(var: tirx.Var, holds: Callable[[], bool], share: int) -> Refined | None:
    """Return the minimum of a dimension from which a condition holds, within a share of its range."""
    values = range_of(var)
    below, enough = values.minimum, values.minimum + (values.maximum - values.minimum) // share

    def holds_from(minimum: int) -> bool:
        with ranges({var: replace(values, minimum=minimum, size_hint=max(minimum, values.size_hint))}):
            return holds()

    if holds_from(below) or not holds_from(enough):
        return None
    while enough - below > 1:
        middle = (below + enough) // 2
        below, enough = (below, middle) if holds_from(middle) else (middle, enough)
    return Refined(ends={str(var.name): (enough, None)})


def _same(difference: Size) -> Refined | None:
    """Return the refinement that makes two dimensions one."""
    own = _ranges_of(difference)
    for (one, a), (other, b) in combinations(own.items(), 2):
        common = math.lcm(a.multiple, b.multiple)
        shared = tirx.Var("shared", "int64")
        values = {one: Size(shared) * (common // a.multiple), other: Size(shared) * (common // b.multiple)}
        if _is_zero(difference, values, own | {shared: a}):
            return Refined(same={str(other.name): str(one.name)})
    return None


def _computed(difference: Size) -> Refined | None:
    """Return the refinement by which one of several dimensions is computed from the others."""
    own = _ranges_of(difference)
    if len(own) < 2:
        return None
    # the last: what a size follows from is known before it
    reported = [var for var in own if is_data_dependent_dimension(var)][-1:]
    candidates = []
    for var in reported or own:
        factor = factor_of(difference, var)
        if factor not in (1, -1):
            continue
        value = substituted(difference, {var: 0}) * -factor
        minimum, maximum = bounds(value)
        if max(minimum, own[var].minimum) <= min(maximum, own[var].maximum) and maximum < 1 << 62:
            candidates.append((-minimum, str(var.name), value * own[var].multiple))
    if not candidates:
        return None
    _, name, value = min(candidates, key=lambda found: found[0])
    names = {var: value_of(str(var.name), known.multiple) for var, known in own.items()}
    formula = formula_of(value, names)
    return None if formula is None else Refined(computed={name: formula})


def _ordered(difference: Size) -> Refined | None:
    """Return the refinement that decides which of two sums of dimensions is smaller, if their difference is zero
    then.
    """
    min_max: list[tirx.Min | tirx.Max] = []

    def no_difference() -> bool:
        return _is_nothing(substituted(difference, {}))

    for kind in (tirx.Min, tirx.Max):
        tvm_ffi.structural_walk(difference.expr, (kind, min_max.append))
    for bound_expr in min_max:
        for low, high in ((bound_expr.a, bound_expr.b), (bound_expr.b, bound_expr.a)):
            found = _at_most(Size(low) - Size(high), _ranges_of(difference), no_difference)
            if found is not None:
                return found
    return None


def _at_most(above: Dimension, used: Mapping[tirx.Var, Range], holds: Callable[[], bool]) -> Refined | None:
    """Return the constraint that `above`, a sum of several dimensions and a number, is at most 0, if the wanted
    condition holds then.
    """
    if not isinstance(above, Size):
        return None
    own = _ranges_of(above)
    if any(map(is_data_dependent_dimension, own)):  # no user could be asked to keep to a limit
        return None
    factors = [factor_of(above, var) for var in own]
    constant = substituted(above, dict.fromkeys(own, 0))
    if len(own) < 2 or None in factors or not isinstance(constant, int):
        return None
    total, lowest, highest = above - constant, 0, -constant
    if sum(factor < 0 for factor in factors if factor is not None) * 2 >= len(factors):
        total, lowest, highest = -total, max(constant, 0), _NO_END
    assert isinstance(total, Size)
    minimum, maximum = bounds(total)
    if lowest > min(highest, maximum) or minimum > highest or any(values.multiple > 1 for values in own.values()):
        return None
    everywhere = {**used, **own}
    name = next((name for name, (known, _, _) in known_sum_dims().items() if Size(known) == total), None)
    with ranges(everywhere | parts_within(total, lowest, highest, own), {"": (total.expr, lowest, highest)}):
        if not holds():
            return None
    formula = formula_of(total, {var: str(var.name) for var in own})
    if formula is None:
        return None
    end = None if highest == _NO_END else highest
    return Refined(limited={name or spelled(formula, str): (formula, lowest, end)})


def _multiple(difference: Size) -> Refined | None:
    """Return the refinement of dimensions, of as few as are needed, to multiples of the smallest sufficient number."""
    own = _ranges_of(difference)
    whole = math.lcm(*_divisors(difference.expr))
    if whole > _MAX_DIVISOR:
        return None
    for factor in (number for number in range(2, whole + 1) if whole % number == 0):
        parts = {
            var: Range(-(-r.minimum // factor), r.maximum // factor, r.size_hint // factor) for var, r in own.items()
        }
        if any(part.maximum < max(part.minimum, 1) for part in parts.values()):
            return None
        if not _is_zero(difference, {var: Size(var) * factor for var in own}, parts):
            continue
        needed = list(own)
        for var in own:
            fewer = [other for other in needed if other is not var]
            values = {other: Size(other) * factor for other in fewer}
            if _is_zero(difference, values, own | {other: parts[other] for other in fewer}):
                needed = fewer
        return Refined(multiples={str(var.name): factor for var in needed})
    return None


def _between(difference: Size) -> Refined | None:
    """Return the range of one dimension in which a difference is 0; if it is a single size, that size."""
    own = _ranges_of(difference)
    for var, values in own.items():
        minimum, maximum = _zeros(difference, var)
        # a size of 0 is no solution for data-dependent dimensions
        if minimum > maximum or (maximum == 0 < values.maximum and is_data_dependent(Size(var))):
            continue
        part = replace(values, minimum=minimum, maximum=maximum, size_hint=max(minimum, min(maximum, values.size_hint)))
        if _is_zero(difference, {}, {**own, var: part}):
            name = str(var.name)
            return Refined(fixed={name: minimum}) if minimum == maximum else Refined(ends={name: (minimum, maximum)})
    return None


def _zeros(difference: Size, var: tirx.Var) -> tuple[int, int]:
    """Return the first and the last size of a dimension for which a difference is 0, if the difference is monotonic.

    Other dimensions have their size hints. Without a zero the first size is greater than the last.
    """
    own = _ranges_of(difference)
    others: dict[tirx.Var, Dimension] = {other: known.size_hint for other, known in own.items() if other is not var}

    def value(size: int) -> int:
        return bounds(substituted(difference, {**others, var: size}))[0]

    values = own[var]
    sign = 1 if value(values.maximum) >= value(values.minimum) else -1
    minimum = bisect_left(range(values.maximum), 0, values.minimum, key=lambda size: sign * value(size))
    maximum = bisect_right(range(values.maximum), 0, minimum, key=lambda size: sign * value(size))
    return minimum, maximum - (value(maximum) != 0)


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
    """Return the ranges of the dimensions in a size, in the network's order."""
    used = variables(difference.expr)
    return {var: range_of(var) for var in sorted(used, key=dynamic_variables().index)}
