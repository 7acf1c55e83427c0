"""Damage to a library is noticed when it is loaded, wherever it is."""

from __future__ import annotations

import random
import struct
from pathlib import Path

import numpy as np
import pytest
import xxhash
from runtime_samples import CONSTANTS, WEIGHTS, sample_library

from nnefc.loader import LoadError, load
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.library_checksum import add_seal

SEAL_BYTES = 32


@pytest.fixture
def library(tmp_path: Path) -> Path:
    path = tmp_path / "model.so"
    path.write_bytes(sample_library().read_bytes())
    return path


def change(path: Path, position: int, bit: int) -> None:
    content = bytearray(path.read_bytes())
    content[position] ^= 1 << bit
    path.write_bytes(content)


def test_a_changed_bit_anywhere_is_noticed(library: Path) -> None:
    whole, rng = library.read_bytes(), random.Random(3)
    start, size = whole.index(CONSTANTS), len(CONSTANTS)
    positions = [start, start + size - 1, start - 1, start + size, len(whole) - SEAL_BYTES - 1]
    positions += [rng.randrange(20, len(whole) - SEAL_BYTES) for _ in range(60)]
    positions += [rng.randrange(start, start + size) for _ in range(20)]
    for position in positions:
        library.write_bytes(whole)
        change(library, position, rng.randrange(8))
        with pytest.raises(LoadError, match=r"damaged|cut off|was compiled for|not a shared library"):
            load(library)
    library.write_bytes(whole)
    load(library).close()


def test_constants_are_compared_by_the_library(library: Path) -> None:
    whole = library.read_bytes()[:-SEAL_BYTES]  # as strip leaves it
    library.write_bytes(whole)
    change(library, whole.index(WEIGHTS.tobytes()) + 100, 5)
    with pytest.raises(LoadError, match="trained values in the library are damaged: their checksum is wrong; copy it"):
        load(library)


def test_code_is_compared_by_the_loader(library: Path) -> None:
    change(library, 4200, 0)
    with pytest.raises(LoadError, match="is damaged, or was changed after it was written"):
        load(library)


@pytest.mark.parametrize("start", [0, 4096, (1 << 64) - 1])
@pytest.mark.parametrize("size", [0, 1, (1 << 64) - 1])
def test_a_seal_that_points_anywhere(library: Path, start: int, size: int) -> None:
    content = bytearray(library.read_bytes())
    struct.pack_into("<QQ", content, len(content) - SEAL_BYTES, start, size)
    library.write_bytes(content)
    if size == 0 or start > len(content):  # all of it is compared
        load(library).close()
        return
    with pytest.raises(LoadError, match="its checksum is wrong"):
        load(library)


def test_a_library_without_a_seal_loads(library: Path) -> None:
    library.write_bytes(library.read_bytes()[:-SEAL_BYTES])  # as strip leaves it
    load(library).close()


@pytest.mark.parametrize("arrays", [[], [0], [40], [512, 7], [4096, 10_000]])
def test_constants_are_found_wherever_a_linker_puts_them(arrays: list[int], tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    parts, at = [], 0
    for size in arrays:
        parts.append((at, rng.integers(0, 256, size).astype(np.uint8)))
        at += size + 64
    constants = Constants(at, tuple(parts))
    file = tmp_path / "library"
    with file.open("wb") as out:
        out.write(bytes(1024))
        constants.write(out)
        out.write(b"the end")
    add_seal(file, constants)
    start, size = struct.unpack_from("<QQ", file.read_bytes(), file.stat().st_size - SEAL_BYTES)
    assert (start, size) == ((1024, at) if sum(arrays) else (0, 0))


@pytest.mark.parametrize("size", [0, 1, 63, 64, 255, 256, 257, 1023, 1024, 1025, 1088, 5000])
def test_the_checksum_is_that_of_the_standard(size: int) -> None:
    content = np.random.default_rng(size).integers(0, 256, size).astype(np.uint8).tobytes()
    expected = xxhash.xxh3_64(content + bytes(max(0, 256 - size))).intdigest()
    assert Constants.of(content).checksum == expected
