"""Which symbols of an object file the linker sees: all defined ones but the public are made local.

Several networks can then be linked into one program although each has the same runtime and kernels of the same names.
The symbol table of an ELF file has its local symbols first, so that this is another order of it, and new numbers in all
that refers to it. Nothing changes its size, and the file is changed where it is.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnefc.diagnostics import CompileError

__all__ = ["hide_symbols"]

_SYMTAB, _RELA, _NOBITS, _REL, _GROUP, _SYMTAB_SHNDX, _ADDRSIG = 2, 4, 8, 9, 17, 18, 0x6FFF4C03
_LOCAL = 0
_UNDEFINED = 0
_OURS = (b"nnefc_", b"TVM", b"__TVM")  # how names begin that the network and its runtime define themselves

_Image = NDArray[np.uint8]


@dataclass(frozen=True)
class _Layout:
    """Where the fields of a class of ELF files are: of 32 or of 64 bits, little-endian."""

    section_table: tuple[int, str]  # offset and format of e_shoff
    section_count: int  # offset of e_shnum
    section: np.dtype[np.void]
    symbol: np.dtype[np.void]
    relocation_bytes: dict[int, int]  # by type of section
    info: tuple[str, int, int]  # of a relocation: type, offset of r_info, bits below the symbol's number


_64 = _Layout(
    (0x28, "<Q"),
    0x3C,
    np.dtype(
        [("name", "<u4"), ("type", "<u4"), ("flags", "<u8"), ("address", "<u8"), ("offset", "<u8"), ("size", "<u8"),
         ("link", "<u4"), ("info", "<u4"), ("align", "<u8"), ("entry", "<u8")]
    ),
    np.dtype([("name", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2"), ("value", "<u8"), ("size", "<u8")]),
    {_REL: 16, _RELA: 24},
    ("<u8", 8, 32),
)  # fmt: skip
_32 = _Layout(
    (0x20, "<I"),
    0x30,
    np.dtype(
        [("name", "<u4"), ("type", "<u4"), ("flags", "<u4"), ("address", "<u4"), ("offset", "<u4"), ("size", "<u4"),
         ("link", "<u4"), ("info", "<u4"), ("align", "<u4"), ("entry", "<u4")]
    ),
    np.dtype([("name", "<u4"), ("value", "<u4"), ("size", "<u4"), ("info", "u1"), ("other", "u1"), ("section", "<u2")]),
    {_REL: 8, _RELA: 12},
    ("<u4", 4, 8),
)  # fmt: skip


def hide_symbols(path: Path, public: Collection[str]) -> None:
    """Make every symbol local that the relocatable object at `path` defines, but those in `public`.

    Groups of sections that linkers would keep once a program become ordinary ones: their names are shared no longer.

    Raises:
        CompileError: no little-endian relocatable ELF file, or a symbol is missing.
    """
    image = np.memmap(path, np.uint8, "r+")
    layout = _layout(path, image)
    sections = _sections(image, layout)
    for index, table in enumerate(sections):
        if table["type"] == _SYMTAB:
            _hide(path, image, layout, sections, index, {name.encode() for name in public})
    image.flush()


def _layout(path: Path, image: _Image) -> _Layout:
    identity, kind = image[:6].tobytes(), struct.unpack_from("<H", image.data, 16)[0]
    if not (identity[:4] == b"\x7fELF" and identity[5] == 1 and kind == 1):
        raise CompileError(f"{path.name} is no relocatable ELF file")
    return _64 if image[4] == 2 else _32


def _sections(image: _Image, layout: _Layout) -> NDArray[np.void]:
    place, form = layout.section_table
    start = struct.unpack_from(form, image.data, place)[0]
    count = struct.unpack_from("<H", image.data, layout.section_count)[0]
    if count == 0:  # then the first header has the number
        count = int(np.frombuffer(image, layout.section, 1, start)[0]["size"])
    return np.frombuffer(image, layout.section, count, start)


def _hide(
    path: Path, image: _Image, layout: _Layout, sections: NDArray[np.void], index: int, public: Collection[bytes]
) -> None:
    table = sections[index]
    symbols = _part(image, table, layout.symbol)
    names = sections[table["link"]]
    strings = image[int(names["offset"]) : int(names["offset"] + names["size"])].tobytes()
    spelled = [strings[at : strings.index(b"\0", at)] for at in symbols["name"]]
    called = np.array([name in public for name in spelled], bool)
    defined = symbols["section"] != _UNDEFINED
    for name, here in zip(spelled, defined, strict=True):
        if not here and name.startswith(_OURS):
            raise CompileError(f"the network's code needs {name.decode()}, which nothing defines")
    if np.count_nonzero(called & defined) != len(public):
        raise CompileError(f"{path.name} does not define all the functions of the interface")
    visible = symbols["info"] >> 4 != _LOCAL
    hidden = visible & defined & ~called
    symbols["info"][hidden] &= 0xF
    symbols["other"][hidden] &= 0xFC  # the default visibility, for a local symbol has no other
    is_local = symbols["info"] >> 4 == _LOCAL
    order = np.argsort(~is_local, kind="stable")
    numbers = np.empty(len(order), np.uint64)
    numbers[order] = np.arange(len(order), dtype=np.uint64)
    symbols[:] = symbols[order]
    table["info"] = np.count_nonzero(is_local)
    for section in sections:
        if section["link"] == index:
            _renumber(image, layout, section, order, numbers)


def _renumber(
    image: _Image, layout: _Layout, section: np.void, order: NDArray[np.intp], numbers: NDArray[np.uint64]
) -> None:
    """Give what refers to symbols by number their new numbers."""
    match int(section["type"]):
        case type_ if type_ in layout.relocation_bytes:
            form, at, shift = layout.info
            step = layout.relocation_bytes[type_]
            whole = _part(image, section, np.dtype("u1")).reshape(-1, step)
            info = whole[:, at : at + np.dtype(form).itemsize].copy().view(form)[:, 0]
            new = numbers[info >> shift].astype(form) << shift | info & ((1 << shift) - 1)
            whole[:, at : at + np.dtype(form).itemsize] = new[:, None].view("u1")
        case _ if section["type"] == _GROUP:
            section["info"] = numbers[section["info"]]
            _part(image, section, np.dtype("<u4"))[0] &= ~np.uint32(1)  # GRP_COMDAT
        case _ if section["type"] == _SYMTAB_SHNDX:
            entries = _part(image, section, np.dtype("<u4"))
            entries[:] = entries[order]
        case _ if section["type"] == _ADDRSIG:
            section["type"] = 0  # a hint to linkers, which they need not have


def _part(image: _Image, section: np.void, dtype: np.dtype[np.generic]) -> NDArray[np.void]:
    return np.frombuffer(image, dtype, int(section["size"]) // dtype.itemsize, int(section["offset"]))
