"""Requests a second, and how long each takes, of `nnefc serve`; compared with onnxruntime behind the same server.

python benchmarks/serving.py [--seconds S] [NETWORK …]

All goes over the loopback by gRPC: a client with some requests under way at a time, each of one row, sends the next
one as soon as an answer is there. Without NETWORK it measures all and writes `results/PROCESSOR/serving.md`; that
takes three minutes. No measurement is longer than `--seconds`.
"""

from __future__ import annotations

import asyncio
import contextlib
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
from nnefc.serving.values import DATATYPES

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


@dataclass(frozen=True)
class Load:
    """What a client saw: answers a second, and of the seconds that they took the median and the 99th percentile."""

    rate: float
    median: float
    tail: float


@contextlib.contextmanager
def serving(backend: str, model: Path, rows: int) -> Iterator[int]:
    """The port of a server in a process of its own."""
    command = [sys.executable, str(WORKER), backend, str(model), str(rows)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield int(process.stdout.readline())
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(60)


def request(library: Path) -> bytes:
    """A request of one row of random numbers."""
    with nnefc.load(library, threads=1) as model:
        shapes = [[size if isinstance(size, int) else 1 for size in tensor.shape] for tensor in model.inputs]
        rng = np.random.default_rng(0)
        made = message(INFERENCE, "ModelInferRequest")(
            model_name="net",
            inputs=[
                {"name": tensor.name, "datatype": DATATYPES[tensor.dtype], "shape": shape}
                for tensor, shape in zip(model.inputs, shapes, strict=True)
            ],
            raw_input_contents=[rng.standard_normal(shape, np.float32).tobytes() for shape in shapes],
        )
        return made.SerializeToString()


async def loaded(port: int, body: bytes, at_a_time: int, seconds: float) -> tuple[Load, np.ndarray]:
    """So many requests at a time for some seconds; and the first answer's first output."""
    times: list[float] = []
    async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
        infer = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
        answer = message(INFERENCE, "ModelInferResponse").FromString(await infer(body))
        begin = time.perf_counter() + WARM_UP
        end = begin + seconds

        async def client() -> None:
            while (start := time.perf_counter()) < end:
                await infer(body)
                if start >= begin:
                    times.append(time.perf_counter() - start)

        await asyncio.gather(*(client() for _ in range(at_a_time)))
        elapsed = time.perf_counter() - begin
    median, tail = np.percentile(times, [50, 99])
    return Load(len(times) / elapsed, float(median), float(tail)), np.frombuffer(
        answer.raw_output_contents[0], np.float32
    )


def measure(network: str, folder: Path, seconds: float) -> Iterator[tuple[int, int, list[Load]]]:
    """For each way to serve a network: the rows of a batch, requests at a time, and what each backend did."""
    model = folder / f"{network}.onnx"
    NETWORKS[network](network, model)
    library = model.with_suffix(".so")
    nnefc.compile(model).export(library)
    body = request(library)
    for rows in (1, ROWS):
        found: dict[int, list[Load]] = {count: [] for count in AT_A_TIME}
        answers = []
        for backend in BACKENDS:
            with serving(backend, library if backend == "nnefc" else model, rows) as port:
                for count in AT_A_TIME:
                    load, answer = asyncio.run(loaded(port, body, count, seconds))
                    found[count].append(load)
                    answers.append(answer)
        largest = float(np.abs(answers[0]).max())
        if any(float(np.abs(answer - answers[0]).max()) > NEAR * largest for answer in answers):
            raise click.ClickException(f"{network}: the answers differ")
        for count, loads in found.items():
            yield rows, count, loads


@click.command()
@click.option("--seconds", default=5.0, help="How long each measurement takes.")
@click.argument("networks", nargs=-1, type=click.Choice(list(NETWORKS)))
def main(seconds: float, networks: tuple[str, ...]) -> None:
    """Serve and ask."""
    watch = Watch()
    lines = [
        "Requests of one row each by gRPC over the loopback, so many under way at a time; the client and the server's"
        f" one session of one thread share the processors. *Batches*: up to {ROWS} rows of requests that came while the"
        " session was busy. onnxruntime runs behind the same server. Times are milliseconds, from the client's side."
        " *Ratio*: answers a second of nnefc over those of onnxruntime.",
        "",
        "| network | at a time | batches | nnefc: answers a second | median | 99 % "
        "| onnxruntime: answers a second | median | 99 % | ratio |",
        "|---|---:|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    with tempfile.TemporaryDirectory(prefix="nnefc-serving-") as folder:
        for network in networks or NETWORKS:
            for rows, count, loads in measure(network, Path(folder), seconds):
                cells = [
                    text
                    for load in loads
                    for text in (f"{load.rate:,.0f}", f"{1e3 * load.median:.2f}", f"{1e3 * load.tail:.2f}")
                ]
                ratio = loads[0].rate / loads[1].rate
                row = [network, str(count), "yes" if rows > 1 else "no", *cells, f"{ratio:.2f}"]
                lines.append(f"| {' | '.join(row)} |")
                click.echo(lines[-1])
    conditions = watch.end()
    if not networks:
        click.echo(write_page("serving", "Requests a second", conditions, lines))


if __name__ == "__main__":
    main()
