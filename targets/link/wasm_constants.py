"""Writes the trained values of a WebAssembly module to a custom section at the end of the file.

An engine copies the data sections of a module, often twice, and compiles the module only when all of it has arrived. So
constants of a megabyte and more are not data: the linker reserves memory for them between the stack and the data, and
the loader (`runtime/nnefc_module.mjs`) copies them there from the file, or as they arrive.

    custom section "nnefc.constants", the last one: the address in memory, 32 bits; the constants; zeros up to a
    multiple of 8 bytes; a checksum of 64 bits, by which the library checks that they have arrived

Numbers are little-endian.
"""

from __future__ import annotations

import struct
from pathlib import Path

from nnefc.targets.link.constants import Constants
from nnefc.targets.link.wasm_memory import CUSTOM, number

__all__ = ["append_constants", "room_for"]

STACK_BYTES = 1 << 20
"""The size of the stack, as large as that of threads on other systems; it is first in memory."""

_SECTION = b"nnefc.constants"
_ALIGNED = 64


def room_for(size: int) -> list[str]:
    """Return the options of compiler and linker that reserve memory for `size` bytes of constants."""
    end = STACK_BYTES + -(-size // 8) * 8
    first = -(-(end + 8) // _ALIGNED) * _ALIGNED
    return [f"-DNNEFC_CONSTANTS_AT={STACK_BYTES}", f"-DNNEFC_CONSTANTS_END={end}", f"-Wl,--global-base={first}"]


def append_constants(library: Path, constants: Constants) -> None:
    """Append the section to a module that has reserved memory for `constants`."""
    head = number(len(_SECTION)) + _SECTION + struct.pack("<I", STACK_BYTES)
    tail = bytes(-constants.size % 8) + struct.pack("<Q", constants.checksum)
    with library.open("r+b") as file:
        file.seek(0, 2)
        file.write(bytes([CUSTOM]) + number(len(head) + constants.size + len(tail)) + head)
        constants.write(file)
        file.seek(0, 2)
        file.write(tail)
