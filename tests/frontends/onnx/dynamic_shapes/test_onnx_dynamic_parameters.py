"""Weights, biases, zero points and states whose sizes are left open, as all others: tied to what they belong to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx_models import graph, info, model, node, save, tensor
from onnx_operator_cases import Case, by_onnxruntime, by_reference, check, feeds_of, model_of

import nnefc

pytestmark = pytest.mark.filterwarnings("ignore::nnefc.ModelWarning")  # of sizes that must be one

RNG = np.random.default_rng(7)


def real(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def whole(kind: type, *shape: int) -> np.ndarray:
    return RNG.integers(0, 90, shape).astype(kind)


def scale(*values: float) -> np.ndarray:
    return np.array(values if len(values) > 1 else values[0], np.float32)


CASES = (
    Case("Conv", [real(1, 4, 5, 5), real(6, 2, 3, 3), real(6)], {"group": 2}),
    Case("ConvTranspose", [real(1, 2, 4, 3), real(2, 3, 2, 2), real(6)], {"group": 2}),
    Case("QLinearConv", [
        whole(np.uint8, 1, 2, 5, 5), scale(0.1), np.array(3, np.uint8),
        whole(np.int8, 3, 2, 2, 2), scale(0.1, 0.2, 0.3), np.zeros(3, np.int8),
        scale(9.5), np.array(9, np.uint8), whole(np.int32, 3),
    ]),
    Case(
        "GRU",
        [real(2, 1, 4), real(1, 9, 4), real(1, 9, 3), real(1, 18)],
        {"hidden_size": 3, "linear_before_reset": 1},
        outputs=2,
    ),
    Case("DeformConv", [real(1, 2, 4, 4), real(2, 2, 2, 2), real(1, 8, 3, 3), real(2), real(1, 4, 3, 3)]),
    Case("NonMaxSuppression", [
        np.array([[[0, 0, 1, 1], [0, 0.1, 1, 1], [3, 3, 4, 4]]], np.float32), real(1, 2, 3), np.array([2]),
        np.array([0.5], np.float32), np.array([-9], np.float32),
    ]),
    Case("FeatureVectorizer", [real(3, 4), real(3, 2)], {"inputdimensions": [4, 2]}, domain="ai.onnx.ml"),
    Case("ConvInteger", [
        whole(np.uint8, 1, 4, 5, 5), whole(np.int8, 4, 2, 2, 2), np.array(7, np.uint8), whole(np.int8, 4)
    ], {"group": 2}),
)  # fmt: skip


def opened(path: Path, built: onnx.ModelProto) -> Path:
    """Saves a model in which each size of each input has a name of its own."""
    for given in built.graph.input:
        for axis, size in enumerate(given.type.tensor_type.shape.dim):
            size.dim_param = f"{given.name}_{axis}"
    for result in built.graph.output:
        result.type.tensor_type.ClearField("shape")
    onnx.save(built, path)
    return path


def test_parameters_have_the_sizes_of_what_they_belong_to(tmp_path: Path) -> None:
    with nnefc.compile(opened(tmp_path / "open.onnx", model_of(CASES, 21))).load() as library:
        results = library.run(feeds_of(CASES))
    found = [[results[f"y{n}_{i}"] for i in range(case.outputs)] for n, case in enumerate(CASES)]
    *others, integer = CASES
    check(CASES, found, [*by_onnxruntime(others, 21), *by_reference([integer], 21)])


def test_positions_count_in_the_sizes_that_a_pooling_had(tmp_path: Path) -> None:
    """With padding, a shape that is inferred from the indices' own is 5 x 5; the pooling's operand has 6 x 6."""
    windows = {"kernel_shape": [2, 2], "strides": [2, 2], "pads": [1, 1, 0, 0]}
    nodes = [
        node("MaxPool", ["x"], ["p", "i"], **windows),
        node("MaxUnpool", ["p", "i", "size"], ["y"], **windows),
    ]
    size = tensor("size", [1, 2, 6, 6], np.int64)
    built = model(graph(nodes, [info("x", ("n", "c", "h", "w"))], [info("y", None)], initializers=[size]))
    x = RNG.permutation(72).reshape(1, 2, 6, 6).astype(np.float32)
    with nnefc.compile(save(built, tmp_path)).load() as library:
        found = library.run({"x": x})["y"]
    np.testing.assert_array_equal(found[found != 0], x[found != 0])
    assert np.count_nonzero(found) >= 17  # one of each of 18 windows, of which one may hold 0
