"""Functions that are rounded to bytes: at most one step compared with exact ones, and few of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from scipy.special import erf, expit

import nnefc
from nnefc.targets.machine.cpu.parsing import parse_target

STEP, SMALL_STEP, ZERO = 0.05, 0.005, 17
FINE_STEP = 0.0005
"""Of which 1 + erf has all digits."""
Exact = Callable[[np.ndarray], np.ndarray]


def gelu(graph: list[onnx.NodeProto], name: str) -> None:
    """As exporters write it: x / √2, erf, + 1, · x, · ½."""
    for op, inputs, output in (
        ("Mul", ["x", "root"], "u"),
        ("Erf", ["u"], "e"),
        ("Add", ["one", "e"], "o"),
        ("Mul", ["x", "o"], "m"),
        ("Mul", ["m", "half"], name),
    ):
        graph.append(helper.make_node(op, inputs, [output]))


def gelu_tanh(graph: list[onnx.NodeProto], name: str) -> None:
    """x · ½ · (1 + tanh(0.8 x))."""
    for op, inputs, output in (
        ("Mul", ["x", "slope"], "v"),
        ("Tanh", ["v"], "t"),
        ("Add", ["t", "one"], "p"),
        ("Mul", ["x", "half"], "h"),
        ("Mul", ["h", "p"], name),
    ):
        graph.append(helper.make_node(op, inputs, [output]))


def silu(graph: list[onnx.NodeProto], name: str) -> None:
    graph += [helper.make_node("Sigmoid", ["x"], ["s"]), helper.make_node("Mul", ["x", "s"], [name])]


def difference(graph: list[onnx.NodeProto], name: str) -> None:
    """A sum whose terms cancel: 40 · sigmoid(-x) - 39."""
    graph += [helper.make_node("Neg", ["x"], ["n"]), helper.make_node("Sigmoid", ["n"], ["w"])]
    graph.append(helper.make_node("Mul", ["w", "forty"], ["g"]))
    graph.append(helper.make_node("Sub", ["g", "largest"], [name]))


FUNCTIONS: dict[str, tuple[Callable[[list[onnx.NodeProto], str], None], Exact]] = {
    "silu": (silu, lambda x: x * expit(x)),
    "gelu": (gelu, lambda x: x * (1 + erf(x * np.sqrt(0.5))) / 2),
    "gelu_tanh": (gelu_tanh, lambda x: x * expit(2 * 0.8 * x)),
    "difference": (difference, lambda x: 40 * expit(-x) - 39),
}
CONSTANTS = {"root": 0.5**0.5, "one": 1, "half": 0.5, "slope": 0.8, "forty": 40, "largest": 39}


def model(path: Path, size: int, step: float = STEP) -> Path:
    nodes: list[onnx.NodeProto] = []
    for name, (write, _) in FUNCTIONS.items():
        write(nodes, f"{name}_float")
        nodes.append(helper.make_node("QuantizeLinear", [f"{name}_float", "step", "zero"], [name]))
    values = {**CONSTANTS, "step": step}
    constants = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in values.items()]
    constants.append(numpy_helper.from_array(np.array(ZERO, np.uint8), "zero"))
    outputs = [helper.make_tensor_value_info(name, TensorProto.UINT8, [size]) for name in FUNCTIONS]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [size])]
    graph = helper.make_graph(nodes, "functions", given, outputs, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    rng = np.random.default_rng(0)
    edges = [0, -0.0, 1e-30, 87, -87, 89, -89, 1e4, -1e4, 3e38, -3e38]
    return np.concatenate([edges, rng.uniform(-13, 13, 6000), rng.standard_normal(2000)]).astype(np.float32)


@pytest.mark.parametrize("step", [STEP, SMALL_STEP, FINE_STEP])
@pytest.mark.parametrize("target", ["llvm", "x86-64-v3"])
@pytest.mark.sample(2)
def test_results_are_at_most_a_step_from_exact_ones_and_seldom(
    target: str, step: float, values: np.ndarray, tmp_path: Path
) -> None:
    if target != "llvm" and not parse_target("llvm").triple.startswith("x86_64"):
        pytest.skip("needs: an x86-64 processor")
    with nnefc.compile(model(tmp_path / "f.onnx", values.size, step), target).load() as loaded:
        found = loaded.run({"x": values})
    for name, (_, exact) in FUNCTIONS.items():
        wanted = np.clip(np.rint(exact(values.astype(np.float64)) / np.float32(step)) + ZERO, 0, 255)
        apart = np.abs(found[name].astype(int) - wanted)
        assert apart.max() <= 1, name
        assert apart.mean() < 0.02, name


def kernels_of(artifact: nnefc.Artifact, folder: Path) -> list[str]:
    """Those that round, in assembly."""
    artifact.emit("asm", folder)
    text = "".join(path.read_text() for path in folder.glob("kernels*.s"))
    return [part for part in text.split(".globl") if "vcvtps2dq" in part]


def test_wide_vectors_take_a_few_instructions_and_sums_keep_all_digits(tmp_path: Path) -> None:
    kernels = kernels_of(nnefc.compile(model(tmp_path / "f.onnx", 4096), "x86-64-v4"), tmp_path)
    assert len(kernels) == len(FUNCTIONS)
    assert sum("vscalefps" in part and "vrcp14ps" in part for part in kernels) == len(FUNCTIONS) - 1
    assert not any("vrndscaleps" in part for part in kernels)


def test_small_steps_of_erf_keep_all_digits(tmp_path: Path) -> None:
    kernels = kernels_of(nnefc.compile(model(tmp_path / "f.onnx", 4096, SMALL_STEP), "x86-64-v4"), tmp_path)
    assert sum("vscalefps" in part and "vrcp14ps" in part for part in kernels) == len(FUNCTIONS) - 1
    kernels = kernels_of(nnefc.compile(model(tmp_path / "f.onnx", 4096, FINE_STEP), "x86-64-v4"), tmp_path)
    assert sum("vscalefps" in part and "vrcp14ps" in part for part in kernels) == len(FUNCTIONS) - 2


LARGE = 1e5


@pytest.mark.parametrize(
    ("function", "subtracted", "around"), [("Sigmoid", 88000, 2), ("Erf", 0, -2.7), ("Erf", 199900, 2.5)]
)
def test_large_factors_keep_all_digits(function: str, subtracted: int, around: float, tmp_path: Path) -> None:
    """uint8(min(max(round(c · sigmoid(x)) - 88000, 0), 255)), and so with 1 + erf."""
    x = np.linspace(around - 1, around + 1, 5000, dtype=np.float32)
    nodes = [helper.make_node(function, ["x"], ["f"])]
    if function == "Erf":
        nodes.append(helper.make_node("Add", ["f", "one"], ["g"]))
    for op, inputs, output in (
        ("Mul", [nodes[-1].output[0], "large"], "p"),
        ("Round", ["p"], "r"),
        ("Add", ["r", "added"], "d"),
        ("Clip", ["d", "low", "high"], "c"),
    ):
        nodes.append(helper.make_node(op, inputs, [output]))
    nodes.append(helper.make_node("Cast", ["c"], ["y"], to=TensorProto.UINT8))
    constants = {"one": 1, "large": LARGE, "added": -subtracted, "low": 0, "high": 255}
    graph = helper.make_graph(
        nodes,
        "large",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, x.shape)],
        [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants.items()],
    )
    path = tmp_path / "large.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with nnefc.compile(path, "llvm").load() as loaded:
        found = loaded.run({"x": x})["y"]
    exact = expit(x.astype(np.float64)) if function == "Sigmoid" else 1 + erf(x.astype(np.float64))
    wanted = np.clip(np.rint(exact * LARGE) - subtracted, 0, 255)
    assert len(np.unique(wanted)) > 50
    assert np.abs(found - wanted).max() <= 1


def test_strict_libraries_compute_all_digits(tmp_path: Path) -> None:
    kernels = kernels_of(nnefc.compile(model(tmp_path / "f.onnx", 4096), "x86-64-v4", strict=True), tmp_path)
    assert kernels
    assert not any("vscalefps" in part or "vrcp14ps" in part for part in kernels)


def low_byte(folder: Path, *limits: str) -> Path:
    """The low byte of 30,000 sigmoids of `x`, rounded, perhaps cut to limits before."""
    nodes = [
        helper.make_node("Sigmoid", ["x"], ["s"]),
        helper.make_node("Mul", ["s", "large"], ["m"]),
        helper.make_node("Round", ["m"], ["r"]),
        helper.make_node("Clip", ["r", *limits], ["c"]),
        helper.make_node("Cast", ["c"], ["i"], to=TensorProto.INT32),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.UINT8),
    ]
    constants = {"large": 30000, "zero": 0, "thousand": 1000}
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [63, 64])],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in constants.items()],
    )
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("maximum", [np.inf, 1000])
def test_the_low_byte_of_a_larger_number_keeps_all_digits(maximum: float, tmp_path: Path) -> None:
    x = 3 * np.random.default_rng(4).standard_normal((63, 64)).astype(np.float32)
    path = low_byte(tmp_path) if maximum == np.inf else low_byte(tmp_path, "zero", "thousand")
    found = nnefc.compile(path).load(threads=1)(x)
    exact = 30000 * expit(x.astype(np.float64))
    certain = np.abs(exact % 1 - 0.5) > 0.02
    wanted = np.round(np.minimum(exact, maximum)).astype(np.int64) % 256
    np.testing.assert_array_equal(found[certain], wanted[certain])
