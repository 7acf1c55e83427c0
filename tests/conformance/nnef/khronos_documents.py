"""The four networks that Khronos published with the standard, given random weights, and their ONNX twins.

Neither this compiler's reader nor its writer takes part: the `nnef` package reads the document and writes the tensor
files, `nnef_tools` makes the ONNX twin.
"""

from __future__ import annotations

import math
import re
import subprocess
import sys
import zlib
from pathlib import Path

import nnef
import numpy as np
import onnx
from onnx import numpy_helper

__all__ = ["DOCUMENTS", "write_twins"]

FOLDER = Path(__file__).parents[2] / "data" / "nnef"
DOCUMENTS = sorted(path.stem for path in FOLDER.glob("*.nnef"))
VARIABLE = re.compile(r"(?<=variable\(shape = \[)(\d+), (\d+)")
IMAGE_CHANNELS = 3


def write_twins(folder: Path, name: str, *, divide: int = 1) -> tuple[Path, Path]:
    """Write the document with weights as an NNEF folder, and the same network as ONNX; return both paths.

    `divide` divides every number of channels, so that the network stays the same and gets small.
    """
    text = VARIABLE.sub(lambda match: _divided(match, divide), (FOLDER / f"{name}.nnef").read_text())
    model = folder / f"{name}.nnef"
    model.mkdir()
    (model / "graph.nnef").write_text(text)
    for operation in nnef.parse_string(text).operations:
        if operation.name == "variable":
            _write_weights(model, operation.attribs["label"], tuple(operation.attribs["shape"]))
    twin = folder / f"{name}.onnx"
    command = [sys.executable, "-m", "nnef_tools.convert", "--input-format", "nnef", "--output-format", "onnx"]
    subprocess.run(
        [*command, "--input-model", str(model), "--output-model", str(twin)], check=True, capture_output=True
    )
    _mend(twin)
    return model, twin


def _mend(twin: Path) -> None:
    """What nnef_tools leaves: trained values among the inputs, a batch normalization whose scale has rank 0."""
    document = onnx.load(twin)
    graph = document.graph
    initializers = {tensor.name: tensor for tensor in graph.initializer}
    for value in [value for value in graph.input if value.name in initializers]:
        graph.input.remove(value)
    for node in graph.node:
        if node.op_type == "BatchNormalization":
            scale, mean = (initializers[node.input[position]] for position in (1, 3))
            values = np.broadcast_to(numpy_helper.to_array(scale), tuple(mean.dims))
            scale.CopyFrom(numpy_helper.from_array(values, scale.name))
    onnx.save(document, twin)


def _divided(match: re.Match[str], divide: int) -> str:
    sizes = (int(size) for size in match.groups())
    return ", ".join(str(size if size in (1, IMAGE_CHANNELS) else size // divide) for size in sizes)


def _write_weights(model: Path, label: str, shape: tuple[int, ...]) -> None:
    """Filters by He et al. 2015, variances near 1, offsets near 0; by label, so that the order is no matter."""
    rng = np.random.default_rng(zlib.crc32(label.encode()))
    values = rng.standard_normal(shape)
    if len(shape) > 2:
        values *= math.sqrt(2 / math.prod(shape[1:]))
    elif label.endswith("moving_variance"):
        values = np.exp(0.1 * values)
    else:
        values *= 0.1
    path = model / f"{label}.dat"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        nnef.write_tensor(file, values.astype(np.float32))
