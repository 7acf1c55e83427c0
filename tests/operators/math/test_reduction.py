"""Reductions keep NaN and what is infinite, in rows and in columns, in whatever format they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper
from pass_runs import lower

import nnefc
from nnefc.backends import backend_of
from nnefc.driver.compile import compile_network
from nnefc.driver.formats import load_network
from nnefc.ir.network import Network
from nnefc.targets.machine.cpu.parsing import parse_target

X = np.random.default_rng(3).standard_normal((6, 37)).astype(np.float32)
X[0], X[1], X[2, 36], X[3, 0], X[4, 5], X[:, 7] = -np.inf, np.inf, np.nan, -np.inf, np.inf, np.nan


def nnef(folder: Path) -> Network:
    path = folder / "model.nnef"
    lines = [f"x = external(shape = {list(X.shape)});"]
    lines += [
        f"{name}{axis} = {name}_reduce(x, axes = [{axis}]);"
        for axis in (0, 1)
        for name in ("max", "min", "argmax", "argmin")
    ]
    results = ", ".join(line.partition(" ")[0] for line in lines[1:])
    path.write_text("\n".join(["version 1.0;", f"graph g(x) -> ({results})", "{", *lines, "}", ""]))
    return load_network(path)


def onnx_(folder: Path) -> Network:
    nodes = [
        *(
            helper.make_node(f"Reduce{name}", ["x"], [f"{name.lower()}{axis}"], axes=[axis])
            for axis in (0, 1)
            for name in ("Max", "Min")
        ),
        *(
            helper.make_node(f"Arg{name}", ["x"], [f"arg{name.lower()}{axis}"], axis=axis)
            for axis in (0, 1)
            for name in ("Max", "Min")
        ),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, X.shape)
    ends = [
        helper.make_tensor_value_info(
            node.output[0], TensorProto.INT64 if node.output[0].startswith("arg") else TensorProto.FLOAT, None
        )
        for node in nodes
    ]
    path = folder / "model.onnx"
    graph = helper.make_graph(nodes, "g", [x], ends)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10), path)
    return load_network(path)


@pytest.mark.parametrize("read", [nnef, onnx_], ids=["nnef", "onnx"])
@pytest.mark.parametrize("elements", [X, X[:, 8:36]], ids=["with NaN", "infinite"])
@pytest.mark.sample(2)
def test_min_max_are_those_of_numpy(read: Callable[[Path], Network], elements: np.ndarray, tmp_path: Path) -> None:
    made = compile_network(read(tmp_path), parse_target("llvm"))
    given = np.full(X.shape, elements[5, 9], np.float32)
    given[:, : elements.shape[1]] = elements
    with made.load(threads=1) as model:
        results = model.run({"x": given})
    for name, result in results.items():
        function = getattr(np, name[:-1])
        np.testing.assert_array_equal(result, function(given, axis=int(name[-1]), keepdims=True), err_msg=name)


@pytest.mark.parametrize("target", ["llvm", "x86-64", "x86-64-v3", "cortex-a76"])
def test_the_largest_of_many_channels_is_found_in_vectors(target: str, tmp_path: Path) -> None:
    """As at the end of a network that segments images; of equal ones the first, and whatever is not a number."""
    x = np.random.default_rng(5).integers(-3, 4, (2, 5, 3, 48)).astype(np.float32)
    x[0, 2, 1, 7] = np.nan
    info = helper.make_tensor_value_info("x", TensorProto.FLOAT, x.shape)
    end = helper.make_tensor_value_info("y", TensorProto.INT64, None)
    node = helper.make_node("ArgMax", ["x"], ["y"], axis=1, keepdims=0)
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(helper.make_graph([node], "g", [info], [end])), path)
    seen: dict[str, tvm.IRModule] = {}
    lower(load_network(path), backend_of(parse_target(target)), seen.__setitem__)
    assert all("T.vectorized" in func.script() for func in seen["schedule"].functions.values())
    if target == "llvm":
        with compile_network(load_network(path), parse_target(target)).load() as model:
            np.testing.assert_array_equal(model.run({"x": x})["y"], np.argmax(x, 1))


@pytest.mark.parametrize("shape", [(16, 6, 40, 35), ("n", 6, 40, "w")], ids=["known", "open"])
def test_means_of_alike_numbers_are_exact_along_axes_apart(shape: tuple[int | str, ...], tmp_path: Path) -> None:
    """One term after the other, each of 22,400 would be rounded to the same side: 1e-4 off."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["kept"], axes=[0, 2, 3]),
        helper.make_node("ReduceSum", ["x", "axes"], ["sums"], keepdims=0),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("kept", "sums")]
    axes = helper.make_tensor("axes", TensorProto.INT64, [3], [0, 2, 3])
    path = tmp_path / "model.onnx"
    graph = helper.make_graph(nodes, "g", [x], ends, [axes])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=10), path)
    given = (0.8132 + 0.0007 * np.random.default_rng(7).standard_normal((16, 6, 40, 35))).astype(np.float32)
    with compile_network(load_network(path), parse_target("llvm")).load(threads=1) as model:
        results = model.run({"x": given})
    exact = given.astype(np.float64)
    np.testing.assert_allclose(results["kept"], exact.mean((0, 2, 3), keepdims=True), 1e-6)
    np.testing.assert_allclose(results["sums"], exact.sum((0, 2, 3)), 1e-6)


@pytest.mark.parametrize(
    "node",
    [
        helper.make_node("GlobalAveragePool", ["x"], ["y"]),
        helper.make_node("ReduceMean", ["x", "last"], ["y"]),
        helper.make_node("LayerNormalization", ["x", "scale"], ["", "y"], axis=2),
    ],
    ids=lambda node: node.op_type,
)
@pytest.mark.sample(1)
def test_nothing_has_no_mean(node: onnx.NodeProto, tmp_path: Path) -> None:
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3, 0, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [
            onnx.numpy_helper.from_array(np.array([2, 3]), "last"),
            onnx.numpy_helper.from_array(np.ones((0, 4), np.float32), "scale"),
        ],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), tmp_path / "m.onnx")
    with nnefc.compile(tmp_path / "m.onnx").load() as library:
        means = library.run({"x": np.empty((2, 3, 0, 4), np.float32)})["y"]
    assert means.shape == (2, 3, 1, 1)
    assert np.isnan(means).all()


def test_any_and_all_of_nothing(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Slice", ["x", "one", "end", "one"], ["s"]),
        helper.make_node("ReduceMax", ["s", "one"], ["any"], keepdims=0),
        helper.make_node("ReduceMin", ["s", "one"], ["all"], keepdims=0),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.BOOL, [2, "n"])],
        [helper.make_tensor_value_info(name, TensorProto.BOOL, None) for name in ("any", "all")],
        [onnx.numpy_helper.from_array(np.array([value]), name) for name, value in (("one", 1), ("end", 1 << 40))],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10), tmp_path / "m.onnx")
    artifact = nnefc.compile(tmp_path / "m.onnx")
    for count in (1, 2, 5):
        x = np.random.default_rng(count).random((2, count)) < 0.5
        made = artifact.run({"x": x})
        assert np.array_equal(made["any"], x[:, 1:].any(1))
        assert np.array_equal(made["all"], x[:, 1:].all(1))
