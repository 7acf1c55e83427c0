"""Writes the replies to conversations and completions in the form of OpenAI's interface: whole, or part by part."""

from __future__ import annotations

import json
import time
import uuid
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from nnefc.loader import Model
from nnefc.serving.failures import Refused
from nnefc.serving.text.engine import Outcome
from nnefc.serving.text.logprobs import TokenChance, chances_of_chat, chances_of_completion
from nnefc.serving.text.replies import Piece, Reply, ToolCall, Words

__all__ = ["ChatForm", "CompletionForm", "Form", "Usage", "event", "failure"]

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
"""Of errors, by the status; others are of the request, and from 500 on of the server."""


class Usage(Protocol):
    """How many tokens a request has taken so far.

    Attributes:
        read: of the prompts.
        cached: those of them that were not read again.
        written: of the replies.
    """

    @property
    def read(self) -> int: ...

    @property
    def cached(self) -> int: ...

    @property
    def written(self) -> int: ...


class Form(ABC):
    """How the replies to one request are written.

    Each of the methods but `whole` returns server-sent events, or nothing.
    """

    def begin(self) -> bytes:
        """Returns what comes before all replies."""
        return b""

    @abstractmethod
    def part(self, index: int, reply: Reply, outcome: Outcome) -> bytes:
        """Adds an outcome to the reply of this number; returns what that adds to the answer."""

    @abstractmethod
    def end(self, replies: Sequence[Reply], usage: Usage) -> bytes:
        """Returns what comes behind all replies."""

    def failed(self, error: Refused) -> bytes:
        """Returns what comes instead of the end, where a run fails."""
        return event(failure(error.kind.http, str(error), error.code, error.param))

    @abstractmethod
    def whole(self, replies: Sequence[Reply], usage: Usage) -> dict[str, Any]:
        """Returns the answer with all replies, as an object of JSON."""


class _ChoicesForm(Form):
    """An answer with a choice for each reply, whose parts come in any order."""

    kind: str
    part_kind: str
    identifier: str

    def __init__(self, name: str, model: Model, counts_usage: bool) -> None:
        """Prepares the answer to one request.

        Args:
            name: of the model.
            model: the library.
            counts_usage: whether parts have a usage, which is null in all but the last.
        """
        self._model, self._counts_usage = model, counts_usage
        self._begun: set[int] = set()
        self._head = {"id": f"{self.identifier}-{uuid.uuid4().hex}", "created": int(time.time()), "model": name}

    def part(self, index: int, reply: Reply, outcome: Outcome) -> bytes:
        is_first = index not in self._begun
        self._begun.add(index)
        pieces = reply.add(outcome)
        if not (pieces or outcome.chances or reply.reason or is_first):
            return b""
        choice = self._delta(index, reply, pieces, outcome, is_first)
        return self._event([{**choice, "index": index, "finish_reason": reply.reason}], None)

    def end(self, replies: Sequence[Reply], usage: Usage) -> bytes:
        last = self._event([], _counts(usage)) if self._counts_usage else b""
        return last + b"data: [DONE]\n\n"

    def _event(self, choices: Sequence[Mapping[str, Any]], usage: Mapping[str, Any] | None) -> bytes:
        more = {"usage": usage} if self._counts_usage else {}
        return event({**self._head, "object": self.part_kind, "choices": choices, **more})

    def whole(self, replies: Sequence[Reply], usage: Usage) -> dict[str, Any]:
        choices = [
            {**self._choice(reply), "index": index, "finish_reason": reply.reason}
            for index, reply in enumerate(replies)
        ]
        return {**self._head, "object": self.kind, "choices": choices, "usage": _counts(usage)}

    @abstractmethod
    def _choice(self, reply: Reply) -> dict[str, Any]:
        """Returns the fields of a whole reply."""

    @abstractmethod
    def _delta(
        self, index: int, reply: Reply, pieces: Sequence[Piece], outcome: Outcome, is_first: bool
    ) -> dict[str, Any]:
        """Returns what an outcome adds to the reply of this number; `is_first` is whether nothing came before."""


class ChatForm(_ChoicesForm):
    """How replies in conversations are written."""

    kind, part_kind, identifier = "chat.completion", "chat.completion.chunk", "chatcmpl"

    def _choice(self, reply: Reply) -> dict[str, Any]:
        calls = [_call(each) | {"function": {"name": each.name, "arguments": each.arguments}} for each in reply.calls]
        called = {"tool_calls": calls} if calls else {}
        message = {"role": "assistant", "content": None if calls and not reply.text else reply.text, **called}
        logprobs = chances_of_chat(self._model, reply.chances) if reply.chances else None
        return {"message": message, "logprobs": logprobs}

    def _delta(
        self, index: int, reply: Reply, pieces: Sequence[Piece], outcome: Outcome, is_first: bool
    ) -> dict[str, Any]:
        delta: dict[str, Any] = {"role": "assistant"} if is_first else {}
        added = "".join(piece.text for piece in pieces if isinstance(reply.elements[piece.index], Words))
        delta |= {"content": added} if added or is_first else {}
        calls = _call_deltas(reply, pieces)
        delta |= {"tool_calls": calls} if calls else {}
        logprobs = chances_of_chat(self._model, outcome.chances) if outcome.chances else None
        return {"delta": delta, "logprobs": logprobs}


def _call(call: ToolCall) -> dict[str, Any]:
    return {"id": call.identifier, "type": "function"}


def _call_deltas(reply: Reply, pieces: Sequence[Piece]) -> list[dict[str, Any]]:
    """Returns what is added to the calls of a reply."""
    made: list[dict[str, Any]] = []
    for piece in pieces:
        call = reply.elements[piece.index]
        if not isinstance(call, ToolCall):
            continue
        if made and made[-1]["index"] == call.index:
            made[-1]["function"]["arguments"] += piece.text
        elif piece.is_new:
            function = {"name": call.name, "arguments": piece.text}
            made.append({"index": call.index, **_call(call), "function": function})
        else:
            made.append({"index": call.index, "function": {"arguments": piece.text}})
    return made


class CompletionForm(_ChoicesForm):
    """How the replies that go on with texts are written. Their log probabilities have the token that ends them, too."""

    kind, part_kind, identifier = "text_completion", "text_completion", "cmpl"

    def __init__(self, name: str, model: Model, counts_usage: bool) -> None:
        super().__init__(name, model, counts_usage)
        self._offsets: Counter[int] = Counter()

    def _choice(self, reply: Reply) -> dict[str, Any]:
        logprobs, _ = chances_of_completion(self._model, _with_last(reply.chances, reply.last_chance), 0)
        return {"text": reply.text, "logprobs": logprobs}

    def _delta(
        self, index: int, reply: Reply, pieces: Sequence[Piece], outcome: Outcome, is_first: bool
    ) -> dict[str, Any]:
        chances = _with_last(outcome.chances, outcome.last_chance)
        logprobs, self._offsets[index] = chances_of_completion(self._model, chances, self._offsets[index])
        return {"text": "".join(piece.text for piece in pieces), "logprobs": logprobs}


def _with_last(chances: Sequence[TokenChance], last: TokenChance | None) -> Sequence[TokenChance]:
    return chances if last is None else [*chances, last]


def _counts(usage: Usage) -> dict[str, Any]:
    return {
        "prompt_tokens": usage.read,
        "completion_tokens": usage.written,
        "total_tokens": usage.read + usage.written,
        "prompt_tokens_details": {"cached_tokens": usage.cached},
    }


def event(content: Mapping[str, Any], name: str = "") -> bytes:
    """Returns a server-sent event.

    JSON is in ASCII: clients of some languages end a line also at U+0085 and U+2028, and UTF-8 has no lone surrogates.
    """
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(content)}\n\n".encode()


def failure(status: int, message: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    """Returns the content of an answer with an HTTP status that says what failed, and in which field of the request."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
