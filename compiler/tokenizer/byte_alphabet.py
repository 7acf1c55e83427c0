"""Translates the characters that byte-level vocabularies write bytes with, as GPT-2's does."""

from __future__ import annotations

from functools import cache

__all__ = ["bytes_of"]


@cache
def _bytes() -> dict[str, int]:
    """Returns the byte of each character: printable bytes are characters of Latin-1, the others follow U+0100."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(0x100 + number): byte for number, byte in enumerate(others)}


def bytes_of(token: str) -> bytes:
    """Returns the bytes that a token stands for; a character that stands for none is its own UTF-8."""
    table = _bytes()
    try:
        return bytes([table[c] for c in token])
    except KeyError:
        return b"".join(bytes([table[c]]) if c in table else c.encode("utf-8", "surrogatepass") for c in token)
