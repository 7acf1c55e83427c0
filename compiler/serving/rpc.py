"""Implements the protocol over gRPC, and gRPC's own health checks.

A message has the values of its inputs either in `raw_input_contents`, a list of raw bytes apart from the tensors, or in
typed lists within the tensors. Outputs are sent as raw bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from urllib.parse import unquote

import grpc
from google.protobuf.message import DecodeError

from nnefc.loader import Tensor
from nnefc.serving.contents import values_of
from nnefc.serving.extensions import refuse_extensions
from nnefc.serving.failures import SERVER_FAILED, FailureKind, Refused
from nnefc.serving.incoming import Incoming, Unread, network_of
from nnefc.serving.messages import HEALTH, INFERENCE, message
from nnefc.serving.parsing import LARGE
from nnefc.serving.requests import Service, aside
from nnefc.serving.served import Served
from nnefc.serving.settings import Listening
from nnefc.serving.shared_memory import REGION, Location, Regions, shared_location
from nnefc.serving.values import DATATYPES, Array, from_numbers, from_raw, to_raw

__all__ = ["MAX_ARRIVING", "handlers"]

_LOG = logging.getLogger(__name__)

MAX_ARRIVING = 256
"""Maximum number of messages that may be arriving at a time; a stream that waits for its next message counts as one."""

_MORE_UNREAD = 16
"""Unread answers of one address beyond the number of requests that may run and wait, all of which may end together."""

_MAX_OTHER = 1 << 16
"""Maximum bytes of a message that is not an inference request."""

_MAX_PARTS = 1 << 12
"""Maximum fields of an inference request, each a tensor or its raw bytes."""

_SERVING, _NOT_SERVING, _SERVICE_UNKNOWN = 1, 2, 3

_Answer = Callable[[Any, Any], Awaitable[Any]]


def handlers(service: Service, where: Listening, capacity: int) -> list[Any]:
    """Return the handlers of the inference service and the health service, for a server of `grpc.aio`.

    Args:
        service: the networks, and the state that all requests share.
        where: the limits for requests.
        capacity: how many requests may wait and run, for all networks together.
    """
    max_unread = capacity + _MORE_UNREAD if where.per_address else 0
    clients = _Clients(Incoming(where.per_address, MAX_ARRIVING, 0), Unread(max_unread))
    answers = _Answers(service, where, clients)
    single: Mapping[str, _Answer] = {
        "ServerLive": answers.live,
        "ServerReady": answers.ready,
        "ModelReady": answers.model_ready,
        "ServerMetadata": answers.server_metadata,
        "ModelMetadata": answers.model_metadata,
        "ModelInfer": answers.infer,
        "RepositoryIndex": answers.index,
        "RepositoryModelLoad": answers.load,
        "RepositoryModelUnload": answers.unload,
        "SystemSharedMemoryStatus": answers.shared_memory,
        "SystemSharedMemoryRegister": answers.register,
        "SystemSharedMemoryUnregister": answers.unregister,
    }
    methods = {name: _method(INFERENCE, name, answer, clients, where.timeout) for name, answer in single.items()}
    methods["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
        answers.stream,
        response_serializer=message(INFERENCE, "ModelStreamInferResponse").SerializeToString,
    )
    health = {"Check": _method(HEALTH, "HealthCheck", answers.health, clients, where.timeout)}
    return [
        grpc.method_handlers_generic_handler(f"{INFERENCE}.GRPCInferenceService", methods),
        grpc.method_handlers_generic_handler(f"{HEALTH}.Health", health),
    ]


@dataclass(frozen=True)
class _Clients:
    """The messages that are arriving from clients, and the answers that clients have not read."""

    arriving: Incoming
    unread: Unread

    def check(self, address: str | None) -> None:
        """Check that a client may get further answers.

        Raises:
            Refused: the address has too many unread answers.
        """
        if self.unread.has_too_many(address):
            raise Refused(FailureKind.BUSY, "too many answers have not been read: read them first")


def _method(package: str, name: str, answer: _Answer, clients: _Clients, seconds: float) -> Any:
    """Return the handler of a method with one request.

    gRPC sees a method with a stream of requests, since only the messages of a stream can be awaited with a deadline.
    """
    return grpc.stream_unary_rpc_method_handler(
        partial(_answered, answer, message(package, f"{name}Request"), clients, seconds),
        response_serializer=message(package, f"{name}Response").SerializeToString,
    )


async def _answered(
    answer: _Answer, kind: Any, clients: _Clients, seconds: float, requests: AsyncIterator[bytes], context: Any
) -> Any:
    """Await the request of a call and return its answer; abort the call with a status if that fails."""
    try:
        address = _address(context.peer())
        clients.check(address)
        try:
            request = await _next(requests, address, clients.arriving, seconds)
        except StopAsyncIteration:
            raise Refused(FailureKind.INVALID, "there is no message") from None
        except TimeoutError:
            raise Refused(FailureKind.LATE, "the request takes longer to arrive than there is time for it") from None
        made = await answer(_read(kind, request), context)
        end = clients.unread.begin(address)
        context.add_done_callback(lambda _: end())
        return made
    except Refused as error:
        await context.abort(grpc.StatusCode[error.kind.grpc], str(error))
    except Exception:  # gRPC itself would send the exception's text to the client
        _LOG.exception("a request failed")
        await context.abort(grpc.StatusCode[FailureKind.FAILED.grpc], SERVER_FAILED)


async def _next(requests: AsyncIterator[bytes], address: str | None, arriving: Incoming, seconds: float) -> bytes:
    """Return the next message of a call.

    Raises:
        TimeoutError: no message arrives within `seconds`, or the wait was ended in favor of other clients.
        StopAsyncIteration: the client sends no further message.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(seconds) as timeout:
        entry = arriving.begin(address, lambda: timeout.reschedule(loop.time()))
        try:
            return await anext(requests)
        finally:
            entry.end()


def _address(peer: str) -> str | None:
    """Return the key of a peer for limits per address; None if it has no IP address.

    `peer` is the name that gRPC gives it, such as `ipv4:127.0.0.1:5000` and `ipv6:%5B::1%5D:5000`.
    """
    kind, _, tail = unquote(peer).partition(":")
    return network_of(tail.rpartition(":")[0].strip("[]")) if kind in ("ipv4", "ipv6") else None


def _read(kind: Any, request: bytes) -> Any:
    """Return the message of the class `kind`, or an inference request as it is, which is parsed later.

    The server deserializes messages itself because gRPC reports one that cannot be parsed as an internal error.

    Raises:
        Refused: the message cannot be parsed, or is too large.
    """
    if kind is message(INFERENCE, "ModelInferRequest"):
        return request
    if len(request) > _MAX_OTHER:
        raise Refused(FailureKind.TOO_LARGE, f"the message has more than {_MAX_OTHER:,} bytes")
    return _message(kind, request)


def _message(kind: Any, request: bytes) -> Any:
    try:
        return kind.FromString(request)
    except DecodeError as error:
        raise Refused(FailureKind.INVALID, f"the message cannot be read: {error}") from None


class _Answers:
    """The handlers of the protocol's methods, by their names in :func:`handlers`."""

    def __init__(self, service: Service, where: Listening, clients: _Clients) -> None:
        self._service = service
        self._where = where
        self._clients = clients

    async def live(self, _: Any, __: Any) -> Any:
        return message(INFERENCE, "ServerLiveResponse")(live=True)

    async def ready(self, _: Any, __: Any) -> Any:
        return message(INFERENCE, "ServerReadyResponse")(ready=self._service.is_ready)

    async def model_ready(self, request: Any, _: Any) -> Any:
        is_ready = self._service.is_model_ready(request.name, request.version)
        return message(INFERENCE, "ModelReadyResponse")(ready=is_ready)

    async def server_metadata(self, _: Any, __: Any) -> Any:
        return message(INFERENCE, "ServerMetadataResponse")(**self._service.server_metadata())

    async def model_metadata(self, request: Any, _: Any) -> Any:
        found = self._service.model_metadata(request.name, request.version)
        return message(INFERENCE, "ModelMetadataResponse")(**found)

    async def index(self, request: Any, _: Any) -> Any:
        return message(INFERENCE, "RepositoryIndexResponse")(models=self._service.index(ready=request.ready))

    async def shared_memory(self, request: Any, _: Any) -> Any:
        """Return the region of the request's name, or all regions for an empty name."""
        found = {each["name"]: each for each in self._service.regions.status(request.name or None)}
        return message(INFERENCE, "SystemSharedMemoryStatusResponse")(regions=found)

    async def register(self, request: Any, _: Any) -> Any:
        given = {"key": request.key, "offset": request.offset, "byte_size": request.byte_size}
        self._service.regions.register(request.name, given)
        return message(INFERENCE, "SystemSharedMemoryRegisterResponse")()

    async def unregister(self, request: Any, _: Any) -> Any:
        """Unregister the region of the request's name, or all regions for an empty name."""
        self._service.regions.unregister(request.name or None)
        return message(INFERENCE, "SystemSharedMemoryUnregisterResponse")()

    async def load(self, request: Any, _: Any) -> Any:
        await self._service.load(request.model_name)
        return message(INFERENCE, "RepositoryModelLoadResponse")()

    async def unload(self, request: Any, _: Any) -> Any:
        await self._service.unload(request.model_name)
        return message(INFERENCE, "RepositoryModelUnloadResponse")()

    async def health(self, request: Any, _: Any) -> Any:
        """Return the health of the server, or of the network that the request names."""
        try:
            is_ready = (
                self._service.is_model_ready(request.service, "")
                if request.service not in ("", f"{INFERENCE}.GRPCInferenceService")
                else self._service.is_ready
            )
        except Refused:
            return message(HEALTH, "HealthCheckResponse")(status=_SERVICE_UNKNOWN)
        return message(HEALTH, "HealthCheckResponse")(status=_SERVING if is_ready else _NOT_SERVING)

    async def infer(self, given: bytes, context: Any) -> Any:
        return await self._run(*await self._parsed(given), _headers(context))

    async def _parsed(self, given: bytes) -> tuple[Any, list[memoryview], Mapping[int, memoryview]]:
        """Parse an inference request.

        Returns:
            the message without its raw contents; the raw contents; and the values of typed lists as raw bytes, by the
            number of the input, if a worker process has parsed them.

        Raises:
            Refused: `given` is not such a message, or has too many bytes besides the raw contents.
        """
        kind = message(INFERENCE, "ModelInferRequest")
        parts, raw = _divided(given)
        size = sum(map(len, parts))
        if size > self._where.largest_json:
            raise Refused(
                FailureKind.TOO_LARGE,
                f"the message has more than {self._where.largest_json:,} bytes besides raw_input_contents: send "
                "tensors there",
            )
        tail = b"".join(parts)
        if size < LARGE:
            return _message(kind, tail), raw, {}
        try:
            async with asyncio.timeout(self._service.timeout):
                tail, values = await self._service.parsers.parse(b"G", tail)
        except TimeoutError:
            raise Refused(FailureKind.LATE, "the request takes longer to be parsed than there is time for it") from None
        return _message(kind, tail), raw, values

    async def _run(
        self, request: Any, raw: list[memoryview], values: Mapping[int, memoryview], headers: Mapping[str, str]
    ) -> Any:
        name, version = request.model_name, request.model_version
        with (
            self._service.request("grpc", name, version, headers) as until,
            self._service.admitted(name, version) as (entry, served),
        ):
            regions = self._service.regions
            refuse_extensions(_parameters(request))
            shared = {each.name: _location(each) for each in request.outputs}
            strings = sum(map(len, (*raw, *values.values())))
            slow = strings if any(tensor.dtype == "string" for tensor in served.inputs) else 0
            locations = list(map(_location, request.inputs))
            slow += sum(location.size for location in locations if location is not None)
            inputs = await aside(slow, _inputs, served, request, raw, values, locations, regions)
            wanted = served.outputs_for([each.name for each in request.outputs])
            seconds = self._service.seconds_left(until, request.parameters["timeout"].int64_param or None)
            outputs = await served.run(inputs, seconds, served.selection(wanted))
            strings = sum(outputs[tensor.name].nbytes for tensor in wanted if tensor.dtype == "string")
            written = sum(outputs[tensor.name].nbytes for tensor in wanted if shared.get(tensor.name) is not None)
            made, parameters = await aside(strings + written, _outputs, wanted, outputs, shared, regions)
            return message(INFERENCE, "ModelInferResponse")(
                model_name=entry.name,
                model_version=entry.version,
                id=request.id,
                outputs=[
                    {"name": t.name, "datatype": DATATYPES[t.dtype], "shape": outputs[t.name].shape, "parameters": own}
                    for t, own in zip(wanted, parameters, strict=True)
                ],
                raw_output_contents=made,
            )

    async def stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        """Answer the requests of a stream one after the other; a refused request does not end the stream.

        A stream without a request for `Listening.idle` seconds is ended, since it takes one of the server's concurrent
        calls.
        """
        address = _address(context.peer())
        while True:
            try:
                self._clients.check(address)
                given = await _next(requests, address, self._clients.arriving, self._where.idle)
            except StopAsyncIteration:
                return
            except TimeoutError:
                words = (
                    f"the stream had no request for {self._where.idle:g} seconds, or too many wait: begin another one"
                )
                await context.abort(grpc.StatusCode[FailureKind.LATE.grpc], words)
            except Refused as error:
                await context.abort(grpc.StatusCode[error.kind.grpc], str(error))
            made = await self._streamed(given, _headers(context))
            end = self._clients.unread.begin(address)
            try:
                yield made
            finally:
                end()

    async def _streamed(self, given: bytes, headers: Mapping[str, str]) -> Any:
        """Return the response to one request of a stream, or a message with the error."""
        kind = message(INFERENCE, "ModelStreamInferResponse")
        answer = message(INFERENCE, "ModelInferResponse")()
        try:
            request, raw, values = await self._parsed(given)
            answer.id = request.id
            return kind(infer_response=await self._run(request, raw, values, headers))
        except Refused as error:
            return kind(error_message=str(error), infer_response=answer)
        except Exception:  # gRPC itself would send the exception's text to the client
            _LOG.exception("a request failed")
            return kind(error_message=SERVER_FAILED, infer_response=answer)


def _headers(context: Any) -> dict[str, str]:
    """Return the text metadata of a call, without binary metadata."""
    return {key: value for key, value in context.invocation_metadata() or () if isinstance(value, str)}


def _parameters(given: Any) -> dict[str, object]:
    return {
        name: getattr(value, value.WhichOneof("parameter_choice") or "", None)
        for name, value in given.parameters.items()
    }


def _divided(request: bytes) -> tuple[list[memoryview], list[memoryview]]:
    """Separate the raw contents of a serialized inference request from its other fields, without copying.

    Returns the serialized other fields, and the raw contents in their order.

    Raises:
        Refused: `request` is not a message, or has too many fields.
    """
    whole = memoryview(request)
    parts: list[memoryview] = []
    raw: list[memoryview] = []
    start = 0
    while start < len(whole):
        if len(parts) + len(raw) == _MAX_PARTS:
            raise Refused(FailureKind.INVALID, f"the message has more than {_MAX_PARTS:,} fields")
        tag, begin = _varint(whole, start)
        if tag & 7 == _BYTES:
            length, begin = _varint(whole, begin)
            end = begin + length
        elif tag & 7 == _VARINT:
            end = _varint(whole, begin)[1]
        else:
            end = begin + _WIDTHS.get(tag & 7, len(whole) + 1)
        if end > len(whole):
            raise Refused(FailureKind.INVALID, "the message cannot be read")
        if tag == _RAW_CONTENTS:
            raw.append(whole[begin:end])
        else:
            parts.append(whole[start:end])
        start = end
    return parts, raw


_VARINT, _BYTES = 0, 2
_WIDTHS = {1: 8, 5: 4}
"""Bytes of fields of a fixed size, by wire type."""
_RAW_CONTENTS = 7 << 3 | _BYTES
_MAX_DIGITS = 10


def _varint(whole: memoryview, start: int) -> tuple[int, int]:
    """Return the base-128 varint at an offset, and the offset of its end."""
    found = 0
    for digit, byte in enumerate(whole[start : start + _MAX_DIGITS]):
        found |= (byte & 127) << 7 * digit
        if byte < 128:
            return found, start + digit + 1
    raise Refused(FailureKind.INVALID, "the message cannot be read")


def _location(tensor: Any) -> Location | None:
    """Return the location of a request's tensor in shared memory; None if it is not there."""
    parameters = _parameters(tensor)
    refuse_extensions(parameters, REGION)
    return shared_location(parameters)


def _outputs(
    wanted: Sequence[Tensor],
    outputs: Mapping[str, Array],
    shared: Mapping[str, Location | None],
    regions: Regions,
) -> tuple[list[bytes], list[dict[str, Any]]]:
    """Return the raw contents and the parameters of each output; write outputs to shared memory, without contents."""
    raw, parameters = [], []
    for tensor in wanted:
        data, location = to_raw(tensor, outputs[tensor.name]), shared.get(tensor.name)
        if location is not None:
            regions.write(location, data)
        raw.append(data if location is None else b"")
        parameters.append({} if location is None else _choices(location.described(len(data))))
    return raw, parameters


def _choices(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """Return parameters as messages."""
    kind = message(INFERENCE, "InferParameter")
    return {
        name: kind(**{"string_param" if isinstance(value, str) else "int64_param": value})
        for name, value in parameters.items()
    }


def _inputs(
    served: Served,
    request: Any,
    given: Sequence[memoryview],
    values: Mapping[int, memoryview],
    locations: Sequence[Location | None],
    regions: Regions,
) -> dict[str, Array]:
    """Return the arrays of a request by name.

    Args:
        served: the network.
        request: the message.
        given: raw contents, one for each input that is not in shared memory; or empty.
        values: raw bytes of typed lists that a worker process has parsed, by the number of the input.
        locations: of each input in shared memory, or None.
        regions: registered shared memory.

    Raises:
        Refused: an input is wrong, missing its values, or given twice.
    """
    arrays: dict[str, Array] = {}
    count, raw = locations.count(None), iter(given)
    if given and len(given) != count:
        raise Refused(FailureKind.INVALID, f"there are {count} inputs, but raw contents of {len(given)}")
    for number, each in enumerate(request.inputs):
        tensor, shape = served.input_for(each.name, each.datatype, list(each.shape))
        if tensor.name in arrays:
            raise Refused(FailureKind.INVALID, f'input "{tensor.name}" is given twice')
        if (location := locations[number]) is not None:
            arrays[tensor.name] = from_raw(tensor, shape, regions.read(location))
        elif given:
            arrays[tensor.name] = from_raw(tensor, shape, next(raw))
        elif number in values:
            arrays[tensor.name] = from_raw(tensor, shape, values[number])
        elif (listed := values_of(each)) is not None:
            arrays[tensor.name] = from_numbers(tensor, shape, list(listed))
        else:
            raise Refused(
                FailureKind.INVALID, f'input "{tensor.name}" of {each.datatype} must come in raw_input_contents'
            )
    return arrays
