"""Maps the characters of byte-level vocabularies, such as GPT-2's, to the bytes that they stand for."""

from __future__ import annotations

from functools import cache

__all__ = ["bytes_of"]


@cache
def _bytes() -> dict[str, int]:
    """Return the byte of each character: printable bytes are characters of Latin-1, the others U+0100 and following."""
    own = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in own]
    return {chr(byte): byte for byte in own} | {chr(0x100 + number): byte for number, byte in enumerate(others)}


def bytes_of(token: str) -> bytes:
    """Return the bytes of a token's text; other characters stand for their own UTF-8."""
    table = _bytes()
    try:
        return bytes([table[c] for c in token])
    except KeyError:
        return b"".join(bytes([table[c]]) if c in table else c.encode("utf-8", "surrogatepass") for c in token)
