"""Outline of a model file before anything is lowered: its signature, its operators, its dynamic dimensions.

Front ends return an :class:`Outline` without reading weights. :func:`shape_option` returns the command-line option that
fixes the dynamic dimensions, :func:`range_option` the option that keeps them dynamic.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TypeAlias

from nnefc.symbolic.named_formulas import names_in, read_formula
from nnefc.symbolic.ranges import DynamicSize

__all__ = ["Allowed", "DeclaredSize", "DynamicTensor", "Outline", "likely_size", "range_option", "shape_option"]

DeclaredSize: TypeAlias = "int | str | None"
"""A number, the name of a dimension, or unknown."""


@dataclass(frozen=True)
class DynamicTensor:
    """An input or output as the file declares it; `shape` is None if not even the rank is known."""

    name: str
    dtype: str
    shape: tuple[DeclaredSize, ...] | None


@dataclass(frozen=True)
class Outline:
    """Outline of a model's file.

    Attributes:
        name: of the network.
        about: the format, its version, and the program that wrote the file.
        inputs, outputs: as declared.
        operations: how often each of the format's own operators stands in the file, the most frequent first; those in
            the bodies of loops and choices are among them.
        unsupported: those of them that cannot be compiled.
        parameters, parameter_bytes: elements of all trained values, and their bytes in the file.
        option: the `--shape` options that give what is open; empty if nothing is.
        range_option: those that leave it open, in ranges; empty if nothing is.
    """

    name: str
    about: str
    inputs: tuple[DynamicTensor, ...]
    outputs: tuple[DynamicTensor, ...]
    operations: Mapping[str, int]
    parameters: int
    parameter_bytes: int
    unsupported: frozenset[str] = field(default_factory=frozenset)
    option: str = ""
    range_option: str = ""

    @property
    def tensors(self) -> tuple[DynamicTensor, ...]:
        """The inputs that are tensors, not sequences or optional."""
        return tuple(tensor for tensor in self.inputs if not tensor.dtype.endswith(")"))

    @property
    def count(self) -> int:
        """Operations in all."""
        return sum(self.operations.values())


Allowed: TypeAlias = Mapping[tuple[str, int], DynamicSize]
"""The sizes that the operators of a network allow, by the name of an input and an axis."""


def shape_option(inputs: Iterable[DynamicTensor], allowed: Allowed = MappingProxyType({})) -> str:
    """Returns the command-line options that fix the dynamic dimensions of these inputs, with example sizes.

    Dimensions with names are given by those, once for all inputs; an input with a size that has no name is given
    whole. Ready for a shell: `--shape batch=1,seq=128 --shape x=1,3,224,224`.
    """

    def spelled(likely: int, sizes: DynamicSize | None) -> str:
        return str(likely if sizes is None else _number_within(likely, sizes))

    return _option(inputs, spelled, allowed)


def range_option(inputs: Iterable[DynamicTensor], allowed: Allowed = MappingProxyType({})) -> str:
    """Returns the command-line options that keep these dimensions dynamic, in likely ranges: `--shape
    batch=1..64,seq=1..512`.
    """

    def spelled(likely: int, sizes: DynamicSize | None) -> str:
        return _RANGES[likely] if sizes is None else _range_within(_RANGES[likely], sizes)

    return _option(inputs, spelled, allowed)


def _number_within(likely: int, allowed: DynamicSize) -> int:
    """A likely number if it is allowed; else a size hint, of full blocks of 16 or 8 where these are allowed."""
    values = allowed.values
    minimum, maximum, size_hint = (
        value * values.multiple for value in (values.minimum, values.maximum, values.size_hint)
    )
    if minimum <= likely <= maximum and likely % values.multiple == 0:
        return likely
    rounded = (size_hint // block * block for block in (16, 8))
    return next((size for size in rounded if size >= minimum and size % values.multiple == 0), size_hint)


def _range_within(likely: str, allowed: DynamicSize) -> str:
    """The part of a likely range that is allowed; all that is allowed where no more than one size is in both."""
    wanted = DynamicSize.read(likely) or DynamicSize(int(likely), int(likely))
    ends = [end for end in (wanted.maximum, allowed.maximum) if end is not None]
    multiple = math.lcm(wanted.multiple, allowed.multiple)
    part = replace(
        allowed, minimum=max(wanted.minimum, allowed.minimum), maximum=min(ends, default=None), multiple=multiple
    )
    values = (part if part.values.minimum < part.values.maximum else allowed).values
    if values.minimum == values.maximum:
        return str(values.minimum * values.multiple)
    end = f":{values.multiple}" if values.multiple > 1 else ""
    return f"{values.minimum * values.multiple}..{values.maximum * values.multiple}{end}"


def _option(
    inputs: Iterable[DynamicTensor], spelled: Callable[[int, DynamicSize | None], str], allowed: Allowed
) -> str:
    """The options, with guesses as `spelled` writes them."""
    inputs = tuple(inputs)
    names = {tensor.name for tensor in inputs}
    guesses: dict[str, str] = {}
    for tensor in inputs:
        for axis, size in enumerate(tensor.shape or ()):
            if isinstance(size, str) and not _follows(size, inputs):
                guesses.setdefault(size, spelled(likely_size(size, axis, tensor), allowed.get((tensor.name, axis))))
    left = dict(guesses)
    whole: list[str] = []
    for tensor in inputs:
        # An input goes before a dimension of the same name, so that such a dimension cannot be given by its name.
        if tensor.shape is None or any(size is None or size in names for size in tensor.shape):
            whole.append(f"{tensor.name}={','.join(_sizes(tensor, guesses, spelled, allowed))}")
            for size in tensor.shape or ():
                left.pop(str(size), None)
    single = [f"{name}={size}" for name, size in left.items() if "," not in name]
    alone = [f"{name}={size}" for name, size in left.items() if "," in name]
    return " ".join(f"--shape {shlex.quote(text)}" for text in (*filter(None, (",".join(single),)), *alone, *whole))


def _follows(name: str, inputs: Iterable[DynamicTensor]) -> bool:
    """Returns whether a dimension is called by a formula of others."""
    formula = read_formula(name)
    known = {size for tensor in inputs for size in tensor.shape or ()}
    return formula is not None and known >= set(names_in(formula))


_UNKNOWN = (1, 3, 224, 224)
"""The shape of an input of which nothing is known."""


def _sizes(
    tensor: DynamicTensor,
    guesses: Mapping[str, str],
    spelled: Callable[[int, DynamicSize | None], str],
    allowed: Allowed,
) -> list[str]:
    if tensor.shape is None:
        return [spelled(size, None) for size in _UNKNOWN]
    found = []
    for axis, size in enumerate(tensor.shape):
        known = guesses.get(size) if isinstance(size, str) else size
        found.append(
            str(known)
            if known is not None
            else spelled(likely_size("", axis, tensor), allowed.get((tensor.name, axis)))
        )
    return found


_BATCH, _CHANNELS, _SIDE, _LENGTH, _SECOND = 1, 3, 224, 128, 16_000

_RANGES = {_BATCH: "1..64", _CHANNELS: "3", _SIDE: "32..1280:32", _LENGTH: "1..512", _SECOND: "1600..160000"}
"""A likely range for each guess."""

_WAVES = ("wave", "audio", "speech")  # in names of inputs that are sound, sample after sample

_WORDS = (  # what names of dimensions hold → the guess
    ("batch", _BATCH),
    ("channel", _CHANNELS),
    ("height", _SIDE),
    ("width", _SIDE),
    ("past", _LENGTH),
    ("seq", _LENGTH),
    ("len", _LENGTH),
    ("time", _LENGTH),
    ("frame", _LENGTH),
    ("token", _LENGTH),
    ("samples", _SECOND),
)


def likely_size(name: str, axis: int, tensor: DynamicTensor) -> int:
    """A likely size of a dimension: by a word in its name, else by its axis."""
    lower, shape = name.lower(), tensor.shape or ()
    for word, size in _WORDS:
        if word in lower:
            return size
    rank = len(shape)
    if axis == 0:
        return _BATCH
    if rank >= 4:  # the channels' axis is the second, or the last where that says so
        if axis < rank - 1 and all(isinstance(size, int) for n, size in enumerate(shape) if n not in (0, axis)):
            return _LENGTH  # tokens or frames: heads and channels are known, and sides are open together
        channels = rank - 1 if shape[-1] in (1, 3, 4) and not isinstance(shape[1], int) else 1
        return _CHANNELS if axis == channels else _SIDE
    if rank == 3 and axis == 1 and isinstance(shape[0], int) and isinstance(shape[2], int):
        return _BATCH  # a recurrent state: layers, batch, features
    if axis == rank - 1 and any(word in tensor.name.lower() for word in _WAVES):
        return _SECOND
    return _LENGTH
