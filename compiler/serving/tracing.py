"""Writes a span of OpenTelemetry for each request for a run. Needs its packages only if traces are wanted."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from typing import Any, Protocol

__all__ = ["Tracing", "exporting"]

_PACKAGES = ("opentelemetry-sdk", "opentelemetry-exporter-otlp")
_SERVICE = "nnefc"
_PROTOCOL_VARIABLES = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_UNKNOWN_SERVICE = "unknown_service"
"""What OpenTelemetry's name of a service begins with where its variables give none."""


class Span(Protocol):
    """The part of a span that a request needs."""

    def set_attribute(self, key: str, value: str) -> None: ...


class Tracing:
    """Makes spans with a provider of OpenTelemetry; the parent is what the client's `traceparent` names."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry.trace import SpanKind, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("nnefc.serving")
        self._propagator = TraceContextTextMapPropagator()
        self._kind, self._failed = SpanKind.SERVER, StatusCode.ERROR

    @contextmanager
    def request(self, protocol: str, model: str, version: str, headers: Mapping[str, str]) -> Iterator[Span]:
        """Times a request; how it ended is the attribute `nnefc.result`, which the caller sets."""
        attributes = {"rpc.system": protocol, "nnefc.model": model, "nnefc.version": version}
        parent = self._propagator.extract(carrier=dict(headers))
        span = self._tracer.start_span(f"infer {model}", parent, self._kind, attributes)
        try:
            yield span
        except Exception as error:
            span.set_status(self._failed, str(error))
            raise
        finally:
            span.end()

    def close(self) -> None:
        """Export what has not been exported."""
        self._provider.shutdown()


def exporting() -> Tracing:
    """Traces that go where OpenTelemetry's environment variables say, such as OTEL_EXPORTER_OTLP_ENDPOINT.

    By gRPC, or over HTTP where OTEL_EXPORTER_OTLP_PROTOCOL is `http/protobuf`.

    Raises:
        ModuleNotFoundError: its packages are not installed.
    """
    try:
        exporters = import_module(f"opentelemetry.exporter.otlp.proto.{_protocol()}.trace_exporter")
        from opentelemetry.sdk.resources import SERVICE_NAME, Resource
        from opentelemetry.sdk.trace import TracerProvider
        from opentelemetry.sdk.trace.export import BatchSpanProcessor
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"traces need {' and '.join(_PACKAGES)}", name=error.name) from error
    resource = Resource.create()
    if str(resource.attributes.get(SERVICE_NAME, _UNKNOWN_SERVICE)).startswith(_UNKNOWN_SERVICE):
        resource = resource.merge(Resource({SERVICE_NAME: _SERVICE}))
    provider = TracerProvider(resource=resource)
    provider.add_span_processor(BatchSpanProcessor(exporters.OTLPSpanExporter()))
    return Tracing(provider)


def _protocol() -> str:
    """Returns the package of the exporter: `http` or `grpc`."""
    given = next((value for name in _PROTOCOL_VARIABLES if (value := os.environ.get(name))), "grpc")
    return "http" if given.startswith("http") else "grpc"
