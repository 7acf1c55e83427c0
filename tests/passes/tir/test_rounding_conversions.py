"""Floats that are rounded while they become int32, by one instruction: the numbers are those of NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from emulation import Machine, run_on, with_glibc
from onnx import TensorProto, helper

import nnefc

VECTORS = "rv64,v=true,vext_spec=v1.0,vlen=128"
A53 = with_glibc("a53", "cortex-a53", "qemu-aarch64", "-cpu", "cortex-a53")
RV64 = with_glibc("rv64", "riscv64gcv-linux-gnu", "qemu-riscv64", "-cpu", VECTORS)
EDGES = [0.5, 1.5, 2.5, 0.49999997, 0.0, 2**22 + 0.5, 2**23 - 0.5, 2**23 + 1, 2e9]


def model(folder: Path, size: int) -> Path:
    nodes = [helper.make_node("Round", ["x"], ["r"]), helper.make_node("Cast", ["r"], ["y"], to=TensorProto.INT32)]
    graph = helper.make_graph(
        nodes,
        "rounding",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (size,))],
        [helper.make_tensor_value_info("y", TensorProto.INT32, (size,))],
    )
    path = folder / "rounding.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize(
    ("machine", "instruction", "others"),
    [(A53, "fcvtns", {"frinti", "fcvtzs"}), (RV64, "vfcvt.x.f.v", {"vfcvt.rtz.x.f.v", "vfsgnj.vv"})],
    ids=["a53", "rv64"],
)
def test_one_instruction_rounds_to_even(machine: Machine, instruction: str, others: set[str], tmp_path: Path) -> None:
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    x = np.array([*EDGES, *(-np.array(EDGES)), *np.random.default_rng(1).normal(0, 90, 78)], np.float32)
    artifact = nnefc.compile(model(tmp_path, x.size), machine.target)
    artifact.emit("asm", tmp_path)
    words = set("".join(path.read_text() for path in tmp_path.glob("kernels*.s")).split())
    assert instruction in words
    assert not others & words
    np.testing.assert_array_equal(run_on(machine, artifact, {"x": x})["y"], np.rint(x).astype(np.int32))
