"""Sigmoids have as many digits as bytes only where they become bytes, not the low bytes of larger numbers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc

TARGET = "x86-64-v4"
X = np.random.default_rng(4).standard_normal((63, 64)).astype(np.float32) * 3

CONSTANTS = {
    "large": np.array(30000, np.float32),
    "zero": np.array(0, np.float32),
    "thousand": np.array(1000, np.float32),
    "scale": np.array(1 / 255, np.float32),
    "point": np.array(0, np.uint8),
}


def model(folder: Path, nodes: Sequence[onnx.NodeProto]) -> Path:
    """A network of the sigmoid of `x`, and of what follows it up to `y`."""
    graph = helper.make_graph(
        [helper.make_node("Sigmoid", ["x"], ["s"]), *nodes],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)],
        [helper.make_tensor_value_info("y", TensorProto.UINT8, None)],
        [numpy_helper.from_array(value, name) for name, value in CONSTANTS.items()],
    )
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


def low_byte(*limits: str) -> list[onnx.NodeProto]:
    cut = [helper.make_node("Clip", ["r", *limits], ["c"])] if limits else [helper.make_node("Identity", ["r"], ["c"])]
    return [
        helper.make_node("Mul", ["s", "large"], ["m"]),
        helper.make_node("Round", ["m"], ["r"]),
        *cut,
        helper.make_node("Cast", ["c"], ["i"], to=TensorProto.INT32),
        helper.make_node("Cast", ["i"], ["y"], to=TensorProto.UINT8),
    ]


@pytest.mark.parametrize("most", [None, 1000])
def test_the_low_byte_of_a_larger_number_is_exact(most: int | None, tmp_path: Path) -> None:
    path = model(tmp_path, low_byte() if most is None else low_byte("zero", "thousand"))
    found = nnefc.compile(path).load(threads=1)(X)
    exact = 30000 / (1 + np.exp(-X.astype(np.float64)))
    certain = np.abs(exact % 1 - 0.5) > 0.02
    wanted = np.round(exact if most is None else np.minimum(exact, most)).astype(np.int64) % 256
    np.testing.assert_array_equal(found[certain], wanted[certain])


@pytest.mark.parametrize("quantized", [True, False])
def test_what_is_limited_to_bytes_has_their_digits(quantized: bool, tmp_path: Path) -> None:
    """An approximate reciprocal is among the instructions."""
    nodes = [helper.make_node("QuantizeLinear", ["s", "scale", "point"], ["y"])] if quantized else low_byte()
    nnefc.compile(model(tmp_path, nodes), target=TARGET).emit("asm", tmp_path / "code")
    count = sum(part.read_text().count("vrcp14ps") for part in (tmp_path / "code").glob("*.s"))
    assert (count > 0) == quantized
