"""Starts a server's HTTP and gRPC listeners, runs it until a signal, and shuts it down."""

from __future__ import annotations

import asyncio
import signal
import ssl
from collections.abc import Callable, Mapping
from pathlib import Path

import grpc
from aiohttp import web

from nnefc.loader.pool import usable_processors
from nnefc.serving.api_keys import ApiKeys, KeyInterceptor
from nnefc.serving.connections import Connections
from nnefc.serving.http_log import http_log
from nnefc.serving.incoming import Incoming
from nnefc.serving.metrics import Metrics
from nnefc.serving.parsing import Parsers
from nnefc.serving.repository import Repository
from nnefc.serving.requests import Service
from nnefc.serving.rest import application
from nnefc.serving.rpc import MAX_ARRIVING, handlers
from nnefc.serving.served import Samples
from nnefc.serving.settings import Listening, Policy
from nnefc.serving.shared_memory import Regions
from nnefc.serving.text.models import TextModels
from nnefc.serving.tracing import Tracing

__all__ = ["Server"]

_ENDING = (signal.SIGTERM, signal.SIGINT)

_OTHER_CALLS = 64
"""Concurrent gRPC calls in addition to inference requests: health, metadata."""

_PAUSE = 0.01
"""Seconds between two checks whether requests and runs have ended."""

_HANDLER_SECONDS = 1.0
"""Time that handlers get after the drain, before they are cancelled."""

_CANCEL_SECONDS = 1.0
"""Time that cancelled runs get to end: a run ends after its current kernel."""

_HANDSHAKE_SECONDS = 10.0
"""Maximum time of a TLS handshake, and of opening a gRPC connection."""

_MAX_PARSERS = 4
"""Maximum number of worker processes that parse large requests."""

_BACKLOG = 1024
"""Connections that the system queues until the server accepts them."""

_NEVER = 1e8
"""Seconds that are longer than any server runs."""

_FEW_FILES, _MANY_FILES = 128, 1 << 17


class Server:
    """A server of networks and language models, in one event loop.

    Attributes:
        service: the networks, and the state that all requests share.
        texts: the language models.
        port, grpc_port: on which it listens; None before the start, and for a protocol that is off.
    """

    def __init__(
        self,
        paths: Mapping[tuple[str, str], Path],
        policy: Policy,
        where: Listening,
        samples: Samples,
        tracing: Tracing | None = None,
        texts: Mapping[str, Path] | None = None,
    ) -> None:
        """Prepare a server; :meth:`start` starts it.

        Args:
            paths: libraries or models of networks, by name and version.
            policy: how networks are loaded, batched and limited.
            where: where the server listens, and its limits for requests.
            samples: makes inputs for the first run of a network.
            tracing: writes a span for each request; None: off.
            texts: libraries or models of language models, by name.
        """
        self._where = where
        self._policy = policy
        self.port: int | None = None
        self.grpc_port: int | None = None
        metrics = Metrics()
        self._repository = Repository(paths, policy, metrics, samples)
        self.texts = TextModels(texts or {}, policy, metrics)
        self._parsers = Parsers(min(_MAX_PARSERS, len(usable_processors())))
        self.service = Service(
            self._repository,
            metrics,
            timeout=where.timeout,
            control=where.control,
            arriving=Incoming(where.per_address, _max_connections(), max(where.max_incoming, where.largest)),
            parsers=self._parsers,
            keys=ApiKeys(where.api_keys),
            tracing=tracing,
            regions=Regions(where.shared_memory, where.largest),
        )
        self._runner: web.AppRunner | None = None
        self._listener: asyncio.Server | None = None
        self._grpc: grpc.aio.Server | None = None

    async def start(self) -> None:
        """Load all networks and language models, then listen.

        Raises:
            LoadError, RunError: a library cannot be served.
            OSError: a port is taken, or there is no such address.
        """
        await asyncio.to_thread(self._repository.open)
        await asyncio.to_thread(self.texts.open)
        where = self._where
        if where.port is not None:
            connections = Connections(lambda: self._handler(), self.service.arriving, where.idle)
            runner = web.AppRunner(
                application(self.service, where, connections, self.texts),
                access_log=None,
                logger=http_log(),
                handler_cancellation=True,
                shutdown_timeout=_HANDLER_SECONDS,
                keepalive_timeout=_NEVER,  # the class Connection closes idle connections
            )
            await runner.setup()
            self._runner = runner
            tls = _tls(where)
            self._listener = await asyncio.get_running_loop().create_server(
                connections,
                where.host,
                where.port,
                ssl=tls,
                backlog=_BACKLOG,
                ssl_handshake_timeout=None if tls is None else _HANDSHAKE_SECONDS,
            )
            self.port = self._listener.sockets[0].getsockname()[1]
        if where.grpc_port is not None:
            self._grpc = self._grpc_server()
            self.grpc_port = await self._listen(self._grpc, where.grpc_port)
            await self._grpc.start()

    async def run(self, on_log: Callable[[str], None]) -> bool:
        """Serve until SIGTERM or SIGINT; a second signal ends the process at once.

        Args:
            on_log: called with each line for the log.

        Returns:
            whether all runs have ended. A run that could not be cancelled goes on in its thread, and the process waits
            for that thread at its end unless it ends by `os._exit`.

        Raises:
            LoadError, RunError, OSError: as :meth:`start`.
        """
        ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in _ENDING:
            loop.add_signal_handler(number, ended.set)
        await self.start()
        for entry in self._repository:
            if (served := entry.served) is not None:
                batches = f", in batches of up to {served.rows} rows" if served.rows > 1 else ""
                on_log(f"{entry.name}, version {entry.version}: {entry.path}, for {served.target}{batches}")
                for note in served.notes:
                    on_log(f"note: {entry.name}: {note}")
        for model in self.texts:
            on_log(f"{model.name}: {model.summary}")
        on_log(f"listening: {self.listening}")
        await ended.wait()
        for number in _ENDING:
            loop.remove_signal_handler(number)
        on_log(f"shutting down: {self.service.under_way} requests under way")
        left = await self.stop()
        runs = "a run goes on that takes" if left == 1 else f"{left} runs go on that take"
        on_log(f"ended, though {runs} longer than the drain" if left else "ended")
        return not left

    @property
    def listening(self) -> str:
        """The protocols with their addresses, such as `http 127.0.0.1:8000, grpc 127.0.0.1:8001`."""
        protocols = ("http", "grpc") if self._where.certificate is None else ("https", "grpcs")
        ports = zip(protocols, (self.port, self.grpc_port), strict=True)
        return ", ".join(f"{name} {self._where.host}:{port}" for name, port in ports if port is not None)

    def _handler(self) -> asyncio.Protocol:
        """Return aiohttp's protocol for a new connection."""
        if self._runner is None or self._runner.server is None:
            raise RuntimeError("the server has not started")
        made: asyncio.Protocol = self._runner.server()
        return made

    def _grpc_server(self) -> grpc.aio.Server:
        networks = sum(1 for _ in self._repository)
        capacity = networks * (self._policy.waiting + self._policy.sessions * self._policy.max_rows)
        maximum = capacity + _OTHER_CALLS + MAX_ARRIVING
        options = [
            ("grpc.max_receive_message_length", self._where.largest),
            ("grpc.max_send_message_length", -1),
            ("grpc.compression_enabled_algorithms_bitset", 1),  # none: gRPC checks the size only after unpacking
            ("grpc.so_reuseport", 0),  # a second server on the port gets an error instead of half of the connections
            ("grpc.max_connection_idle_ms", int(1e3 * self._where.idle)),
            ("grpc.server_handshake_timeout_ms", int(1e3 * _HANDSHAKE_SECONDS)),
        ]
        interceptors = [KeyInterceptor(self.service.keys)] if self._where.api_keys else []
        server = grpc.aio.server(options=options, maximum_concurrent_rpcs=maximum, interceptors=interceptors)
        server.add_generic_rpc_handlers(handlers(self.service, self._where, capacity))
        return server

    async def _listen(self, server: grpc.aio.Server, port: int) -> int:
        where = self._where
        address = f"[{where.host}]:{port}" if ":" in where.host else f"{where.host}:{port}"
        try:
            if where.certificate is None or where.key is None:
                return int(server.add_insecure_port(address))
            pair = where.key.read_bytes(), where.certificate.read_bytes()
            return int(server.add_secure_port(address, grpc.ssl_server_credentials([pair])))
        except RuntimeError as error:
            raise OSError(f"gRPC cannot listen on {address}") from error

    async def stop(self) -> int:
        """Refuse new requests, answer those under way within the time of the drain, and stop listening.

        Returns the number of runs that have not ended although they were cancelled; if there are any, the networks stay
        loaded.
        """
        self.service.drains = self.texts.drains = True
        loop = asyncio.get_running_loop()
        until = loop.time() + self._where.drain
        while (self.service.under_way or self.texts.active) and loop.time() < until:
            await asyncio.sleep(_PAUSE)
        if self._grpc is not None:
            await self._grpc.stop(_HANDLER_SECONDS)
        if self._listener is not None:
            self._listener.close()
        if self._runner is not None:
            await self._runner.cleanup()
        self._parsers.close()
        await asyncio.to_thread(self.texts.close)
        if self.service.tracing is not None:
            await asyncio.to_thread(self.service.tracing.close)
        while self._repository.running and loop.time() < until:  # runs go on though their clients have gone
            await asyncio.sleep(_PAUSE)
        self._repository.cancel()
        until = loop.time() + _CANCEL_SECONDS
        while self._repository.running and loop.time() < until:
            await asyncio.sleep(_PAUSE)
        left = self._repository.running
        if not left:
            await asyncio.to_thread(self._repository.close)
        return left


def _max_connections() -> int:
    """Return the maximum number of idle and incoming connections: half of the files that the process may open."""
    try:
        import resource
    except ImportError:
        return _FEW_FILES // 2
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MANY_FILES // 2 if files == resource.RLIM_INFINITY else max(_FEW_FILES, min(files, _MANY_FILES)) // 2


def _tls(where: Listening) -> ssl.SSLContext | None:
    if where.certificate is None or where.key is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(where.certificate, where.key)
    return context
