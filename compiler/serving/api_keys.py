"""Authenticates clients by the operator's API keys, over HTTP and gRPC."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

import grpc

from nnefc.serving.failures import FailureKind, Refused

__all__ = ["ApiKeys", "KeyInterceptor"]

_BEARER = "bearer "
_WORDS = "this server wants a key: send the header `Authorization: Bearer KEY`, or `X-API-Key: KEY`"

_OPEN_PATHS = ("/v2/health/", "/health")
_OPEN_CALLS = (
    "/grpc.health.v1.Health/",
    "/inference.GRPCInferenceService/ServerLive",
    "/inference.GRPCInferenceService/ServerReady",
)
"""Methods of health probes, which need no key."""


class ApiKeys:
    """The accepted keys. Only their hashes are kept, so that the time of a comparison reveals nothing about a key."""

    def __init__(self, keys: Iterable[str]) -> None:
        self._known = {_hashed(key) for key in keys}

    def check(self, headers: Mapping[str, str], path: str = "") -> None:
        """Check the key of a request; without any accepted keys, every request passes.

        Args:
            headers: of the request, with names in lower case.
            path: of the request; those of health probes need no key.

        Raises:
            Refused: the request has no accepted key.
        """
        if not self._known or path.startswith(_OPEN_PATHS):
            return
        key = headers.get("x-api-key", "")
        authorization = headers.get("authorization", "")
        if authorization[: len(_BEARER)].lower() == _BEARER:
            key = authorization[len(_BEARER) :].strip()
        if _hashed(key) not in self._known:
            raise Refused(FailureKind.UNKNOWN_CLIENT, _WORDS)


def _hashed(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


class KeyInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[misc]  # grpc has no types
    """Checks the keys of gRPC calls, which are metadata with the names of the HTTP headers."""

    def __init__(self, keys: ApiKeys) -> None:
        self._keys = keys

    async def intercept_service(self, continuation: Callable[[Any], Awaitable[Any]], details: Any) -> Any:
        """Return the handler of a call, or a handler that refuses the call if it has no accepted key."""
        found = await continuation(details)
        if found is None or details.method.startswith(_OPEN_CALLS):
            return found
        try:
            self._keys.check({key: value for key, value in details.invocation_metadata if isinstance(value, str)})
        except Refused as error:
            return _refusing(found, error)
        return found


def _refusing(handler: Any, error: Refused) -> Any:
    """Return a handler with the same streaming kind as `handler` that answers with the error."""

    async def refused(_: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode[error.kind.grpc], str(error))

    if handler.response_streaming:
        return grpc.stream_stream_rpc_method_handler(refused)
    return grpc.stream_unary_rpc_method_handler(refused)
