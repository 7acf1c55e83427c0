"""Chooses sizes of dynamic dimensions for which a library gets specialized programs, besides or instead of the general
one.

height=640,width=640      a program for these sizes, run if an input has them; it shares constants with the others
S=1                       a program in which other dimensions remain dynamic
tg                        the sizes that the model gives this name

If dynamic sizes are broadcast to each other, the general program repeats tensors whose size is 1. A further program
assumes that the sizes are equal, and has the kernels of a network whose inputs use one name for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any, TypeAlias

from nnefc.ir.network import DynamicDimension, Network, result_types
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import LARGEST, Dimension, DynamicSize, Size, bounds, ranges, substituted
from nnefc.symbolic.formulas import formula_of, value_of
from nnefc.symbolic.named_formulas import Formula, evaluated, names_in

__all__ = ["Given", "Specializations"]

Given: TypeAlias = "Mapping[str, Any] | str"
"""A user's specialization: sizes by the names of dimensions, or the name of a scenario of the model."""

Sizes: TypeAlias = "tuple[int | None, ...]"
"""The sizes of the dynamic dimensions, in their order; None for those that remain dynamic."""


@dataclass(frozen=True)
class Specializations:
    """The specialized programs of a library.

    Attributes:
        sizes: of the dynamic dimensions for each program.
        networks: with these sizes.
        only: whether there is no general program.
        zeros: for each program, formulas of the dynamic dimensions that must be 0.
    """

    sizes: tuple[Sizes, ...] = ()
    networks: tuple[Network, ...] = ()
    only: bool = False
    zeros: tuple[tuple[Formula, ...], ...] = ()

    @classmethod
    def of(cls, given: Sequence[Given], only: bool, network: Network, read: Callable[..., Network]) -> Specializations:
        """Return the specializations that a user has given.

        Args:
            given: the user's specializations.
            only: whether there is no general program.
            network: the network for all sizes.
            read: reads the network again, `read(fixed=SHAPES, fixed_dimensions=NAMES)`.

        Raises:
            CompileError: the network does not have a dimension, or not such a size.
        """
        if only and not given:
            raise CompileError(
                "there are no specialized sizes that the library could be for alone",
                hint="give them: --specialize NAME=SIZE",
            )
        sizes = _checked(given, network)
        names = [dimension.name for dimension in network.dynamic_dimensions]
        made = tuple(read(fixed=_shapes_at(network, each), fixed_dimensions=names) for each in sizes)
        for part, known in zip(made, sizes, strict=True):
            _check_dynamic(part, known, network)
        return cls(sizes, made, only, ((),) * len(made))

    @classmethod
    def of_apart(cls, network: Network, read: Callable[..., Network]) -> Specializations:
        """Return specializations for the single sizes for which a network need not be correct, and for their
        combinations.

        Raises:
            CompileError: one cannot be built, or its results have other types or a higher rank than those of the
                network.
        """
        names = list(network.apart)
        chosen = [part for count in range(len(names), 0, -1) for part in combinations(names, count)]
        made = cls.of([{name: network.apart[name] for name in part} for part in chosen], False, network, read)
        if any(part.all_data_dependent_sizes or not _fits_into(part, network) for part in (network, *made.networks)):
            raise CompileError("the results for a single size do not fit those for others")
        return made

    def following(self, others: Specializations, network: Network) -> Specializations:
        """Return these specializations after `others`, those of single sizes, except that those with all of the
        single sizes come first.
        """
        numbers = [number for number, each in enumerate(network.dynamic_dimensions) if each.name in network.apart]
        is_first = [all(sizes[number] is not None for number in numbers) for sizes in self.sizes]
        pairs = list(zip(self.sizes, self.networks, self.zeros, is_first, strict=True))
        first, last = ([pair[:3] for pair in pairs if pair[3] == wanted] for wanted in (True, False))
        whole = [*first, *zip(others.sizes, others.networks, others.zeros, strict=True), *last]
        sizes, networks, zeros = zip(*whole, strict=True) if whole else ((), (), ())
        return replace(self, sizes=sizes, networks=networks, zeros=zeros)

    def with_equal(self, network: Network, read: Callable[[], Network]) -> Specializations:
        """Return the specializations with a program for equal sizes, if sizes of the network are broadcast to each
        other.

        There is none if the sizes are data-dependent without a bound. `read` reads the network again, with such sizes
        as one dimension.
        """
        if (
            self.only
            or network.unbounded_data_dependent_sizes
            or all(each.join is None for each in network.dynamic_dimensions)
        ):
            return self
        try:
            part = read()
        except CompileError:
            return self
        zeros = _differences(network, part)
        if not zeros or part.unbounded_data_dependent_sizes:
            return self
        sizes: Sizes = (None,) * len(network.dynamic_dimensions)
        made = (*self.sizes, sizes), (*self.networks, part), (*self.zeros, zeros)
        return replace(self, sizes=made[0], networks=made[1], zeros=made[2])


def _fits_into(part: Network, network: Network) -> bool:
    """Return whether the outputs of `part` have the same types as those of `network`, and no higher rank."""
    pairs = zip(result_types(part.module["main"]), result_types(network.module["main"]), strict=True)
    return all(str(one.dtype) == str(other.dtype) and one.ndim <= other.ndim for one, other in pairs)


def _differences(network: Network, part: Network) -> tuple[Formula, ...]:
    """Return formulas that are zero if the inputs of `network` have the sizes of `part`; empty if the dimensions do
    not determine them.
    """
    found: dict[Formula, None] = {}
    known = {dimension.name for dimension in network.dynamic_dimensions}
    whole, own = ({d.var: value_of(d.name, d.multiple) for d in each.dynamic_dimensions} for each in (network, part))
    for name, shape in network.input_shapes.items():
        for size, other in zip(shape, part.input_shapes[name], strict=True):
            first, second = formula_of(size, whole), formula_of(other, own)
            if first is None or second is None or not known >= {*names_in(first), *names_in(second)}:
                return ()
            if first != second:
                found["-", first, second] = None
    return tuple(found)


def _checked(given: Sequence[Given], network: Network) -> tuple[Sizes, ...]:
    """Return the sizes of the dynamic dimensions for each specialization.

    Args:
        given: the user's specializations; `height,width` names both dimensions. Dimensions that are computed from
            others have no size of their own.
        network: the network for all sizes.

    Raises:
        CompileError: a name is not a dynamic dimension, there are no sizes, or one is out of range.
    """
    names = [dimension.name for dimension in network.dynamic_dimensions if dimension.formula is None]
    if given and not names:
        raise CompileError(
            "no size of the network is open: there is nothing to specialize", hint="leave --specialize out"
        )
    return tuple(dict.fromkeys(_sizes(_by_name(each, network), names, network) for each in given))


def _by_name(given: Given, network: Network) -> Mapping[str, Any]:
    """Return the sizes of a specialization, those of a scenario if its name is given.

    Raises:
        CompileError: the model has no scenario of this name.
    """
    if not isinstance(given, str):
        return given
    if given not in network.scenarios:
        there = ", ".join(network.scenarios)
        hint = f"there are {there}" if there else "give sizes: --specialize NAME=SIZE"
        raise CompileError(f"the model has no scenario '{given}'", hint=hint)
    return network.scenarios[given]


def _sizes(given: Mapping[str, Any], names: Sequence[str], network: Network) -> Sizes:
    single = {each: size for name, size in given.items() for each in ([name] if name in names else name.split(","))}
    for name in single:
        if name not in names:
            raise CompileError(
                f"the network has no dynamic dimension '{name}' to specialize", hint=f"open are {', '.join(names)}"
            )
    if not single:
        raise CompileError(
            "a specialization without sizes", hint=f"open are {', '.join(names)}: --specialize {names[0]}=1"
        )
    made: dict[str, int] = {name: _size(size) for name, size in single.items()}
    for dimension in network.dynamic_dimensions:
        if dimension.formula is not None and made.keys() >= set(names_in(dimension.formula)):
            made[dimension.name] = evaluated(dimension.formula, made.__getitem__)
        if dimension.name in made:
            _check_range(dimension, made[dimension.name])
    return tuple(made.get(dimension.name) for dimension in network.dynamic_dimensions)


def _check_range(dimension: DynamicDimension, size: int) -> None:
    if not dimension.minimum <= size <= dimension.maximum or size % dimension.multiple:
        multiples = f", in multiples of {dimension.multiple}" if dimension.multiple > 1 else ""
        raise CompileError(
            f"'{dimension.name}' cannot be {size}: it is from {dimension.minimum} to {dimension.maximum}{multiples}"
        )


def _size(given: Any) -> int:
    elements = given if isinstance(given, tuple | list) else (given,)
    if len(elements) != 1 or not isinstance(elements[0], int):
        raise CompileError(
            f"{given!r} is no size", hint="a specialization has a number a dimension: height=640,width=640"
        )
    return elements[0]


def _shapes_at(network: Network, sizes: Sizes) -> dict[str, tuple[int | DynamicSize, ...]]:
    """Return the shapes of all inputs at the given sizes of the dynamic dimensions."""
    known = zip(network.dynamic_dimensions, sizes, strict=True)
    values = {d.var: size // d.multiple for d, size in known if size is not None}
    opened = [dimension for dimension in network.dynamic_dimensions if dimension.formula is None]

    def given(size: Dimension) -> int | DynamicSize:
        known = substituted(size, values)
        if not isinstance(known, Size):
            return known
        own = next((dimension for dimension in opened if dimension.size == size), None)
        if own is None:  # follows from others
            return DynamicSize(max(0, bounds(known)[0]))
        return DynamicSize(own.minimum, None if own.maximum == LARGEST else own.maximum, own.multiple, own.size_hint)

    with ranges(network.ranges):
        return {name: tuple(map(given, shape)) for name, shape in network.input_shapes.items()}


def _check_dynamic(part: Network, sizes: Sizes, network: Network) -> None:
    """Check that the dynamic dimensions of a specialization are those that its sizes leave dynamic.

    Raises:
        CompileError: there are more, or some are known or equal.
    """
    left = {
        d.name for d, size in zip(network.dynamic_dimensions, sizes, strict=True) if size is None if d.formula is None
    }
    other = left.symmetric_difference(d.name for d in part.dynamic_dimensions if d.formula is None)
    if other:
        raise CompileError(
            f"with sizes for some of its dimensions, the network has others to do with '{min(other)}'",
            hint="specialize the sizes of all dynamic dimensions",
        )
