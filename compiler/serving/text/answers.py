"""Writes replies in the form of OpenAI's interface: whole, or part by part."""

from __future__ import annotations

import secrets
import string
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nnefc.chat.tool_calls import CallParser, CallPart, CallStyle
from nnefc.loader import Model
from nnefc.serving.text.engine import Outcome
from nnefc.serving.text.logprobs import TokenChance, chances_of_chat, chances_of_completion

__all__ = ["Calls", "Form", "Reply"]

_LETTERS = string.ascii_letters + string.digits
_ID_LETTERS = 24


@dataclass(frozen=True)
class Calls:
    """How calls are found in replies.

    Attributes:
        style: how the model writes them.
        names: of the functions.
        is_single: whether a reply has one call at most; further ones are left out.
    """

    style: CallStyle
    names: frozenset[str]
    is_single: bool


@dataclass
class _Addition:
    """What an outcome adds to a reply: text, and parts of calls as OpenAI's interface has them."""

    text: str = ""
    calls: list[dict[str, Any]] = field(default_factory=list)


class Reply:
    """A reply as it comes.

    Attributes:
        text: what it says so far.
        calls: of tools, so far.
        chances: how probable its tokens are, where that is noted.
        reason: why it ends; None before.
    """

    def __init__(self, calls: Calls | None) -> None:
        self.text = ""
        self.calls: list[dict[str, Any]] = []
        self.chances: list[TokenChance] = []
        self.reason: str | None = None
        self._id_letters = _ID_LETTERS if calls is None else calls.style.id_letters
        self._is_single = calls is not None and calls.is_single
        self._parser = None if calls is None else CallParser(calls.style, calls.names)

    def add(self, outcome: Outcome) -> _Addition:
        """Takes an outcome; returns what it adds."""
        parts: list[str | CallPart] = [outcome.text]
        if self._parser is not None:
            parts = self._parser.add(outcome.text)
            parts += self._parser.end() if outcome.reason else []
        added = _Addition()
        for part in parts:
            if isinstance(part, str):
                added.text += part
            elif not part.index or not self._is_single:
                self._add_call(part, added)
        self.text += added.text
        self.chances += outcome.chances
        self.reason = "tool_calls" if self.calls and outcome.reason == "stop" else outcome.reason
        return added

    def _add_call(self, part: CallPart, added: _Addition) -> None:
        """Notes a part of a call."""
        new = {"id": self._identifier(), "type": "function"} if part.name else {}
        named = {"name": part.name} if part.name else {}
        if new:
            self.calls.append({**new, "function": {**named, "arguments": part.arguments}})
        else:
            self.calls[part.index]["function"]["arguments"] += part.arguments
        if added.calls and added.calls[-1]["index"] == part.index:
            added.calls[-1]["function"]["arguments"] += part.arguments
        else:
            added.calls.append({"index": part.index, **new, "function": {**named, "arguments": part.arguments}})

    def _identifier(self) -> str:
        count = self._id_letters or _ID_LETTERS
        letters = "".join(secrets.choice(_LETTERS) for _ in range(count))
        return letters if self._id_letters else f"call_{letters}"


class Form:
    """How replies are written: those of conversations, or of completions."""

    def __init__(self, is_chat: bool, name: str, model: Model, counts_usage: bool) -> None:
        """Prepares the answer to one request.

        Args:
            is_chat: whether it is a conversation.
            name: of the model.
            model: the library.
            counts_usage: whether parts have a usage, which is null in all but the last.
        """
        self._is_chat, self._model = is_chat, model
        self._no_usage = {"usage": None} if counts_usage else {}
        self._head = {
            "id": f"{'chatcmpl' if is_chat else 'cmpl'}-{uuid.uuid4().hex}",
            "created": int(time.time()),
            "model": name,
        }

    def whole(self, replies: Sequence[Reply], usage: Mapping[str, Any]) -> dict[str, Any]:
        """Returns a whole answer."""
        made = []
        for index, reply in enumerate(replies):
            text: dict[str, Any] = {"text": reply.text}
            if self._is_chat:
                called = {"tool_calls": reply.calls} if reply.calls else {}
                content = None if reply.calls and not reply.text else reply.text
                text = {"message": {"role": "assistant", "content": content, **called}}
            logprobs = self._logprobs(reply.chances, 0)
            made.append({**text, "index": index, "logprobs": logprobs, "finish_reason": reply.reason})
        kind = "chat.completion" if self._is_chat else "text_completion"
        return {**self._head, "object": kind, "choices": made, "usage": usage}

    def part(self, index: int, reply: Reply, outcome: Outcome, is_first: bool) -> dict[str, Any] | None:
        """Returns the part of an answer that an outcome adds; None if that is nothing."""
        offset = len(reply.text)
        added = reply.add(outcome)
        if not (added.text or added.calls or outcome.chances or reply.reason or is_first):
            return None
        text: dict[str, Any] = {"text": added.text}
        if self._is_chat:
            delta: dict[str, Any] = {"role": "assistant"} if is_first else {}
            delta |= {"content": added.text} if added.text or is_first else {}
            text = {"delta": delta | ({"tool_calls": added.calls} if added.calls else {})}
        logprobs = self._logprobs(outcome.chances, offset)
        choice = {**text, "index": index, "logprobs": logprobs, "finish_reason": reply.reason}
        return {**self._head, "object": self._part_kind, "choices": [choice], **self._no_usage}

    def usage(self, usage: Mapping[str, Any]) -> dict[str, Any]:
        """Returns the last part, which says how many tokens there were."""
        return {**self._head, "object": self._part_kind, "choices": [], "usage": usage}

    def _logprobs(self, chances: Sequence[TokenChance], offset: int) -> dict[str, Any] | None:
        if not chances:
            return None
        if self._is_chat:
            return chances_of_chat(self._model, chances)
        return chances_of_completion(self._model, chances, offset)

    @property
    def _part_kind(self) -> str:
        return "chat.completion.chunk" if self._is_chat else "text_completion"
