"""Merges COFF objects (Windows) into one, in which only the public symbols are visible.

zig's linker merges objects of ELF and Mach-O, but not of COFF. An object may have many sections of one name, so the
merged one has all sections of all objects, and one symbol table:

    a.o: .text, f defined, g undefined  ┐
    b.o: .text, g defined               ┘→  .text .text, f external, g static; relocations to g have its number

A section that linkers keep once (COMDAT) is kept once here, as an ordinary section.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from nnefc.support.diagnostics import CompileError

__all__ = ["join_coff"]

_HEADER, _SECTION, _SYMBOL, _RELOCATION = 20, 40, 18, 10  # bytes
_EXTERNAL, _STATIC, _FILE, _WEAK = 2, 3, 103, 105  # storage classes
_UNDEFINED, _ABSOLUTE = 0, -1  # numbers of sections
_COMDAT, _REMOVED, _MANY_RELOCATIONS = 0x1000, 0x800, 0x01000000  # flags of sections
_UNIQUE, _ASSOCIATED = 1, 5  # selections: others are errors; kept if another section is
_DROPPED = (b".drectve", b".llvm_addrsig", b".debug")  # options for linkers, and what debuggers read
_MAX_SECTIONS = 0xFEFF
_OURS = (b"nnefc_", b"TVM", b"__TVM")  # how names begin that the network and its runtime define themselves


@dataclass
class _Section:
    """A section of an object, and its number in the merged one; 0 if it is dropped."""

    name: bytes
    header: tuple[int, ...]  # the fields after the name
    data: bytes
    relocations: list[tuple[int, int, int]]  # address, symbol, kind
    comdat: bool = False
    unique: bool = False  # whether another one of its name is an error
    follows: int = 0  # the number of the section without which this one is left out
    number: int = 0


@dataclass
class _Symbol:
    name: bytes
    value: int
    section: int
    type: int
    storage: int
    auxiliary: bytes


@dataclass
class _Object:
    name: str
    machine: int
    sections: list[_Section]
    symbols: dict[int, _Symbol]
    outputs: dict[int, int] = field(default_factory=dict)  # numbers of symbols in the joined object

    def section_of(self, symbol: _Symbol) -> _Section | None:
        return self.sections[symbol.section - 1] if symbol.section > 0 else None

    def is_left_out(self, symbol: _Symbol) -> bool:
        section = self.section_of(symbol)
        return symbol.storage == _FILE or (section is not None and not section.number)


def join_coff(contents: Sequence[tuple[str, bytes]], public: Collection[str]) -> bytes:
    """Return the merged object.

    Args:
        contents: names, for messages, and contents of the objects.
        public: the functions that other objects see.

    Raises:
        CompileError: a file is not such an object, a name is defined twice, or a name of the network or of `public` is
            undefined.
    """
    objects = [_read(name, content) for name, content in contents]
    defined = _choose(objects)
    for name in public:
        if name.encode() not in defined:
            raise CompileError(f"the network's objects do not define {name}")
    kept = [section for each in objects for section in each.sections if section.number]
    if len(kept) > _MAX_SECTIONS:
        raise CompileError(
            f"the network has {len(kept):,} sections, and an object for Windows has {_MAX_SECTIONS:,} at most",
            hint="write a shared library: a name that ends with .dll",
        )
    return _written(objects, defined, {name.encode() for name in public})


def _read(name: str, content: bytes) -> _Object:
    machine, count, _, table, symbols, optional, _ = struct.unpack_from("<HHIIIHH", content)
    if machine == 0:
        raise CompileError(f"{name} is no COFF object that can be joined with others")
    strings = content[table + _SYMBOL * symbols :]
    sections = []
    for number in range(count):
        at = _HEADER + optional + _SECTION * number
        sections.append(_read_section(content, at, strings))
    found, at = {}, 0
    while at < symbols:
        position = table + _SYMBOL * at
        raw, value, section, kind, storage, more = struct.unpack_from("<8sIhHBB", content, position)
        spelled = _string(strings, *struct.unpack("<4xI", raw)) if raw[:4] == bytes(4) else raw.rstrip(b"\0")
        auxiliary = content[position + _SYMBOL : position + _SYMBOL * (1 + more)]
        found[at] = _Symbol(spelled, value, section, kind, storage, auxiliary)
        if storage == _STATIC and section > 0 and more and sections[section - 1].comdat and value == 0:
            follows, selection = struct.unpack_from("<HB", auxiliary, 12)
            sections[section - 1].follows = follows if selection == _ASSOCIATED else 0
            sections[section - 1].unique = selection == _UNIQUE
        at += 1 + more
    return _Object(name, machine, sections, found)


def _read_section(content: bytes, at: int, strings: bytes) -> _Section:
    raw, *header = struct.unpack_from("<8s6I2HI", content, at)
    _, _, size, offset, relocations_at, _, count, _, flags = header
    name = _string(strings, int(raw[1:].rstrip(b"\0"))) if raw[:1] == b"/" else raw.rstrip(b"\0")
    first = 0
    if flags & _MANY_RELOCATIONS:
        (count,) = struct.unpack_from("<I", content, relocations_at)
        first = 1
    relocations = [
        struct.unpack_from("<IIH", content, relocations_at + _RELOCATION * index) for index in range(first, count)
    ]
    data = content[offset : offset + size] if offset else b""
    number = -1 if name.startswith(_DROPPED) or flags & _REMOVED else 0
    return _Section(name, tuple(header), data, relocations, bool(flags & _COMDAT), number=number)


def _string(strings: bytes, offset: int) -> bytes:
    return strings[offset : strings.index(b"\0", offset)]


def _choose(objects: Sequence[_Object]) -> dict[bytes, tuple[_Object, int]]:
    """Return the definition of each name, and number the sections that are kept; the others get 0."""
    defined: dict[bytes, tuple[_Object, int]] = {}
    number = 0
    for each in objects:
        names = [
            (index, symbol)
            for index, symbol in each.symbols.items()
            if symbol.storage == _EXTERNAL and (symbol.section > 0 or symbol.section == _ABSOLUTE)
        ]
        again = {symbol.section for _, symbol in names if symbol.name in defined}
        for index, symbol in names:
            section = each.section_of(symbol)
            if symbol.name not in defined:
                defined[symbol.name] = (each, index)
            elif section is None or not section.comdat or section.unique:
                other = defined[symbol.name][0].name
                raise CompileError(f"{other} and {each.name} both define {symbol.name.decode(errors='replace')}")
        for position, section in enumerate(each.sections, start=1):
            is_dropped = section.number < 0
            if is_dropped or (section.comdat and (position in again or section.follows in again)):
                section.number = 0
                continue
            number += 1
            section.number = number
    return defined


def _written(objects: Sequence[_Object], defined: dict[bytes, tuple[_Object, int]], public: Collection[bytes]) -> bytes:
    table = _Table()
    for each in objects:
        for index, symbol in each.symbols.items():
            is_defined = symbol.section > 0 and not each.is_left_out(symbol)
            chosen = symbol.storage != _EXTERNAL or defined.get(symbol.name) == (each, index)
            if is_defined and chosen and symbol.storage != _WEAK:
                section = each.section_of(symbol)
                assert section is not None
                storage = _EXTERNAL if symbol.storage == _EXTERNAL and symbol.name in public else _STATIC
                auxiliary = _auxiliary(each, symbol) if symbol.storage != _EXTERNAL else b""
                each.outputs[index] = table.add(
                    symbol.name, symbol.value, section.number, symbol.type, storage, auxiliary
                )
    undefined: dict[bytes, int] = {}
    bodies = [
        (section, [(address, _target(each, index, defined, undefined, table), kind)
                   for address, index, kind in section.relocations])
        for each in objects
        for section in each.sections
        if section.number
    ]  # fmt: skip
    return _file(objects[0].machine, bodies, table)


def _auxiliary(each: _Object, symbol: _Symbol) -> bytes:
    """Return the auxiliary record of a section's symbol; a section that is kept is no longer a COMDAT section."""
    section = each.section_of(symbol)
    if section is None or not symbol.auxiliary or symbol.value or len(symbol.auxiliary) != _SYMBOL:
        return b""
    return symbol.auxiliary[:12] + bytes(6)


def _target(
    each: _Object,
    index: int,
    defined: dict[bytes, tuple[_Object, int]],
    undefined: dict[bytes, int],
    table: _Table,
) -> int:
    """Return the number in the merged object of the symbol that a relocation refers to."""
    if index in each.outputs:
        return each.outputs[index]
    symbol = each.symbols[index]
    if symbol.name in defined and symbol.storage in (_EXTERNAL, _WEAK):
        other, number = defined[symbol.name]
        if number in other.outputs:
            return other.outputs[number]
    if symbol.storage == _WEAK:  # without another definition its default
        return _target(each, struct.unpack_from("<I", symbol.auxiliary)[0], defined, undefined, table)
    if symbol.storage != _EXTERNAL or symbol.section > 0:
        raise CompileError(f"{each.name} refers to {symbol.name.decode(errors='replace')} in a part that is left out")
    if symbol.name.startswith(_OURS):
        raise CompileError(f"the network's code needs {symbol.name.decode()}, which nothing defines")
    if symbol.name not in undefined:
        undefined[symbol.name] = table.add(
            symbol.name, symbol.value, min(symbol.section, 0), symbol.type, _EXTERNAL, b""
        )
    return undefined[symbol.name]


class _Table:
    """The symbols of the merged object, and the names of more than eight bytes."""

    def __init__(self) -> None:
        self._records: list[bytes] = []
        self._strings = bytearray(4)
        self._offsets: dict[bytes, int] = {}
        self.count = 0

    def add(self, name: bytes, value: int, section: int, kind: int, storage: int, auxiliary: bytes) -> int:
        """Add a symbol, and return its number."""
        number, more = self.count, len(auxiliary) // _SYMBOL
        field_ = name.ljust(8, b"\0") if len(name) <= 8 else struct.pack("<4xI", self.offset(name))
        self._records.append(struct.pack("<8sIhHBB", field_, value, section, kind, storage, more) + auxiliary)
        self.count += 1 + more
        return number

    def offset(self, name: bytes) -> int:
        """Return the offset of a name in the string table."""
        if name not in self._offsets:
            self._offsets[name] = len(self._strings)
            self._strings += name + b"\0"
        return self._offsets[name]

    def content(self) -> bytes:
        """Return the symbol table followed by the string table."""
        struct.pack_into("<I", self._strings, 0, len(self._strings))
        return b"".join(self._records) + bytes(self._strings)


def _file(machine: int, bodies: Sequence[tuple[_Section, list[tuple[int, int, int]]]], table: _Table) -> bytes:
    headers, parts = [], []
    at = _HEADER + _SECTION * len(bodies)
    for section, relocations in bodies:
        virtual, address, size, _, _, _, _, _, flags = section.header
        many = len(relocations) >= 0xFFFF
        if many:
            relocations = [(len(relocations) + 1, 0, 0), *relocations]
        flags = flags & ~(_COMDAT | _MANY_RELOCATIONS) | _MANY_RELOCATIONS * many
        listed = b"".join(struct.pack("<IIH", *each) for each in relocations)
        padding = bytes(-len(section.data) % 4)
        data_at = at if section.data else 0
        listed_at = at + len(section.data) + len(padding) if listed else 0
        name = section.name if len(section.name) <= 8 else f"/{table.offset(section.name)}".encode()
        headers.append(
            struct.pack("<8s6I2HI", name, virtual, address, size, data_at, listed_at, 0,
                        min(len(relocations), 0xFFFF), 0, flags)
        )  # fmt: skip
        parts.append(section.data + padding + listed + bytes(-len(listed) % 4))
        at += len(parts[-1])
    header = struct.pack("<HHIIIHH", machine, len(bodies), 0, at, table.count, 0, 0)
    return b"".join([header, *headers, *parts, table.content()])
