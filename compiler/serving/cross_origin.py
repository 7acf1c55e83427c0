"""Implements cross-origin resource sharing (CORS): browsers let pages of the given origins read answers.

Source: https://fetch.spec.whatwg.org/#http-cors-protocol.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

from aiohttp import web

__all__ = ["allow_origins"]

_ANY = "*"
_METHODS = "GET, POST, DELETE, OPTIONS"
_SECONDS = "600"
"""For how long a browser may cache the answer to a preflight request."""


def allow_origins(application: web.Application, origins: Collection[str]) -> None:
    """Let pages of `origins` read all answers of `application`; `*` stands for all origins.

    Before a request with JSON or a key, a browser sends a preflight request, which has no key. The middleware that
    answers preflight requests therefore comes before the one that checks keys.
    """

    def is_allowed(request: web.Request) -> bool:
        origin = request.headers.get("Origin")
        return origin is not None and (_ANY in origins or origin in origins)

    async def preflights(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        wanted = request.headers.get("Access-Control-Request-Method")
        if request.method != "OPTIONS" or wanted is None or not is_allowed(request):
            return await handler(request)
        headers = {"Access-Control-Allow-Methods": _METHODS, "Access-Control-Max-Age": _SECONDS}
        if asked := request.headers.get("Access-Control-Request-Headers"):
            headers["Access-Control-Allow-Headers"] = asked
        return web.Response(status=204, headers=headers)

    preflights.__middleware_version__ = 1  # type: ignore[attr-defined]  # what aiohttp's decorator sets

    async def mark(request: web.Request, response: web.StreamResponse) -> None:
        response.headers["Vary"] = "Origin"
        if is_allowed(request):
            response.headers["Access-Control-Allow-Origin"] = _ANY if _ANY in origins else request.headers["Origin"]

    middlewares: Any = application.middlewares
    middlewares.insert(1, preflights)  # after the one that tracks the state of connections
    application.on_response_prepare.append(mark)
