"""Tables of Unicode for the normalization of text, generated from Python's `unicodedata`."""

from __future__ import annotations

import sys
import unicodedata
from functools import cache
from typing import Literal

__all__ = ["combining_classes", "compositions", "decompositions", "lower_case", "marks"]

_HANGUL = range(0xAC00, 0xD7A4)
_CHARACTERS = [*range(0xD800), *range(0xE000, sys.maxunicode + 1)]


@cache
def combining_classes() -> tuple[tuple[int, int, int], ...]:
    """Return ranges of marks as first character, last character, and canonical combining class."""
    rows: list[list[int]] = []
    for number in _CHARACTERS:
        own = unicodedata.combining(chr(number))
        if own == 0:
            continue
        if rows and rows[-1][1] == number - 1 and rows[-1][2] == own:
            rows[-1][1] = number
        else:
            rows.append([number, number, own])
    return tuple((first, last, own) for first, last, own in rows)


@cache
def compositions() -> tuple[tuple[int, int, int], ...]:
    """Return canonical compositions as sorted rows of two characters and their composition, without Hangul."""
    rows = []
    for number in _CHARACTERS:
        pair = unicodedata.decomposition(chr(number))
        if not pair or pair.startswith("<") or number in _HANGUL:
            continue
        parts = [int(part, 16) for part in pair.split()]
        if len(parts) == 2 and unicodedata.normalize("NFC", "".join(map(chr, parts))) == chr(number):
            rows.append((parts[0], parts[1], number))
    return tuple(sorted(rows))


@cache
def decompositions(form: Literal["NFD", "NFKD"]) -> dict[int, str]:
    """Return the decomposition (NFD or NFKD) of each character that has one, without Hangul."""
    made = {number: unicodedata.normalize(form, chr(number)) for number in _CHARACTERS if number not in _HANGUL}
    return {number: text for number, text in made.items() if text != chr(number)}


@cache
def lower_case() -> dict[int, str]:
    """Return the lower case of each character that has one, without regard to neighboring characters."""
    made = {number: chr(number).lower() for number in _CHARACTERS}
    return {number: text for number, text in made.items() if text != chr(number)}


@cache
def marks(*categories: str) -> dict[int, str]:
    """Return a mapping that removes the characters of some general categories."""
    return {number: "" for number in _CHARACTERS if unicodedata.category(chr(number)) in categories}
