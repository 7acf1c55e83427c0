"""Describes the functions that a host calls on a device: CUDA source, launches of its kernels, and their arguments.

DeviceCode         source, and a function for each kernel of the network
DeviceFunction     parameters (buffers, with those of its workspace), sizes, launches
Launch             grid, block, shared memory, and which parameters, numbers and tensor maps a kernel is given
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from nnefc.targets.codegen.cuda.formulas import Formula, Number

__all__ = [
    "DeviceCode",
    "DeviceFunction",
    "EncodedMap",
    "Launch",
    "LaunchParameter",
    "Scalar",
    "Version",
]

_COUNT_BYTES = 8  # int64


@dataclass(frozen=True)
class LaunchParameter:
    """A buffer that a function is given, by its position in device memory.

    Attributes:
        bytes: its size.
        offset: of a buffer of the function's workspace, where in it it lies; else None.
        counts_arrivals: whether it is the session's memory that is 0 before and after each launch.
    """

    name: str
    bytes: Number
    offset: Number | None = None
    counts_arrivals: bool = False


@dataclass(frozen=True)
class Scalar:
    """An argument that is a number, of the type `dtype`; `bounds` are the smallest and the largest that an integer can
    be."""

    dtype: str
    value: Number
    bounds: tuple[int, int]


@dataclass(frozen=True)
class EncodedMap:
    """An argument that is a tensor map, which the host encodes for an address.

    Attributes:
        parameter: the position of the tensor's buffer among the function's parameters.
        first: bytes of the buffer before the tensor.
        element_bytes: of the tensor: 1, 2, 4 or 8. Those of 4 are float32, which copies round to TF32.
        strides: bytes from an element to the next along each dimension but the first.
        sizes, box, steps, row_vectors: as :class:`TensorMap` has them.
    """

    parameter: int
    first: int
    element_bytes: int
    sizes: tuple[Number, ...]
    strides: tuple[Number, ...]
    box: tuple[int, ...]
    steps: tuple[int, ...]
    row_vectors: int


@dataclass(frozen=True)
class Launch:
    """One start of a kernel of the device's.

    Attributes:
        kernel: its symbol in the source.
        grid, block: how many blocks, and threads in each, by x, y and z.
        shared_bytes: of dynamic shared memory.
        arguments: positions among the function's parameters, for pointers, numbers and tensor maps.
        reports: whether a last argument is the word for the number of a message, see `DeviceCode.messages`.
    """

    kernel: str
    grid: tuple[Number, int, int]
    block: tuple[int, int, int]
    shared_bytes: int
    arguments: tuple[int | Scalar | EncodedMap, ...]
    reports: bool = False

    @property
    def threads(self) -> int | None:
        """All threads of all blocks; None if their number is open."""
        blocks, *others = self.grid
        return None if isinstance(blocks, Formula) else math.prod((blocks, *others, *self.block))


@dataclass(frozen=True)
class Version:
    """A function that is called in place of another one, of some sizes or on some devices.

    Attributes:
        name: of the function.
        values: these sizes, as the other one's formulas call them; the function is given the rest.
        has_workspace: whether it needs some.
        architectures: those of the devices; empty for all.
    """

    name: str
    values: tuple[tuple[str, int], ...]
    has_workspace: bool
    architectures: tuple[int, ...] = ()


@dataclass(frozen=True)
class DeviceFunction:
    """The launches of a TIR function, one after another.

    Attributes:
        parameters: the function's buffers, then those of its workspace.
        sizes: what formulas call the sizes that are its last arguments.
        named: what they call other sizes, and what these are; each may depend on those before it.
        versions: what is called instead, the first one whose condition holds; the host must know all sizes.
        in_memory: sizes that its kernels read from memory, see `sizes_in_memory.py`; its arguments are their maximum.
    """

    name: str
    parameters: tuple[LaunchParameter, ...]
    launches: tuple[Launch, ...]
    sizes: tuple[str, ...] = ()
    named: tuple[tuple[str, Number], ...] = ()
    versions: tuple[Version, ...] = ()
    in_memory: tuple[str, ...] = ()


@dataclass(frozen=True)
class DeviceCode:
    """CUDA source and how it is called.

    Attributes:
        messages: what kernels may report, as C writes it between quotation marks; the first has the number 1.
        counts: how many sizes of a run its kernels read from memory.
    """

    source: str = field(repr=False)
    functions: tuple[DeviceFunction, ...]
    messages: tuple[str, ...] = ()
    counts: int = 0

    @property
    def arrival_bytes(self) -> int:
        """Returns the bytes in which launches count the blocks that have arrived, one launch after the other, with
        those of the counts behind them."""
        return self.counts_offset + self.counts * _COUNT_BYTES

    @property
    def counts_offset(self) -> int:
        """Returns where the counts begin."""
        parameters = (each for function in self.functions for each in function.parameters if each.counts_arrivals)
        arrivals = max((each.bytes for each in parameters if isinstance(each.bytes, int)), default=0)
        return -(-arrivals // _COUNT_BYTES) * _COUNT_BYTES if self.counts else arrivals

    @property
    def launches(self) -> tuple[Launch, ...]:
        """Returns the launches of all functions."""
        return tuple(launch for function in self.functions for launch in function.launches)
