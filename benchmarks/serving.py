"""Requests a second, and how long each takes, of `nnefc serve`; compared with onnxruntime behind the same server.

python benchmarks/serving.py [--seconds S] [NETWORK …]

All goes over the loopback, by HTTP from `wrk`, which must be installed, and by gRPC: a client with some requests under
way at a time, each of one row, sends the next one as soon as an answer is there. Without NETWORK it measures all and
writes `results/PROCESSOR/serving.md`; that takes six minutes. No measurement is longer than `--seconds`.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import grpc
import numpy as np
import onnx
from conditions import Watch, write_page
from models.networks import write_twins
from open_against_static import opened
from tiny_networks import write_float

import nnefc
from nnefc.serving.messages import INFERENCE, message

WORKER = Path(__file__).with_name("serving_worker.py")
BACKENDS = ("nnefc", "onnxruntime")
ROWS = 16
AT_A_TIME = (1, 16)
WARM_UP = 0.5
"""Seconds before the measured ones."""

NEAR = 1e-3
"""Of an output's largest value: answers that differ more are others."""


def tiny(name: str, path: Path) -> None:
    """A network of MLPerf Tiny with a dynamic batch."""
    write_float(name, path)
    onnx.save(opened(onnx.load(path), ["batch"]), path)


def images(name: str, path: Path) -> None:
    """One of the benchmark's networks with a dynamic batch."""
    twins = write_twins(path.parent / "twins", name)
    onnx.save(opened(onnx.load(twins.onnx), ["batch"]), path)


def perceptron(_: str, path: Path) -> None:
    """Three dense layers of 1,024: a row alone reads all weights, a batch reads them once."""
    rng, width = np.random.default_rng(0), 1024
    nodes, constants, last = [], [], "x"
    for layer in range(3):
        weight = (rng.standard_normal((width, width)) / np.sqrt(width)).astype(np.float32)
        constants.append(onnx.numpy_helper.from_array(weight, f"w{layer}"))
        nodes.append(onnx.helper.make_node("MatMul", [last, f"w{layer}"], [f"m{layer}"]))
        nodes.append(onnx.helper.make_node("Relu", [f"m{layer}"], [f"r{layer}"]))
        last = f"r{layer}"
    given, made = (
        onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["batch", width]) for name in ("x", last)
    )
    graph = onnx.helper.make_graph(nodes, "perceptron", [given], [made], constants)
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9), path)


NETWORKS: Mapping[str, Callable[[str, Path], None]] = {
    "DS-CNN": tiny,
    "ResNet-8": tiny,
    "perceptron": perceptron,
    "mobilenet_v2": images,
}


PROTOCOLS = ("HTTP", "gRPC")
MAX_JSON = 4096
"""Elements of a request that are sent as JSON; more are raw bytes after it, and those of gRPC are so always."""


@dataclass(frozen=True)
class Load:
    """What a client saw, and what it took.

    Attributes:
        rate: answers a second.
        median, tail: the median of the seconds that they took, and the 99th percentile.
        processor: the processor seconds of the server for each.
    """

    rate: float
    median: float
    tail: float
    processor: float


@dataclass(frozen=True)
class Server:
    """A server in a process of its own, and its ports."""

    process: int
    http: int
    grpc: int

    def processor_seconds(self) -> float:
        """Returns the processor time that it has taken."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


@contextlib.contextmanager
def serving(backend: str, model: Path, rows: int) -> Iterator[Server]:
    """A server while the block runs."""
    command = [sys.executable, str(WORKER), backend, str(model), str(rows)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield Server(process.pid, *map(int, process.stdout.readline().split()))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def arrays_of(library: Path) -> dict[str, np.ndarray]:
    """One row of random numbers for each input."""
    with nnefc.load(library, threads=1) as model:
        rng = np.random.default_rng(0)
        shapes = {t.name: [size if isinstance(size, int) else 1 for size in t.shape] for t in model.inputs}
        return {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def grpc_request(arrays: Mapping[str, np.ndarray]) -> bytes:
    """A request of gRPC."""
    made = message(INFERENCE, "ModelInferRequest")(
        model_name="net",
        inputs=[{"name": name, "datatype": "FP32", "shape": array.shape} for name, array in arrays.items()],
        raw_input_contents=[array.tobytes() for array in arrays.values()],
    )
    return made.SerializeToString()


def http_request(arrays: Mapping[str, np.ndarray]) -> tuple[bytes, dict[str, str]]:
    """The body of a request of HTTP, and its headers."""
    heads = [{"name": name, "datatype": "FP32", "shape": array.shape} for name, array in arrays.items()]
    if sum(array.size for array in arrays.values()) <= MAX_JSON:
        inputs = [head | {"data": array.ravel().tolist()} for head, array in zip(heads, arrays.values(), strict=True)]
        return json.dumps({"inputs": inputs}).encode(), {"Content-Type": "application/json"}
    sizes = [{"parameters": {"binary_data_size": array.nbytes}} for array in arrays.values()]
    inputs = [head | size for head, size in zip(heads, sizes, strict=True)]
    text = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    headers = {"Content-Type": "application/octet-stream", "Inference-Header-Content-Length": str(len(text))}
    return text + b"".join(array.tobytes() for array in arrays.values()), headers


def http_load(server: Server, body: bytes, headers: Mapping[str, str], at_a_time: int, seconds: float) -> Load:
    """So many connections of wrk for some seconds."""
    with tempfile.TemporaryDirectory() as folder:
        script, content = Path(folder, "request.lua"), Path(folder, "body")
        content.write_bytes(body)
        lines = ['wrk.method = "POST"', f'wrk.body = io.open("{content}", "rb"):read("*a")']
        lines += [f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items()]
        script.write_text("\n".join(lines))
        url = f"http://127.0.0.1:{server.http}/v2/models/net/infer"
        command = ["wrk", "-t1", f"-c{at_a_time}", f"-d{seconds:g}s", "--latency", "-s", str(script), url]
        begin = server.processor_seconds()
        report = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        took = server.processor_seconds() - begin
    if "Non-2xx" in report:
        raise click.ClickException(f"the server refuses requests:\n{report}")
    number = re.search(r"(\d+) requests in ([\d.]+)s", report)
    assert number is not None
    count, elapsed = int(number[1]), float(number[2])
    return Load(count / elapsed, _quantile(report, 50), _quantile(report, 99), took / count)


def _quantile(report: str, percent: int) -> float:
    """Seconds."""
    found = re.search(rf"{percent}%\s+([\d.]+)(us|ms|s)", report)
    assert found is not None, report
    return float(found[1]) * {"us": 1e-6, "ms": 1e-3, "s": 1.0}[found[2]]


async def grpc_load(server: Server, body: bytes, at_a_time: int, seconds: float) -> Load:
    """So many requests at a time for some seconds."""
    times: list[float] = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        before, answers = server.processor_seconds(), 0
        begin = time.perf_counter() + WARM_UP
        end = begin + seconds

        async def client() -> None:
            nonlocal answers
            while (start := time.perf_counter()) < end:
                await infer(body)
                answers += 1
                if start >= begin:
                    times.append(time.perf_counter() - start)

        await asyncio.gather(*(client() for _ in range(at_a_time)))
        elapsed, took = time.perf_counter() - begin, server.processor_seconds() - before
    median, tail = np.percentile(times, [50, 99])
    return Load(len(times) / elapsed, float(median), float(tail), took / answers)


def answer(server: Server, body: bytes) -> np.ndarray:
    """The first output that a request of gRPC is answered with."""
    with grpc.insecure_channel(f"127.0.0.1:{server.grpc}") as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        made = message(INFERENCE, "ModelInferResponse").FromString(infer(body))
    return np.frombuffer(made.raw_output_contents[0], np.float32)


def measure(network: str, folder: Path, seconds: float) -> Iterator[tuple[str, int, int, list[Load]]]:
    """For each way to serve a network: the protocol, rows of a batch, requests at a time, and what each backend did."""
    model = folder / f"{network}.onnx"
    NETWORKS[network](network, model)
    library = model.with_suffix(".so")
    nnefc.compile(model).export(library)
    arrays = arrays_of(library)
    body, (text, headers) = grpc_request(arrays), http_request(arrays)
    for rows in (1, ROWS):
        found: dict[tuple[str, int], list[Load]] = {(way, count): [] for way in PROTOCOLS for count in AT_A_TIME}
        answers = []
        for backend in BACKENDS:
            with serving(backend, library if backend == "nnefc" else model, rows) as server:
                answers.append(answer(server, body))
                for count in AT_A_TIME:
                    found["HTTP", count].append(http_load(server, text, headers, count, seconds))
                    found["gRPC", count].append(asyncio.run(grpc_load(server, body, count, seconds)))
        largest = float(np.abs(answers[0]).max())
        if any(float(np.abs(each - answers[0]).max()) > NEAR * largest for each in answers):
            raise click.ClickException(f"{network}: the answers differ")
        for (way, count), loads in found.items():
            yield way, rows, count, loads


@click.command()
@click.option("--seconds", default=5.0, help="How long each measurement takes.")
@click.argument("networks", nargs=-1, type=click.Choice(list(NETWORKS)))
def main(seconds: float, networks: tuple[str, ...]) -> None:
    """Serve and ask."""
    if shutil.which("wrk") is None:
        raise click.ClickException("wrk is not installed")
    watch = Watch()
    lines = [
        "Requests of one row each over the loopback, so many under way at a time: over HTTP from wrk, as JSON or, from"
        f" {MAX_JSON:,} elements on, raw bytes; over gRPC from a client in Python, which takes about as much processor"
        " time as the server. The client and the server's one session of one thread share the processors."
        f" *Batches*: up to {ROWS} rows of requests that came while the session was busy."
        " onnxruntime runs behind the same server. Times are milliseconds, from the client's side; *µs*: the server's"
        " processor time for an answer. *Ratio*: answers a second of nnefc over those of onnxruntime.",
        "",
        "| network | by | at a time | batches | nnefc: answers a second | median | 99 % | µs "
        "| onnxruntime: answers a second | median | 99 % | µs | ratio |",
        "|---|---|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory(prefix="nnefc-serving-") as folder:
        for network in networks or NETWORKS:
            for way, rows, count, loads in measure(network, Path(folder), seconds):
                cells = [
                    text
                    for load in loads
                    for text in (
                        f"{load.rate:,.0f}",
                        f"{1e3 * load.median:.2f}",
                        f"{1e3 * load.tail:.2f}",
                        f"{1e6 * load.processor:,.0f}",
                    )
                ]
                ratio = loads[0].rate / loads[1].rate
                row = [network, way, str(count), "yes" if rows > 1 else "no", *cells, f"{ratio:.2f}"]
                lines.append(f"| {' | '.join(row)} |")
                click.echo(lines[-1])
    conditions = watch.end()
    if not networks:
        click.echo(write_page("serving", "Requests a second", conditions, lines))


if __name__ == "__main__":
    main()
