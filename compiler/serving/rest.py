"""Implements the protocol over HTTP: JSON, followed by raw bytes.

A request's body is JSON. With the header `Inference-Header-Content-Length`, only that many bytes of it are JSON, and
the raw bytes of inputs follow, in the order of the inputs that have a `binary_data_size`. A response is built alike.

Source: the Open Inference Protocol, «HTTP/REST», and its extensions for binary tensors and for model repositories.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError, TransferEncodingError

from nnefc.serving.connections import Connection, Connections, too_large
from nnefc.serving.cross_origin import allow_origins
from nnefc.serving.direct_requests import DirectRequest, formatted_answer
from nnefc.serving.failures import SERVER_FAILED, FailureKind, Refused
from nnefc.serving.parsing import LARGE
from nnefc.serving.repository import Entry
from nnefc.serving.requests import LONG, Service, aside
from nnefc.serving.run_requests import (
    HEADER_LENGTH,
    RunRequest,
    answer,
    divided,
    json_object,
    read_request,
    shared_bytes,
)
from nnefc.serving.served import Served
from nnefc.serving.settings import Listening
from nnefc.serving.shared_memory import REGION
from nnefc.serving.text.answers import failure
from nnefc.serving.text.models import TextModels
from nnefc.serving.text.openai import PATHS, add_routes

__all__ = ["application"]

_LOG = logging.getLogger(__name__)

_INDEX_BYTES = 1 << 16
"""Maximum bytes of a request for the index, or for registering shared memory."""

_TRACE = "traceparent"

_KEY_HEADERS = ("x-api-key", "authorization")

_PAYLOAD_ERRORS = (web.RequestPayloadError, ContentEncodingError, TransferEncodingError)

_Sent = TypeVar("_Sent")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(service: Service, where: Listening, connections: Connections, texts: TextModels) -> web.Application:
    """Return the web application with all paths of the server, and make `connections` pass it direct requests."""
    handlers = _Handlers(service, where, connections)
    connections.answer = handlers.infer_directly
    made = web.Application(
        client_max_size=where.largest, middlewares=[_tracked(connections), _refusals, _authenticated(service)]
    )
    model = "/v2/models/{model}"
    for path in (model, model + "/versions/{version}"):
        made.router.add_get(path, handlers.model_metadata)
        made.router.add_get(path + "/ready", handlers.model_ready)
        made.router.add_post(path + "/infer", handlers.infer)
    made.router.add_get("/v2", handlers.server_metadata)
    made.router.add_get("/v2/health/live", handlers.live)
    made.router.add_get("/v2/health/ready", handlers.ready)
    made.router.add_post("/v2/repository/index", handlers.index)
    made.router.add_post("/v2/repository/models/{model}/load", handlers.load)
    made.router.add_post("/v2/repository/models/{model}/unload", handlers.unload)
    for path in ("/v2/systemsharedmemory", "/v2/systemsharedmemory/region/{region}"):
        made.router.add_get(path + "/status", handlers.regions)
        made.router.add_post(path + "/unregister", handlers.unregister)
    made.router.add_post("/v2/systemsharedmemory/region/{region}/register", handlers.register)
    made.router.add_get("/metrics", handlers.metrics)
    made.router.add_get("/health", handlers.health)
    if len(texts):
        add_routes(made.router, texts, handlers.json_body, connections, where)
        if where.origins:
            allow_origins(made, where.origins)
    return made


def _tracked(connections: Connections) -> Any:
    """Return the middleware that notifies a connection when a request begins and when it is answered."""

    async def middleware(request: web.Request, handler: _Handler) -> web.StreamResponse:
        connection = connections.of(request)
        connection.begun()
        if not request.can_read_body:
            connection.arrived()
        try:
            return await handler(request)
        finally:
            connection.answered(request)

    middleware.__middleware_version__ = 1  # type: ignore[attr-defined]  # what aiohttp's decorator sets
    return middleware


def _authenticated(service: Service) -> Any:
    """Return the middleware that refuses requests without an accepted API key, if there are accepted keys."""

    async def middleware(request: web.Request, handler: _Handler) -> web.StreamResponse:
        service.keys.check(
            {name: request.headers[name] for name in _KEY_HEADERS if name in request.headers}, request.path
        )
        return await handler(request)

    middleware.__middleware_version__ = 1  # type: ignore[attr-defined]  # what aiohttp's decorator sets
    return middleware


async def _refusals(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Answer every failure of a handler with its status, and JSON with the reason."""
    try:
        return await handler(request)
    except Refused as error:
        return _error(request, error.kind.http, str(error), _headers(error), error.code, error.param)
    except web.HTTPException as error:
        headers = {"Allow": error.headers["Allow"]} if error.status == 405 else None
        return _error(request, error.status, error.reason, headers)
    except Exception:
        _LOG.exception("a request failed")
        return _error(request, FailureKind.FAILED.http, SERVER_FAILED)


_refusals.__middleware_version__ = 1  # type: ignore[attr-defined]  # what aiohttp's decorator sets


def _headers(error: Refused) -> dict[str, str] | None:
    if error.kind is FailureKind.UNKNOWN_CLIENT:
        return {"WWW-Authenticate": "Bearer"}
    return {"Retry-After": "1"} if error.kind in (FailureKind.BUSY, FailureKind.UNAVAILABLE) else None


def _error(
    request: web.Request,
    status: int,
    text: str,
    headers: Mapping[str, str] | None = None,
    code: str | None = None,
    param: str | None = None,
) -> web.Response:
    is_openai = request.path.startswith(PATHS)
    content = failure(status, text, code, param) if is_openai else {"error": text}
    return web.json_response(content, status=status, headers=headers)


class _Handlers:
    """The handlers of the protocol's paths."""

    def __init__(self, service: Service, where: Listening, connections: Connections) -> None:
        self._service = service
        self._where = where
        self._connections = connections

    async def live(self, _: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def ready(self, _: web.Request) -> web.Response:
        is_ready = self._service.is_ready
        return web.json_response({"ready": is_ready}, status=200 if is_ready else 503)

    async def health(self, _: web.Request) -> web.Response:
        """Answers probes of servers of language models."""
        is_ready = self._service.is_ready
        return web.json_response({"status": "ok" if is_ready else "unavailable"}, status=200 if is_ready else 503)

    async def server_metadata(self, _: web.Request) -> web.Response:
        return web.json_response(self._service.server_metadata())

    async def model_ready(self, request: web.Request) -> web.Response:
        name = request.match_info["model"]
        is_ready = self._service.is_model_ready(name, request.match_info.get("version", ""))
        return web.json_response({"name": name, "ready": is_ready}, status=200 if is_ready else 503)

    async def model_metadata(self, request: web.Request) -> web.Response:
        found = self._service.model_metadata(request.match_info["model"], request.match_info.get("version", ""))
        return web.json_response(found)

    async def index(self, request: web.Request) -> web.Response:
        until = asyncio.get_running_loop().time() + self._service.timeout
        given = json_object(await self._body(request, min(_INDEX_BYTES, self._where.largest), until) or b"{}")
        return web.json_response(self._service.index(ready=given.get("ready") is True))

    async def load(self, request: web.Request) -> web.Response:
        await self._service.load(request.match_info["model"])
        return web.json_response({})

    async def unload(self, request: web.Request) -> web.Response:
        await self._service.unload(request.match_info["model"])
        return web.json_response({})

    async def register(self, request: web.Request) -> web.Response:
        until = asyncio.get_running_loop().time() + self._service.timeout
        given = json_object(await self._body(request, min(_INDEX_BYTES, self._where.largest), until))
        self._service.regions.register(request.match_info["region"], given)
        return web.json_response({})

    async def unregister(self, request: web.Request) -> web.Response:
        self._service.regions.unregister(request.match_info.get("region"))
        return web.json_response({})

    async def regions(self, request: web.Request) -> web.Response:
        return web.json_response(self._service.regions.status(request.match_info.get("region")))

    async def json_body(self, request: web.Request) -> dict[str, Any]:
        """Return the body of a request, which must be a JSON object."""
        until = asyncio.get_running_loop().time() + self._service.timeout
        return json_object(await self._body(request, self._where.largest_json, until))

    async def metrics(self, _: web.Request) -> web.Response:
        text, kind = self._service.metrics.text()
        return web.Response(body=text, headers={"Content-Type": kind})

    async def infer(self, request: web.Request) -> web.StreamResponse:
        length = request.headers.get(HEADER_LENGTH)
        model, version = request.match_info["model"], request.match_info.get("version", "")
        connection = self._connections.of(request)

        async def send(parts: Sequence[bytes], until: float) -> web.StreamResponse:
            return await _send(request, parts, until, connection, self._where.slowest)

        trace = {_TRACE: request.headers[_TRACE]} if _TRACE in request.headers else {}
        with self._service.request("http", model, version, trace) as until:
            body = await self._body(request, self._where.largest, until)
            return await self._infer(model, version, body, length, until, send)

    def infer_directly(
        self, connection: Connection, request: DirectRequest, body: bytes
    ) -> Coroutine[Any, Any, None] | None:
        """Answer a request that bypasses aiohttp; return None if that is done, else a coroutine that does it."""
        try:
            self._service.keys.check(request.headers)
            ready, parts = self._quick_answer(request, body)
        except Refused as error:
            return self._send_error(connection, request, error)
        except Exception:
            _LOG.exception("a request failed")
            return self._send_error(connection, request, Refused(FailureKind.FAILED, SERVER_FAILED))
        if ready is None or parts is None:
            return self._infer_in_turn(connection, request, body, ready)
        data = formatted_answer(200, parts, request.keeps_alive)
        if not connection.write(data):
            return self._await_client(connection, request, ready.served, len(data))
        if not request.keeps_alive:
            connection.close()
        return None

    def _quick_answer(self, request: DirectRequest, body: bytes) -> tuple[RunRequest | None, list[bytes] | None]:
        """Read a request, and run it if its run is expected to be quick.

        Returns:
            the request, or None if it has not been read; and the parts of its answer, or None if :meth:`_infer_in_turn`
            has to make it.

        Raises:
            Refused: as :meth:`_infer`.
        """
        if self._service.tracing is not None or request.size > min(self._where.largest, self._where.largest_json):
            return None, None
        begin, regions = time.monotonic(), self._service.regions
        entry, served = self._service.admissible(request.model, request.version)
        if not served.may_run_at_once:
            return None, None
        parts = None
        try:
            head, raw = divided(body, request.header_length)
            if regions.allowed and REGION.encode() in bytes(head):
                return None, None
            given = json_object(head)
            if regions.allowed and shared_bytes(given):
                return None, None
            ready = read_request(entry, served, given, raw, {}, regions)
            ready.outputs = served.run_at_once(ready.inputs, ready.names)
            if ready.outputs is not None and ready.text_bytes < LONG:
                parts = answer(ready, regions)
        except Exception as error:
            kind = error.kind if isinstance(error, Refused) else FailureKind.FAILED
            served.metrics.ended("http", kind.word, time.monotonic() - begin)
            raise
        if parts is not None:
            served.metrics.ended("http", "ok", time.monotonic() - begin)
        return ready, parts

    async def _infer_in_turn(
        self, connection: Connection, request: DirectRequest, body: bytes, ready: RunRequest | None
    ) -> None:
        """Answer a request that has to wait for a session, or whose answer is long; `ready` as in :meth:`_infer`."""
        slowest = self._where.slowest

        async def send(parts: Sequence[bytes], until: float) -> None:
            await connection.send(formatted_answer(200, parts, request.keeps_alive), until, slowest)

        try:
            with self._service.request("http", request.model, request.version, request.headers) as until:
                if request.size > self._where.largest:
                    raise too_large(self._where.largest)
                length = request.header_length
                await self._infer(request.model, request.version, body, length, until, send, ready)
        except Refused as error:
            await self._send_error(connection, request, error)
        except Exception:
            _LOG.exception("a request failed")
            await self._send_error(connection, request, Refused(FailureKind.FAILED, SERVER_FAILED))
        else:
            if not request.keeps_alive:
                connection.close()

    async def _send_error(self, connection: Connection, request: DirectRequest, error: Refused) -> None:
        data = formatted_answer(error.kind.http, {"error": str(error)}, request.keeps_alive, _headers(error))
        send = connection.refuse if error.kind is FailureKind.BUSY else connection.send
        await send(data, asyncio.get_running_loop().time() + self._service.timeout, self._where.slowest)
        if not request.keeps_alive:
            connection.close()

    async def _await_client(self, connection: Connection, request: DirectRequest, served: Served, count: int) -> None:
        """Wait until the client has read an answer of `count` bytes, which counts as a running request until then."""
        until = asyncio.get_running_loop().time() + self._service.timeout
        with self._service.unread(served):
            await connection.drained(count, until, self._where.slowest)
        if not request.keeps_alive:
            connection.close()

    async def _infer(
        self,
        model: str,
        version: str,
        body: bytes | bytearray,
        length: str | None,
        until: float,
        send: Callable[[Sequence[bytes], float], Awaitable[_Sent]],
        ready: RunRequest | None = None,
    ) -> _Sent:
        """Read a request's body, run the network, and send the answer while the request is still admitted.

        Args:
            model, version: of the network; the version may be empty.
            body: of the request.
            length: the header `Inference-Header-Content-Length`; None without it.
            until: the deadline, in the event loop's time.
            send: called with the parts of the answer and `until`.
            ready: the request as :meth:`_quick_answer` has read it, perhaps with its results; None: not read yet.

        Returns:
            what `send` returns.

        Raises:
            Refused: the request is wrong, too large or late, or cannot be run.
        """
        with self._service.admitted(model, version) as (entry, served):
            if ready is None or ready.served is not served:
                ready = await self._read(entry, served, body, length, until)
            if ready.outputs is None:
                seconds = self._service.seconds_left(until, ready.timeout)
                ready.outputs = await served.run(ready.inputs, seconds, ready.names)
            return await send(await aside(ready.text_bytes, answer, ready, self._service.regions), until)

    async def _read(
        self, entry: Entry, served: Served, body: bytes | bytearray, length: str | None, until: float
    ) -> RunRequest:
        head, raw = divided(body, length)
        if len(head) > self._where.largest_json:
            raise Refused(
                FailureKind.TOO_LARGE,
                f"the request has more than {self._where.largest_json:,} bytes of JSON: send tensors as raw bytes, "
                "by the extension binary_tensor_data",
            )
        given, values = await self._parsed(head, until)
        strings = len(raw) + sum(map(len, values.values()))
        slow = strings if any(tensor.dtype == "string" for tensor in served.inputs) else shared_bytes(given)
        found: RunRequest = await aside(slow, read_request, entry, served, given, raw, values, self._service.regions)
        return found

    async def _body(self, request: web.Request, largest: int, until: float) -> bytearray:
        try:
            return await self._connections.of(request).body(request, largest, self._where.slowest, until)
        except _PAYLOAD_ERRORS as error:
            raise Refused(FailureKind.INVALID, f"the body cannot be read: {error}") from None

    async def _parsed(self, head: memoryview, until: float) -> tuple[dict[str, Any], Mapping[int, memoryview]]:
        """Parse a request's JSON; return it and the raw bytes of tensors that a worker process has parsed, by input."""
        if len(head) < LARGE:
            return json_object(head), {}
        try:
            async with asyncio.timeout_at(until):
                tail, values = await self._service.parsers.parse(b"J", head)
        except TimeoutError:
            raise Refused(FailureKind.LATE, "the request takes longer to be parsed than there is time for it") from None
        return json_object(tail), values


async def _send(
    request: web.Request, parts: Sequence[bytes], until: float, connection: Connection, slowest: int
) -> web.StreamResponse:
    """Write an answer, its JSON first and then the raw bytes of tensors; arguments as in :meth:`Connection.send`.

    Raises:
        Refused: as :meth:`Connection.sending`.
    """
    response = web.StreamResponse()
    response.content_length = sum(map(len, parts))
    response.content_type = "application/octet-stream" if len(parts) > 1 else "application/json"
    if len(parts) > 1:
        response.headers[HEADER_LENGTH] = str(len(parts[0]))
    async with connection.sending(slowest, until) as sends:
        await response.prepare(request)
        for part in parts:
            sends(len(part))
            await response.write(part)
        await response.write_eof()
    return response
