"""Reads the exported symbols of a shared library from its bytes, because opening a library runs its code.

Sources: the System V ABI, «Dynamic Linking» and its GNU hash table; Apple's `mach-o/loader.h` and `nlist.h`;
Microsoft's «PE Format».
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

__all__ = ["missing_export"]

_MAX_STEPS = 1 << 20
"""Maximum entries of a table that are read, since the file may be damaged or hostile."""


class _Bytes(Protocol):
    """Bytes, or a mapped file."""

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> bytes: ...


def missing_export(content: _Bytes, names: Sequence[str]) -> str | None:
    """Return the first of `names` that a library for Linux, macOS or Windows does not export; None if it exports all.

    Raises:
        ValueError: the tables of the library cannot be read.
    """
    try:
        exported = {b"\x7fELF": _elf, b"\xcf\xfa\xed\xfe": _mach_o}.get(content[:4], _pe)(content, names)
    except struct.error as error:
        raise ValueError("a table leads out of the file") from error
    return next((name for name in names if name not in exported), None)


@dataclass(frozen=True)
class _Image:
    """A library file.

    Attributes:
        content: of the file.
        order: of bytes, as for `struct`.
        wide: whether it is a 64-bit file.
        segments: the address, the size and the file offset of each.
    """

    content: _Bytes
    order: str
    wide: bool
    segments: tuple[tuple[int, int, int], ...]

    def read(self, form: str, offset: int) -> tuple[int, ...]:
        layout = struct.Struct(self.order + form)
        return layout.unpack(self.content[offset : offset + layout.size])

    def offset(self, address: int) -> int:
        """Return the file offset of an address.

        Raises:
            ValueError: no segment has the address.
        """
        for begin, size, offset in self.segments:
            if begin <= address < begin + size:
                return address - begin + offset
        raise ValueError("an address is in no segment")

    def symbol(self, table: int, strings: int, number: int) -> str:
        """Return the name of a symbol if it is defined and visible to other libraries, else an empty text.

        Args:
            table, strings: addresses of the symbol table and the string table.
            number: of the symbol.
        """
        if self.wide:
            name, kind, _, section = self.read("IBBH", self.offset(table) + 24 * number)
        else:
            name, _, _, kind, _, section = self.read("IIIBBH", self.offset(table) + 16 * number)
        defined = section != 0 and kind >> 4 in _VISIBLE
        return _text(self.content, self.offset(strings) + name) if defined else ""


_LOAD, _DYNAMIC = 1, 2
_HASH, _STRINGS, _SYMBOLS, _GNU_HASH = 4, 5, 6, 0x6FFFFEF5
_VISIBLE = (1, 2, 10)
"""The bindings global, weak, and GNU's unique."""


def _elf(content: _Bytes, names: Sequence[str]) -> set[str]:
    order, wide = "<" if content[5:6] == b"\1" else ">", content[4:5] == b"\2"
    bare = _Image(content, order, wide, ())
    (start,) = bare.read("Q" if wide else "I", 32 if wide else 28)
    size, count = bare.read("HH", 54 if wide else 42)
    segments, dynamic = [], None
    for number in range(count):
        at = start + number * size
        if wide:
            kind, _, offset, address, _, length = bare.read("IIQQQQ", at)
        else:
            kind, offset, address, _, length = bare.read("IIIII", at)
        if kind == _LOAD:
            segments.append((address, length, offset))
        elif kind == _DYNAMIC:
            dynamic = offset, length
    if dynamic is None:
        return set()
    file = _Image(content, order, wide, tuple(segments))
    form, width = ("QQ", 16) if wide else ("II", 8)
    tags: dict[int, int] = {}
    for at in range(dynamic[0], dynamic[0] + dynamic[1] - width + 1, width):
        tag, value = file.read(form, at)
        if tag == 0:
            break
        tags.setdefault(tag, value)
    if _SYMBOLS not in tags or _STRINGS not in tags:
        return set()
    search = _in_gnu_hash if _GNU_HASH in tags else _in_hash if _HASH in tags else _nowhere
    table, strings = tags[_SYMBOLS], tags[_STRINGS]
    return {
        name
        for name in names
        if any(file.symbol(table, strings, number) == name for number in search(file, tags, name.encode()))
    }


def _in_gnu_hash(file: _Image, tags: dict[int, int], name: bytes) -> Iterator[int]:
    """Yield the numbers of the symbols that may have a name, those with its hash."""
    at = file.offset(tags[_GNU_HASH])
    buckets, first, words, _ = file.read("IIII", at)
    if not buckets:
        return
    wanted = 5381
    for letter in name:
        wanted = (33 * wanted + letter) & 0xFFFFFFFF
    start = at + 16 + words * (8 if file.wide else 4)
    (number,) = file.read("I", start + 4 * (wanted % buckets))
    if number < first:
        return
    for symbol in range(number, number + _MAX_STEPS):
        (found,) = file.read("I", start + 4 * (buckets + symbol - first))
        if found | 1 == wanted | 1:
            yield symbol
        if found & 1:
            return


def _in_hash(file: _Image, tags: dict[int, int], name: bytes) -> Iterator[int]:
    at = file.offset(tags[_HASH])
    buckets, symbols = file.read("II", at)
    if not buckets:
        return
    wanted = 0
    for letter in name:
        wanted = (wanted << 4) + letter
        high = wanted & 0xF0000000
        wanted = (wanted ^ high >> 24) & ~high
    (number,) = file.read("I", at + 8 + 4 * (wanted % buckets))
    for _ in range(min(symbols, _MAX_STEPS)):
        if number == 0:
            return
        yield number
        (number,) = file.read("I", at + 8 + 4 * (buckets + number))


def _nowhere(file: _Image, tags: dict[int, int], name: bytes) -> Iterator[int]:
    return iter(())


_SYMTAB = 2
_STAB, _TYPE, _IN_SECTION, _EXTERNAL = 0xE0, 0x0E, 0x0E, 0x01


def _mach_o(content: _Bytes, names: Sequence[str]) -> set[str]:
    (commands,) = struct.unpack("<I", content[16:20])
    at, found, wanted = 32, set(), {f"_{name}": name for name in names}
    for _ in range(min(commands, _MAX_STEPS)):
        command, size = struct.unpack("<II", content[at : at + 8])
        if command == _SYMTAB:
            symbols, count, strings, length = struct.unpack("<IIII", content[at + 8 : at + 24])
            if count > _MAX_STEPS or symbols + 16 * count > len(content):
                raise ValueError("the table of symbols leads out of the file")
            for name, kind in struct.iter_unpack("<IB11x", content[symbols : symbols + 16 * count]):
                if kind & _STAB == 0 and kind & _EXTERNAL and kind & _TYPE == _IN_SECTION and name < length:
                    found.add(wanted.get(_text(content, strings + name), ""))
        if size < 8:
            break
        at += size
    return found - {""}


def _pe(content: _Bytes, names: Sequence[str]) -> set[str]:
    (start,) = struct.unpack("<I", content[60:64])
    sections, size = struct.unpack("<H12xH", content[start + 6 : start + 22])
    (magic,) = struct.unpack("<H", content[start + 24 : start + 26])
    first = start + 24 + (112 if magic == 0x20B else 96)
    exports, length = struct.unpack("<II", content[first : first + 8])
    if not length:
        return set()
    table = start + 24 + size
    segments = []
    for at in range(table, table + 40 * sections, 40):
        memory, address, stored, offset = struct.unpack("<IIII", content[at + 8 : at + 24])
        segments.append((address, max(memory, stored), offset))
    file = _Image(content, "<", wide=True, segments=tuple(segments))
    count, _, listed = file.read("III", file.offset(exports) + 24)
    if count > _MAX_STEPS:
        raise ValueError("the table of exports leads out of the file")
    at = file.offset(listed)
    locations = (file.read("I", at + 4 * number)[0] for number in range(count))
    return {_text(content, file.offset(location)) for location in locations} & set(names)


_MAX_NAME = 256


def _text(content: _Bytes, start: int) -> str:
    """Return a zero-terminated text, truncated to more characters than any name of interest has."""
    part = content[start : start + _MAX_NAME]
    return part.partition(b"\0")[0].decode("latin-1")
