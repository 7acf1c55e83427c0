"""Refines the constraints of dynamic dimensions while a network is built, and restarts the build with them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Set
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TypeVar

from tvm import tirx

from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import (
    LARGEST,
    Dimension,
    DynamicSize,
    Range,
    Size,
    UndecidedError,
    bounds,
    ranges,
    substituted,
)
from nnefc.symbolic.formulas import factor_of, size_of
from nnefc.symbolic.named_formulas import Formula, names_in, spelled
from nnefc.symbolic.ranges import is_of_cache

__all__ = ["MAX_RUNS_APART", "Refined", "Refinement", "empty_undecided", "now_built", "parts_within", "refined"]

_T = TypeVar("_T")
_MAX_ATTEMPTS = 64
_NO_END = 1 << 60


MAX_RUNS_APART = 2
"""Maximum dimensions with a separate program for a single size: two of them have three such programs."""

_BUILT: ContextVar[str] = ContextVar("nnefc.built", default="")


def now_built(location: str) -> None:
    """Record which operator of the model is being built: refinements of dynamic dimensions from now on are due to
    it.
    """
    _BUILT.set(location)


class Refined(Exception):
    """Raised to request that dynamic dimensions are refined.

    Attributes:
        same: dimensions that are the same as others, by name.
        computed: the formulas of dimensions that are computed from others, by name.
        limited: constraints by name, of a dimension or of an expression that gets the name: formula, minimum and
            maximum, or None.
        multiples: divisors of the sizes of dimensions, by name.
        fixed: sizes that dimensions must have, by name.
        ends: the minimum and maximum of dimensions, or None. These and `fixed` are divided by their multiples.
        apart: sizes of dimensions for which there is to be a separate program, by name.
        joined: pairs of sizes that are broadcast at run time, by the name that the result gets.
        instead: how dimensions are refined if sizes are not broadcast at run time.
    """

    def __init__(
        self,
        same: Mapping[str, str] | None = None,
        computed: Mapping[str, Formula] | None = None,
        limited: Mapping[str, tuple[Formula, int, int | None]] | None = None,
        multiples: Mapping[str, int] | None = None,
        fixed: Mapping[str, int] | None = None,
        ends: Mapping[str, tuple[int, int | None]] | None = None,
        joined: Mapping[str, Formula] | None = None,
        instead: Refined | None = None,
        apart: Mapping[str, int] | None = None,
    ) -> None:
        super().__init__("dynamic dimensions must be refined")
        self.apart = apart or {}
        self.joined, self.instead = joined or {}, instead
        self.same, self.multiples, self.fixed, self.ends = same or {}, multiples or {}, fixed or {}, ends or {}
        self.computed, self.limited = computed or {}, limited or {}

    @property
    def names(self) -> set[str]:
        """The names of the dimensions."""
        formulas = [*self.computed.values(), *(formula for formula, _, _ in self.limited.values())]
        formulas += self.joined.values()
        read = {name for formula in formulas for name in names_in(formula)}
        return {*self.same, *self.same.values(), *self.computed, *read, *self.multiples, *self.fixed, *self.ends}


@dataclass
class Refinement:
    """The constraints of dynamic dimensions after some attempts to build a network.

    Attributes:
        same: the name of the dimension that another one is the same as.
        computed: the formulas of dimensions that are computed from others, by name.
        limited: those of them that are not dimensions of the model, but constraints.
        joined: how dimensions are refined if two sizes are not broadcast at run time, by the name of the result.
        apart: sizes, by the names of dimensions, for which there are separate programs, so that this network need not
            be correct for them. None: it is correct for all sizes.
        is_tied: whether sizes that are broadcast to each other are refined so that no size of 1 is repeated.
        is_filled: whether dimensions without a given range, except for those of caches, are never 0.
        sizes: of all dynamic dimensions, by name, as far as they are refined.
        notes: about refinements, for the user, by name.
    """

    same: dict[str, str] = field(default_factory=dict)
    computed: dict[str, Formula] = field(default_factory=dict)
    limited: list[str] = field(default_factory=list)
    joined: dict[str, Refined | None] = field(default_factory=dict)
    apart: dict[str, int] | None = field(default_factory=dict)
    is_tied: bool = False
    is_filled: bool = False
    sizes: dict[str, DynamicSize] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def of(self, name: str, size: DynamicSize) -> tuple[str, DynamicSize]:
        """Return the name and the range of a dimension for which the user has given the range `size`."""
        while name in self.same:
            name = self.same[name]
        if self.is_filled and size.maximum is None and not is_of_cache(name):
            size = replace(size, minimum=max(size.minimum, 1))
        return name, self.sizes.setdefault(name, size)

    def simpler(self) -> Refinement | None:
        """Return simpler constraints with which the build can be restarted if it fails; None if there are none."""
        if self.apart:
            return Refinement(apart=None, is_tied=self.is_tied, is_filled=self.is_filled)
        if self.may_be_empty and not self.is_filled:
            return Refinement(apart=self.apart, is_tied=self.is_tied, is_filled=True)
        return Refinement(apart=self.apart, is_tied=True, is_filled=self.is_filled) if self.joined else None

    @property
    def may_be_empty(self) -> Set[str]:
        """The dimensions without a given range that may be 0, except for those of caches, which have to allow 0."""
        open_ended = {name for name, size in self.sizes.items() if size.maximum is None and size.minimum == 0}
        return {name for name in open_ended if not is_of_cache(name)}

    def add(self, found: Refined) -> None:
        """Add the requested refinements.

        Raises:
            CompileError: no size is left, or a size is data-dependent.
        """
        if found.apart:
            assert self.apart is not None
            self.apart |= found.apart
            return
        if found.joined and not (self.is_tied and found.instead is not None):
            self._join(found)
            return
        if self.apart and not {*found.fixed, *found.same, *found.computed}.isdisjoint(self.apart):
            raise CompileError("a dimension of which one size has a program of its own has no other size")
        operators = f"for its operators{f' ({_BUILT.get()})' if _BUILT.get() else ''}"
        repeats, found = found.instead is not None, found.instead if found.instead is not None else found
        found = self._without_joined(found)
        if not found.names <= set(self.sizes):
            sizes = " and ".join(f"'{name}'" for name in sorted(found.names))
            raise CompileError(
                f"the network's operators fit each other for some values of {sizes} only, "
                "and not all of these are sizes of inputs: some are data-dependent"
            )
        for name, other in found.same.items():
            one, two = self.sizes[name], self.sizes[other]
            maximum = min(one.maximum or LARGEST, two.maximum or LARGEST) if one.maximum or two.maximum else None
            multiple = math.lcm(one.multiple, two.multiple)
            self.same[name] = other
            if name not in self.joined:
                self.notes[name] = f"'{name}' and '{other}' must be one size {operators}"
                if repeats:
                    self.notes[name] += f", where a size of 1 is not repeated: for that, give it, --shape {name}=1"
            self._narrow(other, replace(two, minimum=max(one.minimum, two.minimum), maximum=maximum, multiple=multiple))
        for name, formula in found.computed.items():
            self._compute(name, formula)
            if _BUILT.get():  # else the model's name of the dimension says so
                self.notes[name] = f"'{name}' must be {spelled(formula, str)} {operators}"
        for name, (formula, minimum, maximum) in found.limited.items():
            self._limit(name, formula, minimum, maximum)
        for name, factor in found.multiples.items():
            own = self.sizes[name]
            self._narrow(name, replace(own, multiple=own.multiple * factor))
            self.notes[name] = f"the sizes of '{name}' must be multiples of {own.multiple * factor} {operators}"
        for name, value in found.fixed.items():
            only = value * self.sizes[name].multiple
            self._narrow(name, DynamicSize(only, only))
            if name != str(only):  # PyTorch's exporter writes expressions as names, of which some are numbers
                self.notes[name] = f"the size of '{name}' must be {only} {operators}"
        for name, (minimum, maximum) in found.ends.items():
            own = self.sizes[name]
            size = replace(
                own, minimum=minimum * own.multiple, maximum=own.maximum if maximum is None else maximum * own.multiple
            )
            self._narrow(name, size)
            if size.maximum is None and size.minimum <= 1 and own.minimum == 0:
                continue  # who gives no range does not ask for runs without elements
            span = f"no less than {size.minimum}" if size.maximum is None else f"from {size.minimum} to {size.maximum}"
            self.notes[name] = f"the size of '{name}' must be {span} {operators}"

    def _join(self, found: Refined) -> None:
        """Add dimensions to which two sizes are broadcast."""
        for name, formula in found.joined.items():
            self.computed[name] = formula
            self.joined[name] = found.instead

    def _without_joined(self, found: Refined) -> Refined:
        """Return a request without constraints on a size to which others are broadcast: these are replaced by
        `instead`, and the size is removed.
        """
        for name in [name for name in self.joined if name in found.names]:
            may_stay = not (found.computed or found.limited or found.multiples or found.fixed)
            instead = self.joined[name]
            if instead is None or (may_stay and name not in found.same.values()):
                continue
            gone = {name}
            for other in [other for other in self.joined if gone & set(names_in(self.computed[other]))]:
                gone.add(other)
            for other in gone:
                del self.joined[other], self.computed[other]
                self.same.pop(other, None)
                self.sizes.pop(other, None)
            return self._without_joined(instead)
        return found

    def _compute(self, name: str, formula: Formula) -> None:
        """Make a dimension one that is computed from others; an existing constraint on the same formula becomes its
        range.
        """
        for other in [other for other in self.limited if self.computed[other] == formula]:
            self._narrow_ends(name, self.sizes[other].minimum, self.sizes[other].maximum)
            self.limited.remove(other)
        self.computed[name] = formula
        self._narrow_parts(name, formula)

    def _limit(self, name: str, formula: Formula, minimum: int, maximum: int | None) -> None:
        """Constrain a formula of dimensions, which may be a single dimension."""
        if name not in self.computed:
            self.computed[name] = formula
            self.limited.append(name)
            self.sizes[name] = DynamicSize(minimum, maximum)
        self._narrow_ends(name, minimum, maximum)
        self._narrow_parts(name, formula)
        bound = f"no less than {minimum}" if maximum is None else f"no more than {maximum}"
        bound = str(minimum) if minimum == maximum else bound
        self.notes[name] = f"{spelled(formula, str)} must be {bound} for the network's operators"

    def _narrow_ends(self, name: str, minimum: int, maximum: int | None) -> None:
        own = self.sizes[name]
        ends = [end for end in (own.maximum, maximum) if end is not None]
        self._narrow(name, replace(own, minimum=max(own.minimum, minimum), maximum=min(ends, default=None)))

    def _narrow_parts(self, name: str, formula: Formula) -> None:
        """Restrict the summands of a sum, so that the sum can be in its range."""
        made = {part: tirx.Var(part, "int64") for part in names_in(formula)}
        own = {
            var: Range(self.sizes[part].minimum, self.sizes[part].maximum or LARGEST, 1) for part, var in made.items()
        }
        size = self.sizes[name]
        with ranges(own):
            value = size_of(formula, lambda part: Size(made[part]))
            within = parts_within(value, size.minimum, _NO_END if size.maximum is None else size.maximum, own)
        for part, var in made.items():
            size = self.sizes[part]
            limited = size.maximum is not None or within[var].maximum < LARGEST
            self._narrow(
                part, replace(size, minimum=within[var].minimum, maximum=within[var].maximum if limited else None)
            )

    def _narrow(self, name: str, size: DynamicSize) -> None:
        if size.values.minimum > size.values.maximum:
            raise CompileError(
                f"no size of '{name}' fits the network's operators: it would have to be a multiple of {size.multiple} "
                f"from {size.minimum} to {size.maximum or LARGEST}",
                hint="give a wider range, such as --shape NAME=MIN..MAX",
            )
        if size.maximum == 0 and name in self.may_be_empty:  # a network of nothing but empty tensors is of no use
            raise CompileError(
                f"no size of '{name}' but 0 fits the network's operators",
                hint="give the sizes that are open, with numbers of your own: --shape NAME=SIZE",
            )
        self.sizes[name] = size


def refined(build: Callable[[Refinement], _T], is_tied: bool = False, is_apart: bool = True) -> tuple[_T, Refinement]:
    """Builds a network, restarting `build` with refined constraints of dynamic dimensions until no more are requested.

    Where that is the only way, there are no programs for single sizes, no dimensions of 0, and sizes that broadcast
    are one size.

    Args:
        build: from what is known of dynamic dimensions.
        is_tied: whether sizes that broadcast are refined so that no size of 1 is repeated.
        is_apart: whether there may be programs for single sizes besides.

    Raises:
        CompileError: no size is left.
    """
    refinement = Refinement(is_tied=is_tied, apart={} if is_apart else None)
    while True:
        try:
            return _refined(build, refinement)
        except CompileError:
            simpler = refinement.simpler()
            if simpler is None:
                raise
            refinement = simpler


def _refined(build: Callable[[Refinement], _T], refinement: Refinement) -> tuple[_T, Refinement]:
    for _ in range(_MAX_ATTEMPTS):
        try:
            now_built("")
            return build(refinement), refinement
        except Refined as found:
            refinement.add(found)
        except CompileError as error:
            empty = empty_undecided(error) & refinement.may_be_empty
            ends = Refined(ends=dict.fromkeys(sorted(empty), (1, None)))
            decided = ends if empty else _deciding(error)
            if decided is None or not decided.names <= set(refinement.sizes):
                raise
            refinement.add(decided)
    raise CompileError("the network's operators ask for ever narrower ranges of its dynamic dimensions")


def _undecided(error: BaseException | None) -> UndecidedError | None:
    """The comparison that an error is about, if it is about one."""
    while error is not None and not isinstance(error, UndecidedError):
        error = error.__cause__
    return error


def _deciding(error: BaseException) -> Refined | None:
    """What narrows the dimension that a comparison depends on, if that is what an error is about."""
    cause = _undecided(error)
    if cause is None:
        return None
    try:
        found = cause.decided_range()
    except UndecidedError:
        return None
    if found is None:
        return None
    name, minimum, maximum = found
    return Refined(ends={name: (minimum, maximum)})


def empty_undecided(error: BaseException | None) -> Set[str]:
    """The dynamic dimensions of which a comparison that an error comes from might be decided if they were never 0."""
    cause = _undecided(error)
    return frozenset() if cause is None else cause.empty


def parts_within(value: Dimension, minimum: int, maximum: int, own: Mapping[tirx.Var, Range]) -> dict[tirx.Var, Range]:
    """The ranges of what a sum has as parts, narrowed so that with the others it may be in a range."""
    made = dict(own)
    for var, values in own.items():
        factor = factor_of(value, var)
        if factor is None:
            continue
        low, high = bounds(substituted(value, {var: 0}))
        ends = [minimum - high, maximum - low] if factor > 0 else [low - maximum, high - minimum]
        size = abs(factor)
        made[var] = replace(
            values, minimum=max(values.minimum, -(-ends[0] // size)), maximum=min(values.maximum, ends[1] // size)
        )
    return made
