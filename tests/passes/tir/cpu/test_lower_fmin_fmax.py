"""Limits of floats, and bytes made of them, on Arm: by single instructions, and the numbers are those of NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from emulation import Machine, run_on, with_glibc
from onnx import TensorProto, helper, numpy_helper

import nnefc

A53 = with_glibc("a53", "cortex-a53", "qemu-aarch64", "-cpu", "cortex-a53")
ARMV7 = with_glibc("armv7", "armv7-linux-gnueabihf", "qemu-arm", "-cpu", "cortex-a7")
EDGES = [0.5, 1.5, 2.5, 0.0, -0.0, 126.5, 127.5, 128.5, 254.5, 255.5, 300.0, 3e9, 1e20, np.inf]
LOW, HIGH = -1.5, 6.25


def model(folder: Path, size: int) -> Path:
    """Rectified, cut to limits, and quantized to both kinds of bytes."""
    types = {"relu": TensorProto.FLOAT, "cut": TensorProto.FLOAT, "u": TensorProto.UINT8, "s": TensorProto.INT8}
    numbers = {"one": np.float32(1), "uz": np.uint8(3), "sz": np.int8(-5), "low": LOW, "high": HIGH}
    nodes = [
        helper.make_node("Relu", ["x"], ["relu"]),
        helper.make_node("Clip", ["x", "low", "high"], ["cut"]),
        helper.make_node("QuantizeLinear", ["x", "one", "uz"], ["u"]),
        helper.make_node("QuantizeLinear", ["x", "one", "sz"], ["s"]),
    ]
    constants = [
        numpy_helper.from_array(np.asarray(value, np.float32 if name in ("low", "high") else None), name)
        for name, value in numbers.items()
    ]
    graph = helper.make_graph(
        nodes,
        "limits",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (size,))],
        [helper.make_tensor_value_info(name, kind, (size,)) for name, kind in types.items()],
        constants,
    )
    path = folder / "limits.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("machine", [A53, ARMV7], ids=lambda machine: machine.name)
def test_limits_and_bytes_are_those_of_numpy(machine: Machine, tmp_path: Path) -> None:
    if machine.missing:
        pytest.skip(f"needs: {machine.missing}")
    known = np.array([*EDGES, *(-np.array(EDGES)), *np.random.default_rng(1).normal(0, 90, 77)], np.float32)
    x = np.concatenate([known, np.full(8, np.nan, np.float32)])
    found = run_on(machine, nnefc.compile(model(tmp_path, x.size), machine.target), {"x": x})
    np.testing.assert_array_equal(found["relu"], np.maximum(x, 0))  # NaN stays so
    np.testing.assert_array_equal(found["cut"], np.clip(x, np.float32(LOW), np.float32(HIGH)))
    for name, zero, limits in (("u", 3, np.iinfo(np.uint8)), ("s", -5, np.iinfo(np.int8))):
        exact = np.nan_to_num(np.rint(x.astype(np.float64)) + zero, nan=limits.min)
        np.testing.assert_array_equal(found[name], np.clip(exact, limits.min, limits.max))
