"""Splits an offset into a tensor into coordinates, each a sum of multiples of a kernel's axes.

x[960 n + 320 c + 40 y + 8 x + 40 k + l - 40] where 1 <= y + k < 9, of a tensor [3, 3, 8, 5, 8]

coordinates n, c, y + k - 1, x, l, of which conditions keep the third within the tensor, sizes of axes the others
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tvm import tirx

from nnefc.passes.schedule.gpu.nest import Nest
from nnefc.passes.tir.common.expressions import linear_strides, number, substituted
from nnefc.passes.tir.common.shapes import Size
from nnefc.symbolic.dims import is_known

__all__ = ["Affine", "coordinates_of"]


@dataclass(frozen=True)
class Affine:
    """A sum of multiples of variables, and a constant."""

    steps: Mapping[tirx.Var, int]
    constant: int

    def at(self, values: Mapping[tirx.Var, tirx.Expr]) -> tirx.Expr:
        """Returns it for values of the variables; those without one are 0."""
        terms = (values[var] * number(step) for var, step in self.steps.items() if var in values)
        return sum(terms, number(self.constant))

    def bounds(self, sizes: Mapping[tirx.Var, int]) -> tuple[int, int]:
        """Returns its minimum and its maximum, of variables in [0, size)."""
        ends = [step * (sizes[var] - 1) for var, step in self.steps.items()]
        return self.constant + sum(min(0, end) for end in ends), self.constant + sum(max(0, end) for end in ends)


def _affine(expr: tirx.Expr, variables: Sequence[tirx.Var]) -> Affine | None:
    steps = linear_strides(expr, variables)
    first = Nest().simplify(substituted(expr, {var: number(0) for var in variables}))
    if steps is None or not all(map(is_known, steps)) or not isinstance(first, tirx.IntImm):
        return None
    return Affine({v: int(step) for v, step in zip(variables, steps, strict=True) if step != 0}, int(first.value))


def coordinates_of(
    offset: tirx.Expr, condition: tirx.Expr | None, of_axes: Mapping[tirx.Var, Size], sizes: Sequence[Size]
) -> tuple[Affine, ...] | None:
    """Returns the coordinates of an element, or None where no split keeps each of them within its dimension.

    Args:
        offset: of the element in the tensor.
        condition: on which it is read.
        of_axes: sizes of the axes that the offset depends on.
        sizes: of the tensor, that of the dimension whose elements are neighbours first; only the last may be dynamic.
    """
    whole = _affine(offset, tuple(of_axes))
    if whole is None:
        return None
    strides = [math.prod(int(size) for size in sizes[:dimension]) for dimension in range(len(sizes))]
    parts: list[dict[tirx.Var, int]] = [{} for _ in sizes]
    for var, step in whole.steps.items():
        dimension = next(d for d in reversed(range(len(sizes))) if step % strides[d] == 0 and abs(step) >= strides[d])
        parts[dimension][var] = step // strides[dimension]
    constants: dict[int, int] = {}
    ensured: set[tuple[int, bool]] = set()
    for part in [] if condition is None else _conjuncts(condition):
        bound = _bound(part, tuple(of_axes), parts, sizes)
        if bound is None or constants.setdefault(bound[0], bound[2]) != bound[2]:
            return None
        ensured.add(bound[:2])
    left = whole.constant - sum(constant * strides[dimension] for dimension, constant in constants.items())
    for dimension in reversed(range(len(sizes))):
        if dimension not in constants:
            constants[dimension], left = divmod(left, strides[dimension])
    found = tuple(Affine(steps, constants[dimension]) for dimension, steps in enumerate(parts))
    return found if left == 0 and _are_within(found, ensured, of_axes, sizes) else None


def _bound(
    condition: tirx.Expr, variables: Sequence[tirx.Var], parts: Sequence[Mapping[tirx.Var, int]], sizes: Sequence[Size]
) -> tuple[int, bool, int] | None:
    """Returns the dimension whose coordinate a condition bounds, whether from below, and the coordinate's constant."""
    match condition:
        case tirx.LE() | tirx.LT():
            difference = condition.b - condition.a - number(int(isinstance(condition, tirx.LT)))
        case tirx.GE() | tirx.GT():
            difference = condition.a - condition.b - number(int(isinstance(condition, tirx.GT)))
        case _:
            return None
    slack = _affine(difference, variables)
    if slack is None or not slack.steps:
        return None
    for dimension in range(len(sizes) - 1):
        if slack.steps == parts[dimension]:
            return dimension, True, slack.constant
        if slack.steps == {var: -step for var, step in parts[dimension].items()}:
            return dimension, False, int(sizes[dimension]) - 1 - slack.constant
    return None


def _are_within(
    coordinates: Sequence[Affine],
    ensured: set[tuple[int, bool]],
    of_axes: Mapping[tirx.Var, Size],
    sizes: Sequence[Size],
) -> bool:
    """Whether coordinates that no condition bounds are within their dimensions."""
    for dimension, (coordinate, size) in enumerate(zip(coordinates, sizes, strict=True)):
        if not is_known(size, *(of_axes[var] for var in coordinate.steps)):
            if coordinate != Affine(dict.fromkeys(coordinate.steps, 1), 0) or len(coordinate.steps) != 1:
                return False
            if of_axes[next(iter(coordinate.steps))] != size:
                return False
            continue
        lowest, highest = coordinate.bounds({var: int(of_axes[var]) for var in coordinate.steps})
        if (lowest < 0 and (dimension, True) not in ensured) or (highest >= size and (dimension, False) not in ensured):
            return False
    return True


def _conjuncts(condition: tirx.Expr) -> list[tirx.Expr]:
    if isinstance(condition, tirx.And):
        return [*_conjuncts(condition.a), *_conjuncts(condition.b)]
    return [condition]
