"""Answers requests for the tokens of texts and conversations, and the texts of tokens, in the form of vLLM's server."""

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
    """Returns the answer to a request for the tokens of a `prompt`, or of `messages` with what comes before the reply.

    Raises:
        Refused: a field is wrong, or an encoder is asked for the tokens of messages.
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
    """Returns the answer to a request for the text of `tokens`.

    Raises:
        Refused: they are no list of tokens.
    """
    tokens = given.get("tokens")
    if not isinstance(tokens, list) or not all(type(each) is int for each in tokens):
        raise invalid('"tokens" is missing, or not a list of integers', "tokens")
    try:
        return {"prompt": await asyncio.to_thread(model.library.detokenize, tokens, skip_control=False)}
    except (RunError, OverflowError) as error:
        raise invalid(f'"tokens": {error}', "tokens") from None
