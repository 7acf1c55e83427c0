"""Removes debugging and linking sections from the ELF files of libraries that are compiled for size.

No exceptions pass through the code of a network, so unwind tables serve debuggers only; LLVM writes them for every
function that may not return. The section table is for linkers: programs are loaded by segments.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nnefc.targets.link.elf_file import DYNAMIC, RELOCATABLE, ElfFile

__all__ = ["without_section_table", "without_unwind_tables"]

_EXCLUDE = 0x80000000  # a flag of sections that linkers leave out
_TABLES = (b".eh_frame", b".ARM.exidx", b".ARM.extab")
_LOAD = 1  # a type of segments
_HEADER_FIELDS = {True: (slice(0x28, 0x30), slice(0x3C, 0x40)), False: (slice(0x20, 0x24), slice(0x30, 0x34))}
"""The ranges of e_shoff, and of e_shnum and e_shstrndx, in the header of 64-bit and of 32-bit files."""


def without_unwind_tables(content: bytes) -> bytes:
    """Return an object whose unwind tables are not linked into libraries."""
    image = np.frombuffer(bytearray(content), np.uint8)
    file = ElfFile(image, RELOCATABLE)
    number = int(np.frombuffer(image[0x3E if file.is_64 else 0x32 :][:2].tobytes(), "<u2")[0])
    start = int(file.sections[number]["offset"])
    for section in file.sections:
        if image[start + int(section["name"]) :][:16].tobytes().startswith(_TABLES):
            section["flags"] |= _EXCLUDE
    return image.tobytes()


def without_section_table(library: Path) -> None:
    """Truncate a shared library after its last segment, and clear the fields of the section table in the header."""
    image = np.fromfile(library, np.uint8)
    file = ElfFile(image, DYNAMIC)
    loaded = file.segments[file.segments["type"] == _LOAD]
    end = int((loaded["offset"] + loaded["stored"]).max())
    for field in _HEADER_FIELDS[file.is_64]:
        image[field] = 0
    image[:end].tofile(library)
