"""Operators with data-dependent sizes, sizes that are 0 next to open ones, and divisors that are 0."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_onnx_data_dependent_sizes import RNG, check, model_of, node

import nnefc
from nnefc.loader import RunError
from nnefc.support.diagnostics import CompileError

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
NUMBERS = {
    "none": np.array([0], np.int64),
    "one": np.array([1], np.int64),
    "three": np.array([3], np.int64),
    "axis": np.array(0, np.int64),
    "pair": np.array([0, 1], np.float32),
}
DATA_DEPENDENT = [
    node("ReduceSum", "x", "sum", keepdims=0),
    node("Cast", "sum", "number", to=INT),
    node("Unsqueeze", "number none", "k"),
]
"""`k` is how many ones there are in `x`."""


def ones(shape: tuple[int, ...], count: int) -> np.ndarray:
    made = np.zeros(shape, np.float32)
    made.reshape(-1)[RNG.permutation(made.size)[:count]] = 1
    return made


def test_operators_that_take_sizes_from_data(tmp_path: Path) -> None:
    nodes = [
        *DATA_DEPENDENT,
        node("TopK", "z k", "best order", axis=0),
        node("ArgMax", "x", "hot", axis=0, keepdims=0),
        node("OneHot", "hot k pair", "coded"),
        node("Concat", "one three k k", "size", axis=0),
        node("Resize", "image   size", "resized", mode="linear"),
        node("Shape", "x", "rows", start=0, end=1),
        node("Sub", "rows k", "remainder"),
        node("Concat", "k remainder", "parts", axis=0),
        node("Split", "x parts", "front back", axis=0),
        node("Concat", "k one", "wanted", axis=0),
        node("Expand", "line wanted", "lines"),
    ]
    nodes[7].input[:] = ["image", "", "", "size"]
    inputs = {"x": ["n", 9], "z": ["m", 2], "image": [1, 3, 8, "w"], "line": [1, 4]}
    names = ("best", "coded", "resized", "front", "back", "lines")
    feeds = []
    for rows, count, width in ((6, 5, 4), (9, 1, 9), (9, 9, 1)):
        given = {"x": ones((rows, 9), count), "z": RNG.random((11, 2)), "image": RNG.random((1, 3, 8, width))}
        feeds.append({name: value.astype(np.float32) for name, value in (given | {"line": RNG.random((1, 4))}).items()})
    artifact = check(model_of(nodes, inputs, dict.fromkeys(names, FLOAT), **NUMBERS), tmp_path, None, feeds)
    with artifact.load() as library, pytest.raises(RunError, match="a size 'topk' that is negative or more than m"):
        library.run({**feeds[0], "z": feeds[0]["z"][:4]})


def test_parts_that_are_all_data_dependent(tmp_path: Path) -> None:
    """The last follows from the others: they must come to the whole."""
    nodes = [
        node("Cast", "sizes", "parts", to=INT),
        node("Split", "x parts", "a b c"),
        node("Concat", "c a b", "y", axis=0),
    ]
    proto = model_of(nodes, {"x": [6], "sizes": [3]}, {"a": FLOAT, "b": FLOAT, "y": FLOAT})
    x = RNG.random(6).astype(np.float32)
    feeds = [{"x": x, "sizes": np.array(sizes, np.float32)} for sizes in ((1, 2, 3), (6, 0, 0), (0, 1, 5))]
    artifact = check(proto, tmp_path, None, feeds)
    with artifact.load() as library, pytest.raises(RunError, match="a size 'split2' that is not"):
        library.run({"x": x, "sizes": np.array([1, 2, 4], np.float32)})


def test_a_size_to_expand_to_is_checked(tmp_path: Path) -> None:
    """It is the tensor's own, or 1."""
    nodes = [*DATA_DEPENDENT, node("Concat", "k one", "wanted", axis=0), node("Expand", "lines wanted", "y")]
    proto = model_of(nodes, {"x": ["n", 9], "lines": [5, 4]}, {"y": FLOAT}, **NUMBERS)
    lines = RNG.random((5, 4)).astype(np.float32)
    artifact = check(proto, tmp_path, None, [{"x": ones((3, 9), count), "lines": lines} for count in (5, 1)])
    with artifact.load() as library, pytest.raises(RunError, match="a size 'expand' that is neither 1 nor 5"):
        library.run({"x": ones((3, 9), 4), "lines": lines})


def test_a_dynamic_dimension_expands_to_a_data_dependent_size(tmp_path: Path) -> None:
    """Either is 1, or they are equal."""
    nodes = [*DATA_DEPENDENT, node("Concat", "k one", "wanted", axis=0), node("Expand", "lines wanted", "y")]
    proto = model_of(nodes, {"x": ["n", 9], "lines": ["m", 4]}, {"y": FLOAT}, **NUMBERS)
    rows = [RNG.random((size, 4)).astype(np.float32) for size in (1, 1, 5, 5)]
    feeds = [{"x": ones((3, 9), count), "lines": own} for count, own in zip((5, 1, 5, 1), rows, strict=True)]
    artifact = check(proto, tmp_path, None, feeds)
    with artifact.load() as library, pytest.raises(RunError, match="a size 'expand' that is neither 1 nor m"):
        library.run({"x": ones((3, 9), 4), "lines": rows[-1]})


def test_a_run_checks_data_dependent_sizes_that_are_joined(tmp_path: Path) -> None:
    """A tensor is cut in two at a position, or two positions apart, and joined again."""
    nodes = [
        node("Cast", "cuts", "positions", to=INT),
        node("Split", "positions", "first second", axis=0),
        node("Slice", "x none first", "front"),
        node("Slice", "x second end", "back"),
        node("Concat", "front back", "whole", axis=0),
        node("Concat", "whole x", "y", axis=1),
        node("Concat", "empty whole", "z", axis=0),
    ]
    constants = {"none": NUMBERS["none"], "end": np.array([99], np.int64), "empty": np.zeros((0, 2), np.float32)}
    proto = model_of(nodes, {"x": ["n", 2], "cuts": [2]}, {"y": FLOAT, "z": FLOAT}, **constants)
    rows = [RNG.random((size, 2)).astype(np.float32) for size in (5, 5, 7, 1, 5)]
    feeds = [{"x": x, "cuts": np.float32([k, k])} for x, k in zip(rows, (2, 0, 9, 1, -2), strict=True)]
    with (
        check(proto, tmp_path, None, feeds).load() as library,
        pytest.raises(RunError, match=r"Concat: .* must be equal"),
    ):
        library.run({"x": rows[0], "cuts": np.float32([2, 4])})


def test_a_branch_that_is_not_chosen_checks_no_size_to_expand_to(tmp_path: Path) -> None:
    expanding = helper.make_graph([node("Expand", "lines size", "t")], "then", [], [onnx.ValueInfoProto(name="t")])
    chosen = [node("NonZero", "lines", "found"), node("Cast", "found", "e", to=FLOAT)]
    other = helper.make_graph(chosen, "else", [], [onnx.ValueInfoProto(name="e")])
    nodes = [
        node("Cast", "sizes", "size", to=INT),
        node("Greater", "flag half", "condition"),
        node("If", "condition", "y", then_branch=expanding, else_branch=other),
    ]
    inputs = {"flag": [], "lines": [5, 4], "sizes": [2]}
    proto = model_of(nodes, inputs, {"y": FLOAT}, half=np.array(0.5, np.float32))
    given = {"lines": RNG.random((5, 4)).astype(np.float32)}
    feeds = [
        given | {"flag": np.array(f, np.float32), "sizes": np.float32([n, 4])}
        for f, n in ((1, 5), (1, 1), (0, 5), (0, 7))
    ]
    check(proto, tmp_path, None, feeds)


def test_a_branch_that_is_not_chosen_checks_no_sizes_or_indices(tmp_path: Path) -> None:
    """Both branches are computed, since one has a data-dependent size: a range must have 5 elements, and indices be in
    range, where the branch is chosen.
    """
    then_nodes = [
        node("Range", "zero number step", "range"),
        node("Cast", "range", "reals", to=FLOAT),
        node("Add", "reals x", "sum"),
        node("Gather", "x number_less", "element"),
        node("Reshape", "number_less pair", "tuples"),
        node("ScatterND", "x tuples update", "scattered"),
        node("NonZero", "scattered", "found"),
        node("Reshape", "found flat", "positions"),
        node("Cast", "positions", "more", to=FLOAT),
        node("Mul", "more element", "scaled"),
        node("Concat", "sum scaled", "t", axis=0),
    ]
    then = helper.make_graph(then_nodes, "then", [], [onnx.ValueInfoProto(name="t")])
    other = helper.make_graph([node("Neg", "x", "e")], "else", [], [onnx.ValueInfoProto(name="e")])
    nodes = [
        node("Cast", "n", "number", to=INT),
        node("Sub", "number step", "number_less"),
        node("Equal", "number five", "condition"),
        node("If", "condition", "y", then_branch=then, else_branch=other),
    ]
    numbers = {"zero": 0, "step": 1, "five": 5, "pair": [1, 1], "flat": [-1]}
    constants = {name: np.array(value, np.int64) for name, value in numbers.items()}
    proto = model_of(nodes, {"n": [], "x": [5]}, {"y": FLOAT}, update=np.array([7], np.float32), **constants)
    x = np.arange(5, dtype=np.float32)
    check(proto, tmp_path, None, [{"n": np.array(n, np.float32), "x": x} for n in (5, 7, -9)])


def test_the_advice_to_give_sizes_is_tried(tmp_path: Path) -> None:
    """Ranks that differ by data differ with known sizes, too; indices of 128 elements fit no tensor."""
    then, other = (
        helper.make_graph([made], name, [], [onnx.ValueInfoProto(name=name)])
        for made, name in ((node("Exp", "x", "t"), "t"), (node("ReduceSum", "x", "e", keepdims=0), "e"))
    )
    choice = node("If", "condition", "y", then_branch=then, else_branch=other)
    ranks = model_of(
        [node("Cast", "flag", "condition", to=TensorProto.BOOL), choice], {"flag": [], "x": ["b", 5]}, {"y": FLOAT}
    )
    nodes = [node("Cast", "where", "indices", to=INT), node("GatherND", "x indices", "y")]
    for proto, hint in (
        (ranks, None),
        (
            model_of(nodes, {"x": [4, 5, 6], "where": [3, "k"]}, {"y": FLOAT}),
            "fix it: --shape k=3, or another number from 1 to 3",
        ),
    ):
        with pytest.raises(CompileError) as error:
            nnefc.compile(proto)
        assert error.value.hint == hint


@pytest.mark.parametrize("op_type", ["Upsample", "Resize"])
def test_scales_that_are_quotients_of_sizes(op_type: str, tmp_path: Path) -> None:
    """As older exporters write an interpolation to another tensor's size."""
    nodes = [
        node("Shape", "other", "wanted", start=2),
        node("Cast", "wanted", "above", to=FLOAT),
        node("Shape", "x", "size", start=2),
        node("Cast", "size", "below", to=FLOAT),
        node("Div", "above below", "last"),
        node("Concat", "unit last", "scales", axis=0),
        node(op_type, "x scales", "y", mode="nearest"),
    ]
    if op_type == "Resize":
        nodes[-1].input[:] = ["x", "", "scales"]
    proto = model_of(
        nodes, {"x": [1, 3, "h", "w"], "other": [1, 2, "a", "b"]}, {"y": FLOAT}, unit=np.ones(2, np.float32)
    )
    if op_type == "Upsample":
        proto.opset_import[0].version = 9
        nodes = proto.graph.node
        for each, (start, end) in ((nodes[0], (2, 4)), (nodes[2], (2, 4))):
            whole = f"{each.output[0]}_whole"
            slice_ = node("Slice", whole, each.output[0], starts=[start], ends=[end])
            each.output[0] = whole
            del each.attribute[:]
            nodes.append(slice_)
        ordered = sorted(nodes, key=lambda n: ("Shape", "Slice", "Cast", "Div", "Concat", "Upsample").index(n.op_type))
        del proto.graph.node[:]
        proto.graph.node.extend(ordered)
    feeds: list[dict[str, Any]] = []
    for h, w, a, b in ((4, 5, 8, 15), (6, 4, 12, 4), (3, 7, 9, 28)):
        feeds.append({"x": RNG.random((1, 3, h, w)), "other": RNG.random((1, 2, a, b))})
    check(proto, tmp_path, None, [{k: v.astype(np.float32) for k, v in feed.items()} for feed in feeds])


def test_suppression_whose_limits_are_inputs(tmp_path: Path) -> None:
    """With all sizes of boxes and scores open."""
    inputs = {"boxes": [None] * 3, "scores": [None] * 3, "count": [1], "overlap": [1], "lower": [1]}
    nodes = [node("Cast", "count", "upper", to=INT), node("NonMaxSuppression", "boxes scores upper overlap lower", "y")]
    feeds = []
    for boxes, count, overlap, minimum in ((20, 3, 0.3, 0.2), (40, 90, 0.6, 0.5), (5, 0, 0.3, 0.0), (9, 4, 0.0, 2.0)):
        corners = RNG.random((2, boxes, 4)).astype(np.float32)
        corners[..., 2:] = corners[..., :2] + 0.3 * corners[..., 2:]
        limits = {"count": [count], "overlap": [overlap], "lower": [minimum]}
        scores = RNG.random((2, 3, boxes)).astype(np.float32)
        feeds.append({"boxes": corners, "scores": scores, **{k: np.float32(v) for k, v in limits.items()}})
    check(model_of(nodes, inputs, {"y": INT}), tmp_path, None, feeds)


def test_results_without_elements_next_to_dynamic_sizes(tmp_path: Path) -> None:
    nodes = [
        node("Slice", "x none none one", "e"),
        node("Concat", "x e", "joined", axis=1),
        node("Relu", "e", "empty"),
        node("ReduceSum", "e one", "sums", keepdims=0),
        node("Transpose", "e", "transposed"),
        node("MatMul", "e transposed", "product"),
    ]
    names = ("joined", "empty", "sums", "product")
    check(
        model_of(nodes, {"x": ["n", 9]}, dict.fromkeys(names, FLOAT), **NUMBERS),
        tmp_path,
        None,
        [{"x": ones((6, 9), 5)}],
    )


def test_divisors_that_are_constant_zeros(tmp_path: Path) -> None:
    """Reals become infinite or no number, as in a tensor of zeros; integers are refused."""
    zeros = {"zero": np.float32(0), "minus": np.float32(-0.0)}
    nodes = [node("Div", "x zero", "y"), node("Div", "x minus", "z")]
    x = np.array([[1, -2, 0, np.inf, np.nan]], np.float32)
    check(model_of(nodes, {"x": ["n", 5]}, dict.fromkeys("yz", FLOAT), **zeros), tmp_path, None, [{"x": x}])
    nodes = [node("Cast", "x", "i", to=INT), node("Div", "i axis", "y")]
    (tmp_path / "model.onnx").write_bytes(model_of(nodes, {"x": [5]}, {"y": INT}, **NUMBERS).SerializeToString())
    with pytest.raises(CompileError, match="divided by a constant that is 0"):
        nnefc.compile(tmp_path / "model.onnx")


def test_a_dimension_that_may_be_one_is_left_out_in_runs_where_it_is(tmp_path: Path) -> None:
    proto = model_of([node("Squeeze", "x", "y")], {"x": ["n", 1, 3]}, {"y": FLOAT})
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        artifact = nnefc.compile(path)
        nnefc.compile(path, shape={"n": "2..9"})
    with artifact.load() as model:
        assert [model(np.ones((rows, 1, 3), np.float32)).shape for rows in (1, 4)] == [(3,), (4, 3)]
