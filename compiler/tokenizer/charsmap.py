"""Converts SentencePiece's compiled character maps to normalization steps."""

from __future__ import annotations

import base64
import binascii
import struct
import unicodedata
from collections.abc import Iterator

import numpy as np

from nnefc.support.diagnostics import CompileError
from nnefc.tokenizer.vocabulary import Compose, MapCharacters, Step

__all__ = ["charsmap_steps"]

_MAX_KEYS = 1 << 20
_MAX_TEXT_BYTES = 1 << 10


def charsmap_steps(charsmap: str | bytes) -> tuple[Step, ...]:
    """Return the steps of a character map, which is given as bytes or in Base64.

    The map is a double-array trie from texts to texts (https://github.com/google/sentencepiece, `normalizer.cc`). Keys
    of one character become a mapping of characters. Keys of several characters must be canonical compositions, and
    become a step that composes.

    Raises:
        CompileError: the map is damaged, or has other keys.
    """
    if not isinstance(charsmap, str | bytes):
        raise CompileError("the tokenizer's character map is not in Base64")
    try:
        content = base64.b64decode(charsmap, validate=True) if isinstance(charsmap, str) else bytes(charsmap)
    except binascii.Error as error:
        raise CompileError(f"the tokenizer's character map is not in Base64: {error}") from error
    table: dict[int, str] = {}
    composes = False
    for key, text in _entries(content):
        if len(key) == 1:
            table[ord(key)] = text
            continue
        if unicodedata.normalize("NFKC", key) != unicodedata.normalize("NFKC", text):
            raise CompileError(f"the tokenizer's character map has {key!r} for {text!r}, which is not supported")
        composes = True
    return (MapCharacters(table), *((Compose(),) * composes))


def _entries(content: bytes) -> Iterator[tuple[str, str]]:
    """Yield the keys and values of the trie."""
    if not content:
        return
    size = struct.unpack_from("<I", content)[0] if len(content) >= 4 else 0
    if size == 0 or size % 4 or 4 + size > len(content):
        raise CompileError(f"the tokenizer's character map is damaged: it has {len(content)} bytes")
    units = np.frombuffer(content, "<u4", size // 4, 4)
    texts = content[4 + size :]
    waiting = [(0, b"")]
    count = 0
    while waiting:
        node, key = waiting.pop()
        unit = int(units[node])
        base = node ^ ((unit >> 10) << ((unit & 0x200) >> 6))
        if unit >> 8 & 1 and base < len(units):  # a key ends here
            begin = int(units[base]) & 0x7FFFFFFF
            end = texts.find(b"\0", begin, begin + _MAX_TEXT_BYTES)
            if end < 0:
                raise CompileError(
                    f"the tokenizer's character map is damaged: a text has no end in {_MAX_TEXT_BYTES:,} bytes"
                )
            yield _text(key), _text(texts[begin:end])
        for byte in range(1, 256):
            after = base ^ byte
            if after < len(units) and int(units[after]) & 0x800000FF == byte:
                waiting.append((after, key + bytes([byte])))
        count += 1
        if count > _MAX_KEYS or len(key) > 64:
            raise CompileError("the tokenizer's character map is damaged: it has no end")


def _text(content: bytes) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise CompileError(f"the tokenizer's character map is damaged: {error}") from error
