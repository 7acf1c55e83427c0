"""A device that learns: one step of training as a library, its parameters the session's states.

The model says how it is trained (ONNX's training information): a loss, its gradient, and momentum. Neither Python nor a
framework is needed where the library runs; this script feeds it handwritten digits and reads the parameters.

python training.py
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from compiled import OUT, compiled
from onnx import TensorProto, helper, numpy_helper

import nnefc

DATA = Path(__file__).parents[1] / "digits" / "test.npz"
BATCH, PIXELS, HIDDEN, CLASSES = 16, 64, 32, 10
PREVIEW = "ai.onnx.preview.training"
PARAMETERS = ("w1", "b1", "w2", "b2")


def model() -> onnx.ModelProto:
    """A network of two layers, and how it learns."""
    rng = np.random.default_rng(1)
    start = {
        "w1": rng.standard_normal((PIXELS, HIDDEN)) / np.sqrt(PIXELS),
        "b1": np.zeros(HIDDEN),
        "w2": rng.standard_normal((HIDDEN, CLASSES)) / np.sqrt(HIDDEN),
        "b2": np.zeros(CLASSES),
    }
    layers = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"]),
        helper.make_node("Relu", ["h"], ["a"]),
        helper.make_node("Gemm", ["a", "w2", "b2"], ["scores"]),
    ]
    network = helper.make_graph(
        layers,
        "digits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [BATCH, PIXELS])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, [BATCH, CLASSES])],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in start.items()],
    )
    gradients, speeds = [f"d_{name}" for name in PARAMETERS], [f"v_{name}" for name in PARAMETERS]
    renewed = [f"{name}_new" for name in (*PARAMETERS, *speeds)]
    step = [
        helper.make_node("LogSoftmax", ["scores"], ["logarithm"]),
        helper.make_node("Mul", ["logarithm", "label"], ["of_label"]),
        helper.make_node("ReduceSum", ["of_label"], ["sum"], keepdims=0),
        helper.make_node("Div", ["sum", "minus_batch"], ["loss"]),
        helper.make_node("Gradient", list(PARAMETERS), gradients, domain=PREVIEW, xs=list(PARAMETERS), y="loss"),
        helper.make_node(
            "Momentum",
            ["rate", "count", *PARAMETERS, *gradients, *speeds],
            renewed,
            domain=PREVIEW,
            alpha=0.9,
            beta=1.0,
            mode="standard",
            norm_coefficient=1e-4,
        ),
        helper.make_node("Add", ["count", "one"], ["count_new"]),
    ]
    values = {"rate": np.float32(0.03), "count": np.int64(0), "one": np.int64(1), "minus_batch": np.float32(-BATCH)}
    values |= {speed: np.zeros_like(start[name], np.float32) for speed, name in zip(speeds, PARAMETERS, strict=True)}
    shapes = {name: value.shape for name, value in start.items()}
    outputs = [helper.make_tensor_value_info("loss", TensorProto.FLOAT, [])]
    outputs.append(helper.make_tensor_value_info("count_new", TensorProto.INT64, []))
    for name, new in zip((*PARAMETERS, *PARAMETERS), renewed, strict=True):
        outputs.append(helper.make_tensor_value_info(new, TensorProto.FLOAT, shapes[name]))
    algorithm = helper.make_graph(
        step,
        "step",
        [helper.make_tensor_value_info("label", TensorProto.FLOAT, [BATCH, CLASSES])],
        outputs,
        [numpy_helper.from_array(np.asarray(value), name) for name, value in values.items()],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid(PREVIEW, 1)]
    whole = helper.make_model(network, opset_imports=imports, ir_version=8)
    updates = [(name, f"{name}_new") for name in (*PARAMETERS, *speeds, "count")]
    whole.training_info.append(helper.make_training_info(algorithm, updates, None, None))
    return whole


def correct(device: nnefc.Model, images: np.ndarray, labels: np.ndarray) -> float:
    """The share of the images that the parameters in the session read right."""
    w1, b1, w2, b2 = (device.read_state(name) for name in PARAMETERS)
    return float(((np.maximum(images @ w1 + b1, 0) @ w2 + b2).argmax(axis=1) == labels).mean())


def main() -> None:
    OUT.mkdir(exist_ok=True)
    path = OUT / "learner.onnx"
    onnx.save(model(), path)
    device = compiled(path, entry="training:0")
    data = np.load(DATA)
    images, labels = data["images"].reshape(-1, PIXELS).astype(np.float32) / 16, data["labels"].astype(np.int64)
    half = len(images) // 2
    print(f"before: {correct(device, images[half:], labels[half:]):.1%} of the images that it does not learn from")
    rng = np.random.default_rng(2)
    for step in range(1, 601):
        chosen = rng.integers(0, half, BATCH)
        results = device.run({"x": images[chosen], "label": np.eye(CLASSES, dtype=np.float32)[labels[chosen]]})
        if step % 200 == 0:
            print(f"after {step} steps: loss {results['loss']:.3f}")
    print(f"after: {correct(device, images[half:], labels[half:]):.1%}")


if __name__ == "__main__":
    main()
