"""Makes the steps of known normalizers and pre-tokenizers, such as Unicode's normal forms and BERT's splits."""

from __future__ import annotations

import unicodedata
from functools import cache
from typing import Literal

from nnefc.support.diagnostics import CompileError
from nnefc.tokenizer.patterns import SPACE, SPACE_CHARACTERS, literal_pattern, pattern_of_regex
from nnefc.tokenizer.unicode import decompositions, lower_case, marks
from nnefc.tokenizer.vocabulary import (
    Behavior,
    Compose,
    MapCharacters,
    Prepend,
    Reorder,
    Replace,
    Split,
    Step,
)

__all__ = [
    "GPT2_PATTERN",
    "METASPACE",
    "PUNCTUATION",
    "behavior_of",
    "bert_normalization",
    "bert_split",
    "lowercase",
    "metaspace",
    "nmt_normalization",
    "normal_form",
    "split",
    "split_characters",
    "strip_accents",
]

METASPACE = "\u2581"
GPT2_PATTERN = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
PUNCTUATION = r"\x{21}-\x{2F}\x{3A}-\x{40}\x{5B}-\x{60}\x{7B}-\x{7E}\p{P}"
"""BERT's punctuation characters, as members of a set."""

_CHINESE = (
    r"\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}"
    r"\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}\x{2F800}-\x{2FA1F}"
)
"""What BERT calls Chinese characters, as members of a set."""


def split(regex: str, behavior: Behavior = Behavior.ISOLATED, inverts: bool = False) -> Split:
    """Return the step that splits at the matches of a tokenizer's regular expression."""
    return Split(pattern_of_regex(regex), behavior, inverts)


def split_characters(members: str, behavior: Behavior) -> Split:
    """Return the step that splits at each character of a set, whose members are in RE2 syntax."""
    return Split(((f"[{members}]", None),), behavior)


def metaspace(replacement: str = METASPACE, prepend: str = "always", splits: bool = True) -> tuple[Step, ...]:
    """Return the steps that replace spaces by a mark, as in SentencePiece.

    Args:
        replacement: the mark.
        prepend: whether the mark is put before each piece: `always`, `first` (only at the beginning of the text),
            `never`.
        splits: whether the text is split before each mark.
    """
    steps: list[Step] = [Replace(literal_pattern(" "), replacement)]
    if prepend != "never":
        steps.append(Prepend(replacement, once=prepend == "first", unless_there=True))
    if splits:
        steps.append(Split(literal_pattern(replacement), Behavior.WITH_NEXT))
    return tuple(steps)


def normal_form(form: str) -> tuple[Step, ...]:
    """Return the steps to Unicode's normal form NFC, NFD, NFKC or NFKD."""
    decomposed: Literal["NFD", "NFKD"] = "NFKD" if "K" in form else "NFD"
    steps: tuple[Step, ...] = (MapCharacters(decompositions(decomposed), decomposes_hangul=True), Reorder())
    return steps if form == decomposed else (*steps, Compose())


def lowercase() -> Step:
    """Return the step that converts to lower case, character by character."""
    return MapCharacters(lower_case())


def strip_accents() -> Step:
    """Returns the step that removes all marks."""
    return MapCharacters(marks("Mn", "Mc", "Me"))


def bert_normalization(clean: bool, chinese: bool, accents_are_stripped: bool, lower: bool) -> tuple[Step, ...]:
    """Return the steps of BERT's normalization.

    Args:
        clean: whether control characters are removed, and white space becomes spaces.
        chinese: whether spaces are put around Chinese characters.
        accents_are_stripped: whether characters are decomposed, and nonspacing marks removed.
        lower: whether text is converted to lower case.
    """
    steps: list[Step] = []
    if clean:
        steps.append(MapCharacters(_cleaned()))
    if chinese:
        steps.append(Replace(((f"[{_CHINESE}]", None),), " ", surrounds=True))
    if accents_are_stripped:
        steps += [*normal_form("NFD"), MapCharacters(marks("Mn"))]
    if lower:
        steps.append(lowercase())
    return tuple(steps)


_NMT_REMOVED = (*range(0x1, 0x9), 0xB, *range(0xE, 0x20), 0x7F, 0x8F, 0x9F)
_NMT_SPACES = (0x9, 0xA, 0xC, 0xD, 0x1680, *range(0x200B, 0x2010), 0x2028, 0x2029, 0x2581, 0xFEFF, 0xFFFD)


def nmt_normalization() -> tuple[Step, ...]:
    """Returns the step of SentencePiece's rule `nmt`: no control characters, and one kind of space."""
    return (MapCharacters(dict.fromkeys(_NMT_REMOVED, "") | dict.fromkeys(_NMT_SPACES, " ")),)


@cache
def _cleaned() -> dict[int, str]:
    """Return the replacements of control characters and white space."""
    table = {ord(c): " " for c in SPACE_CHARACTERS}
    for number in range(0x110000):
        if unicodedata.category(chr(number)) in ("Cc", "Cf", "Co") and number not in (9, 10, 13):
            table[number] = ""
    return table | {0: "", 0xFFFD: ""}


def bert_split() -> tuple[Step, ...]:
    """Returns the steps that split text at white space and around punctuation."""
    return split_characters(SPACE, Behavior.REMOVED), split_characters(PUNCTUATION, Behavior.ISOLATED)


def behavior_of(name: object) -> Behavior:
    """Return the behavior of a split by its name in `tokenizer.json`.

    Raises:
        CompileError: the name is unknown.
    """
    for behavior in Behavior:
        if behavior.value == name:
            return behavior
    raise CompileError(f"the tokenizer splits text in an unknown way, {name!r}")
