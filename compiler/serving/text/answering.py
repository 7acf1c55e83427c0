"""Answers requests for texts of any interface: tokenizes prompts, generates replies, and sends them whole or as events.

The interface's :class:`Form` writes the content of the answer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from aiohttp import web

from nnefc.chat import ChatError, TemplateError
from nnefc.chat.grammar import TokenMask
from nnefc.loader import RunError
from nnefc.serving.failures import Refused
from nnefc.serving.text.answers import Form
from nnefc.serving.text.fields import invalid
from nnefc.serving.text.models import TextModel
from nnefc.serving.text.outcomes import Outcomes
from nnefc.serving.text.replies import Calls, Reply
from nnefc.serving.text.request_fields import Asked

__all__ = ["Sending", "answer", "tokens_of"]

Sending = Callable[[web.Request], AbstractAsyncContextManager[Callable[[int], None]]]
"""Aborts the connection of a client that does not read what a block sends, as :meth:`Connection.sending` does."""

_STREAM = {"Content-Type": "text/event-stream", "Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers of a stream of events: proxies must neither cache nor buffer it."""
_SILENCE = 10.0
"""Seconds without an event after which a comment is sent, since proxies and clients close silent connections while a
long prompt is read."""
_COMMENT = b": the model is reading\n\n"


async def answer(
    request: web.Request, model: TextModel, asked: Asked, form: Form, sending: Sending
) -> web.StreamResponse:
    """Answer a request for texts, by a stream of events if it asks for one.

    Args:
        request: of HTTP.
        model: generates the replies.
        asked: the fields of the request.
        form: writes the answer.
        sending: aborts the connection of a client that does not read a stream.

    Raises:
        Refused: a field is wrong, too many requests wait, or a run fails.
    """
    model.check_room(max(1, len(asked.prompts)) * asked.count)
    prompts, masks = await asyncio.to_thread(_prepared, model, asked)
    with Outcomes(model, prompts, masks, asked) as outcomes:
        replies = [Reply(_calls(model, asked)) for _ in range(len(outcomes))]
        if asked.streams:
            return await _streamed(request, outcomes, replies, form, sending)
        async for index, outcome in outcomes.all():
            replies[index].add(outcome)
        return web.json_response(form.whole(replies, outcomes))


def tokens_of(model: TextModel, asked: Asked) -> list[list[int]]:
    """Return the tokens of a request's prompts. Long prompts take a while, so call it in another thread.

    Raises:
        Refused: the chat template refuses the messages, or a number is not a token of the model.
    """
    if not asked.messages:
        return [_tokens(model, each) for each in asked.prompts]
    listed = None if asked.tools is None else asked.tools.listed
    if listed is not None:
        try:
            model.style_of_calls()
        except ChatError as error:
            raise invalid(str(error), "tools") from None
    try:
        return [model.prompts.tokens(asked.messages, listed, asked.variables)]
    except TemplateError as error:
        raise invalid(f"the model's chat template refuses the messages: {error}", asked.source) from None
    except ChatError as error:
        raise invalid(str(error)) from None


def _tokens(model: TextModel, prompt: str | Sequence[int]) -> list[int]:
    library = model.library
    if isinstance(prompt, str):
        return library.tokenize(prompt)
    try:
        library.detokenize(prompt)  # refuses numbers that are no tokens
    except RunError as error:
        raise invalid(f'"prompt": {error}', "prompt") from None
    if not all(token < model.token_count for token in prompt):
        raise invalid(f'"prompt" has a token that is none of the {model.token_count} tokens of the model', "prompt")
    return [*prompt]


def _prepared(model: TextModel, asked: Asked) -> tuple[list[list[int]], list[TokenMask | None]]:
    """Return the tokens of a request's prompts, and for each reply the token mask of its grammar."""
    prompts = tokens_of(model, asked)
    try:
        return prompts, model.masks(_grammar(model, asked), len(prompts) * asked.count)
    except ChatError as error:
        raise invalid(str(error)) from None


def _grammar(model: TextModel, asked: Asked) -> tuple[str, object] | None:
    """Return the grammar of replies: that of the request, or that of tool calls if the request requires a call."""
    if asked.tools is None or asked.tools.choice == "auto":
        return asked.grammar
    if asked.grammar is not None:
        reason = 'a "tool_choice" that requires a call, and a form or grammar of the reply, exclude each other'
        raise invalid(reason, "tool_choice")
    return "lark", model.tool_grammar(asked.tools)


def _calls(model: TextModel, asked: Asked) -> Calls | None:
    """Return how tool calls are recognized in the replies to a request; None without tools."""
    if asked.tools is None:
        return None
    names = frozenset(function["name"] for function in asked.tools.functions)
    return Calls(model.style_of_calls(), names, asked.tools.is_single)


async def _streamed(
    request: web.Request, outcomes: Outcomes, replies: Sequence[Reply], form: Form, sending: Sending
) -> web.StreamResponse:
    response = web.StreamResponse(headers=_STREAM)
    async with sending(request) as sends:

        async def send(events: bytes) -> None:
            if events:
                sends(len(events))
                await response.write(events)

        await response.prepare(request)
        await send(form.begin())
        try:
            async for found in outcomes.all_or_silence(_SILENCE):
                if found is None:
                    await send(_COMMENT)
                else:
                    index, outcome = found
                    await send(form.part(index, replies[index], outcome))
            await send(form.end(replies, outcomes))
        except Refused as error:  # the HTTP status has been sent already
            await send(form.failed(error))
        await response.write_eof()
    return response
