"""Trained values in a file of their own, which `runtime/weights.c` maps and checks; see there for what is in it."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnefc.targets.description.library import WeightsFile
from nnefc.targets.link.constants import Constants

__all__ = ["write_weights"]

_MAGIC, _VERSION, _HEADER_BYTES, _NAME_BYTES = b"NNEFCWTS", 1, 4096, 256
_BLOCK, _LANES = 64, 8
_FACTOR = 0x9E3779B97F4A7C15
_ROWS = 1 << 16  # of lanes, taken at a time


def write_weights(constants: Constants, model: str, path: Path) -> WeightsFile:
    """Write the file `path` with `constants`, for the network called `model`."""
    name = model.encode()[: _NAME_BYTES - 1].decode(errors="ignore").encode()
    with path.open("wb") as file:
        file.seek(_HEADER_BYTES)
        constants.write(file)
        file.truncate(_HEADER_BYTES + -(-constants.size // _BLOCK) * _BLOCK)
    sum_ = checksum(np.memmap(path, np.uint64, "r", _HEADER_BYTES), constants.size)
    header = struct.pack("<8sIIQQ", _MAGIC, _VERSION, _HEADER_BYTES, constants.size, sum_) + name
    with path.open("r+b") as file:
        file.write(header)
    return WeightsFile(path.name, sum_)


def checksum(words: NDArray[np.uint64], size: int) -> int:
    """The checksum of `size` bytes, given as 64-bit words with zeros up to a multiple of 64 bytes.

    A polynomial in each of eight lanes modulo 2^64, then one of the lanes and the size: every changed word changes it,
    and it takes no longer than reading.
    """
    rows = words.reshape(-1, _LANES)
    powers = np.full((_ROWS, 1), _FACTOR, np.uint64)
    powers[0] = 1
    powers = np.multiply.accumulate(powers, axis=0)[::-1]  # the last row of a part has the power 0
    lanes = np.zeros(_LANES, np.uint64)
    for start in range(0, len(rows), _ROWS):
        part = rows[start : start + _ROWS]
        mixed = part ^ part >> np.uint64(32)
        lanes *= np.uint64(pow(_FACTOR, len(part), 1 << 64))
        lanes += (mixed * powers[_ROWS - len(part) :]).sum(axis=0, dtype=np.uint64)
    sum_ = size
    for lane in map(int, lanes):
        sum_ = (sum_ * _FACTOR + (lane ^ lane >> 32)) % (1 << 64)
    return sum_
