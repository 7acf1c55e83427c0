"""Broadcasts two unrelated dynamic dimensions at run time, where either they are equal or one of them is 1.

    [n, 3] - [k, 3]                      [broadcast(n, k), 3], a size that is known only in a run
    [broadcast(n, k), 3] - [k, 3]        [broadcast(n, k), 3]
    [broadcast(n, k)] times [n]          only if broadcast(n, k) is n, which each run is checked for

Only unrelated sizes broadcast, such as those of two inputs. Related sizes, such as `h` and `h // 2 * 2`, are unified
instead, since a size of 1 would serve no purpose. So are sums and their parts, such as `past + n` and the size of a
mask.
"""

from __future__ import annotations

from itertools import product

from nnefc.symbolic.dims import (
    Dimension,
    bounds,
    dimension,
    dynamic_variables,
    expression,
    is_known,
    is_unbounded_data_dependent,
    range_of,
    variables,
)
from nnefc.symbolic.formulas import formula_of, value_of
from nnefc.symbolic.named_formulas import spelled
from nnefc.symbolic.prover import Joins, known
from nnefc.symbolic.refinement import Refined
from nnefc.symbolic.unification import unify_dims

__all__ = ["fits", "joined_sizes", "joint"]


def joint(one: Dimension, other: Dimension) -> Dimension | None:
    """The size of a dimension of which two operands have these sizes; None if they do not broadcast.

    Raises:
        Refined: they broadcast to a size that is not known yet, or only where dynamic dimensions are refined.
    """
    if one == 1 or other == 1 or one == other:
        return other if one == 1 else one
    if is_known(one, other):
        return None
    found = _found(one, other)
    if found is None:
        if not _are_apart(one, other):
            return _refined(one, other)
        raise _unknown(one, other)
    for size in (one, other):
        if bounds(size)[0] > 1 and unify_dims(found, size):
            return size
    return found


def fits(size: Dimension, wanted: Dimension) -> bool:
    """Returns whether an operand of one size broadcasts to another one without enlarging that.

    Raises:
        Refined: it does where dynamic dimensions are refined.
    """
    if size == 1:
        return True
    if _found(size, wanted) is None and not _are_apart(size, wanted):
        return unify_dims(wanted, size)
    found = joint(size, wanted)
    return found is not None and unify_dims(found, wanted)


def joined_sizes(size: Dimension) -> tuple[Dimension, ...]:
    """A size, and all that broadcast to it."""
    found = [size]
    for part in found:
        for one, other, whole in _joins():
            if whole == part:
                found += [each for each in (one, other) if each not in found]
    return tuple(found)


def _refined(one: Dimension, other: Dimension) -> Dimension | None:
    """Broadcasts two sizes at compile time: unifies them, or one of them with 1."""
    if unify_dims(one, other) or unify_dims(other, 1):
        return one
    return other if unify_dims(one, 1) else None


def _joins() -> list[tuple[Dimension, Dimension, Dimension]]:
    joins: Joins = known().joins
    return [(dimension(one), dimension(other), dimension(whole)) for one, other, whole in joins]


def _are_apart(one: Dimension, other: Dimension) -> bool:
    """Returns whether two sizes follow from one dynamic dimension each, not from the same one, and the inputs tell
    both.
    """
    if is_known(one) or is_known(other) or min(bounds(one)[0], bounds(other)[0]) > 1:
        return False
    for left, right in product(_ends(one), _ends(other)):
        used, others = (set(variables(expression(size))) for size in (left, right))
        if max(len(used), len(others)) > 1 or any(map(is_unbounded_data_dependent, used | others)):
            return False
        if left != right and not used.isdisjoint(others):
            return False
    return True


def _found(one: Dimension, other: Dimension) -> Dimension | None:
    """Returns the size that two sizes are known to broadcast to, or None."""
    parts = [*joined_sizes(one), *joined_sizes(other)]
    wanted = [*_ends(one), *_ends(other)]
    for whole in (one, other, *(whole for _, _, whole in _joins())):
        inside = joined_sizes(whole)
        if all(end in inside for end in wanted) and all(end in parts for end in _ends(whole)):
            return whole
    return None


def _ends(size: Dimension) -> list[Dimension]:
    """Of the sizes that broadcast to a size, those to which no others do, or they themselves as well."""
    sizes, joins = joined_sizes(size), _joins()
    return [each for each in sizes if all(whole != each or each in (one, other) for one, other, whole in joins)]


def _unknown(one: Dimension, other: Dimension) -> Refined:
    """What asks for a dimension that two sizes broadcast to."""
    names = {var: value_of(str(var.name), range_of(var).multiple) for var in dynamic_variables()}
    first, second = (formula_of(size, names) for size in (one, other))
    try:
        _refined(one, other)
        instead: Refined | None = None
    except Refined as found:
        instead = found
    if first is None or second is None:
        assert instead is not None
        return instead
    formula = "broadcast", first, second
    return Refined(joined={spelled(formula, str): formula}, instead=instead)
