"""Answers requests to tokenize texts or conversations and to detokenize tokens, in the format of vLLM's server."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from nnefc.loader import RunError
from nnefc.serving.text.answering import tokens_of
from nnefc.serving.text.fields import flag, invalid, text
from nnefc.serving.text.models import EncoderModel, TextModel
from nnefc.serving.text.request_fields import asked_of_chat

__all__ = ["detokenized", "tokenized"]


async def tokenized(model: TextModel | EncoderModel, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request to tokenize a `prompt`, or `messages` with the beginning of the reply.

    Raises:
        Refused: a field is wrong, or `messages` are given for an encoder.
    """
    if isinstance(model, TextModel) and given.get("messages") is not None:
        (tokens,) = await asyncio.to_thread(tokens_of, model, asked_of_chat(given, model.template))
    else:
        prompt, whole = text(given, "prompt"), flag(given, "add_special_tokens", default=True)
        if prompt is None:
            raise invalid('"prompt" is missing: a text', "prompt")
        tokens = await asyncio.to_thread(model.library.tokenize, prompt, begin_and_end=whole)
    return {"count": len(tokens), "max_model_len": model.description["context_length"], "tokens": tokens}


async def detokenized(model: TextModel | EncoderModel, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer to a request to detokenize `tokens`.

    Raises:
        Refused: `tokens` is not a list of tokens of the model.
    """
    tokens = given.get("tokens")
    if not isinstance(tokens, list) or not all(type(each) is int for each in tokens):
        raise invalid('"tokens" is missing, or not a list of integers', "tokens")
    try:
        return {"prompt": await asyncio.to_thread(model.library.detokenize, tokens, skip_control=False)}
    except (RunError, OverflowError) as error:
        raise invalid(f'"tokens": {error}', "tokens") from None
