"""Applies constraints on dynamic dimensions that hold in one branch of an If but not in the other.

    If(is_first):  [n, 4] + [total, 4]              total = n
    else:          [past + n, 4] + [total, 4]       total = past + n

Inside the branch, tensors from outside have the shapes that they have with such sizes. A run of the branch with other
sizes fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from nnefc.frontends.onnx.control.bodies import leaves, rebuilt
from nnefc.frontends.onnx.operator import Context
from nnefc.frontends.onnx.values import AnyValue, Map, Value
from nnefc.symbolic.arrays import of_elements
from nnefc.symbolic.dims import (
    Dimension,
    Range,
    Size,
    dynamic_variables,
    expression,
    is_data_dependent_dimension,
    may_exceed,
    narrower_ranges,
    range_of,
    substituted,
)
from nnefc.symbolic.formulas import size_of
from nnefc.symbolic.named_formulas import Formula, spelled
from nnefc.symbolic.prover import Sums
from nnefc.symbolic.refinement import Refined
from nnefc.symbolic.values import Boolean, Condition, Quotient, all_hold, equal, less_or_equal

__all__ = ["Assumed", "Assumption", "SeenInside"]


@dataclass(frozen=True, eq=False)
class Assumption:
    """A constraint on dynamic dimensions that holds in a branch.

    Attributes:
        found: the refinement that asked for it.
        contrary: sizes for which it does not hold, in words.
        holds: whether it does.
        values: what variables of dimensions are the same as.
        ranges: of dimensions, by name.
        sums: what else is known, by name: a size, its min and max.
    """

    found: Refined
    contrary: str
    holds: Boolean
    values: Mapping[Any, Dimension]
    ranges: Mapping[str, Range]
    sums: Sums

    @property
    def is_shared(self) -> bool:
        """Whether the whole network is refined if both branches need it; else each of them may have it."""
        return bool(self.found.names) and not self.found.ends


class Assumed:
    """Constraints that hold in a branch, each on the sizes that the earlier ones leave."""

    def __init__(self, assumptions: tuple[Assumption, ...] = ()) -> None:
        self.assumptions = assumptions

    def also(self, found: Refined) -> Assumed:
        """Return these assumptions and one more.

        Raises:
            Refined: it cannot be one of a branch alone: it has a data-dependent size, or results might be less than 0.
        """
        if found.apart:
            raise found
        found = found if found.instead is None else found.instead  # sizes that broadcast are equal in a branch
        made = _assumption(found)
        if any(made.contrary == other.contrary for other in self.assumptions):
            raise found  # it has been of no use
        return Assumed((*self.assumptions, made))

    def not_negative(self, sizes: Iterable[Dimension]) -> Assumed:
        """Return these assumptions and the one that no size is negative; `self` if that is known or assumed."""
        made = list(self.assumptions)
        for size in sizes:
            contrary = f"less than 0 for {size}"
            if may_exceed(0, size) and all(contrary != other.contrary for other in made):
                sums = {str(size): (expression(size), 0, _NO_END)}
                made.append(Assumption(Refined(), contrary, less_or_equal(0, size), {}, {}, sums))
        return self if len(made) == len(self.assumptions) else Assumed(tuple(made))

    @property
    def holds(self) -> Boolean:
        """Whether sizes are so."""
        return all_hold(each.holds for each in self.assumptions)

    @property
    def contrary(self) -> str:
        """Sizes for which it does not hold, in words."""
        return " or ".join(each.contrary for each in self.assumptions)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """A context in which the assumptions hold for dynamic dimensions."""
        limits: dict[str, Range] = {}
        sums: dict[str, Any] = {}
        for each in self.assumptions:
            limits |= each.ranges
            sums |= each.sums
        with narrower_ranges(limits, sums):
            yield

    def size(self, size: Dimension) -> Dimension:
        """Return a size as the assumptions make it."""
        for each in self.assumptions:
            size = substituted(size, each.values)
        return size


class SeenInside:
    """Values from outside a branch as they are inside; called in the branch, or in bodies in it.

    Args:
        ctx: builds the branch.
        assumed: what holds there.
    """

    def __init__(self, ctx: Context, assumed: Assumed) -> None:
        self._ctx = ctx
        self._assumed = assumed
        self._made: dict[tuple[int, int], tuple[object, AnyValue, AnyValue]] = {}

    def __call__(self, value: AnyValue) -> AnyValue:
        if isinstance(value, Map):
            return value
        frame = self._ctx.emitter.frames[-1]
        key = id(frame), id(value)
        if key not in self._made:  # with what the key is of, so that this is not made of something else later
            tensors = list(leaves([value]))
            seen = list(map(self._tensor, tensors))
            same = all(a is b for a, b in zip(tensors, seen, strict=True))
            self._made[key] = frame, value, value if same else rebuilt([value], iter(seen))[0]
        return self._made[key][2]

    def _tensor(self, value: Value) -> Value:
        if value.array is not None:
            return value
        if value.sizes is not None:
            return Value.of_sizes(
                of_elements([self._element(element) for element in value.sizes.flat], value.shape), value.dtype
            )
        shape = tuple(map(self._assumed.size, value.shape))
        if all(map(_is_same, shape, value.shape)):
            return value
        if 0 in shape or value.expr is None:
            return Value.empty(shape, value.dtype)
        made = self._ctx.emitter.reshaped(value.expr, shape)
        return replace(value, shape=shape, expr=made, fixed=False)

    def _element(self, element: Any) -> Any:
        """A number, a size, a quotient or a boolean."""
        match element:
            case Size():
                return self._assumed.size(element)
            case Quotient():
                return Quotient(self._assumed.size(element.above), self._assumed.size(element.below))
            case Condition():
                return equal(self._assumed.size(element.size), 1)
        return element


def _is_same(one: Dimension, other: Dimension) -> bool:
    return one is other or one == other


_NO_END = 1 << 60


def _assumption(found: Refined) -> Assumption:
    """Return a refinement as an assumption of a branch.

    Raises:
        Refined: it is none, or has to hold for the whole network.
    """
    made = _Reader(found)
    above = {n: (minimum, None) for n, (minimum, _) in found.ends.items() if minimum > made.range(n).minimum}
    if above:
        raise Refined(ends=above)
    for name, other in found.same.items():
        made.same(name, made.size(other), f"'{other}'")
    for name, formula in found.computed.items():
        made.same(name, size_of(formula, made.size), spelled(formula, str))
    for name, number in found.fixed.items():
        whole = number * made.range(name).multiple
        made.same(name, whole, str(whole))
    for name, factor in found.multiples.items():
        made.multiple(name, factor)
    for name, (_, maximum) in found.ends.items():
        if maximum is not None:
            made.maximum(name, maximum)
    for formula, minimum, end in found.limited.values():
        made.limited(formula, minimum, end)
    return Assumption(found, " or ".join(made.contrary), all_hold(made.holds), made.values, made.ranges, made.sums)


class _Reader:
    """Reads what was found of dynamic dimensions, one thing after the other, into the parts of an assumption."""

    def __init__(self, found: Refined) -> None:
        self._found = found
        self._known = {str(var.name): var for var in dynamic_variables() if not is_data_dependent_dimension(var)}
        if not self._known.keys() >= found.names:
            raise found  # one of them is data-dependent
        self.contrary: list[str] = []
        self.holds: list[Boolean] = []
        self.values: dict[Any, Dimension] = {}
        self.ranges: dict[str, Range] = {}
        self.sums: dict[str, Any] = {}

    def range(self, name: str) -> Range:
        """That of a dimension."""
        return range_of(self._known[name])

    def size(self, name: str) -> Dimension:
        """That of a dimension."""
        return Size(self._known[name]) * self.range(name).multiple

    def same(self, name: str, other: Dimension, spelling: str) -> None:
        """A dimension has the size of something else."""
        var, own = self._known[name], self.range(name)
        if other % own.multiple != 0:
            raise self._found
        value = self.values[var] = other // own.multiple
        self.contrary.append(f"'{name}' other than {spelling}")
        self.holds.append(equal(Size(var), value))
        if isinstance(value, Size):
            self.sums[name] = value.expr, own.minimum, own.maximum

    def multiple(self, name: str, factor: int) -> None:
        """A dimension is a multiple of a number."""
        var = self._known[name]
        self.values[var] = Size(var) // factor * factor
        self.contrary.append(f"'{name}' other than multiples of {factor * self.range(name).multiple}")
        self.holds.append(equal(Size(var) % factor, 0))

    def maximum(self, name: str, maximum: int) -> None:
        """A dimension is not more than a number times its multiple."""
        own = self.range(name)
        self.ranges[name] = replace(own, maximum=maximum, size_hint=min(own.size_hint, maximum))
        self.contrary.append(f"more than {maximum * own.multiple} for '{name}'")
        self.holds.append(less_or_equal(Size(self._known[name]), maximum))

    def limited(self, formula: Formula, minimum: int, end: int | None) -> None:
        """Add that a formula of dimensions is in a range."""
        total, maximum, name = size_of(formula, self.size), _NO_END if end is None else end, spelled(formula, str)
        if not isinstance(total, Size):
            raise self._found
        self.sums[name] = total.expr, minimum, maximum
        self.contrary.append(f"less than {minimum} for {name}" if end is None else f"more than {end} for {name}")
        self.holds += [less_or_equal(minimum, total), less_or_equal(total, maximum)]
