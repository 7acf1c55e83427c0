"""The syntax of expressions in templates.

config.layers[i + 1] | default(8) if i is odd else [1, 2]
"""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any, NoReturn

from nnefc.frontends.nnef.template.text import Template, Token

__all__ = [
    "Binary",
    "Call",
    "Choice",
    "Constant",
    "Expression",
    "Filtered",
    "Item",
    "ListOf",
    "MapOf",
    "Name",
    "Reader",
    "Slice",
    "Tested",
    "Unary",
]

MAX_DEPTH = 100


@dataclass(frozen=True)
class Expression:
    """Something that has a value; `at` is where it stands."""

    at: int


@dataclass(frozen=True)
class Constant(Expression):
    value: Any


@dataclass(frozen=True)
class Name(Expression):
    name: str


@dataclass(frozen=True)
class ListOf(Expression):
    items: tuple[Expression, ...]


@dataclass(frozen=True)
class MapOf(Expression):
    items: tuple[tuple[Expression, Expression], ...]


@dataclass(frozen=True)
class Unary(Expression):
    sign: str
    operand: Expression


@dataclass(frozen=True)
class Binary(Expression):
    sign: str
    left: Expression
    right: Expression


@dataclass(frozen=True)
class Choice(Expression):
    """`value if condition else otherwise`; without `otherwise` the value may be undefined."""

    value: Expression
    condition: Expression
    otherwise: Expression | None


@dataclass(frozen=True)
class Item(Expression):
    """`of.key` and `of[key]`."""

    of: Expression
    key: Expression


@dataclass(frozen=True)
class Slice(Expression):
    """`of[begin:end:step]`."""

    of: Expression
    bounds: tuple[Expression | None, ...]


@dataclass(frozen=True)
class Call(Expression):
    function: Expression
    arguments: tuple[Expression, ...]
    named: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class Filtered(Expression):
    """`of | name(arguments)`; `of` is None for the name of a block's filter."""

    of: Expression
    name: str
    arguments: tuple[Expression, ...]
    named: tuple[tuple[str, Expression], ...]


@dataclass(frozen=True)
class Tested(Expression):
    """`of is name(arguments)`."""

    of: Expression
    name: str
    arguments: tuple[Expression, ...]


_BINARY = {"or": 1, "and": 2, "in": 4, "+": 5, "-": 5, "~": 6, "*": 7, "/": 7, "//": 7, "%": 7, "**": 8}
_BINARY |= dict.fromkeys(("==", "!=", "<", "<=", ">", ">="), 4)
"""The operators, and how strongly each binds."""
_NOT, _MOST = 3, 8
_CONSTANTS = {"true": True, "True": True, "false": False, "False": False, "none": None, "None": None}
_NO_OPERANDS = ("if", "else", "in", "is", "and", "or", "not", "recursive")


class Reader:
    """Reads expressions from the words of one piece of a template."""

    def __init__(self, template: Template, tokens: tuple[Token, ...]) -> None:
        self.template = template
        self._tokens = tokens
        self._place = 0
        self._depth = 0

    @property
    def token(self) -> Token:
        """The next word."""
        return self._tokens[self._place]

    def fail(self, message: str) -> NoReturn:
        """Refuse the template for its next word."""
        self.template.fail(message, self.token.at)

    def advance(self) -> Token:
        """Take a word."""
        token = self.token
        self._place = min(self._place + 1, len(self._tokens) - 1)
        return token

    def is_next(self, *texts: str) -> bool:
        """Whether the next word is one of these."""
        return self.token.kind in ("name", "sign") and self.token.text in texts

    def accept(self, *texts: str) -> bool:
        """Take the next word if it is one of these."""
        if self.is_next(*texts):
            self.advance()
            return True
        return False

    def expect(self, text: str) -> None:
        """Take the next word, which must be this one."""
        if not self.accept(text):
            self.fail(f"expected '{text}' instead of {self._found()}")

    def end(self) -> None:
        """There must be no further word."""
        if self.token.kind != "end":
            self.fail(f"expected nothing more instead of {self._found()}")

    def name(self, what: str = "a name") -> str:
        """Take a name."""
        if self.token.kind != "name":
            self.fail(f"expected {what} instead of {self._found()}")
        return self.advance().text

    def _found(self) -> str:
        return "the end" if self.token.kind == "end" else f"'{self.token.text}'"

    def expression(self, with_choice: bool = True) -> Expression:
        """An expression; without `with_choice` it ends before an `if`."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            self.fail(f"expressions are nested more than {MAX_DEPTH} deep")
        made = self._binary(1)
        while with_choice and self.is_next("if"):
            at = self.advance().at
            condition = self._binary(1)
            made = Choice(at, made, condition, self.expression() if self.accept("else") else None)
        self._depth -= 1
        return made

    def listed(self, with_choice: bool = True) -> Expression:
        """An expression, or a list of some with commas between them."""
        at, items = self.token.at, [self.expression(with_choice)]
        is_list = False
        while self.accept(","):
            is_list = True
            if self.token.kind == "end" or self.is_next("if", "recursive", ")"):
                break
            items.append(self.expression(with_choice))
        return ListOf(at, tuple(items)) if is_list else items[0]

    def _binary(self, least: int) -> Expression:
        if least <= _NOT and self.is_next("not"):
            at, count = self.token.at, 0
            while self.accept("not"):
                count += 1
            made: Expression = Unary(at, "not", self._binary(_NOT + 1))
            made = Unary(at, "not", made) if count % 2 == 0 else made
        else:
            made = self._unary()
        while True:
            is_not = self.is_next("not") and self._tokens[self._place + 1].text == "in"
            sign = "in" if is_not else self.token.text if self.token.kind in ("name", "sign") else ""
            strength = _BINARY.get(sign, 0)
            if strength < least or strength == 0:
                return made
            at = self.token.at
            self._place += is_not
            self.advance()
            made = Binary(at, sign, made, self._binary(strength + 1))
            made = Unary(at, "not", made) if is_not else made

    def _unary(self) -> Expression:
        at, count = self.token.at, 0
        while self.is_next("-", "+"):
            count += self.advance().text == "-"
        made = self._postfix(self._primary())
        # A sign belongs to a number before a filter sees it.
        for _ in range(count):
            made = Unary(at, "-", made)
        return self.filtered(made)

    def filtered(self, made: Expression) -> Expression:
        """What stands behind an operand: filters and tests."""
        while True:
            at = self.token.at
            if self.accept("|"):
                made = Filtered(at, made, self.name("the name of a filter"), *self.arguments())
            elif self.accept("is"):
                negated = self.accept("not")
                made = self._test(made, at)
                made = Unary(at, "not", made) if negated else made
            else:
                return made

    def _test(self, of: Expression, at: int) -> Expression:
        name = (
            self.advance().text if self.is_next("==", "!=", "<", "<=", ">", ">=") else self.name("the name of a test")
        )
        if self.is_next("("):
            arguments, named = self.arguments()
            if named:
                self.fail("tests have no arguments with names")
            return Tested(at, of, name, arguments)
        starts = self.token.kind in ("number", "string") or self.is_next("[", "{")
        starts |= self.token.kind == "name" and not self.is_next(*_NO_OPERANDS)
        return Tested(at, of, name, (self._postfix(self._primary()),) if starts else ())

    def arguments(self) -> tuple[tuple[Expression, ...], tuple[tuple[str, Expression], ...]]:
        """The arguments in brackets, if there are any."""
        items: list[Expression] = []
        named: list[tuple[str, Expression]] = []
        if not self.accept("("):
            return (), ()
        while not self.accept(")"):
            if items or named:
                self.expect(",")
                if self.accept(")"):
                    break
            if self.token.kind == "name" and self._tokens[self._place + 1].text == "=":
                name = self.name()
                self.advance()
                named.append((name, self.expression()))
            elif named:
                self.fail("an argument without a name follows one with a name")
            else:
                items.append(self.expression())
        return tuple(items), tuple(named)

    def _postfix(self, made: Expression) -> Expression:
        while True:
            at = self.token.at
            if self.accept("."):
                number = self.token.kind == "number"
                key: Any = int(self.advance().text) if number and self.token.text.isdigit() else self.name()
                made = Item(at, made, Constant(at, key))
            elif self.accept("["):
                made = self._subscript(made, at)
            elif self.is_next("("):
                made = Call(at, made, *self.arguments())
            else:
                return made

    def _subscript(self, of: Expression, at: int) -> Expression:
        bounds: list[Expression | None] = [None if self.is_next(":") else self.expression()]
        while self.accept(":") and len(bounds) < 3:
            bounds.append(None if self.is_next(":", "]") else self.expression())
        self.expect("]")
        if len(bounds) == 1 and bounds[0] is not None:
            return Item(at, of, bounds[0])
        return Slice(at, of, (*bounds, None, None)[:3])

    def _primary(self) -> Expression:
        token = self.token
        match token.kind, token.text:
            case "number", text:
                self.advance()
                return Constant(token.at, self._number(text))
            case "string", text:
                return Constant(token.at, self._string())
            case "name", text if text in _CONSTANTS:
                self.advance()
                return Constant(token.at, _CONSTANTS[text])
            case "name", text if text not in _NO_OPERANDS:
                return Name(token.at, self.advance().text)
            case "sign", "(":
                self.advance()
                if self.accept(")"):
                    return ListOf(token.at, ())
                made = self.listed()
                self.expect(")")
                return made
            case "sign", "[":
                self.advance()
                return ListOf(token.at, tuple(self._items("]")))
            case "sign", "{":
                self.advance()
                return self._map(token.at)
        self.fail(f"expected a value instead of {self._found()}")

    def _items(self, end: str) -> list[Expression]:
        items: list[Expression] = []
        while not self.accept(end):
            if items:
                self.expect(",")
                if self.accept(end):
                    break
            items.append(self.expression())
        return items

    def _map(self, at: int) -> Expression:
        items: list[tuple[Expression, Expression]] = []
        while not self.accept("}"):
            if items:
                self.expect(",")
                if self.accept("}"):
                    break
            key = self.expression()
            self.expect(":")
            items.append((key, self.expression()))
        return MapOf(at, tuple(items))

    def _number(self, text: str) -> int | float:
        if len(text) > 40:
            self.fail("the number has too many digits")
        plain = text.replace("_", "")
        if plain[:2].lower() in ("0x", "0o", "0b"):
            return int(plain, 0)
        return float(plain) if any(sign in plain for sign in ".eE") else int(plain)

    def _string(self) -> str:
        """Strings that follow each other are not joined; escapes are those of Rust and Python."""
        token = self.advance()
        try:
            made = ast.literal_eval(token.text.replace("\n", "\\n"))
        except (SyntaxError, ValueError):
            self.template.fail("the string has an escape that is not known", token.at)
        assert isinstance(made, str)
        return made
