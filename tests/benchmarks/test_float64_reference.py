"""The reference in float64 compared with onnxruntime, which has float32."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from accuracy import units
from exact import errors, exact_outputs
from onnx import ModelProto, TensorProto, ValueInfoProto, helper, numpy_helper

RNG = np.random.default_rng(0)
SQUARE = {"kernel_shape": [3, 3], "strides": [2, 2]}


def model(op_type: str, shape: tuple[int, ...], *weights: np.ndarray, opset: int = 12, **attributes: Any) -> ModelProto:
    names = [f"w{i}" for i in range(len(weights))]
    node = helper.make_node(op_type, ["x", *names], ["y"], **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    trained = [numpy_helper.from_array(w.astype(np.float32), n) for n, w in zip(names, weights, strict=True)]
    graph = helper.make_graph([node], "one", [x], [ValueInfoProto(name="y")], trained)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


@pytest.mark.parametrize(
    ("op_type", "shape", "weights", "attributes"),
    [
        ("Conv", (2, 6, 9, 8), [(4, 6, 3, 2), (4,)], {"pads": [1, 0, 2, 1], "strides": [2, 1], "dilations": [1, 2]}),
        ("Conv", (1, 6, 9, 8), [(4, 3, 3, 3)], {"group": 2, "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ("Conv", (1, 6, 9, 8), [(6, 1, 3, 3)], {"group": 6, "auto_pad": "SAME_LOWER"}),
        ("ConvTranspose", (1, 6, 5, 4), [(6, 3, 3, 2), (3,)], {"strides": [2, 3], "pads": [1, 0, 0, 1]}),
        ("MaxPool", (1, 2, 10, 9), [], {**SQUARE, "pads": [1, 1, 0, 1], "ceil_mode": 1}),
        ("AveragePool", (1, 2, 9, 9), [], {**SQUARE, "pads": [1, 0, 1, 1]}),
        ("AveragePool", (1, 2, 9, 9), [], {**SQUARE, "pads": [1, 0, 1, 1], "count_include_pad": 1}),
        ("LRN", (1, 7, 3, 2), [], {"size": 5, "alpha": 0.3, "beta": 0.75, "bias": 1.5}),
        ("BatchNormalization", (2, 3, 4, 4), [(3,), (3,), (3,), (3,)], {}),
        ("Softmax", (2, 3, 4), [], {}),
        ("Softmax", (2, 3, 4), [], {"opset": 13}),
    ],
)
def test_operations_agree_with_onnxruntime(
    op_type: str, shape: tuple[int, ...], weights: list[tuple[int, ...]], attributes: dict[str, Any]
) -> None:
    made = model(op_type, shape, *(RNG.random(of) for of in weights), **attributes)
    x = RNG.standard_normal(shape).astype(np.float32)
    (exact,) = exact_outputs(made, {"x": x})
    (peer,) = onnxruntime.InferenceSession(made.SerializeToString()).run(None, {"x": x})
    assert exact.dtype == np.float64
    assert exact.shape == peer.shape
    assert 0.0 <= errors(peer, exact)[0] < 1e-6


def test_rounding_to_float32_is_half_a_unit_of_the_last_place() -> None:
    exact = RNG.uniform(-3.0, 3.0, 1000)
    assert 0.4 < units(exact.astype(np.float32), exact) <= 0.5
    up = np.nextafter(exact.astype(np.float32), np.float32(9.0))
    assert 1.0 < units(up, exact) <= 1.5
