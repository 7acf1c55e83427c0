"""Spans of OpenTelemetry, where it is installed."""

from __future__ import annotations

import asyncio
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from served_networks import post, serving, tensor

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from nnefc.serving.messages import INFERENCE, message
from nnefc.serving.tracing import Tracing, exporting

X = np.ones((1, 3), np.float32)
GOOD = {"inputs": [tensor("x", X), tensor("y", X)]}
INFER = "/v2/models/rows/infer"
PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def test_each_request_has_a_span_with_the_clients_parent(libraries: dict[str, Path]) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with serving({"rows": libraries["rows"]}, tracing=Tracing(provider)) as server:
        assert post(server, INFER, GOOD, traceparent=PARENT)[0] == 200
        assert post(server, INFER, GOOD, traceparent=PARENT, Accept_Charset="x")[0] == 200  # by the general server
        assert post(server, INFER, {"inputs": []})[0] == 400
        asyncio.run(_over_grpc(server.grpc_port or 0))
        spans: Any = exporter.get_finished_spans()
    assert [span.attributes["nnefc.result"] for span in spans] == ["ok", "ok", "invalid", "ok"]
    assert {span.name for span in spans} == {"infer rows"}
    parents = [span.parent and f"{span.parent.span_id:016x}" for span in spans]
    assert parents == ["b7ad6b7169203331", "b7ad6b7169203331", None, "b7ad6b7169203331"]
    assert [span.status.is_ok for span in spans] == [True, True, False, True]


async def _over_grpc(port: int) -> None:
    import grpc

    request = message(INFERENCE, "ModelInferRequest")(
        model_name="rows",
        inputs=[{"name": name, "datatype": "FP32", "shape": [1, 3]} for name in "xy"],
        raw_input_contents=[X.tobytes()] * 2,
    ).SerializeToString()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        assert await infer(request, metadata=(("traceparent", PARENT),))


@pytest.mark.parametrize(("named", "service"), [(None, "nnefc"), ("digits", "digits")])
def test_spans_go_over_http_to_a_collector(named: str | None, service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    got: list[Any] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append((self.path, ExportTraceServiceRequest.FromString(body)))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_COMPRESSION", "none")
        if named is not None:
            monkeypatch.setenv("OTEL_SERVICE_NAME", named)
        tracing = exporting()
        with tracing.request("http", "rows", "1", {"traceparent": PARENT}) as span:
            span.set_attribute("nnefc.result", "ok")
        tracing.close()
        server.shutdown()
    ((path, request),) = got
    (resource,) = request.resource_spans
    assert path == "/v1/traces"
    assert {pair.key: pair.value.string_value for pair in resource.resource.attributes}["service.name"] == service
    (found,) = resource.scope_spans[0].spans
    assert (found.name, found.parent_span_id.hex()) == ("infer rows", "b7ad6b7169203331")
