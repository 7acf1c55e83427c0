"""Defines what a stored element type is: how many bytes a block takes, and which numbers these are.

A block is read as integers with scales wherever the compiler has a product for such integers; all other types are read
as float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnefc.operators.base import Array
from nnefc.operators.nn.block_quantization import BlockTensor, Multiples, packed
from nnefc.support.mapped_files import LARGE, empty_array, release_pages

__all__ = ["BlockCodes", "Bytes", "TensorType", "at_offset"]

Bytes = npt.NDArray[np.uint8]

_CHUNK_BYTES = 1 << 20
"""Stored bytes decoded at a time: intermediate arrays, some ten times as much, stay in a cache."""


@dataclass(frozen=True, eq=False)
class BlockCodes:
    """Blocks as the integers of a :class:`BlockTensor`, not yet packed.

    Attributes:
        bits: of an integer.
        codes: `[blocks, elements]`, uint8.
        scales: `[blocks, parts]`, floats or multiples of one float for each block; each part of a block has one.
        offsets: `[blocks, parts]`, like scales; added to the scaled integers. None: half the range is subtracted.
    """

    bits: int
    codes: Bytes
    scales: Array | Multiples
    offsets: Array | Multiples | None = None

    @property
    def parts(self) -> int:
        """Parts of a block."""
        return int((self.scales.integers if isinstance(self.scales, Multiples) else self.scales).shape[1])

    def arrays(self) -> Iterator[Array]:
        """Yields what scales and offsets consist of."""
        for numbers in (self.scales, self.offsets):
            if isinstance(numbers, Multiples):
                yield from (numbers.integers, numbers.factors)
            elif numbers is not None:
                yield numbers


@dataclass(frozen=True, eq=False)
class TensorType:
    """A stored element type.

    Attributes:
        name: as messages and tables show it.
        elements: of a block; 1 for floats.
        block_bytes: of one block.
        decode: returns what blocks, `[blocks, block_bytes]`, are: integers with scales, or float32
            `[blocks, elements]`.
        computed: how the compiler keeps it, for the table in the documentation.
    """

    name: str
    elements: int
    block_bytes: int
    decode: Callable[[Bytes], BlockCodes | Array]
    computed: str

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Returns whether a tensor of this shape can be stored: full blocks for each element of the first axis."""
        return self.elements == 1 or (len(shape) >= 2 and math.prod(shape[1:]) % self.elements == 0)

    def data_bytes(self, shape: tuple[int, ...]) -> int:
        """Returns how many bytes a tensor of this shape takes."""
        return math.prod(shape) // self.elements * self.block_bytes

    @np.errstate(all="ignore")  # scales of a file may be infinite
    def tensor(self, data: Bytes, shape: tuple[int, ...]) -> Array | BlockTensor:
        """Returns the tensor that the bytes are; of a large one little more than a slice is in memory at any time."""
        blocks = data.reshape(-1, self.block_bytes)
        step = max(1, _CHUNK_BYTES // self.block_bytes)
        starts = range(0, len(blocks), step)
        decoded = self.decode(blocks[:step])
        if not isinstance(decoded, BlockCodes):
            made = empty_array((len(blocks), self.elements), np.float32)
            for start in starts:
                found = decoded if start == 0 else self.decode(blocks[start : start + step])
                assert not isinstance(found, BlockCodes)
                made[start : start + step] = found
                if made.nbytes >= LARGE:
                    release_pages()
            made.flags.writeable = False
            return made.reshape(shape)
        return self._in_blocks(decoded, blocks, starts, shape)

    def _in_blocks(self, first: BlockCodes, blocks: Bytes, starts: range, shape: tuple[int, ...]) -> BlockTensor:
        """Decodes one slice of the blocks after the other into arrays for all of them; `first` is the first slice."""
        rows, bits, count, parts = shape[0], first.bits, len(blocks), first.parts
        codes = empty_array((count, self.elements * bits // 8), np.uint8)
        numbers = [empty_array((count, array.shape[1]), array.dtype) for array in first.arrays()]
        for start in starts:
            own = slice(start, start + starts.step)
            found = first if start == 0 else self.decode(blocks[own])
            assert isinstance(found, BlockCodes)
            codes[own] = packed(found.codes, bits)
            for array, part in zip(numbers, found.arrays(), strict=True):
                array[own] = part
        for array in (codes, *numbers):
            array.flags.writeable = False
        release_pages()
        arrays = iter(array.reshape(rows, -1) for array in numbers)
        scales, offsets = (_of_arrays(part, arrays) for part in (first.scales, first.offsets))
        assert scales is not None
        return BlockTensor(shape, bits, codes.reshape(rows, count // rows * parts, -1), scales, offsets)


def _of_arrays(numbers: Array | Multiples | None, arrays: Iterator[Array]) -> Array | Multiples | None:
    """Returns what consists of the next arrays in the same way as some numbers do."""
    if numbers is None:
        return None
    return Multiples(next(arrays), next(arrays)) if isinstance(numbers, Multiples) else next(arrays)


def at_offset(blocks: Bytes, offset: int, dtype: str, count: int = 1) -> Array:
    """Returns `count` numbers of each block, `[blocks, count]`, that begin at a byte of it."""
    size = np.dtype(dtype).itemsize * count
    return np.ascontiguousarray(blocks[:, offset : offset + size]).view(dtype)
