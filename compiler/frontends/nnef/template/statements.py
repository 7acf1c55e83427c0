"""The syntax of statements in templates.

{% for x in xs if x > 0 %} … {% else %} … {% endfor %}
{% if a %} … {% elif b %} … {% else %} … {% endif %}
{% set n = 4 %}    {% set text %} … {% endset %}    {% set space.n = 4 %}
{% with n = 4 %} … {% endwith %}    {% filter upper %} … {% endfilter %}
{% macro layer(i, n=4) %} … {% endmacro %}    {% do f() %}    {% break %}    {% continue %}

A template is one file: what needs others (include, import, extends) is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from nnefc.frontends.nnef.template.expressions import MAX_DEPTH, Expression, Filtered, Item, Name, Reader
from nnefc.frontends.nnef.template.text import Piece, Template

__all__ = [
    "Block",
    "Capture",
    "Do",
    "For",
    "If",
    "Jump",
    "Macro",
    "Output",
    "Set",
    "Statement",
    "Target",
    "Text",
    "With",
    "parse_template",
]


@dataclass(frozen=True)
class Statement:
    """Something that writes text or binds names; `at` is where it stands."""

    at: int


Block = tuple[Statement, ...]
Target = Name | Item | tuple["Target", ...]
"""What a value is given to: a name, a name in a namespace, or a list of such."""


@dataclass(frozen=True)
class Text(Statement):
    text: str


@dataclass(frozen=True)
class Output(Statement):
    value: Expression


@dataclass(frozen=True)
class Do(Statement):
    value: Expression


@dataclass(frozen=True)
class If(Statement):
    branches: tuple[tuple[Expression, Block], ...]
    otherwise: Block


@dataclass(frozen=True)
class For(Statement):
    target: Target
    items: Expression
    condition: Expression | None
    recursive: bool
    body: Block
    otherwise: Block


@dataclass(frozen=True)
class Set(Statement):
    target: Target
    value: Expression


@dataclass(frozen=True)
class Capture(Statement):
    """A body's text, through filters, written, or given to a name."""

    target: Target | None
    filters: Expression | None
    body: Block


@dataclass(frozen=True)
class With(Statement):
    """A body with names of its own: `with` and `block`."""

    values: tuple[tuple[Target, Expression], ...]
    body: Block


@dataclass(frozen=True)
class Macro(Statement):
    name: str
    parameters: tuple[tuple[str, Expression | None], ...]
    body: Block


@dataclass(frozen=True)
class Jump(Statement):
    """`break` or `continue`."""

    kind: str


_OTHER_FILES = ("include", "import", "from", "extends")


def parse_template(template: Template) -> Block:
    """The statements of a template.

    Raises:
        CompileError: it breaks a rule of the language; with the place.
    """
    parser = _Parser(template)
    made, _, _ = parser.body((), 0)
    return made


class _Parser:
    def __init__(self, template: Template) -> None:
        self._template = template
        self._pieces: Iterator[Piece] = template.pieces()
        self._depth = 0
        self._loops = 0

    def body(self, ends: tuple[str, ...], start: int) -> tuple[Block, str, Reader | None]:
        """Statements up to one of `ends`, its name, and the words behind it."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self._template.fail(f"statements are nested more than {MAX_DEPTH} deep", start)
        made: list[Statement] = []
        for piece in self._pieces:
            if piece.kind == "text":
                made.append(Text(piece.at, piece.text))
                continue
            reader = Reader(self._template, piece.tokens)
            if piece.kind == "{{":
                made.append(Output(piece.at, reader.listed()))
                reader.end()
                continue
            name = reader.name("the name of a statement")
            if name in ends:
                self._depth -= 1
                return tuple(made), name, reader
            made.append(self._statement(name, piece.at, reader))
        if ends:
            self._template.fail(f"'{ends[-1]}' is missing for what begins here", start)
        return tuple(made), "", None

    def _inside(self, ends: tuple[str, ...], start: int) -> tuple[Block, str, Reader]:
        made, name, reader = self.body(ends, start)
        assert reader is not None
        return made, name, reader

    def _closed(self, end: str, start: int) -> Block:
        """Statements up to an end."""
        made, _, reader = self._inside((end,), start)
        if end in ("endblock", "endmacro") and reader.token.kind == "name":
            reader.advance()
        reader.end()
        return made

    def _statement(self, name: str, at: int, reader: Reader) -> Statement:
        match name:
            case "for":
                return self._for(at, reader)
            case "if":
                return self._if(at, reader)
            case "set":
                return self._set(at, reader)
            case "with":
                return self._with(at, reader)
            case "filter":
                filters = reader.filtered(
                    Filtered(at, Name(at, ""), reader.name("the name of a filter"), *reader.arguments())
                )
                reader.end()
                return Capture(at, None, filters, self._closed("endfilter", at))
            case "block":
                reader.name()
                reader.end()
                return With(at, (), self._closed("endblock", at))
            case "autoescape":
                reader.expression()
                reader.end()
                return With(at, (), self._closed("endautoescape", at))
            case "macro":
                return self._macro(at, reader)
            case "do":
                made = Do(at, reader.expression())
                reader.end()
                return made
            case "break" | "continue":
                if not self._loops:
                    self._template.fail(f"'{name}' is in no loop", at)
                reader.end()
                return Jump(at, name)
        if name in _OTHER_FILES:
            self._template.fail(
                f"'{name}' needs another template", at, "a model has one: put its text where it is included"
            )
        if name == "call":
            self._template.fail("'call' is not supported in templates of documents", at, "call the macro: {{ name() }}")
        self._template.fail(f"'{name}' is no statement of templates", at)

    def _for(self, at: int, reader: Reader) -> Statement:
        target = self._target(reader)
        reader.expect("in")
        items = reader.listed(with_choice=False)
        condition = reader.expression() if reader.accept("if") else None
        recursive = reader.accept("recursive")
        reader.end()
        self._loops += 1
        body, end, after = self._inside(("else", "endfor"), at)
        self._loops -= 1
        after.end()
        return For(at, target, items, condition, recursive, body, self._closed("endfor", at) if end == "else" else ())

    def _if(self, at: int, reader: Reader) -> Statement:
        branches: list[tuple[Expression, Block]] = []
        end, otherwise = "elif", ()
        while end == "elif":
            condition = reader.expression()
            reader.end()
            body, end, reader = self._inside(("elif", "else", "endif"), at)
            branches.append((condition, body))
        reader.end()
        return If(at, tuple(branches), self._closed("endif", at) if end == "else" else otherwise)

    def _set(self, at: int, reader: Reader) -> Statement:
        target = self._target(reader)
        if reader.accept("="):
            made = Set(at, target, reader.listed())
            reader.end()
            return made
        filters = reader.filtered(Name(at, "")) if reader.is_next("|") else None
        reader.end()
        return Capture(at, target, filters, self._closed("endset", at))

    def _with(self, at: int, reader: Reader) -> Statement:
        values: list[tuple[Target, Expression]] = []
        while reader.token.kind != "end":
            if values:
                reader.expect(",")
            target = self._target(reader, one=True)
            reader.expect("=")
            values.append((target, reader.expression()))
        return With(at, tuple(values), self._closed("endwith", at))

    def _macro(self, at: int, reader: Reader) -> Statement:
        name = reader.name("the name of a macro")
        parameters: list[tuple[str, Expression | None]] = []
        reader.expect("(")
        while not reader.accept(")"):
            if parameters:
                reader.expect(",")
            parameters.append((reader.name(), reader.expression() if reader.accept("=") else None))
        reader.end()
        loops, self._loops = self._loops, 0
        body = self._closed("endmacro", at)
        self._loops = loops
        return Macro(at, name, tuple(parameters), body)

    def _target(self, reader: Reader, one: bool = False) -> Target:
        at = reader.token.at
        bracketed = reader.accept("(")
        items: list[Target] = []
        while True:
            if reader.is_next("("):
                items.append(self._target(reader, one=True))
            else:
                place, name = reader.token.at, reader.name()
                item: Target = Name(place, name)
                if reader.accept("."):
                    item = Item(place, Name(place, name), Name(place, reader.name()))
                items.append(item)
            if (one and not bracketed) or not reader.accept(","):
                break
            if bracketed and reader.is_next(")"):
                break
        if bracketed:
            reader.expect(")")
        if len(items) > 1 and any(isinstance(item, Item) for item in items):
            self._template.fail("a list of names has one in a namespace", at)
        return items[0] if len(items) == 1 else tuple(items)
