"""Sizes of open dimensions that a library has code of its own for, besides that for all sizes or in place of it.

height=640,width=640      a program for these sizes, chosen when an input has them; it shares constants with the others
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nnefc.diagnostics import CompileError
from nnefc.network import Network
from nnefc.size_formulas import evaluated
from nnefc.sizes import substituted

__all__ = ["Specializations"]


@dataclass(frozen=True)
class Specializations:
    """Programs of a library for known sizes.

    Attributes:
        sizes: of the open dimensions, in their order, for each program.
        networks: with these sizes.
        only: whether there is no program for other sizes.
    """

    sizes: tuple[tuple[int, ...], ...] = ()
    networks: tuple[Network, ...] = ()
    only: bool = False

    @classmethod
    def of(
        cls, given: Sequence[Mapping[str, Any]], only: bool, network: Network, read: Callable[..., Network]
    ) -> Specializations:
        """What a user wants of a network, which `read(fixed=SHAPES)` reads again with the shapes of its inputs.

        Raises:
            CompileError: names or sizes that the network does not have.
        """
        if only and not given:
            raise CompileError(
                "there are no specialized sizes that the library could be for alone",
                hint="give them: --specialize NAME=SIZE",
            )
        sizes = _checked(given, network)
        return cls(sizes, tuple(read(fixed=_shapes_at(network, each)) for each in sizes), only)


def _checked(given: Sequence[Mapping[str, Any]], network: Network) -> tuple[tuple[int, ...], ...]:
    """The sizes of all open dimensions, in their order, for each program of its own.

    Args:
        given: sizes by the names of the dimensions; `height,width` stands for both. Those that follow from others
            are not among them.

    Raises:
        CompileError: names that are no open dimensions', dimensions without a size, sizes out of their range.
    """
    names = [dimension.name for dimension in network.open_dimensions if dimension.formula is None]
    if given and not names:
        raise CompileError(
            "no size of the network is open: there is nothing to specialize", hint="leave --specialize out"
        )
    return tuple(dict.fromkeys(tuple(_sizes(sizes, names, network)) for sizes in given))


def _sizes(given: Mapping[str, Any], names: Sequence[str], network: Network) -> list[int]:
    single = {each: size for name, size in given.items() for each in ([name] if name in names else name.split(","))}
    for name in single:
        if name not in names:
            raise CompileError(
                f"the network has no open dimension '{name}' to specialize", hint=f"open are {', '.join(names)}"
            )
    left = [name for name in names if name not in single]
    if left:
        raise CompileError(
            f"a specialization needs the sizes of all open dimensions: {', '.join(left)} has none",
            hint=f"such as --specialize {','.join(f'{name}={_size(single.get(name, 1))}' for name in names)}",
        )
    made: dict[str, int] = {name: _size(single[name]) for name in names}
    for dimension in network.open_dimensions:
        if dimension.formula is not None:
            made[dimension.name] = evaluated(dimension.formula, made.__getitem__)
        size = made[dimension.name]
        if not dimension.least <= size <= dimension.most or size % dimension.multiple:
            multiples = f", in multiples of {dimension.multiple}" if dimension.multiple > 1 else ""
            raise CompileError(
                f"'{dimension.name}' cannot be {size}: it is from {dimension.least} to {dimension.most}{multiples}"
            )
    return [made[dimension.name] for dimension in network.open_dimensions]


def _size(given: Any) -> int:
    items = given if isinstance(given, tuple | list) else (given,)
    if len(items) != 1 or not isinstance(items[0], int):
        raise CompileError(
            f"{given!r} is no size", hint="a specialization has a number a dimension: height=640,width=640"
        )
    return items[0]


def _shapes_at(network: Network, sizes: Sequence[int]) -> dict[str, tuple[int, ...]]:
    """The shapes of all inputs when the open dimensions have these sizes."""
    values = {d.var: size // d.multiple for d, size in zip(network.open_dimensions, sizes, strict=True)}
    return {name: tuple(substituted(size, values) for size in shape) for name, shape in network.input_shapes.items()}
