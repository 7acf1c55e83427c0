"""Sigmoids instead of `1 + tanh`: fewer instructions, and all digits where the sum would have lost them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from scipy.special import expit

import nnefc


def gelu(size: int) -> onnx.ModelProto:
    """By tanh, as exporters of PyTorch write it."""
    nodes = []
    for op, inputs, output in (
        ("Mul", ["x", "x"], "s"),
        ("Mul", ["s", "x"], "c"),
        ("Mul", ["c", "small"], "d"),
        ("Add", ["x", "d"], "e"),
        ("Mul", ["e", "slope"], "u"),
        ("Tanh", ["u"], "t"),
        ("Add", ["t", "one"], "p"),
        ("Mul", ["x", "half"], "h"),
        ("Mul", ["h", "p"], "y"),
    ):
        nodes.append(helper.make_node(op, inputs, [output]))
    values = {"small": 0.044715, "slope": (2 / np.pi) ** 0.5, "one": 1, "half": 0.5}
    constants = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in values.items()]
    given, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [size]) for name in "xy")
    graph = helper.make_graph(nodes, "gelu", [given], [made], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_gelu_has_its_digits_where_it_is_small(tmp_path: Path) -> None:
    x = np.concatenate([np.linspace(-6, 6, 4_001), [0, -0.0, 1e-30, -1e-30, 1e4, -1e4]]).astype(np.float32)
    onnx.save(gelu(x.size), tmp_path / "gelu.onnx")
    (found,) = nnefc.compile(tmp_path / "gelu.onnx").run({"x": x}).values()
    wide = x.astype(np.float64)
    expected = wide * expit(2 * (2 / np.pi) ** 0.5 * (wide + 0.044715 * wide**3))
    apart = np.abs(found - expected) / np.maximum(np.abs(expected), 1e-30)
    assert apart.max() < 1e-5  # of tanh, all digits are lost at -6
    assert np.array_equal(found[-2:], [1e4, 0])
