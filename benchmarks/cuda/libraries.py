"""What `on_device.py` measures, compiled on a machine without a GPU: libraries, inputs, and what they shall give.

    python benchmarks/cuda/libraries.py FOLDER [--arch 90] [NETWORK[*BATCH][:PRECISION,…] ...]

writes FOLDER/NETWORK-BATCH-PRECISION/ with network.so, about.json and wanted.npz, onnxruntime's results in float32.
Trained values are random, and repeat after 4,096 of them: the folder packs to a few megabytes, and the speed of none of
the peers depends on values.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import click
import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper

import nnefc
from nnefc.targets.codegen.cuda.code import CudaCode

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "cuda")]

from conditions import commit  # noqa: E402
from inputs import EVERY, drawn  # noqa: E402
from models.networks import write_twins  # noqa: E402

PRECISIONS = ("fp32", "tf32", "fp16")
WHOLE = (
    *("resnet50", "mobilenet_v2", "efficientnet_b0", "bert_base", "vit_b16", "squeezenet", "densenet121"),
    *("unet", "lstm", "resnet50*16", "mobilenet_v2*16", "bert_base*16"),
)
_PERIOD = 4096


@click.command()
@click.argument("folder", type=Path)
@click.argument("networks", nargs=-1)
@click.option("--arch", default=90)
def main(folder: Path, networks: tuple[str, ...], arch: int) -> None:
    """Compile NETWORKS, or a choice of them."""
    for word in networks or WHOLE:
        name, _, precisions = word.partition(":")
        name, _, batch = name.partition("*")
        compile_network(folder, name, int(batch or 1), arch, precisions.split(",") if precisions else PRECISIONS)


def compile_network(folder: Path, name: str, batch: int, arch: int, precisions: tuple[str, ...] | list[str]) -> None:
    """One network in several precisions."""
    with tempfile.TemporaryDirectory() as position:
        path = Path(position) / f"{name}.onnx"
        onnx.save(with_batch(repeating(onnx.load(write_twins(ROOT / "build" / "models", name).onnx)), batch), path)
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
        shapes = {i.name: list(i.shape) for i in session.get_inputs()}
        inputs = drawn(shapes)
        wanted = {o.name: v for o, v in zip(session.get_outputs(), session.run(None, inputs), strict=True)}
        for precision in precisions:
            began = time.monotonic()
            artifact = nnefc.compile(path, f"cuda -arch=sm_{arch}", precision=precision)
            code = artifact.code
            assert isinstance(code, CudaCode)
            made = folder / f"{name}-{batch}-{precision}"
            made.mkdir(parents=True, exist_ok=True)
            artifact.export(made / "network.so")
            np.savez(made / "wanted.npz", **{name: value[::EVERY] for name, value in wanted.items()})
            (made / "kernels.cu").write_text(code.kernels.source)
            about = {
                "network": name,
                "batch": batch,
                "inputs": shapes,
                "precision": precision,
                "commit": commit(),
                "seconds": time.monotonic() - began,
            }
            (made / "about.json").write_text(json.dumps(about))
            click.echo(f"{made.name}: {about['seconds']:.0f} s, {len(code.kernels.launches)} launches")


def repeating(model: onnx.ModelProto) -> onnx.ModelProto:
    """The network with large trained values that repeat; factors of channels, folded into them, are one number."""
    for value in model.graph.initializer:
        array = numpy_helper.to_array(value)
        if array.dtype == np.float32 and array.ndim == 1:
            value.CopyFrom(numpy_helper.from_array(np.full_like(array, array.mean()), value.name))
        elif array.dtype == np.float32 and array.size > _PERIOD:
            value.CopyFrom(numpy_helper.from_array(np.resize(array.ravel()[:_PERIOD], array.shape), value.name))
    return model


def with_batch(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """The network for several images or sentences: it has one, which constants of reshapes name first."""
    if batch == 1:
        return model
    graph = model.graph
    for value in graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = batch
    for value in graph.output:
        value.type.tensor_type.shape.dim[0].dim_value = batch
    del graph.value_info[:]
    shapes = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    for value in graph.initializer:
        if value.name in shapes:
            sizes = numpy_helper.to_array(value).copy()
            assert sizes[0] in (1, -1, 0), sizes
            sizes[0] = batch
            value.CopyFrom(numpy_helper.from_array(sizes, value.name))
    return model


if __name__ == "__main__":
    main()
