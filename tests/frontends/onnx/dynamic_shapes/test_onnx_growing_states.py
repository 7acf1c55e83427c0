"""Loops whose states change their sizes, and sequences that grow in them, compared with onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_onnx_data_dependent_sizes import RNG, check, model_of, node, some

import nnefc
from nnefc import onnx_backend
from nnefc.loader import RunError
from nnefc.support.diagnostics import CompileError

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
NUMBERS = {
    "none": np.array(0, np.int64),
    "one": np.array(1, np.int64),
    "first": np.array([0], np.int64),
    "second": np.array([1], np.int64),
    "both": np.array([0, 1], np.int64),
    "end": np.array([2**62], np.int64),
    "back": np.array(-1, np.int64),
    "two": np.array([2], np.int64),
    "level": np.array(0.6, np.float32),
    "high": np.array(0.9, np.float32),
    "ten": np.array(10, np.float32),
    "start": np.array(0, np.float32),
    "row0": np.ones((1, 1), np.float32),
}
TRIPS = {
    "shape": [node("Shape", "x", "size", start=0, end=1), node("Squeeze", "size", "trips")],
    "data": [
        node("Shape", "x", "size", start=0, end=1),
        node("ReduceMax", "x", "largest", keepdims=0),
        node("Mul", "largest ten", "real"),
        node("Cast", "real", "whole", to=INT),
        node("Min", "whole size", "fewer"),
        node("Max", "fewer one", "some"),
        node("Squeeze", "some", "trips"),
    ],
}
ON = {
    "": [node("Identity", "c", "on")],
    "ends": [node("Gather", "row none", "element"), node("Less", "element high", "on")],
}


def value(name: str, kind: int = FLOAT, shape: Any = None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def body_of(nodes: list[onnx.NodeProto], **states: onnx.ValueInfoProto) -> onnx.GraphProto:
    """The body of a loop: of each state `name`, the new value is `name`_."""
    after = []
    for name, info in states.items():
        after.append(onnx.ValueInfoProto())
        after[-1].CopyFrom(info)
        after[-1].name = f"{name}_"
    given = [value("i", INT, []), value("c", BOOL, []), *states.values()]
    return helper.make_graph(nodes, "body", given, [value("on", BOOL, []), *after])


def uniform(*rows: int, columns: int = 5) -> list[dict[str, np.ndarray]]:
    return [{"x": RNG.random((count, columns)).astype(np.float32)} for count in rows]


@pytest.mark.parametrize(
    ("trips", "on", "chosen"),
    [
        ("shape", "", 0),
        pytest.param("data", "", 0, marks=pytest.mark.slow),
        pytest.param("shape", "", 1, marks=pytest.mark.slow),
        ("data", "ends", 1),
    ],
)
@pytest.mark.sample(1)
def test_a_tensor_that_grows(trips: str, on: str, chosen: int, tmp_path: Path) -> None:
    """By as many rows in each iteration, or by a data-dependent number; to an end that is known, or not."""
    nodes = [
        node("Gather", "x i", "row"),
        node("ReduceSum", "s both", "sum", keepdims=0),
        node("Mul", "row sum", "product"),
        node("Tanh", "product", "small"),
        node("Greater", "small level", "mask"),
        node("Compress", "small mask", "part", axis=0) if chosen else node("Identity", "small", "part"),
        node("Unsqueeze", "part second", "column"),
        node("Concat", "s column", "s_", axis=0),
        *ON[on],
    ]
    loop = helper.make_node("Loop", ["trips", "", "row0"], ["y"], body=body_of(nodes, s=value("s")))
    check(
        model_of([*TRIPS[trips], loop], {"x": ["n", 5]}, {"y": FLOAT}, **NUMBERS),
        tmp_path,
        None,
        uniform(3, 1, 50, 7),
    )


@pytest.mark.parametrize("limit", [pytest.param(1e9, marks=pytest.mark.slow), 1.0])
def test_keys_and_values_of_a_decoder(limit: float, tmp_path: Path) -> None:
    """They grow together from nothing, with what is generated; a condition may end it."""
    weights = {name: (RNG.standard_normal((8, 8)) / 4).astype(np.float32) for name in ("wq", "wk", "wv", "wo")}
    nodes = [
        *(node("MatMul", f"h w{name}", name) for name in "qkv"),
        node("Concat", "keys k", "keys_", axis=0),
        node("Concat", "values v", "values_", axis=0),
        node("Transpose", "keys_", "transposed"),
        node("MatMul", "q transposed", "scores"),
        node("Softmax", "scores", "weights", axis=-1),
        node("MatMul", "weights values_", "mixed"),
        node("MatMul", "mixed wo", "out"),
        node("Tanh", "out", "h_"),
        node("ReduceSum", "h_", "sum", keepdims=0),
        node("Less", "sum limit", "on"),
        node("ArgMax", "h_", "token", axis=1, keepdims=0),
        node("Concat", "tokens token", "tokens_", axis=0),
    ]
    states = {name: value(name) for name in ("h", "keys", "values")} | {"tokens": value("tokens", INT)}
    nothing = {
        "empty": np.zeros((0, 8), np.float32),
        "silence": np.zeros(0, np.int64),
        "upper": np.array(200, np.int64),
    }
    loop = helper.make_node(
        "Loop", ["upper", "", "x", "empty", "empty", "silence"], ["h", "k", "v", "t"], body=body_of(nodes, **states)
    )
    outputs = {"h": FLOAT, "k": FLOAT, "t": INT}
    proto = model_of([loop], {"x": [1, 8]}, outputs, **weights, **nothing, limit=np.array(limit, np.float32))
    check(proto, tmp_path, None, uniform(1, 1, columns=8))


def test_candidates_that_become_fewer(tmp_path: Path) -> None:
    """Until one is left; both tensors lose the same ones."""
    nodes = [
        node("ReduceMax", "s", "largest", keepdims=0),
        node("Less", "s largest", "keep"),
        node("Compress", "s keep", "s_", axis=0),
        node("Compress", "b keep", "b_", axis=0),
        node("Mul", "s_ b_", "product"),
        node("ReduceSum", "product", "sum", keepdims=0),
        node("Add", "a sum", "a_"),
        node("Shape", "s_", "size"),
        node("Squeeze", "size", "left"),
        node("Greater", "left one", "on"),
    ]
    body = body_of(nodes, s=value("s"), b=value("b"), a=value("a", shape=[]))
    around = [
        node("Mul", "x ten", "more"),
        helper.make_node("Loop", ["", "go", "x", "more", "start"], ["s1", "b1", "y"], body=body),
    ]
    proto = model_of(around, {"x": ["n"]}, {"s1": FLOAT, "b1": FLOAT, "y": FLOAT}, **NUMBERS, go=np.array(True))
    check(proto, tmp_path, None, [{"x": RNG.random(count).astype(np.float32)} for count in (5, 2, 30)])


def test_the_first_element_goes_in_each_iteration(tmp_path: Path) -> None:
    """What is left lies inside the state itself."""
    nodes = [
        node("Slice", "s second end", "s_"),
        node("ReduceSum", "s", "sum", keepdims=0),
        node("Add", "a sum", "a_"),
        *ON[""],
    ]
    body = body_of(nodes, s=value("s"), a=value("a", shape=[]))
    around = [
        node("Shape", "x", "size"),
        node("Div", "size two", "half"),
        node("Squeeze", "half", "trips"),
        helper.make_node("Loop", ["trips", "", "x", "start"], ["s1", "y"], body=body),
    ]
    proto = model_of(around, {"x": ["n"]}, {"s1": FLOAT, "y": FLOAT}, **NUMBERS)
    check(proto, tmp_path, None, [{"x": RNG.random(count).astype(np.float32)} for count in (5, 2, 30, 1)])


def test_growth_without_an_end_is_refused(tmp_path: Path) -> None:
    nodes = [
        node("Concat", "s x", "s_", axis=0),
        node("ReduceSum", "s_", "sum", keepdims=0),
        node("Less", "sum ten", "on"),
    ]
    loop = helper.make_node("Loop", ["", "go", "x"], ["y"], body=body_of(nodes, s=value("s")))
    proto = model_of([loop], {"x": ["n"]}, {"y": FLOAT}, **NUMBERS, go=np.array(True))
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(CompileError, match="nothing says how many iterations there are at most") as caught:
        nnefc.compile(tmp_path / "model.onnx")
    assert "trip count" in str(caught.value)


def sequence(name: str) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None)))


@pytest.mark.parametrize(
    ("trips", "on", "position", "width"), [("shape", "", "", 5), ("data", "", " none", 5), ("data", "ends", "", "w")]
)
@pytest.mark.sample(1)
def test_a_sequence_that_grows(trips: str, on: str, position: str, width: int | str, tmp_path: Path) -> None:
    """At its end or at its beginning; then elements are taken out, it is joined, and measured."""
    nodes = [
        node("Gather", "x i", "row"),
        node("Tanh", "row", "t"),
        node("SequenceInsert", f"s t{position}", "s_"),
        *ON[on],
    ]
    around = [
        *TRIPS[trips],
        node("SequenceEmpty", "", "nothing"),
        helper.make_node("Loop", ["trips", "", "nothing"], ["s1"], body=body_of(nodes, s=sequence("s"))),
        node("ConcatFromSequence", "s1", "stack", axis=0, new_axis=1),
        node("ConcatFromSequence", "s1", "flat", axis=0),
        node("SequenceLength", "s1", "length"),
        node("Sub", "length one", "end_"),
        node("SequenceAt", "s1 end_", "last"),
        node("SequenceAt", "s1 back", "again"),
        node("SequenceErase", "s1 none", "fewer_"),
        node("SequenceLength", "fewer_", "left"),
    ]
    outputs = {"stack": FLOAT, "flat": FLOAT, "length": INT, "last": FLOAT, "again": FLOAT, "left": INT}
    feeds = uniform(3, 1, 50, 7, columns=7 if width == "w" else 5)
    check(model_of(around, {"x": ["n", width]}, outputs, **NUMBERS), tmp_path, None, feeds)


MAPPED = [
    node("SplitToSequence", "x", "s", axis=0, keepdims=0),
    node("ReduceSum", "x", "sum", keepdims=0),
    node("Cast", "sum", "p", to=INT),
    node("SequenceAt", "s p", "at"),
]


def test_sequences_of_a_length_that_is_open(tmp_path: Path) -> None:
    """A body for each element; data-dependent positions."""
    body = helper.make_graph(
        [node("Tanh", "e", "t"), node("ReduceSum", "t", "u", keepdims=0)],
        "body",
        [value("e")],
        [value("t"), value("u", shape=[])],
    )
    nodes = [
        *MAPPED,
        helper.make_node("SequenceMap", ["s"], ["m", "r"], body=body),
        node("ConcatFromSequence", "m", "y", axis=1, new_axis=1),
        node("ConcatFromSequence", "r", "z", axis=0, new_axis=1),
        node("SequenceErase", "s p", "fewer"),
        node("ConcatFromSequence", "fewer", "v", axis=0),
        node("SequenceInsert", "s at p", "more"),
        node("ConcatFromSequence", "more", "w", axis=0),
    ]
    proto = model_of(nodes, {"x": ["n", 5]}, dict.fromkeys("yzvw", FLOAT) | {"at": FLOAT})
    artifact = check(proto, tmp_path, None, [{"x": some(rows, 5, 0.04)} for rows in (30, 20, 12)])
    with artifact.load() as library, pytest.raises(RunError, match="out of range"):
        library.run({"x": np.ones((3, 5), np.float32)})


def test_a_position_that_depend_on_data_in_a_known_sequence(tmp_path: Path) -> None:
    check(model_of(MAPPED, {"x": [20, 5]}, {"at": FLOAT}), tmp_path, None, [{"x": some(20, 5, 0.04)} for _ in range(3)])


@pytest.mark.parametrize(
    "nodes",
    [
        [node("SequenceConstruct", "x z", "s"), node("SequenceErase", "s p", "y")],
        [node("SequenceConstruct", "x x", "s"), node("SequenceInsert", "s z p", "y")],
    ],
    ids=["erase", "insert"],
)
def test_tensors_of_several_shapes_have_no_position_that_depend_on_data(
    nodes: list[onnx.NodeProto], tmp_path: Path
) -> None:
    proto = model_of(nodes, {"x": [4, 5], "z": [3, 5]}, {})
    proto.graph.input.append(value("p", INT, []))
    proto.graph.output.append(sequence("y"))
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    with pytest.raises(CompileError, match=r"tensors of one shape, not \[4, 5\] and \[3, 5\]\n.* pad") as caught:
        nnefc.compile(tmp_path / "model.onnx")
    assert nodes[1].op_type in str(caught.value)


def test_a_sequence_of_a_length_that_is_open_as_an_output(tmp_path: Path) -> None:
    """One tensor of the library; a list by ONNX's interface for engines."""
    proto = model_of(MAPPED[:1], {"x": ["n", 5]}, {})
    proto.graph.output.append(sequence("s"))
    (tmp_path / "model.onnx").write_bytes(proto.SerializeToString())
    x = some(4, 5, 0.5)
    with nnefc.compile(tmp_path / "model.onnx").load() as library:
        np.testing.assert_array_equal(library.run({"x": x})["s"], x)
    (elements,) = onnx_backend.prepare(proto).run([x])
    assert isinstance(elements, list)
    np.testing.assert_array_equal(np.stack(elements), x)


@pytest.mark.parametrize("parts", ["", " two"])
@pytest.mark.parametrize("size", [0, 3])
@pytest.mark.sample(2)
def test_a_tensor_without_elements_is_split_into_none(parts: str, size: int, tmp_path: Path) -> None:
    nodes = [node("SplitToSequence", f"x{parts}", "s", axis=0), node("SequenceLength", "s", "length")]
    proto = model_of(nodes, {"x": [size, 5]}, {"length": INT}, two=np.array(2, np.int64))
    check(proto, tmp_path, None, uniform(size))
