"""Objects with trained values, which linkers are given: sections, the symbol, and the header of the machine."""

from __future__ import annotations

import struct
from pathlib import Path

import numpy as np
import pytest

from nnefc.targets.link.constants import Constants
from nnefc.targets.link.elf_file import RELOCATABLE, ElfFile
from nnefc.targets.link.elf_object import write_constants_object

VALUES = Constants(5000, ((0, np.arange(100, dtype=np.int8)), (4096, np.ones(900, np.int8))))
X86_64, ARM, RISCV, AARCH64 = 62, 40, 243, 183
PROGBITS, NOBITS, ALLOC, LARGE = 1, 8, 2, 0x10000000
FLAGS = 0x05000400


def header_of(machine: int, bits: int, path: Path) -> Path:
    """Writes the header of an object for a machine, of which nothing else is read."""
    ident = b"\x7fELF" + bytes([bits // 32, 1, 1]) + bytes(9)
    form = "<HHIQQQIHHHHHH" if bits == 64 else "<HHIIIIIHHHHHH"
    size, entry = (64, 64) if bits == 64 else (52, 40)
    path.write_bytes(ident + struct.pack(form, RELOCATABLE, machine, 1, 0, 0, 777, FLAGS, size, 0, 0, entry, 9, 8))
    return path


def text_at(strings: np.ndarray, at: int) -> str:
    return strings.tobytes()[at:].partition(b"\0")[0].decode()


@pytest.mark.parametrize(
    ("machine", "bits", "way", "section"),
    [
        (X86_64, 64, "few", (".rodata.nnefc", PROGBITS, ALLOC, 64)),
        (X86_64, 64, "", (".lrodata.nnefc", PROGBITS, ALLOC | LARGE, 4096)),
        (X86_64, 64, "appended", (".lrodata.nnefc", NOBITS, ALLOC | LARGE, 4096)),
        (ARM, 32, "few", (".rodata.nnefc", PROGBITS, ALLOC, 64)),
        (ARM, 32, "appended", (".nnefc", NOBITS, ALLOC, 16384)),
        (RISCV, 64, "", (".rodata.nnefc", PROGBITS, ALLOC, 4096)),
        (RISCV, 64, "appended", (".nnefc", NOBITS, ALLOC, 4096)),
        (AARCH64, 64, "appended", (".nnefc", NOBITS, ALLOC, 65536)),
    ],
)
def test_an_object_holds_the_values_or_room_for_them(
    machine: int, bits: int, way: str, section: tuple[str, int, int, int], tmp_path: Path
) -> None:
    like = header_of(machine, bits, tmp_path / "like.o")
    path = write_constants_object(tmp_path / "c.o", VALUES, like, few=way == "few", appended=way == "appended")
    image = np.fromfile(path, np.uint8)
    file = ElfFile(image, RELOCATABLE)
    strings = file.part(file.sections[4], np.dtype("u1"))
    own = file.sections[1]
    assert (text_at(strings, own["name"]), own["type"], own["flags"], own["align"]) == section
    assert own["size"] == VALUES.size and own["offset"] % own["align"] == 0
    if section[1] == PROGBITS:
        assert file.part(own, np.dtype("u1")).tobytes() == b"".join(VALUES.pieces())
    else:
        assert len(image) < VALUES.size + 65536
    assert [text_at(strings, each["name"]) for each in file.sections[2:]] == [".note.GNU-stack", ".symtab", ".strtab"]
    table = file.sections[3]
    assert (table["link"], table["info"]) == (4, 1)
    _, symbol = file.symbols(table)
    assert (text_at(strings, symbol["name"]), symbol["section"], symbol["size"]) == ("nnefc_constants", 1, VALUES.size)
    assert (symbol["info"], symbol["other"]) == (0x11, 2)  # global, an object; hidden
    changed = [at for at in range(52) if image[at] != like.read_bytes()[at]]
    first, last = (0x28, 0x30) if bits == 64 else (0x20, 0x24)  # where the table of sections is
    assert all(first <= at < last for at in changed if at < 0x30)
    assert image.tobytes()[0x30 if bits == 64 else 0x24 :][:4] == struct.pack("<I", FLAGS)
