"""Rounding on processors without an instruction for it: no call is left, and all numbers are those of NumPy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import nnefc

EDGES = [0.5, 1.5, 2.5, 0.49999997, 2**22 + 0.5, 2**23 - 0.5, 2**23 + 1, 3e9, 1e-30, 0.0, np.inf, np.nan]


def rounding(folder: Path, size: int) -> Path:
    shape = (1, size)
    graph = helper.make_graph(
        [helper.make_node("Round", ["x"], ["y"])],
        "rounding",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    path = folder / "rounding.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def test_the_oldest_processors_round_to_even(tmp_path: Path) -> None:
    edges = np.array([*EDGES, *(-np.array(EDGES))])
    x = np.concatenate([edges, np.random.default_rng(1).normal(0, 9, 77)]).astype(np.float32)[None]
    with nnefc.compile(rounding(tmp_path, x.size), "x86-64").load(threads=1) as library:
        found = library.run({"x": x})["y"]
    np.testing.assert_array_equal(found, np.rint(x))
    known = ~np.isnan(x)
    np.testing.assert_array_equal(np.signbit(found)[known], np.signbit(np.rint(x))[known])


@pytest.mark.parametrize("target", ["x86-64", "armv7-linux-gnueabihf", "cortex-a53", "wasm32-wasi"])
def test_no_function_is_called(target: str, tmp_path: Path) -> None:
    nnefc.compile(rounding(tmp_path, 64), target).emit("asm", tmp_path)
    assembly = "".join(path.read_text() for path in tmp_path.glob("kernels*.s"))
    assert not any(name in assembly for name in ("nearbyintf", "rintf", "roundevenf"))
