"""Implements the protocol over HTTP: JSON, followed by raw bytes.

A request's body is JSON; with the header `Inference-Header-Content-Length` only so many bytes of it are, and the raw
bytes of the inputs that say so follow, in their order. A response is made the same way.

Source: the Open Inference Protocol, «HTTP/REST», and its extensions for binary tensors and for model repositories.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from aiohttp import web
from aiohttp.http_exceptions import ContentEncodingError, TransferEncodingError

from nnefc.loader import Tensor
from nnefc.serving.connections import Connection, Connections, answer_unread, too_large
from nnefc.serving.direct_requests import DirectRequest, formatted_answer
from nnefc.serving.extensions import refuse_extensions
from nnefc.serving.failures import FailureKind, Refused
from nnefc.serving.parsing import LARGE
from nnefc.serving.requests import Service, aside
from nnefc.serving.served import Served
from nnefc.serving.settings import Listening
from nnefc.serving.shared_memory import REGION, Location, Regions, shared_location
from nnefc.serving.text.models import TextModels
from nnefc.serving.text.openai import add_routes
from nnefc.serving.values import DATATYPES, Array, from_numbers, from_raw, to_numbers, to_raw

__all__ = ["application"]

_LOG = logging.getLogger(__name__)

_HEADER_LENGTH = "Inference-Header-Content-Length"
_INDEX_BYTES = 1 << 16
"""What a request for the index may have."""

_AT_ONCE = 2048
"""Values of an output that are written as JSON before other threads have their turn."""


_TRACE = "traceparent"

_KEY_HEADERS = ("x-api-key", "authorization")

_PAYLOAD_ERRORS = (web.RequestPayloadError, ContentEncodingError, TransferEncodingError)

_Sent = TypeVar("_Sent")
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def application(service: Service, where: Listening, connections: Connections, texts: TextModels) -> web.Application:
    """The server's paths."""
    handlers = _Handlers(service, where, connections)
    connections.answer = handlers.infer_directly
    made = web.Application(
        client_max_size=where.largest, middlewares=[_watched(connections), _refusals, _known(service)]
    )
    model = "/v2/models/{model}"
    for location in (model, model + "/versions/{version}"):
        made.router.add_get(location, handlers.model_metadata)
        made.router.add_get(location + "/ready", handlers.model_ready)
        made.router.add_post(location + "/infer", handlers.infer)
    made.router.add_get("/v2", handlers.server_metadata)
    made.router.add_get("/v2/health/live", handlers.live)
    made.router.add_get("/v2/health/ready", handlers.ready)
    made.router.add_post("/v2/repository/index", handlers.index)
    made.router.add_post("/v2/repository/models/{model}/load", handlers.load)
    made.router.add_post("/v2/repository/models/{model}/unload", handlers.unload)
    for location in ("/v2/systemsharedmemory", "/v2/systemsharedmemory/region/{region}"):
        made.router.add_get(location + "/status", handlers.regions)
        made.router.add_post(location + "/unregister", handlers.unregister)
    made.router.add_post("/v2/systemsharedmemory/region/{region}/register", handlers.register)
    made.router.add_get("/metrics", handlers.metrics)
    if len(texts):
        add_routes(made.router, texts, handlers.json_body)
    return made


def _watched(connections: Connections) -> Any:
    """Tells a connection when a request begins and ends."""

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


def _known(service: Service) -> Any:
    """Refuses requests without a key, where keys are wanted."""

    async def middleware(request: web.Request, handler: _Handler) -> web.StreamResponse:
        service.keys.check(
            {name: request.headers[name] for name in _KEY_HEADERS if name in request.headers}, request.path
        )
        return await handler(request)

    middleware.__middleware_version__ = 1  # type: ignore[attr-defined]  # what aiohttp's decorator sets
    return middleware


async def _refusals(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Every failure as JSON with the reason."""
    try:
        return await handler(request)
    except Refused as error:
        return _error(error.kind.http, str(error), _headers(error))
    except web.HTTPException as error:
        return _error(error.status, error.reason, {"Allow": error.headers["Allow"]} if error.status == 405 else None)
    except Exception:
        _LOG.exception("a request failed")
        return _error(FailureKind.FAILED.http, _FAILED)


_refusals.__middleware_version__ = 1  # type: ignore[attr-defined]  # what aiohttp's decorator sets


_FAILED = "the server failed: it has written why to its log"


def _headers(error: Refused) -> dict[str, str] | None:
    if error.kind is FailureKind.UNKNOWN_CLIENT:
        return {"WWW-Authenticate": "Bearer"}
    return {"Retry-After": "1"} if error.kind in (FailureKind.BUSY, FailureKind.UNAVAILABLE) else None


def _error(status: int, text: str, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.json_response({"error": text}, status=status, headers=headers)


class _Handlers:
    """A method for each path."""

    def __init__(self, service: Service, where: Listening, connections: Connections) -> None:
        self._service = service
        self._where = where
        self._connections = connections

    async def live(self, _: web.Request) -> web.Response:
        return web.json_response({"live": True})

    async def ready(self, _: web.Request) -> web.Response:
        is_ready = self._service.is_ready
        return web.json_response({"ready": is_ready}, status=200 if is_ready else 503)

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
        given = _json(await self._body(request, min(_INDEX_BYTES, self._where.largest), until) or b"{}")
        return web.json_response(self._service.index(ready=given.get("ready") is True))

    async def load(self, request: web.Request) -> web.Response:
        await self._service.load(request.match_info["model"])
        return web.json_response({})

    async def unload(self, request: web.Request) -> web.Response:
        await self._service.unload(request.match_info["model"])
        return web.json_response({})

    async def register(self, request: web.Request) -> web.Response:
        until = asyncio.get_running_loop().time() + self._service.timeout
        given = _json(await self._body(request, min(_INDEX_BYTES, self._where.largest), until))
        self._service.regions.register(request.match_info["region"], given)
        return web.json_response({})

    async def unregister(self, request: web.Request) -> web.Response:
        self._service.regions.unregister(request.match_info.get("region"))
        return web.json_response({})

    async def regions(self, request: web.Request) -> web.Response:
        return web.json_response(self._service.regions.status(request.match_info.get("region")))

    async def json_body(self, request: web.Request) -> dict[str, Any]:
        """The body of a request that is an object of JSON."""
        until = asyncio.get_running_loop().time() + self._service.timeout
        return _json(await self._body(request, self._where.largest_json, until))

    async def metrics(self, _: web.Request) -> web.Response:
        text, kind = self._service.metrics.text()
        return web.Response(body=text, headers={"Content-Type": kind})

    async def infer(self, request: web.Request) -> web.StreamResponse:
        length = request.headers.get(_HEADER_LENGTH)
        model, version = request.match_info["model"], request.match_info.get("version", "")
        connection = self._connections.of(request)

        async def sent(parts: Sequence[bytes], until: float) -> web.StreamResponse:
            return await _sent(request, parts, until, connection, self._where.slowest)

        trace = {_TRACE: request.headers[_TRACE]} if _TRACE in request.headers else {}
        with self._service.request("http", model, version, trace) as until:
            body = await self._body(request, self._where.largest, until)
            return await self._answered(model, version, body, length, until, sent)

    async def infer_directly(self, connection: Connection, request: DirectRequest, body: bytes) -> None:
        """The same for a request that has not gone through aiohttp."""
        keeps, slowest = request.keeps_alive, self._where.slowest

        async def sent(parts: Sequence[bytes], until: float) -> None:
            await connection.send(formatted_answer(200, parts, keeps), until, slowest)

        try:
            self._service.keys.check(request.headers)
            with self._service.request("http", request.model, request.version, request.headers) as until:
                if request.size > self._where.largest:
                    raise too_large(self._where.largest)
                await self._answered(request.model, request.version, body, request.header_length, until, sent)
        except Refused as error:
            answer = formatted_answer(error.kind.http, {"error": str(error)}, keeps, _headers(error))
            send = connection.refuse if error.kind is FailureKind.BUSY else connection.send
            await send(answer, asyncio.get_running_loop().time() + self._service.timeout, slowest)
        except Exception:
            _LOG.exception("a request failed")
            answer = formatted_answer(FailureKind.FAILED.http, {"error": _FAILED}, keeps)
            await connection.send(answer, asyncio.get_running_loop().time() + self._service.timeout, slowest)
        if not keeps:
            connection.close()

    async def _answered(
        self,
        model: str,
        version: str,
        body: bytes | bytearray,
        length: str | None,
        until: float,
        sent: Callable[[Sequence[bytes], float], Awaitable[_Sent]],
    ) -> _Sent:
        """Run on the body of a request, and call `sent` with the parts of the answer while the request is admitted."""
        head, raw = _divided(body, length)
        if len(head) > self._where.largest_json:
            raise Refused(
                FailureKind.TOO_LARGE,
                f"the request has more than {self._where.largest_json:,} bytes of JSON: send tensors as raw bytes, "
                "by the extension binary_tensor_data",
            )
        with self._service.admitted(model, version) as (entry, served):
            given, values = await self._parsed(head, until)
            refuse_extensions(_parameters(given))
            strings = len(raw) + sum(map(len, values.values()))
            slow = strings if any(tensor.dtype == "string" for tensor in served.inputs) else _shared_bytes(given)
            inputs = await aside(slow, _inputs, served, given, raw, values, self._service.regions)
            wanted = _Wanted(served, given, self._service.regions)
            seconds = self._service.seconds_left(until, _parameters(given).get("timeout"))
            outputs = await served.run(inputs, seconds)
            reply: dict[str, Any] = {"model_name": entry.name, "model_version": entry.version}
            if isinstance(given.get("id"), str):
                reply["id"] = given["id"]
            texts = [each for each in wanted.tensors if each.name not in wanted.raw or each.dtype == "string"]
            size = sum(outputs[tensor.name].nbytes for tensor in texts)
            parts = await aside(size, _answer, reply, wanted, outputs)
            return await sent(parts, until)

    async def _body(self, request: web.Request, largest: int, until: float) -> bytearray:
        try:
            return await self._connections.of(request).body(request, largest, self._where.slowest, until)
        except _PAYLOAD_ERRORS as error:
            raise Refused(FailureKind.INVALID, f"the body cannot be read: {error}") from None

    async def _parsed(self, head: memoryview, until: float) -> tuple[dict[str, Any], Mapping[int, memoryview]]:
        """A request's JSON, and the values of tensors that another process has read, by the inputs' numbers."""
        if len(head) < LARGE:
            return _json(bytes(head)), {}
        try:
            async with asyncio.timeout_at(until):
                tail, values = await self._service.parsers.parse(b"J", head)
        except TimeoutError:
            raise Refused(FailureKind.LATE, "the request takes longer to be parsed than there is time for it") from None
        return _json(tail), values


def _divided(body: bytes | bytearray, length: str | None) -> tuple[memoryview, memoryview]:
    """The JSON and the raw bytes after it."""
    whole = memoryview(body)
    if length is None:
        return whole, whole[:0]
    if not (length.isascii() and length.isdigit() and len(length) < 20 and int(length) <= len(body)):
        raise Refused(FailureKind.INVALID, f"{_HEADER_LENGTH} is {length[:20]!r}, but the body has {len(body):,} bytes")
    return whole[: int(length)], whole[int(length) :]


def _json(text: bytes | bytearray) -> dict[str, Any]:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise Refused(FailureKind.INVALID, f"the body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise Refused(FailureKind.INVALID, "the body is not an object of JSON")
    return given


def _inputs(
    served: Served, given: Mapping[str, Any], raw: memoryview, values: Mapping[int, memoryview], regions: Regions
) -> dict[str, Array]:
    """The arrays of a request by name."""
    arrays: dict[str, Array] = {}
    location = 0
    for number, each in enumerate(_objects(given, "inputs")):
        tensor, shape = served.input_for(_text(each, "name"), _text(each, "datatype"), _list(each, "shape"))
        if tensor.name in arrays:
            raise Refused(FailureKind.INVALID, f'input "{tensor.name}" is given twice')
        refuse_extensions(_parameters(each), REGION)
        if (shared := shared_location(_parameters(each))) is not None:
            arrays[tensor.name] = from_raw(tensor, shape, regions.read(shared))
            continue
        size = _parameters(each).get("binary_data_size")
        if size is None and number in values:
            arrays[tensor.name] = from_raw(tensor, shape, values[number])
            continue
        if size is None:
            arrays[tensor.name] = from_numbers(tensor, shape, _list(each, "data"))
            continue
        if type(size) is not int or not 0 <= size <= len(raw) - location:
            raise Refused(
                FailureKind.INVALID,
                f'input "{tensor.name}" has binary_data_size {str(size)[:20]!r}, more than the body or no size',
            )
        arrays[tensor.name] = from_raw(tensor, shape, raw[location : location + size])
        location += size
    if location != len(raw):
        raise Refused(FailureKind.INVALID, f"the body has {len(raw) - location:,} bytes more than its inputs")
    return arrays


def _shared_bytes(given: Mapping[str, Any]) -> int:
    """Returns how much of a request is in shared memory."""
    locations = (shared_location(_parameters(each)) for each in _objects(given, "inputs"))
    return sum(location.size for location in locations if location is not None)


class _Wanted:
    """The outputs that a request asks for, which of them as raw bytes, and which in memory that is shared."""

    def __init__(self, served: Served, given: Mapping[str, Any], regions: Regions) -> None:
        asked = _objects(given, "outputs") if given.get("outputs") else []
        self.tensors: Sequence[Tensor] = served.outputs_for([_text(each, "name") for each in asked])
        self.regions = regions
        self.shared: dict[str, Location] = {}
        for each in asked:
            refuse_extensions(_parameters(each), REGION)
            if (shared := shared_location(_parameters(each))) is not None:
                self.shared[each["name"]] = shared
        all_raw = _parameters(given).get("binary_data_output") is True
        own = {each["name"]: _parameters(each).get("binary_data") for each in asked}
        self.raw = {t.name for t in self.tensors if own.get(t.name) is True or (all_raw and own.get(t.name) is None)}


def _answer(reply: dict[str, Any], wanted: _Wanted, outputs: Mapping[str, Array]) -> list[bytes]:
    """The JSON, and the outputs that are raw."""
    blobs: list[bytes] = []
    listed: list[str] = []
    for tensor in wanted.tensors:
        array = outputs[tensor.name]
        one: dict[str, Any] = {"name": tensor.name, "datatype": DATATYPES[tensor.dtype], "shape": list(array.shape)}
        if (shared := wanted.shared.get(tensor.name)) is not None:
            data = to_raw(tensor, array)
            wanted.regions.write(shared, data)
            listed.append(json.dumps(one | {"parameters": shared.described(len(data))}))
        elif tensor.name in wanted.raw:
            blobs.append(to_raw(tensor, array))
            listed.append(json.dumps(one | {"parameters": {"binary_data_size": len(blobs[-1])}}))
        else:
            listed.append(f'{json.dumps(one)[:-1]}, "data": [{", ".join(_texts(tensor, array))}]}}')
    return [f'{json.dumps(reply)[:-1]}, "outputs": [{", ".join(listed)}]}}'.encode(), *blobs]


def _texts(tensor: Tensor, array: Array) -> Iterator[str]:
    """An output's values in JSON, a part after the other: other threads wait while one is made."""
    flat = array.reshape(-1)
    for start in range(0, len(flat), _AT_ONCE):
        yield json.dumps(to_numbers(tensor, flat[start : start + _AT_ONCE]))[1:-1]


async def _sent(
    request: web.Request, parts: Sequence[bytes], until: float, connection: Connection, slowest: int
) -> web.StreamResponse:
    """An answer of JSON and what follows it as it is: written while the request has its location.

    What a client does not read in time is thrown away with the connection, for it is memory.
    """
    response = web.StreamResponse()
    response.content_length = sum(map(len, parts))
    response.content_type = "application/octet-stream" if len(parts) > 1 else "application/json"
    if len(parts) > 1:
        response.headers[_HEADER_LENGTH] = str(len(parts[0]))
    try:
        loop = asyncio.get_running_loop()
        async with asyncio.timeout_at(until) as limit:
            with connection.watched(slowest, lambda: limit.reschedule(loop.time())) as sends:
                await response.prepare(request)
                for part in parts:
                    sends(len(part))
                    await response.write(part)
                await response.write_eof()
    except TimeoutError:
        if request.transport is not None:
            request.transport.abort()
        raise answer_unread() from None
    return response


def _objects(given: Mapping[str, Any], name: str) -> list[dict[str, Any]]:
    found = _list(given, name)
    if not all(isinstance(each, dict) for each in found):
        raise Refused(FailureKind.INVALID, f'"{name}" has an element that is no object')
    return found


def _list(given: Mapping[str, Any], name: str) -> list[Any]:
    if not isinstance(given.get(name), list):
        raise Refused(FailureKind.INVALID, f'"{name}" is missing, or is no list')
    found: list[Any] = given[name]
    return found


def _text(given: Mapping[str, Any], name: str) -> str:
    if not isinstance(given.get(name), str):
        raise Refused(FailureKind.INVALID, f'"{name}" is missing, or is no text')
    found: str = given[name]
    return found


def _parameters(given: Mapping[str, Any]) -> Mapping[str, Any]:
    found = given.get("parameters", {})
    if not isinstance(found, dict):
        raise Refused(FailureKind.INVALID, '"parameters" is no object')
    return found
