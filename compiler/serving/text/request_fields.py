"""Reads the fields of requests of OpenAI's interface, with the reasons for refusing them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nnefc.loader.sampling import Sampling
from nnefc.serving.text.fields import flag, integer, invalid, is_number, number
from nnefc.serving.text.tool_fields import Tools, tools_of

__all__ = ["Asked", "asked", "messages_of", "prompts_of"]

_MAX_CHOICES = 16
_MAX_STOPS = 16
_NOT_SUPPORTED = ("suffix", "functions", "function_call", "audio", "prediction")
_ROLES = ("system", "developer", "user", "assistant", "tool", "function")
_MAX_LOGPROBS = 20
_DEFAULT_COMPLETION = 16
"""Tokens of a completion, as OpenAI's interface has it."""


@dataclass(frozen=True)
class Asked:
    """What a request asks for besides its prompt.

    Attributes:
        sampling: how tokens are chosen.
        maximum: of the tokens of a reply; None: as many as there is room for.
        count: how many replies.
        stop: texts that end a reply.
        grammar: what the reply must be: the kind, `json`, `regex` or `gbnf`, and the schema, expression or grammar.
        streams: whether the reply comes in parts.
        counts_usage: whether the last part says how many tokens there were.
        logprobs: with how many of the likeliest tokens the probabilities of a reply's tokens come; None: without them.
        tools: that the model may call; None for none.
        variables: of the chat template, such as `enable_thinking`.
        echoes: whether a reply begins with its prompt.
    """

    sampling: Sampling
    maximum: int | None
    count: int
    stop: tuple[str, ...]
    grammar: tuple[str, Any] | None
    streams: bool
    counts_usage: bool
    logprobs: int | None
    tools: Tools | None
    variables: Mapping[str, Any]
    echoes: bool


def asked(given: Mapping[str, Any], is_chat: bool) -> Asked:
    """Returns what a request asks for.

    Raises:
        Refused: a field of a wrong type or out of range, or one that would change the reply and is not supported.
    """
    for name in _NOT_SUPPORTED:
        if given.get(name) not in (None, False, 0, "", []):
            raise invalid(f'"{name}" is not supported')
    options = given.get("stream_options") or {}
    if not isinstance(options, Mapping):
        raise invalid('"stream_options" is not an object')
    maximum = integer(given, "max_completion_tokens", 1, 1 << 31) if is_chat else None
    if maximum is None:
        maximum = integer(given, "max_tokens", int(is_chat), 1 << 31)
    if maximum is None and not is_chat:
        maximum = _DEFAULT_COMPLETION
    return Asked(
        sampling=_sampling(given),
        maximum=maximum,
        count=_count(given),
        stop=_stop(given.get("stop")),
        grammar=_grammar(given),
        streams=flag(given, "stream"),
        counts_usage=flag(options, "include_usage"),
        logprobs=_logprobs(given, is_chat),
        tools=tools_of(given) if is_chat else None,
        variables=_variables(given) if is_chat else {},
        echoes=_echoes(given, is_chat),
    )


def _count(given: Mapping[str, Any]) -> int:
    count = integer(given, "n", 1, _MAX_CHOICES) or 1
    if integer(given, "best_of", 1, _MAX_CHOICES) not in (None, count):
        raise invalid(f'"best_of" is not supported unless it is "n", here {count}')
    return count


def _echoes(given: Mapping[str, Any], is_chat: bool) -> bool:
    echoes = flag(given, "echo")
    if echoes and is_chat:
        raise invalid('"echo" is not supported in conversations')
    if echoes and given.get("logprobs") is not None:
        raise invalid('"echo" with "logprobs" is not supported: the network has no logits of the prompt\'s tokens')
    return echoes


def _variables(given: Mapping[str, Any]) -> Mapping[str, Any]:
    variables = given.get("chat_template_kwargs")
    if variables is not None and not isinstance(variables, dict):
        raise invalid('"chat_template_kwargs" is not an object')
    effort = given.get("reasoning_effort")
    if effort is not None and not isinstance(effort, str):
        raise invalid('"reasoning_effort" is not a text')
    return ({} if effort is None else {"reasoning_effort": effort}) | (variables or {})


def _logprobs(given: Mapping[str, Any], is_chat: bool) -> int | None:
    if not is_chat:
        return integer(given, "logprobs", 0, _MAX_LOGPROBS)
    count = integer(given, "top_logprobs", 0, _MAX_LOGPROBS)
    if flag(given, "logprobs"):
        return count or 0
    if count:
        raise invalid('"top_logprobs" needs "logprobs"')
    return None


def _grammar(given: Mapping[str, Any]) -> tuple[str, Any] | None:
    """Returns what a reply must be: by `response_format`, or as vLLM's and llama.cpp's servers have it."""
    found: list[tuple[str, Any]] = []
    for name, kind in (("guided_regex", "regex"), ("grammar", "gbnf")):
        value = given.get(name)
        if value is not None and not isinstance(value, str):
            raise invalid(f'"{name}" is not a text')
        found += [(kind, value)] if value else []
    match given.get("guided_json"):
        case None:
            pass
        case Mapping() as schema:
            found.append(("json", schema))
        case _:
            raise invalid('"guided_json" is not an object, a JSON schema')
    form = given.get("response_format")
    match form:
        case None | {"type": "text"}:
            pass
        case {"type": "json_schema", "json_schema": {"schema": Mapping() as schema}} | {
            "type": "json_object",
            "schema": Mapping() as schema,
        }:
            found.append(("json", schema))
        case {"type": "json_object"}:
            found.append(("json", None))
        case _:
            raise invalid('"response_format" is none of the types text, json_object, and json_schema with a "schema"')
    if len(found) > 1:
        raise invalid('"response_format", "guided_json", "guided_regex" and "grammar" exclude each other')
    return found[0] if found else None


def _sampling(given: Mapping[str, Any]) -> Sampling:
    temperature = number(given, "temperature", 0, 2)
    made: Sampling = {"temperature": 1.0 if temperature is None else temperature}
    top_p = number(given, "top_p", 0, 1)
    if top_p is not None:
        made["top_p"] = max(top_p, 1e-9)
    if (top_k := integer(given, "top_k", 0, 1 << 31)) is not None and top_k > 0:
        made["top_k"] = top_k
    if (seed := integer(given, "seed", -(1 << 63), (1 << 63) - 1)) is not None:
        made["seed"] = seed & ((1 << 63) - 1)
    if (min_p := number(given, "min_p", 0, 1)) is not None:
        made["min_p"] = min_p
    if (presence := number(given, "presence_penalty", -2, 2)) is not None:
        made["presence_penalty"] = presence
    if (frequency := number(given, "frequency_penalty", -2, 2)) is not None:
        made["frequency_penalty"] = frequency
    if (repetition := number(given, "repetition_penalty", 0.01, 100)) is not None:
        made["repetition_penalty"] = repetition
    if given.get("logit_bias"):
        made["logit_bias"] = _biases(given["logit_bias"])
    return made


def _biases(given: Any) -> dict[int, float]:
    if not isinstance(given, Mapping) or not all(
        key.isascii() and key.isdigit() and len(key) < 10 and is_number(value) and abs(value) <= 100
        for key, value in given.items()
    ):
        raise invalid('"logit_bias" is not an object of numbers from -100 to 100 by tokens')
    return {int(key): float(value) for key, value in given.items()}


def _stop(given: Any) -> tuple[str, ...]:
    if given is None:
        return ()
    found = [given] if isinstance(given, str) else given
    if not isinstance(found, list) or len(found) > _MAX_STOPS or not all(isinstance(each, str) for each in found):
        raise invalid(f'"stop" is not a text, nor a list of up to {_MAX_STOPS} texts')
    return tuple(each for each in found if each)


def messages_of(given: Mapping[str, Any], template: str) -> list[dict[str, Any]]:
    """Returns the messages of a conversation, for a model with this chat template.

    A developer's messages are the system's where the template has no such role.

    Raises:
        Refused: they are missing, of a wrong type, or have something other than text.
    """
    messages = given.get("messages")
    if not isinstance(messages, list) or not messages or not all(isinstance(each, dict) for each in messages):
        raise invalid('"messages" is missing, or not a list of messages')
    return [_message(each, template) for each in messages]


def _message(given: Mapping[str, Any], template: str) -> dict[str, Any]:
    role, content = given.get("role"), given.get("content")
    if not isinstance(role, str):
        raise invalid('a message has no "role"')
    if role not in _ROLES and (not role or role not in template):
        raise invalid(f'a message has the "role" {role[:100]!r}, which is none of {", ".join(_ROLES)}')
    if isinstance(content, list):
        content = "".join(map(_text_of, content))
    if content is None and role in ("system", "developer", "user"):
        raise invalid(f'a message of the "role" {role} has no "content"')
    if content is not None and not isinstance(content, str):
        raise invalid('the "content" of a message is not a text')
    own = "system" if role == "developer" and role not in template else role
    return {**given, "role": own, "content": content or "", **_calls(given.get("tool_calls"))}


def _text_of(part: Any) -> str:
    """Returns the text of a part of a message: what a user wrote, or why a model refused."""
    match part:
        case {"type": "text", "text": str(text)} | {"type": "refusal", "refusal": str(text)}:
            return text
    raise invalid('a message has a part that is not of the type "text" with a "text"')


def _calls(given: Any) -> dict[str, Any]:
    """Returns the calls of an earlier reply with their arguments as objects, which is what chat templates write."""
    if given is None:
        return {}
    if not isinstance(given, list) or not all(
        isinstance(each, dict) and isinstance(each.get("function"), dict) for each in given
    ):
        raise invalid('the "tool_calls" of a message are not a list of calls, each with a "function"')
    made = []
    for call in given:
        arguments = call["function"].get("arguments") or {}
        try:
            arguments = json.loads(arguments) if isinstance(arguments, str) else arguments
        except (ValueError, RecursionError):
            raise invalid('the "arguments" of a call are not JSON') from None
        made.append({**call, "function": {**call["function"], "arguments": arguments}})
    return {"tool_calls": made}


def prompts_of(given: Mapping[str, Any]) -> list[str] | list[list[int]]:
    """Returns the prompts of completions: texts, or tokens.

    Raises:
        Refused: there is none, or they are of another type.
    """
    prompt = given.get("prompt")
    if isinstance(prompt, str):
        return [prompt]
    if isinstance(prompt, list) and prompt:
        if all(isinstance(each, str) for each in prompt):
            return list(prompt)
        rows = [prompt] if all(type(each) is int for each in prompt) else prompt
        if all(isinstance(row, list) and row and all(type(each) is int for each in row) for row in rows):
            return list(rows)
    raise invalid('"prompt" is not a text, a list of tokens, nor a list of these')
