"""Sizes of the memory that a module of WebAssembly imports, noted where programs can read them.

A module that several threads run imports its memory, which the program makes: of the size that the module's data need,
and with the limit that it declares. JavaScript cannot ask a compiled module for these, but for its custom sections: the
one called `nnefc.memory` holds two numbers of 32 bits, little-endian: pages of 64 KiB at first, and at most.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from pathlib import Path

from nnefc.diagnostics import CompileError

__all__ = ["CUSTOM", "note_memory", "number"]

_HEAD = 8  # of the file: a magic number and the version
CUSTOM, _IMPORTS = 0, 2  # sections
_MEMORY = 2  # a kind of import
_SECTION = b"nnefc.memory"


def note_memory(library: Path) -> None:
    """Add the section to a module that imports a memory, as the first one.

    Raises:
        CompileError: it imports anything before a memory.
    """
    module = library.read_bytes()
    (imports,) = (content for number, content in _sections(module) if number == _IMPORTS)
    content = number(len(_SECTION)) + _SECTION + struct.pack("<II", *_limits(imports))
    library.write_bytes(module[:_HEAD] + bytes([CUSTOM]) + number(len(content)) + content + module[_HEAD:])


def _sections(module: bytes) -> Iterator[tuple[int, bytes]]:
    """The sections' numbers and contents."""
    at = _HEAD
    while at < len(module):
        size, begin = _read(module, at + 1)
        yield module[at], module[begin : begin + size]
        at = begin + size


def _limits(imports: bytes) -> tuple[int, int]:
    """Pages of the memory that is the first import: at first, and at most."""
    _, at = _read(imports, 0)
    for _ in range(2):  # the names of the module and of the import
        length, at = _read(imports, at)
        at += length
    kind, flags = imports[at], imports[at + 1]
    if kind != _MEMORY or not flags & 1:
        raise CompileError("a module for several threads imports something besides a memory with a limit")
    first, at = _read(imports, at + 2)
    return first, _read(imports, at)[0]


def _read(data: bytes, at: int) -> tuple[int, int]:
    """An unsigned number (LEB128), and where it ends."""
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift += 7
        at += 1
        if not data[at - 1] & 0x80:
            return value, at


def number(value: int) -> bytes:
    """An unsigned number as it is read."""
    digits = bytearray()
    while True:
        value, low = value >> 7, value & 0x7F
        digits.append(low | 0x80 * (value > 0))
        if not value:
            return bytes(digits)
