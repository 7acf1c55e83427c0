"""Applies the steps of a normalizer at compile time, to added tokens that are searched in normalized text."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence

from nnefc.support.diagnostics import CompileError
from nnefc.tokenizer.patterns import SPACE_CHARACTERS
from nnefc.tokenizer.vocabulary import Compose, MapCharacters, Pattern, Prepend, Reorder, Replace, Step, Strip

__all__ = ["normalized"]

_HANGUL = range(0xAC00, 0xD7A4)


def normalized(text: str, steps: Sequence[Step]) -> str:
    """Return a text after the steps of a normalizer.

    Raises:
        CompileError: the pattern of a step cannot be written as a regular expression of Python.
    """
    for step in steps:
        if text:
            text = _changed(text, step)
    return text


def _changed(text: str, step: Step) -> str:
    match step:
        case MapCharacters(table, decomposes_hangul):
            return "".join(
                unicodedata.normalize("NFD", c) if decomposes_hangul and ord(c) in _HANGUL else table.get(ord(c), c)
                for c in text
            )
        case Reorder():
            return unicodedata.normalize("NFD", text)  # its characters are decomposed
        case Compose():
            return unicodedata.normalize("NFC", text)
        case Prepend(own, _, unless_there):
            return text if unless_there and text.startswith(own) else own + text
        case Replace(pattern, own, surrounds):
            return _expression(pattern).sub(lambda found: f"{own}{found[0]}{own}" if surrounds else own, text)
        case Strip(left, right):
            spaces = "".join(SPACE_CHARACTERS)
            text = text.lstrip(spaces) if left else text
            return text.rstrip(spaces) if right else text
    raise AssertionError(step)


def _expression(pattern: Pattern) -> re.Pattern[str]:
    """Return a pattern as a regular expression of Python."""
    parts = [own if unless is None else f"(?:{own})(?!{unless})" for own, unless in pattern]
    regex = re.sub(r"\\x\{([0-9A-Fa-f]+)\}", lambda found: re.escape(chr(int(found[1], 16))), "|".join(parts))
    try:
        return re.compile(regex)
    except re.error:
        raise CompileError(
            f"the tokenizer's normalizer with the pattern {regex[:80]!r} is not supported where added tokens are "
            "looked for in normalized text"
        ) from None
