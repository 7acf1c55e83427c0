"""Parses regular expressions in RE2 syntax: https://github.com/google/re2/wiki/Syntax.

Greediness, as of `*?`, has no effect, since whole strings are matched. Unicode scripts are rejected.
"""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache
from itertools import groupby
from typing import TypeAlias

from nnefc.support.diagnostics import CompileError

__all__ = [
    "ANY_BYTE",
    "WORD",
    "Alternation",
    "Anchor",
    "Concatenation",
    "Letters",
    "Neighbor",
    "Repeat",
    "Tree",
    "parsed",
]

Range: TypeAlias = tuple[int, int]
"""Code points from the first to the last."""

_LAST = 0x10FFFF
_MAX_REPEATS = 1000
_MAX_NESTED = 200


@dataclass(frozen=True)
class Letters:
    """A character of a set, given as disjoint ranges in ascending order; or any single byte (`ANY_BYTE`)."""

    ranges: tuple[Range, ...]
    is_byte: bool = False


ANY_BYTE = Letters(((0, 255),), is_byte=True)


@dataclass(frozen=True)
class Concatenation:
    """A sequence of patterns."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class Alternation:
    """A choice of patterns."""

    parts: tuple[Tree, ...]


@dataclass(frozen=True)
class Repeat:
    """Repetitions of `part`, `minimum` to `maximum` times; None: without a maximum."""

    part: Tree
    minimum: int
    maximum: int | None


class Neighbor(Enum):
    """The neighbour on one side of a position in a text: its beginning or end, or a byte of one of three kinds."""

    EDGE = 0
    WORD = 1
    NEWLINE = 2
    OTHER = 3


class Anchor(Enum):
    """Nothing, at positions that follow from the characters on both sides."""

    BEGIN = "the beginning of the text"
    END = "the end of the text"
    LINE_BEGIN = "the beginning of a line"
    LINE_END = "the end of a line"
    BOUNDARY = "the beginning or the end of a word"
    NO_BOUNDARY = "another position"

    def holds(self, before: Neighbor, after: Neighbor) -> bool:
        """Returns whether a position is one of these."""
        match self:
            case Anchor.BEGIN:
                return before is Neighbor.EDGE
            case Anchor.END:
                return after is Neighbor.EDGE
            case Anchor.LINE_BEGIN:
                return before in (Neighbor.EDGE, Neighbor.NEWLINE)
            case Anchor.LINE_END:
                return after in (Neighbor.EDGE, Neighbor.NEWLINE)
        return ((before is Neighbor.WORD) is not (after is Neighbor.WORD)) is (self is Anchor.BOUNDARY)


Tree: TypeAlias = "Letters | Concatenation | Alternation | Repeat | Anchor"


@dataclass(frozen=True)
class _Flags:
    ignore_case: bool = False
    dot_is_all: bool = False
    lines: bool = False


def parsed(pattern: str) -> Tree:
    """The tree of a pattern.

    Raises:
        CompileError: it is no regular expression, or has what is not supported.
    """
    parser = _Parser(re.sub(_QUOTED, _unquoted, pattern, flags=re.DOTALL))
    tree = parser.choice(_Flags())
    if parser.position < len(parser.pattern):
        raise parser.wrong("there is a ')' without a '('")
    return tree


_QUOTED = r"\\(?:Q(?P<text>.*?)(?:\\E|$)|.)"
"""A character behind a backslash, or the text between `\\Q` and `\\E`."""


def _unquoted(found: re.Match[str]) -> str:
    """Inserts a backslash before each character that needs one."""
    text = found["text"]
    return found[0] if text is None else "".join(f"\\{c}" if c in "\\.+*?()|[]{}^$" else c for c in text)


_DIGITS: tuple[Range, ...] = ((0x30, 0x39),)
WORD: tuple[Range, ...] = ((0x30, 0x39), (0x41, 0x5A), (0x5F, 0x5F), (0x61, 0x7A))
_SPACES: tuple[Range, ...] = ((0x09, 0x0A), (0x0C, 0x0D), (0x20, 0x20))
_PERL = {"d": _DIGITS, "w": WORD, "s": _SPACES}
_POSIX: dict[str, tuple[Range, ...]] = {
    "alnum": ((0x30, 0x39), (0x41, 0x5A), (0x61, 0x7A)),
    "alpha": ((0x41, 0x5A), (0x61, 0x7A)),
    "ascii": ((0x00, 0x7F),),
    "blank": ((0x09, 0x09), (0x20, 0x20)),
    "cntrl": ((0x00, 0x1F), (0x7F, 0x7F)),
    "digit": _DIGITS,
    "graph": ((0x21, 0x7E),),
    "lower": ((0x61, 0x7A),),
    "print": ((0x20, 0x7E),),
    "punct": ((0x21, 0x2F), (0x3A, 0x40), (0x5B, 0x60), (0x7B, 0x7E)),
    "space": ((0x09, 0x0D), (0x20, 0x20)),
    "upper": ((0x41, 0x5A),),
    "word": WORD,
    "xdigit": ((0x30, 0x39), (0x41, 0x46), (0x61, 0x66)),
}
_ESCAPED: dict[str, Tree] = {
    "A": Anchor.BEGIN,
    "z": Anchor.END,
    "b": Anchor.BOUNDARY,
    "B": Anchor.NO_BOUNDARY,
    "C": ANY_BYTE,
}
_CONTROLS = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}


class _Parser:
    def __init__(self, pattern: str) -> None:
        self.pattern = pattern
        self.position = 0
        self._depth = 0

    def wrong(self, reason: str) -> CompileError:
        return CompileError(f"the pattern {self.pattern[:80]!r} cannot be compiled: {reason}")

    def _next(self, text: str) -> bool:
        """Returns whether the pattern goes on with a text, which is taken then."""
        found = self.pattern.startswith(text, self.position)
        self.position += len(text) if found else 0
        return found

    def _take(self) -> str:
        if self.position >= len(self.pattern):
            raise self.wrong("it ends too early")
        self.position += 1
        return self.pattern[self.position - 1]

    def choice(self, flags: _Flags) -> Tree:
        """Parses alternatives between `|`, up to a `)` or the end."""
        self._depth += 1
        if self._depth > _MAX_NESTED:
            raise self.wrong(f"groups are nested more than {_MAX_NESTED} times")
        parts: list[Tree] = []
        branch: list[Tree] = []
        while self.position < len(self.pattern) and self.pattern[self.position] != ")":
            if self._next("|"):
                parts.append(Concatenation(tuple(branch)))
                branch = []
            elif self._next("(?P<") or self._next("(?<"):
                self._name()
                branch.append(self._repeated(self._group(flags)))
            elif self._next("(?"):
                flags, inner = self._flags(flags)
                if inner is not None:
                    branch.append(self._repeated(inner))
            else:
                branch.append(self._repeated(self._one(flags)))
        self._depth -= 1
        parts.append(Concatenation(tuple(branch)))
        return parts[0] if len(parts) == 1 else Alternation(tuple(parts))

    def _flags(self, flags: _Flags) -> tuple[_Flags, Tree | None]:
        """`(?i)` changes flags for what follows; `(?i:…)` is a group that has them for itself."""
        own, value = flags, True
        while True:
            match self._take():
                case "i":
                    own = replace(own, ignore_case=value)
                case "s":
                    own = replace(own, dot_is_all=value)
                case "m":
                    own = replace(own, lines=value)
                case "U":
                    pass
                case "-" if value:
                    value = False
                case ")":
                    return own, None
                case ":":
                    return flags, self._group(own)
                case other:
                    raise self.wrong(f"'(?{other}' is no group of RE2's")

    def _group(self, flags: _Flags) -> Tree:
        tree = self.choice(flags)
        if not self._next(")"):
            raise self.wrong("a ')' is missing")
        return tree

    def _one(self, flags: _Flags) -> Tree:
        """Parses one operand of a repetition."""
        character = self._take()
        match character:
            case "(":
                return self._group(flags)
            case "[":
                return self._class(flags)
            case ".":
                return Letters(((0, _LAST),) if flags.dot_is_all else ((0, 9), (11, _LAST)))
            case "^" | "$":
                begin, end = (Anchor.LINE_BEGIN, Anchor.LINE_END) if flags.lines else (Anchor.BEGIN, Anchor.END)
                return begin if character == "^" else end
            case "*" | "+" | "?":
                raise self.wrong(f"there is nothing to repeat before '{character}'")
            case "\\":
                return self._escaped(flags)
        return _letters([(ord(character), ord(character))], flags)

    def _name(self) -> None:
        """`name>` of a group."""
        end = self.pattern.find(">", self.position)
        if end < 0 or not self.pattern[self.position : end].isidentifier():
            raise self.wrong("the name of a group is missing")
        self.position = end + 1

    def _repeated(self, part: Tree) -> Tree:
        for sign, minimum, maximum in (("*", 0, None), ("+", 1, None), ("?", 0, 1)):
            if self._next(sign):
                return self._once(Repeat(part, minimum, maximum))
        start = self.position
        if self._next("{"):
            inside, end, _ = self.pattern[self.position :].partition("}")
            min_text, comma, max_text = inside.partition(",")
            if end and min_text.isdecimal() and min_text.isascii() and (not max_text or max_text.isdecimal()):
                self.position += len(inside) + 1
                minimum = int(min_text)
                maximum = int(max_text) if max_text else None if comma else minimum
                if max(minimum, maximum or 0) > _MAX_REPEATS or (maximum is not None and maximum < minimum):
                    raise self.wrong(f"it repeats {{{inside}}} times; up to {_MAX_REPEATS} are possible")
                return self._once(Repeat(part, minimum, maximum))
            self.position = start
        return part

    def _once(self, repeat: Repeat) -> Tree:
        """Skip a `?`, which asks for the shortest match, and return the repetition; refuse a second repetition."""
        self._next("?")
        if self.pattern.startswith(("*", "+", "?"), self.position):
            raise self.wrong("two repetitions follow each other")
        return repeat

    def _escaped(self, flags: _Flags) -> Tree:
        for name, tree in _ESCAPED.items():
            if self._next(name):
                return tree
        ranges = self._set()
        if ranges is not None:
            return _letters(ranges, flags)
        number = self._character()
        return _letters([(number, number)], flags)

    def _set(self) -> list[Range] | None:
        r"""`\d`, `\PL`, `\p{Lu}` and such; what begins it is taken."""
        name = self.pattern[self.position : self.position + 1]
        if name.lower() in _PERL and name:
            self.position += 1
            found = list(_PERL[name.lower()])
            return found if name.islower() else _others(found)
        if name in ("p", "P"):
            self.position += 1
            is_other = name == "P"
            if self._next("{"):
                inside, end, _ = self.pattern[self.position :].partition("}")
                self.position += len(inside) + len(end)
                is_other ^= inside.startswith("^")
                inside = inside.removeprefix("^")
            else:
                inside = self._take()
            found = [(0, _LAST)] if inside == "Any" else list(_category(inside))
            if not found:
                raise self.wrong(f"{inside!r} is no category of Unicode's; scripts are not supported")
            return _others(found) if is_other else found
        return None

    def _character(self) -> int:
        r"""The code point of what stands behind a `\`."""
        character = self._take()
        if character == "x":
            digits = self._take()
            if digits == "{":
                digits, _, _ = self.pattern[self.position :].partition("}")
                self.position += len(digits) + 1
            else:
                digits += self._take()
            try:
                number = int(digits, 16)
            except ValueError:
                number = _LAST + 1
            if number > _LAST or not digits.isalnum():
                raise self.wrong(f"'\\x{digits}' is no character")
            return number
        if character in "01234567":
            digits = character
            while len(digits) < 3 and self.pattern[self.position : self.position + 1] in tuple("01234567"):
                digits += self._take()
            if character != "0" and len(digits) < 2:
                raise self.wrong("references to groups are not regular")
            return int(digits, 8)
        if character in _CONTROLS:
            return _CONTROLS[character]
        if character.isascii() and character.isalnum():
            raise self.wrong(f"'\\{character}' has no meaning")
        return ord(character)

    def _class(self, flags: _Flags) -> Tree:
        """`[a-z]`; the `[` is taken."""
        is_other, ranges = self._next("^"), list[Range]()
        first = True
        while first or not self._next("]"):
            first = False
            if self._next("[:"):
                name, end, _ = self.pattern[self.position :].partition(":]")
                self.position += len(name) + 2
                found = _POSIX.get(name.removeprefix("^"))
                if not end or found is None:
                    raise self.wrong(f"'[:{name}:]' is no class")
                ranges += _others(list(found)) if name.startswith("^") else found
                continue
            if self._next("\\"):
                members = self._set()
                if members is not None:
                    ranges += members
                    continue
                low = self._character()
            else:
                low = ord(self._take())
            ranges.append((low, self._upper(low)))
        folded = _folded(ranges) if flags.ignore_case else ranges
        return Letters(tuple(_others(folded) if is_other else _joined(folded)))

    def _upper(self, low: int) -> int:
        """The last character of a range that begins with this one."""
        tail = self.pattern[self.position : self.position + 2]
        if len(tail) < 2 or tail[0] != "-" or tail[1] == "]":
            return low
        self.position += 1
        high = self._character() if self._next("\\") else ord(self._take())
        if high < low:
            raise self.wrong(f"the range from {chr(low)!r} to {chr(high)!r} is empty")
        return high


def _letters(ranges: list[Range], flags: _Flags) -> Letters:
    return Letters(tuple(_joined(_folded(ranges) if flags.ignore_case else ranges)))


def _joined(ranges: list[Range]) -> list[Range]:
    """Merges character ranges, in ascending order."""
    made: list[Range] = []
    for low, high in sorted(ranges):
        if made and low <= made[-1][1] + 1:
            made[-1] = made[-1][0], max(made[-1][1], high)
        else:
            made.append((low, high))
    return made


def _others(ranges: list[Range]) -> list[Range]:
    """All other characters."""
    made, start = [], 0
    for low, high in _joined(ranges):
        if start < low:
            made.append((start, low - 1))
        start = high + 1
    return [*made, (start, _LAST)] if start <= _LAST else made


@cache
def _category(name: str) -> tuple[Range, ...]:
    if not 1 <= len(name) <= 2 or not name.isascii():
        return ()
    return tuple(
        _joined([run for category, runs in _categories().items() if category.startswith(name) for run in runs])
    )


@cache
def _categories() -> dict[str, list[Range]]:
    """The characters of each category of Unicode."""
    found: dict[str, list[Range]] = {}
    number = 0
    for category, group in groupby(map(unicodedata.category, map(chr, range(_LAST + 1)))):
        count = sum(1 for _ in group)
        found.setdefault(category, []).append((number, number + count - 1))
        number += count
    return found


@cache
def _alike() -> dict[int, tuple[int, ...]]:
    """Return, for each character with variants that differ only in case, all variants."""
    groups: dict[str, list[int]] = {}
    for number in (*range(0xD800), *range(0xE000, 0x20000)):
        character = chr(number)
        folded = character.casefold()
        groups.setdefault(folded if len(folded) == 1 else character.lower(), []).append(number)
    return {number: tuple(group) for group in groups.values() if len(group) > 1 for number in group}


def _folded(ranges: list[Range]) -> list[Range]:
    """Return the ranges together with all variants of case of their characters."""
    more = [
        (other, other)
        for number, group in _alike().items()
        if any(low <= number <= high for low, high in ranges)
        for other in group
    ]
    return [*ranges, *more]
