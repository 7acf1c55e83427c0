"""Libraries whose results have the same bits on all processors (`nnefc compile --reproducible`)."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner
from emulation import MACHINES, Machine, run_on
from onnx import TensorProto, helper, numpy_helper
from pnnx_files import operator_network
from reproducible_networks import AT_BORDERS
from small_networks import NETWORKS, Net

import nnefc
from nnefc.backends import cpu_steps
from nnefc.cli import main
from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.cpu.parsing import parse_target
from nnefc.targets.machine.cpu.reproducible import machine_of_schedules
from nnefc.targets.machine.cpu.target import Target

RNG = np.random.default_rng(22)
X = RNG.standard_normal((2, 6, 13, 11)).astype(np.float32)
EMULATED = [
    m for m in MACHINES if m.name in ("x86-64", "aarch64", "cortex-a76", "armv7", "riscv64", "riscv64gcv", "wasm32")
]
FUSED = re.compile(r"^\s+(?:fml[as]|v?fn?m(?:add|sub|acc|sac))\b.*", re.MULTILINE)
"""Multiply-adds of floats in the assembly of Arm and RISC-V."""

LONG = [m for m in MACHINES if m.name == "riscv64gcv-long"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Long sums of all kinds, none of a multiple of a vector, and what is made of them."""
    weights = {
        "k": RNG.standard_normal((19, 6, 3, 3)),
        "d": RNG.standard_normal((19, 1, 3, 3)),
        "m": RNG.standard_normal((11, 23)),
        "g": RNG.standard_normal(23),
    }
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Elu", ["c"], ["e"]),
        helper.make_node("Conv", ["e", "d"], ["w"], group=19, pads=[1, 1, 1, 1]),
        helper.make_node("MatMul", ["w", "m"], ["p"]),
        helper.make_node("LayerNormalization", ["p", "g"], ["n"]),
        helper.make_node("Atan", ["n"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"]),
        helper.make_node("GlobalAveragePool", ["w"], ["z"]),
        helper.make_node("CumSum", ["p", "axis"], ["t"]),
        helper.make_node("Cast", ["p"], ["i"], to=TensorProto.INT32),
    ]
    tensors = [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [
            *(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "yzt"),
            helper.make_tensor_value_info("i", TensorProto.INT32, None),
        ],
        [*tensors, numpy_helper.from_array(np.array(2), "axis")],
    )
    path = tmp_path_factory.mktemp("reproducible") / "m.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), path)
    return path


@pytest.fixture(scope="module")
def results(model: Path) -> dict[str, np.ndarray]:
    with nnefc.compile(model, reproducible=True).load(threads=1) as loaded:
        return dict(loaded.run({"x": X}))


def bits(array: np.ndarray) -> bytes:
    """Those of the numbers; NaN has any."""
    if array.dtype.kind == "f":
        array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
    return np.ascontiguousarray(array).tobytes()


def have_same_bits(results: dict[str, np.ndarray], others: dict[str, np.ndarray]) -> bool:
    return all(bits(own) == bits(others[name]) for name, own in results.items())


def test_older_processors_and_more_threads_give_the_same_bits(model: Path, results: dict[str, np.ndarray]) -> None:
    artifact = nnefc.compile(model, "x86-64-v2", reproducible=True)
    for threads in (1, 2, 3):
        with artifact.load(threads=threads) as loaded:
            assert have_same_bits(results, loaded.run({"x": X}))


def test_results_are_those_of_float32(model: Path, results: dict[str, np.ndarray]) -> None:
    with nnefc.compile(model, strict=True).load() as loaded:
        default = loaded.run({"x": X})
    for name in "yzt":
        assert np.abs(default[name] - results[name]).max() <= 2e-5 * np.abs(default[name]).max()


@pytest.mark.slow
def test_smaller_tiles_give_the_same_bits(
    model: Path, results: dict[str, np.ndarray], monkeypatch: pytest.MonkeyPatch
) -> None:
    def machine(target: Target) -> Target:
        machine = machine_of_schedules(target)
        return replace(machine, vectors=replace(machine.vectors, registers=5))

    monkeypatch.setattr(cpu_steps, "machine_of_schedules", machine)
    with nnefc.compile(model, reproducible=True).load(threads=1) as loaded:
        assert have_same_bits(results, loaded.run({"x": X}))


def test_subnormal_numbers_are_kept(tmp_path: Path) -> None:
    half = helper.make_graph(
        [helper.make_node("Mul", ["x", "h"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3])],
        [numpy_helper.from_array(np.float32(0.5), "h")],
    )
    onnx.save(helper.make_model(half, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), tmp_path / "m.onnx")
    small = np.array([1e-38, 1e-42, 3e-45], np.float32)
    with nnefc.compile(tmp_path / "m.onnx", reproducible=True).load() as loaded:
        assert np.array_equal(loaded.run({"x": small})["y"], small * np.float32(0.5))


def test_there_are_no_fused_multiply_adds(model: Path, tmp_path: Path) -> None:
    nnefc.compile(model, "x86-64-v3", reproducible=True).emit("asm", tmp_path)
    text = "".join(path.read_text() for path in tmp_path.glob("*.s"))
    assert "vmulps" in text
    assert "vfm" not in text


@pytest.mark.parametrize(
    "target", ["aarch64-linux-gnu", pytest.param("riscv64-linux-gnu", marks=pytest.mark.slow), "riscv64gcv-linux-gnu"]
)
@pytest.mark.sample(1)
def test_other_processors_have_no_fused_multiply_adds_either(target: str, tmp_path: Path) -> None:
    net = Net(5)
    x = net.do("Atan", net.do("Conv", net.floats(1, 3, 5, 7), net.weight(5, 3, 3, 3), pads=[1] * 4))
    onnx.save(net.model([net.do("MatMul", x, net.weight(7, 9))]), tmp_path / "m.onnx")
    found = {}
    for reproducible in (True, False):
        folder = tmp_path / str(reproducible)
        nnefc.compile(tmp_path / "m.onnx", target, reproducible=reproducible).emit("asm", folder)
        found[reproducible] = FUSED.findall("".join(path.read_text() for path in folder.glob("*.s")))
    assert found[False], "instructions that are looked for have other names"
    assert not found[True]


def test_inspect_says_so(tmp_path: Path) -> None:
    net, path, library = Net(6), tmp_path / "m.onnx", tmp_path / "m.so"
    onnx.save(net.model([net.do("Exp", net.floats(3))]), path)
    done = CliRunner().invoke(
        main, ["compile", str(path), "--reproducible", "-t", "aarch64-linux-gnu", "-o", str(library)]
    )
    assert done.exit_code == 0, done.output
    assert "the same bits on all processors" in CliRunner().invoke(main, ["inspect", str(library)]).output


@pytest.mark.parametrize(
    ("target", "options", "reason"),
    [
        ("cuda", {}, "no reproducible results"),
        ("cortex-m4", {}, "no operating system"),
        ("native", {"small": True}, "small library"),
    ],
)
def test_machines_without_such_code_are_refused(
    model: Path, target: str, options: dict[str, bool], reason: str
) -> None:
    with pytest.raises(CompileError, match=reason):
        nnefc.compile(model, target, reproducible=True, **options)


def test_functions_of_the_c_library_are_refused(tmp_path: Path) -> None:
    graph = helper.make_graph(
        [helper.make_node("Exp", ["x"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.DOUBLE, [3])],
        [helper.make_tensor_value_info("y", TensorProto.DOUBLE, [3])],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10), tmp_path / "m.onnx")
    with pytest.raises(CompileError, match="exp of float64"):
        nnefc.compile(tmp_path / "m.onnx", reproducible=True)


def test_registers_follow_the_target_and_nothing_else_does() -> None:
    machines = [
        machine_of_schedules(parse_target(name).made_reproducible())
        for name in (
            "x86-64-v4",
            "x86-64-v2",
            "aarch64-linux-gnu",
            "armv7-linux-gnueabihf",
            "wasm32-wasi",
            "riscv64-linux-gnu",
        )
    ]
    assert len({replace(machine, vectors=replace(machine.vectors, registers=0)) for machine in machines}) == 1
    assert machines[0].vectors.registers > machines[1].vectors.registers


@dataclass(frozen=True)
class Here:
    """A network, its inputs, and its results on this processor.

    Attributes:
        inputs: by the names that its library gives them.
    """

    path: Path
    inputs: dict[str, np.ndarray]
    results: dict[str, np.ndarray]


@pytest.fixture(scope="module")
def run_here(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Here]:
    """Networks by their names, each compiled and run here once for all machines that it is compared with."""

    @functools.cache
    def run(network: str) -> Here:
        folder = tmp_path_factory.mktemp("here")
        if network == "sums":
            path, inputs = model, {"x": X}
        elif network in AT_BORDERS:
            path, inputs = AT_BORDERS[network](folder)
        else:
            net, path = Net(3), folder / "m.onnx"
            onnx.save(net.model(NETWORKS[network](net)), path)
            inputs = net.inputs
        artifact = nnefc.compile(path, reproducible=True)
        inputs = dict(zip([tensor.name for tensor in artifact.inputs], inputs.values(), strict=True))
        with artifact.load(threads=2) as loaded:
            return Here(path, inputs, dict(loaded.run(inputs)))

    return run


@pytest.mark.slow
@pytest.mark.parametrize("machine", [*EMULATED, *LONG], ids=lambda machine: machine.name)
@pytest.mark.parametrize("network", [*NETWORKS, "sums", *AT_BORDERS])
def test_emulated_processors_give_the_same_bits(
    machine: Machine, network: str, run_here: Callable[[str], Here]
) -> None:
    if machine.missing:
        pytest.skip(f"without {machine.missing}")
    here = run_here(network)
    other = nnefc.compile(here.path, machine.target, reproducible=True)
    assert have_same_bits(here.results, run_on(machine, other, here.inputs))


def test_no_function_calls_the_c_library(tmp_path: Path) -> None:
    numbers = np.zeros(16, np.float32)
    path = operator_network(tmp_path, "pnnx.Expression", [numbers], "expr=log2(@0)")
    nnefc.compile(path, "x86-64-v2", reproducible=True).emit("asm", tmp_path / "asm")
    assert "log2f" not in "".join(text.read_text() for text in (tmp_path / "asm").glob("*.s"))
