"""Open dimensions on the command line: which sizes they may have, and which a run takes for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from nnefc.cli.text import Port, columns
from nnefc.diagnostics import CompileError
from nnefc.size_formulas import Formula, evaluated, spelled

if TYPE_CHECKING:
    from nnefc.cli.arrays import Arrays

__all__ = ["Ranged", "chosen_ports", "range_lines", "sizes_text"]


NO_LIMIT = 1 << 28
"""Sizes that nobody limits may be greater than this; how great, see `nnefc.sizes`, is of no interest."""


class Ranged(Protocol):
    """An open dimension of a network or of a library."""

    @property
    def name(self) -> str: ...
    @property
    def least(self) -> int: ...
    @property
    def most(self) -> int: ...
    @property
    def multiple(self) -> int: ...
    @property
    def typical(self) -> int: ...


def range_lines(dimensions: Iterable[Ranged], formulas: Mapping[str, Formula]) -> list[str]:
    """A line an open dimension: `dimension  height  32 to 1280, multiples of 32, typically 320`."""
    rows = []
    for dimension in dimensions:
        multiples = f", multiples of {dimension.multiple:,}" if dimension.multiple > 1 else ""
        upward = "or more" if dimension.most > NO_LIMIT else f"to {dimension.most:,}"
        sizes = f"{dimension.least:,} {upward}{multiples}, typically {dimension.typical:,}"
        if dimension.name in formulas:
            sizes = f"{spelled(formulas[dimension.name], str)}, {dimension.least:,} {upward}{multiples}"
        rows.append(("dimension", dimension.name, sizes))
    return columns(rows)


def sizes_text(dimensions: Iterable[Ranged], size: str) -> str:
    """Sizes of all open dimensions, the `typical` or the `most`: `batch 8, height 320`."""
    return ", ".join(f"{dimension.name} {getattr(dimension, size):,}" for dimension in dimensions)


@dataclass(frozen=True)
class _Sized:
    """An input with the shape of one run."""

    name: str
    dtype: str
    shape: tuple[int, ...]


def chosen_ports(
    ports: Sequence[Port],
    dimensions: Sequence[Ranged],
    given: Mapping[str, Sequence[int | str]],
    arrays: Arrays,
    formulas: Mapping[str, Formula],
) -> list[Port]:
    """Inputs with the sizes that a run takes: those that the user gives, those of arrays that are there, typical ones.

    Args:
        ports: the inputs of a library.
        dimensions: what it leaves open.
        given: sizes by the names of dimensions, and shapes by the names of inputs.
        arrays: of some inputs.
        formulas: of dimensions that follow from others.

    Raises:
        CompileError: sizes of something else, or different ones for one dimension.
    """
    sizes = _Sizes(ports, dimensions, formulas)
    for name, shape in given.items():
        sizes.take(name, shape)
    for port in ports:
        if port.name in arrays:
            sizes.of_input(port, arrays[port.name].shape, "the file")
    return [
        _Sized(port.name, str(port.dtype), tuple(map(sizes.of, port.shape))) if dimensions else port for port in ports
    ]


class _Sizes:
    def __init__(self, ports: Sequence[Port], dimensions: Sequence[Ranged], formulas: Mapping[str, Formula]) -> None:
        self._ports = {port.name: port for port in ports}
        self._open = {dimension.name: dimension for dimension in dimensions}
        self._formulas = formulas
        self._found: dict[str, int] = {}

    def of(self, size: Any) -> int:
        """A size in the shape of an input, which is a number or the name of a dimension."""
        if size in self._found or size not in self._open:
            return self._found[size] if size in self._open else int(size)
        if size in self._formulas:
            return evaluated(self._formulas[size], self.of)
        return self._open[size].typical

    def take(self, name: str, shape: Sequence[int | str]) -> None:
        """What the user says with `--shape`: several dimensions may have one size, `height,width=64`."""
        numbers = [number for number in shape if isinstance(number, int)]
        if len(numbers) < len(shape):
            raise CompileError(f"a run has one size for {name!r}, not a range", hint=f"write --shape {name}=8")
        names = [name] if name in self._open or name in self._ports else name.split(",")
        for each in names:
            if each in self._ports:
                self.of_input(self._ports[each], numbers, "--shape")
            elif each not in self._open:
                known = ", ".join((*self._open, *self._ports)) if self._open else "none, for all its sizes are known"
                raise CompileError(
                    f"the library has no open dimension and no input {each!r}", hint=f"what --shape may name: {known}"
                )
            elif len(numbers) != 1:
                raise CompileError(f"the dimension {each!r} needs one size", hint=f"such as --shape {each}=8")
            else:
                self._note(each, numbers[0], "--shape")

    def of_input(self, port: Port, shape: Sequence[int], source: str) -> None:
        """What the shape of one input says; other mistakes in it are for the library to refuse."""
        declared: Sequence[Any] = port.shape
        if len(shape) != len(declared):
            raise CompileError(f"{port} is given the shape {list(shape)} by {source}")
        for size, number in zip(declared, shape, strict=True):
            if size in self._open:
                self._note(str(size), number, f"{source} of {port.name!r}")
            elif size != number:
                raise CompileError(f"{port} is given the shape {list(shape)} by {source}")

    def _note(self, name: str, size: int, source: str) -> None:
        if self._found.setdefault(name, size) != size:
            raise CompileError(
                f"the dimension {name!r} is {self._found[name]}, but {size} by {source}: it is one size in the network"
            )
