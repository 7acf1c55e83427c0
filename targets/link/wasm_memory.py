"""Records the size of the memory that a WebAssembly module imports in a custom section, where programs can read it.

A module with threads imports its memory. The program allocates it, with the initial size and the maximum that the
module declares. JavaScript can read only the custom sections of a compiled module: `nnefc.memory` has two little-endian
numbers of 32 bits, the initial and the maximum number of pages of 64 KiB.
"""

from __future__ import annotations

import struct
from os import SEEK_CUR, SEEK_END
from pathlib import Path
from typing import BinaryIO

from nnefc.support.diagnostics import CompileError

__all__ = ["CUSTOM", "note_memory", "number"]

_HEAD = 8  # of the file: a magic number and the version
CUSTOM, _IMPORTS = 0, 2  # sections
_MEMORY = 2  # a kind of import
_SECTION = b"nnefc.memory"


def note_memory(library: Path) -> None:
    """Append the section to a module that imports a memory.

    Raises:
        CompileError: the first import is not a memory.
    """
    with library.open("r+b") as file:
        file.seek(_HEAD)
        limits = _limits(file)
        content = number(len(_SECTION)) + _SECTION + struct.pack("<II", *limits)
        file.seek(0, SEEK_END)
        file.write(bytes([CUSTOM]) + number(len(content)) + content)


def _limits(module: BinaryIO) -> tuple[int, int]:
    """Return the initial and the maximum pages of the memory in an import section, which must be the first import."""
    while _byte(module) != _IMPORTS:
        size = _read(module)
        module.seek(size, SEEK_CUR)
    _read(module)  # the section's size
    _read(module)  # the number of imports
    for _ in range(2):  # the names of the module and of the import
        length = _read(module)
        module.seek(length, SEEK_CUR)
    kind, flags = _byte(module), _byte(module)
    if kind != _MEMORY or not flags & 1:
        raise CompileError("a module for several threads imports something besides a memory with a limit")
    return _read(module), _read(module)


def _read(module: BinaryIO) -> int:
    """Read an unsigned number in LEB128."""
    value = shift = 0
    while (byte := _byte(module)) & 0x80:
        value |= (byte & 0x7F) << shift
        shift += 7
    return value | byte << shift


def _byte(module: BinaryIO) -> int:
    found = module.read(1)
    if not found:
        raise CompileError("a module for several threads imports no memory")
    return found[0]


def number(value: int) -> bytes:
    """Encode an unsigned number in LEB128."""
    digits = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        digits.append(low | 0x80 * (value > 0))
        if not value:
            return bytes(digits)
