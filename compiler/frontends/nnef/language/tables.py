"""LALR(1) parser for NNEF: loads its tables from `grammar.json`, and runs the parse stack.

The tables are made from `grammar.lark` when the grammar changes, not when a document is read: see
`packaging/nnef_grammar.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from nnefc.frontends.nnef.language.lexer import Token

__all__ = ["END", "TABLES", "Production", "Recognizer", "Tables", "UnexpectedToken", "tables"]

TABLES = Path(__file__).with_name("grammar.json")

END = "$END"
"""The terminal after the last token."""


class Production(NamedTuple):
    """A production of the grammar.

    Attributes:
        origin: the nonterminal on its left.
        size: the number of symbols on its right.
        method: the builder's method that is given the children; "" where the list of them is the value itself (of what
            `*` and `+` repeat), None where the only child is.
        children: for each its location on the right, `~location` if it is a list whose elements are children, None
            where something optional is left out.
    """

    origin: str
    size: int
    method: str | None
    children: Sequence[int | None]

    def value(self, values: Sequence[Any], builder: object) -> Any:
        """The value of the rule's left side, of the values of its right side."""
        children: list[Any] = []
        for index in self.children:
            if index is None:
                children.append(None)
            elif index >= 0:
                children.append(values[index])
            elif children:
                children += values[~index]
            else:
                # there is no other reference to the list: long documents are not copied for each statement
                children = values[~index]
        if self.method is None:
            (child,) = children
            return child
        return getattr(builder, self.method)(children) if self.method else children


@dataclass(frozen=True)
class Tables:
    """A deterministic machine.

    Attributes:
        terminals: for every sign and word that the grammar writes literally, its terminal.
        start: the first state, and the one in which a text is complete, by the nonterminal that the text shall be.
        rules: the productions.
        states: in each state, for a symbol: the state that follows, or `~i` where rule `i` is complete.
    """

    terminals: dict[str, str]
    start: dict[str, tuple[int, int]]
    rules: tuple[Production, ...]
    states: tuple[dict[str, int], ...]


@cache
def tables() -> Tables:
    """The tables of the grammar."""
    read = json.loads(TABLES.read_text(encoding="utf-8"))
    start = {name: (first, last) for name, (first, last) in read["start"].items()}
    return Tables(read["terminals"], start, tuple(Production(*rule) for rule in read["rules"]), tuple(read["states"]))


class UnexpectedToken(Exception):
    """The machine cannot go on with `token`; `expected` are the terminals that it could go on with."""

    def __init__(self, token: Token, expected: set[str]) -> None:
        super().__init__(token, expected)
        self.token = token
        self.expected = expected


class Recognizer:
    """Recognizes one text; `builder` makes the values of rules while they are recognized, without recursion."""

    def __init__(self, start: str, builder: object) -> None:
        self._tables = tables()
        first, self._last = self._tables.start[start]
        self._states = [first]
        self._values: list[Any] = []
        self._builder = builder

    def feed(self, token: Token) -> None:
        """Go on with a token that is not the last.

        Raises:
            UnexpectedToken: it cannot follow.
        """
        self._states.append(self._reduced(token))
        self._values.append(token)

    def finish(self, at: int) -> Any:
        """The value of the whole text, which ends at the offset `at`.

        Raises:
            UnexpectedToken: it cannot end there.
        """
        self._reduced(Token(END, "", at))
        return self._values[-1]

    def _reduced(self, token: Token) -> int:
        """Complete all rules that end before `token`; the state that follows it, the last state for END."""
        states, values = self._states, self._values
        while True:
            step = self._tables.states[states[-1]].get(token.type)
            if step is None:
                raise UnexpectedToken(token, self._acceptable())
            if step >= 0:
                return step
            rule = self._tables.rules[~step]
            first = len(values) - rule.size
            value = rule.value(values[first:], self._builder)
            del states[first + 1 :], values[first:]
            states.append(self._tables.states[states[-1]][rule.origin])
            values.append(value)
            if token.type == END and states[-1] == self._last:
                return self._last

    def _acceptable(self) -> set[str]:
        """The terminals that the machine could go on with: those that survive the reductions before them."""
        names = self._tables.states[self._states[-1]]
        return {name for name in names if name.isupper() and self._accepts(name)}

    def _accepts(self, terminal: str) -> bool:
        stack = list(self._states)
        while (step := self._tables.states[stack[-1]].get(terminal)) is not None:
            if step >= 0:
                return True
            rule = self._tables.rules[~step]
            del stack[len(stack) - rule.size :]
            stack.append(self._tables.states[stack[-1]][rule.origin])
        return False
