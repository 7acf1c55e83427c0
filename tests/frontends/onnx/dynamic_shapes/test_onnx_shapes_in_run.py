"""Reshape, Unsqueeze, Squeeze, Slice, Pad and CumSum by inputs of the model, compared with onnxruntime in each run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as state

from nnefc import onnxruntime as compiled
from nnefc.integrations.onnxruntime.errors import Fail, NotImplemented

onnxruntime.set_default_logger_severity(4)
X = np.arange(24, dtype=np.float32).reshape(2, 12)


def model_of(
    op_type: str, operands: str, lengths: dict[str, Any], rank: int | None, shape: Sequence[Any] = (2, 12), **given: Any
) -> bytes:
    """A model of one operator on `x`; its other operands are int64 vectors of these lengths."""
    info = helper.make_tensor_value_info
    inputs = [info("x", TensorProto.FLOAT, shape)]
    inputs += [info(name, TensorProto.INT64, [length]) for name, length in lengths.items()]
    output = info("y", TensorProto.FLOAT, None if rank is None else [f"d{axis}" for axis in range(rank)])
    nodes = [helper.make_node(op_type, operands.split(" "), ["y"], **given)]
    proto = helper.make_model(
        helper.make_graph(nodes, "g", inputs, [output]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    return bytes(proto.SerializeToString())


def check(model: bytes, runs: Sequence[dict[str, Sequence[int]]], x: np.ndarray = X, message: str = "") -> None:
    """Each run gives onnxruntime's result, or fails with the message where onnxruntime's fails."""
    expected, session = onnxruntime.InferenceSession(model), compiled.InferenceSession(model)
    for run in runs:
        feed = {"x": x} | {name: np.array(values, np.int64) for name, values in run.items()}
        try:
            (wanted,) = expected.run(None, feed)
        except (state.Fail, state.InvalidArgument, state.RuntimeException):
            with pytest.raises(Fail, match=message):
                session.run(None, feed)
        else:
            (y,) = session.run(None, feed)
            assert y.shape == wanted.shape
            np.testing.assert_array_equal(y, wanted)


WRONG = [[5, -1, 2], [-1, -1, 2], [2, 3, 5], [-2, 3, 4], [1 << 32, 1 << 32, 24], [0, -1, 0]]
TARGETS = [{"s": s} for s in ([2, 3, 4], [4, -1, 2], [0, 3, -1], *WRONG, [0, 12, 1])]


@pytest.mark.parametrize("keep_zero", [0, 1])
def test_reshape_to_an_input(keep_zero: int) -> None:
    """0 and -1 among the elements, and shapes of another number of elements, which let the run fail."""
    model = model_of("Reshape", "x s", {"s": 3}, None, ["n", 12], allowzero=keep_zero)
    check(model, TARGETS, message="the data ask for a shape that a tensor of the shape")


def test_reshape_to_as_many_sizes_as_the_result_has_dimensions() -> None:
    check(model_of("Reshape", "x s", {"s": "k"}, 3), TARGETS, message="the data ask for a shape")


def test_a_reshape_to_data_then_operators_that_need_a_size() -> None:
    """The size that the others leave is computed before the run; a run with another one fails."""
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Reshape", ["x", "s"], ["r"]), helper.make_node("Add", ["r", "w"], ["y"])]
    inputs = [info("x", TensorProto.FLOAT, [2, 12]), info("s", TensorProto.INT64, [2])]
    weights = helper.make_tensor("w", TensorProto.FLOAT, [6], range(6))
    graph = helper.make_graph(nodes, "g", inputs, [info("y", TensorProto.FLOAT, None)], [weights])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    check(model, [{"s": s} for s in ([4, 6], [-1, 6], [3, 8], [4, -1])], message="the data ask for")


AXES = [{"a": a} for a in ([1, 3], [0, 1], [-1, -2], [1, 1], [4, 0], [-5, 0])]


@pytest.mark.parametrize(("length", "rank"), [(2, None), ("k", 4)])
def test_unsqueeze_at_axes_that_are_an_input(length: Any, rank: int | None) -> None:
    check(model_of("Unsqueeze", "x a", {"a": length}, rank), AXES, message="Unsqueeze: the data ask for axes")


def test_squeeze_of_axes_that_are_an_input() -> None:
    model = model_of("Squeeze", "x a", {"a": 1}, None, [1, 2, 1, 12])
    runs = [{"a": [axis]} for axis in (0, 2, 1, -2, 4)]
    check(model, runs, X.reshape(1, 2, 1, 12), "Squeeze: the data ask for axes")


FAR = (1 << 63) - 1


def test_slices_by_steps_that_are_an_input() -> None:
    """Backwards too, to what lies outside, and by the longest steps."""
    ranges = [(1, 9, 3), (-1, -99, -1), (-1, -99, 0), (FAR, -FAR - 1, -5), (0, FAR, FAR), (-1, -FAR, -FAR - 1)]
    ranges += [(5, 3, 1), (3, 5, -1)]
    runs = [{"b": [start], "e": [end], "a": [1], "s": [step]} for start, end, step in ranges]
    check(model_of("Slice", "x b e a s", dict.fromkeys("beas", 1), None), runs, message="Slice: the data ask for")


def test_slices_of_axes_that_are_an_input() -> None:
    runs = [{"b": [1], "e": [9], "a": [axis]} for axis in (1, 0, -1, 3)]
    check(model_of("Slice", "x b e a", dict.fromkeys("bea", 1), 2), runs, message="Slice: the data ask for axes")


def test_slices_of_as_many_dimensions_as_there_are_starts() -> None:
    runs = [{"b": [0, 3], "e": [2, 7]}, {"b": [1], "e": [2]}, {"b": [0, 3, 1], "e": [2, 7, 1]}]
    check(model_of("Slice", "x b e", dict.fromkeys("be", "k"), None), runs, message="Slice: the data ask for axes")


def test_constants_around_what_negative_pads_leave() -> None:
    """Also around nothing; a run that crops more than the padded tensor has fails."""
    pads = [[0, 1, 2, 0], [-1, -3, 1, 2], [1, 4, -2, -9], [0, -12, 0, 5], [-2, 0, 0, 0], [-2, -1, -1, 0]]
    pads += [[-1, 0, -2, 3]]
    model = model_of("Pad", "x p", {"p": 4}, None, ["n", 12])
    check(model, [{"p": each} for each in pads], message="Pad: the data ask for amounts")


@pytest.mark.parametrize("mode", ["edge", "reflect", "wrap"])
def test_negative_pads_crop_before_others_repeat(mode: str) -> None:
    """A run fails in which nothing is left to repeat."""
    pads = [[0, 3, 1, 2], [1, -3, 0, 2], [0, 4, -1, -7], [0, -3, 0, -4], [0, -12, 0, 3], [0, -9, 0, -4]]
    runs = [{"p": each} for each in pads if mode != "reflect" or each[2] >= 0]
    model = model_of("Pad", "x p", {"p": "k"}, None, ["n", "m"], mode=mode)
    check(model, runs, message="Pad: the data ask for amounts")


def test_reflections_of_one_element_are_that_element() -> None:
    info = helper.make_tensor_value_info
    nodes = [helper.make_node("Pad", ["x", "p"], ["y"], mode="reflect")]
    pads = helper.make_tensor("p", TensorProto.INT64, [2], [1, 2])
    graph = helper.make_graph(nodes, "g", [info("x", 1, ["n"])], [info("y", 1, None)], [pads])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = compiled.InferenceSession(model)
    for x in (X[0], X[0, 3:4]):
        np.testing.assert_array_equal(session.run(None, {"x": x})[0], np.pad(x, (1, 2), "reflect"))


@pytest.mark.parametrize(("exclusive", "reverse"), [(0, 0), (1, 1)])
def test_running_sums_along_an_axis_that_is_an_input(exclusive: int, reverse: int) -> None:
    model = model_of("CumSum", "x a", {"a": 1}, None, ["n", 3, 4], exclusive=exclusive, reverse=reverse)
    runs = [{"a": [axis]} for axis in (0, 1, 2, -1, -3, 3, -4, FAR)]
    check(model, runs, X.reshape(2, 3, 4), "CumSum: the data ask for an axis")


def test_a_rank_that_depends_on_data_is_not_implemented() -> None:
    model = model_of("Reshape", "x s", {"s": "k"}, None)
    with pytest.raises(NotImplemented, match="--shape k=1"):
        compiled.InferenceSession(model)


@pytest.mark.parametrize(
    ("op_type", "right", "wrong"), [("Reshape", [4, -1], [5, 5]), ("Pad", [-1, 1, 0, -2], [-1, 0, -2, 0])]
)
def test_a_branch_that_is_not_chosen_takes_any_shape(op_type: str, right: list[int], wrong: list[int]) -> None:
    info = helper.make_tensor_value_info

    def branch(name: str, shape: str) -> Any:
        nodes = [helper.make_node(op_type, ["x", shape], ["r"]), helper.make_node("ReduceMax", ["r"], [name])]
        return helper.make_graph(nodes, name, [], [info(name, TensorProto.FLOAT, None)])

    nodes = [helper.make_node("If", ["c"], ["y"], then_branch=branch("one", "s"), else_branch=branch("other", "t"))]
    shapes = [info(name, TensorProto.INT64, [len(right)]) for name in "st"]
    inputs = [info("x", TensorProto.FLOAT, [2, 12]), info("c", TensorProto.BOOL, []), *shapes]
    graph = helper.make_graph(nodes, "g", inputs, [info("y", TensorProto.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8).SerializeToString()
    session = compiled.InferenceSession(model)
    wanted, other = np.array(right), np.array(wrong)
    for condition in (True, False):
        feed = {"x": X, "c": np.array(condition)} | dict(zip("st" if condition else "ts", (wanted, other), strict=True))
        assert session.run(None, feed)[0].item() == (23 if op_type == "Reshape" else 21)
        with pytest.raises(Fail, match=f"{op_type}: the data ask for"):
            session.run(None, feed | {"c": np.array(not condition)})
