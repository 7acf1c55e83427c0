"""Activations that all formats have are one computation each, and lose nothing where their direct formulas do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from virtual_machine import run_in_virtual_machine

from nnefc.driver.formats import load_network

X = np.concatenate([-np.geomspace(80, 1e-3, 50), [0.0], np.geomspace(1e-3, 80, 50)]).astype(np.float32)


def nnef(folder: Path, name: str) -> Path:
    path = folder / "model.nnef"
    lines = [f"x = external(shape = [{X.size}]);", f"y = {name}(x);"]
    path.write_text("\n".join(["version 1.0;", "graph g(x) -> (y)", "{", *lines, "}", ""]))
    return path


def onnx_(folder: Path, name: str) -> Path:
    ends = [[helper.make_tensor_value_info(end, TensorProto.FLOAT, [X.size])] for end in "xy"]
    graph = helper.make_graph([helper.make_node(name.capitalize(), ["x"], ["y"])], "g", *ends)
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10), path)
    return path


def pnnx(folder: Path, name: str) -> Path:
    path = folder / "model.pnnx.param"
    lines = [f"pnnx.Input in 0 1 0 #0=({X.size})f32", f"F.{name} f 1 1 0 1", "pnnx.Output out 1 0 1"]
    path.write_text("\n".join(["7767517", "3 2", *lines, ""]))
    (folder / "model.pnnx.bin").write_bytes(b"PK\5\6" + bytes(18))  # an archive of nothing
    return path


SOFTPLUS = np.logaddexp(X.astype(np.float64), 0)


@pytest.mark.parametrize(
    ("write", "name", "expected"),
    [
        (nnef, "softplus", SOFTPLUS),
        (onnx_, "softplus", SOFTPLUS),
        (pnnx, "softplus", SOFTPLUS),
        (onnx_, "mish", X * np.tanh(SOFTPLUS)),
        (pnnx, "mish", X * np.tanh(SOFTPLUS)),
    ],
)
def test_small_values_are_kept(
    write: Callable[[Path, str], Path], name: str, expected: np.ndarray, tmp_path: Path
) -> None:
    network = load_network(write(tmp_path, name))
    (found,) = run_in_virtual_machine(network.module, [X])
    np.testing.assert_allclose(found, expected, rtol=1e-6, atol=0)
