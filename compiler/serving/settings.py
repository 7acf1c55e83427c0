"""Settings of `nnefc serve` with their defaults. Needs no package of the extra `serve`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

__all__ = ["Listening", "Policy"]


_ROWS = 16
"""The maximum rows of a batch, unless the operator says otherwise."""


@dataclass(frozen=True)
class Policy:
    """How networks are served.

    Attributes:
        sessions: runs of a network side by side.
        threads: of each session; None: as `nnefc.load` without a number.
        rows: the maximum rows of a batch that requests are put into together; 1: each runs alone; None: some, where the
            network allows it.
        delay: seconds that a request waits for others to join it while a session is free; None: as long as it pays.
        waiting: requests of a network that may wait for a session; further ones are refused.
        device: the number of the GPU.
        flush_subnormals: as in `nnefc.load`.
        weights_key: of those whose weights are encrypted.
        signing_key: a file with the public key that libraries must have been signed for; None: they need not be.
        library: returns the library of a file that is served, which may be a model.
        limits: the greatest sizes of dynamic dimensions by name, where they shall be less than the library allows.
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
        """The maximum rows of a batch."""
        return _ROWS if self.rows is None else self.rows


@dataclass(frozen=True)
class Listening:
    """Where a server listens and what it lets in.

    Attributes:
        host: the address; a name or a number.
        port, grpc_port: of HTTP and gRPC; 0: any that is free; None: not at all.
        largest: bytes of a request's body.
        largest_json: bytes of what of it is read value by value: JSON, or lists of gRPC.
        timeout: seconds for a request, from its header to the end of its answer.
        slowest: bytes per second at which a body must arrive over HTTP, and an answer be read.
        per_address: requests that may be arriving from one address at a time; 0: any number.
        max_incoming: bytes of all bodies that are arriving over HTTP.
        idle: seconds that a connection, or a stream of requests over gRPC, may be without any.
        stored: bytes of the responses of language models that are kept for requests that go on with them.
        drain: seconds that running requests get at shutdown.
        control: whether clients may load and unload networks.
        shared_memory: whether clients on this machine may share memory with the server.
        certificate, key: files in PEM, for TLS; None: without.
        api_keys: of which clients must send one; without any, all clients are let in.
        origins: whose pages may read the answers of language models in browsers; `*`: of all.
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
