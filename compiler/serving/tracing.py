"""Writes an OpenTelemetry span for each inference request. OpenTelemetry's packages are imported only for that."""

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
"""The beginning of OpenTelemetry's default service name, where its environment variables give none."""


class Span(Protocol):
    """The part of a span that a request needs."""

    def set_attribute(self, key: str, value: str) -> None: ...


class Tracing:
    """Makes spans with an OpenTelemetry provider. The parent of a span is the one in the client's `traceparent`."""

    def __init__(self, provider: Any) -> None:
        from opentelemetry.trace import SpanKind, StatusCode
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

        self._provider = provider
        self._tracer = provider.get_tracer("nnefc.serving")
        self._propagator = TraceContextTextMapPropagator()
        self._kind, self._failed = SpanKind.SERVER, StatusCode.ERROR

    @contextmanager
    def request(self, protocol: str, model: str, version: str, headers: Mapping[str, str]) -> Iterator[Span]:
        """Open a span for the duration of a request; the caller sets its attribute `nnefc.result`.

        Args:
            protocol: "http" or "grpc".
            model, version: the network that the request names.
            headers: of the request, with names in lower case.
        """
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
        """Export the remaining spans and stop."""
        self._provider.shutdown()


def exporting() -> Tracing:
    """Return tracing that exports by OTLP as OpenTelemetry's environment variables say.

    The endpoint is OTEL_EXPORTER_OTLP_ENDPOINT; the protocol is gRPC unless OTEL_EXPORTER_OTLP_PROTOCOL is
    `http/protobuf`.

    Raises:
        ModuleNotFoundError: OpenTelemetry's packages are not installed.
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
    """Return the name of the exporter's package: `http` or `grpc`."""
    given = next((value for name in _PROTOCOL_VARIABLES if (value := os.environ.get(name))), "grpc")
    return "http" if given.startswith("http") else "grpc"
