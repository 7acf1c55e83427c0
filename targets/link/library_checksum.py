"""Appends a checksum to a shared library, by which damage is detected.

It is of everything but the constants where these have one of their own, which the library itself compares
(`nnefc_check`), as fast as they can be read; else of everything.

    end - 32  uint64: where the constants start in the file
    end - 24  uint64: their bytes; 0 for none
    end - 16  uint32: CRC-32 of all other bytes before these 32
    end - 12  uint32: 0
    end -  8  "NNEFCCRC"

Numbers are little-endian. The loader looks at it (`compiler/loader/files.py`). Tools that write a library again, such
as strip, leave it out, and then nothing is compared.
"""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import numpy as np
from numpy.typing import NDArray

from nnefc.targets.link.constants import Constants

__all__ = ["add_seal"]

_MAGIC = b"NNEFCCRC"
_STEP = 512  # what sections of PE files are aligned to
_PART = 1 << 20

_Image = NDArray[np.uint8]


def add_seal(library: Path, constants: Constants | None, are_last: bool = False) -> None:
    """Adds the checksum to the file of a library that holds `constants`.

    Args:
        are_last: whether they are known to be the end of the file; else they are looked for.
    """
    with library.open("rb") as file:
        length = file.seek(0, os.SEEK_END)
        start, size = _position(file, length, constants, are_last) if constants is not None else (0, 0)
        sum_ = 0
        for first, last in ((0, start), (start + size, length)):
            for at in range(first, last, _PART):
                sum_ = zlib.crc32(_read(file, at, min(_PART, last - at)), sum_)
    with library.open("ab") as file:
        file.write(struct.pack("<QQII8s", start, size, sum_, 0, _MAGIC))


def _read(file: BinaryIO, at: int, size: int) -> bytes:
    """Bytes of a file, in memory of their own: pages of a mapped file would all be in memory in the end."""
    file.seek(at)
    return file.read(size)


def _position(file: BinaryIO, length: int, constants: Constants, are_last: bool) -> tuple[int, int]:
    """Where the constants are in a file: at its end, or at a step; nowhere, of no bytes, if they are elsewhere."""
    parts = [(offset, array.reshape(-1).view(np.uint8)) for offset, array in constants.arrays if array.nbytes]
    if not parts or parts[0][0] != 0 or len(parts[0][1]) < 8:
        return 0, 0
    if are_last:
        return length - constants.size, constants.size
    for start in (length - constants.size, *_steps_with(file, length, parts[0][1][:8])):
        if start >= 0 and all(_is_at(file, start + at, part) for at, part in parts):
            return start, constants.size
    return 0, 0


def _steps_with(file: BinaryIO, length: int, word: _Image) -> Iterator[int]:
    """The steps of a file at which these eight bytes are."""
    for at in range(0, length // _STEP * _STEP, _PART):
        piece = np.frombuffer(_read(file, at, min(_PART, length // _STEP * _STEP - at)), np.uint64)[:: _STEP // 8]
        yield from (at + int(found) * _STEP for found in np.flatnonzero(piece == word.view(np.uint64)[0]))


def _is_at(file: BinaryIO, start: int, part: _Image) -> bool:
    return all(
        _read(file, start + at, min(_PART, len(part) - at)) == part[at : at + _PART].tobytes()
        for at in range(0, len(part), _PART)
    )
