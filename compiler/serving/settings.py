"""Settings of `nnefc serve` with their defaults. This module can be imported without the extra `serve`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Listening", "Policy"]


_ROWS = 16
"""The default maximum of rows in a batch."""


@dataclass(frozen=True)
class Policy:
    """How each network is loaded, batched and limited.

    Attributes:
        sessions: of each network, which run at the same time.
        threads: of each session; None: the default of `nnefc.load`.
        rows: the maximum rows of a batch of requests; 1: no batches; None: a default where the network allows batches.
        delay: seconds that a request waits for others of its batch while a session is free; None: adapted to the load.
        waiting: requests per network that may wait for a session; further ones are refused.
        device: the number of the GPU.
        flush_subnormals: as in `nnefc.load`.
        weights_key: the key of libraries whose weights are encrypted.
        signing_key: a file with the public key by which libraries must be signed; None: signatures are not checked.
        library: returns the library for a path; compiles it if the path is a model.
        limits: upper bounds of dynamic dimensions by name, below those of the library.
    """

    sessions: int = 1
    threads: int | None = None
    rows: int | None = None
    delay: float | None = None
    waiting: int = 256
    device: int = 0
    flush_subnormals: bool = True
    weights_key: bytes | None = field(default=None, repr=False)
    signing_key: Path | None = None
    library: Callable[[Path], Path] = field(default=lambda path: path, repr=False)
    limits: Mapping[str, int] = field(default_factory=dict)

    @property
    def max_rows(self) -> int:
        """The maximum rows of a batch, where the network allows batches."""
        return _ROWS if self.rows is None else self.rows


@dataclass(frozen=True)
class Listening:
    """Where a server listens, and its limits for requests.

    Attributes:
        host: the address; a name or a number.
        port, grpc_port: of HTTP and gRPC; 0: any free port; None: the protocol is off.
        largest: maximum bytes of a request's body.
        largest_json: maximum bytes of its part that is parsed value by value: JSON, or value lists of gRPC.
        timeout: seconds for a request, from its header to the end of its answer.
        slowest: minimum rate, in bytes per second, at which a body must arrive over HTTP and an answer must be read.
        per_address: requests that may be arriving from one address at a time; 0: any number.
        max_incoming: maximum bytes of all incomplete bodies over HTTP.
        idle: seconds after which a connection, or a stream of requests over gRPC, is closed without a request.
        stored: bytes of stored responses of language models, to which later requests refer.
        drain: seconds that running requests get at shutdown.
        control: whether clients may load and unload networks.
        shared_memory: whether clients on this machine may share memory with the server.
        certificate, key: files in PEM, for TLS; None: no TLS.
        api_keys: accepted keys, of which a client must send one; empty: no key is needed.
        origins: origins whose pages may read the answers of language models in browsers (CORS); `*`: all.
    """

    host: str = "127.0.0.1"
    port: int | None = 8000
    grpc_port: int | None = 8001
    largest: int = 64 << 20
    largest_json: int = 8 << 20
    timeout: float = 60.0
    slowest: int = 1024
    per_address: int = 64
    max_incoming: int = 1 << 30
    idle: float = 300.0
    stored: int = 64 << 20
    drain: float = 30.0
    control: bool = False
    shared_memory: bool = False
    certificate: Path | None = None
    key: Path | None = None
    api_keys: Sequence[str] = field(default=(), repr=False)
    origins: Sequence[str] = ()
