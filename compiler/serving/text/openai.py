"""Implements OpenAI's interface for texts: chat completions, completions, embeddings, and the list of models.

Source: https://platform.openai.com/docs/api-reference. Replies come whole, or in parts as server-sent events.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from typing import Any

from aiohttp import web

from nnefc.chat import ChatError, TemplateError
from nnefc.chat.grammar import TokenMask
from nnefc.loader import RunError
from nnefc.loader.sampling import Sampler
from nnefc.serving.failures import FailureKind, Refused
from nnefc.serving.text.answers import Calls, Form, Reply
from nnefc.serving.text.encodings import embeddings, ranking
from nnefc.serving.text.engine import Job, Outcome
from nnefc.serving.text.fields import invalid
from nnefc.serving.text.logprobs import TokenWatch
from nnefc.serving.text.models import EncoderModel, TextModel, TextModels
from nnefc.serving.text.request_fields import Asked, asked, messages_of, prompts_of

__all__ = ["PREFIX", "add_routes", "failure"]

PREFIX = "/v1/"
"""What all paths begin with."""

_TYPES = {401: "authentication_error", 404: "not_found_error", 429: "rate_limit_error"}
"""Of errors, by the status; others are of the request, and from 500 on of the server."""
_RETRY = (FailureKind.BUSY, FailureKind.UNAVAILABLE)
_Body = Callable[[web.Request], Awaitable[dict[str, Any]]]
_Encoded = Callable[[EncoderModel, dict[str, Any]], Awaitable[dict[str, Any]]]


def add_routes(router: web.UrlDispatcher, models: TextModels, body: _Body) -> None:
    """Adds the paths below `/v1`; `body` reads the JSON of a request."""
    handlers = _Handlers(models, body)
    router.add_get("/v1/models", handlers.list)
    router.add_get("/v1/models/{model}", handlers.model)
    router.add_post("/v1/chat/completions", handlers.chat)
    router.add_post("/v1/completions", handlers.complete)
    router.add_post("/v1/embeddings", handlers.embed)
    router.add_post("/v1/rerank", handlers.rank)


class _Outcomes:
    """The outcomes of one request's replies, as they are made."""

    def __init__(
        self,
        model: TextModel,
        prompts: Sequence[Sequence[int]],
        masks: Sequence[TokenMask | None],
        given: Asked,
        echoes: Sequence[str],
    ) -> None:
        """Submits a job for each reply that may have tokens; `echoes` are texts that replies begin with.

        Raises:
            Refused: a prompt that is empty or too long, a wrong option, or no room.
        """
        self._model = model
        self._queue: asyncio.Queue[tuple[int, Outcome]] = asyncio.Queue()
        self.prompt_tokens = sum(map(len, prompts))
        self.counts: dict[int, int] = {}
        self._count = given.count
        loop = asyncio.get_running_loop()
        jobs = []
        for index, (prompt, number) in enumerate((prompt, n) for prompt in prompts for n in range(given.count)):
            jobs.append(self._job(index, prompt, number, masks[index], given, loop))
        model.check_room(len(jobs))
        self._jobs = jobs
        for index, job in enumerate(jobs):
            if echoes:
                self._queue.put_nowait((index, Outcome(echoes[index // given.count])))
            if given.maximum == 0:
                self._queue.put_nowait((index, Outcome(reason="length")))
            else:
                model.engine.submit(job)

    def _job(
        self,
        index: int,
        prompt: Sequence[int],
        number: int,
        mask: TokenMask | None,
        given: Asked,
        loop: asyncio.AbstractEventLoop,
    ) -> Job:
        context = self._model.engine.context
        if not prompt:
            raise invalid("the prompt has no tokens")
        if len(prompt) >= context:
            reason = f"the prompt has {len(prompt)} tokens, and the model holds {context} with the reply"
            raise invalid(reason, "context_length_exceeded")
        left = context - len(prompt)
        wrong = [token for token in given.sampling.get("logit_bias", {}) if token >= self._model.token_count]
        if wrong:
            raise invalid(f'"logit_bias" has token {wrong[0]}, none of the model\'s {self._model.token_count}')
        watch = None if given.logprobs is None else TokenWatch(given.logprobs)
        sampling = given.sampling.copy()
        sampling["mask"], sampling["watch"] = mask, watch
        if (seed := sampling.get("seed")) is not None:
            sampling["seed"] = seed + number
        try:
            sampler = Sampler(**sampling)
        except RunError as error:
            raise invalid(str(error)) from None

        def emit(outcome: Outcome) -> None:
            loop.call_soon_threadsafe(self._queue.put_nowait, (index, outcome))

        maximum = left if given.maximum is None else min(given.maximum, left)
        marks = {token: text for text, token in self._model.marks.items()} if given.tools else {}
        return Job(prompt, sampler, maximum, self._model.ends, given.stop, emit, marks, watch)

    @property
    def usage(self) -> dict[str, Any]:
        """How many tokens prompts and replies have, and how many of the prompts were not read again."""
        written = sum(self.counts.values())
        cached = sum(job.cached for job in self._jobs[:: self._count])
        return {
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": written,
            "total_tokens": self.prompt_tokens + written,
            "prompt_tokens_details": {"cached_tokens": cached},
        }

    def __len__(self) -> int:
        return len(self._jobs)

    async def all(self) -> AsyncIterator[tuple[int, Outcome]]:
        """Yields the outcomes of all replies until all have ended; those that are not waited for are cancelled.

        Raises:
            Refused: a run failed.
        """
        left = len(self._jobs)
        try:
            while left:
                index, outcome = await self._queue.get()
                if outcome.reason == "error":
                    raise Refused(FailureKind.FAILED, f"the model failed: {outcome.error}")
                self.counts[index] = outcome.count
                left -= outcome.reason is not None
                yield index, outcome
        finally:
            for job in self._jobs:
                self._model.engine.cancel(job)


class _Handlers:
    def __init__(self, models: TextModels, body: _Body) -> None:
        self._models = models
        self._body = body

    async def list(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [model.description for model in self._models]})

    async def model(self, request: web.Request) -> web.Response:
        try:
            return web.json_response(self._models.find(request.match_info["model"]).description)
        except Refused as error:
            return _refused(error)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answered(request, is_chat=True)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        return await self._answered(request, is_chat=False)

    async def embed(self, request: web.Request) -> web.Response:
        return await self._encoded(request, embeddings)

    async def rank(self, request: web.Request) -> web.Response:
        return await self._encoded(request, ranking)

    async def _encoded(self, request: web.Request, answered: _Encoded) -> web.Response:
        try:
            given = await self._body(request)
            model = self._models.encoder(given.get("model"))
            with self._models.under_way():
                return web.json_response(await answered(model, given))
        except Refused as error:
            return _refused(error)

    async def _answered(self, request: web.Request, is_chat: bool) -> web.StreamResponse:
        try:
            given = await self._body(request)
            model = self._models.writer(given.get("model"))
            options = asked(given, is_chat)
            prompts, masks = await asyncio.to_thread(_prompts, model, given, options, is_chat)
            with self._models.under_way():
                outcomes = _Outcomes(model, prompts, masks, options, _echoes(model, given, options))
                replies = [Reply(_calls(model, options)) for _ in range(len(outcomes))]
                form = Form(is_chat, model.name, model.engine.model, options.streams and options.counts_usage)
                if options.streams:
                    return await _streamed(request, outcomes, replies, form, options.counts_usage)
                return await _whole(outcomes, replies, form)
        except Refused as error:
            return _refused(error)


def _prompts(
    model: TextModel, given: Mapping[str, Any], options: Asked, is_chat: bool
) -> tuple[list[list[int]], list[TokenMask | None]]:
    """Returns the prompts of a request, and a mask for each reply."""
    try:
        prompts = _tokens(model, given, options, is_chat)
        return prompts, model.masks(_grammar(model, options), len(prompts) * options.count)
    except TemplateError as error:
        raise invalid(f"the model's chat template refuses the messages: {error}") from None
    except ChatError as error:
        raise invalid(str(error)) from None


def _grammar(model: TextModel, options: Asked) -> tuple[str, Any] | None:
    """Returns the grammar of replies: that of the request, or of calls where it asks for one."""
    if options.tools is None or options.tools.choice == "auto":
        return options.grammar
    if options.grammar is not None:
        raise invalid('a "tool_choice" that requires a call, and a form or grammar of the reply, exclude each other')
    return "lark", model.tool_grammar(options.tools)


def _calls(model: TextModel, options: Asked) -> Calls | None:
    """Returns how calls are found in the replies to a request."""
    if options.tools is None:
        return None
    names = frozenset(function["name"] for function in options.tools.functions)
    return Calls(model.style_of_calls(), names, options.tools.is_single)


def _tokens(model: TextModel, given: Mapping[str, Any], options: Asked, is_chat: bool) -> list[list[int]]:
    if is_chat:
        if options.tools is not None:
            model.style_of_calls()
        listed = None if options.tools is None else options.tools.listed
        messages = messages_of(given, model.template)
        return [model.prompts.tokens(messages, listed, options.variables)]
    texts = prompts_of(given)
    for prompt in texts:
        if not isinstance(prompt, str) and not all(0 <= token < model.token_count for token in prompt):
            raise invalid(f'"prompt" has a token that is none of the {model.token_count} tokens of the model')
    return [model.engine.model.tokenize(each) if isinstance(each, str) else each for each in texts]


def _echoes(model: TextModel, given: Mapping[str, Any], options: Asked) -> list[str]:
    """Returns the texts of the prompts, if replies begin with them."""
    if not options.echoes:
        return []
    return [each if isinstance(each, str) else model.engine.model.detokenize(each) for each in prompts_of(given)]


async def _whole(outcomes: _Outcomes, replies: Sequence[Reply], form: Form) -> web.Response:
    async for index, outcome in outcomes.all():
        replies[index].add(outcome)
    return web.json_response(form.whole(replies, outcomes.usage))


async def _streamed(
    request: web.Request, outcomes: _Outcomes, replies: Sequence[Reply], form: Form, counts_usage: bool
) -> web.StreamResponse:
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"})
    await response.prepare(request)
    begun: set[int] = set()
    try:
        async for index, outcome in outcomes.all():
            part = form.part(index, replies[index], outcome, index not in begun)
            begun.add(index)
            if part is not None:
                await response.write(_event(part))
        if counts_usage:
            await response.write(_event(form.usage(outcomes.usage)))
        await response.write(b"data: [DONE]\n\n")
    except Refused as error:  # the status has been sent
        await response.write(_event(failure(error.kind.http, str(error), error.code)))
    await response.write_eof()
    return response


def _event(content: Mapping[str, Any]) -> bytes:
    return b"data: " + json.dumps(content, ensure_ascii=False).encode() + b"\n\n"


def failure(status: int, message: str, code: str | None = None) -> dict[str, Any]:
    """Returns the content of an answer with an HTTP status that says what failed."""
    kind = _TYPES.get(status, "server_error" if status >= 500 else "invalid_request_error")
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def _refused(error: Refused) -> web.Response:
    headers = {"Retry-After": "1"} if error.kind in _RETRY else None
    content = failure(error.kind.http, str(error), error.code)
    return web.json_response(content, status=error.kind.http, headers=headers)
