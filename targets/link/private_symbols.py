"""Keeps a network's functions private to its library, where the linker cannot restrict exports.

TVM's code generator marks all functions as visible to everybody. On systems with ELF a list given to the linker has the
last word; objects for macOS and Windows are changed here before they are linked. So are definitions that would come
into the runtime's way.
"""

from __future__ import annotations

import struct

__all__ = ["for_windows", "hide_mach_o", "keep"]

_MACH_O = b"\xcf\xfa\xed\xfe"  # 64 bits, little-endian
_SYMTAB = 2  # a load command
_EXTERNAL, _PRIVATE, _DEBUGGING, _TYPE = 0x01, 0x10, 0xE0, 0x0E  # bits of a symbol
_COMDAT, _WRITABLE = 0x1000, 0x80000000  # of a section of Windows: one of several with its name is kept
_COFF_EXTERNAL = 2  # a class of symbols


def keep(content: bytes) -> bytes:
    """Returns the object unchanged."""
    return content


def hide_mach_o(content: bytes) -> bytes:
    """Returns an object of macOS whose own symbols are visible within the library only."""
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


def for_windows(content: bytes) -> bytes:
    """Returns an object of Windows that tells the linker nothing of its own, and defines nothing that the runtime
    defines.

    Its directives would export functions. And TVM defines the pointers that its code calls through as null in each
    object, for the linker to keep one of all definitions: it keeps the first that it sees, which is seldom the
    runtime's. They become what they are elsewhere, names that the runtime defines.
    """
    data = bytearray(content)
    (sections, table, symbols, optional) = struct.unpack_from("<H4xIIH", data, 2)
    pointers = set()
    for number in range(1, sections + 1):
        header = 20 + optional + 40 * (number - 1)
        size, offset = struct.unpack_from("<II", data, header + 16)
        (flags,) = struct.unpack_from("<I", data, header + 36)
        if data[header : header + 8] == b".drectve":
            data[offset : offset + size] = b" " * size
        if flags & _COMDAT and flags & _WRITABLE:
            pointers.add(number)
            struct.pack_into("<I", data, header + 36, flags & ~_COMDAT)
    at = table
    while at < table + 18 * symbols:
        section, storage, more = struct.unpack_from("<h2xBB", data, at + 12)
        if section in pointers and storage == _COFF_EXTERNAL:
            struct.pack_into("<Ih", data, at + 8, 0, 0)
        at += 18 * (1 + more)
    return bytes(data)
