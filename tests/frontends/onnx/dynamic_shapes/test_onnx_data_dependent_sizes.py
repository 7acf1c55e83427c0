"""ONNX models with results with data-dependent sizes, compared with onnxruntime."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
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


def model_of(
    nodes: Sequence[onnx.NodeProto], inputs: dict[str, Sequence[Any]], outputs: dict[str, int], **constants: np.ndarray
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in inputs.items()],
        [helper.make_tensor_value_info(name, kind, None) for name, kind in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def node(op_type: str, inputs: str, outputs: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(op_type, inputs.split(), outputs.split(), **attributes)


def check(
    proto: onnx.ModelProto, folder: Path, ranges: dict[str, Any] | None, feeds: Sequence[dict[str, np.ndarray]]
) -> nnefc.Artifact:
    """One session gives what onnxruntime gives, run after run."""
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    artifact = nnefc.compile(path, shape=ranges)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with artifact.load(threads=2) as library:
        for feed in feeds:
            for result, expected in zip(library.run(feed).values(), session.run(None, feed), strict=True):
                assert result.shape == expected.shape
                np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
    return artifact


def some(rows: int, columns: int, part: float) -> np.ndarray:
    """Ones and zeros; `part` of them ones."""
    return (RNG.random((rows, columns)) < part).astype(np.float32)


@pytest.mark.parametrize("rows", [pytest.param(4, marks=pytest.mark.slow), "n"])
def test_what_is_not_zero_goes_through_a_network(rows: int | str, tmp_path: Path) -> None:
    """A product over as many rows as were found: none, some, and all of them."""
    nodes = [
        node("NonZero", "x", "found"),
        node("Transpose", "found", "locations"),
        node("Cast", "locations", "real", to=TensorProto.FLOAT),
        node("MatMul", "real w", "product"),
        node("Relu", "product", "y"),
        node("ReduceSum", "y axis", "sum", keepdims=0),
        node("Shape", "found", "shape"),
    ]
    kinds = {"y": TensorProto.FLOAT, "sum": TensorProto.FLOAT, "shape": TensorProto.INT64}
    constants = {"w": RNG.standard_normal((2, 9)).astype(np.float32), "axis": np.array([0], np.int64)}
    proto = model_of(nodes, {"x": [rows, 5]}, kinds, **constants)
    sizes = [4] * 4 if rows == 4 else [4, 1, 9, 4]
    feeds = [{"x": some(size, 5, part)} for size, part in zip(sizes, (0.5, 0, 1, 0.3), strict=True)]
    artifact = check(proto, tmp_path, None if rows == 4 else {"n": "1..9"}, feeds)
    assert str(artifact.outputs[0]) == "y: float32[nonzero, 9]"


@pytest.mark.parametrize("count", [pytest.param(64, marks=pytest.mark.slow), "n"])
def test_the_best_boxes_are_padded_to_a_fixed_number(count: int | str, tmp_path: Path) -> None:
    """As Ultralytics' detectors are exported with their suppression: fewer boxes than that, as many, and more."""
    constants = {
        "all": np.array([(1 << 63) - 1], np.int64),
        "overlap": np.array([0.5], np.float32),
        "limit": np.array(0.3, np.float32),
        "upper": np.array(20, np.int64),
        "none": np.zeros((1, 20, 4), np.float32),
        "wanted": np.array([20, 4], np.int64),
        "first": np.array([[0]], np.int64),
    }
    constants |= {name: np.array([k], np.int64) for name, k in (("zero", 0), ("one", 1), ("two", 2), ("end", 20))}
    constants |= {"before": np.zeros(2, np.int64)}
    nodes = [
        node("Greater", "scores limit", "likely"),
        node("NonZero", "likely", "found"),
        node("Transpose", "found", "locations"),
        node("GatherND", "boxes locations", "box"),
        node("GatherND", "scores locations", "score"),
        node("Unsqueeze", "box zero", "batch"),
        node("Unsqueeze", "score zero", "row"),
        node("Unsqueeze", "row zero", "classes"),
        node("NonMaxSuppression", "batch classes all overlap", "kept"),
        node("Gather", "kept two", "column", axis=1),
        node("Squeeze", "column one", "numbers"),
        node("Slice", "numbers zero end zero one", "best"),
        node("Gather", "box best", "chosen"),
        node("Shape", "chosen", "shape"),
        node("Gather", "shape zero", "count"),
        node("Sub", "upper count", "missing"),
        node("Concat", "before missing zero", "amounts", axis=0),
        node("Pad", "chosen amounts", "padded"),
        node("Expand", "padded wanted", "whole"),
        node("Unsqueeze", "whole zero", "update"),
        node("ScatterND", "none first update", "y"),
    ]
    inputs: dict[str, Sequence[Any]] = {"boxes": [count, 4], "scores": [count]}
    proto = model_of(nodes, inputs, {"y": TensorProto.FLOAT}, **constants)
    feeds = []
    for boxes, part in ((64, 0.9), (64, 0.0), (64, 0.2), *(((5, 0.9), (1, 0.0), (200, 0.8)) if count == "n" else ())):
        corners = RNG.random((boxes, 4)).astype(np.float32)
        corners[:, 2:] = corners[:, :2] + 0.1 * corners[:, 2:]
        scores = np.where(RNG.random(boxes) < part, 0.4 + 0.5 * RNG.random(boxes), 0.1).astype(np.float32)
        feeds.append({"boxes": corners, "scores": scores})
    with warnings.catch_warnings():
        warnings.simplefilter("error", ModelWarning)  # that the number of boxes must be in a range
        check(proto, tmp_path, None, feeds)


@pytest.mark.parametrize("maximum", [20, (1 << 63) - 1], ids=["20", "all"])
@pytest.mark.sample(1)
def test_boxes_that_remain(tmp_path: Path, maximum: int) -> None:
    """Suppression in a detector: the boxes and the scores of what remains, with equal scores among them."""
    constants = {
        "upper": np.array([maximum], np.int64),
        "overlap": np.array([0.5], np.float32),
        "score": np.array([0.3], np.float32),
    }
    constants |= {name: np.array([value], np.int64) for name, value in (("two", 2), ("three", 3), ("axis", 1))}
    nodes = [
        node("NonMaxSuppression", "boxes scores upper overlap score", "kept"),
        node("Slice", "kept two three axis", "column"),
        node("Squeeze", "column axis", "numbers"),
        node("Gather", "boxes numbers", "best", axis=1),
    ]
    outputs = {"kept": TensorProto.INT64, "best": TensorProto.FLOAT}
    proto = model_of(nodes, {"boxes": [2, 64, 4], "scores": [2, 3, 64]}, outputs, **constants)
    feeds = []
    for minimum in (0.0, 0.31, 0.0):
        corners = RNG.random((2, 64, 4)).astype(np.float32)
        corners[..., 2:] = corners[..., :2] + 0.3 * corners[..., 2:]
        feeds.append(
            {"boxes": corners, "scores": np.round(RNG.random((2, 3, 64)) * (1 - minimum), 1).astype(np.float32)}
        )
    check(proto, tmp_path, None, feeds)


@pytest.mark.slow
def test_what_detectors_do_with_candidates(tmp_path: Path) -> None:
    """Those above a threshold, the best of them, suppression, the first of what remains; also where there are none."""
    numbers = {"k": 50, "end": 20, "upper": 200, "zero": 0, "one": 1, "two": 2, "three": 3}
    constants = {name: np.array([value], np.int64) for name, value in numbers.items()}
    constants |= {"threshold": np.array(0.5, np.float32), "overlap": np.array([0.5], np.float32)}
    nodes = [
        node("Greater", "scores threshold", "above"),
        node("NonZero", "above", "locations"),
        node("Squeeze", "locations zero", "numbers"),
        node("Gather", "scores numbers", "good"),
        node("Gather", "boxes numbers", "candidates"),
        node("Shape", "good", "count"),
        node("Min", "count k", "fewer"),
        node("TopK", "good fewer", "best order"),
        node("Gather", "candidates order", "ordered"),
        node("Unsqueeze", "ordered zero", "batch"),
        node("Unsqueeze", "best zero", "class"),
        node("Unsqueeze", "class zero", "classes"),
        node("NonMaxSuppression", "batch classes upper overlap", "kept"),
        node("Slice", "kept two three one", "column"),
        node("Squeeze", "column one", "left"),
        node("Slice", "left zero end zero", "first"),
        node("Gather", "ordered first", "y"),
        node("Concat", "best good", "joined", axis=0),
    ]
    outputs = {"y": TensorProto.FLOAT, "joined": TensorProto.FLOAT}
    proto = model_of(nodes, {"scores": ["n"], "boxes": ["n", 4]}, outputs, **constants)
    feeds = []
    for count, bias in ((300, 0.0), (10, 0.0), (1, -1.0), (300, -1.0)):
        corners = RNG.random((count, 4)).astype(np.float32)
        corners[:, 2:] = corners[:, :2] + 0.3 * corners[:, 2:]
        feeds.append({"scores": (RNG.random(count) + bias).astype(np.float32), "boxes": corners})
    check(proto, tmp_path, None, feeds)


@pytest.mark.parametrize(
    ("axis", "in_order"),
    [(None, 1), pytest.param(None, 0, marks=pytest.mark.slow), pytest.param(0, 1, marks=pytest.mark.slow), (1, 0)],
)
@pytest.mark.sample(1)
def test_elements_that_differ(axis: int | None, in_order: int, tmp_path: Path) -> None:
    given = {} if axis is None else {"axis": axis}
    outputs = {"y": TensorProto.FLOAT, **dict.fromkeys(("first", "which", "often"), TensorProto.INT64)}
    proto = model_of([node("Unique", "x", "y first which often", sorted=in_order, **given)], {"x": ["n", 3]}, outputs)
    feeds = [{"x": RNG.integers(0, 3, (rows, 3)).astype(np.float32)} for rows in (1, 40, 7)]
    check(proto, tmp_path, {"n": "1..40"}, feeds)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.sample(1)
def test_nan_is_an_element_and_not_zero(kind: int, tmp_path: Path) -> None:
    """As NumPy has it: it is the last element, and there is one of it."""
    nodes = [
        node("Cast", "x", "z", to=kind),
        node("Unique", "z", "narrow first which often", sorted=1),
        node("Cast", "narrow", "y", to=TensorProto.FLOAT),
        node("NonZero", "z", "locations"),
    ]
    outputs = {"y": TensorProto.FLOAT, **dict.fromkeys(("first", "which", "often", "locations"), TensorProto.INT64)}
    path = tmp_path / "model.onnx"
    onnx.save(model_of(nodes, {"x": [6]}, outputs), path)
    x = np.array([2, np.nan, 1, 0, -np.nan, 2], np.float32)
    wanted = [*np.unique(x, return_index=True, return_inverse=True, return_counts=True), np.array(np.nonzero(x))]
    with nnefc.compile(path).load() as library:
        for result, expected in zip(library.run({"x": x}).values(), wanted, strict=True):
            np.testing.assert_array_equal(result, expected)


def test_elements_that_a_condition_keeps(tmp_path: Path) -> None:
    """Two results of one data-dependent size, and one of another."""
    nodes = [
        node("Greater", "c zero", "condition"),
        node("Compress", "x condition", "rows", axis=0),
        node("Compress", "x condition", "flat"),
        node("Add", "rows rows", "twice"),
    ]
    proto = model_of(
        nodes,
        {"x": [6, 3], "c": [6]},
        {"twice": TensorProto.FLOAT, "flat": TensorProto.FLOAT},
        zero=np.array(0, np.float32),
    )
    feeds = [{"x": RNG.random((6, 3)).astype(np.float32), "c": some(1, 6, part)[0]} for part in (0.5, 0, 1)]
    check(proto, tmp_path, None, feeds)


@pytest.mark.parametrize("condition", [[True], [False, True, True]])
@pytest.mark.sample(1)
def test_elements_of_an_dynamic_size_that_a_known_condition_keeps(condition: list[bool], tmp_path: Path) -> None:
    """The first is known whatever the size is."""
    proto = model_of(
        [node("Compress", "x condition", "y", axis=1)],
        {"x": [2, "n"]},
        {"y": TensorProto.FLOAT},
        condition=np.array(condition),
    )
    check(proto, tmp_path, None, [{"x": RNG.random((2, n)).astype(np.float32)} for n in (3, 9)])


def test_slices_end_where_the_data_say(tmp_path: Path) -> None:
    """Also from the end, beyond it, and where nothing is left."""
    nodes = [
        node("Cast", "x", "numbers", to=TensorProto.INT64),
        node("Slice", "numbers zero one", "first"),
        node("Slice", "numbers one two", "last"),
        node("Slice", "table first last zero", "y"),
    ]
    constants = {name: np.array([value], np.int64) for name, value in (("zero", 0), ("one", 1), ("two", 2))}
    constants["table"] = RNG.random((9, 4)).astype(np.float32)
    feeds = [{"x": np.array(ends, np.float32)} for ends in ((2, 7), (-4, 100), (5, 5), (8, 2), (-100, -1))]
    check(model_of(nodes, {"x": [2]}, {"y": TensorProto.FLOAT}, **constants), tmp_path, None, feeds)


def test_branches_may_differ_in_their_sizes(tmp_path: Path) -> None:
    """The rows alone, or twice, or only the first two columns of them."""
    value = helper.make_tensor_value_info

    def branch(name: str, *nodes: onnx.NodeProto) -> onnx.GraphProto:
        return helper.make_graph(nodes, name, [], [value(f"{name}_y", TensorProto.FLOAT, None)])

    nodes = [
        node("ReduceSum", "c", "sum", keepdims=0),
        node("Cast", "sum", "flag", to=TensorProto.BOOL),
        node(
            "If",
            "flag",
            "chosen",
            then_branch=branch("twice", node("Concat", "x x", "twice_y", axis=0)),
            else_branch=branch("less", node("Slice", "x zero two one", "less_y")),
        ),
        node("Softmax", "chosen", "y"),
    ]
    constants = {name: np.array([value], np.int64) for name, value in (("zero", 0), ("one", 1), ("two", 2))}
    proto = model_of(nodes, {"x": ["n", 5], "c": [3]}, {"y": TensorProto.FLOAT}, **constants)
    feeds = [
        {"x": RNG.random((rows, 5)).astype(np.float32), "c": np.full(3, flag, np.float32)}
        for rows, flag in ((4, 0), (4, 1), (1, 1), (9, 0))
    ]
    check(proto, tmp_path, {"n": "1..9"}, feeds)


def spoken() -> onnx.ModelProto:
    """Repeats each row as often as its predicted length says, as speech synthesis does; lengths are sums of `d`."""
    nodes = [
        node("ReduceSum", "d one", "lengths", keepdims=0),
        node("ReduceSum", "lengths zero", "sum", keepdims=1),
        node("Cast", "sum", "total", to=TensorProto.INT64),
        node("Squeeze", "total", "count"),
        node("Range", "start count step", "locations"),
        node("Cast", "locations", "times", to=TensorProto.FLOAT),
        node("Unsqueeze", "times zero", "row"),
        node("CumSum", "lengths start", "ends"),
        node("Unsqueeze", "ends one", "column"),
        node("Less", "row column", "before"),
        node("Cast", "before", "mask", to=TensorProto.FLOAT),
        node("Transpose", "mask", "path"),
        node("MatMul", "path d", "frames"),
        node("Softmax", "frames", "y"),
        node("Concat", "total five", "shape", axis=0),
        node("ConstantOfShape", "shape", "ones", value=numpy_helper.from_array(np.ones(1, np.float32))),
        node("Add", "y ones", "z"),
        node("Concat", "zero zero two zero", "pads", axis=0),
        node("Pad", "z pads", "padded"),
        node("Shape", "padded", "size"),
    ]
    constants = {
        name: np.array([value], np.int64) for name, value in (("zero", 0), ("one", 1), ("two", 2), ("five", 5))
    }
    constants |= {"start": np.array(0, np.int64), "step": np.array(1, np.int64)}
    outputs = {"y": TensorProto.FLOAT, "padded": TensorProto.FLOAT, "size": TensorProto.INT64}
    return model_of(nodes, {"d": ["n", 5]}, outputs, **constants)


def lengths(*rows: int) -> dict[str, np.ndarray]:
    """Input of `spoken`, of rows with these sums."""
    first = np.array(rows, np.float32)
    parts = RNG.integers(0, 3, (len(rows), 4)).astype(np.float32)
    return {"d": np.concatenate([parts, (first - parts.sum(1))[:, None]], 1)}


def test_results_may_be_as_long_as_the_data_say(tmp_path: Path) -> None:
    """Without a limit; what follows is laid out in the run."""
    feeds = [lengths(3, 4), lengths(1), lengths(500, 20, 3, 7), lengths(0), lengths(2, 2), lengths(3, 4)]
    artifact = check(spoken(), tmp_path, None, feeds)
    assert str(artifact.outputs[0]) == "y: float32[range, 5]"
    with artifact.load(threads=1) as library:
        library.reserve({"n": 4, "range": 600})
        with pytest.raises(nnefc.RunError, match="the data ask for a size 'range' that the network does not take"):
            library.run(lengths(-7))
        with pytest.raises(nnefc.RunError, match="only a run tells how large the outputs of g are"):
            library.run(lengths(3), out={"y": np.empty((3, 5), np.float32)})
        assert library.run(lengths(2, 3))["y"].shape == (5, 5)


def test_a_user_may_limit_data_dependent_sizes(tmp_path: Path) -> None:
    """Memory is laid out for the limit before the run."""
    artifact = check(spoken(), tmp_path, {"n": "1..4", "range": "2..40"}, [lengths(3, 4), lengths(40), lengths(1, 1)])
    assert [dimension.name for dimension in artifact.description.dimensions] == ["n"]
    with artifact.load(threads=1) as library:
        for wrong in (41, 1):
            with pytest.raises(nnefc.RunError, match="'range' that the network does not take: it takes 2 to 40"):
                library.run(lengths(wrong))
    with pytest.raises(CompileError, match="the model has no input and no dimension 'length'"):
        nnefc.compile(tmp_path / "model.onnx", shape={"length": "1..9"})


def test_ranges_of_reals_may_be_as_long_as_the_data_say(tmp_path: Path) -> None:
    nodes = [
        node("ReduceMin", "x", "first", keepdims=0),
        node("ReduceMax", "x", "last", keepdims=0),
        node("Range", "first last step", "y"),
    ]
    proto = model_of(nodes, {"x": [2]}, {"y": TensorProto.FLOAT}, step=np.array(0.2, np.float32))
    ends = [(0, 1), (-3.1, 20), (2, 2), (0, 0.6), (0.1, 0.7), (-2.8, 1.2)]  # in float32 some have an element less
    check(proto, tmp_path, None, [{"x": np.array(each, np.float32)} for each in ends])


def test_ranges_may_begin_below_zero_where_the_data_do_not_tell_their_lengths(tmp_path: Path) -> None:
    nodes = [
        node("ReduceSum", "x", "sum", keepdims=0),
        node("Cast", "sum", "a", to=TensorProto.INT64),
        node("Shape", "x", "shape"),
        node("Squeeze", "shape", "n"),
        node("Add", "a three", "above"),
        node("Range", "a above one", "up"),
        node("Sub", "a n", "below"),
        node("Range", "a below down", "backwards"),
        node("Mul", "a two", "twice"),
        node("Add", "twice n", "behind"),
        node("Range", "twice behind two", "even"),
    ]
    constants = {name: np.array(k, np.int64) for name, k in (("one", 1), ("two", 2), ("three", 3), ("down", -1))}
    proto = model_of(nodes, {"x": ["n"]}, dict.fromkeys(("up", "backwards", "even"), TensorProto.INT64), **constants)
    feeds = [
        {"x": np.full(size, element, np.float32)} for size, element in ((1, -1), (4, 1), (5, -3), (2, 0), (1, 3e6))
    ]
    check(proto, tmp_path, None, feeds)


def test_ranges_of_integers_may_begin_and_step_as_the_data_say(tmp_path: Path) -> None:
    nodes = [
        node("Cast", "x", "v", to=TensorProto.INT64),
        *(node("Gather", f"v {name}_at", name) for name in ("start", "limit", "step")),
        node("Range", "start limit step", "y"),
        node("Range", "five limit down", "z"),
    ]
    constants = {f"{name}_at": np.array(at) for at, name in enumerate(("start", "limit", "step"))}
    constants |= {"five": np.array(5), "down": np.array(-2)}
    proto = model_of(nodes, {"x": [3]}, {"y": TensorProto.INT64, "z": TensorProto.INT64}, **constants)
    numbers = [(10, 6, -3), (10, 4, -3), (0, 9, 1), (-7, 8, 5), (3, -9, -5), (5, 5, 1), (5, 8, -1), (9, 3, 2)]
    artifact = check(proto, tmp_path, None, [{"x": np.array(each, np.float32)} for each in numbers])
    with artifact.load(threads=1) as library, pytest.raises(nnefc.RunError, match="the data ask for a size 'range'"):
        library.run({"x": np.array((1, 5, 0), np.float32)})


def test_one_size_may_be_data_dependent_twice(tmp_path: Path) -> None:
    """Positions of one mask, and of another that has as many: what is added must be as long; else the run fails."""
    nodes = [
        node("Greater", "x zero", "mask"),
        node("Not", "mask", "none"),
        node("Not", "none", "same"),
        node("Greater", "w zero", "other"),
        *(node("NonZero", each, f"{each}_positions") for each in ("mask", "same", "other")),
        node("Add", "mask_positions same_positions", "a"),
        node("Add", "a other_positions", "y"),
    ]
    proto = model_of(nodes, {"x": ["n"], "w": ["n"]}, {"y": TensorProto.INT64}, zero=np.array(0, np.float32))
    feeds = []
    for count in (7, 1, 30):
        x = RNG.standard_normal(count).astype(np.float32)
        feeds.append({"x": x, "w": x[::-1].copy()})
    artifact = check(proto, tmp_path, {"n": "1..30"}, feeds)
    with artifact.load(threads=1) as library, pytest.raises(nnefc.RunError, match="'nonzero2' that is not nonzero"):
        library.run({"x": np.ones(3, np.float32), "w": -np.ones(3, np.float32)})


def test_equal_sizes_may_be_data_dependent(tmp_path: Path) -> None:
    """The kernels become one, as equal ones do in networks with bytes; the sizes do not."""
    nodes = [
        node("NonZero", "x", "a"),
        node("NonZero", "x", "b"),
        node("Transpose", "b", "back"),
        node("Cast", "x", "bytes", to=TensorProto.INT8),
    ]
    outputs = {"a": TensorProto.INT64, "back": TensorProto.INT64, "bytes": TensorProto.INT8}
    check(model_of(nodes, {"x": (4, 5)}, outputs), tmp_path, None, [{"x": some(4, 5, part)} for part in (0.3, 1, 0)])


def test_a_data_dependent_size_may_have_to_be_a_number(tmp_path: Path) -> None:
    """Every third element, as rows of three columns: a multiple; and as one row: a number."""
    nodes = [
        node("NonZero", "x", "locations"),
        node("Reshape", "locations shape", "rows"),
        node("NonZero", "w", "one"),
        node("MatMul", "real_rows table", "y"),
        node("Cast", "rows", "real_rows", to=TensorProto.FLOAT),
        node("Cast", "one", "column", to=TensorProto.FLOAT),
        node("MatMul", "column table", "z"),
    ]
    nodes = [nodes[0], nodes[1], nodes[2], nodes[4], nodes[3], nodes[5], nodes[6]]
    constants = {"shape": np.array([-1, 3], np.int64), "table": RNG.random((3, 2)).astype(np.float32)}
    outputs = {"y": TensorProto.FLOAT, "z": TensorProto.FLOAT}
    proto = model_of(nodes, {"x": [12], "w": [5]}, outputs, **constants)
    three = np.array([0, 1, 1, 0, 1], np.float32)
    feeds = [{"x": (np.arange(12) < count).astype(np.float32), "w": three} for count in (3, 12, 0, 6)]
    artifact = check(proto, tmp_path, None, feeds)
    with artifact.load(threads=1) as library:
        with pytest.raises(nnefc.RunError, match=r"'nonzero' .* takes 0 to 12 in multiples of 3"):
            library.run({**feeds[0], "x": np.eye(1, 12, dtype=np.float32)[0]})
        with pytest.raises(nnefc.RunError, match="'nonzero1' that is not 3"):
            library.run({**feeds[0], "w": np.ones(5, np.float32)})


def test_a_size_that_a_node_passes_on_is_what_it_was(tmp_path: Path) -> None:
    """A conversion to the type that there is already."""
    nodes = [
        node("ReduceSum", "x", "sum", keepdims=0),
        node("Cast", "sum", "whole", to=TensorProto.INT64),
        node("Cast", "whole", "same", to=TensorProto.INT64),
        node("Range", "zero same one", "y"),
    ]
    constants = {"zero": np.array(0, np.int64), "one": np.array(1, np.int64)}
    feeds = [{"x": np.array(x, np.float32)} for x in ((2.5, 3.1), (0,), (4,))]
    check(model_of(nodes, {"x": ["n"]}, {"y": TensorProto.INT64}, **constants), tmp_path, None, feeds)


def trips(*, condition: bool) -> onnx.ModelProto:
    """A loop that adds `x` to a state, as often as the sum of `c` says, or until the state is above it."""
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [
            node("Add", "before x", "after"),
            node("Mul", "after after", "row"),
            node("ReduceMax", "after", "upper", keepdims=0),
            node("LessOrEqual", "upper end", "goes_on") if condition else node("Identity", "given", "goes_on"),
        ],
        "body",
        [value("round", 7, []), value("given", 9, []), value("before", 1, None)],
        [value("goes_on", 9, []), value("after", 1, None), value("row", 1, None)],
    )
    nodes = [
        node("ReduceSum", "c", "end", keepdims=0),
        node("Cast", "end", "count", to=TensorProto.INT64),
        node("LessOrEqual", "zero end", "first"),
        helper.make_node("Loop", ["limit" if condition else "count", "first", "x"], ["last", "rows"], body=body),
        node("Softmax", "rows", "y"),
    ]
    outputs = {"last": TensorProto.FLOAT, "y": TensorProto.FLOAT}
    constants = {"zero": np.array(0, np.float32), "limit": np.array(1 << 40, np.int64)}
    return model_of(nodes, {"x": ["n"], "c": [2]}, outputs, **constants)


@pytest.mark.parametrize("condition", [pytest.param(False, marks=pytest.mark.slow), True])
def test_loops_give_as_many_rows_as_iterations(condition: bool, tmp_path: Path) -> None:
    feeds = []
    for size, end in ((3, 5), (1, 1), (7, 40), (7, 2)):
        x = RNG.random(size).astype(np.float32) + 0.5
        feeds.append({"x": x, "c": np.array([end - 1, 1], np.float32)})
    check(trips(condition=condition), tmp_path, {"n": "1..9"}, feeds)


def test_a_negative_trip_count_gives_no_rows(tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", "given", "goes_on"), node("Add", "before x", "after"), node("Identity", "after", "row")],
        "body",
        [value("round", 7, []), value("given", 9, []), value("before", 1, [3])],
        [value("goes_on", 9, []), value("after", 1, [3]), value("row", 1, [3])],
    )
    nodes = [node("Cast", "end", "count", to=7), helper.make_node("Loop", ["count", "", "x"], ["last", "y"], body=body)]
    proto = model_of(nodes, {"x": [3], "end": []}, {"last": 1, "y": 1})
    x = RNG.random(3).astype(np.float32)
    check(proto, tmp_path, None, [{"x": x, "end": np.array(end, np.float32)} for end in (2, -3, 0)])


def branching(then: Sequence[onnx.NodeProto], other: Sequence[onnx.NodeProto]) -> onnx.ModelProto:
    """`y` of one of two branches: `then` if any of `c` is positive."""
    result = helper.make_tensor_value_info("r", TensorProto.INT64, None)
    nodes = [
        node("ReduceMax", "c", "upper", keepdims=0),
        node("Greater", "upper zero", "flag"),
        helper.make_node(
            "If",
            ["flag"],
            ["y"],
            then_branch=helper.make_graph(list(then), "then", [], [result]),
            else_branch=helper.make_graph(list(other), "other", [], [result]),
        ),
    ]
    constants = {"zero": np.array(0, np.float32), "start": np.array(0, np.int64), "step": np.array(1, np.int64)}
    constants |= {"first": np.array([0], np.int64), "last": np.array([1], np.int64)}
    return model_of(nodes, {"x": ["n"], "c": [2]}, {"y": TensorProto.INT64}, **constants)


def test_branches_may_count(tmp_path: Path) -> None:
    """Positions of what is not zero; else, as many numbers as `c` says. What would fail in the other branch does
    not."""
    then = [node("NonZero", "x", "locations"), node("Squeeze", "locations first", "r")]
    other = [
        node("ReduceMin", "c", "lower", keepdims=0),
        node("Neg", "lower", "count"),
        node("Cast", "count", "number", to=TensorProto.INT64),
        node("Range", "start number step", "r"),
    ]
    feeds = [
        {"x": some(1, size, 0.5)[0], "c": np.array(c, np.float32)}
        for size, c in ((5, (1, 7)), (9, (-4, -1)), (1, (1, 100)), (3, (0, -30)), (5, (1, 7)))
    ]
    check(branching(then, other), tmp_path, {"n": "1..9"}, feeds)


def test_a_data_dependent_size_is_not_taken_for_empty(tmp_path: Path) -> None:
    """Two sizes are open and one is data-dependent: that it is 0, so that 25 divides their product, is not what is
    meant."""
    nodes = [node("Compress", "x mask", "some", axis=1), node("Reshape", "some shape", "y")]
    mask, shape = np.array([True, False]), np.array([25, -1])
    proto = model_of(nodes, {"x": ("a", "b", "c")}, {"y": TensorProto.FLOAT}, mask=mask, shape=shape)
    onnx.save(proto, tmp_path / "model.onnx")
    with pytest.raises(CompileError, match="cannot take the shape"):
        nnefc.compile(tmp_path / "model.onnx")


JOINED = """<ir_version: 8, opset_import: ["" : 17]>
g (float[n, 2] x, float[k, 2] m, float s)
    => (float[p, 2] added, float[p, 2] chosen, float[2, 2] product, float[e, 2] more, float[1, q] flat,
        float[t, 2] taken, float[p, 2] written)
<int64[1] zero = {0}, int64[1] all = {99999}, int64[1] first = {0}> {
    position = Cast <to = 7> (s)
    end = Unsqueeze (position, first)
    above = Slice (x, zero, end)
    below = Slice (x, end, all)
    joined = Concat <axis = 0> (above, below)
    added = Add (joined, m)
    larger = Greater (joined, m)
    chosen = Where (larger, joined, m)
    columns = Transpose (m)
    product = MatMul (columns, joined)
    shape = Shape (m)
    more = Expand (joined, shape)
    same = Reshape (joined, shape)
    flat = Flatten <axis = 0> (same)
    index = Cast <to = 7> (m)
    taken = GatherElements <axis = 1> (joined, index)
    written = ScatterElements <axis = 1> (joined, index, m)
}"""


def test_sizes_that_data_give_are_compared_with_others_in_each_run(tmp_path: Path) -> None:
    proto = onnx.parser.parse_model(JOINED)
    rows = [np.array(RNG.random((size, 2)), np.float32) for size in (5, 5, 1, 1, 4)]
    feeds = [
        {"x": rows[i], "m": rows[i + 1], "s": np.array(s, np.float32)} for i, s in ((0, 2), (0, 9), (2, 1), (0, -2))
    ]
    with (
        check(proto, tmp_path, None, feeds).load() as library,
        pytest.raises(nnefc.RunError, match=r"the data ask for the sizes .*, which must be equal"),
    ):
        library.run({"x": rows[0], "m": rows[4], "s": np.array(2, np.float32)})


def test_sizes_are_computed_from_coordinates_that_are_negative(tmp_path: Path) -> None:
    """As where masks are pasted into an image from which they extend."""
    proto = onnx.parser.parse_model("""<ir_version: 8, opset_import: ["" : 17]>
    g (float[h] image, float[2] box) => (float[p] pasted, float[q] joined)
    <int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, float[9] mask = {1, 2, 3, 4, 5, 6, 7, 8, 9}> {
        corners = Cast <to = 7> (box)
        low = Slice (corners, zero, one)
        high = Slice (corners, one, two)
        size = Shape (image)
        first = Max (low, zero)
        last = Min (high, size)
        skipped = Sub (first, low)
        end = Sub (last, low)
        inside = Slice (mask, skipped, end)
        after = Sub (size, last)
        left = ConstantOfShape (first)
        right = ConstantOfShape (after)
        pasted = Concat <axis = 0> (left, inside, right)
        same = Add (image, pasted)
        joined = Concat <axis = 0> (same, image)
    }""")
    image = np.array(RNG.random(20), np.float32)
    boxes = np.array([(3, 9), (-4, 5), (15, 24), (0, 9)], np.float32)
    check(proto, tmp_path, None, [{"image": image, "box": box} for box in boxes])
