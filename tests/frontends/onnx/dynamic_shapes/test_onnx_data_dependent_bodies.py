"""Data-dependent sizes inside bodies of loops and branches, compared with onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from test_onnx_data_dependent_sizes import RNG, check, model_of, node, some

import nnefc
from nnefc.support.diagnostics import CompileError

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
CONSTANTS = {"zero": np.array([0], np.int64), "one": np.array([1], np.int64), "start": np.array(0, np.float32)}


def value(name: str, kind: int = FLOAT) -> onnx.ValueInfoProto:
    """A tensor without axes."""
    return helper.make_tensor_value_info(name, kind, [])


def loop_over_rows(nodes: list[onnx.NodeProto], outputs: dict[str, int], scanned: bool = True) -> onnx.ModelProto:
    """A loop over the rows of `x`: `nodes` compute `v` of the row; `y` is the sum of all, `each` are they."""
    results = [value("on", BOOL), value("sum"), *([value("out")] if scanned else [])]
    body = helper.make_graph(
        [
            node("Gather", "x i", "row"),
            *nodes,
            node("Add", "acc v", "sum"),
            node("Identity", "v", "out"),
            node("Identity", "c", "on"),
        ],
        "body",
        [value("i", INT), value("c", BOOL), value("acc")],
        results,
    )
    around = [
        node("Shape", "x", "size", start=0, end=1),
        node("Squeeze", "size", "trips"),
        helper.make_node("Loop", ["trips", "", "start"], ["y", "each"][: 1 + scanned], body=body),
    ]
    numbers = {"none": np.array(0, np.int64), "step": np.array(1, np.int64), "two": np.array(2, np.int64)}
    return model_of(around, {"x": ["n", 5]}, outputs, **CONSTANTS, **numbers)


RANGED = [
    node("ReduceSum", "row", "total", keepdims=0),
    node("Cast", "total", "count", to=INT),
    node("Range", "none count step", "numbers"),
    node("Cast", "numbers", "real", to=FLOAT),
    node("Mul", "real real", "squares"),
    node("ReduceSum", "squares", "v", keepdims=0),
]
FOUND = [
    node("NonZero", "row", "locations"),
    node("Squeeze", "locations zero", "flat"),
    node("Gather", "row flat", "elements"),
    node("Unsqueeze", "elements zero", "line"),
    node("Transpose", "line", "column"),
    node("MatMul", "line column", "product"),
    node("ReduceSum", "product", "v", keepdims=0),
]


def test_what_is_found_in_each_iteration(tmp_path: Path) -> None:
    feeds = [{"x": some(rows, 5, part)} for rows, part in ((3, 0.5), (1, 0), (50, 1), (7, 0.3))]
    check(loop_over_rows(FOUND, {"y": FLOAT, "each": FLOAT}), tmp_path, None, feeds)


def test_memory_of_one_iteration_that_depend_on_data(tmp_path: Path) -> None:
    """Without a limit, and in one of two branches only; the other has a size with a limit."""
    then = helper.make_graph(RANGED, "ranged", [], [value("v")])
    other = helper.make_graph(FOUND, "found", [], [value("v")])
    renamed = [
        node("Mod", "i two", "parity"),
        node("Equal", "parity none", "even"),
        helper.make_node("If", ["even"], ["v"], then_branch=then, else_branch=other),
    ]
    proto = loop_over_rows(renamed, {"y": FLOAT, "each": FLOAT})
    feeds = [
        {"x": RNG.integers(0, maximum, (rows, 5)).astype(np.float32)}
        for rows, maximum in ((3, 4), (1, 200), (50, 9), (9, 99))
    ]
    check(proto, tmp_path, None, feeds)


def test_loops_inside_loops_with_data_dependent_trip_counts(tmp_path: Path) -> None:
    """The inner one runs as often as the row has elements that are not zero, and gives as many outputs."""
    inner = helper.make_graph(
        [
            node("Gather", "row j", "element"),
            node("Unsqueeze", "element zero", "line"),
            node("NonZero", "line", "there"),
            node("Shape", "there", "extent", start=1, end=2),
            node("Squeeze", "extent", "count"),
            node("Cast", "count", "real", to=FLOAT),
            node("Add", "before real", "after"),
            node("Identity", "go", "goes"),
        ],
        "inner",
        [value("j", INT), value("go", BOOL), value("before")],
        [value("goes", BOOL), value("after"), value("real")],
    )
    nodes = [
        node("NonZero", "row", "locations"),
        node("Shape", "locations", "found", start=1, end=2),
        node("Squeeze", "found", "often"),
        helper.make_node("Loop", ["often", "", "start"], ["last", "reals"], body=inner),
        node("ReduceSum", "reals", "all", keepdims=0),
        node("Add", "last all", "v"),
    ]
    feeds = [{"x": some(rows, 5, part)} for rows, part in ((3, 0.4), (1, 0), (20, 0.7))]
    check(loop_over_rows(nodes, {"y": FLOAT}, scanned=False), tmp_path, None, feeds)


def test_boxes_that_remain_of_each_image_of_a_scan(tmp_path: Path) -> None:
    body = helper.make_graph(
        [
            node("Unsqueeze", "boxes_of zero", "b"),
            node("Unsqueeze", "scores_of zero", "s"),
            node("NonMaxSuppression", "b s upper overlap", "kept"),
            node("Slice", "kept two three one", "column"),
            node("Squeeze", "column one", "numbers"),
            node("Gather", "boxes_of numbers", "best"),
            node("ReduceMean", "best", "mean", axes=[0], keepdims=0),
            node("Unique", "numbers", "different", axis=0),
            node("ReduceMax", "different", "last", keepdims=0),
        ],
        "body",
        [helper.make_tensor_value_info(name, FLOAT, None) for name in ("boxes_of", "scores_of")],
        [helper.make_tensor_value_info("mean", FLOAT, [4]), value("last", INT)],
    )
    scan = helper.make_node("Scan", ["boxes", "scores"], ["means", "lasts"], body=body, num_scan_inputs=2)
    numbers = {"two": np.array([2]), "three": np.array([3]), "upper": np.array([7]), "overlap": np.float32([0.3])}
    proto = model_of(
        [scan], {"boxes": ["n", 40, 4], "scores": ["n", 2, 40]}, {"means": FLOAT, "lasts": INT}, **CONSTANTS, **numbers
    )
    feeds = []
    for images in (3, 1, 20):
        corners = RNG.random((images, 40, 4)).astype(np.float32)
        corners[..., 2:] = corners[..., :2] + 0.3 * corners[..., 2:]
        feeds.append({"boxes": corners, "scores": RNG.random((images, 2, 40)).astype(np.float32)})
    check(proto, tmp_path, None, feeds)


def test_outputs_of_different_sizes_in_each_iteration_are_refused(tmp_path: Path) -> None:
    body = helper.make_graph(
        [node("NonZero", "row", "locations")],
        "body",
        [helper.make_tensor_value_info("row", FLOAT, [5])],
        [helper.make_tensor_value_info("locations", INT, None)],
    )
    scan = helper.make_node("Scan", ["x"], ["all"], body=body, num_scan_inputs=1)
    (tmp_path / "model.onnx").write_bytes(model_of([scan], {"x": ["n", 5]}, {"all": INT}).SerializeToString())
    with pytest.raises(CompileError, match="a data-dependent size in each iteration") as caught:
        nnefc.compile(tmp_path / "model.onnx")
    assert "pad" in str(caught.value)


def test_a_branch_that_changes_the_rank_of_what_the_other_passes_on_fails_its_run(tmp_path: Path) -> None:
    """The number of elements that are found chooses; after it there is a product that takes two axes."""
    then = helper.make_graph(
        [node("Unsqueeze", "table zero", "deeper")],
        "deeper",
        [],
        [helper.make_tensor_value_info("deeper", FLOAT, None)],
    )
    other = helper.make_graph(
        [node("Identity", "table", "same")], "same", [], [helper.make_tensor_value_info("same", FLOAT, None)]
    )
    nodes = [
        node("IsNaN", "x", "is_nan"),
        node("NonZero", "is_nan", "found"),
        node("Size", "found", "count"),
        node("Greater", "count none", "has_some"),
        node("Mul", "column x", "table"),
        helper.make_node("If", ["has_some"], ["chosen"], then_branch=then, else_branch=other),
        node("Gemm", "chosen column", "y"),
    ]
    constants = {"none": np.array(0, np.int64), "column": np.float32([[1], [2], [3]])}
    proto = model_of(nodes, {"x": [3]}, {"y": FLOAT}, **CONSTANTS, **constants)
    with pytest.warns(nnefc.ModelWarning, match=r"'deeper' will fail.*the ranks \[3\], those .* \[2\]"):
        artifact = check(proto, tmp_path, None, [{"x": np.float32([1, -2, 3])}])
    with artifact.load() as library, pytest.raises(nnefc.RunError, match="'deeper' cannot be computed"):
        library.run({"x": np.float32([1, np.nan, 3])})
