"""Kernels that differ in their sizes alone: each call has its own, and nothing is read or written outside a buffer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from guarded_memory import CAN_GUARD, guarded, run_apart
from onnx import TensorProto, helper, numpy_helper

import nnefc

RNG = np.random.default_rng(8)
BYTE, BOOL = TensorProto.UINT8, TensorProto.BOOL

KINDS = {"": "positions_of", "Elements": "elements", "ND": "tuples"}

pytestmark = pytest.mark.skipif(not CAN_GUARD, reason="needs: Linux with pages of 4 KiB")


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), **attributes)


def check(
    folder: Path,
    nodes: Sequence[onnx.NodeProto],
    inputs: Mapping[str, tuple[int, Sequence[Any]]],
    outputs: Mapping[str, int],
    constants: Mapping[str, np.ndarray],
    feeds: Sequence[Mapping[str, np.ndarray]],
) -> None:
    """Every run gives what onnxruntime gives, and touches its own memory alone."""
    infos = [helper.make_tensor_value_info(name, *declared) for name, declared in inputs.items()]
    results = [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()]
    values = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "g", infos, results, values)
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with guarded():
        artifact = nnefc.compile(path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    for made, feed in zip(run_apart(artifact, feeds), feeds, strict=True):
        assert isinstance(made, dict), made
        for result, expected in zip(made.values(), session.run(None, dict(feed)), strict=True):
            assert result.shape == expected.shape
            np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_products_of_bytes_with_as_many_rows_as_each_has(tmp_path: Path) -> None:
    """Of two inputs, and of a data-dependent number of rows."""
    nodes = [
        node("MatMulInteger", "a v", "p"),
        node("MatMulInteger", "b w", "q"),
        node("Compress", "b kept", "some", axis=0),
        node("MatMulInteger", "some u", "r"),
    ]
    inputs = {"a": (BYTE, ["n", 16]), "b": (BYTE, ["m", 16]), "kept": (BOOL, ["m"])}
    constants = {name: RNG.integers(-99, 99, (16, 32), np.int8) for name in "uvw"}
    feeds = [
        {"a": bytes_of(n, 16), "b": bytes_of(m, 16), "kept": RNG.random(m) < 0.7}
        for n, m in ((3, 40), (40, 3), (1, 1), (17, 300))
    ]
    check(tmp_path, nodes, inputs, dict.fromkeys("pqr", TensorProto.INT32), constants, feeds)


def bytes_of(*shape: int) -> np.ndarray:
    return RNG.integers(0, 255, shape, np.uint8)


def test_sizes_that_a_run_refuses_are_not_computed_with(tmp_path: Path) -> None:
    """A branch gives twice the rows that there is room for, and there are fewer locations than are added to."""
    info = helper.make_tensor_value_info
    branches = {
        name: helper.make_graph([node(*made, **more)], name, [], [info(made[2], TensorProto.FLOAT, None)])
        for name, made, more in (
            ("then_branch", ("Concat", "x x", "twice"), {"axis": 0}),
            ("else_branch", ("Neg", "x", "once"), {}),
        )
    }
    nodes = [
        helper.make_node("If", ["c"], ["chosen"], **branches),
        node("Add", "chosen w", "p"),
        node("Compress", "x kept", "some", axis=0),
        node("Add", "some v", "q"),
    ]
    inputs = [info(name, TensorProto.FLOAT, [size]) for name, size in (("x", "n"), ("w", "m"), ("v", "k"))]
    inputs += [info("c", BOOL, []), info("kept", BOOL, ["n"])]
    graph = helper.make_graph(nodes, "g", inputs, [info(name, TensorProto.FLOAT, None) for name in "pq"])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with guarded():
        artifact = nnefc.compile(path)
    x, v, kept = (RNG.standard_normal(3000).astype(np.float32) for _ in range(3))
    given = {"x": x, "w": x, "v": v, "c": np.array(False), "kept": kept < 9}
    feeds = [given, given | {"c": np.array(True)}, given | {"kept": kept < 0}]
    right, *wrong = run_apart(artifact, feeds)
    assert isinstance(right, dict)
    np.testing.assert_array_equal(right["q"], x + v)
    for made, name in zip(wrong, ("branch", "compress"), strict=True):
        assert f"the data ask for a size '{name}' that is not" in str(made)


def test_nothing_is_taken_of_what_has_no_elements(tmp_path: Path) -> None:
    """A table of a data-dependent number of rows, none in the second run."""
    info, whole = helper.make_tensor_value_info, TensorProto.INT64
    nodes = [
        node("ReduceSum", "counts", "sum", keepdims=0),
        node("Range", "zero sum one", "locations"),
        node("Gather", "x locations", "table"),
        node("CumSum", "table zero", "sums"),
        *(node(f"Gather{kind}", f"sums {given}", given[0]) for kind, given in KINDS.items()),
    ]
    inputs = [info("counts", whole, [2]), info("x", TensorProto.FLOAT, ["n", 9]), info("positions_of", whole, ["m"])]
    inputs += [info("elements", whole, ["m", 9]), info("tuples", whole, ["m", 1])]
    constants = [numpy_helper.from_array(np.array(value), name) for name, value in (("zero", 0), ("one", 1))]
    results = [info(given[0], TensorProto.FLOAT, None) for given in KINDS.values()]
    path = tmp_path / "model.onnx"
    graph = helper.make_graph(nodes, "g", inputs, results, constants)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    with guarded():
        artifact = nnefc.compile(path)
    feed = {
        "x": RNG.standard_normal((5, 9)).astype(np.float32),
        "counts": np.array([2, 1]),
        "positions_of": np.array([0, 2]),
    }
    feed |= {"elements": np.ones((2, 9), np.int64), "tuples": np.zeros((2, 1), np.int64)}
    right, wrong = run_apart(artifact, [feed, feed | {"counts": np.zeros(2, np.int64)}])
    assert isinstance(right, dict)
    np.testing.assert_allclose(right["p"], np.cumsum(feed["x"][:3], 0)[[0, 2]], rtol=1e-5)
    assert "there is nothing to take from a dimension of size 0" in str(wrong)
