"""Generates random values for inputs that the user does not give."""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.named_formulas import Formula, evaluated

if TYPE_CHECKING:
    import numpy as np

__all__ = ["Arrays", "Port", "Ranged", "chosen_ports", "random_inputs"]

Arrays: TypeAlias = "dict[str, np.ndarray[Any, Any]]"


class Port(Protocol):
    """An input or output of an artifact or a library."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> object: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


class Ranged(Protocol):
    """A dynamic dimension of a network or of a library."""

    @property
    def name(self) -> str: ...
    @property
    def minimum(self) -> int: ...
    @property
    def maximum(self) -> int: ...
    @property
    def multiple(self) -> int: ...
    @property
    def size_hint(self) -> int: ...


_WORDS = ("", "a", "one", "two", "three", "Ärger", "日本", "a longer text of several words", "1", "2.5")
"""Strings for inputs without a file."""


def random_inputs(seed: int, ports: Sequence[Port], limits: Mapping[str, int] | None = None) -> Arrays:
    """Return random values by name: standard normal floats, integers from 0 to 9, random booleans, words.

    The values of each input are independent of the other inputs. `limits` are exclusive upper bounds of inputs that are
    indices, by name, which are uniformly distributed.
    """
    import numpy as np

    arrays: Arrays = {}
    for port in ports:
        rng = np.random.default_rng([seed, zlib.crc32(port.name.encode())])
        if port.dtype == "bfloat16":  # the upper half of a float32, as its bits
            pattern = rng.standard_normal(port.shape, np.float32).view(np.uint32) >> 16
            arrays[port.name] = pattern.astype(np.uint16)
            continue
        if port.dtype == "string":
            arrays[port.name] = rng.choice(_WORDS, port.shape)
            continue
        dtype = np.dtype(str(port.dtype))
        values: np.ndarray[Any, Any]
        match dtype.kind:
            case "b":
                values = rng.integers(0, 2, port.shape)
            case "i" | "u":
                values = rng.integers(0, min(limit_of(port, limits or {}), int(np.iinfo(dtype).max)), port.shape)
            case _:
                values = rng.standard_normal(port.shape)
        arrays[port.name] = np.asarray(values).astype(dtype)
    return arrays


def limit_of(port: Port, limits: Mapping[str, int]) -> int:
    """Return the exclusive upper bound of random integers for an input: a small one if they may be indices."""
    return max(1, limits.get(port.name, 10))


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
    """Return the inputs with the sizes of a run: given by the user, taken from arrays, or size hints.

    Args:
        ports: the inputs of a library.
        dimensions: its dynamic dimensions.
        given: sizes by the names of dimensions, and shapes by the names of inputs.
        arrays: of some inputs.
        formulas: of derived dimensions.

    Raises:
        CompileError: a name is unknown, or a dimension has different sizes.
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


def _operands(formula: Formula, alike: Set[str]) -> Sequence[str]:
    """Return the dimensions that a formula broadcasts, if one of `alike` is among them."""
    match formula:
        case ("broadcast", str() as one, str() as other) | ("-", ("broadcast", str() as one, str() as other), _):
            return (one, other) if one in alike or other in alike else ()
    return ()


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
        alike = [name for name in self._open if name in self._broadcast_to(size)]
        return next((self._found[name] for name in alike if name in self._found), self._open[alike[0]].size_hint)

    def _broadcast_to(self, name: str) -> set[str]:
        """A dimension, and those that broadcast to it: of these, all have the size of the first that has one."""
        alike = {name}
        while True:
            more = {name for formula in self._formulas.values() for name in _operands(formula, alike)} - alike
            if not more:
                return alike
            alike |= more

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
                    f"the library has no dynamic dimension and no input {each!r}",
                    hint=f"what --shape may name: {known}",
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
