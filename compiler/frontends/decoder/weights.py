"""The trained values of a decoder by the names that files of GGUF have for them, read when they are asked for."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from nnefc.frontends.tensor_types import TensorType
from nnefc.frontends.tensor_types.floats import F32, FP8_E4M3
from nnefc.frontends.tensor_types.integers import INTEGERS
from nnefc.frontends.tensor_types.tensor_type import Bytes
from nnefc.operators.base import Array
from nnefc.operators.nn.block_quantization import BlockTensor, Multiples
from nnefc.support.diagnostics import CompileError
from nnefc.support.mapped_files import LARGE, empty_array, release_pages

__all__ = ["JoinedTensor", "StoredTensor", "Weights", "float_tensor", "in_order_of_columns", "shown", "stacked"]


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
        factors: of equal parts of the rows, one for each part.
    """

    type: TensorType
    shape: tuple[int, ...]
    data: Bytes
    order: Array | None = None
    added: float = 0.0
    scales: Array | None = None
    scale_blocks: tuple[int, ...] = ()
    factors: Array | None = None

    @property
    def stored_bytes(self) -> int:
        """How many bytes of the file it takes."""
        return len(self.data) + (0 if self.scales is None else self.scales.nbytes)

    @property
    def final_shape(self) -> tuple[int, ...]:
        """The shape with the rows that it has."""
        return self.shape if self.order is None else (len(self.order), *self.shape[1:])

    @property
    def is_stored_whole(self) -> bool:
        """Whether the bytes are the tensor, but for the order of its rows."""
        return not self.added and self.scales is None and self.factors is None

    def rows(self, which: Array) -> StoredTensor:
        """Some of its rows."""
        return replace(self, order=which if self.order is None else self.order[which])

    def raw(self) -> Bytes:
        """Its bytes with the rows that it has."""
        if self.order is None:
            return self.data
        return self.data.reshape(self.shape[0], -1)[self.order].reshape(-1)

    def value(self) -> Array | BlockTensor:
        """Its elements."""
        blocks = _float_blocks(self)
        if blocks is not None:
            return blocks
        found = self.type.tensor(self.raw(), self.final_shape)
        if self.factors is not None:
            factors = np.repeat(self.factors, self.shape[0] // len(self.factors))
            found = _multiplied(found, factors if self.order is None else factors[self.order])
        if not self.added and self.scales is None:
            return found
        assert isinstance(found, np.ndarray), "only floats are changed"
        if self.scales is not None:
            found = found * _repeated(self.scales, self.scale_blocks, self.shape, self.order)
        return (found + np.float32(self.added)).astype(np.float32) if self.added else found

    def value_as_floats(self) -> Array:
        """Its elements, float32."""
        found = self.value()
        return found if isinstance(found, np.ndarray) else found.values()


@dataclass(frozen=True, eq=False)
class JoinedTensor(StoredTensor):
    """A tensor that follows from several of a file, such as integers and their scales; `data` is empty.

    Attributes:
        parts: the tensors of the file.
        join: returns the elements of all rows.
        columns: which element of an operand's rows each of its columns is multiplied with; None for all in their order.
    """

    parts: tuple[StoredTensor, ...] = ()
    join: Callable[[], Array | BlockTensor] = field(default=lambda: np.empty(0, np.float32))
    columns: Array | None = None

    @property
    def stored_bytes(self) -> int:
        """How many bytes of the file its parts take."""
        return sum(part.stored_bytes for part in self.parts)

    @property
    def is_stored_whole(self) -> bool:
        """No bytes of the file are the tensor."""
        return False

    def value(self) -> Array | BlockTensor:
        """Its elements with the rows that it has."""
        with np.errstate(all="ignore"):  # what a damaged file makes of its scales
            found = self.join()
        assert found.shape == self.shape, (found.shape, self.shape)
        return found if self.order is None else _rows_of(found, self.order)


def _rows_of(tensor: Array | BlockTensor, order: Array) -> Array | BlockTensor:
    """Returns some rows of the first axis."""
    if isinstance(tensor, np.ndarray):
        return tensor[order]
    offsets = None if tensor.offsets is None else tensor.offsets[order]
    shape = (len(order), *tensor.shape[1:])
    return replace(tensor, shape=shape, codes=tensor.codes[order], scales=tensor.scales[order], offsets=offsets)


def _multiplied(tensor: Array | BlockTensor, factors: Array) -> Array | BlockTensor:
    """Returns a tensor with a factor for each row of the first axis."""

    def product(numbers: Array) -> Array:
        own = factors.reshape(-1, *(1,) * (numbers.ndim - 1))
        return np.asarray(numbers.astype(np.float32) * own, np.float32)

    def scaled(numbers: Array | Multiples) -> Array | Multiples:
        return (
            product(numbers) if isinstance(numbers, np.ndarray) else replace(numbers, factors=product(numbers.factors))
        )

    with np.errstate(all="ignore"):  # what a damaged file makes of its factors
        if isinstance(tensor, np.ndarray):
            return product(tensor)
        offsets = None if tensor.offsets is None else scaled(tensor.offsets)
        return replace(tensor, scales=scaled(tensor.scales), offsets=offsets)


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
    """Matrices of one shape, one below the other: in blocks if all of them are in the same ones, else as floats."""
    first = tensors[0]
    shape = (len(tensors) * first.final_shape[0], *first.final_shape[1:])
    return JoinedTensor(first.type, shape, first.data[:0], parts=tuple(tensors), join=lambda: _below(tensors))


def _below(tensors: Sequence[StoredTensor]) -> Array | BlockTensor:
    first = tensors[0].value()
    if isinstance(first, BlockTensor) and all(_columns_of(tensor) is None for tensor in tensors):
        found = [first, *(tensor.value() for tensor in tensors[1:])]
        blocks = [each for each in found if isinstance(each, BlockTensor)]
        kinds = {(b.bits, b.codes.shape[1:], type(b.scales), type(b.offsets), b.is_float) for b in blocks}
        if len(blocks) == len(found) and len(kinds) == 1:
            return _blocks_below(blocks)
    rows = first.shape[0]
    made = empty_array((len(tensors) * rows, *first.shape[1:]), np.float32)
    for n, tensor in enumerate(tensors):
        made[n * rows : (n + 1) * rows] = in_order_of_columns(tensor)
        if made.nbytes >= LARGE:
            release_pages()
    made.flags.writeable = False
    return made


def _blocks_below(tensors: Sequence[BlockTensor]) -> BlockTensor:
    codes = np.concatenate([each.codes for each in tensors])
    scales = _numbers_below([each.scales for each in tensors])
    offsets = [each.offsets for each in tensors if each.offsets is not None]
    shape = (len(codes), *tensors[0].shape[1:])
    joined = _numbers_below(offsets) if offsets else None
    return replace(tensors[0], shape=shape, codes=codes, scales=scales, offsets=joined)


def _numbers_below(parts: Sequence[Array | Multiples]) -> Array | Multiples:
    """Scales or offsets of one kind, those of one matrix below those of the one before."""
    multiples = [part for part in parts if isinstance(part, Multiples)]
    if not multiples:
        return np.concatenate([part for part in parts if isinstance(part, np.ndarray)])
    arrays = zip(*((part.integers, part.factors) for part in multiples), strict=True)
    return Multiples(*map(np.concatenate, arrays))


def in_order_of_columns(tensor: StoredTensor) -> Array:
    """Returns the elements of a matrix, float32, each column where its operand's element is."""
    value, columns = tensor.value_as_floats(), _columns_of(tensor)
    if columns is None:
        return value
    made = np.empty_like(value)
    made[:, columns] = value
    return made


def _columns_of(tensor: StoredTensor) -> Array | None:
    return tensor.columns if isinstance(tensor, JoinedTensor) else None


_LARGEST_BLOCK, _MULTIPLE = 128, 16


def _float_blocks(tensor: StoredTensor) -> BlockTensor | None:
    """Returns a matrix of floats of 8 bits with scales as blocks along its rows; None where it is none, or has NaN."""
    if tensor.type is not FP8_E4M3 or tensor.scales is None or tensor.added or len(tensor.shape) != 2:
        return None
    rows, depth = tensor.shape
    high, wide = tensor.scale_blocks
    common = math.gcd(wide, depth)
    block = next((size for size in range(_LARGEST_BLOCK, 0, -_MULTIPLE) if common % size == 0), None)
    codes = tensor.raw().reshape(-1, depth)
    if block is None or (codes & 127 == 127).any():
        return None
    scales = tensor.scales.astype(np.float32).reshape(-(-rows // high), -(-depth // wide))
    scales = scales[np.arange(rows) // high][:, np.arange(0, depth, block) // wide]
    scales = scales if tensor.order is None else scales[tensor.order]
    return BlockTensor(tensor.final_shape, 8, codes.reshape(len(codes), -1, block), scales, is_float=True)


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
        if found.type.name in INTEGERS and not isinstance(found, JoinedTensor):
            own = f"the tensor '{shown(self.original_name(name))}' has elements of the type {found.type.name}"
            raise CompileError(f"'{self.source}': {own}, and nothing says which numbers they stand for")
        self.used.add(name)
        return found

    def unused(self) -> Iterator[str]:
        """Yields what the file calls tensors that no one has asked for, in their order."""
        return (self.original_name(name) for name in self.tensors if name not in self.used)
