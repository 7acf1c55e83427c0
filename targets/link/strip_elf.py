"""Removes debugging and linking sections from ELF files of libraries that are compiled for size.

No exception passes through the code of a network, so tables for unwinding serve debuggers alone; LLVM writes them for
every function that it does not know to return. The table of sections is for linkers: programs are loaded by segments.
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
"""Where e_shoff is, and e_shnum with e_shstrndx: of files of 64 bits, and of 32."""


def without_unwind_tables(content: bytes) -> bytes:
    """Returns an object whose tables for unwinding do not go into libraries."""
    image = np.frombuffer(bytearray(content), np.uint8)
    file = ElfFile(image, RELOCATABLE)
    number = int(np.frombuffer(image[0x3E if file.is_64 else 0x32 :][:2].tobytes(), "<u2")[0])
    start = int(file.sections[number]["offset"])
    for section in file.sections:
        if image[start + int(section["name"]) :][:16].tobytes().startswith(_TABLES):
            section["flags"] |= _EXCLUDE
    return image.tobytes()


def without_section_table(library: Path) -> None:
    """Cuts off what follows the last segment of a shared library, and the header's fields for it."""
    image = np.fromfile(library, np.uint8)
    file = ElfFile(image, DYNAMIC)
    loaded = file.segments[file.segments["type"] == _LOAD]
    end = int((loaded["offset"] + loaded["stored"]).max())
    for field in _HEADER_FIELDS[file.is_64]:
        image[field] = 0
    image[:end].tofile(library)
