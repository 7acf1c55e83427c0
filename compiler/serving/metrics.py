"""Counts requests, runs and tokens, and exports these metrics in the format of Prometheus."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import TYPE_CHECKING, Any

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.core import HistogramMetricFamily

if TYPE_CHECKING:
    from nnefc.loader import StateMemory

__all__ = ["Metrics", "NetworkMetrics", "TextMetrics"]

_SECONDS = (0.0001, 0.0003, 0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
_ROWS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)


class Metrics:
    """The metrics of a server, in a registry of their own. No label comes from client input."""

    def __init__(self) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        network = ("model", "version")

        def histogram(name: str, about: str, buckets: Sequence[float]) -> _Histograms:
            made = _Histograms(name, about, network, buckets)
            self._registry.register(made)
            return made

        self._requests = Counter(
            "nnefc_requests",
            "Requests for runs, by how they ended: ok, or why they were refused.",
            (*network, "protocol", "result"),
            registry=self._registry,
        )
        self._tokens = Counter(
            "nnefc_tokens",
            "Tokens of language models: of prompts that were read, or cached and not read again, and of replies.",
            ("model", "kind"),
            registry=self._registry,
        )
        self._caches = Gauge(
            "nnefc_cache_bytes",
            "Memory of a language model's caches: own of single replies, shared by several, and saved by that.",
            ("model", "kind"),
            registry=self._registry,
        )
        self._first_tokens = _Histograms(
            "nnefc_first_token_seconds", "From a request to the first token of its reply.", ("model",), _SECONDS
        )
        self._registry.register(self._first_tokens)
        self._admitted = Gauge(
            "nnefc_requests_admitted", "Requests that have arrived, and wait or run.", network, registry=self._registry
        )
        self._seconds = histogram("nnefc_request_seconds", "From the request to its answer.", _SECONDS)
        self._waits = histogram("nnefc_wait_seconds", "Until a request runs.", _SECONDS)
        self._runs = histogram("nnefc_run_seconds", "Runs of a network, each for one batch.", _SECONDS)
        self._rows = histogram("nnefc_batch_rows", "Rows of a run; 1 where requests are not put into batches.", _ROWS)

    def of(self, model: str, version: str) -> NetworkMetrics:
        """Return the metrics of one network."""
        label = (model, version)
        histograms = (each.of(label) for each in (self._seconds, self._waits, self._runs, self._rows))
        return NetworkMetrics(label, self._requests, self._admitted.labels(*label), *histograms)

    def tokens(self, model: str, read: int, written: int) -> None:
        """Count tokens of a language model: `read` of prompts, `written` of replies."""
        _count_tokens(self._tokens, model, prompt=read, reply=written)

    def of_text(self, model: str) -> TextMetrics:
        """Returns the metrics of one language model."""
        return TextMetrics(model, self._tokens, self._caches, self._first_tokens.of((model,)))

    def text(self) -> tuple[bytes, str]:
        """Returns the metrics in Prometheus's format, and the media type of that text."""
        return generate_latest(self._registry), CONTENT_TYPE_LATEST


class NetworkMetrics:
    """The metrics of one network of a server."""

    def __init__(
        self,
        label: tuple[str, str],
        requests: Any,
        admitted: Any,
        seconds: _Histogram,
        waits: _Histogram,
        runs: _Histogram,
        rows: _Histogram,
    ) -> None:
        self._label = label
        self._requests = requests
        self._results: dict[tuple[str, str], Any] = {}
        self._admitted, self._seconds = admitted, seconds
        self._waits, self._runs, self._rows = waits, runs, rows

    def admitted(self, more: int) -> None:
        """Add `more`, which may be negative, to the number of admitted requests.

        The gauge is shared with the previous load of the same network, whose requests may still be running.
        """
        self._admitted.inc(more)

    def ended(self, protocol: str, result: str, seconds: float) -> None:
        """Count an answered request.

        Args:
            protocol: "http" or "grpc".
            result: "ok", "cancelled", or the label of a kind of failure.
            seconds: from the request to its answer.
        """
        known = protocol, result
        if known not in self._results:
            self._results[known] = self._requests.labels(*self._label, *known)
        self._results[known].inc()
        self._seconds.observe(seconds)

    def ran(self, waits: Sequence[float], rows: int, seconds: float) -> None:
        """Count a finished run.

        Args:
            waits: seconds that each request of the batch waited.
            rows: of the batch.
            seconds: that the run took.
        """
        for wait in waits:
            self._waits.observe(wait)
        self._rows.observe(rows)
        self._runs.observe(seconds)


class TextMetrics:
    """The metrics of one language model of a server."""

    def __init__(self, model: str, tokens: Counter, caches: Gauge, first_tokens: _Histogram) -> None:
        self._model, self._tokens, self._caches, self._first_tokens = model, tokens, caches, first_tokens

    def tokens(self, read: int, cached: int, written: int) -> None:
        """Count tokens: `read` of prompts, `cached` of prompts (copied from other sequences), `written` of replies."""
        _count_tokens(self._tokens, self._model, prompt=read, cached=cached, reply=written)

    def first_token(self, seconds: float) -> None:
        """Count a reply, by the seconds from its request to its first token."""
        self._first_tokens.observe(seconds)

    def caches(self, memory: StateMemory) -> None:
        """Set the memory of the sequences' key-value caches."""
        saved = max(0, memory.mapped - memory.shared)
        for kind, count in (("own", memory.own), ("shared", memory.shared), ("saved", saved)):
            self._caches.labels(self._model, kind).set(count)


def _count_tokens(counter: Counter, model: str, **counts: int) -> None:
    for kind, count in counts.items():
        if count:
            counter.labels(model, kind).inc(count)


class _Histogram:
    """A histogram without locks, for one thread: that of `prometheus_client` takes ten times as long."""

    def __init__(self, buckets: Sequence[float]) -> None:
        self._buckets = buckets
        self._counts = [0] * (len(buckets) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        self._counts[bisect_left(self._buckets, value)] += 1
        self._sum += value

    def cumulative(self) -> tuple[list[tuple[str, float]], float]:
        """Return the cumulative count of each bucket, by its upper bound as text, and the sum of all values."""
        bounds = [*map(str, map(float, self._buckets)), "+Inf"]
        return list(zip(bounds, map(float, accumulate(self._counts)), strict=True)), self._sum


class _Histograms:
    """One metric's histograms of all networks, as a collector for the registry."""

    def __init__(self, name: str, about: str, labels: Sequence[str], buckets: Sequence[float]) -> None:
        self._name, self._about, self._labels, self._buckets = name, about, labels, buckets
        self._all: dict[tuple[str, ...], _Histogram] = {}

    def of(self, label: tuple[str, ...]) -> _Histogram:
        """Return the histogram of a network; a network that is loaded again keeps its histogram."""
        return self._all.setdefault(label, _Histogram(self._buckets))

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._about, labels=self._labels)
        for label, histogram in self._all.items():
            family.add_metric(label, *histogram.cumulative())
        yield family
