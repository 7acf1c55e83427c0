"""Networks that quantize while they run agree part by part, however many roundings there are from end to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from forced import angles, forced_difference, without_turns
from onnx import TensorProto, helper, numpy_helper


def quantized(layers: int) -> onnx.ModelProto:
    """Products of bytes after each other, with a function between them."""
    rng = np.random.default_rng(0)
    nodes, constants, x = [], [numpy_helper.from_array(np.array(0.01, np.float32), "step")], "x"
    for layer in range(layers):
        constants.append(numpy_helper.from_array(rng.integers(-99, 99, (24, 24), np.int8), f"w{layer}"))
        nodes += [
            helper.make_node("DynamicQuantizeLinear", [x], [f"q{layer}", f"s{layer}", f"z{layer}"]),
            helper.make_node("MatMulInteger", [f"q{layer}", f"w{layer}", f"z{layer}"], [f"sums{layer}"]),
            helper.make_node("Cast", [f"sums{layer}"], [f"reals{layer}"], to=TensorProto.FLOAT),
            helper.make_node("Mul", [f"reals{layer}", f"s{layer}"], [f"scaled{layer}"]),
            helper.make_node("Mul", [f"scaled{layer}", "step"], [f"y{layer}"]),
            helper.make_node("Sin" if layer % 2 else "Softplus", [f"y{layer}"], [f"x{layer}"]),
        ]
        x = f"x{layer}"
    info = helper.make_tensor_value_info
    outputs = [info(x, TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, ["rows", 24])], outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_parts_between_quantizations_agree(tmp_path: Path) -> None:
    values = {"x": np.random.default_rng(1).standard_normal((7, 24)).astype(np.float32)}
    path = tmp_path / "forced.onnx"
    assert forced_difference(quantized(6), values, path) < 1e-6
    assert len(onnx.load(path).graph.output) == 6


def test_recurrent_layers_agree_step_by_step(tmp_path: Path) -> None:
    rng = np.random.default_rng(2)
    shapes = {"w": (1, 6, 32), "r": (1, 8, 32)}
    constants = [numpy_helper.from_array(rng.integers(-99, 99, s, np.int8), name) for name, s in shapes.items()]
    constants += [numpy_helper.from_array(np.array([0.02], np.float32), name) for name in ("ws", "rs")]
    constants += [numpy_helper.from_array(np.zeros(1, np.int8), name) for name in ("wz", "rz")]
    names = ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"]
    nodes = [helper.make_node("DynamicQuantizeLSTM", names, ["y"], domain="com.microsoft", hidden_size=8)]
    nodes.append(helper.make_node("Tanh", ["y"], ["z"]))
    info = helper.make_tensor_value_info
    inputs, outputs = [info("x", TensorProto.FLOAT, [5, 3, 6])], [info("z", TensorProto.FLOAT, None)]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, constants), opset_imports=opsets, ir_version=8
    )
    values = {"x": rng.standard_normal((5, 3, 6)).astype(np.float32)}
    assert forced_difference(model, values, tmp_path / "forced.onnx") < 1e-5


def test_angles_are_compared_as_directions() -> None:
    """As exporters write the angle of a complex number, beside its absolute value."""
    steps = [
        ("Div", "y x", "ratio"),
        ("Atan", "ratio", "half"),
        ("Add", "half pi", "above"),
        ("Sub", "half pi", "below"),
        ("Where", "up above below", "left"),
        ("Where", "is_left left half", "angle"),
        ("Concat", "size angle", "both"),
        ("DynamicQuantizeLinear", "both", "q"),
    ]
    nodes = [helper.make_node(op_type, given.split(), [made]) for op_type, given, made in steps]
    model = helper.make_model(helper.make_graph(nodes, "g", [], []))
    assert angles(model) == {"half", "above", "below", "left", "angle", "both"}
    one, other = np.array([3, np.pi, 0.5], np.float32), np.array([3, -np.pi, 0], np.float32)
    np.testing.assert_allclose(without_turns(one, other) - other, [0, 0, 0.5], atol=1e-6)
