"""The trained values of a decoder by the names that files of GGUF have for them, read when they are asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nnefc.frontends.tensor_types import TensorType
from nnefc.frontends.tensor_types.floats import F32
from nnefc.frontends.tensor_types.tensor_type import Bytes
from nnefc.operators.base import Array
from nnefc.operators.nn.block_quantization import BlockTensor
from nnefc.support.diagnostics import CompileError

__all__ = ["StoredTensor", "Weights", "float_tensor", "shown", "stacked"]


@dataclass(frozen=True, eq=False)
class StoredTensor:
    """A tensor of a file: a view of its bytes, and what is to be done with them.

    Attributes:
        type: of its elements.
        shape: as the file has it, before `order`.
        data: its bytes, one row of the first axis after the other.
        order: which rows it has, in which order; None for all as they are.
        added: to each element, for files that leave a constant out.
        scales: factors of an element type that does not hold them.
        scale_blocks: how many elements along each axis share a scale.
        pieces: its bytes, one array after the other, where they do not lie together; `data` is the first one.
    """

    type: TensorType
    shape: tuple[int, ...]
    data: Bytes
    order: Array | None = None
    added: float = 0.0
    scales: Array | None = None
    scale_blocks: tuple[int, ...] = ()
    pieces: tuple[Bytes, ...] = ()

    @property
    def stored_bytes(self) -> int:
        """How many bytes of the file it takes."""
        return sum(map(len, self.pieces)) if self.pieces else len(self.data)

    @property
    def final_shape(self) -> tuple[int, ...]:
        """The shape with the rows that it has."""
        return self.shape if self.order is None else (len(self.order), *self.shape[1:])

    @property
    def is_stored_whole(self) -> bool:
        """Whether the bytes are the tensor, but for the order of its rows."""
        return not self.added and self.scales is None

    def rows(self, which: Array) -> StoredTensor:
        """Some of its rows."""
        return replace(self, order=which if self.order is None else self.order[which])

    def raw(self) -> Bytes:
        """Its bytes with the rows that it has."""
        data = np.concatenate(self.pieces) if self.pieces else self.data
        if self.order is None:
            return data
        return data.reshape(self.shape[0], -1)[self.order].reshape(-1)

    def value(self) -> Array | BlockTensor:
        """Its elements."""
        found = self.type.tensor(self.raw(), self.final_shape)
        if self.is_stored_whole:
            return found
        assert isinstance(found, np.ndarray), "only floats are changed"
        if self.scales is not None:
            found = found * _repeated(self.scales, self.scale_blocks, self.shape, self.order)
        return (found + np.float32(self.added)).astype(np.float32) if self.added else found

    def value_as_floats(self) -> Array:
        """Its elements, float32."""
        found = self.value()
        return found if isinstance(found, np.ndarray) else found.values()


_MAX_SHOWN = 80


def shown(text: object) -> str:
    """Returns a text of a file as messages show it: the beginning, without what a terminal would obey."""
    found = str(text)
    kept = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in found[:_MAX_SHOWN])
    return kept if len(found) <= _MAX_SHOWN else f"{kept}…"


def float_tensor(values: Array) -> StoredTensor:
    """A tensor of numbers that were computed."""
    array = np.ascontiguousarray(values, "<f4")
    return StoredTensor(F32, array.shape, array.view(np.uint8).reshape(-1))


def stacked(tensors: Sequence[StoredTensor]) -> StoredTensor:
    """Tensors of one shape and type, as one with a further first axis."""
    first = tensors[0]
    if any(tensor.type is not first.type or not tensor.is_stored_whole for tensor in tensors):
        raise CompileError(f"experts of several element types, or with scales, are not supported ({first.type.name})")
    pieces = tuple(tensor.raw() for tensor in tensors)
    return StoredTensor(first.type, (len(tensors), *first.shape), first.data, pieces=pieces)


def _repeated(scales: Array, blocks: tuple[int, ...], shape: tuple[int, ...], order: Array | None) -> Array:
    """Returns scales of blocks as one for each element, cut off at the shape."""
    made = scales.astype(np.float32).reshape([-(-size // own) for size, own in zip(shape, blocks, strict=True)])
    for axis, (size, own) in enumerate(zip(shape, blocks, strict=True)):
        made = np.repeat(made, own, axis)[(slice(None),) * axis + (slice(size),)]
    return made if order is None else made[order]


@dataclass
class Weights:
    """The tensors of a model; those that a network does not use are known in the end.

    Attributes:
        source: the name of the file, for messages.
        tensors: by their names; blocks with a name of their own replace those that a file has in one.
    """

    source: str
    tensors: dict[str, StoredTensor]
    used: set[str] = field(default_factory=set)
    original_name: Callable[[str], str] = str
    """Returns what the file calls a tensor, also one that is missing."""

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def get(self, name: str, shape: tuple[int, ...]) -> StoredTensor:
        """Returns a tensor.

        Raises:
            CompileError: there is none, or it has another shape.
        """
        if name not in self.tensors:
            raise CompileError(
                f"'{self.source}' has no tensor '{shown(self.original_name(name))}'",
                hint="the file is incomplete, or of another architecture than it says",
            )
        found = self.tensors[name]
        if found.final_shape != shape:
            own = f"the tensor '{shown(self.original_name(name))}' has the shape {list(found.final_shape)}"
            raise CompileError(f"'{self.source}': {own}, its network needs {list(shape)}")
        self.used.add(name)
        return found

    def unused(self) -> Iterator[str]:
        """Yields what the file calls tensors that no one has asked for, in their order."""
        return (self.original_name(name) for name in self.tensors if name not in self.used)
