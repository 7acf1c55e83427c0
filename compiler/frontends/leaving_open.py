"""What all front ends do with sizes that a model leaves open: they stay open, and errors say how to give them.

x: float32[batch, 3, ?, ?]      batch, x_2 and x_3 are open dimensions, of any size
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace

from nnefc.agreement import Narrowing
from nnefc.diagnostics import CompileError, ran_out_of_memory
from nnefc.frontends.refusals import REFUSALS, reason_of
from nnefc.network import Count, OpenDimension
from nnefc.outline import OpenTensor, likely_size, shape_option
from nnefc.sizes import LARGEST, Dimension, OpenSize, Size, ranges, typical

__all__ = ["OpenInputs", "OpenSizesError", "axis_name", "check_ranges", "leaving_open", "likely_sizes"]

_MOST_TOGETHER = LARGEST**3


def axis_name(tensor: str, axis: int) -> str:
    """The name of an open dimension that the model has none for."""
    return f"{tensor}_{axis}"


def likely_sizes(tensors: Iterable[OpenTensor]) -> dict[str, int]:
    """For estimates, sizes of what inputs leave open, by the names of the dimensions."""
    found: dict[str, int] = {}
    for tensor in tensors:
        for axis, size in enumerate(tensor.shape or ()):
            if not isinstance(size, int):
                found.setdefault(size or axis_name(tensor.name, axis), likely_size(size or "", axis, tensor))
    return found


class OpenInputs:
    """Makes open dimensions of what the inputs of a network without names of dimensions leave open.

    Args:
        narrowing: what is known of them.
    """

    def __init__(self, narrowing: Narrowing) -> None:
        self._narrowing = narrowing
        self._made: dict[str, OpenDimension] = {}

    @property
    def dimensions(self) -> tuple[OpenDimension, ...]:
        """Those that it has made."""
        return tuple(self._made.values())

    def shape(self, name: str, wanted: Sequence[int | OpenSize | None]) -> tuple[Dimension, ...]:
        """The shape of an input, of which sizes are known, open in a range, or just open."""
        declared = OpenTensor(name, "", tuple(size if isinstance(size, int) else None for size in wanted))
        return tuple(self._size(declared, axis, size) for axis, size in enumerate(wanted))

    def _size(self, declared: OpenTensor, axis: int, size: int | OpenSize | None) -> Dimension:
        if isinstance(size, int):
            return size
        opened = replace(size or OpenSize(), likely=likely_size("", axis, declared))
        name, opened = self._narrowing.of(axis_name(declared.name, axis), opened)
        if opened.values.least == opened.values.most:
            return opened.values.least * opened.multiple
        return self._made.setdefault(name, OpenDimension.of(name, opened)).size


def check_ranges(dimensions: Sequence[OpenDimension]) -> None:
    """Refuse wide ranges with which products of sizes are beyond int64: what is proved of those would be wrong.

    Raises:
        CompileError: the product of the largest sizes is, and some of these are larger than those that nobody gave.
    """
    wide = [d for d in dimensions if d.values.most * d.multiple > LARGEST]
    together = math.prod(d.values.most * d.multiple for d in dimensions)
    if wide and together > _MOST_TOGETHER:
        names = " and ".join(f"'{d.name}'" for d in wide)
        raise CompileError(
            f"the open sizes, of which {names} may be more than {LARGEST:,}, may have a product of {together:.0e}, "
            "too large to reckon with in 64 bits",
            hint="give narrower ranges: " + " ".join(f"--shape {d.name}={d.least}..{LARGEST}" for d in wide),
        )


class OpenSizesError(CompileError):
    """A network cannot be compiled while sizes are open.

    Attributes:
        shapes: of all inputs, with likely numbers in place of what is open.
    """

    def __init__(self, error: Exception, shapes: Mapping[str, tuple[int, ...]], option: str) -> None:
        known = (
            error if isinstance(error, CompileError) else CompileError(f"sizes cannot stay open: {reason_of(error)}")
        )
        way = f"give the sizes that are open, with numbers of your own: {option}"
        hint = f"{known.hint}; or {way}" if known.hint else way
        super().__init__(known.message, location=known.location, hint=hint, notes=known.notes)
        self.shapes = shapes


@contextmanager
def leaving_open(
    dimensions: Sequence[OpenDimension], inputs: Mapping[str, tuple[Dimension, ...]], counts: Sequence[Count] = ()
) -> Iterator[None]:
    """Inside, the ranges of these dimensions and counts hold; `inputs` are the shapes of all inputs, by name.

    Raises:
        OpenSizesError: in place of all errors, if any dimension is open.
    """
    with ranges({d.var: d.values for d in dimensions} | {c.var: c.values for c in counts}):
        try:
            yield
        except (AssertionError, CompileError, *REFUSALS) as error:
            if not dimensions or ran_out_of_memory(error):
                raise
            shapes = {name: tuple(map(typical, shape)) for name, shape in inputs.items()}
            option = shape_option(_open_tensor(name, shape, dimensions) for name, shape in inputs.items())
            raise OpenSizesError(error, shapes, option) from error


def _open_tensor(name: str, shape: tuple[Dimension, ...], dimensions: Sequence[OpenDimension]) -> OpenTensor:
    """An input whose open dimensions have the names that the model knows."""

    def spelled(axis: int, size: Dimension) -> int | str | None:
        if not isinstance(size, Size):
            return size
        found = next((dimension.name for dimension in dimensions if dimension.size == size), None)
        return None if found == axis_name(name, axis) else found

    return OpenTensor(name, "", tuple(spelled(axis, size) for axis, size in enumerate(shape)))
