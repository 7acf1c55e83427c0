"""A small reader of 64-bit little-endian ELF files: what a library exports, imports and needs."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Dynamic:
    exported: frozenset[str]
    imported: frozenset[str]
    needed: tuple[str, ...]
    soname: str
    sections: dict[str, tuple[int, int, int]]  # name → flags, address, bytes


def read(path: Path) -> Dynamic:
    data = path.read_bytes()
    assert data[:6] == b"\x7fELF\x02\x01", "only 64-bit little-endian files"
    (start,) = struct.unpack_from("<Q", data, 40)
    size, count, names = struct.unpack_from("<HHH", data, 58)
    headers = [struct.unpack_from("<IIQQQQIIQQ", data, start + i * size) for i in range(count)]

    def text(offset: int) -> str:
        return data[offset : data.index(b"\0", offset)].decode()

    sections = {text(headers[names][4] + header[0]): header for header in headers}
    strings, symbols = sections[".dynstr"][4], sections[".dynsym"]
    exported, imported = set(), set()
    for offset in range(symbols[4] + 24, symbols[4] + symbols[5], 24):
        name, _, _, section = struct.unpack_from("<IBBH", data, offset)
        (imported if section == 0 else exported).add(text(strings + name))
    dynamic = sections[".dynamic"]
    entries = [struct.unpack_from("<qQ", data, o) for o in range(dynamic[4], dynamic[4] + dynamic[5], 16)]
    return Dynamic(
        frozenset(exported),
        frozenset(imported),
        tuple(text(strings + value) for tag, value in entries if tag == 1),
        next((text(strings + value) for tag, value in entries if tag == 14), ""),
        {name: (header[2], header[3], header[5]) for name, header in sections.items()},
    )


def interpreter(path: Path) -> str | None:
    """The loader that a program asks for; None if it is linked statically."""
    data = path.read_bytes()
    (start,) = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    for i in range(count):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", data, start + i * size)
        if kind == 3:
            return data[offset : offset + length - 1].decode()
    return None
