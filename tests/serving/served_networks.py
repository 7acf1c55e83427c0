"""Networks to serve, and a server of them in a thread of the tests' process."""

from __future__ import annotations

import asyncio
import json
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnx.parser
import pytest

import nnefc

if TYPE_CHECKING:
    from nnefc.serving.server import Server

for package in ("aiohttp", "grpc", "prometheus_client"):
    pytest.importorskip(package)

ROWS = """
<ir_version: 8, opset_import: ["" : 17]>
rows (float[batch, w] x, float[batch, w] y) => (float[batch, w] product, float[batch] total)
<int64[1] axes = {1}>
{
    product = Mul (x, y)
    total = ReduceSum <keepdims = 0> (product, axes)
}
"""
"""Any number of rows, which do not know each other."""

MIXED = """
<ir_version: 8, opset_import: ["" : 17]>
mixed (float[batch, 3] x) => (float[batch, 3] y)
{
    y = Softmax <axis = 0> (x)
}
"""
"""Rows that depend on each other."""

LOOKUP = """
<ir_version: 8, opset_import: ["" : 17]>
lookup (int64[batch] row) => (float[batch, 2] found)
<float[4, 2] table = {0, 1, 10, 11, 20, 21, 30, 31}>
{
    found = Gather (table, row)
}
"""
"""Values that it does not take."""

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
text (string[n] words) => (string[m] twice)
{
    twice = Concat <axis = 0> (words, words)
}
"""

TYPES = ("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
TYPES += ("float16", "bfloat16", "float", "double")


def types_text() -> str:
    """Each type doubled along its first axis."""
    inputs = ", ".join(f"{kind}[2, 3] i_{kind}" for kind in TYPES)
    outputs = ", ".join(f"{kind}[4, 3] o_{kind}" for kind in TYPES)
    body = "\n".join(f"    o_{kind} = Concat <axis = 0> (i_{kind}, i_{kind})" for kind in TYPES)
    return f'<ir_version: 8, opset_import: ["" : 17]>\ntypes ({inputs}) => ({outputs})\n{{\n{body}\n}}\n'


def library(text: str, folder: Path, **options: Any) -> Path:
    """A network compiled."""
    model = onnx.parser.parse_model(text)
    path = folder / f"{model.graph.name}.onnx"
    onnx.save(model, path)
    nnefc.compile(path, **options).export(path.with_suffix(".so"))
    return path.with_suffix(".so")


@contextmanager
def serving(paths: Mapping[str, Path], **settings: Any) -> Iterator[Server]:
    """A server on free ports while the block runs.

    `settings` are `tracing`, `texts`, and fields of `Policy` and `Listening`.
    """
    from nnefc.cli.commands.serve import named, samples
    from nnefc.serving.event_loop import new_event_loop
    from nnefc.serving.server import Server
    from nnefc.serving.settings import Listening, Policy

    tracing, texts = settings.pop("tracing", None), settings.pop("texts", None)
    policy = Policy(threads=1, **{name: settings.pop(name) for name in POLICY & settings.keys()})
    where = Listening(**({"port": 0, "grpc_port": 0, "drain": 5.0} | settings))
    loop = new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def made() -> Server:
        named_paths = named(tuple(f"{name}={path}" for name, path in paths.items()))
        server = Server(named_paths, policy, where, samples, tracing, texts)
        await server.start()
        return server

    try:
        server = asyncio.run_coroutine_threadsafe(made(), loop).result(60)
        try:
            yield server
        finally:
            asyncio.run_coroutine_threadsafe(server.stop(), loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


POLICY = {"sessions", "rows", "delay", "waiting", "limits"}


def post(server: Server, path: str, body: bytes | dict[str, Any], **headers: str) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}{path}", data, headers)
    return _answer(request)


def get(server: Server, path: str) -> tuple[int, Any]:
    """The status and the JSON of an answer."""
    return _answer(urllib.request.Request(f"http://127.0.0.1:{server.port}{path}"))


def _answer(request: urllib.request.Request) -> tuple[int, Any]:
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def tensor(name: str, array: np.ndarray, datatype: str = "FP32") -> dict[str, Any]:
    """An input of a request in JSON."""
    return {"name": name, "datatype": datatype, "shape": list(array.shape), "data": array.reshape(-1).tolist()}
