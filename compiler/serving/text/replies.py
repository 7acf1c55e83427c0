"""Divides a model's reply, as it is generated, into texts and tool calls."""

from __future__ import annotations

import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass, field

from nnefc.chat.tool_calls import CallParser, CallPart, CallStyle
from nnefc.serving.text.engine import Outcome
from nnefc.serving.text.logprobs import TokenChance

__all__ = ["Calls", "Piece", "Reply", "ToolCall", "Words"]

_LETTERS = string.ascii_letters + string.digits
_ID_LETTERS = 24


@dataclass(frozen=True)
class Calls:
    """How tool calls are recognized in replies.

    Attributes:
        style: how the model writes calls.
        names: of the functions that may be called.
        is_single: whether a reply has at most one call; further ones are dropped.
    """

    style: CallStyle
    names: frozenset[str]
    is_single: bool


@dataclass
class Words:
    """A text of a reply, between its calls.

    Attributes:
        parts: of the text, in the order in which they were generated.
        chances: log probabilities of its tokens, if these are recorded.
    """

    parts: list[str] = field(default_factory=list)
    chances: list[TokenChance] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self.parts)


@dataclass
class ToolCall:
    """A tool call in a reply.

    Attributes:
        index: among the calls of the reply.
        identifier: by which the result of the call refers to it.
        name: of the function.
        parts: of the arguments' JSON, in the order in which they were generated.
    """

    index: int
    identifier: str
    name: str
    parts: list[str] = field(default_factory=list)

    @property
    def arguments(self) -> str:
        """The JSON of the arguments so far."""
        return "".join(self.parts)


@dataclass(frozen=True)
class Piece:
    """What an outcome adds to an element of a reply.

    Attributes:
        index: of the element within the reply.
        text: added to the text, or to the JSON of the arguments; may be empty for a new element.
        is_new: whether the element begins with this piece.
        chances: log probabilities of the tokens of a text, if these are recorded.
    """

    index: int
    text: str
    is_new: bool
    chances: Sequence[TokenChance] = ()


class Reply:
    """A reply as it is generated.

    Attributes:
        elements: texts and calls in their order; a reply that has ended has at least one.
        calls: the elements that are calls.
        chances: log probabilities of its tokens, if these are recorded.
        last_chance: log probability of the end token, if these are recorded.
        reason: why the reply has ended; None before.
    """

    def __init__(self, calls: Calls | None) -> None:
        """Begin a reply; `calls` says how calls are recognized in it, None: it has none."""
        self.elements: list[Words | ToolCall] = []
        self.calls: list[ToolCall] = []
        self.chances: list[TokenChance] = []
        self.last_chance: TokenChance | None = None
        self.reason: str | None = None
        self._pending: list[TokenChance] = []  # of tokens whose text is held back
        self._id_letters = _ID_LETTERS if calls is None else calls.style.id_letters
        self._is_single = calls is not None and calls.is_single
        self._parser = None if calls is None else CallParser(calls.style, calls.names)
        self._call_elements: list[int] = []

    @property
    def text(self) -> str:
        """The texts so far, without calls."""
        return "".join(element.text for element in self.elements if isinstance(element, Words))

    def add(self, outcome: Outcome) -> list[Piece]:
        """Add an outcome to the reply; return what it adds, in order."""
        parts: list[str | CallPart] = [outcome.text]
        if self._parser is not None:
            parts = self._parser.add(outcome.text)
            parts += self._parser.end() if outcome.reason else []
        self._pending += outcome.chances
        self.chances += outcome.chances
        self.last_chance = outcome.last_chance
        pieces = []
        for part in parts:
            if isinstance(part, CallPart):
                if not part.index or not self._is_single:
                    pieces.append(self._add_call(part))
            elif part:
                pieces.append(self._add_text(part))
        if outcome.reason and not self.elements:
            pieces.append(self._add_text(""))
        self.reason = "tool_calls" if self.calls and outcome.reason == "stop" else outcome.reason
        return pieces

    def _add_text(self, text: str) -> Piece:
        is_new = not self.elements or not isinstance(self.elements[-1], Words)
        if is_new:
            self.elements.append(Words())
        words = self.elements[-1]
        assert isinstance(words, Words)
        chances, self._pending = self._pending, []
        words.parts.append(text)
        words.chances += chances
        return Piece(len(self.elements) - 1, text, is_new, chances)

    def _add_call(self, part: CallPart) -> Piece:
        self._pending = []
        is_new = part.index == len(self.calls)
        if is_new:
            call = ToolCall(part.index, self._identifier(), part.name)
            self.calls.append(call)
            self._call_elements.append(len(self.elements))
            self.elements.append(call)
        self.calls[part.index].parts.append(part.arguments)
        return Piece(self._call_elements[part.index], part.arguments, is_new)

    def _identifier(self) -> str:
        count = self._id_letters or _ID_LETTERS
        letters = "".join(secrets.choice(_LETTERS) for _ in range(count))
        return letters if self._id_letters else f"call_{letters}"
