"""Generates the case tables of `targets/runtime/text/letters.h`, which map as Python's strings do."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import groupby
from typing import Literal

import numpy as np

from nnefc.operators.base import Array

__all__ = ["Case", "case_table"]

Case = Literal["LOWER", "UPPER", "TITLE"]

_SIGMA = "\N{GREEK CAPITAL LETTER SIGMA}"
_FINAL = "\N{GREEK SMALL LETTER FINAL SIGMA}"
_CASED, _IGNORED = 1, 2


def _characters() -> Iterator[str]:
    """Yield characters that may have a case or stand within words: planes 0 and 1, tags and selectors of plane 14."""
    for number in (*range(0xD800), *range(0xE000, 0x20000), *range(0xE0000, 0xE0200)):
        yield chr(number)


def _kind(character: str) -> int:
    """Return the kind of a character, cased or ignorable, which the lower case of a sigma behind it shows."""
    if (character + _SIGMA).lower().endswith(_FINAL):
        return _CASED
    return _IGNORED if ("a" + character + _SIGMA).lower().endswith(_FINAL) else 0


@cache
def case_table(case: Case) -> Array:
    """The table of a change of case, uint8: `nnefc_letters` in `letters.h`. Title case is that of single characters."""
    change = {"LOWER": str.lower, "UPPER": str.upper, "TITLE": str.title}[case]
    changed = {c: change(c) for c in _characters()}
    entries, others = [], b""
    for character, other in changed.items():
        if character != other:
            entries.append((ord(character), len(others), len(other.encode())))
            others += other.encode()
    ranges = []
    if case == "LOWER":
        numbered = ((_kind(character), ord(character)) for character in _characters())
        for (kind, _), run in groupby(enumerate(numbered), lambda element: (element[1][0], element[1][1] - element[0])):
            numbers = [number for _, (_, number) in run]
            if kind:
                ranges.append((numbers[0], numbers[-1], kind))
    table = np.array([*entries, *ranges], "<u4")
    head = np.array([len(entries), len(ranges), 12 + table.nbytes], "<u4")
    return np.frombuffer(head.tobytes() + table.tobytes() + others, np.uint8)
