"""Infers the shapes of loop states whose sizes change between iterations, as growing lists.

    s = Concat(s, x)           [3, 8] before the loop: [3 + round, 8] in each iteration, where `round` is its number
    s = Compress(s, mask)      [n, 8] before it: the size is one more state of the loop, at most n

What changes is found by lowering the body: first with the sizes before the loop; then with a variable for each size
that is another one after it, until no more are found. What such a variable becomes tells how much is added.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from nnefc.ir.network import DataDependentSize
from nnefc.operators.base import Emitter
from nnefc.operators.tensor.data_dependent_sizes import before_the_run, new_count
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import (
    LARGEST,
    Dimension,
    Range,
    Size,
    bounds,
    expression,
    greatest,
    size_hint,
    variables,
    widest,
)

__all__ = ["Axis", "Growth", "bounded", "found"]

Axis = tuple[int, int]
"""The number of a tensor among the states, and of one of its dimensions."""

_LIKELY_TRIP_COUNT = 16


@dataclass(frozen=True, eq=False)
class Growth:
    """A size that changes from one iteration to the next.

    Attributes:
        axes: what has this size.
        first: before the first iteration.
        count: the size in the body; where `step` is known, the number of the iteration. It has no limit as long as the
            body is only looked at.
        step: what each iteration adds, if that is the same in all.
    """

    axes: tuple[Axis, ...]
    first: Dimension
    count: DataDependentSize
    step: Dimension | None = None

    @classmethod
    def looked_for(cls, axes: tuple[Axis, ...], first: Dimension) -> Growth:
        """A size of which it is not known how it changes."""
        values = Range(0, LARGEST, min(LARGEST, size_hint(first) + _LIKELY_TRIP_COUNT))
        return cls(axes, first, new_count("grown", None, values))

    @property
    def size(self) -> Dimension:
        """The size in an iteration."""
        own = Size(self.count.var)
        return own if self.step is None else self.first + own * self.step

    @property
    def is_state(self) -> bool:
        """Whether a state of the loop has it."""
        return self.step is None and self.count.limit is not None


def found(
    known: Sequence[Growth], changes: Mapping[Axis, tuple[Dimension, Dimension]], after: Mapping[Axis, Dimension]
) -> list[Growth] | None:
    """The sizes that change, as far as a body that was lowered with those that are `known` tells; None if no more do.

    Args:
        changes: of other dimensions, the sizes before and after an iteration.
        after: an iteration, of the dimensions of those that are known.
    """
    made = [part for growth in known for part in _parted(growth, after)]
    apart = len(made) != len(known)
    new: list[Growth] = []
    for axis, sizes in changes.items():
        alike = next((i for i, growth in enumerate(new) if changes[growth.axes[0]] == sizes), None)
        if alike is None:
            new.append(Growth.looked_for((axis,), sizes[0]))
        else:
            new[alike] = replace(new[alike], axes=(*new[alike].axes, axis))
    return [*made, *new] if new or apart else None


def _parted(growth: Growth, after: Mapping[Axis, Dimension]) -> list[Growth]:
    """Split a growth into those of axes with equal sizes after an iteration."""
    parts: list[list[Axis]] = []
    for axis in growth.axes:
        alike = next((part for part in parts if after[part[0]] == after[axis]), None)
        if alike is None:
            parts.append([axis])
        else:
            alike.append(axis)
    return [growth] if len(parts) == 1 else [Growth.looked_for(tuple(part), growth.first) for part in parts]


def bounded(
    growths: Iterable[Growth],
    after: Mapping[Axis, Dimension],
    counts: Iterable[DataDependentSize],
    trip_count: Dimension | None,
    exact: bool,
    ctx: Emitter,
) -> list[Growth]:
    """Sizes that change, with what they are at most.

    Args:
        after: each size after an iteration, by its dimensions.
        counts: of the body that was looked at.
        trip_count: the greatest one; None if there is no greatest one.
        exact: whether there are as many iterations.
        at: where the loop is.

    Raises:
        CompileError: there is no greatest size.
    """
    limits = {count.var: count.limit for count in counts if count.limit is not None}
    own = {*(growth.count.var for growth in growths), *(count.var for count in counts)}
    number: DataDependentSize | None = None
    made: list[Growth] = []
    for growth in growths:
        size = after[growth.axes[0]]
        step = size - growth.size
        if exact and trip_count is not None and own.isdisjoint(_variables(step)):
            last = before_the_run(ctx, greatest(trip_count - 1, 0))
            number = new_count("round", last) if number is None else number
            made.append(replace(growth, count=number, step=step))
            continue
        more = greatest(widest(size, limits) - growth.size, 0)
        if not own.isdisjoint(_variables(more)):
            raise CompileError(
                "one of its states grows without a limit that is known before the loop",
                hint="let each iteration add so many elements at most as is known before the loop",
            )
        if more != 0 and trip_count is None:
            raise CompileError(
                "one of its states grows in each iteration, and nothing says how many iterations there are at most",
                hint="give the loop a trip count: the maximum iterations that there may be",
            )
        maximum = before_the_run(ctx, growth.first + more * (0 if trip_count is None else trip_count))
        made.append(replace(growth, count=new_count("grown", maximum)))
    return made


def _variables(size: Dimension) -> list[Any]:
    return variables(expression(size)) if bounds(size)[0] != bounds(size)[1] else []
