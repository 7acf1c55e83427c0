"""Writes the trained values of a WebAssembly module to a section of their own at the end of the file.

An engine copies what is in a module's data, often twice, and compiles the module when all of it has come. Constants of
a megabyte and more are therefore no data: the linker leaves room for them in memory, between the stack and the data,
and the loader (`runtime/nnefc_module.mjs`) reads them there from the file, or as they arrive:

    custom section "nnefc.constants", the last one: where in memory, a number of 32 bits; the constants; zeros up to a
    multiple of 8 bytes; their checksum, 64 bits, by which the library knows that they have come

Numbers are little-endian.
"""

from __future__ import annotations

import struct
from pathlib import Path

from nnefc.targets.link.constants import Constants
from nnefc.targets.link.wasm_memory import CUSTOM, number

__all__ = ["append_constants", "room_for"]

STACK_BYTES = 1 << 20
"""As large as that of threads elsewhere; it comes first in memory."""

_SECTION = b"nnefc.constants"
_ALIGNED = 64


def room_for(size: int) -> list[str]:
    """Returns the options of compiler and linker for constants of so many bytes."""
    end = STACK_BYTES + -(-size // 8) * 8
    first = -(-(end + 8) // _ALIGNED) * _ALIGNED
    return [f"-DNNEFC_CONSTANTS_AT={STACK_BYTES}", f"-DNNEFC_CONSTANTS_END={end}", f"-Wl,--global-base={first}"]


def append_constants(library: Path, constants: Constants) -> None:
    """Adds the section to a module that has room for `constants`."""
    head = number(len(_SECTION)) + _SECTION + struct.pack("<I", STACK_BYTES)
    tail = bytes(-constants.size % 8) + struct.pack("<Q", constants.checksum)
    with library.open("r+b") as file:
        file.seek(0, 2)
        file.write(bytes([CUSTOM]) + number(len(head) + constants.size + len(tail)) + head)
        constants.write(file)
        file.seek(0, 2)
        file.write(tail)
