"""Single operators compared with onnxruntime: integer convolutions and products, gathers and scatters.

    python benchmarks/operators.py [--only TEXT] [--seconds S]

Each is a model of one node with constant weights. Both engines take turns on one thread; the time is the smallest of
many runs, in processor time, so that other programs disturb little. For convolutions and products the last column is
nnefc's own time for the same shape in float32, over its time for integers.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import helper, numpy_helper

import nnefc

OPSET = 18


@dataclass(frozen=True)
class Operation:
    """A node. `inputs` are arrays; those at the positions `constant` are initializers."""

    title: str
    op_type: str
    inputs: tuple[np.ndarray | None, ...]
    constant: tuple[int, ...] = ()
    attributes: dict[str, Any] = field(default_factory=dict)
    real: Operation | None = None

    def model(self) -> onnx.ModelProto:
        names = ["" if array is None else f"x{i}" for i, array in enumerate(self.inputs)]
        given = [(n, a, i in self.constant) for i, (n, a) in enumerate(zip(names, self.inputs, strict=True)) if n]
        node = helper.make_node(self.op_type, names, ["y"], **self.attributes)
        graph = helper.make_graph(
            [node],
            "operation",
            [
                helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
                for n, a, constant in given
                if not constant
            ],
            [onnx.ValueInfoProto(name="y")],
            [numpy_helper.from_array(a, n) for n, a, constant in given if constant],
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=10)
        return onnx.shape_inference.infer_shapes(model)

    @property
    def values(self) -> dict[str, np.ndarray]:
        """What a run is given, by name."""
        return {f"x{i}": a for i, a in enumerate(self.inputs) if a is not None and i not in self.constant}


RNG = np.random.default_rng(0)


def integers(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    info = np.iinfo(dtype)
    return np.asarray(RNG.integers(info.min, info.max, shape, endpoint=True), dtype)


def convolution(
    kind: str, channels: int, size: int, filters: int, kernel: int, stride: int = 1, groups: int = 1,
    data: str = "uint8", weights: str = "int8", zero: int = 7,
) -> Operation:  # fmt: skip
    x, w = (1, channels, size, size), (filters, channels // groups, kernel, kernel)
    attributes = {"pads": [kernel // 2] * 4, "strides": [stride] * 2, "group": groups}
    title = f"{kind} {channels}→{filters} {kernel}×{kernel} {size}²" + (f" /{stride}" if stride > 1 else "")
    title += (f" in {groups} groups" if groups > 1 else "") + (f" {data}·{weights}" if data != "uint8" else "")
    real = Operation(title, "Conv", (RNG.random(x, np.float32), RNG.random(w, np.float32)), (1,), attributes)
    arrays = integers(x, data), integers(w, weights)
    if kind == "ConvInteger":
        return Operation(title, kind, (*arrays, np.array(zero, data)), (1, 2), attributes, real)
    scale, zeros = np.float32(0.02), np.zeros(filters, weights)
    scales = RNG.random(filters, np.float32) * 0.02
    end = np.array(10, data)
    bias = RNG.integers(-500, 500, filters).astype(np.int32)
    inputs = (arrays[0], np.asarray(scale), np.array(zero, data), arrays[1], scales, zeros, np.float32(1.5), end, bias)
    return Operation(title, kind, tuple(map(np.asarray, inputs)), tuple(range(1, 9)), attributes, real)


def product(rows: int, depth: int, columns: int, left: str = "uint8", right: str = "int8", batch: int = 0) -> Operation:
    a, b = integers((batch, rows, depth) if batch else (rows, depth), left), integers((depth, columns), right)
    title = f"MatMulInteger {f'{batch}×' if batch else ''}{rows}×{depth}×{columns}"
    title += f" {left}·{right}" if (left, right) != ("uint8", "int8") else ""
    real = Operation(title, "MatMul", (a.astype(np.float32), b.astype(np.float32)), (1,))
    zeros = np.array(120, left), np.array(0, right)
    return Operation(title, "MatMulInteger", (a, b, *zeros), (1, 2, 3), {}, real)


def scattered(
    title: str, op_type: str, shape: tuple[int, ...], positions: tuple[int, ...], **attributes: Any
) -> Operation:
    axis = attributes.get("axis", 0)
    data, updates = RNG.random(shape, np.float32), RNG.random(positions, np.float32)
    indices = np.argsort(RNG.random((*positions[:axis], shape[axis], *positions[axis + 1 :])), axis)
    indices = np.take(indices, np.arange(positions[axis]), axis).astype(np.int64)
    return Operation(title, op_type, (data, indices, updates), (), attributes)


def gathered(
    title: str, shape: tuple[int, ...], positions: tuple[int, ...], axis: int, dtype: str = "float32"
) -> Operation:
    data = (RNG.random(shape) * 100).astype(dtype)
    indices = RNG.integers(-shape[axis], shape[axis], positions)
    return Operation(title, "Gather", (data, indices), (), {"axis": axis})


def operations() -> Iterator[Operation]:
    """A dozen and more of each family, lazily, for they take memory."""
    yield convolution("ConvInteger", 3, 224, 64, 7, 2)
    yield convolution("ConvInteger", 64, 56, 64, 3)
    yield convolution("ConvInteger", 64, 56, 256, 1)
    yield convolution("ConvInteger", 256, 56, 64, 1)
    yield convolution("ConvInteger", 128, 28, 128, 3)
    yield convolution("ConvInteger", 128, 28, 128, 3, 2)
    yield convolution("ConvInteger", 256, 14, 256, 3)
    yield convolution("ConvInteger", 512, 7, 512, 3)
    yield convolution("ConvInteger", 1024, 14, 256, 1)
    yield convolution("ConvInteger", 64, 56, 64, 3, weights="uint8")
    yield convolution("ConvInteger", 24, 56, 144, 1)
    yield convolution("ConvInteger", 96, 28, 96, 3, groups=96)
    yield convolution("ConvInteger", 64, 28, 128, 3, groups=4)
    yield convolution("QLinearConv", 3, 224, 64, 7, 2)
    yield convolution("QLinearConv", 64, 56, 64, 3)
    yield convolution("QLinearConv", 64, 56, 64, 3, data="int8")
    yield convolution("QLinearConv", 64, 56, 256, 1)
    yield convolution("QLinearConv", 256, 56, 64, 1)
    yield convolution("QLinearConv", 128, 28, 128, 3)
    yield convolution("QLinearConv", 256, 14, 256, 3)
    yield convolution("QLinearConv", 512, 7, 512, 3)
    yield convolution("QLinearConv", 1024, 14, 256, 1)
    yield convolution("QLinearConv", 96, 56, 96, 3, groups=96)
    yield product(128, 768, 768)
    yield product(128, 768, 3072)
    yield product(128, 3072, 768)
    yield product(197, 768, 768)
    yield product(1, 1024, 1000)
    yield product(128, 768, 768, right="uint8")
    yield product(128, 768, 768, left="int8")
    yield product(32, 64, 64, batch=12)
    yield gathered("Gather 50,000 rows of 768", (50000, 768), (128,), 0)
    yield gathered("Gather rows of 64", (1000, 64), (4096,), 0)
    yield gathered("Gather single elements", (100000,), (100000,), 0)
    yield gathered("Gather along the last axis", (512, 512), (256,), 1)
    yield gathered("Gather bytes", (1000, 64), (4096,), 0, "uint8")
    yield scattered("ScatterElements along rows", "ScatterElements", (256, 1024), (256, 256), axis=1)
    yield scattered("ScatterElements along columns", "ScatterElements", (1024, 256), (256, 256), axis=0)
    yield scattered("ScatterElements, added", "ScatterElements", (256, 1024), (256, 512), axis=1, reduction="add")
    yield scattered("ScatterElements of one line", "ScatterElements", (100000,), (50000,), axis=0)
    yield scattered("ScatterElements of few elements", "ScatterElements", (1024, 1024), (4, 1024), axis=0)


def minimum(runs: list[Callable[[], object]], seconds: float) -> list[float]:
    """The minimum processor time of each, in turns."""
    best = [float("inf")] * len(runs)
    for run in runs:
        run()
    end = time.process_time() + seconds * len(runs)
    while time.process_time() < end:
        for i, run in enumerate(runs):
            for _ in range(3):
                start = time.thread_time()
                run()
                best[i] = min(best[i], time.thread_time() - start)
    return best


def compiled(operation: Operation, folder: Path) -> Callable[[], dict[str, np.ndarray]]:
    """A run of nnefc's library on one thread."""
    path = folder / f"{operation.op_type}.onnx"
    onnx.save(operation.model(), path)
    nnefc.compile(path).export(path.with_suffix(".so"))
    library = nnefc.load(path.with_suffix(".so"), threads=1)
    values = operation.values
    out = {tensor.name: aligned(tensor.shape, tensor.dtype) for tensor in library.outputs}
    return lambda: library.run(values, out)


def aligned(shape: tuple[int, ...], dtype: str) -> np.ndarray:
    """An array that begins with a cache line, as those do that onnxruntime makes for its results."""
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.empty(size + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + size].view(dtype).reshape(shape)


def peer(operation: Operation) -> Callable[[], list[np.ndarray]]:
    """A run of onnxruntime on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(operation.model().SerializeToString(), options, ["CPUExecutionProvider"])
    values = operation.values
    return lambda: session.run(None, values)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", help="operations whose title has this text")
    parser.add_argument("--seconds", type=float, default=0.3, help="of each engine for each operation")
    options = parser.parse_args()
    print("| operation | nnefc, µs | onnxruntime, µs | ratio | over float32 |\n|---|---|---|---|---|")
    for operation in operations():
        if options.only not in operation.title:
            continue
        with tempfile.TemporaryDirectory() as folder:
            runs: list[Callable[[], object]] = [compiled(operation, Path(folder)), peer(operation)]
            if operation.real is not None:
                runs.append(compiled(operation.real, Path(folder)))
            own, other, *real = minimum(runs, options.seconds)
            found, wanted = next(iter(compiled(operation, Path(folder))().values())), peer(operation)()[0]
            step = 1 if operation.op_type.startswith("QLinear") else 0  # quotients on the border of two integers
            if np.abs(found.astype(float) - wanted.astype(float)).max() > step:
                raise SystemExit(f"{operation.title}: the results differ")
        times = f"{own * 1e6:.1f} | {other * 1e6:.1f} | {other / own:.2f}"
        print(f"| {operation.title} | {times} | {f'{real[0] / own:.2f}' if real else ''} |", flush=True)


if __name__ == "__main__":
    main()
