r"""Compiles the regular expressions at which tokenizers split text to automata over classes of characters.

Characters that no pattern distinguishes form one class. Automata over classes have some tens of states; automata over
the bytes of UTF-8 would have hundreds of states for a pattern with `\p{L}`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from nnefc.operators.base import Array
from nnefc.operators.text.regex import automaton_of_tree
from nnefc.operators.text.regex_syntax import Alternation, Concatenation, Letters, Repeat, Tree, parsed
from nnefc.support.diagnostics import CompileError
from nnefc.tokenizer.vocabulary import Pattern

__all__ = ["SPACE", "SPACE_CHARACTERS", "WORD_CHARACTERS", "CharacterClasses", "literal_pattern", "pattern_of_regex"]

SPACE_CHARACTERS = tuple(
    chr(number)
    for number in (
        *range(0x9, 0xE),
        0x20,
        0x85,
        0xA0,
        0x1680,
        *range(0x2000, 0x200B),
        0x2028,
        0x2029,
        0x202F,
        0x205F,
        0x3000,
    )
)
r"""The white space of Unicode; RE2's `\s` has that of ASCII only."""

SPACE = "".join(f"\\x{{{ord(c):x}}}" for c in SPACE_CHARACTERS)
"""The same characters, as members of a character set."""

_LETTERS = r"\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189}"
WORD_CHARACTERS = _LETTERS + r"\x{200C}\x{200D}"
r"""The characters of `\w` in Rust's expressions, as members of a set: https://docs.rs/regex/latest/regex/#unicode."""
_WORD = _LETTERS + r"\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}"
r"""The characters of `\w` in Oniguruma's expressions, outside of a set; within a set they are `_LETTERS`."""
_MAX_REGEX = 1 << 14
_MAX_CLASSES = 128
"""Maximum number of classes: automata encode each class as one byte of ASCII."""

_BLOCK = 128
_CODE_POINTS = 0x110000


def literal_pattern(text: str) -> Pattern:
    """Return the pattern that matches a text."""
    return (("".join(f"\\x{{{ord(c):x}}}" for c in text), None),)


def pattern_of_regex(regex: str) -> Pattern:
    r"""Translate a regular expression of a tokenizer (in the syntax of Oniguruma or PCRE) to a pattern.

    Supported are the constructs that tokenizers use: alternatives, each of which may end with `(?!X)` or `$`; sets,
    `\p{…}`, `\s`, `\d` and `\w` of Unicode, `(?i:…)`, and repetition. Possessive repetition is translated to greedy
    repetition: in tokenizers, the repeated characters never follow it.

    Raises:
        CompileError: the expression has another construct, such as a lookbehind.
    """
    if len(regex) > _MAX_REGEX:
        raise CompileError(f"a pattern of {len(regex):,} characters is not supported: {_MAX_REGEX:,} at most are")
    found = []
    for alternative in _alternatives(_unwrapped(regex)):
        unless: str | None = None
        if alternative.endswith("$") and not alternative.endswith(r"\$"):
            alternative, unless = alternative[:-1], r"[^\n]"
        ahead = re.fullmatch(r"(?P<own>.+)\(\?!(?P<other>[^()]+)\)", alternative, flags=re.DOTALL)
        if ahead is not None:
            alternative, unless = ahead["own"], ahead["other"]
        if re.search(r"\(\?(=|!|<|>|#|\()", alternative):
            raise CompileError(
                f"the pattern {regex[:80]!r} of the tokenizer is not supported: it looks ahead or behind within "
                f"{alternative[:40]!r}"
            )
        found.append((_in_unicode(alternative), None if unless is None else _in_unicode(unless)))
    return tuple(found)


def _unwrapped(regex: str) -> str:
    """Return an expression without a group around all of it."""
    own = re.fullmatch(r"\((?:\?:)?(?P<inner>.*)\)", regex, flags=re.DOTALL)
    inside = (own is not None and own["inner"]) or regex
    depth_is_kept = own is not None and all(depth >= 0 for _, depth in _depths(inside))
    return inside if depth_is_kept else regex


def _depths(regex: str) -> Iterator[tuple[int, int]]:
    """Yield the positions outside of sets, each with the number of groups that are open there."""
    depth, position, is_set = 0, 0, False
    while position < len(regex):
        c = regex[position]
        if c == "\\":
            position += 2
            continue
        if is_set:
            is_set = c != "]"
        elif c == "[":
            is_set = True
            if regex[position + 1 : position + 2] == "]" or regex[position + 1 : position + 3] == "^]":
                position += 1 + regex[position + 1 : position + 2].count("^")
        else:
            depth += (c == "(") - (c == ")")
            yield position, depth
        position += 1


def _alternatives(regex: str) -> list[str]:
    """Split an expression at each `|` outside of groups and sets."""
    bars = [position for position, depth in _depths(regex) if depth == 0 and regex[position] == "|"]
    begins = [0, *(bar + 1 for bar in bars)]
    return [regex[begin:end] for begin, end in zip(begins, [*bars, len(regex)], strict=True)]


_TOKEN = re.compile(
    r"\\[pPx]\{[^}]*\}|\\u[0-9A-Fa-f]{4}|\\.|\{\d+,?\d*\}|\(\?[a-z-]*[:)]|&&|.", flags=re.DOTALL | re.ASCII
)
"""What an expression consists of: an escaped character or set, a repetition, the beginning of a group, a character."""


def _in_unicode(regex: str) -> str:
    r"""Return an expression with `\s`, `\d` and `\w` written as Unicode sets, and possessive repetition as greedy.

    Raises:
        CompileError: the expression has a construct that RE2 does not have, or interprets otherwise.
    """

    def refused(reason: str) -> CompileError:
        return CompileError(f"the pattern {regex[:80]!r} of the tokenizer is not supported: {reason}")

    sets = {r"\s": SPACE, r"\d": r"\p{Nd}", r"\w": _WORD}
    made, before, is_set = list[str](), "", False
    for token in _TOKEN.findall(regex):
        inner = sets.get(token.lower())
        is_repetition = not is_set and (token in ("*", "+", "?") or (token[0] == "{" and len(token) > 1))
        if inner is not None:
            negated = token[1].isupper()
            if negated and is_set:
                raise refused(f"{token} is in a set")
            inner = _LETTERS if is_set and inner == _WORD else inner
            token = inner if is_set else f"[{'^' * negated}{inner}]"
        elif token.startswith(r"\u"):
            token = f"\\x{{{token[2:]}}}"
        elif is_set:
            if token in ("[", "&&"):
                raise refused("it has a set within a set")
            is_set = token != "]"
        elif token.startswith("(?") and not (token.endswith(":") and set(token[2:-1]) <= set("i-")):
            raise refused(f"it has {token}")
        elif is_repetition and before == "repetition" and token == "?":
            raise refused("it asks for the shortest match")
        elif is_repetition and before == "repetition" and token == "+" and made[-1] in ("*", "+", "?"):
            token = ""
        else:
            is_set = token == "["
        made.append(token)
        before = "repetition" if is_repetition else ""
    return "".join(made)


class CharacterClasses:
    """The classes of characters that some patterns distinguish.

    Attributes:
        table: the class of each character, the bytes of `nnefc_classes` in the runtime.
    """

    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._trees = {
            regex: parsed(regex) for pattern in patterns for pair in pattern for regex in pair if regex is not None
        }
        sets = sorted({letters.ranges for tree in self._trees.values() for letters in _letters(tree)})
        bounds = sorted(
            {0, *(bound for ranges in sets for low, high in ranges for bound in (low, high + 1))} - {_CODE_POINTS}
        )
        self._bounds = np.array(bounds)
        is_member = np.zeros((len(bounds), len(sets)), bool)
        for column, ranges in enumerate(sets):
            for low, high in ranges:
                begin, end = np.searchsorted(self._bounds, [low, high + 1])
                is_member[begin:end, column] = True
        _, firsts, own = np.unique(is_member, axis=0, return_index=True, return_inverse=True)
        if len(firsts) > _MAX_CLASSES:
            raise CompileError(
                f"the patterns of the tokenizer distinguish {len(firsts)} classes of characters, not {_MAX_CLASSES}"
            )
        self._members = {ranges: np.flatnonzero(is_member[firsts, column]) for column, ranges in enumerate(sets)}
        self.table = _two_stages(self._bounds, own.reshape(-1))

    def automaton(self, regex: str) -> Array:
        """Return the automaton of one of the expressions, uint8; `text/automaton.h` in the runtime declares the
        format.
        """
        return automaton_of_tree(self._over_classes(self._trees[regex]), regex)

    def _over_classes(self, tree: Tree) -> Tree:
        match tree:
            case Letters(ranges, False):
                return Letters(tuple((int(number), int(number)) for number in self._members[ranges]))
            case Concatenation(parts):
                return Concatenation(tuple(map(self._over_classes, parts)))
            case Alternation(parts):
                return Alternation(tuple(map(self._over_classes, parts)))
            case Repeat(part, minimum, maximum):
                return Repeat(self._over_classes(part), minimum, maximum)
        raise CompileError("the patterns of a tokenizer with ^, $ or \\b within are not supported")


def _letters(tree: Tree) -> Iterator[Letters]:
    match tree:
        case Letters():
            yield tree
        case Concatenation(parts) | Alternation(parts):
            for part in parts:
                yield from _letters(part)
        case Repeat(part, _, _):
            yield from _letters(part)


def _two_stages(bounds: Array, classes: Array) -> bytes:
    """Return the class of each code point as a two-stage table: the block of each 128 code points, and the distinct
    blocks.
    """
    lengths = np.diff([*bounds, _CODE_POINTS])
    content = np.repeat(classes.astype(np.uint8), lengths).tobytes()
    rows = [content[begin : begin + _BLOCK] for begin in range(0, len(content), _BLOCK)]
    blocks = sorted(set(rows))
    number_of = {block: number for number, block in enumerate(blocks)}
    return np.array([number_of[row] for row in rows], "<u2").tobytes() + b"".join(blocks)
