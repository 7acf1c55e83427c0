"""Nine well-known image networks with random weights, as ONNX, and their NNEF twins.

The `onnx` package carries these architectures without their trained values. Here every trained value is drawn again,
seeded and scaled by its part in the network, so that activations keep a sensible size; the last linear layer is scaled
so that the probabilities differ but none is nearly one. Khronos' `nnef_tools` writes the NNEF twin.

    python benchmarks/models/zoo.py FOLDER [NAME ...] [--divide 8]

writes FOLDER/NAME.onnx and FOLDER/NAME.nnef/. `--divide` makes smaller networks of the same structure: every number of
channels is divided.
"""

from __future__ import annotations

import argparse
import math
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.backend.test
from onnx import numpy_helper, version_converter

__all__ = ["NAMES", "Twins", "input_of", "make_model", "write_twins"]

NAMES = (
    "bvlc_alexnet",
    "densenet121",
    "inception_v1",
    "inception_v2",
    "resnet50",
    "shufflenet",
    "squeezenet",
    "vgg19",
    "zfnet512",
)
INDIVISIBLE = {"shufflenet"}  # groups of 34 channels, and as many groups as channels
OPSET = 12  # the last one that nnef_tools reads: 13 gave Softmax another meaning
IMAGE_CHANNELS = 3
LOGIT_DEVIATION = 2.0

Draw = Callable[[np.random.Generator, tuple[int, ...], int], np.ndarray]


class Twins(tuple[Path, Path]):
    """The paths of one network: the ONNX file and the NNEF folder."""

    @property
    def onnx(self) -> Path:
        return self[0]

    @property
    def nnef(self) -> Path:
        return self[1]


def write_twins(folder: Path, name: str, *, divide: int = 1) -> Twins:
    """Write one network both ways, unless it is there already, and return the paths."""
    folder.mkdir(parents=True, exist_ok=True)
    stem = name if divide == 1 else f"{name}-{divide}"
    twins = Twins((folder / f"{stem}.onnx", folder / f"{stem}.nnef"))
    if not twins.onnx.exists():
        part = twins.onnx.with_suffix(".part")
        onnx.save(make_model(name, divide=divide), part)
        part.replace(twins.onnx)
    if not (twins.nnef / "graph.nnef").exists():
        _convert_to_nnef(twins)
    return twins


def _convert_to_nnef(twins: Twins) -> None:
    command = [sys.executable, "-m", "nnef_tools.convert", "--input-format", "onnx", "--output-format", "nnef"]
    paths = ["--input-model", str(twins.onnx), "--output-model", str(twins.nnef)]
    done = subprocess.run([*command, *paths], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"nnef_tools could not convert {twins.onnx.name}: {done.stdout}{done.stderr}")


def make_model(name: str, *, divide: int = 1, seed: int = 0) -> onnx.ModelProto:
    """One network with a batch of one and all shapes inferred. `divide` does not apply to shufflenet's channels."""
    light = Path(onnx.backend.test.__file__).parent / "data" / "light" / f"light_{name}.onnx"
    model = onnx.load(light)
    graph = model.graph
    _draw_weights(graph, np.random.default_rng(seed), 1 if name in INDIVISIBLE else divide)
    for value in graph.input:
        value.type.tensor_type.shape.dim[0].dim_value = 1
    for value in graph.output:
        value.type.tensor_type.ClearField("shape")
    del graph.value_info[:]
    model.ir_version = 8
    model = version_converter.convert_version(model, OPSET)
    _constants_to_initializers(model.graph)
    _calm_logits(model)
    onnx.checker.check_model(model)
    return onnx.shape_inference.infer_shapes(model, strict_mode=True)


def input_of(model: onnx.ModelProto, seed: int = 1) -> dict[str, np.ndarray]:
    """A standard normal value for the one input."""
    initialized = {tensor.name for tensor in model.graph.initializer}
    (value,) = (value for value in model.graph.input if value.name not in initialized)
    shape = [d.dim_value for d in value.type.tensor_type.shape.dim]
    return {value.name: np.random.default_rng(seed).standard_normal(shape).astype(np.float32)}


def _filter(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> np.ndarray:
    return rng.standard_normal(shape) * math.sqrt(2 / fan_in)  # He et al., 2015


def _offset(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> np.ndarray:
    return 0.1 * rng.standard_normal(shape)


def _scale(rng: np.random.Generator, shape: tuple[int, ...], fan_in: int) -> np.ndarray:
    return np.exp(0.1 * rng.standard_normal(shape))


PARTS: dict[tuple[str, int], Draw] = {  # operation and position of the operand → how its values are drawn
    ("Conv", 1): _filter,
    ("Conv", 2): _offset,
    ("Gemm", 1): _filter,
    ("Gemm", 2): _offset,
    ("BatchNormalization", 1): _scale,
    ("BatchNormalization", 2): _offset,
    ("BatchNormalization", 3): _offset,
    ("BatchNormalization", 4): _scale,
    ("Mul", 1): _scale,
    ("Add", 1): _offset,
}


def _draw_weights(graph: onnx.GraphProto, rng: np.random.Generator, divide: int) -> None:
    """Replace the nodes that stand for trained values, and the few values that the package has, by initializers."""
    held = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    users = {name: (node, position) for node in graph.node for position, name in enumerate(node.input)}
    weights = {name: value.shape for name, value in held.items() if value.dtype == np.float32 and name in users}
    targets = {node.input[1] for node in graph.node if node.op_type == "Reshape"}
    values = {name: _divided_target(held[name], divide) for name in targets}
    kept = []
    for node in graph.node:
        if node.op_type == "ConstantOfShape":
            weights[node.output[0]] = tuple(held[node.input[0]])
        else:
            kept.append(node)
    for name, shape in weights.items():
        node, position = users[name]
        while node.op_type in ("Unsqueeze", "Reshape"):
            node, position = users[node.output[0]]
        divided = _divided_shape(shape, divide)
        fan_in = divided[-1] if node.op_type == "Gemm" else math.prod(divided[1:])
        values[name] = PARTS[node.op_type, position](rng, divided, fan_in).astype(np.float32)
    del graph.node[:], graph.initializer[:]
    graph.node.extend(kept)
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in values.items())
    for value in [v for v in graph.input if v.name in values or v.name in held]:
        graph.input.remove(value)


def _divided_shape(shape: tuple[int, ...], divide: int) -> tuple[int, ...]:
    """A trained value's shape with fewer channels. The spatial sizes of a filter and the image's channels stay."""
    channels = 2 if shape[:2] != (1, 1) else 4  # one of the weights is [1, 1, out, in]
    return tuple(
        int(d) // divide if axis < channels and d not in (1, IMAGE_CHANNELS) else int(d) for axis, d in enumerate(shape)
    )


def _divided_target(shape: np.ndarray, divide: int) -> np.ndarray:
    """The new shape that a Reshape asks for, of rank 2 wherever networks are divided."""
    return shape if divide == 1 else np.where(shape == 1, 1, shape // divide)


def _constants_to_initializers(graph: onnx.GraphProto) -> None:
    """nnef_tools wants trained values as initializers, not as the nodes that the version converter makes."""
    for node in [n for n in graph.node if n.op_type == "Constant"]:
        graph.initializer.append(numpy_helper.from_array(numpy_helper.to_array(node.attribute[0].t), node.output[0]))
        graph.node.remove(node)


def _calm_logits(model: onnx.ModelProto) -> None:
    """Scale the last linear layer so that the softmax after it does not saturate."""
    import onnxruntime

    makers = {name: node for node in model.graph.node for name in node.output}
    last = model.graph.node[-1]
    logits = last.input[0] if last.op_type == "Softmax" else last.output[0]
    probe = onnx.ModelProto()
    probe.CopyFrom(model)
    del probe.graph.output[:]
    probe.graph.output.append(onnx.helper.make_empty_tensor_value_info(logits))
    session = onnxruntime.InferenceSession(probe.SerializeToString(), providers=["CPUExecutionProvider"])
    (value,) = session.run(None, input_of(model))
    layer = makers[logits]
    while layer.op_type not in ("Gemm", "Conv"):
        layer = makers[layer.input[0]]
    names = {_source(makers, name) for name in layer.input[1:]}
    for tensor in model.graph.initializer:
        if tensor.name in names:
            scaled = numpy_helper.to_array(tensor) * np.float32(LOGIT_DEVIATION / value.std())
            tensor.CopyFrom(numpy_helper.from_array(scaled, tensor.name))


def _source(makers: dict[str, onnx.NodeProto], name: str) -> str:
    """The initializer behind a reshaped weight."""
    while name in makers:
        name = makers[name].input[0]
    return name


def main() -> int:
    parser = argparse.ArgumentParser(description="Write networks as ONNX and NNEF.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", default=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--divide", type=int, default=1, help="divide every number of channels")
    arguments = parser.parse_args()
    for name in arguments.names:
        print(*write_twins(arguments.folder, name, divide=arguments.divide))
    return 0


if __name__ == "__main__":
    sys.exit(main())
