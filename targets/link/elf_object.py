"""Writes the trained values, or room for them, as a relocatable ELF object, without an assembler.

    ELF header        of the machine of another object, with its flags of the calling convention
    .rodata.nnefc     the trained values; `.lrodata.nnefc` on x86-64, or `.nnefc` without content where they are
                      appended to the linked file (`elf_constants.py`)
    .symtab           `nnefc_constants`, hidden
    .strtab           names of symbols and sections
    section headers

It is `runtime/constants.S` for this format: to start a preprocessor and an assembler takes as long as to link.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import numpy as np

from nnefc.targets.link.constants import Constants
from nnefc.targets.link.elf_file import LAYOUTS

__all__ = ["write_constants_object"]

_ARM, _X86_64, _RISCV = 40, 62, 243
"""Numbers of machines in ELF headers."""

_PROGBITS, _SYMTAB, _STRTAB, _NOBITS = 1, 2, 3, 8
_ALLOC, _LARGE = 0x2, 0x10000000
"""Flags of sections: in memory; on x86-64, out of the 2 GB that code reaches directly."""

_GLOBAL_OBJECT, _HIDDEN = 0x11, 2
_SYMBOL = b"nnefc_constants"

_FEW_ALIGNMENT = 64
_PAGE = 1 << 12
_MAX_PAGES = {_RISCV: _PAGE, _ARM: 1 << 14}
"""The largest pages of machines, where they are not 64 KiB: room for constants is apart from everything else by one."""


@dataclass(frozen=True)
class _Section:
    """A section of the object: its name, the fields of its header, and its content, if that is written here."""

    name: bytes
    kind: int
    flags: int
    align: int
    content: bytes = b""


def write_constants_object(path: Path, constants: Constants, like: Path, *, few: bool, appended: bool) -> Path:
    """Writes the object `path`, and returns where it is.

    Args:
        path: the object.
        constants: the trained values.
        like: another object for the same machine.
        few: whether they are so small that they are with the other read-only data.
        appended: whether the object has room in memory for them alone.
    """
    with like.open("rb") as file:
        header = bytearray(file.read(64))
    layout = LAYOUTS[header[4] == 2]
    own = _section_of_constants(int.from_bytes(header[18:20], "little"), few, appended)
    names = b"\0".join((b"", own.name, b".note.GNU-stack", b".symtab", b".strtab", _SYMBOL, b""))
    symbols = np.zeros(2, layout.symbol)
    symbol = symbols[1]
    symbol["name"], symbol["info"], symbol["other"] = names.index(_SYMBOL), _GLOBAL_OBJECT, _HIDDEN
    symbol["section"], symbol["size"] = 1, constants.size
    listed = (
        own,
        _Section(b".note.GNU-stack", _PROGBITS, 0, 1),
        _Section(b".symtab", _SYMTAB, 0, 8, symbols.tobytes()),
        _Section(b".strtab", _STRTAB, 0, 1, names),
    )
    sections = np.zeros(1 + len(listed), layout.section)
    sections[3]["link"], sections[3]["info"], sections[3]["entry"] = 4, 1, layout.symbol.itemsize
    with path.open("wb") as file:
        file.write(bytes(layout.header_bytes))
        for row, section in zip(sections[1:], listed, strict=True):
            at, size = _seek(file, section.align), len(section.content)
            file.write(section.content)
            if section is own:
                size = constants.size
                if not appended:
                    constants.write(file)
                    file.seek(0, os.SEEK_END)
            row["name"], row["type"], row["flags"] = names.index(section.name + b"\0"), section.kind, section.flags
            row["offset"], row["size"], row["align"] = at, size, section.align
        at = _seek(file, 8)
        file.write(sections.tobytes())
        struct.pack_into(layout.address, header, layout.section_table, at)
        struct.pack_into("<H", header, layout.section_count, len(sections))
        struct.pack_into("<H", header, layout.section_count + 2, len(listed))  # of these the names of sections
        file.seek(0)
        file.write(header[: layout.header_bytes])
    return path


def _seek(file: BinaryIO, align: int) -> int:
    """Moves on to a multiple of `align`, and returns it."""
    return file.seek(-(-file.tell() // align) * align)


def _section_of_constants(machine: int, few: bool, appended: bool) -> _Section:
    """Returns the section of the constants of a machine by its number."""
    if few:
        return _Section(b".rodata.nnefc", _PROGBITS, _ALLOC, _FEW_ALIGNMENT)
    if machine == _X86_64:
        return _Section(b".lrodata.nnefc", _NOBITS if appended else _PROGBITS, _ALLOC | _LARGE, _PAGE)
    if appended:
        return _Section(b".nnefc", _NOBITS, _ALLOC, _MAX_PAGES.get(machine, 1 << 16))
    return _Section(b".rodata.nnefc", _PROGBITS, _ALLOC, _PAGE)
