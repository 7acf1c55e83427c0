"""Reads and checks the fields of requests for chat completions and completions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nnefc.loader.sampling import Sampling
from nnefc.serving.text.fields import are_tokens, flag, integer, invalid, text
from nnefc.serving.text.message_fields import messages_of
from nnefc.serving.text.sampling_fields import MAX_LOGPROBS, grammar_of, sampling_of, stop_of
from nnefc.serving.text.tool_fields import Tools, tools_of

__all__ = ["MAX_TOKENS", "Asked", "asked_of_chat", "asked_of_completion", "refuse", "variables_of"]

MAX_TOKENS = 1 << 31
"""Upper bound of the maximum length of a reply that a request may give."""
_MAX_CHOICES = 16
_NOT_SUPPORTED = ("suffix", "functions", "function_call", "audio", "prediction")
_DEFAULT_COMPLETION = 16
"""The default maximum length of a completion, as in OpenAI's interface."""


@dataclass(frozen=True)
class Asked:
    """The checked fields of a request for texts, independent of the interface.

    Attributes:
        source: the field of the request that has the messages or prompts, for errors.
        messages: of the conversation that the reply continues; empty for completions.
        prompts: the texts, or lists of tokens, that the replies continue; empty for conversations.
        sampling: the sampling options.
        maximum: maximum tokens of a reply; None: as many as the context holds.
        count: the number of replies to each prompt.
        stop: texts that end a reply.
        grammar: that the reply must follow, as :func:`grammar_of` returns it; None for none.
        streams: whether the replies are sent as a stream of events.
        counts_usage: whether the last event has the counts of tokens.
        logprobs: how many of the likeliest tokens are sent with each token and its log probability; None: no log
            probabilities.
        tools: that the model may call; None for none.
        variables: of the chat template, such as `enable_thinking`.
        echoes: whether a reply begins with its prompt; with `logprobs`, also with the log probabilities of the prompt.
    """

    source: str
    messages: Sequence[Mapping[str, Any]] = ()
    prompts: Sequence[str | Sequence[int]] = ()
    sampling: Sampling = field(default_factory=Sampling)
    maximum: int | None = None
    count: int = 1
    stop: tuple[str, ...] = ()
    grammar: tuple[str, Any] | None = None
    streams: bool = False
    counts_usage: bool = False
    logprobs: int | None = None
    tools: Tools | None = None
    variables: Mapping[str, Any] = field(default_factory=dict)
    echoes: bool = False


def asked_of_chat(given: Mapping[str, Any], template: str) -> Asked:
    """Read a request for a chat completion.

    Args:
        given: the request.
        template: the model's chat template.

    Raises:
        Refused: a field is of a wrong type, out of range, or not supported although it would change the reply.
    """
    refuse(given, _NOT_SUPPORTED)
    if flag(given, "echo"):
        raise invalid('"echo" is not supported in conversations', "echo")
    maximum = integer(given, "max_completion_tokens", 1, MAX_TOKENS)
    count = integer(given, "top_logprobs", 0, MAX_LOGPROBS)
    notes = flag(given, "logprobs")
    if count and not notes:
        raise invalid('"top_logprobs" needs "logprobs"', "top_logprobs")
    return Asked(
        "messages",
        messages_of(given.get("messages"), template),
        sampling=sampling_of(given),
        maximum=_maximum(given, 1) if maximum is None else maximum,
        count=_count(given),
        stop=stop_of(given),
        grammar=grammar_of(given, given.get("response_format"), "response_format"),
        streams=flag(given, "stream"),
        counts_usage=_counts_usage(given),
        logprobs=(count or 0) if notes else None,
        tools=tools_of(given),
        variables=variables_of(given, text(given, "reasoning_effort")),
    )


def asked_of_completion(given: Mapping[str, Any]) -> Asked:
    """Read a request for a completion.

    Raises:
        Refused: as :func:`asked_of_chat`.
    """
    refuse(given, _NOT_SUPPORTED)
    has_maximum = given.get("max_tokens") is not None
    return Asked(
        "prompt",
        prompts=_prompts(given),
        sampling=sampling_of(given),
        maximum=_maximum(given, 0) if has_maximum else _DEFAULT_COMPLETION,
        count=_count(given),
        stop=stop_of(given),
        grammar=grammar_of(given, given.get("response_format"), "response_format"),
        streams=flag(given, "stream"),
        counts_usage=_counts_usage(given),
        logprobs=integer(given, "logprobs", 0, MAX_LOGPROBS),
        echoes=flag(given, "echo"),
    )


def refuse(given: Mapping[str, Any], names: Sequence[str]) -> None:
    """Refuse a request that has one of the fields `names`, unless its value is null, false, 0 or empty.

    Raises:
        Refused: a field has another value.
    """
    for name in names:
        if given.get(name) not in (None, False, 0, "", [], {}):
            raise invalid(f'"{name}" is not supported', name)


def variables_of(given: Mapping[str, Any], effort: str | None) -> Mapping[str, Any]:
    """Return the variables of the chat template: `chat_template_kwargs`, and `effort` as `reasoning_effort`.

    Raises:
        Refused: `chat_template_kwargs` is not an object.
    """
    variables = given.get("chat_template_kwargs")
    if variables is not None and not isinstance(variables, dict):
        raise invalid('"chat_template_kwargs" is not an object', "chat_template_kwargs")
    return ({} if effort is None else {"reasoning_effort": effort}) | (variables or {})


def _maximum(given: Mapping[str, Any], minimum: int) -> int | None:
    """Return the maximum tokens of a reply; None without the field, and for -1, as for other servers of models."""
    return None if given.get("max_tokens") == -1 else integer(given, "max_tokens", minimum, MAX_TOKENS)


def _counts_usage(given: Mapping[str, Any]) -> bool:
    options = given.get("stream_options") or {}
    if not isinstance(options, Mapping):
        raise invalid('"stream_options" is not an object', "stream_options")
    return flag(options, "include_usage")


def _count(given: Mapping[str, Any]) -> int:
    count = integer(given, "n", 1, _MAX_CHOICES) or 1
    if integer(given, "best_of", 1, _MAX_CHOICES) not in (None, count):
        raise invalid(f'"best_of" is not supported unless it is "n", here {count}', "best_of")
    return count


def _prompts(given: Mapping[str, Any]) -> Sequence[str | Sequence[int]]:
    """Return the prompts of a request for completions: texts, or lists of tokens."""
    prompt: Any = given.get("prompt")
    if isinstance(prompt, str) or are_tokens(prompt):
        return [prompt]
    if isinstance(prompt, list) and prompt and all(isinstance(each, str) or are_tokens(each) for each in prompt):
        return prompt
    raise invalid('"prompt" is not a text, a list of tokens, nor a list of these', "prompt")
