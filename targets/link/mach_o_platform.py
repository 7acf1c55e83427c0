"""Rewrites what a Mach-O file says of itself: the platform that it is for and the name that programs find it by.

The linker has the library of macOS alone. Files for Apple's other systems differ from those for macOS in one load
command, which names the platform and its oldest version. Rewritten libraries are signed ad hoc again.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterator

from nnefc.targets.machine.system import ApplePlatform

__all__ = ["load_commands", "with_install_name", "with_platform"]

_MAGIC = b"\xcf\xfa\xed\xfe"  # of Mach-O with 64 bits
_HEADER_BYTES = 32
_ID_DYLIB, _SIGNATURE, _BUILD_VERSION = 0xD, 0x1D, 0x32  # load commands
_EMBEDDED_SIGNATURE, _CODE_DIRECTORY, _SHA256 = 0xFADE0CC0, 0xFADE0C02, 2


def with_platform(content: bytes, platform: ApplePlatform) -> bytes:
    """Returns an object or a library as one for another platform.

    Raises:
        ValueError: the file is no Mach-O file of 64 bits, or names no platform.
    """
    data = bytearray(content)
    commands = _required(data, _BUILD_VERSION)
    version = platform.oldest[0] << 16 | platform.oldest[1] << 8
    struct.pack_into("<III", data, commands[_BUILD_VERSION] + 8, platform.number, version, version)
    if _SIGNATURE in commands:
        _sign(data, commands[_SIGNATURE])
    return bytes(data)


def with_install_name(content: bytes, name: str) -> bytes:
    """Returns a library that programs find by another name, which is no longer than the room for the present one.

    Raises:
        ValueError: the file is no Mach-O library of 64 bits that is signed, or has no room for the name.
    """
    data = bytearray(content)
    commands = _required(data, _ID_DYLIB, _SIGNATURE)
    at = commands[_ID_DYLIB]
    size, offset = struct.unpack_from("<II", data, at + 4)
    encoded, room = name.encode(), size - offset
    if len(encoded) >= room:
        raise ValueError(f"the library has no room for the name {name}")
    data[at + offset : at + size] = encoded.ljust(room, b"\0")
    _sign(data, commands[_SIGNATURE])
    return bytes(data)


def _required(data: bytearray, *needed: int) -> dict[int, int]:
    """Returns the positions of the load commands, the last of each kind."""
    commands = {command: at for command, at, _ in load_commands(data)}
    for command in needed:
        if command not in commands:
            raise ValueError(f"the file has no load command {command:#x}")
    return commands


def load_commands(data: bytes | bytearray) -> Iterator[tuple[int, int, int]]:
    """Yields the kind, the position and the size of each load command.

    Raises:
        ValueError: the file is no Mach-O file of 64 bits.
    """
    if data[:4] != _MAGIC:
        raise ValueError("not a Mach-O file of 64 bits")
    (count,) = struct.unpack_from("<I", data, 16)
    at = _HEADER_BYTES
    for _ in range(count):
        command, size = struct.unpack_from("<II", data, at)
        yield command, at, size
        at += size


def _sign(data: bytearray, command: int) -> None:
    """Writes the hashes of the present pages into the ad hoc signature that a load command locates."""
    (start,) = struct.unpack_from("<I", data, command + 8)
    magic, _, blobs = struct.unpack_from(">III", data, start)
    if magic != _EMBEDDED_SIGNATURE:
        raise ValueError("the library is not signed")
    for index in range(blobs):
        at = start + struct.unpack_from(">I", data, start + 12 + 8 * index + 4)[0]
        if struct.unpack_from(">I", data, at)[0] != _CODE_DIRECTORY:
            continue
        hashes, _, _, pages, limit = struct.unpack_from(">IIIII", data, at + 16)
        size, kind, _, page_bits = struct.unpack_from("4B", data, at + 36)
        if kind != _SHA256:
            raise ValueError("the library is signed with another hash than SHA-256")
        for page in range(pages):
            content = data[page << page_bits : min(page + 1 << page_bits, limit)]
            position = at + hashes + page * size
            data[position : position + size] = hashlib.sha256(content).digest()[:size]
