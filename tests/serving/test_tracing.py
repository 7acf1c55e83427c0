"""Spans of OpenTelemetry, where it is installed."""

from __future__ import annotations

import asyncio
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
from nnefc.serving.tracing import Tracing

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
