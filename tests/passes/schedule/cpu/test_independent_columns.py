"""Scatters that add rows, as graph networks aggregate messages: whole rows at a time, the same for any threads."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from pass_runs import lower

import nnefc
from nnefc.backends import backend_of
from nnefc.frontends.onnx import load
from nnefc.ir.attributes import RULE
from nnefc.loader import RunError
from nnefc.targets.machine.cpu.parsing import parse_target


def aggregation(
    nodes: int, features: int | str, edges: np.ndarray | int | str, reduction: str = "add"
) -> onnx.ModelProto:
    """One scatter by an index that is spread over the features, and one of slices by the same index."""
    count = len(edges) if isinstance(edges, np.ndarray) else edges
    inputs = [helper.make_tensor_value_info("messages", TensorProto.FLOAT, [count, features])]
    constants = {"axis": np.array([1]), "x": np.full((nodes, 1), 0.5, np.float32)}
    if isinstance(edges, np.ndarray):
        constants["index"] = edges
    else:
        inputs.append(helper.make_tensor_value_info("index", TensorProto.INT64, [count]))
    steps = [
        helper.make_node("Unsqueeze", ["index", "axis"], ["column"]),
        helper.make_node("Shape", ["messages"], ["shape"]),
        helper.make_node("Slice", ["shape", "axis", "two"], ["width"]),
        helper.make_node("Concat", ["nodes", "width"], ["whole"], axis=0),
        helper.make_node("Expand", ["x", "whole"], ["data"]),
        helper.make_node("Expand", ["column", "shape"], ["slots"]),
        helper.make_node("ScatterElements", ["data", "slots", "messages"], ["elements"], axis=0, reduction=reduction),
        helper.make_node("ScatterND", ["data", "column", "messages"], ["slices"], reduction=reduction),
    ]
    constants |= {"two": np.array([2]), "nodes": np.array([nodes])}
    outputs = [helper.make_tensor_value_info(y, TensorProto.FLOAT, [nodes, features]) for y in ("elements", "slices")]
    arrays = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(steps, "g", inputs, outputs, arrays)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def expected(nodes: int, index: np.ndarray, messages: np.ndarray, reduction: str) -> np.ndarray:
    result = np.full((nodes, messages.shape[1]), 0.5)
    {"add": np.add, "max": np.maximum}[reduction].at(result, index, messages.astype(float))
    return result


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize(
    ("features", "width", "reduction"), [(1, 1, "add"), (19, 19, "add"), (256, 256, "add"), ("f", 70, "max")]
)
@pytest.mark.sample(2)
def test_rows_are_combined_in_order(features: int | str, width: int, reduction: str, known: bool) -> None:
    random = np.random.default_rng(width)
    index = random.integers(-37, 37, 211)
    messages = random.standard_normal((211, width)).astype(np.float32)
    artifact = nnefc.compile(aggregation(37, features, index if known else "edges", reduction))
    results = []
    for threads in (1, 3):
        with artifact.load(threads=threads) as model:
            results.append(model.run({"messages": messages} if known else {"messages": messages, "index": index}))
    for name in ("elements", "slices"):
        np.testing.assert_allclose(results[0][name], expected(37, index, messages, reduction), rtol=0, atol=1e-5)
        np.testing.assert_array_equal(results[0][name], results[1][name])


def test_an_index_that_is_spread_is_read_once_for_each_row(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(aggregation(37, 256, 211), path)
    seen: dict[str, tvm.IRModule] = {}
    lower(load(path), backend_of(parse_target("llvm -mcpu=x86-64-v3")), seen.__setitem__)
    kernels = seen["schedule"].functions.values()
    scatters = [func for func in kernels if func.attrs[RULE] == "IndependentColumnsRule"]
    assert len(scatters) == 2
    assert not any("int64" in str(func.params[-1].ty) for func in kernels)  # the index is not written out


def test_indices_of_fewer_columns_and_rows_than_the_data(tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    data = random.standard_normal((6, 5, 9)).astype(np.float32)
    index, updates = random.integers(0, 5, (4, 7, 8)), random.standard_normal((4, 7, 8)).astype(np.float32)
    node = helper.make_node("ScatterElements", ["data", "index", "updates"], ["y"], axis=1, reduction="add")
    given = {"data": data, "index": index, "updates": updates}
    kinds = {"data": TensorProto.FLOAT, "index": TensorProto.INT64, "updates": TensorProto.FLOAT}
    inputs = [helper.make_tensor_value_info(name, kinds[name], value.shape) for name, value in given.items()]
    output = helper.make_tensor_value_info("y", TensorProto.FLOAT, data.shape)
    graph = helper.make_graph([node], "g", inputs, [output])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    wanted = data.astype(float)
    for i, k, j in np.ndindex(index.shape):
        wanted[i, index[i, k, j], j] += updates[i, k, j]
    with nnefc.compile(model).load() as library:
        np.testing.assert_allclose(library.run(given)["y"], wanted, rtol=0, atol=1e-5)
        given["index"] = np.where(index == 0, 5, index)
        with pytest.raises(RunError, match="out of range"):
            library.run(given)
