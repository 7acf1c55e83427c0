"""The protocol over gRPC, and gRPC's own health checks.

Inputs come as raw bytes, all of them beside the tensors, or as lists in a field for their type; outputs go as raw
bytes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

import grpc
from google.protobuf.message import DecodeError

from nnefc.loader import Tensor
from nnefc.serving.extensions import refuse_extensions
from nnefc.serving.failures import Kind, Refused
from nnefc.serving.messages import HEALTH, INFERENCE, message
from nnefc.serving.requests import Service, aside
from nnefc.serving.served import Served
from nnefc.serving.values import DATATYPES, Array, from_numbers, from_raw, to_raw

__all__ = ["handlers"]

_LOG = logging.getLogger(__name__)

_CONTENTS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    "INT64": "int64_contents",
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}
"""The field that has values of a type; FP16 and BF16 have none."""

_VALUE_BYTES = 8
"""What a value in a list counts for."""

_SERVING, _NOT_SERVING, _SERVICE_UNKNOWN = 1, 2, 3

_Answer = Callable[[Any, Any], Awaitable[Any]]


def handlers(service: Service, idle: float) -> list[Any]:
    """The two services, for a server of grpc.aio; streams without a request for `idle` seconds are ended."""
    answers = _Answers(service, idle)
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
    }
    methods = {name: _method(INFERENCE, name, answer) for name, answer in single.items()}
    methods["ModelStreamInfer"] = grpc.stream_stream_rpc_method_handler(
        answers.stream,
        response_serializer=message(INFERENCE, "ModelStreamInferResponse").SerializeToString,
    )
    health = {"Check": _method(HEALTH, "HealthCheck", answers.health)}
    return [
        grpc.method_handlers_generic_handler(f"{INFERENCE}.GRPCInferenceService", methods),
        grpc.method_handlers_generic_handler(f"{HEALTH}.Health", health),
    ]


def _method(package: str, name: str, answer: _Answer) -> Any:
    return grpc.unary_unary_rpc_method_handler(
        partial(_answered, answer, message(package, f"{name}Request")),
        response_serializer=message(package, f"{name}Response").SerializeToString,
    )


_FAILED = "the server failed: it has written why to its log"


async def _answered(answer: _Answer, kind: Any, request: bytes, context: Any) -> Any:
    """The answer, or the status of why there is none."""
    try:
        return await answer(_read(kind, request), context)
    except Refused as error:
        await context.abort(grpc.StatusCode[error.kind.grpc], str(error))
    except Exception:  # of which gRPC would tell the client the text
        _LOG.exception("a request failed")
        await context.abort(grpc.StatusCode[Kind.FAILED.grpc], _FAILED)


def _read(kind: Any, request: bytes) -> Any:
    """A message; gRPC would call one that cannot be read a failure of the server's."""
    try:
        return kind.FromString(request)
    except DecodeError as error:
        raise Refused(Kind.INVALID, f"the message cannot be read: {error}") from None


class _Answers:
    """A method for each of the protocol's."""

    def __init__(self, service: Service, idle: float) -> None:
        self._service = service
        self._idle = idle

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

    async def load(self, request: Any, _: Any) -> Any:
        await self._service.load(request.model_name)
        return message(INFERENCE, "RepositoryModelLoadResponse")()

    async def unload(self, request: Any, _: Any) -> Any:
        await self._service.unload(request.model_name)
        return message(INFERENCE, "RepositoryModelUnloadResponse")()

    async def health(self, request: Any, _: Any) -> Any:
        """Of the server if no service is named, else of a network by its name."""
        try:
            is_ready = (
                self._service.is_model_ready(request.service, "")
                if request.service not in ("", f"{INFERENCE}.GRPCInferenceService")
                else self._service.is_ready
            )
        except Refused:
            return message(HEALTH, "HealthCheckResponse")(status=_SERVICE_UNKNOWN)
        return message(HEALTH, "HealthCheckResponse")(status=_SERVING if is_ready else _NOT_SERVING)

    async def infer(self, request: Any, context: Any) -> Any:
        with self._service.request("grpc", request.model_name, request.model_version) as (entry, served, until):
            for each in (request, *request.inputs, *request.outputs):
                refuse_extensions(_parameters(each))
            inputs = await aside(_slow_bytes(served, request), _inputs, served, request)
            wanted = served.outputs_for([each.name for each in request.outputs])
            seconds = self._service.seconds_left(until, request.parameters["timeout"].int64_param or None)
            outputs = await served.run(inputs, seconds)
            strings = sum(outputs[tensor.name].nbytes for tensor in wanted if tensor.dtype == "string")
            raw = await aside(strings, _raw, wanted, outputs)
            return message(INFERENCE, "ModelInferResponse")(
                model_name=entry.name,
                model_version=entry.version,
                id=request.id,
                outputs=[
                    {"name": t.name, "datatype": DATATYPES[t.dtype], "shape": outputs[t.name].shape} for t in wanted
                ],
                raw_output_contents=raw,
            )

    async def stream(self, requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[Any]:
        """Answer one request after the other, in their order; one that is refused does not end the stream.

        A stream counts among the calls that the server takes at a time, so one without requests is ended.
        """
        kind = message(INFERENCE, "ModelStreamInferResponse")
        while True:
            try:
                async with asyncio.timeout(self._idle):
                    given = await anext(requests)
            except StopAsyncIteration:
                return
            except TimeoutError:
                words = f"the stream had no request for {self._idle:g} seconds: begin another one"
                await context.abort(grpc.StatusCode[Kind.LATE.grpc], words)
            answer = message(INFERENCE, "ModelInferResponse")()
            try:
                request = _read(message(INFERENCE, "ModelInferRequest"), given)
                answer.id = request.id
                yield kind(infer_response=await self.infer(request, context))
            except Refused as error:
                yield kind(error_message=str(error), infer_response=answer)
            except Exception:  # of which gRPC would tell the client the text
                _LOG.exception("a request failed")
                yield kind(error_message=_FAILED, infer_response=answer)


def _parameters(given: Any) -> dict[str, object]:
    return {
        name: getattr(value, value.WhichOneof("parameter_choice") or "", None)
        for name, value in given.parameters.items()
    }


def _slow_bytes(served: Served, request: Any) -> int:
    """How much of a request is read value by value: the lists of values, and strings."""
    values = sum(len(found) for each in request.inputs for _, found in each.contents.ListFields())
    has_strings = any(tensor.dtype == "string" for tensor in served.inputs)
    return values * _VALUE_BYTES + (sum(map(len, request.raw_input_contents)) if has_strings else 0)


def _raw(wanted: Sequence[Tensor], outputs: Mapping[str, Array]) -> list[bytes]:
    return [to_raw(tensor, outputs[tensor.name]) for tensor in wanted]


def _inputs(served: Served, request: Any) -> dict[str, Array]:
    """The arrays of a request by name."""
    arrays: dict[str, Array] = {}
    raw = request.raw_input_contents
    if raw and len(raw) != len(request.inputs):
        raise Refused(Kind.INVALID, f"there are {len(request.inputs)} inputs, but raw contents of {len(raw)}")
    for number, each in enumerate(request.inputs):
        tensor, shape = served.input_for(each.name, each.datatype, list(each.shape))
        if tensor.name in arrays:
            raise Refused(Kind.INVALID, f'input "{tensor.name}" is given twice')
        if raw:
            arrays[tensor.name] = from_raw(tensor, shape, raw[number])
        else:
            arrays[tensor.name] = _of_contents(tensor, shape, each)
    return arrays


def _of_contents(tensor: Tensor, shape: tuple[int, ...], given: Any) -> Array:
    field = _CONTENTS.get(given.datatype)
    if field is None:
        raise Refused(Kind.INVALID, f'input "{tensor.name}" of {given.datatype} must come in raw_input_contents')
    values: Sequence[Any] = getattr(given.contents, field)
    return from_numbers(tensor, shape, list(values))
