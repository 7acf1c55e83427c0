"""A template's text in pieces.

graph g({{ n }}) {#- a comment -#}        text, an expression, text
{% for x in xs -%}                        a statement; the dash takes the blanks beside it away
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NoReturn

from nnefc.diagnostics import CompileError, Location

__all__ = ["Piece", "Template", "Token", "is_template"]

_MARK = re.compile(r"\{[{%#]")
_USED = re.compile(r"^[^#\n]*\{[{%]", re.MULTILINE)
_RAW = re.compile(r"\{%[-+]?\s*raw\s*(-?)\+?%\}")
_END_RAW = re.compile(r"\{%(-?)\+?\s*endraw\s*(-?)\+?%\}")
_ENDS = {"{{": "}}", "{%": "%}"}
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<number>0[xX][0-9a-fA-F_]+|0[oO][0-7_]+|0[bB][01_]+|\d[\d_]*(?:\.\d[\d_]*)?(?:[eE][+-]?\d+)?)
    |(?P<string>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<name>[^\W\d]\w*)
    |(?P<sign>\*\*|//|==|!=|<=|>=|[-+*/%~<>=|.,:()\[\]{}])
    )""",
    re.VERBOSE | re.DOTALL,
)


def is_template(text: str) -> bool:
    """Whether a document has what no document of NNEF has outside comments: `{{` or `{%`."""
    return _USED.search(text) is not None


@dataclass(frozen=True)
class Token:
    """A word of an expression or a statement: its kind, its text, where it begins; `end` follows the last one."""

    kind: str
    text: str
    at: int


@dataclass(frozen=True)
class Piece:
    """A piece of a template: text as it is, or the words of an expression (`{{`) or of a statement (`{%`)."""

    kind: str
    at: int
    text: str = ""
    tokens: tuple[Token, ...] = ()


@dataclass(frozen=True)
class Template:
    """The text of a file that is a template."""

    text: str
    file: str

    def fail(self, message: str, at: int, hint: str | None = None) -> NoReturn:
        """Refuse the template for what stands at a place."""
        line = self.text.count("\n", 0, at) + 1
        begin = self.text.rfind("\n", 0, at) + 1
        end = self.text.find("\n", begin)
        shown = self.text[begin : len(self.text) if end < 0 else end]
        raise CompileError(message, location=Location(self.file, line, at - begin + 1, shown), hint=hint)

    def pieces(self) -> Iterator[Piece]:
        """All pieces, in order; comments are left out, and blanks beside dashes."""
        place, strips = 0, False
        text = self.text.removesuffix("\n")
        while place < len(text):
            mark = _MARK.search(text, place)
            end = len(text) if mark is None else mark.start()
            plain = text[place:end].lstrip() if strips else text[place:end]
            if mark is not None and text.startswith("-", mark.end()):
                plain = plain.rstrip()
            if plain:
                yield Piece("text", place, plain)
            if mark is None:
                return
            strips = False
            if mark.group() == "{#":
                place = text.find("#}", mark.end())
                if place < 0:
                    self.fail("the comment has no end", mark.start())
                strips, place = text[place - 1] == "-" and place > mark.end(), place + 2
                continue
            raw = _RAW.match(text, mark.start())
            if raw is not None:
                piece, strips, place = self._raw(raw)
                yield piece
                continue
            tokens, strips, place = self._tokens(mark.start())
            yield Piece(mark.group(), mark.start(), tokens=tokens)

    def _raw(self, begin: re.Match[str]) -> tuple[Piece, bool, int]:
        end = _END_RAW.search(self.text, begin.end())
        if end is None:
            self.fail("'raw' has no 'endraw'", begin.start())
        plain = self.text[begin.end() : end.start()]
        plain = plain.lstrip() if begin[1] else plain
        return Piece("text", begin.end(), plain.rstrip() if end[1] else plain), bool(end[2]), end.end()

    def _tokens(self, start: int) -> tuple[tuple[Token, ...], bool, int]:
        """The words up to the end of an expression or statement, whether that has a dash, and where it is."""
        closing, place = _ENDS[self.text[start : start + 2]], start + 2
        if self.text[place : place + 1] in ("-", "+"):
            place += 1
        tokens: list[Token] = []
        depth = 0  # of braces, which a map has
        while True:
            blank = re.compile(r"\s*").match(self.text, place)
            place = blank.end() if blank else place
            for sign in ("-", "+", ""):
                if self.text.startswith(sign + closing, place) and not (depth and closing == "}}"):
                    tokens.append(Token("end", "", place))
                    return tuple(tokens), sign == "-", place + len(sign) + 2
            found = _TOKEN.match(self.text, place)
            if found is None or found.lastgroup is None:
                what = "has no end" if place >= len(self.text) else f"has an unknown sign {self.text[place]!r}"
                self.fail(f"'{self.text[start : start + 2]}' {what}", min(place, len(self.text) - 1))
            tokens.append(Token(found.lastgroup, found[found.lastgroup], found.start(found.lastgroup)))
            depth += (tokens[-1].text == "{") - (tokens[-1].text == "}")
            place = found.end()
