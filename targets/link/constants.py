"""Holds a network's trained values as arrays with offsets, without copying them into one buffer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray
from xxhash import xxh3_64

from nnefc.support.mapped_files import release_pages

__all__ = ["Constants"]

_MIN = 256  # bytes: what the algorithm for long inputs, the only one of the runtime, takes
_PIECE = 1 << 20
_ZEROS = bytes(1 << 16)
_NOTHING: NDArray[np.generic] = np.zeros(0, np.uint8)


@dataclass(frozen=True)
class Constants:
    """Arrays at their offsets, with zeros between and after them.

    Attributes:
        size: of all, in bytes.
        arrays: dense arrays with their offsets, ascending and without overlaps.
    """

    size: int
    arrays: tuple[tuple[int, NDArray[np.generic]], ...]

    @staticmethod
    def of(content: bytes) -> Constants:
        """Return constants with this content."""
        return Constants(len(content), ((0, np.frombuffer(content, np.uint8)),))

    @cached_property
    def checksum(self) -> int:
        """The 64-bit XXH3, as in `runtime/checksum.c`: less than 256 bytes are padded with zeros."""
        found = xxh3_64()
        for piece in self.pieces():
            found.update(piece)
        found.update(_ZEROS[: max(0, _MIN - self.size)])
        return found.intdigest()

    def pieces(self) -> Iterator[memoryview]:
        """Yield all bytes in order, in pieces of at most 1 MiB."""
        at = 0
        for offset, array in (*self.arrays, (self.size, _NOTHING)):
            for start in range(at, offset, len(_ZEROS)):
                yield memoryview(_ZEROS)[: offset - start]
            yield from _pieces_of(array)
            at = offset + array.nbytes

    def write(self, file: BinaryIO) -> None:
        """Append all bytes to `file`."""
        start = file.tell()
        for offset, array in self.arrays:
            file.seek(start + offset)
            for piece in _pieces_of(array):
                file.write(piece)
        file.truncate(start + self.size)

    def save(self, path: Path) -> Path:
        """Write a file with the constants only, and return its path."""
        with path.open("wb") as file:
            self.write(file)
        return path


def _pieces_of(array: NDArray[np.generic]) -> Iterator[memoryview]:
    """Yield the bytes of an array; of a memory-mapped array, only about one piece is in memory at a time."""
    data = array.reshape(-1).view(np.uint8).data
    for start in range(0, len(data), _PIECE):
        yield data[start : start + _PIECE]
        if start + _PIECE <= len(data):
            release_pages()
