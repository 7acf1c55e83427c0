"""Changes numbers and bytes of binary files."""

from __future__ import annotations

import struct
from random import Random

__all__ = ["changed_bytes"]

_NUMBERS = (0, 1, 2, 3, 31, 32, 255, 256, 1 << 16, (1 << 31) - 1, 1 << 32, 1 << 40, (1 << 63) - 1, (1 << 64) - 1)


def changed_bytes(content: bytes, random: Random, end: int | None = None) -> bytes:
    """The content with other numbers or bytes, or without some, in front of `end`."""
    made = bytearray(content)
    end = len(made) if end is None else min(end, len(made) - 8)
    for _ in range(random.randint(1, 3)):
        at = random.randrange(max(1, end))
        match random.randrange(4):
            case 0:
                made[at : at + 8] = struct.pack("<Q", random.choice(_NUMBERS))
            case 1:
                made[at : at + 4] = struct.pack("<I", random.choice(_NUMBERS) & 0xFFFFFFFF)
            case 2 if at < len(made):
                made[at] = random.randrange(256)
            case _:
                del made[at : at + random.randrange(9)]
    return bytes(made)
