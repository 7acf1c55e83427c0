"""Reads the messages of a conversation in a request, and converts them to the form that chat templates expect."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from nnefc.serving.text.fields import invalid

__all__ = ["messages_of"]

_ROLES = ("system", "developer", "user", "assistant", "tool", "function")


def messages_of(messages: Any, template: str, name: str = "messages") -> list[dict[str, Any]]:
    """Return the messages of a conversation, for a model's chat template.

    The role `developer` becomes `system` if the template does not mention it. Fields that are null and empty lists of
    calls are removed, since templates test whether a message has them.

    Args:
        messages: the field of the request, in OpenAI's format; not checked yet.
        template: the model's chat template.
        name: the field's name, for errors.

    Raises:
        Refused: the messages are missing, of a wrong type, or have parts other than text.
    """
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise invalid(f'"{name}" is missing, or not a list of messages', name)
    return [_message(each, template, name) for each in messages]


def _message(given: Mapping[str, Any], template: str, name: str) -> dict[str, Any]:
    role, content = given.get("role"), given.get("content")
    if not isinstance(role, str):
        raise invalid('a message has no "role"', name)
    if role not in _ROLES and (not role or role not in template):
        raise invalid(f'a message has the "role" {role[:100]!r}, which is none of {", ".join(_ROLES)}', name)
    if isinstance(content, list):
        content = "".join(_text_of(each, name) for each in content)
    if content is None and role in ("system", "developer", "user"):
        raise invalid(f'a message of the "role" {role} has no "content"', name)
    if content is not None and not isinstance(content, str):
        raise invalid('the "content" of a message is not a text', name)
    own = "system" if role == "developer" and role not in template else role
    calls = _calls(given.get("tool_calls"), name)
    more = {key: value for key, value in given.items() if value is not None and key != "tool_calls"}
    return {**more, "role": own, "content": content or "", **({"tool_calls": calls} if calls else {})}


def _text_of(part: Any, name: str) -> str:
    """Return the text of a part of a message: of the type `text`, or `refusal` in an earlier reply."""
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return text
        case {"type": str(kind)} if kind not in ("text", "refusal"):
            reason = f'a message has a part of the type {kind[:100]!r}: only parts of the type "text" are read'
            raise invalid(reason, name)
    raise invalid('a message has a part that is not of the type "text" with a "text"', name)


def _calls(given: Any, name: str) -> Sequence[Mapping[str, Any]]:
    """Return the tool calls of an earlier reply, with arguments parsed from JSON: chat templates serialize them."""
    if given is None:
        return []
    if not isinstance(given, list) or not all(
        isinstance(each, dict) and isinstance(each.get("function"), dict) for each in given
    ):
        raise invalid('the "tool_calls" of a message are not a list of calls, each with a "function"', name)
    made = []
    for call in given:
        arguments = call["function"].get("arguments") or {}
        try:
            arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        except (ValueError, RecursionError):
            raise invalid('the "arguments" of a call are not JSON', name) from None
        known = {key: value for key, value in call.items() if value is not None}
        made.append({**known, "function": {**call["function"], "arguments": arguments}})
    return made
