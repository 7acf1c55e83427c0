"""Appends the trained values to a linked shared library.

A linker would read, copy and hash hundreds of megabytes that it has nothing to do with. It is given a section without
content in their position (`elf_object.py`), for which it leaves room in memory, and none in the file:

    LOAD   headers, then the room          →     LOAD   headers
    LOAD   tables, code, data                    LOAD   the constants, from the end of the file
                                                 LOAD   tables, code, data

The entry for the new segment is that of the table of segments itself (PHDR), which only programs need: a library's is
found by the file's header.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nnefc.support.diagnostics import CompileError
from nnefc.targets.link.constants import Constants
from nnefc.targets.link.elf_file import DYNAMIC, ElfFile

__all__ = ["append_constants"]

_PROGBITS, _NOBITS = 1, 8
_WRITE, _ALLOC, _TLS = 0x1, 0x2, 0x400  # flags of sections
_LOAD, _PHDR = 1, 6
_READ = 4  # the flags of a segment


def append_constants(library: Path, constants: Constants) -> None:
    """Fills the room for `constants` that the linker left in `library`.

    Raises:
        CompileError: the linker did not lay out the library as above.
        OSError: the file cannot be read or written.
    """
    image = np.fromfile(library, np.uint8)
    try:
        offset = _make_segment(ElfFile(image, DYNAMIC), constants.size)
    except ValueError as error:
        raise CompileError(f"the linker made a library that has no room for the constants: {error}") from error
    with library.open("r+b") as file:
        image.tofile(file)
        file.seek(offset)
        constants.write(file)


def _make_segment(library: ElfFile, size: int) -> int:
    """Makes the room for `size` bytes a segment; returns its position in the file, the next page after the end.

    Raises:
        ValueError: there is no such room.
    """
    sections, segments = library.sections, library.segments
    empty = (sections["type"] == _NOBITS) & (sections["flags"] & (_WRITE | _ALLOC | _TLS) == _ALLOC)
    (index,) = np.flatnonzero(empty & (sections["size"] == size))
    room, (table, headers) = sections[index], segments[:2]
    if (table["type"], headers["type"], headers["flags"]) != (_PHDR, _LOAD, _READ):
        raise ValueError("other segments come first")
    if not headers["address"] + headers["stored"] <= room["address"] == headers["address"] + headers["size"] - size:
        raise ValueError("it is not at the end of the first segment")
    align = int(headers["align"])
    offset = -(-len(library.image) // align) * align
    room["type"], room["offset"] = _PROGBITS, offset
    headers["size"] = headers["stored"]
    segments[0] = headers
    headers["offset"], headers["address"], headers["physical"] = offset, room["address"], room["address"]
    headers["stored"] = headers["size"] = size
    return offset
