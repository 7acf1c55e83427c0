"""Writes chat completions and completions in the format of OpenAI's interface: as one object, or as events.

:class:`Form` is what each interface implements to write the replies to a request.
"""

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
"""The type of an error by HTTP status; other statuses below 500 are invalid requests, those from 500 server errors."""


class Usage(Protocol):
    """The count of a request's tokens so far.

    Attributes:
        read: tokens of the prompts.
        cached: those of them that were in a cache and not read again.
        written: tokens of the replies.
    """

    @property
    def read(self) -> int: ...

    @property
    def cached(self) -> int: ...

    @property
    def written(self) -> int: ...


class Form(ABC):
    """Writes the answer to one request: as server-sent events, or by :meth:`whole` as one JSON object.

    All methods but :meth:`whole` return events, or an empty text.
    """

    def begin(self) -> bytes:
        """Return the events before all replies."""
        return b""

    @abstractmethod
    def part(self, index: int, reply: Reply, outcome: Outcome) -> bytes:
        """Add an outcome to the reply of number `index`; return the events for it."""

    @abstractmethod
    def end(self, replies: Sequence[Reply], usage: Usage) -> bytes:
        """Return the events after all replies."""

    def failed(self, error: Refused) -> bytes:
        """Return the event that replaces :meth:`end` if a run fails."""
        return event(failure(error.kind.http, str(error), error.code, error.param))

    @abstractmethod
    def whole(self, replies: Sequence[Reply], usage: Usage) -> dict[str, Any]:
        """Return the answer with all replies, as a JSON object."""


class _ChoicesForm(Form):
    """Writes an answer with a choice for each reply; events of different replies may alternate.

    Attributes:
        kind: the answer's `object` as one JSON object.
        part_kind: the `object` of its events.
        identifier: the prefix of its `id`.
    """

    kind: str
    part_kind: str
    identifier: str

    def __init__(self, name: str, model: Model, counts_usage: bool) -> None:
        """Prepare the answer to one request.

        Args:
            name: of the model.
            model: the session, which has the tokenizer.
            counts_usage: whether events have `usage`, which is null in all but the last.
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
        """Return the fields of a complete reply's choice."""

    @abstractmethod
    def _delta(
        self, index: int, reply: Reply, pieces: Sequence[Piece], outcome: Outcome, is_first: bool
    ) -> dict[str, Any]:
        """Return the fields of the choice in an event.

        Args:
            index: of the reply.
            reply: to which the outcome has been added.
            pieces: that the outcome adds to the reply.
            outcome: of the engine.
            is_first: whether this is the reply's first event.
        """


class ChatForm(_ChoicesForm):
    """Writes replies as chat completions."""

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
    """Return the `tool_calls` of an event: what the pieces add to the calls of a reply."""
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
    """Writes replies as completions. Their log probabilities include the end token."""

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
    """Return a server-sent event with JSON as its data.

    The JSON is in ASCII: clients in some languages also end a line at U+0085 or U+2028, and lone surrogates cannot be
    written in UTF-8.
    """
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {json.dumps(content)}\n\n".encode()


def failure(status: int, message: str, code: str | None = None, param: str | None = None) -> dict[str, Any]:
    """Return an error in OpenAI's format.

    Args:
        status: the HTTP status of the answer.
        message: for people.
        code: for programs, such as `model_not_found`.
        param: the field of the request that is wrong.
    """
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
