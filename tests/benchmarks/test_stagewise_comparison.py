"""Networks that quantize while they run agree part by part, however many roundings there are from end to end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
from forced import coordinates, forced_difference
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


def test_coordinates_are_compared_instead_of_angles(tmp_path: Path) -> None:
    """As exporters write the angle of a complex number, next to its absolute value; of sines of many turns."""
    steps = [
        ("Mul", "x far", "turns"),
        ("Sin", "turns", "up"),
        ("Cos", "turns", "right"),
        ("Div", "up right", "ratio"),
        ("Atan", "ratio", "half"),
        ("Add", "half pi", "above"),
        ("Sub", "half pi", "below"),
        ("Greater", "up nothing", "is_up"),
        ("Where", "is_up above below", "left"),
        ("Less", "right nothing", "is_left"),
        ("Where", "is_left left half", "angle"),
        ("DynamicQuantizeLinear", "angle", "q scale zero"),
        ("DequantizeLinear", "q scale zero", "y"),
    ]
    nodes = [helper.make_node(op_type, given.split(), made.split()) for op_type, given, made in steps]
    numbers = {"far": 4e3, "pi": np.pi, "nothing": 0}
    constants = [numpy_helper.from_array(np.array(value, np.float32), name) for name, value in numbers.items()]
    info = helper.make_tensor_value_info
    outputs = [info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT, ["n"])], outputs, constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    assert coordinates(model) == dict.fromkeys(("half", "above", "below", "left", "angle"), ("up", "right"))
    path = tmp_path / "forced.onnx"
    values = {"x": np.random.default_rng(3).standard_normal(90).astype(np.float32)}
    assert forced_difference(model, values, path) < 1e-5
    assert {"up", "right", "y", "turns"} == {result.name for result in onnx.load(path).graph.output}
