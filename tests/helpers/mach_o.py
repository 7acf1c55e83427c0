"""A small reader of 64-bit Mach-O libraries: load commands, names, and whether a signature holds."""

from __future__ import annotations

import hashlib
import struct


def commands(data: bytes) -> dict[int, bytes]:
    """Load commands by their numbers, the last of each."""
    found, at = {}, 32
    for _ in range(struct.unpack_from("<I", data, 16)[0]):
        command, size = struct.unpack_from("<II", data, at)
        found[command] = data[at : at + size]
        at += size
    return found


def undefined_names(data: bytes) -> set[str]:
    """The symbols that other libraries have."""
    symbols, count, strings = struct.unpack_from("<III", commands(data)[0x2], 8)
    found = set()
    for number in range(count):
        name, kind = struct.unpack_from("<IB", data, symbols + 16 * number)
        if kind & 0xEF == 1:  # external, and in no section
            found.add(data[strings + name :].split(b"\0", 1)[0].decode())
    return found


def broken_pages(data: bytes) -> list[int]:
    """The pages of a library for macOS whose content is not what its signature says.

    Numbers of a signature are big-endian: it begins with an index of blobs, one of which is the code directory, with a
    SHA-256 of each page before the signature. That directory is not signed ("ad hoc").
    """
    (signature,) = struct.unpack_from("<I", commands(data)[0x1D], 8)  # LC_CODE_SIGNATURE
    magic, _, count = struct.unpack_from(">III", data, signature)
    assert magic == 0xFADE0CC0
    blobs = dict(struct.unpack_from(">II", data, signature + 12 + 8 * i) for i in range(count))
    directory = signature + blobs[0]
    magic, _, _, flags, hashes, _, _, pages, limit = struct.unpack_from(">9I", data, directory)
    assert (magic, flags & 2, limit) == (0xFADE0C02, 2, signature)  # ad hoc, of all before it
    digest, kind, _, bits = struct.unpack_from(">4B", data, directory + 36)
    assert (digest, kind) == (32, 2)  # SHA-256
    assert pages == (limit + (1 << bits) - 1) >> bits
    broken = []
    for page in range(pages):
        content = data[page << bits : min(page + 1 << bits, limit)]
        stored = data[directory + hashes + 32 * page :][:32]
        if hashlib.sha256(content).digest() != stored:
            broken.append(page)
    return broken
