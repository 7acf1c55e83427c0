"""Writes the answers of OpenAI's interface for responses: as one object, or as events with a type and a number each."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from nnefc.loader import Model
from nnefc.serving.failures import Refused
from nnefc.serving.text.answers import Form, Usage, event
from nnefc.serving.text.engine import Outcome
from nnefc.serving.text.logprobs import TokenChance, chances_of_chat
from nnefc.serving.text.replies import Piece, Reply, ToolCall, Words

__all__ = ["ResponseForm"]

_ID_BYTES = 24


class ResponseForm(Form):
    """Writes a reply as a response, whose output has a message or a function call for each element of the reply."""

    def __init__(
        self, name: str, model: Model, request: Mapping[str, Any], keep: Callable[[Mapping[str, Any]], None]
    ) -> None:
        """Prepare the answer to one request.

        Args:
            name: of the model.
            model: the session, which has the tokenizer.
            request: the fields of the response that describe its request.
            keep: called with the complete response, to store it.
        """
        self._letters = secrets.token_hex(_ID_BYTES)
        self._model, self._keep, self._request = model, keep, request
        self._head = {
            "id": f"resp_{self._letters}",
            "object": "response",
            "created_at": int(time.time()),
            "model": name,
        }
        self._number = 0
        self._open: int | None = None

    def begin(self) -> bytes:
        made = {"response": self._response("in_progress", [])}
        return self._event("response.created", made) + self._event("response.in_progress", made)

    def part(self, index: int, reply: Reply, outcome: Outcome) -> bytes:
        events = []
        for piece in reply.add(outcome):
            if piece.is_new:
                events += [self._closed(reply, "completed"), self._opened(reply, piece.index)]
            if piece.text:
                events.append(self._delta(reply.elements[piece.index], piece))
        if reply.reason:
            events.append(self._closed(reply, _status(reply)))
        return b"".join(events)

    def end(self, replies: Sequence[Reply], usage: Usage) -> bytes:
        response = self.whole(replies, usage)
        return self._event(f"response.{response['status']}", {"response": response})

    def failed(self, error: Refused) -> bytes:
        failure = {"error": {"code": "server_error", "message": str(error)}}
        return self._event("response.failed", {"response": self._response("failed", []) | failure})

    def whole(self, replies: Sequence[Reply], usage: Usage) -> dict[str, Any]:
        (reply,) = replies
        status, last = _status(reply), len(reply.elements) - 1
        output = [
            self._element(index, element, status if index == last else "completed")
            for index, element in enumerate(reply.elements)
        ]
        made = self._response(status, output)
        if status == "incomplete":
            made["incomplete_details"] = {"reason": "max_output_tokens"}
        else:
            made["completed_at"] = int(time.time())
        made["usage"] = {
            "input_tokens": usage.read,
            "input_tokens_details": {"cached_tokens": usage.cached},
            "output_tokens": usage.written,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": usage.read + usage.written,
        }
        self._keep(made)
        return made

    def _response(self, status: str, output: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        made = {"status": status, "error": None, "incomplete_details": None, "output": output, "usage": None}
        return {**self._head, **self._request, **made}

    def _event(self, kind: str, fields: Mapping[str, Any]) -> bytes:
        number, self._number = self._number, self._number + 1
        return event({"type": kind, "sequence_number": number, **fields}, kind)

    def _identifier(self, index: int, element: Words | ToolCall) -> str:
        return f"{'msg' if isinstance(element, Words) else 'fc'}_{self._letters}{index:04}"

    def _element(self, index: int, element: Words | ToolCall, status: str, is_empty: bool = False) -> dict[str, Any]:
        """Return an element of the output; with `is_empty`, without its text or arguments."""
        head = {"id": self._identifier(index, element), "status": status}
        if isinstance(element, Words):
            content = [] if is_empty else [self._text(element)]
            return {**head, "type": "message", "role": "assistant", "content": content}
        call = {"call_id": element.identifier, "name": element.name}
        return {**head, "type": "function_call", **call, "arguments": "" if is_empty else element.arguments}

    def _text(self, words: Words) -> dict[str, Any]:
        chances = self._logprobs(words.chances)
        return {"type": "output_text", "text": words.text, "annotations": [], "logprobs": chances}

    def _logprobs(self, chances: Sequence[TokenChance]) -> list[dict[str, Any]]:
        made: list[dict[str, Any]] = chances_of_chat(self._model, chances)["content"]
        return made

    def _within(self, index: int, element: Words | ToolCall) -> dict[str, Any]:
        """Return the fields by which an event refers to an element."""
        within = {"item_id": self._identifier(index, element), "output_index": index}
        return within | ({"content_index": 0} if isinstance(element, Words) else {})

    def _opened(self, reply: Reply, index: int) -> bytes:
        """Return the events that begin an element."""
        self._open, element = index, reply.elements[index]
        begun = self._element(index, element, "in_progress", is_empty=True)
        events = self._event("response.output_item.added", {"output_index": index, "item": begun})
        if isinstance(element, Words):
            part = {"part": self._text(Words())}
            events += self._event("response.content_part.added", self._within(index, element) | part)
        return events

    def _delta(self, element: Words | ToolCall, piece: Piece) -> bytes:
        fields = self._within(piece.index, element) | {"delta": piece.text}
        if isinstance(element, ToolCall):
            return self._event("response.function_call_arguments.delta", fields)
        return self._event("response.output_text.delta", fields | {"logprobs": self._logprobs(piece.chances)})

    def _closed(self, reply: Reply, status: str) -> bytes:
        """Return the events that end the current element; empty if there is none."""
        if self._open is None:
            return b""
        index, self._open = self._open, None
        element = reply.elements[index]
        within = self._within(index, element)
        if isinstance(element, ToolCall):
            called = {"name": element.name, "arguments": element.arguments}
            events = self._event("response.function_call_arguments.done", within | called)
        else:
            part = self._text(element)
            whole = {"text": part["text"], "logprobs": part["logprobs"]}
            events = self._event("response.output_text.done", within | whole)
            events += self._event("response.content_part.done", within | {"part": part})
        done = self._element(index, element, status)
        return events + self._event("response.output_item.done", {"output_index": index, "item": done})


def _status(reply: Reply) -> str:
    return "incomplete" if reply.reason == "length" else "completed"
