"""Broadcasts two unrelated dynamic dimensions at run time, if they are equal or one of them is 1.

    [n, 3] - [k, 3]                      [broadcast(n, k), 3], a size that is known only in a run
    [broadcast(n, k), 3] - [k, 3]        [broadcast(n, k), 3]
    [broadcast(n, k)] times [n]          only if broadcast(n, k) is n, which is checked in each run

Only unrelated sizes are broadcast, such as those of two inputs. Related sizes, such as `h` and `h // 2 * 2`, are
unified instead, since a size of 1 would serve no purpose. So are sums and their parts, such as `past + n` and the size
of a mask.
"""

from __future__ import annotations

from itertools import product

from nnefc.symbolic.dims import (
    Dimension,
    bounds,
    dimension,
    dynamic_variables,
    expression,
    is_data_dependent_dimension,
    is_known,
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
    """Return the size to which two sizes are broadcast; None if they cannot be.

    Raises:
        Refined: the resulting size is a dimension that does not exist yet, or dynamic dimensions have to be refined.
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
    """Return whether an operand of one size can be broadcast to `wanted`.

    Raises:
        Refined: it can if dynamic dimensions are refined.
    """
    if size == 1:
        return True
    if _found(size, wanted) is None and not _are_apart(size, wanted):
        return unify_dims(wanted, size)
    found = joint(size, wanted)
    return found is not None and unify_dims(found, wanted)


def joined_sizes(size: Dimension) -> tuple[Dimension, ...]:
    """Return a size, and all sizes that are broadcast to it."""
    found = [size]
    for part in found:
        for one, other, whole in _joins():
            if whole == part:
                found += [each for each in (one, other) if each not in found]
    return tuple(found)


def _refined(one: Dimension, other: Dimension) -> Dimension | None:
    """Broadcast two sizes at compile time: unify them, or one of them with 1."""
    if unify_dims(one, other) or unify_dims(other, 1):
        return one
    return other if unify_dims(one, 1) else None


def _joins() -> list[tuple[Dimension, Dimension, Dimension]]:
    joins: Joins = known().joins
    return [(dimension(one), dimension(other), dimension(whole)) for one, other, whole in joins]


def _are_apart(one: Dimension, other: Dimension) -> bool:
    """Return whether two sizes depend on one dynamic dimension each, on different ones, and the inputs determine
    both.
    """
    if is_known(one) or is_known(other) or min(bounds(one)[0], bounds(other)[0]) > 1:
        return False
    for left, right in product(_ends(one), _ends(other)):
        used, others = (set(variables(expression(size))) for size in (left, right))
        if max(len(used), len(others)) > 1 or any(map(is_data_dependent_dimension, used | others)):
            return False
        if left != right and not used.isdisjoint(others):
            return False
    return True


def _found(one: Dimension, other: Dimension) -> Dimension | None:
    """Return the known size to which two sizes are broadcast, or None."""
    parts = [*joined_sizes(one), *joined_sizes(other)]
    wanted = [*_ends(one), *_ends(other)]
    for whole in (one, other, *(whole for _, _, whole in _joins())):
        inside = joined_sizes(whole)
        if all(end in inside for end in wanted) and all(end in parts for end in _ends(whole)):
            return whole
    return None


def _ends(size: Dimension) -> list[Dimension]:
    """Return those of the sizes that are broadcast to a size to which no others are, or the size itself."""
    sizes, joins = joined_sizes(size), _joins()
    return [each for each in sizes if all(whole != each or each in (one, other) for one, other, whole in joins)]


def _unknown(one: Dimension, other: Dimension) -> Refined:
    """Return the exception that requests a dimension to which two sizes are broadcast."""
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
