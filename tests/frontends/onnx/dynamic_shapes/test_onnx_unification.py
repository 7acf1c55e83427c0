"""Dynamic sizes that must be equal for operators to fit each other: found while compiling, checked when a library
runs."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.support.diagnostics import CompileError, ModelWarning

RNG = np.random.default_rng(5)


def node(op_type: str, inputs: Sequence[str], output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs, [output], **attributes)


def written(
    folder: Path, nodes: Sequence[onnx.NodeProto], inputs: Mapping[str, Sequence[Any]], **constants: Any
) -> Path:
    """The file of a model with these inputs and the output `y`."""
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path = folder / "model.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def check(path: Path, artifact: nnefc.Artifact, shapes: Mapping[str, Sequence[int]]) -> None:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    feed = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    with artifact.load() as library:
        (expected,) = session.run(None, feed)
        np.testing.assert_allclose(library.run(feed)["y"], expected, rtol=1e-5, atol=1e-6)


def test_dimensions_of_two_names_that_are_joined_are_one(tmp_path: Path) -> None:
    path = written(tmp_path, [node("Concat", ["a", "b"], "y", axis=1)], {"a": ["n", 3], "b": ["n_1", 3]})
    with pytest.warns(ModelWarning, match=r"'n_1' and 'n' must be one size for its operators .*Concat that makes 'y'"):
        artifact = nnefc.compile(path, shape={"n": "1..8", "n_1": "3..64:2"})
    assert [str(tensor) for tensor in artifact.inputs] == ["a: float32[n, 3]", "b: float32[n, 3]"]
    check(path, artifact, {"a": (6, 3), "b": (6, 3)})
    with artifact.load() as library:
        with pytest.raises(nnefc.RunError, match="both are the same"):
            library.run({"a": np.zeros((6, 3), np.float32), "b": np.zeros((4, 3), np.float32)})
        with pytest.raises(nnefc.RunError, match="multiples of 2"):
            library.run({"a": np.zeros((5, 3), np.float32), "b": np.zeros((5, 3), np.float32)})


POOLED = [
    node("MaxPool", ["x"], "p", kernel_shape=[2, 2], strides=[2, 2]),
    node("MaxPool", ["p"], "q", kernel_shape=[2, 2], strides=[2, 2]),
    node("Resize", ["q", "", "scales"], "r"),
    node("Concat", ["p", "r"], "c", axis=1),
    node("Resize", ["c", "", "scales"], "d"),
    node("Concat", ["x", "d"], "y", axis=1),
]


def test_what_is_halved_and_doubled_is_joined_for_multiples(tmp_path: Path) -> None:
    path = written(tmp_path, POOLED, {"x": [1, 2, "h", "w"]}, scales=np.array([1, 1, 2, 2], np.float32))
    with pytest.warns(ModelWarning, match="multiples of 4"):
        artifact = nnefc.compile(path)
    check(path, artifact, {"x": (1, 2, 12, 20)})
    with artifact.load() as library, pytest.raises(nnefc.RunError, match='takes multiples of 4 for "h"'):
        library.run({"x": np.zeros((1, 2, 14, 20), np.float32)})


def test_sizes_that_no_range_has_are_reported(tmp_path: Path) -> None:
    path = written(tmp_path, [node("Concat", ["a", "b"], "y", axis=1)], {"a": ["n", 3], "b": ["n_1", 3]})
    with pytest.raises(CompileError, match=r"no size of 'n' .* a multiple of 12 from 4 to 8"):
        nnefc.compile(path, shape={"n": "3..8:3", "n_1": "4..8:4"})


@pytest.mark.parametrize(("target", "shape", "described"), [([2, 2, 2], (2, 4), "2, 4"), ([-1, 8], (6, 4), "n, 4")])
def test_shapes_that_only_some_sizes_can_take(
    target: list[int], shape: tuple[int, ...], described: str, tmp_path: Path
) -> None:
    path = written(tmp_path, [node("Reshape", ["x", "s"], "y")], {"x": ["n", 4]}, s=np.array(target))
    with pytest.warns(ModelWarning, match="'n' must be"):
        artifact = nnefc.compile(path)
    assert str(artifact.inputs[0]) == f"x: float32[{described}]"
    check(path, artifact, {"x": shape})


def test_sizes_that_are_never_equal_are_refused(tmp_path: Path) -> None:
    path = written(tmp_path, [node("Concat", ["x", "k"], "y", axis=1)], {"x": ["n", 3]}, k=np.zeros((1, 3), np.float32))
    with pytest.raises(CompileError, match="must agree"):
        nnefc.compile(path, shape={"n": "2..9"})


def test_sizes_that_depend_on_data_must_be_equal_in_a_run(tmp_path: Path) -> None:
    nodes = [node("NonZero", ["a"], "i"), node("NonZero", ["b"], "j"), node("Add", ["i", "j"], "s")]
    path = written(tmp_path, [*nodes, node("Cast", ["s"], "y", to=TensorProto.FLOAT)], {"a": ["n"], "b": [6]})
    b = np.array([1, 0, 1, 0, 0, 1], np.float32)
    with nnefc.compile(path).load() as library:
        np.testing.assert_array_equal(library(np.array([0, 1, 1, 1], np.float32), b), [[1, 4, 8]])
        with pytest.raises(nnefc.RunError, match="the network's operators need"):
            library(np.ones(4, np.float32), b)


def test_sizes_between_two_ends_leave_one_row_behind_a_window(tmp_path: Path) -> None:
    """`[n, 3, (h - 5) // 4 + 1, w]` seen as `[n, 3, w]`, and joined with what that is the same as."""
    nodes = [
        node("MaxPool", ["x"], "a", kernel_shape=[5, 1], strides=[4, 1]),
        node("Squeeze", ["a", "two"], "b"),
        node("Unsqueeze", ["b", "two"], "c"),
        node("Concat", ["a", "c"], "y", axis=1),
    ]
    path = written(tmp_path, nodes, {"x": ["n", 3, "h", "w"]}, two=[2])
    with pytest.warns(ModelWarning, match="'h' must be from 5 to 8 for"):
        artifact = nnefc.compile(path)
    for size in (5, 8):
        check(path, artifact, {"x": (2, 3, size, 3)})
    with artifact.load() as library:
        for size in (4, 9):
            with pytest.raises(nnefc.RunError, match="takes 5 to 8"):
                library.run({"x": np.zeros((2, 3, size, 3), np.float32)})


@pytest.mark.parametrize(
    ("op_type", "indices", "minimum"),
    [
        ("Gather", [2, -4], {"n": 4}),
        ("GatherElements", [[0, -1], [2, -3]], {"n": 3, "m": 2}),
        ("GatherND", [[-1, 1], [1, -3]], {"n": 2, "m": 3}),
    ],
)
@pytest.mark.sample(1)
def test_elements_that_are_taken_are_there(
    op_type: str, indices: Any, minimum: Mapping[str, int], tmp_path: Path
) -> None:
    """Positions from the end of a dynamic size too, of which there must be enough."""
    path = written(tmp_path, [node(op_type, ["x", "i"], "y")], {"x": ["n", "m"]}, i=indices)
    with pytest.warns(ModelWarning) as notes:
        artifact = nnefc.compile(path)
    texts = " ".join(str(note.message) for note in notes)
    assert all(f"'{name}' must be no less than {size}" in texts for name, size in minimum.items())
    for n, m in ((4, 3), (7, 5)):
        check(path, artifact, {"x": (n, m)})


@pytest.mark.parametrize(
    ("op_type", "inputs", "attributes"),
    [
        pytest.param("GatherElements", "xj", {}, marks=pytest.mark.slow),
        ("ScatterElements", "xju", {"reduction": "add"}),
    ],
)
def test_indices_may_be_fewer_than_data(
    op_type: str, inputs: str, attributes: Mapping[str, str], tmp_path: Path
) -> None:
    """Of two dynamic sizes one is limited to the other; neither is taken for the other."""
    nodes = [node("Cast", ["i"], "j", to=TensorProto.INT64), node(op_type, list(inputs), "y", axis=1, **attributes)]
    shapes = {"x": ["n", "m"], "i": ["k", "l"]} | ({"u": ["k", "l"]} if "u" in inputs else {})
    path = written(tmp_path, nodes, shapes)
    with pytest.warns(ModelWarning, match="n - k must be no less than 0"):
        artifact = nnefc.compile(path)
    for n, m, k, size in ((7, 6, 3, 5), (4, 9, 4, 4), (5, 8, 1, 7)):
        check(path, artifact, {name: (n, m) if name == "x" else (k, size) for name in shapes})
    with artifact.load() as library, pytest.raises(nnefc.RunError, match="n - k is -1"):
        library.run({name: np.zeros((2, 6) if name == "x" else (3, 6), np.float32) for name in shapes})


@pytest.mark.parametrize(("shapes", "axis"), [({"x": [4, 3], "i": ["k", 3]}, 1), ({"x": [4, "c"], "i": ["k", "c"]}, 0)])
@pytest.mark.sample(1)
def test_indices_may_be_fewer_than_data_of_a_known_size(
    shapes: Mapping[str, Sequence[Any]], axis: int, tmp_path: Path
) -> None:
    nodes = [node("Cast", ["i"], "j", to=TensorProto.INT64), node("GatherElements", ["x", "j"], "y", axis=axis)]
    path = written(tmp_path, nodes, shapes)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ModelWarning)
        artifact = nnefc.compile(path)
    for count in (2, 4):
        check(path, artifact, {"x": (4, 3), "i": (count, 3)})
    if axis:
        with artifact.load() as library, pytest.raises(nnefc.RunError, match='takes 0 to 4 for "k"'):
            library.run({"x": np.zeros((4, 3), np.float32), "i": np.zeros((5, 3), np.float32)})


def test_a_branch_that_fits_small_sizes_alone_leaves_the_other_all_sizes(tmp_path: Path) -> None:
    """Which branch runs is data; one of them cuts off the axis of `(h + 3) // 4` elements."""
    short = [
        node("Slice", ["x", "zero", "end", "one", "four"], "every_fourth"),
        node("Squeeze", ["every_fourth", "one"], "first"),
    ]
    names = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in ("first", "sum")]
    chosen = node("If", ["c"], "y")
    for name, nodes, output in (
        ("then_branch", short, names[0]),
        ("else_branch", [node("ReduceSum", ["x", "one"], "sum", keepdims=0)], names[1]),
    ):
        chosen.attribute.append(helper.make_attribute(name, helper.make_graph(nodes, name, [], [output])))
    constants = {"zero": [0], "one": [1], "four": [4], "end": [np.iinfo(np.int64).max]}
    nodes = [node("Cast", ["b"], "c", to=TensorProto.BOOL), chosen]
    path = written(tmp_path, nodes, {"x": ["n", "h"], "b": []}, **constants)
    with pytest.warns(ModelWarning, match="more than 4 for 'h'"):
        artifact = nnefc.compile(path)
    assert [str(tensor) for tensor in artifact.inputs] == ["x: float32[n, h]", "b: float32[]"]
    x, yes, no = RNG.standard_normal((3, 9)).astype(np.float32), np.float32(1), np.float32(0)
    with artifact.load() as library:
        np.testing.assert_array_equal(library.run({"x": x[:, :4], "b": yes})["y"], x[:, 0])
        np.testing.assert_allclose(library.run({"x": x, "b": no})["y"], x.sum(1), rtol=1e-5)
        with pytest.raises(nnefc.RunError, match="more than 4 for 'h'"):
            library.run({"x": x, "b": yes})


TUPLES = np.array([[3, 2], [-1, 0], [1, 4]])


def with_tuples(
    op_type: str, data: Sequence[Any], rank: int | None, updates: Sequence[Any] = (), **attributes: int
) -> onnx.ModelProto:
    """A model of `GatherND` or `ScatterND` whose tuples have a length `k` that the file leaves open."""
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, data),
        helper.make_tensor_value_info("i", TensorProto.INT64, ["t", "k"]),
        *([helper.make_tensor_value_info("u", TensorProto.FLOAT, updates)] if updates else []),
    ]
    result = helper.make_tensor_value_info("y", TensorProto.FLOAT, None if rank is None else [None] * rank)
    operands = [each.name for each in inputs]
    graph = helper.make_graph([node(op_type, operands, "y", **attributes)], "g", inputs, [result])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize(
    ("model", "tuples", "shapes"),
    [
        (with_tuples("GatherND", ["n"], None), TUPLES[:, :1], {"x": (4,)}),
        (with_tuples("GatherND", ["n", "m"], 1), TUPLES, {"x": (4, 5)}),
        pytest.param(with_tuples("GatherND", ["n", "m"], 2), TUPLES[:, :1], {"x": (4, 5)}, marks=pytest.mark.slow),
        (with_tuples("GatherND", ["n", "m"], None, batch_dims=1), TUPLES[:, 1:], {"x": (3, 5)}),
        pytest.param(
            with_tuples("ScatterND", ["n", "m"], None, ["t"]), TUPLES, {"x": (4, 5), "u": (3,)}, marks=pytest.mark.slow
        ),
        (with_tuples("ScatterND", ["n", "m"], None, ["t", "m"]), TUPLES[:, :1], {"x": (4, 5), "u": (3, 5)}),
    ],
    ids=["one dimension", "all, by rank", "one, by rank", "batch", "scattered elements", "scattered rows"],
)
@pytest.mark.sample(2)
def test_the_length_of_index_tuples_follows_from_ranks(
    model: onnx.ModelProto, tuples: np.ndarray, shapes: Mapping[str, Sequence[int]]
) -> None:
    with pytest.warns(ModelWarning, match=f"'k' must be {tuples.shape[1]} for its operators"):
        artifact = nnefc.compile(model)
    feed = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()} | {"i": tuples}
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_array_equal(artifact.run(feed)["y"], session.run(None, feed)[0])


def test_the_length_of_index_tuples_is_asked_for_where_the_rank_of_the_result_depends_on_it() -> None:
    model = with_tuples("GatherND", ["n", "m"], None)
    with pytest.raises(CompileError, match="decides the rank of the result") as found:
        nnefc.compile(model)
    assert "--shape k=2, or another number from 1 to 2" in str(found.value.hint)
    assert nnefc.compile(model, shape={"k": 2}).outputs[0].shape == ("t",)


def test_a_table_that_is_cropped_in_its_middle_limits_both_sides(tmp_path: Path) -> None:
    """As of transformers of images, whose patches have positions in a table of 12 by 12."""
    nodes = [
        node("Conv", ["x", "filters"], "patches", strides=[2, 2]),
        node("Shape", ["patches"], "s", start=2),
        node("Sub", ["side", "s"], "left_over"),
        node("Div", ["left_over", "two"], "begin"),
        node("Add", ["begin", "s"], "end"),
        node("Slice", ["table", "begin", "end", "axes"], "middle"),
        node("Reshape", ["middle", "flat"], "positions"),
        node("Reshape", ["patches", "rows"], "row"),
        node("Add", ["row", "positions"], "y"),
    ]
    constants = {"side": [12, 12], "two": [2, 2], "axes": [1, 2], "flat": [3, -1], "rows": [0, 3, -1]}
    tensors = {
        "filters": np.float32(RNG.standard_normal((3, 1, 2, 2))),
        "table": np.float32(np.arange(432).reshape(3, 12, 12)),
    }
    path = written(tmp_path, nodes, {"x": ["n", 1, "h", "w"]}, **constants, **tensors)
    with pytest.warns(ModelWarning) as notes:
        artifact = nnefc.compile(path)
    assert all(any(f"'{name}' must be from 1 to 25" in str(note.message) for note in notes) for name in "hw")
    for h, w in ((24, 24), (25, 7), (2, 10)):
        check(path, artifact, {"x": (2, 1, h, w)})
