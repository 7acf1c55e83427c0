"""What `on_device.py` measures, compiled on a machine without a GPU: libraries, inputs, and what they shall give.

    python benchmarks/cuda/libraries.py FOLDER [--arch 90] [NETWORK[*BATCH][:PRECISION,…] ...]

writes FOLDER/NETWORK-BATCH-PRECISION/ with network.so, about.json and wanted.npz, onnxruntime's results in float32, and
for onnxruntime's own times FOLDER/NETWORK-BATCH.onnx, also with `-fp16` and `-int8`. A NETWORK that ends in `.onnx` is
a file. The precision `int8` quantizes the network (`byte_networks.py`); floats that are left are computed in `fp16`.
Libraries that the folder has of the present commit are not compiled again.

Trained values are random, and repeat after 4,096 of them: the folder packs to a few megabytes, and the speed of none of
the peers depends on values.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import click
import numpy as np
import onnx
import onnxruntime
from onnx import numpy_helper
from onnxruntime.transformers.float16 import convert_float_to_float16

import nnefc
from nnefc.driver.artifact import Artifact
from nnefc.targets.codegen.cuda.code import CudaCode

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "benchmarks"), str(ROOT / "benchmarks" / "cuda")]

from byte_networks import in_bytes  # noqa: E402
from conditions import commit  # noqa: E402
from inputs import EVERY, drawn  # noqa: E402
from models.networks import write_twins  # noqa: E402

PRECISIONS = ("fp32", "tf32", "fp16")
WHOLE = (
    *("resnet50", "mobilenet_v2", "efficientnet_b0", "bert_base", "vit_b16", "squeezenet", "densenet121"),
    *("unet", "lstm", "resnet50*16", "mobilenet_v2*16", "bert_base*16", "bert_base*16:bf16"),
    *("squeezenet:int8", "resnet50*16:int8"),
)
_PERIOD = 4096


@click.command()
@click.argument("folder", type=Path)
@click.argument("networks", nargs=-1)
@click.option("--arch", default=90)
def main(folder: Path, networks: tuple[str, ...], arch: int) -> None:
    """Compile NETWORKS, or a choice of them."""
    folder.mkdir(parents=True, exist_ok=True)
    for word in networks or WHOLE:
        name, _, precisions = word.partition(":")
        name, _, batch = name.partition("*")
        path = Path(name) if name.endswith(".onnx") else write_twins(ROOT / "build" / "models", name).onnx
        compile_network(folder, path, int(batch or 1), arch, precisions.split(",") if precisions else PRECISIONS)


def compile_network(folder: Path, path: Path, batch: int, arch: int, precisions: Sequence[str]) -> None:
    """Compiles one network in several precisions, with onnxruntime's results."""
    for precision in precisions:
        made = folder / f"{path.stem}-{batch}-{precision}"
        if _is_present(made):
            click.echo(f"{made.name} is there")
            continue
        is_quantized = precision == "int8"
        source = model_file(folder, path, batch, "int8" if is_quantized else "")
        peer = model_file(folder, path, batch, precision if precision in ("int8", "fp16") else "")
        inputs, wanted = results(source)
        began = time.monotonic()
        artifact = nnefc.compile(source, f"cuda -arch=sm_{arch}", precision="fp16" if is_quantized else precision)
        about = {"network": path.stem, "batch": batch, "precision": precision, "inputs": inputs, "model": peer.name}
        write_library(made, artifact, wanted, {**about, "seconds": time.monotonic() - began})
        if any(np.ptp(value) < 1e-3 * np.abs(value).max() for value in wanted.values()):
            click.echo("    its results are nearly equal: that they are right shows little")


def model_file(folder: Path, path: Path, batch: int, kind: str) -> Path:
    """Returns the file of a network with repeated values and a batch, which is written if it is not there.

    Args:
        kind: `int8` for a quantized one; `fp16` for one that computes in float16; "" for float32.
    """
    file = folder / f"{path.stem}-{batch}{kind and '-'}{kind}.onnx"
    if file.exists():
        return file
    network = with_batch(repeating(onnx.load(path)), batch)
    if kind == "int8":
        network = in_bytes(network)
    elif kind == "fp16":
        network = convert_float_to_float16(network, keep_io_types=True, disable_shape_infer=True)
    onnx.save(network, file)
    return file


def results(source: Path) -> tuple[dict[str, list[int]], dict[str, np.ndarray]]:
    """Returns the shapes of a file's inputs, and what onnxruntime computes."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.add_session_config_entry("session.x64quantprecision", "1")  # sums of bytes are exact
    session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    shapes = {i.name: list(i.shape) for i in session.get_inputs()}
    return shapes, dict(zip([o.name for o in session.get_outputs()], session.run(None, drawn(shapes)), strict=True))


def write_library(
    made: Path, artifact: Artifact, wanted: Mapping[str, np.ndarray], about: Mapping[str, object]
) -> None:
    """Writes a folder for `on_device.py`; `about.json` comes last, so that a folder which has one is whole.

    Args:
        made: the folder.
        artifact: the library.
        wanted: the results in float32, or of the same integers, by name.
        about: network, batch, precision, shapes of the inputs by name, seconds of the compilation, and the name of the
            file that onnxruntime's time is of, where there is one.
    """
    code = artifact.code
    assert isinstance(code, CudaCode)
    made.mkdir(parents=True, exist_ok=True)
    artifact.export(made / "network.so")
    np.savez(made / "wanted.npz", **{name: value[::EVERY] for name, value in wanted.items()})
    (made / "kernels.cu").write_text(code.kernels.source)
    (made / "about.json").write_text(json.dumps({**about, "commit": commit()}))
    click.echo(f"{made.name}: {about['seconds']:.0f} s, {len(code.kernels.launches)} launches")


def _is_present(made: Path) -> bool:
    """Whether a folder has the library of this very compiler."""
    about = made / "about.json"
    sources = commit()
    return (
        sources.isalnum()
        and sources != "unknown"
        and about.exists()
        and json.loads(about.read_text())["commit"] == sources
    )


def repeating(model: onnx.ModelProto) -> onnx.ModelProto:
    """The network with large trained values that repeat; factors of channels, folded into them, are one number."""
    scales = {name for node in model.graph.node if node.op_type == "Resize" for name in node.input[1:]}
    for value in model.graph.initializer:
        array = numpy_helper.to_array(value)
        if value.name in scales:
            continue
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
    constants = {value.name for value in graph.initializer}
    shapes = {node.input[1] for node in graph.node if node.op_type == "Reshape" and node.input[0] not in constants}
    for value in graph.initializer:
        if value.name in shapes:
            sizes = numpy_helper.to_array(value).copy()
            assert sizes[0] in (1, -1, 0), sizes
            sizes[0] = batch
            value.CopyFrom(numpy_helper.from_array(sizes, value.name))
    return model


if __name__ == "__main__":
    main()
