"""Implements OpenAI's interface for texts: chat completions, responses, completions, embeddings, the list of models.

Source: https://platform.openai.com/docs/api-reference. Replies come whole, or in parts as server-sent events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

from aiohttp import web

from nnefc.serving.connections import Connections
from nnefc.serving.settings import Listening
from nnefc.serving.text.answering import answer, tokens_of
from nnefc.serving.text.answers import ChatForm, CompletionForm, Form
from nnefc.serving.text.encodings import embeddings, ranking
from nnefc.serving.text.fields import flag, invalid, text
from nnefc.serving.text.models import EncoderModel, TextModel, TextModels
from nnefc.serving.text.request_fields import Asked, asked_of_chat, asked_of_completion
from nnefc.serving.text.response_fields import Entries, asked_of_response, described, entries_of
from nnefc.serving.text.responses import ResponseForm
from nnefc.serving.text.stored_responses import StoredResponses
from nnefc.serving.text.tokens import detokenized, tokenized

__all__ = ["PATHS", "add_routes"]

PATHS = ("/v1/", "/tokenize", "/detokenize")
"""The prefixes of the interface's paths; their errors are in OpenAI's format."""

_MAX_LISTED, _LISTED = 100, 20
"""Entries of a response's input in one page: the maximum, and the default."""
_Body = Callable[[web.Request], Awaitable[dict[str, Any]]]
_Encoded = Callable[[EncoderModel, dict[str, Any]], Awaitable[dict[str, Any]]]


def add_routes(
    router: web.UrlDispatcher, models: TextModels, body: _Body, connections: Connections, where: Listening
) -> None:
    """Add the paths of the interface.

    Args:
        router: of the web application.
        models: the language models.
        body: reads and parses the body of a request, which must be a JSON object.
        connections: of the server.
        where: the limits for requests.
    """
    handlers = _Handlers(models, body, connections, where)
    router.add_get("/v1/models", handlers.list)
    router.add_get("/v1/models/{model}", handlers.model)
    router.add_post("/v1/chat/completions", handlers.chat)
    router.add_post("/v1/completions", handlers.complete)
    router.add_post("/v1/responses", handlers.respond)
    router.add_post("/v1/responses/input_tokens", handlers.count)
    router.add_get("/v1/responses/{response}", handlers.stored)
    router.add_delete("/v1/responses/{response}", handlers.remove)
    router.add_get("/v1/responses/{response}/input_items", handlers.entries)
    router.add_post("/v1/embeddings", handlers.embed)
    router.add_post("/v1/rerank", handlers.rank)
    router.add_post("/tokenize", handlers.tokenize)
    router.add_post("/detokenize", handlers.detokenize)


class _Handlers:
    def __init__(self, models: TextModels, body: _Body, connections: Connections, where: Listening) -> None:
        self._models, self._body = models, body
        self._connections, self._slowest = connections, where.slowest
        self._stored = StoredResponses(where.stored)

    async def list(self, _: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [model.description for model in self._models]})

    async def model(self, request: web.Request) -> web.Response:
        return web.json_response(self._models.find(request.match_info["model"]).description)

    async def chat(self, request: web.Request) -> web.StreamResponse:
        given = await self._body(request)
        model = self._models.writer(given.get("model"))
        asked = asked_of_chat(given, model.template)
        form = ChatForm(model.name, model.library, asked.streams and asked.counts_usage)
        return await self._answered(request, model, asked, form)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        given = await self._body(request)
        model = self._models.writer(given.get("model"))
        asked = asked_of_completion(given)
        form = CompletionForm(model.name, model.library, asked.streams and asked.counts_usage)
        return await self._answered(request, model, asked, form)

    async def respond(self, request: web.Request) -> web.StreamResponse:
        given = await self._body(request)
        model = self._models.writer(given.get("model"))
        entries, conversation = self._entries(given)
        asked = asked_of_response(given, model.template, conversation)
        stores = flag(given, "store", default=True) and self._stored.budget > 0

        def keep(response: Mapping[str, Any]) -> None:
            if stores:
                self._stored.add(response, entries)

        form = ResponseForm(model.name, model.library, described(given, asked, stores), keep)
        return await self._answered(request, model, asked, form)

    async def _answered(self, request: web.Request, model: TextModel, asked: Asked, form: Form) -> web.StreamResponse:
        with self._models.under_way():
            return await answer(request, model, asked, form, self._sending)

    def _sending(self, request: web.Request) -> AbstractAsyncContextManager[Callable[[int], None]]:
        return self._connections.of(request).sending(self._slowest)

    async def count(self, request: web.Request) -> web.Response:
        """Answer with the number of tokens in the input of a request for a response."""
        given = await self._body(request)
        model = self._models.writer(given.get("model"))
        asked = asked_of_response(given, model.template, self._entries(given)[1])
        (tokens,) = await asyncio.to_thread(tokens_of, model, asked)
        return web.json_response({"object": "response.input_tokens", "input_tokens": len(tokens)})

    def _entries(self, given: Mapping[str, Any]) -> tuple[Entries, Entries]:
        """Return the input of a request for a response, and the conversation that ends with this input."""
        entries = entries_of(given)
        return entries, [*self._stored.conversation(text(given, "previous_response_id")), *entries]

    async def stored(self, request: web.Request) -> web.Response:
        """Answer with a stored response."""
        if request.query.get("stream", "false") != "false":
            raise invalid('"stream" is not supported: stored responses are whole', "stream")
        return web.Response(body=self._stored.response(request.match_info["response"]), content_type="application/json")

    async def remove(self, request: web.Request) -> web.Response:
        """Delete a stored response."""
        identifier = request.match_info["response"]
        self._stored.remove(identifier)
        return web.json_response({"id": identifier, "object": "response", "deleted": True})

    async def entries(self, request: web.Request) -> web.Response:
        """Answer with a page of a stored response's input, the last entry first unless `order` is `asc`."""
        identifier, query = request.match_info["response"], request.query
        listed = [
            {"id": f"in_{identifier.removeprefix('resp_')}{index:04}", **entry}
            for index, entry in enumerate(self._stored.entries(identifier))
        ]
        if query.get("order") != "asc":
            listed.reverse()
        limit = query.get("limit", str(_LISTED))
        if not limit.isdecimal() or not 1 <= int(limit[:9]) <= _MAX_LISTED:
            raise invalid(f'"limit" is not an integer from 1 to {_MAX_LISTED}', "limit")
        begin = next((n + 1 for n, entry in enumerate(listed) if entry["id"] == query.get("after")), 0)
        shown = listed[begin : begin + int(limit)]
        first, last = (shown[0]["id"], shown[-1]["id"]) if shown else (None, None)
        more = {"first_id": first, "last_id": last, "has_more": begin + len(shown) < len(listed)}
        return web.json_response({"object": "list", "data": shown, **more})

    async def embed(self, request: web.Request) -> web.Response:
        return await self._encoded(request, embeddings)

    async def rank(self, request: web.Request) -> web.Response:
        return await self._encoded(request, ranking)

    async def _encoded(self, request: web.Request, answered: _Encoded) -> web.Response:
        given = await self._body(request)
        model = self._models.encoder(given.get("model"))
        with self._models.under_way():
            return web.json_response(await answered(model, given))

    async def tokenize(self, request: web.Request) -> web.Response:
        given = await self._body(request)
        return web.json_response(await tokenized(self._models.find(given.get("model")), given))

    async def detokenize(self, request: web.Request) -> web.Response:
        given = await self._body(request)
        return web.json_response(await detokenized(self._models.find(given.get("model")), given))
