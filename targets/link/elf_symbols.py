"""Makes all defined symbols of an object file local, except the public ones.

Several networks can then be linked into one program although each has the same runtime and kernels of the same names.
The symbol table of an ELF file has its local symbols first, so that this is another order of it, and new numbers in all
that refers to it. Nothing changes its size, and the file is changed where it is.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from nnefc.support.diagnostics import CompileError
from nnefc.targets.link.elf_file import RELOCATABLE, ElfFile

__all__ = ["hide_symbols"]

_SYMTAB, _RELA, _REL, _GROUP, _SYMTAB_SHNDX, _ADDRSIG = 2, 4, 9, 17, 18, 0x6FFF4C03
_LOCAL = 0
_UNDEFINED = 0
_OURS = (b"nnefc_", b"TVM", b"__TVM")  # how names begin that the network and its runtime define themselves

# Of relocations: bytes by type of section; and, in a file of 64 bits or of 32, the type of r_info, where it is, and the
# bits in it below the symbol's number.
_RELOCATIONS = {True: ({_REL: 16, _RELA: 24}, ("<u8", 8, 32)), False: ({_REL: 8, _RELA: 12}, ("<u4", 4, 8))}


def hide_symbols(path: Path, public: Collection[str]) -> None:
    """Makes every symbol local that the relocatable object at `path` defines, but those in `public`.

    Groups of sections that linkers would keep once a program become ordinary ones: their names are shared no longer.

    Raises:
        CompileError: no little-endian relocatable ELF file, or a symbol is missing.
    """
    image = np.memmap(path, np.uint8, "r+")
    try:
        file = ElfFile(image, RELOCATABLE)
    except ValueError as error:
        raise CompileError(f"{path.name} is not a relocatable ELF file") from error
    for index, table in enumerate(file.sections):
        if table["type"] == _SYMTAB:
            _hide(path.name, file, index, {name.encode() for name in public})
    image.flush()


def _hide(file_name: str, file: ElfFile, index: int, public: Collection[bytes]) -> None:
    table = file.sections[index]
    symbols = file.symbols(table)
    strings = file.part(file.sections[table["link"]], np.dtype("u1")).tobytes()
    spelled = [strings[at : strings.index(b"\0", at)] for at in symbols["name"]]
    called = np.array([name in public for name in spelled], bool)
    defined = symbols["section"] != _UNDEFINED
    for name, here in zip(spelled, defined, strict=True):
        if not here and name.startswith(_OURS):
            raise CompileError(f"the network's code needs {name.decode()}, which nothing defines")
    if np.count_nonzero(called & defined) != len(public):
        raise CompileError(f"{file_name} does not define all the functions of the interface")
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
    for section in file.sections:
        if section["link"] == index:
            _renumber(file, section, order, numbers)


def _renumber(file: ElfFile, section: np.void, order: NDArray[np.intp], numbers: NDArray[np.uint64]) -> None:
    """Gives what refers to symbols by number their new numbers."""
    steps, (form, at, shift) = _RELOCATIONS[file.is_64]
    match int(section["type"]):
        case type_ if type_ in steps:
            whole = file.part(section, np.dtype("u1")).reshape(-1, steps[type_])
            info = whole[:, at : at + np.dtype(form).itemsize].copy().view(form)[:, 0]
            new = numbers[info >> shift].astype(form) << shift | info & ((1 << shift) - 1)
            whole[:, at : at + np.dtype(form).itemsize] = new[:, None].view("u1")
        case _ if section["type"] == _GROUP:
            section["info"] = numbers[section["info"]]
            file.part(section, np.dtype("<u4"))[0] &= ~np.uint32(1)  # GRP_COMDAT
        case _ if section["type"] == _SYMTAB_SHNDX:
            entries = file.part(section, np.dtype("<u4"))
            entries[:] = entries[order]
        case _ if section["type"] == _ADDRSIG:
            section["type"] = 0  # a hint to linkers, which they need not have
