"""What the front ends for HTTP and gRPC share: metadata, loading of networks, admission and time limits of requests."""

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
"""Bytes from which a conversion value by value runs in another thread, so that it does not block the event loop."""


class Service:
    """The networks of a server, and the state that all requests share.

    Attributes:
        repository: the networks.
        metrics: of all networks.
        drains: whether the server is shutting down: it answers the requests that have begun, and refuses new ones.
        timeout: maximum seconds of a request.
        under_way: the number of inference requests without a complete answer.
        arriving: incomplete requests over HTTP.
        parsers: worker processes that parse large requests.
        keys: the accepted API keys.
        regions: registered shared memory.
        tracing: writes a span for each request; None: off.
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
        """Make a service; `control` says whether clients may load and unload networks."""
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
        """Whether the server accepts requests, and each network has a loaded version."""
        return not self.drains and self.repository.is_ready

    def is_model_ready(self, name: str, version: str) -> bool:
        """Return whether the server accepts requests for a network.

        Raises:
            Refused: there is no such network or version.
        """
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
        """Return the index of the repository: all versions of all networks, or with `ready` the loaded ones."""
        return [
            {"name": entry.name, "version": entry.version, "state": entry.state, "reason": entry.reason}
            for entry in self.repository
            if entry.served or not ready
        ]

    async def load(self, name: str) -> None:
        self._check_control()
        await asyncio.shield(self.repository.load(name))  # cancelled halfway, it would leave sessions open

    async def unload(self, name: str) -> None:
        self._check_control()
        await asyncio.shield(self.repository.unload(name))

    def _check_control(self) -> None:
        if not self._control:
            raise Refused(FailureKind.UNSUPPORTED, "clients may not load and unload models here: nnefc serve --control")

    def admissible(self, name: str, version: str) -> tuple[Entry, Served]:
        """Return the network of a request whose head has arrived.

        Raises:
            Refused: the server is shutting down, there is no such network, or too many requests for it wait.
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
        """Count, trace and measure an inference request, whose body may not have arrived, while the block runs.

        The value of the context is the deadline of the request, in the event loop's time.

        Args:
            protocol: "http" or "grpc".
            name: of the network.
            version: of the network; may be empty.
            headers: of the request; `traceparent` names the parent of its span.

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
        """Count a complete request among those that wait and run while the block runs; yields its network.

        Raises:
            Refused: there is no such network, or too many requests for it wait.
        """
        entry, served = self.repository.find(name, version)  # found again: it may have been reloaded meanwhile
        with served.admitted():
            yield entry, served

    @contextmanager
    def unread(self, served: Served) -> Iterator[None]:
        """Count an answer that its client has not read as a running request while the block runs: it takes memory.

        Raises:
            Refused: too many requests wait and run.
        """
        with served.admitted():
            self.under_way += 1
            try:
                yield
            finally:
                self.under_way -= 1

    def seconds_left(self, until: float, asked: object = None) -> float:
        """Return the remaining seconds of a request.

        Args:
            until: its deadline, in the event loop's time.
            asked: the client's own limit in microseconds; anything but a positive integer is none.
        """
        left = until - asyncio.get_running_loop().time()
        if type(asked) is int and asked > 0:
            left = min(left, asked * 1e-6)
        return max(0.0, left)


async def aside(size: int, call: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function that converts `size` bytes value by value: in another thread if these are `LONG` or more."""
    if size < LONG:
        return call(*arguments)
    thread = asyncio.ensure_future(asyncio.to_thread(call, *arguments))
    try:
        return await asyncio.shield(thread)
    finally:  # a thread cannot be cancelled, so the request keeps its admission until the thread ends
        await asyncio.gather(thread, return_exceptions=True)


def _described(tensor: Tensor) -> dict[str, Any]:
    """Return the protocol's description of an input or output; -1 stands for a dynamic dimension."""
    shape = [size if isinstance(size, int) else -1 for size in tensor.shape]
    return {"name": tensor.name, "datatype": DATATYPES[tensor.dtype], "shape": shape}
