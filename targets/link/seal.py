"""What a shared library ends with, so that damage to it is noticed: a checksum.

It is of everything but the constants where these have one of their own, which the library itself compares
(`nnefc_check`), as fast as they can be read; else of everything.

    end - 32  uint64: where the constants start in the file
    end - 24  uint64: their bytes; 0 for none
    end - 16  uint32: CRC-32 of all other bytes before these 32
    end - 12  uint32: 0
    end -  8  "NNEFCCRC"

Numbers are little-endian. The loader looks at it (`compiler/loader/files.py`). Tools that write a library anew, such as
strip, leave it out, and then nothing is compared.
"""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnefc.targets.link.constants import Constants

__all__ = ["add_seal"]

_MAGIC = b"NNEFCCRC"
_STEP = 512  # what sections of PE files are aligned to
_PART = 1 << 20

_Image = NDArray[np.uint8]


def add_seal(library: Path, constants: Constants | None) -> None:
    """Add the checksum to the file of a library that holds `constants`."""
    image = np.memmap(library, np.uint8, "r")
    start, size = _place(image, constants) if constants is not None else (0, 0)
    sum_ = 0
    for first, last in ((0, start), (start + size, len(image))):
        for at in range(first, last, _PART):
            sum_ = zlib.crc32(image[at : min(at + _PART, last)].data, sum_)
    del image
    with library.open("ab") as file:
        file.write(struct.pack("<QQII8s", start, size, sum_, 0, _MAGIC))


def _place(image: _Image, constants: Constants) -> tuple[int, int]:
    """Where the constants are in a file: at its end, or at a step; nowhere, of no bytes, if they are elsewhere."""
    parts = [(offset, array.reshape(-1).view(np.uint8)) for offset, array in constants.arrays if array.nbytes]
    if not parts or parts[0][0] != 0 or len(parts[0][1]) < 8:
        return 0, 0
    words = image[: len(image) // _STEP * _STEP].view(np.uint64)[:: _STEP // 8]
    found = np.flatnonzero(words == parts[0][1][:8].view(np.uint64)[0]) * _STEP
    for start in (len(image) - constants.size, *map(int, found)):
        if start >= 0 and all(_is_at(image, start + at, part) for at, part in parts):
            return start, constants.size
    return 0, 0


def _is_at(image: _Image, start: int, part: _Image) -> bool:
    return all(
        np.array_equal(image[start + at : start + min(at + _PART, len(part))], part[at : at + _PART])
        for at in range(0, len(part), _PART)
    )
