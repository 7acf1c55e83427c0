"""Items that tract stores in blocks of 32, with a scale each: Q4_0 and Q8_1 (as in GGUF).

The header's item type has the vendor `TR` (0x5452) in its upper half and the format in its lower one. Blocks run along
the flattened axes after the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["BLOCK_FORMATS", "BlockFormat", "block_format_of"]

_VENDOR = 0x5452
_ITEMS = 32

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class BlockFormat:
    """How blocks of 32 items are stored.

    Attributes:
        name: as messages show it.
        block_bytes: of one block.
        read: the items of blocks, `[blocks, 32]` float32, from their bytes, `[blocks, block_bytes]`.
    """

    name: str
    block_bytes: int
    read: Callable[[Bytes], npt.NDArray[np.float32]]

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Whether a tensor of this shape can be stored: whole blocks for each item of the first axis."""
        return len(shape) >= 2 and math.prod(shape[1:]) % _ITEMS == 0

    def data_bytes(self, shape: tuple[int, ...]) -> int:
        """How many bytes a tensor of this shape takes."""
        return math.prod(shape) // _ITEMS * self.block_bytes

    def values(self, data: Bytes, shape: tuple[int, ...]) -> npt.NDArray[np.float32]:
        """The items as float32."""
        return self.read(data.reshape(-1, self.block_bytes)).reshape(shape)


def _scale(blocks: Bytes, at: int = 0) -> npt.NDArray[np.float32]:
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2").astype(np.float32)


def _q4_0(blocks: Bytes) -> npt.NDArray[np.float32]:
    """The low halves of the bytes are the first 16 items, the high ones the others."""
    halves = np.concatenate([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], 1)
    return (halves.astype(np.float32) - 8) * _scale(blocks)


def _q4_0_pairs(blocks: Bytes) -> npt.NDArray[np.float32]:
    """Each byte holds two items that follow each other: the order of tract before 0.21.11."""
    halves = np.stack([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], 2).reshape(len(blocks), _ITEMS)
    return (halves.astype(np.float32) - 8) * _scale(blocks)


def _q8_1(blocks: Bytes) -> npt.NDArray[np.float32]:
    """A scale, a sum that is not needed, 32 bytes."""
    made: npt.NDArray[Any] = np.ascontiguousarray(blocks[:, 4:]).view(np.int8).astype(np.float32) * _scale(blocks)
    return made


BLOCK_FORMATS = {
    0x3040: BlockFormat("Q4_0", 18, _q4_0),
    0x2040: BlockFormat("Q4_0 in pairs", 18, _q4_0_pairs),
    0x3080: BlockFormat("Q8_1", 36, _q8_1),
    0x3081: BlockFormat("Q8_1", 36, _q8_1),
}
"""By the lower half of the header's item type."""


def block_format_of(code: int) -> BlockFormat | None:
    """The format that a header's item type says; None for a type of the standard's."""
    return BLOCK_FORMATS.get(code & 0xFFFF) if code >> 16 == _VENDOR else None
