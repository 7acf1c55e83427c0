"""Sigmoids instead of `1 + tanh`: fewer instructions, and all digits where the sum would have lost them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from scipy.special import expit
from tvm import te, tirx

import nnefc
from nnefc.passes.schedule.cpu.tanh_to_sigmoid import rewrite_tanh_as_sigmoid

FORMS: dict[str, tuple[Callable[[tirx.Expr, tirx.Expr], tirx.Expr], str]] = {
    "half first": (lambda x, t: 0.5 * x * (1.0 + t), "x[i] * sigmoid(1.5 * x[i])"),
    "half last": (lambda x, t: x * (t + 1.0) * 0.5, "x[i] * sigmoid(1.5 * x[i])"),
    "half within": (lambda x, t: x * (0.5 * (1.0 + t)), "x[i] * sigmoid(1.5 * x[i])"),
    "another number": (lambda x, t: 3.0 * x * (1.0 + t), "6.0 * x[i] * sigmoid(1.5 * x[i])"),
    "no number": (lambda x, t: x * (1.0 + t), "2.0 * (x[i] * sigmoid(1.5 * x[i]))"),
    "alone": (lambda x, t: 1.0 + t + x, "2.0 * sigmoid(1.5 * x[i]) + x[i]"),
}


def changed(dtype: str, value: Callable[[tirx.Expr], tirx.Expr]) -> str:
    x = te.placeholder((7,), dtype, name="x")
    func = te.create_prim_func([x, te.compute((7,), lambda i: value(x[i]), name="y")])
    text = rewrite_tanh_as_sigmoid(func).script().partition("y[v_i] = ")[2].partition("\n")[0]
    return re.sub(r"T.float(?:32|64)\(([-.\d]+)\)", r"\1", text).replace("v_i", "i").replace("T.", "")


@pytest.mark.parametrize("form", FORMS)
def test_one_and_tanh_becomes_a_sigmoid_whose_factor_other_numbers_take(form: str) -> None:
    write, expected = FORMS[form]
    assert changed("float32", lambda x: write(x, tirx.tanh(0.75 * x))) == expected


@pytest.mark.parametrize(
    ("dtype", "value"),
    [
        ("float32", lambda x: 2.0 + tirx.tanh(x)),
        ("float32", lambda x: 1.0 - tirx.tanh(x)),
        ("float64", lambda x: 1.0 + tirx.tanh(x)),
    ],
    ids=["another number", "a difference", "another type"],
)
def test_other_sums_stay_as_they_are(dtype: str, value: Callable[[tirx.Expr], tirx.Expr]) -> None:
    text = changed(dtype, value)
    assert "tanh" in text
    assert "sigmoid" not in text


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
