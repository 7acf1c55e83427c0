"""Keeps the functions of a network to its library, where the linker cannot be told which ones others may see.

TVM's code generator marks all functions as visible to everybody. On systems with ELF a list given to the linker has the
last word; objects for macOS and Windows are changed here before they are linked.
"""

from __future__ import annotations

import struct

__all__ = ["hide_mach_o", "keep", "without_directives"]

_MACH_O = b"\xcf\xfa\xed\xfe"  # 64 bits, little-endian
_SYMTAB = 2  # a load command
_EXTERNAL, _PRIVATE, _DEBUGGING, _TYPE = 0x01, 0x10, 0xE0, 0x0E  # bits of a symbol


def keep(content: bytes) -> bytes:
    """The object as it is."""
    return content


def hide_mach_o(content: bytes) -> bytes:
    """An object of macOS whose own symbols are visible within the library only."""
    if content[:4] != _MACH_O:
        raise ValueError("not an object of macOS with 64 bits")
    data = bytearray(content)
    (commands,) = struct.unpack_from("<I", data, 16)
    at = 32
    for _ in range(commands):
        command, size = struct.unpack_from("<II", data, at)
        if command == _SYMTAB:
            first, count = struct.unpack_from("<II", data, at + 8)
            for flags in range(first + 4, first + 4 + 16 * count, 16):
                if data[flags] & _EXTERNAL and data[flags] & _TYPE and not data[flags] & _DEBUGGING:
                    data[flags] |= _PRIVATE
        at += size
    return bytes(data)


def without_directives(content: bytes) -> bytes:
    """An object of Windows that tells the linker nothing of its own, such as to export a function."""
    data = bytearray(content)
    (sections,) = struct.unpack_from("<H", data, 2)
    (optional,) = struct.unpack_from("<H", data, 16)
    for header in range(20 + optional, 20 + optional + 40 * sections, 40):
        if data[header : header + 8] == b".drectve":
            size, offset = struct.unpack_from("<II", data, header + 16)
            data[offset : offset + size] = b" " * size
    return bytes(data)
