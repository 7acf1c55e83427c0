"""Decodes tensors stored in blocks of 32 elements with one scale each, as in GGUF files.

The upper half of the header's element type is a vendor, the lower one the format: of `TR` (0x5452), tract's numbers for
Q4_0 and Q8_1; of `GG` (0x4747), those of ggml for Q4_0, Q4_1 and Q8_0. Blocks run along the flattened axes after the
first.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from nnefc.operators.nn.block_quantization import BlockTensor, packed

__all__ = ["BLOCK_FORMATS", "GGML", "TRACT", "BlockFormat", "block_format_of"]

TRACT, GGML = 0x5452, 0x4747
_ELEMENTS = 32

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class BlockFormat:
    """How blocks of 32 elements are stored.

    Attributes:
        name: as messages show it.
        block_bytes: of one block.
        bits: of an element.
        items: returns codes, `[blocks, 32]` uint8, of blocks, `[blocks, block_bytes]`.
        offset_at: where the number is that is added to what the scale is applied to, if there is one.
    """

    name: str
    block_bytes: int
    bits: int
    items: Callable[[Bytes], Bytes]
    offset_at: int | None = None

    def fits(self, shape: tuple[int, ...]) -> bool:
        """Returns whether a tensor of this shape can be stored: full blocks for each element of the first axis."""
        return len(shape) >= 2 and math.prod(shape[1:]) % _ELEMENTS == 0

    def data_bytes(self, shape: tuple[int, ...]) -> int:
        """Returns how many bytes a tensor of this shape takes."""
        return math.prod(shape) // _ELEMENTS * self.block_bytes

    def tensor(self, data: Bytes, shape: tuple[int, ...]) -> BlockTensor:
        """The tensor that the bytes are; in memory it is about as large as they are."""
        rows = shape[0]
        blocks = data.reshape(-1, self.block_bytes)
        codes = packed(self.items(blocks).reshape(rows, -1, _ELEMENTS), self.bits)
        offsets = None if self.offset_at is None else _fp16_at(blocks, self.offset_at).reshape(rows, -1)
        return BlockTensor(shape, self.bits, codes, _fp16_at(blocks, 0).reshape(rows, -1), offsets)


def _fp16_at(blocks: Bytes, at: int) -> npt.NDArray[np.float16]:
    return np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2")


def _halved(start: int) -> Callable[[Bytes], Bytes]:
    """The low halves of the bytes are the first 16 elements, the high ones the others."""
    return lambda blocks: np.concatenate([blocks[:, start:] & 15, blocks[:, start:] >> 4], 1)


def _pairs(blocks: Bytes) -> Bytes:
    """Each byte holds two elements that follow each other: the order of tract before 0.21.11."""
    return np.stack([blocks[:, 2:] & 15, blocks[:, 2:] >> 4], 2).reshape(len(blocks), _ELEMENTS)


def _signed(start: int) -> Callable[[Bytes], Bytes]:
    """Bytes with a sign, of which half their range is taken away here."""
    return lambda blocks: np.ascontiguousarray(blocks[:, start:]) ^ np.uint8(0x80)


_Q4_0 = BlockFormat("Q4_0", 18, 4, _halved(2))
_Q8_1 = BlockFormat("Q8_1", 36, 8, _signed(4))  # the sum after the scale is not needed

BLOCK_FORMATS = {
    (TRACT, 0x3040): _Q4_0,
    (TRACT, 0x2040): BlockFormat("Q4_0 in pairs", 18, 4, _pairs),
    (TRACT, 0x3080): _Q8_1,
    (TRACT, 0x3081): _Q8_1,
    (GGML, 2): _Q4_0,
    (GGML, 3): BlockFormat("Q4_1", 20, 4, _halved(4), 2),
    (GGML, 8): BlockFormat("Q8_0", 34, 8, _signed(2)),
}
"""By the halves of the header's element type."""


def block_format_of(code: int) -> BlockFormat | None:
    """The format that a header's element type says; None for a type of the standard's."""
    return BLOCK_FORMATS.get((code >> 16, code & 0xFFFF))
