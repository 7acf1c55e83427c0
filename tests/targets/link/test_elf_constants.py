"""Constants that are added to a library after linking: the file is as linkers, loaders and tools expect one."""

from __future__ import annotations

import functools
import itertools
import shutil
import struct
import subprocess
from pathlib import Path

import numpy as np
import pytest
from runtime_samples import CONSTANTS, SAMPLE, WEIGHTS, folder, sample_library, shared_library_of

from nnefc.loader import load
from nnefc.support.diagnostics import CompileError
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.elf_constants import append_constants
from nnefc.targets.link.elf_file import DYNAMIC, ElfFile
from nnefc.targets.link.toolchain import link_library
from nnefc.targets.link.zig import zig

X = np.ones(1024, np.float32)
LOAD, PROGBITS, ALLOC = 1, 1, 2

# Kinds of machines, with the largest pages that their systems have.
MACHINES = {
    "x86_64-linux-gnu.2.17": 4096,
    "x86_64-linux-musl": 4096,
    "aarch64-linux-gnu.2.17": 65536,
    "arm-linux-gnueabihf.2.17": 16384,
    "riscv64-linux-gnu.2.27": 4096,
}
NETWORK = "#include <stdint.h>\nint32_t nnefc_network(void) { return 0; }"


@pytest.fixture(params=MACHINES)
def machine(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@functools.cache
def linked(machine: str) -> Path:
    """Returns a library for the machine with the sample's constants, added as if they were many."""
    base = folder(f"elf-constants-{machine}")
    source, part, path = (base / name for name in ("network.c", "network.o", "model.so"))
    source.write_text(NETWORK)
    command = [*zig(), "cc", "-target", machine]
    subprocess.run([*command, "-fPIC", "-c", str(source), "-o", str(part)], check=True)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nnefc.targets.link.toolchain._FEW_BYTES", 0)
        link_library([part], Constants.of(CONSTANTS), SAMPLE, path, zig_target=machine)
    return path


@pytest.fixture
def library(machine: str) -> ElfFile:
    return ElfFile(np.fromfile(linked(machine), np.uint8), DYNAMIC)


def loaded(library: ElfFile) -> np.ndarray:
    return library.segments[library.segments["type"] == LOAD]


def constants_in(library: ElfFile) -> np.void:
    (section,) = library.sections[library.sections["size"] == len(CONSTANTS)]
    return section


@pytest.mark.sample(2)
def test_the_section_holds_the_constants(library: ElfFile) -> None:
    section = constants_in(library)
    assert (section["type"], section["flags"] & 7) == (PROGBITS, ALLOC)
    assert library.part(section, np.dtype("u1")).tobytes() == CONSTANTS


def test_the_constants_are_a_segment_that_can_only_be_read(library: ElfFile) -> None:
    section = constants_in(library)
    (segment,) = [s for s in loaded(library) if s["address"] == section["address"]]
    assert (segment["flags"], segment["offset"]) == (4, section["offset"])
    assert segment["stored"] == segment["size"] == len(CONSTANTS)


def test_no_page_belongs_to_two_segments(library: ElfFile, machine: str) -> None:
    page = MACHINES[machine]
    pages = [range(int(s["address"]) // page, -(-int(s["address"] + s["size"]) // page)) for s in loaded(library)]
    assert all(one.stop <= next_.start for one, next_ in itertools.pairwise(pages))  # in ascending order too


def test_addresses_and_positions_in_the_file_have_the_same_offset_in_a_page(library: ElfFile, machine: str) -> None:
    for segment in loaded(library):
        assert (int(segment["address"]) - int(segment["offset"])) % MACHINES[machine] == 0
        assert segment["offset"] + segment["stored"] <= len(library.image)


def test_the_first_segment_holds_the_table_of_segments(library: ElfFile) -> None:
    first = loaded(library)[0]
    assert (first["offset"], first["address"], first["stored"]) == (0, 0, first["size"])
    assert library.segments.ctypes.data + library.segments.nbytes - library.image.ctypes.data <= first["stored"]


def test_arrays_are_written_at_their_positions_with_zeros_between_them(tmp_path: Path) -> None:
    arrays = (
        (0, np.int8([1, 2])),
        (4, np.float16([[1.0]])),
        (8, np.zeros((0, 3), np.float32)),
        (16, np.int64(-1)[None]),
    )
    content = Constants(40, arrays).save(tmp_path / "c").read_bytes()
    assert content == struct.pack("<bbxxe10xq16x", 1, 2, 1.0, -1)


@pytest.mark.skipif(shutil.which("strip") is None, reason="needs: strip")
def test_a_stripped_library_works(tmp_path: Path) -> None:
    stripped = tmp_path / "stripped.so"
    subprocess.run(["strip", str(sample_library()), "-o", str(stripped)], check=True)
    with load(stripped) as model:
        assert np.array_equal(model(X)[0], WEIGHTS)


def test_a_library_without_room_is_refused(tmp_path: Path) -> None:
    library = shared_library_of("int f(void) { return 1; }", tmp_path / "f.so")
    before = library.read_bytes()
    with pytest.raises(CompileError, match="no room for the constants"):
        append_constants(library, Constants.of(CONSTANTS))
    assert library.read_bytes() == before
