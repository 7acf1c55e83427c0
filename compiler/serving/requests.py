"""Operations of a server that both protocols call."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib.metadata import version as version_of
from typing import Any

from nnefc.loader import Tensor
from nnefc.serving.api_keys import ApiKeys
from nnefc.serving.failures import FailureKind, Refused
from nnefc.serving.incoming import Incoming
from nnefc.serving.metrics import Metrics
from nnefc.serving.parsing import Parsers
from nnefc.serving.repository import Entry, Repository
from nnefc.serving.served import Served
from nnefc.serving.shared_memory import Regions
from nnefc.serving.tracing import Tracing
from nnefc.serving.values import DATATYPES

__all__ = ["LONG", "Service", "aside"]

_NO_HEADERS: Mapping[str, str] = {}

_EXTENSIONS = ("binary_tensor_data", "model_repository")
_PLATFORM = "nnefc"

LONG = 1 << 18
"""Bytes from which what goes through them value by value is left to another thread, so that others need not wait."""


class Service:
    """A server's networks and its state.

    Attributes:
        drains: whether it is going to end: what has begun is answered, and nothing else.
        timeout: what a request may take, in seconds.
        under_way: how many requests for runs have no answer yet.
        arriving: requests over HTTP that have not arrived whole.
        parsers: of large requests.
        keys: of the clients that are let in.
        regions: memory that clients share.
        tracing: of requests; None without.
    """

    def __init__(
        self,
        repository: Repository,
        metrics: Metrics,
        *,
        timeout: float,
        control: bool,
        arriving: Incoming,
        parsers: Parsers,
        keys: ApiKeys,
        regions: Regions,
        tracing: Tracing | None = None,
    ) -> None:
        """With `control`, clients may load and unload networks."""
        self.repository = repository
        self.arriving = arriving
        self.parsers = parsers
        self.keys = keys
        self.regions = regions
        self.tracing = tracing
        self.metrics = metrics
        self.timeout = timeout
        self._control = control
        self.drains = False
        self.under_way = 0

    @property
    def is_ready(self) -> bool:
        """Whether it takes requests for all its networks."""
        return not self.drains and self.repository.is_ready

    def is_model_ready(self, name: str, version: str) -> bool:
        """Returns whether it takes requests for this network; an unknown one is refused."""
        try:
            self.repository.find(name, version)
        except Refused as error:
            if error.kind is FailureKind.UNAVAILABLE:
                return False
            raise
        return not self.drains

    def server_metadata(self) -> dict[str, Any]:
        extensions = [*_EXTENSIONS, *["system_shared_memory"] * self.regions.allowed]
        return {"name": "nnefc", "version": version_of("nnefc"), "extensions": extensions}

    def model_metadata(self, name: str, version: str) -> dict[str, Any]:
        _, served = self.repository.find(name, version)
        return {
            "name": name,
            "versions": list(self.repository.versions(name)),
            "platform": _PLATFORM,
            "inputs": list(map(_described, served.inputs)),
            "outputs": list(map(_described, served.outputs)),
        }

    def index(self, *, ready: bool) -> list[dict[str, str]]:
        """All networks, or those that are `ready`."""
        return [
            {"name": entry.name, "version": entry.version, "state": entry.state, "reason": entry.reason}
            for entry in self.repository
            if entry.served or not ready
        ]

    async def load(self, name: str) -> None:
        self._check_control()
        await asyncio.shield(self.repository.load(name))  # a client that goes away would leave sessions behind

    async def unload(self, name: str) -> None:
        self._check_control()
        await asyncio.shield(self.repository.unload(name))

    def _check_control(self) -> None:
        if not self._control:
            raise Refused(FailureKind.UNSUPPORTED, "clients may not load and unload models here: nnefc serve --control")

    def admissible(self, name: str, version: str) -> tuple[Entry, Served]:
        """The network of a request that has begun.

        Raises:
            Refused: the server ends, there is no such network, or no room for its requests now.
        """
        if self.drains:
            raise Refused(FailureKind.UNAVAILABLE, "the server is shutting down")
        entry, served = self.repository.find(name, version)
        served.check_room()
        return entry, served

    @contextmanager
    def request(
        self, protocol: str, name: str, version: str, headers: Mapping[str, str] = _NO_HEADERS
    ) -> Iterator[float]:
        """A request for a run, which may not have arrived whole; until when there is time, in the loop's seconds.

        Args:
            protocol: "http" or "grpc".
            name: of the network.
            version: of the network; may be empty.
            headers: of the request; a trace begins with `traceparent`.

        Raises:
            Refused: as :meth:`admissible`.
        """
        _, served = self.admissible(name, version)
        begin, result = time.monotonic(), FailureKind.FAILED.word
        self.under_way += 1
        traced = nullcontext() if self.tracing is None else self.tracing.request(protocol, name, version, headers)
        span = traced.__enter__()
        try:
            yield asyncio.get_running_loop().time() + self.timeout
            result = "ok"
        except Refused as error:
            result = error.kind.word
            raise
        except asyncio.CancelledError:
            result = "cancelled"
            raise
        finally:
            self.under_way -= 1
            if span is not None:
                span.set_attribute("nnefc.result", result)
            traced.__exit__(*sys.exc_info())
            served.metrics.ended(protocol, result, time.monotonic() - begin)

    @contextmanager
    def admitted(self, name: str, version: str) -> Iterator[tuple[Entry, Served]]:
        """The network of a request that has arrived whole: it is among those that run and wait while the block runs.

        Raises:
            Refused: there is no such network, or no room.
        """
        entry, served = self.repository.find(name, version)  # as it is now: it may have been loaded again
        with served.admitted():
            yield entry, served

    @contextmanager
    def unread(self, served: Served) -> Iterator[None]:
        """An answer that its client has not read: memory, which counts as a request that runs while the block runs.

        Raises:
            Refused: there is no room for it.
        """
        with served.admitted():
            self.under_way += 1
            try:
                yield
            finally:
                self.under_way -= 1

    def seconds_left(self, until: float, asked: object = None) -> float:
        """Returns the remaining time of a request; `asked` is the client's limit in microseconds, if any."""
        left = until - asyncio.get_running_loop().time()
        if type(asked) is int and asked > 0:
            left = min(left, asked * 1e-6)
        return max(0.0, left)


async def aside(size: int, call: Callable[..., Any], *arguments: Any) -> Any:
    """Call at once, or in another thread if it goes through so many bytes value by value."""
    if size < LONG:
        return call(*arguments)
    thread = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        return await asyncio.shield(thread)
    finally:  # a thread cannot be cancelled: what it holds counts until it ends
        await asyncio.gather(thread, return_exceptions=True)


def _described(tensor: Tensor) -> dict[str, Any]:
    """An input or output as the protocol says it: -1 is a dynamic size."""
    shape = [size if isinstance(size, int) else -1 for size in tensor.shape]
    return {"name": tensor.name, "datatype": DATATYPES[tensor.dtype], "shape": shape}
