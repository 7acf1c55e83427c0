"""Reads the fields that all requests for texts share: sampling options, stop texts, the grammar of the reply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nnefc.loader.sampling import Sampling
from nnefc.serving.text.fields import integer, invalid, is_number, number, text

__all__ = ["MAX_LOGPROBS", "grammar_of", "sampling_of", "stop_of"]

MAX_LOGPROBS = 20
"""Maximum number of likeliest tokens whose log probabilities are sent with each token."""
_MAX_STOPS = 16
_MAX_STOP_SIZE = 1024


def sampling_of(given: Mapping[str, Any]) -> Sampling:
    """Return the sampling options.

    Raises:
        Refused: a field is of a wrong type or out of range.
    """
    temperature = number(given, "temperature", 0, 2)
    made: Sampling = {"temperature": 1.0 if temperature is None else temperature}
    top_p = number(given, "top_p", 0, 1)
    if top_p is not None:
        made["top_p"] = max(top_p, 1e-9)
    if (top_k := integer(given, "top_k", -1, 1 << 31)) is not None and top_k > 0:
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
        raise invalid('"logit_bias" is not an object of numbers from -100 to 100 by tokens', "logit_bias")
    return {int(key): float(value) for key, value in given.items()}


def stop_of(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the texts that end a reply.

    Raises:
        Refused: the field is of a wrong type, or there are too many texts or too long ones.
    """
    stop = given.get("stop")
    if stop is None:
        return ()
    found = [stop] if isinstance(stop, str) else stop
    if (
        not isinstance(found, list)
        or len(found) > _MAX_STOPS
        or not all(isinstance(each, str) and len(each) <= _MAX_STOP_SIZE for each in found)
    ):
        reason = f'"stop" is not a text of up to {_MAX_STOP_SIZE} characters, nor a list of up to {_MAX_STOPS} of these'
        raise invalid(reason, "stop")
    return tuple(each for each in found if each)


def grammar_of(given: Mapping[str, Any], form: Any, form_name: str) -> tuple[str, Any] | None:
    """Return the kind and the source of the grammar that a reply must follow; None for none.

    The request may give it as OpenAI's response format, or by `guided_json`, `guided_regex` and `grammar` as for the
    servers of vLLM and llama.cpp. The kind is `json`, `regex` or `gbnf`; the source of any JSON is None.

    Args:
        given: the request.
        form: the response format, as the field `response_format` of chat completions.
        form_name: the field that `form` is from, for errors.

    Raises:
        Refused: a field is of a wrong type, or several fields give a grammar.
    """
    found: list[tuple[str, Any]] = []
    for name, kind in (("guided_regex", "regex"), ("grammar", "gbnf")):
        value = text(given, name)
        found += [(kind, value)] if value else []
    match given.get("guided_json"):
        case None:
            pass
        case Mapping() as schema:
            found.append(("json", schema))
        case _:
            raise invalid('"guided_json" is not an object, a JSON schema', "guided_json")
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
            reason = f'"{form_name}" is none of the types text, json_object, and json_schema with a "schema"'
            raise invalid(reason, form_name)
    if len(found) > 1:
        raise invalid(f'"{form_name}", "guided_json", "guided_regex" and "grammar" exclude each other')
    return found[0] if found else None
