"""Splits text into tokens (section 3.1 of the standard), and detects the dialect of a document."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from nnefc.frontends.nnef.language.syntax import Source
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.support.diagnostics import CompileError

__all__ = ["ALL_KEYWORDS", "KEYWORDS", "MAX_NESTING", "Token", "detect_dialect", "end_statements", "tokenize"]


@dataclass(slots=True, eq=False)
class Token:
    """A token: `type` is the terminal of the grammar (or IDENTIFIER, NUMBER, STRING, OF), `at` its offset."""

    type: str
    text: str
    at: int


_SHARED_KEYWORDS = (
    *("graph", "fragment", "tensor", "scalar", "logical", "string", "true", "false"),
    *("shape_of", "length_of", "range_of", "for", "in", "if", "else"),
)
KEYWORDS: dict[Dialect, dict[str, str]] = {
    Dialect.PROVISIONAL: {word: word for word in _SHARED_KEYWORDS} | {"extent": "integer"},
    Dialect.FINAL: {word: word for word in (*_SHARED_KEYWORDS, "integer", "yield", "version", "extension")},
}
"""The dialect's keywords, each with the grammar's word for it."""

ALL_KEYWORDS: dict[str, str] = KEYWORDS[Dialect.PROVISIONAL] | KEYWORDS[Dialect.FINAL]

_TOKEN = re.compile(
    r"""(?P<space>(?:[\ \t\r\n\f\v]+|\#[^\r\n]*)+)
      |(?P<tract>extension[\ \t\r\n]+tract_[^;]*)
      |(?P<quoted>i"[^"\r\n]*")
      |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
      |(?P<number>[0-9]+(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?)
      |(?P<string>'[^']*'|"[^"]*")
      |(?P<sign>->|<=|>=|==|!=|&&|\|\||[-+*/^<>!()\[\]{}:=,;?])""",
    re.VERBOSE,
)

_ESCAPING = re.compile(
    _TOKEN.pattern.replace("""'[^']*'|"[^"]*\"""", r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\""""), re.VERBOSE | re.DOTALL
)
"""The same where a backslash in a string takes its meaning from the next character."""
_TRACTS = re.compile(r"extension\s+tract_|tract_core_properties")
"""Marks of documents in tract's dialect, whose strings have escapes; the standard has none."""

_OPENING = {"(": ")", "[": "]", "{": "}"}
_CLOSING = frozenset(_OPENING.values())
MAX_NESTING = 256
_MAX_TOKENS = 4_000_000


def tokenize(source: Source) -> list[Token]:
    """The tokens with their raw types: "name", "number", "string", "sign". The name `i"a.b"` is `a.b`.

    Raises:
        CompileError: a character or a string that is no token, or brackets nested without end.
    """
    text = source.text
    tokens: list[Token] = []
    position = depth = 0
    for match in (_ESCAPING if _TRACTS.search(text) else _TOKEN).finditer(text):
        if match.start() != position:
            break
        kind = match.lastgroup or ""
        if kind != "space":
            word = match.group()
            if len(tokens) == _MAX_TOKENS:
                message = f"the document is longer than {_MAX_TOKENS} words and signs"
                raise CompileError(message, location=source.location(position))
            tokens += _tokens(kind, word, position)
            if word in _OPENING:
                depth += 1
                if depth > MAX_NESTING:
                    raise CompileError(
                        f"brackets are nested more than {MAX_NESTING} deep", location=source.location(position)
                    )
            elif word in _CLOSING:
                depth -= 1
        position = match.end()
    if position != len(text):
        raise _no_token(source, position)
    return tokens


def _tokens(kind: str, word: str, at: int) -> list[Token]:
    """The tokens of one match: an extension of tract's has a name and a free text."""
    match kind:
        case "tract":
            name = word.index("tract_", len("extension"))
            text = name + len(word[name:].split(None, 1)[0])
            tokens = [Token("name", "extension", at), Token("name", word[name:text], at + name)]
            return [*tokens, Token("string", word[text:].strip(), at + text)] if word[text:].strip() else tokens
        case "quoted":
            return [Token("name", word[2:-1], at)]
        case _:
            return [Token(kind, word, at)]


def _no_token(source: Source, position: int) -> CompileError:
    location = source.location(position)
    match source.text[position]:
        case "'" | '"' as quote:
            return CompileError(f"the string is not closed: no second {quote} follows", location=location)
        case "&" | "|" as sign:
            return CompileError(f"unexpected character '{sign}'", location=location, hint=f"Write '{sign * 2}'.")
        case "." if source.text[position + 1 : position + 2].isdigit():
            return CompileError("a number starts with a digit", location=location, hint="Write a 0 before the point.")
        case character:
            return CompileError(f"unexpected character {character!a}", location=location)


_PROVISIONAL_NAMES = frozenset(
    (
        *("planewise_conv", "planewise_deconv", "layer_normalization", "divisive_normalization"),
        *("binary_quantize", "ternary_quantize", "linear_layer", "conv_layer", "deconv_layer"),
        *("max_pool_layer", "avg_pool_layer", "batch_normalization_layer"),
    )
)
_PROVISIONAL_PARAMETERS = frozenset(("trA", "trB", "perm"))


def detect_dialect(tokens: Sequence[Token]) -> Dialect:
    """The dialect that the text shows: by its own words first, then by its semicolons, then by the operations it calls.

    A text that fits both (a flat one with all its semicolons) is in the final dialect.
    """
    words = [token.text if token.type != "string" else "''" for token in tokens]
    words += [""] * 3
    provisional = False
    for i, word in enumerate(words[:-3]):
        before, after = words[i - 1], words[i + 1]
        as_type = before in (":", "<") or after == "(" or (before == "(" and words[i - 2] == ":")
        match word:
            case "extension" if before == ";" or i == 2:
                return Dialect.FINAL
            case "yield" if after not in ("=", ",", ")", ";"):
                return Dialect.FINAL
            case "integer" if as_type:
                return Dialect.FINAL
            case "<" if after == "?" or (before == "tensor" and after in ("scalar", ">")):
                return Dialect.FINAL
            case "extent" if as_type:
                provisional = True
            case "tensor" if after != "<":
                provisional = True
    if provisional or _lacks_semicolons(words):
        return Dialect.PROVISIONAL
    called = any(
        (word in _PROVISIONAL_NAMES and words[i + 1] == "(" and words[i - 1] != "fragment")
        or (word in _PROVISIONAL_PARAMETERS and words[i + 1] == "=" and words[i - 1] in ",(")
        for i, word in enumerate(words[:-3])
    )
    return Dialect.PROVISIONAL if called else Dialect.FINAL


def _lacks_semicolons(words: Sequence[str]) -> bool:
    """Returns whether the version has no semicolon, or no statement has one."""
    if words[0] == "version" and words[2] != ";":
        return True
    return "{" in words and ";" not in words[words.index("{") :]


def end_statements(tokens: Sequence[Token]) -> Iterator[Token]:
    """The tokens of a provisional document with every `;` that was left out put back.

    A statement begins at the targets before an `=` outside all brackets; it ends where the next one begins or the body
    does. The version, and a declaration without a body, end where something else begins.
    """
    starts = _statement_starts(tokens)
    previous = Token("sign", "", 0)
    braces = 0
    for i, token in enumerate(tokens):
        word = "" if token.type == "string" else token.text
        if word == "}":
            braces -= 1
        if braces == 0:
            ends = (word in ("fragment", "graph") and i > 0) or (i == 2 and tokens[0].text == "version")
        else:
            ends = i in starts
        ends = ends or (word == "}" and previous.text != "{")
        if ends and word != ";" and previous.text not in (";", "{", "}"):
            yield Token("sign", ";", previous.at + len(previous.text))
        if word == "{":
            braces += 1
        yield token
        previous = token if token.type != "string" else Token("string", "''", token.at + len(token.text) - 2)
    if tokens and previous.text not in (";", "}"):
        yield Token("sign", ";", previous.at + len(previous.text))


def _statement_starts(tokens: Sequence[Token]) -> set[int]:
    """The indices of the first tokens of all assignments."""
    starts: set[int] = set()
    opened: list[int] = []
    opening: dict[int, int] = {}
    for i, token in enumerate(tokens):
        if token.type != "sign":
            continue
        if token.text in _OPENING:
            opened.append(i)
        elif token.text in _CLOSING and opened:
            opening[i] = opened.pop()
        elif token.text == "=" and opened and tokens[opened[-1]].text == "{":
            starts.add(_targets_start(tokens, opening, i))
    return starts


def _targets_start(tokens: Sequence[Token], opening: dict[int, int], assign: int) -> int:
    """Return the index of the first target before the `=` at `assign`: identifiers or brackets, between commas."""
    start = assign
    while True:
        element = start - 1
        if element in opening:
            start = opening[element]
        elif element >= 0 and tokens[element].type == "name":
            start = element
        else:
            return start
        if start == 0 or tokens[start - 1].type != "sign" or tokens[start - 1].text != ",":
            return start
        start -= 1
