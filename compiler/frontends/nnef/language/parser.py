"""Parses text to a syntax tree: both dialects, one grammar (`grammar.lark`, with its tables in `grammar.json`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.lexer import ALL_KEYWORDS, KEYWORDS, Token, detect_dialect, end_statements, tokenize
from nnefc.frontends.nnef.language.signatures import Signature, signature_of
from nnefc.frontends.nnef.language.syntax import Source
from nnefc.frontends.nnef.language.tables import END, Recognizer, UnexpectedToken, tables
from nnefc.frontends.nnef.language.tree_builder import TreeBuilder
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.support.diagnostics import CompileError

__all__ = ["parse", "parse_definition", "parse_signature"]


def parse(text: str | bytes, file_name: str, dialect: Dialect | None = None) -> syntax.Document:
    """Parse a whole document.

    Args:
        text: the document; bytes are read as UTF-8.
        file_name: for messages.
        dialect: the document's dialect; None: the one that the document shows (see `detect_dialect`).

    Raises:
        CompileError: the text breaks a rule of the lexis or the grammar.
    """
    source = Source(file_name, _decode(text, file_name))
    raw = tokenize(source)
    dialect = dialect or detect_dialect(raw)
    tokens: Iterable[Token] = raw
    if dialect is Dialect.PROVISIONAL:
        tokens = end_statements(raw)
    document: syntax.Document = _parse("document", source, tokens, KEYWORDS[dialect], dialect)
    return document


def parse_signature(text: str, dialect: Dialect) -> Signature:
    """Parse `fragment name<? = scalar>(x: tensor<?>, …) -> (y: tensor<?>)`, in the spelling of either dialect."""
    return signature_of(_parse_declaration(text, "declaration", dialect), dialect)


def parse_definition(name: str, declaration: str, statements: str, dialect: Dialect) -> syntax.Fragment:
    """The standard's definition of the compound operation `name`, as if a document had written it."""
    return _parse_declaration(f"{declaration}\n{{\n{statements}\n}}", f"definition of {name}", dialect)


def _parse_declaration(text: str, name: str, dialect: Dialect) -> syntax.Fragment:
    source = Source(f"<{name}>", text)
    tokens = end_statements(tokenize(source))
    fragment: syntax.Fragment = _parse("fragment", source, tokens, ALL_KEYWORDS, None)
    return fragment


def _decode(text: str | bytes, file_name: str) -> str:
    if isinstance(text, str):
        return text.removeprefix("\ufeff")
    try:
        return text.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise CompileError(
            f"'{file_name}' is not a text file: byte {error.start} is not UTF-8",
            hint="An NNEF document is a text file, usually called graph.nnef.",
        ) from None


def _parse(
    start: str, source: Source, tokens: Iterable[Token], keywords: dict[str, str], dialect: Dialect | None
) -> Any:
    """Feed the tokens to the machine; the tree is built as rules are recognized."""
    machine = Recognizer(start, TreeBuilder(source, dialect))
    previous: Token | None = None
    try:
        for token in _classify(list(tokens), keywords):
            machine.feed(token)
            previous = token
        return machine.finish(len(source.text))
    except UnexpectedToken as error:
        raise _unexpected(source, error, previous, dialect) from None


_CONTENTS = frozenset(("integer", "scalar", "logical", "string"))


def _classify(tokens: list[Token], keywords: dict[str, str]) -> list[Token]:
    """Give the tokens the types of the grammar's terminals. The `<` of `f<integer>(…)` and `f<?>(…)` becomes OF."""
    terminals = tables().terminals
    for i, token in enumerate(tokens):
        match token.type:
            case "name":
                # The provisional dialect does not keep the word `version` for itself: it may be a name further on.
                word = "version" if i == 0 and token.text == "version" else keywords.get(token.text)
                token.type = "IDENTIFIER" if word is None else terminals[word]
            case "sign":
                token.type = terminals[token.text]
                if token.text == "<" and i + 2 < len(tokens) and tokens[i - 1].type == "IDENTIFIER":
                    content = tokens[i + 1].text
                    if content == "?" or (keywords.get(content) in _CONTENTS and tokens[i + 2].text == ">"):
                        token.type = "OF"
            case kind:
                token.type = kind.upper()
    return tokens


_READABLE = {
    "IDENTIFIER": "an identifier",
    "NUMBER": "a number",
    "STRING": "a string",
    "OF": "'<'",
    END: "the end of the document",
}


def _unexpected(
    source: Source, error: UnexpectedToken, previous: Token | None, dialect: Dialect | None
) -> CompileError:
    """Describes the unexpected token and the tokens that were expected."""
    token, expected = error.token, error.expected
    location = source.location(token.at)
    after = 0 if previous is None else previous.at + len(previous.text)
    if previous is not None and previous.type == "NUMBER" and token.type == "IDENTIFIER" and after == token.at:
        message = f"'{(previous.text + token.text)[:40]}' is neither a number nor an identifier"
        return CompileError(message, location=source.location(previous.at))
    if "SEMICOLON" in expected and token.type in _AFTER_STATEMENT:
        return CompileError(
            "expected ';' after the statement",
            location=source.location(after),
            hint="In the final dialect every statement ends with ';', and so does the version.",
        )
    found = "the document ends here" if token.type == END else f"unexpected {_describe(token)}"
    spelled = {terminal: f"'{text}'" for text, terminal in tables().terminals.items()} | _READABLE
    names = sorted(spelled.get(terminal, terminal) for terminal in expected)
    hint = _HINTS.get((token.text, dialect))
    if len(names) == 1:
        found += f", expected {names[0]}"
    elif hint is None and len(names) <= 6:
        hint = f"Expected {', '.join(names[:-1])} or {names[-1]}."
    return CompileError(found, location=location, hint=hint)


_AFTER_STATEMENT = frozenset(("IDENTIFIER", "RIGHT_BRACE", "GRAPH", "FRAGMENT", "EXTENSION"))
"""The tokens that follow where a semicolon is missing."""


_HINTS: dict[tuple[str, Dialect | None], str] = {
    ("extent", Dialect.FINAL): "The final dialect calls this type 'integer'.",
    ("integer", Dialect.PROVISIONAL): "The provisional dialect calls this type 'extent'.",
    ("yield", Dialect.PROVISIONAL): "The provisional dialect writes [element for i in array if condition].",
    ("extension", Dialect.PROVISIONAL): "Only the final dialect has extensions.",
}


def _describe(token: Token) -> str:
    shown = token.text if len(token.text) <= 40 else f"{token.text[:40]}…"
    match token.type:
        case "STRING":
            return f"string {shown}"
        case "NUMBER":
            return f"number {shown}"
        case "IDENTIFIER":
            return f"identifier '{shown}'"
        case _:
            return f"'{shown}'"
