"""Functions that are rounded to bytes: at most one step beside exact ones, and few of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from scipy.special import erf, expit

import nnefc
from nnefc.targets.machine.parsing import parse_target

STEP, ZERO = 0.05, 17
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
    graph.append(helper.make_node("Sub", ["g", "most"], [name]))


FUNCTIONS: dict[str, tuple[Callable[[list[onnx.NodeProto], str], None], Exact]] = {
    "silu": (silu, lambda x: x * expit(x)),
    "gelu": (gelu, lambda x: x * (1 + erf(x * np.sqrt(0.5))) / 2),
    "gelu_tanh": (gelu_tanh, lambda x: x * expit(2 * 0.8 * x)),
    "difference": (difference, lambda x: 40 * expit(-x) - 39),
}
CONSTANTS = {"root": 0.5**0.5, "one": 1, "half": 0.5, "slope": 0.8, "forty": 40, "most": 39, "step": STEP}


def model(path: Path, size: int) -> Path:
    nodes: list[onnx.NodeProto] = []
    for name, (write, _) in FUNCTIONS.items():
        write(nodes, f"{name}_float")
        nodes.append(helper.make_node("QuantizeLinear", [f"{name}_float", "step", "zero"], [name]))
    constants = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in CONSTANTS.items()]
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


@pytest.mark.parametrize("target", ["llvm", "x86-64-v3"])
def test_results_are_at_most_a_step_beside_exact_ones_and_seldom(
    target: str, values: np.ndarray, tmp_path: Path
) -> None:
    if target != "llvm" and not parse_target("llvm").triple.startswith("x86_64"):
        pytest.skip("needs: an x86-64 processor")
    with nnefc.compile(model(tmp_path / "f.onnx", values.size), target).load() as loaded:
        found = loaded.run({"x": values})
    for name, (_, exact) in FUNCTIONS.items():
        wanted = np.clip(np.rint(exact(values.astype(np.float64)) / np.float32(STEP)) + ZERO, 0, 255)
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


def test_strict_libraries_compute_all_digits(tmp_path: Path) -> None:
    kernels = kernels_of(nnefc.compile(model(tmp_path / "f.onnx", 4096), "x86-64-v4", strict=True), tmp_path)
    assert kernels
    assert not any("vscalefps" in part or "vrcp14ps" in part for part in kernels)
