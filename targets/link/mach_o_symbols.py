"""Makes all defined symbols of a Mach-O object local, except the public ones.

Several networks can then be linked into one program, as `elf_symbols.py` has it for ELF. A table of symbols has three
parts, which one load command counts: local ones, those that other objects see, and undefined ones. Symbols that become
local move to the first part, and relocations get their new numbers. The file keeps its size.
"""

from __future__ import annotations

import struct
from collections.abc import Collection

import numpy as np
from numpy.typing import NDArray

from nnefc.support.diagnostics import CompileError
from nnefc.targets.link.mach_o_platform import load_commands

__all__ = ["hide_mach_o_symbols"]

_OBJECT = 1  # a kind of files
_SYMTAB, _DYSYMTAB, _SEGMENT = 0x2, 0xB, 0x19  # load commands
_EXTERNAL, _PRIVATE, _TYPE, _DEBUGGING = 0x01, 0x10, 0x0E, 0xE0  # bits of a symbol's kind
_WEAK = 0x0080  # in a description: of several definitions one is kept
_OURS = (b"_nnefc_", b"_TVM", b"___TVM")  # how names begin that the network and its runtime define themselves
_SYMBOL = np.dtype([("name", "<u4"), ("kind", "u1"), ("section", "u1"), ("description", "<u2"), ("value", "<u8")])
_RELOCATION = np.dtype([("address", "<i4"), ("info", "<u4")])
_NUMBER, _BY_SYMBOL = 0x00FFFFFF, 1 << 27  # of a relocation: the number, and whether it is that of a symbol
_ADDEND = 10  # a kind of relocations of 64-bit Arm, whose number is a constant


def hide_mach_o_symbols(content: bytes, public: Collection[str]) -> bytes:
    """Returns a relocatable object of which other objects see the functions in `public` alone.

    Raises:
        CompileError: the file is no such object, or a function or a name of the runtime is missing.
    """
    data = np.frombuffer(bytearray(content), np.uint8)
    try:
        commands = {command: at for command, at, _ in load_commands(content)}
    except ValueError as error:
        raise CompileError(f"the linker wrote no Mach-O object: {error}") from error
    if struct.unpack_from("<I", content, 12)[0] != _OBJECT or _SYMTAB not in commands or _DYSYMTAB not in commands:
        raise CompileError("the linker wrote no relocatable Mach-O object")
    first, count, names, name_bytes = struct.unpack_from("<IIII", content, commands[_SYMTAB] + 8)
    symbols = np.frombuffer(data, _SYMBOL, count, first)
    strings = content[names : names + name_bytes]
    spelled = [strings[at : strings.index(b"\0", at)] for at in symbols["name"]]
    _hide(symbols, spelled, {f"_{name}".encode() for name in public})
    part = np.where(symbols["kind"] & _EXTERNAL == 0, 0, np.where(symbols["kind"] & _TYPE != 0, 1, 2))
    order = np.argsort(part, kind="stable")
    numbers = np.empty(count, np.uint32)
    numbers[order] = np.arange(count, dtype=np.uint32)
    symbols[:] = symbols[order]
    sizes = [int(np.count_nonzero(part == each)) for each in range(3)]
    parts = (0, sizes[0], sizes[0], sizes[1], sizes[0] + sizes[1], sizes[2])
    struct.pack_into("<6I", data.data, commands[_DYSYMTAB] + 8, *parts)
    _renumber(data, numbers)
    return data.tobytes()


def _hide(symbols: NDArray[np.void], spelled: list[bytes], public: Collection[bytes]) -> None:
    is_symbol = symbols["kind"] & _DEBUGGING == 0
    defined = is_symbol & (symbols["kind"] & _TYPE != 0)
    called = np.array([name in public for name in spelled], bool)
    for name, here in zip(spelled, defined | ~is_symbol, strict=True):
        if not here and name.startswith(_OURS):
            raise CompileError(f"the network's code needs {name.decode()}, which nothing defines")
    if np.count_nonzero(called & defined) != len(public):
        raise CompileError("the object does not define all the functions of the interface")
    hidden = defined & ~called
    symbols["kind"][hidden] &= 0xFF & ~(_EXTERNAL | _PRIVATE)
    symbols["description"][hidden] &= 0xFFFF & ~_WEAK


def _renumber(data: NDArray[np.uint8], numbers: NDArray[np.uint32]) -> None:
    """Gives relocations that refer to symbols the symbols' new numbers."""
    content = data.tobytes()
    is_arm = struct.unpack_from("<I", content, 4)[0] == 0x0100000C
    for command, at, _ in load_commands(content):
        if command != _SEGMENT:
            continue
        (sections,) = struct.unpack_from("<I", content, at + 64)
        for section in range(at + 72, at + 72 + 80 * sections, 80):
            offset, count = struct.unpack_from("<II", content, section + 56)
            relocations = np.frombuffer(data, _RELOCATION, count, offset) if count else np.zeros(0, _RELOCATION)
            info = relocations["info"]
            by_symbol = info & _BY_SYMBOL != 0
            if is_arm:
                by_symbol &= info >> 28 != _ADDEND
            info[by_symbol] = info[by_symbol] & ~np.uint32(_NUMBER) | numbers[info[by_symbol] & _NUMBER]
