"""Parses PNNX expressions: `add(@0,mul(@1,@2))` to tokens, to a tree and to reverse Polish notation.

    text ──tokenize──▶ tokens ──parse──▶ Tree ──to_rpn──▶ steps ──lower──▶ one kernel

An expression may be nested to any depth: nothing here recurs. Every error says where in the text it is.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from enum import Enum

from nnefc.frontends.pnnx.functions import FUNCTIONS
from nnefc.support.diagnostics import CompileError, Location

__all__ = [
    "ExpressionLocation",
    "ExpressionToken",
    "Node",
    "NodeKind",
    "StackStep",
    "TokenKind",
    "Tree",
    "describe_expression",
    "infix",
    "parse",
    "to_rpn",
    "tokenize",
]


@dataclass(frozen=True)
class ExpressionLocation:
    """Location of an expression's text: `line` is the whole line, `column` counts from 1."""

    file: str
    number: int
    column: int
    line: str

    def at(self, position: int) -> Location:
        """The location of the character at `position` of the expression, from 0."""
        return Location(self.file, self.number, self.column + position, self.line)


class TokenKind(Enum):
    """Kind of a token; the values are its names in errors."""

    NUMBER = "a number"
    WORD = "a boolean or None"
    OPERAND = "an operand"
    NAME = "a function"
    COMMA = "','"
    OPEN = "an opening bracket"
    CLOSE = "a closing bracket"
    END = "the end"


@dataclass(frozen=True)
class ExpressionToken:
    """A piece of the text; `text[start:end]` of the expression."""

    kind: TokenKind
    text: str
    start: int
    end: int


_TOKENS = re.compile(
    r"""(?P<BLANK>\s+)
      | @(?P<OPERAND>[0-9]+)
      | (?P<NUMBER>[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?:inf|nan)(?![\w.])))(?![\w.@])
      | (?P<NAME>[A-Za-z_][\w.]*)
      | (?P<COMMA>,)
      | (?P<OPEN>[(\[])
      | (?P<CLOSE>[)\]])""",
    re.VERBOSE | re.ASCII,
)
_WORDS = {"True": True, "False": False, "true": True, "false": False, "None": None}
_LONGEST_NUMBER = 400  # digits; Python itself takes thousands for integers, and needs quadratic time for them


def tokenize(text: str, location: ExpressionLocation | None = None) -> tuple[ExpressionToken, ...]:
    """The tokens of an expression, the last one of the kind END; blanks between them have no meaning.

    Raises:
        CompileError: characters that begin no token, `@` without a number, a malformed number.
    """
    location = location or ExpressionLocation("expression", 1, 1, text)
    tokens: list[ExpressionToken] = []
    position = 0
    while position < len(text):
        match = _TOKENS.match(text, position)
        if match is None:
            raise CompileError(_misspelt(text, position), location=location.at(position))
        kind = str(match.lastgroup)
        if kind == "NUMBER" and match.end() - position > _LONGEST_NUMBER:
            raise CompileError("this number is too long", location=location.at(position))
        if kind == "NAME" and match.group() in _WORDS:
            kind = "WORD"
        if kind != "BLANK":
            tokens.append(ExpressionToken(TokenKind[kind], match.group(), position, match.end()))
        position = match.end()
    tokens.append(ExpressionToken(TokenKind.END, "", position, position))
    return tuple(tokens)


def _misspelt(text: str, position: int) -> str:
    if text[position] == "@":
        return "'@' must be followed by the number of an operand"
    if text[position] in "+-.0123456789":
        word = re.compile(r"[^\s,()\[\]]{1,40}").match(text, position)
        return f"'{word.group() if word else text[position]}' is not a number"
    return f"the character {text[position]!r} has no meaning here"


class NodeKind(Enum):
    """Kind of a tree node."""

    NUMBER = "number"
    OPERAND = "operand"
    CALL = "call"
    LIST = "list"
    TUPLE = "tuple"


@dataclass(frozen=True)
class Node:
    """A node of the tree.

    Attributes:
        kind: what it is.
        value: the number (a boolean and None count as such), the number of the operand, the name of the function.
        position: of its first character in the text, from 0.
        arguments: the nodes below it, as indices into the tree's `nodes`, from left to right.
    """

    kind: NodeKind
    value: int | float | bool | str | None
    position: int
    arguments: tuple[int, ...] = ()


@dataclass(frozen=True)
class Tree:
    """An expression as a tree, kept flat: `nodes[0]` is the root, each node comes before those below it."""

    nodes: tuple[Node, ...]
    location: ExpressionLocation

    @property
    def operands(self) -> tuple[int, ...]:
        """The operands that occur, each once, in the order of their numbers."""
        return tuple(sorted({int(node.value or 0) for node in self.nodes if node.kind is NodeKind.OPERAND}))


@dataclass
class _Open:
    """A bracket that is not closed yet: the node that its contents belong to, and what they are so far."""

    node: int
    bracket: ExpressionToken
    arguments: list[int]


_CLOSING = {"(": ")", "[": "]"}


def parse(text: str, location: ExpressionLocation | None = None, *, operands: int | None = None) -> Tree:
    """The tree of an expression.

    Args:
        text: the expression.
        location: of the expression in its file, for errors.
        operands: how many operands there are; None: any number.

    Raises:
        CompileError: the text is not one expression of known functions, each with as many arguments as it takes.
    """
    location = location or ExpressionLocation("expression", 1, 1, text)
    tokens = tokenize(text, location)
    if tokens[0].kind is TokenKind.END:
        raise CompileError("the expression is empty", location=location.at(0))
    nodes: list[Node] = []
    stack: list[_Open] = []
    index = 0
    while True:
        # A value begins here.
        token = tokens[index]
        index += 1
        node, opens = _begin(token, tokens[index] if token.kind is not TokenKind.END else token, location, operands)
        if stack:
            stack[-1].arguments.append(len(nodes))
        nodes.append(node)
        if opens is not None:
            stack.append(_Open(len(nodes) - 1, opens, []))
            index += opens is not token
            if not _closes(tokens[index]):
                continue
        # A value has ended: close what closes after it.
        while stack and _closes(tokens[index]):
            _close(stack.pop(), tokens[index], nodes, location)
            index += 1
        if not stack:
            break
        index = _after_comma(tokens, index, stack[-1], location)
    if tokens[index].kind is not TokenKind.END:
        raise CompileError(
            f"the expression ends before '{_short(tokens[index].text)}'", location=location.at(tokens[index].start)
        )
    return Tree(tuple(nodes), location)


def _closes(token: ExpressionToken) -> bool:
    return token.kind is TokenKind.CLOSE


def _begin(
    token: ExpressionToken, following: ExpressionToken, location: ExpressionLocation, operands: int | None
) -> tuple[Node, ExpressionToken | None]:
    """The node that begins with `token`, and the bracket that it opens, if any."""
    match token.kind:
        case TokenKind.NUMBER:
            return Node(NodeKind.NUMBER, _number(token, location), token.start), None
        case TokenKind.WORD:
            return Node(NodeKind.NUMBER, _WORDS[token.text], token.start), None
        case TokenKind.OPERAND:
            return Node(NodeKind.OPERAND, _operand(token, location, operands), token.start), None
        case TokenKind.OPEN:
            return Node(NodeKind.LIST if token.text == "[" else NodeKind.TUPLE, None, token.start), token
        case TokenKind.NAME:
            name = token.text
            if name not in FUNCTIONS:
                close = get_close_matches(name[:40], FUNCTIONS, 1)
                hint = f"did you mean '{close[0]}'?" if close else None
                raise CompileError(
                    f"there is no function '{_short(name)}'", location=location.at(token.start), hint=hint
                )
            if following.text != "(":
                raise CompileError(
                    f"'{name}' must be followed by '('",
                    location=location.at(following.start),
                    hint="converters write functions that they do not know without brackets: the model must avoid them"
                    if following.kind is TokenKind.COMMA
                    else None,
                )
            return Node(NodeKind.CALL, name, token.start), following
    found = "the expression ends" if token.kind is TokenKind.END else f"there is '{_short(token.text)}'"
    raise CompileError(
        f"{found} where a number, an operand, a function or a list should be", location=location.at(token.start)
    )


def _number(token: ExpressionToken, location: ExpressionLocation) -> int | float:
    try:
        number = int(token.text)
    except ValueError:
        return float(token.text)
    if not -(1 << 63) <= number < 1 << 63:
        raise CompileError("the number does not fit into 64 bits", location=location.at(token.start))
    return number


def _operand(token: ExpressionToken, location: ExpressionLocation, operands: int | None) -> int:
    number = int(token.text[1:]) if len(token.text) < 12 else None
    if number is None or (operands is not None and number >= operands):
        have = "" if operands is None else f": there {'is' if operands == 1 else 'are'} {operands}, from 0"
        raise CompileError(f"there is no operand '{_short(token.text)}'{have}", location=location.at(token.start))
    return number


def _after_comma(tokens: Sequence[ExpressionToken], index: int, inside: _Open, location: ExpressionLocation) -> int:
    token = tokens[index]
    if token.kind is TokenKind.COMMA:
        return index + 1
    expected = _CLOSING[inside.bracket.text]
    found = "the expression ends" if token.kind is TokenKind.END else f"there is '{_short(token.text)}'"
    raise CompileError(
        f"{found} where ',' or '{expected}' should be",
        location=location.at(token.start),
        notes=((f"the '{inside.bracket.text}' is here", location.at(inside.bracket.start)),),
    )


def _close(closed: _Open, token: ExpressionToken, nodes: list[Node], location: ExpressionLocation) -> None:
    """Complete the node whose bracket `token` closes."""
    expected = _CLOSING[closed.bracket.text]
    if token.text != expected:
        raise CompileError(
            f"there is '{token.text}' where '{expected}' should be",
            location=location.at(token.start),
            notes=((f"the '{closed.bracket.text}' is here", location.at(closed.bracket.start)),),
        )
    node = nodes[closed.node]
    if node.kind is NodeKind.CALL:
        function = FUNCTIONS[str(node.value)]
        count = len(closed.arguments)
        if not function.fewest <= count <= function.maximum:
            takes = (
                str(function.fewest)
                if function.fewest == function.maximum
                else f"{function.fewest} or {function.maximum}"
            )
            plural = "" if takes == "1" else "s"
            raise CompileError(
                f"'{node.value}' takes {takes} argument{plural}, here it has {count}",
                location=location.at(node.position),
            )
    nodes[closed.node] = Node(node.kind, node.value, node.position, tuple(closed.arguments))


def _short(text: str) -> str:
    return text if len(text) <= 40 else f"{text[:40]}…"


@dataclass(frozen=True)
class StackStep:
    """A step of the computation on a stack: push a number or an operand, or replace the `count` topmost by a result."""

    kind: NodeKind
    value: int | float | bool | str | None
    count: int
    position: int

    def __str__(self) -> str:
        match self.kind:
            case NodeKind.OPERAND:
                return f"@{self.value}"
            case NodeKind.LIST | NodeKind.TUPLE:
                return f"{self.kind.value}/{self.count}"
        return str(self.value)


def to_rpn(tree: Tree) -> tuple[StackStep, ...]:
    """The expression in reverse Polish order: every function after its arguments, arguments from left to right."""
    steps: list[StackStep] = []
    # Read from the root, arguments from right to left, and the order is exactly the reverse of what is wanted.
    pending = [0]
    while pending:
        node = tree.nodes[pending.pop()]
        steps.append(StackStep(node.kind, node.value, len(node.arguments), node.position))
        pending.extend(node.arguments)
    return tuple(reversed(steps))


def infix(tree: Tree) -> str:
    """The expression as mathematics is written, with the fewest brackets: `(@0 + @1) * @2`."""
    parts: list[tuple[str, int]] = []  # text and how tightly it binds, see Function.binding
    for step in to_rpn(tree):
        arguments = parts[len(parts) - step.count :]
        del parts[len(parts) - step.count :]
        parts.append(_infix_step(step, arguments))
    return parts[0][0]


_ATOM = 100
_PREFIX = 90


def _infix_step(step: StackStep, arguments: list[tuple[str, int]]) -> tuple[str, int]:
    inner = ", ".join(text for text, _ in arguments)
    match step.kind:
        case NodeKind.NUMBER | NodeKind.OPERAND:
            negative = str(step).startswith("-")
            return str(step), _PREFIX if negative else _ATOM
        case NodeKind.LIST:
            return f"[{inner}]", _ATOM
        case NodeKind.TUPLE:
            return f"({inner}{',' if step.count == 1 else ''})", _ATOM
    function = FUNCTIONS[str(step.value)]
    if function.symbol is None or step.count != function.fewest:
        return f"{step.value}({inner})", _ATOM
    if step.count == 1:
        text, binding = arguments[0]
        return f"{function.symbol}{text if binding > _PREFIX else f'({text})'}", _PREFIX
    (left, left_binding), (right, right_binding) = arguments
    # All operators but ** group from the left.
    left_minimum = function.binding + (1 if function.symbol == "**" else 0)
    right_minimum = function.binding + (0 if function.symbol == "**" else 1)
    left = left if left_binding >= left_minimum else f"({left})"
    right = right if right_binding >= right_minimum else f"({right})"
    return f"{left} {function.symbol} {right}", function.binding


_DEEPEST_SHOWN = 40


def describe_expression(text: str) -> str:
    """An expression as infix and as a tree, for people to read; deep parts of the tree are left out.

    Raises:
        CompileError: the text is no expression.
    """
    tree = parse(text)
    return "\n".join([infix(tree) if len(tree.nodes) <= 1000 else f"({len(tree.nodes)} nodes)", *_tree_lines(tree)])


def _tree_lines(tree: Tree) -> Iterator[str]:
    pending: list[tuple[int, str, str, int]] = [(0, "", "", 0)]  # node, what stands before it, before its arguments
    while pending:
        index, before, indent, depth = pending.pop()
        node = tree.nodes[index]
        label = (
            str(StackStep(node.kind, node.value, 0, 0))
            if node.kind not in (NodeKind.LIST, NodeKind.TUPLE)
            else node.kind.value
        )
        if depth == _DEEPEST_SHOWN and node.arguments:
            yield f"{before}…"
            continue
        yield before + label
        last = len(node.arguments) - 1
        for number, argument in reversed(list(enumerate(node.arguments))):
            branch, below = ("└─ ", "   ") if number == last else ("├─ ", "│  ")
            pending.append((argument, indent + branch, indent + below, depth + 1))
