"""Exports metrics to Prometheus."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

__all__ = ["Metrics", "NetworkMetrics"]

_SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """The metrics of a server, in a registry of their own. No label comes from client input."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        network = ("model", "version")

        def histogram(name: str, about: str, buckets: Sequence[float]) -> Any:
            return Histogram(name, about, network, registry=self._registry, buckets=buckets)

        self._requests = Counter(
            "nnefc_requests",
            "Requests for runs, by how they ended: ok, or why they were refused.",
            (*network, "protocol", "result"),
            registry=self._registry,
        )
        self._admitted = Gauge(
            "nnefc_requests_admitted", "Requests that have arrived, and wait or run.", network, registry=self._registry
        )
        self._seconds = histogram("nnefc_request_seconds", "From the request to its answer.", _SECONDS)
        self._waits = histogram("nnefc_wait_seconds", "Until a request runs.", _SECONDS)
        self._runs = histogram("nnefc_run_seconds", "Runs of a network, each for one batch.", _SECONDS)
        self._rows = histogram("nnefc_batch_rows", "Rows of a run; 1 where requests are not put into batches.", _ROWS)

    def of(self, model: str, version: str) -> NetworkMetrics:
        """The metrics of one network."""
        label = (model, version)
        return NetworkMetrics(
            label, self._requests, *(m.labels(*label) for m in (self._admitted, self._seconds, self._waits)),
            *(m.labels(*label) for m in (self._runs, self._rows)),
        )  # fmt: skip

    def text(self) -> tuple[bytes, str]:
        """Returns the metrics in Prometheus's format, and the media type of that text."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class NetworkMetrics:
    """The metrics of one network of a server."""

    def __init__(
        self, label: tuple[str, str], requests: Any, admitted: Any, seconds: Any, waits: Any, runs: Any, rows: Any
    ) -> None:
        self._label = label
        self._requests = requests
        self._admitted, self._seconds = admitted, seconds
        self._waits, self._runs, self._rows = waits, runs, rows

    def admitted(self, more: int) -> None:
        """So many requests more, or fewer; a network that is loaded again counts with the one before it."""
        self._admitted.inc(more)

    def ended(self, protocol: str, result: str, seconds: float) -> None:
        """Counts an answered request: "ok", or the kind of failure."""
        self._requests.labels(*self._label, protocol, result).inc()
        self._seconds.observe(seconds)

    def ran(self, waits: Sequence[float], rows: int, seconds: float) -> None:
        """Counts a finished run."""
        for wait in waits:
            self._waits.observe(wait)
        self._rows.observe(rows)
        self._runs.observe(seconds)
