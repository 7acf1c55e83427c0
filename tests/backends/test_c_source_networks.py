"""Networks of real size as C source: MobileNet v2, and a detector with an LSTM that keeps its state."""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from c_programs import COMPILERS, STRICT, WARNINGS, CNetwork, compiled, written
from models.networks import write_twins
from onnx import TensorProto, helper, numpy_helper

import nnefc

pytestmark = pytest.mark.slow

FRAMES, CELLS = 64, 48


def detector(path: Path) -> None:
    """Writes a network that marks events in sound: convolutions, an LSTM with states as inputs and outputs, a head."""
    random = np.random.default_rng(5)
    info = helper.make_tensor_value_info
    shapes = {
        "w1": (16, 1, 8), "b1": (16,), "w2": (32, 16, 4), "b2": (32,), "wo": (CELLS, 3), "bo": (3,),
        "w": (1, 4 * CELLS, 32), "r": (1, 4 * CELLS, CELLS), "b": (1, 8 * CELLS),
    }  # fmt: skip
    weights = [
        numpy_helper.from_array((random.standard_normal(shape) * 0.2).astype(np.float32), name)
        for name, shape in shapes.items()
    ]
    nodes = [
        helper.make_node("Conv", ["sound", "w1", "b1"], ["c1"], strides=[4], auto_pad="SAME_UPPER"),
        helper.make_node("Relu", ["c1"], ["a1"]),
        helper.make_node("Conv", ["a1", "w2", "b2"], ["c2"], strides=[2], auto_pad="SAME_UPPER"),
        helper.make_node("Relu", ["c2"], ["a2"]),
        helper.make_node("Transpose", ["a2"], ["steps"], perm=[2, 0, 1]),
        helper.make_node(
            "LSTM", ["steps", "w", "r", "b", "", "h", "c"], ["y", "h_after", "c_after"], hidden_size=CELLS
        ),
        helper.make_node("Squeeze", ["y", "one"], ["rows"]),
        helper.make_node("MatMul", ["rows", "wo"], ["scores"]),
        helper.make_node("Add", ["scores", "bo"], ["sums"]),
        helper.make_node("Sigmoid", ["sums"], ["events"]),
        helper.make_node("ReduceMax", ["events"], ["strongest"], axes=[0], keepdims=0),
    ]
    weights.append(numpy_helper.from_array(np.array([1]), "one"))
    state = (1, 1, CELLS)
    inputs = [info("sound", TensorProto.FLOAT, (1, 1, 8 * FRAMES))]
    inputs += [info(name, TensorProto.FLOAT, state) for name in ("h", "c")]
    outputs = [info("events", TensorProto.FLOAT, (FRAMES, 1, 3)), info("strongest", TensorProto.FLOAT, (1, 3))]
    outputs += [info(name, TensorProto.FLOAT, state) for name in ("h_after", "c_after")]
    graph = helper.make_graph(nodes, "detector", inputs, outputs, weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)


@pytest.fixture(scope="module")
def networks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, CNetwork]:
    folder = tmp_path_factory.mktemp("networks")
    detector(folder / "detector.onnx")
    models = {"detector": folder / "detector.onnx", "mobilenet_v2": write_twins(folder, "mobilenet_v2").onnx}
    return {
        name: written(nnefc.compile(path, "generic-c"), path.with_suffix(".c"), "separate")
        for name, path in models.items()
    }


def check(network: CNetwork, inputs: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Runs a network and compares it with onnxruntime."""
    session = onnxruntime.InferenceSession(str(network.path.with_suffix(".onnx")), providers=["CPUExecutionProvider"])
    given = dict(zip((each.name for each in session.get_inputs()), inputs.values(), strict=True))
    made = network.run(given)
    names = [output.name for output in session.get_outputs()]
    for name, wanted in zip(names, session.run(names, given), strict=True):
        largest = np.abs(wanted).max()
        np.testing.assert_allclose(made[name], wanted, rtol=0, atol=1e-5 * largest, err_msg=name)
    return made


@pytest.mark.parametrize("command", COMPILERS, ids=lambda command: Path(command[-1]).stem)
def test_they_compile_without_a_warning_and_compute_the_same(
    command: tuple[str, ...], networks: dict[str, CNetwork]
) -> None:
    compiled(list(networks.values()), command, *STRICT)
    random = np.random.default_rng(2)
    check(networks["mobilenet_v2"], {"data": random.standard_normal((1, 3, 224, 224)).astype(np.float32)})
    state = {each: np.zeros((1, 1, CELLS), np.float32) for each in ("h", "c")}
    for _ in range(3):
        sound = random.standard_normal((1, 1, 8 * FRAMES)).astype(np.float32)
        made = check(networks["detector"], {"sound": sound, **state})
        state = {each: made[f"{each}_after"] for each in ("h", "c")}


def test_they_are_c_plus_plus_too(networks: dict[str, CNetwork]) -> None:
    for command in COMPILERS:
        for network in networks.values():
            words = [*command, "-std=c++11", *WARNINGS, "-x", "c++", "-c", str(network.path), "-o", "/dev/null"]
            done = subprocess.run(words, capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, ""), done.stderr
