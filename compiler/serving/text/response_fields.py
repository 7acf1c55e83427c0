"""Reads the fields of requests for responses, whose input is a list of messages, function calls and their results.

Messages, tools and response formats are converted to those of chat completions, and then read in the same way.

Source: https://platform.openai.com/docs/api-reference/responses.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nnefc.serving.text.fields import flag, integer, invalid, text
from nnefc.serving.text.message_fields import messages_of
from nnefc.serving.text.request_fields import MAX_TOKENS, Asked, refuse, variables_of
from nnefc.serving.text.sampling_fields import MAX_LOGPROBS, grammar_of, sampling_of, stop_of
from nnefc.serving.text.tool_fields import tools_of

__all__ = ["Entries", "asked_of_response", "described", "entries_of"]

Entries = Sequence[Mapping[str, Any]]
"""Messages, function calls and their results, in the format of OpenAI's interface for responses."""

_NOT_SUPPORTED = (
    "background",
    "background_options",
    "conversation",
    "context_management",
    "moderation",
    "prompt",
)
_LOGPROBS = "message.output_text.logprobs"
_INCLUDED = {
    _LOGPROBS,
    "code_interpreter_call.outputs",
    "computer_call_output.output.image_url",
    "file_search_call.results",
    "message.input_image.image_url",
    "reasoning.encrypted_content",
    "web_search_call.action.sources",
    "web_search_call.results",
}
"""The accepted values of `include`; those other than log probabilities concern tools that do not exist here."""
_MAX_PAIRS, _MAX_KEY, _MAX_VALUE = 16, 64, 512
"""Limits of a response's metadata: pairs, characters of a key, characters of a value."""


def asked_of_response(given: Mapping[str, Any], template: str, entries: Entries) -> Asked:
    """Read a request for a response.

    Args:
        given: the request.
        template: the model's chat template.
        entries: of the conversation, those of the request's own input included.

    Raises:
        Refused: a field is of a wrong type, out of range, or not supported although it would change the response.
    """
    refuse(given, _NOT_SUPPORTED)
    if given.get("truncation") not in (None, "disabled"):
        reason = '"truncation" is "disabled" alone: an input that exceeds the context is an error'
        raise invalid(reason, "truncation")
    instructions = text(given, "instructions")
    messages: list[Any] = [] if instructions is None else [{"role": "system", "content": instructions}]
    reasoning = _object(given, "reasoning")
    return Asked(
        "input",
        messages_of(messages + list(_messages(entries)), template, "input"),
        sampling=sampling_of(given),
        maximum=integer(given, "max_output_tokens", 1, MAX_TOKENS),
        stop=stop_of(given),
        grammar=grammar_of(given, _form(_object(given, "text").get("format")), "text.format"),
        streams=flag(given, "stream"),
        logprobs=_logprobs(given),
        tools=tools_of(
            {**given, "tools": _tools(given.get("tools")), "tool_choice": _choice(given.get("tool_choice"))}
        ),
        variables=variables_of(given, text(reasoning, "effort")),
    )


def _object(given: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = given.get(name)
    if value is not None and not isinstance(value, dict):
        raise invalid(f'"{name}" is not an object', name)
    return value or {}


def _logprobs(given: Mapping[str, Any]) -> int | None:
    included = given.get("include") or []
    if not isinstance(included, list) or not all(isinstance(each, str) and each in _INCLUDED for each in included):
        raise invalid(f'"include" is not a list of {", ".join(sorted(_INCLUDED))}', "include")
    count = integer(given, "top_logprobs", 0, MAX_LOGPROBS) or 0
    if count and _LOGPROBS not in included:
        raise invalid(f'"top_logprobs" needs "{_LOGPROBS}" in "include"', "top_logprobs")
    return count if _LOGPROBS in included else None


def _form(given: Any) -> Any:
    """Convert `text.format` to the `response_format` of chat completions."""
    match given:
        case {"type": "json_schema", "schema": schema}:
            return {"type": "json_schema", "json_schema": {"schema": schema}}
        case {"type": "json_object"}:
            return {"type": "json_object"}
    return given


def _tools(given: Any) -> Any:
    """Convert tools to those of chat completions.

    Raises:
        Refused: a tool is not a function.
    """
    if not isinstance(given, list) or not all(isinstance(each, dict) for each in given):
        return given  # `tools_of` refuses it
    for tool in given:
        if tool.get("type") != "function":
            kind = str(tool.get("type"))[:100]
            raise invalid(f'a tool is of the type {kind!r}: tools are functions, of the type "function"', "tools")
    names = ("name", "description", "parameters")
    return [
        {"type": "function", "function": {name: tool[name] for name in names if tool.get(name) is not None}}
        for tool in given
    ]


def _choice(given: Any) -> Any:
    """Convert `tool_choice` to that of chat completions."""
    match given:
        case {"type": "function", "name": str(name)}:
            return {"type": "function", "function": {"name": name}}
        case {"type": "allowed_tools", "mode": mode, "tools": list(tools)}:
            allowed = [_choice(each) for each in tools]
            return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": allowed}}
        case None | str():
            return given
    raise invalid(
        '"tool_choice" is none of "none", "auto", "required", {"type": "function", "name": …} and '
        '{"type": "allowed_tools", "mode": …, "tools": […]}',
        "tool_choice",
    )


# Entries


def entries_of(given: Mapping[str, Any]) -> Entries:
    """Return the entries of a request's input; a text becomes a message of the user.

    Raises:
        Refused: the input is missing or of another type.
    """
    found = given.get("input")
    if isinstance(found, str):
        return [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": found}]}]
    if not isinstance(found, list) or not all(isinstance(each, dict) for each in found):
        raise invalid('"input" is missing, or neither a text nor a list of objects', "input")
    return found


def _messages(entries: Entries) -> Iterator[dict[str, Any]]:
    """Yield the messages of a chat completion: function calls become part of the assistant's message before them.

    Raises:
        Refused: an entry is of an unsupported type, or is a result without its call.
    """
    open_message: dict[str, Any] | None = None  # of the assistant, to which calls belong
    calls: set[str] = set()
    for entry in entries:
        kind = entry.get("type") or ("message" if "role" in entry else None)
        if kind == "reasoning":
            continue  # written by another model, and readable for that model only
        if kind == "function_call":
            open_message = open_message or {"role": "assistant", "tool_calls": []}
            call = _call(entry)
            calls.add(call["id"])
            open_message["tool_calls"].append(call)
            continue
        if open_message is not None:
            yield open_message
            open_message = None
        match kind:
            case "message" if entry.get("role") == "assistant":
                open_message = {"role": "assistant", "content": _content(entry.get("content")), "tool_calls": []}
            case "message":
                yield {"role": entry.get("role"), "content": _content(entry.get("content"))}
            case "function_call_output":
                yield _result(entry, calls)
            case _:
                raise invalid(
                    f"the input has an entry of the type {str(kind)[:100]!r}: only message, function_call and "
                    "function_call_output are read",
                    "input",
                )
    if open_message is not None:
        yield open_message


def _call(entry: Mapping[str, Any]) -> dict[str, Any]:
    match entry:
        case {"call_id": str(identifier), "name": str(name), "arguments": str(arguments)}:
            return {"id": identifier, "type": "function", "function": {"name": name, "arguments": arguments}}
    raise invalid('a function_call has not "call_id", "name" and "arguments", which are texts', "input")


def _result(entry: Mapping[str, Any], calls: set[str]) -> dict[str, Any]:
    identifier, output = entry.get("call_id"), _content(entry.get("output"))
    if not isinstance(identifier, str) or output is None:
        raise invalid('a function_call_output has not "call_id" and "output"', "input")
    if identifier not in calls:
        reason = f"a function_call_output has the call_id {identifier[:100]!r}, which no function_call before it has"
        raise invalid(reason, "input")
    return {"role": "tool", "tool_call_id": identifier, "content": output}


def _content(given: Any) -> Any:
    """Convert the content of a message; `messages_of` refuses what is neither a text nor a list."""
    return [_part(each) for each in given] if isinstance(given, list) else given


def _part(given: Any) -> Any:
    match given:
        case {"type": "input_text" | "output_text" | "text", "text": str(text)}:
            return {"type": "text", "text": text}
        case {"type": "refusal", "refusal": str(text)}:
            return {"type": "refusal", "refusal": text}
        case {"type": str(kind)} if kind not in ("input_text", "output_text", "text", "refusal"):
            raise invalid(f"the input has a part of the type {kind[:100]!r}: only input_text is read", "input")
    raise invalid('the input has a part that is not of the type "input_text" with a "text"', "input")


def described(given: Mapping[str, Any], asked: Asked, stores: bool) -> dict[str, Any]:
    """Return the fields of a response that repeat its request.

    Args:
        given: the request.
        asked: its checked fields.
        stores: whether the response will be stored.

    Raises:
        Refused: the metadata is not an object of texts, or too large.
    """
    return {
        "background": False,
        "instructions": given.get("instructions"),
        "max_output_tokens": asked.maximum,
        "max_tool_calls": integer(given, "max_tool_calls", 1, MAX_TOKENS),
        "metadata": _metadata(given.get("metadata")),
        "parallel_tool_calls": flag(given, "parallel_tool_calls", default=True),
        "previous_response_id": given.get("previous_response_id"),
        "prompt_cache_key": text(given, "prompt_cache_key"),
        "reasoning": {"effort": None, "summary": None} | dict(_object(given, "reasoning")),
        "safety_identifier": text(given, "safety_identifier"),
        "service_tier": "default",
        "store": stores,
        "temperature": asked.sampling["temperature"],
        "text": {"format": {"type": "text"}} | dict(_object(given, "text")),
        "tool_choice": given.get("tool_choice") or "auto",
        "tools": given.get("tools") or [],
        "top_logprobs": asked.logprobs or 0,
        "top_p": 1.0 if given.get("top_p") is None else given["top_p"],
        "truncation": "disabled",
        "user": text(given, "user"),
    }


def _metadata(given: Any) -> Mapping[str, str]:
    if given is None:
        return {}
    if (
        not isinstance(given, dict)
        or len(given) > _MAX_PAIRS
        or not all(len(key) <= _MAX_KEY for key in given)
        or not all(isinstance(value, str) and len(value) <= _MAX_VALUE for value in given.values())
    ):
        reason = (
            f'"metadata" is not an object of up to {_MAX_PAIRS} texts of up to {_MAX_VALUE} characters, by keys of '
        )
        raise invalid(f"{reason}up to {_MAX_KEY}", "metadata")
    return given
