"""What the standard says of rare attributes and elements, compared with onnxruntime or ONNX's reference."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto
from onnx_models import graph, info, model, node, save, tensor
from onnx_operator_cases import Case, by_onnxruntime, by_reference, check, compiled

import nnefc
from nnefc.operators.math.casting import cast_array

NAN, INF = float("nan"), float("inf")
LOWEST = np.iinfo(np.int64).min


def real(*elements: float) -> np.ndarray:
    return np.array(elements, np.float32)


def ints(*elements: int) -> np.ndarray:
    return np.array(elements, np.int64)


def test_slices_backwards_begin_within_the_dimension() -> None:
    x, bounds = np.arange(12, dtype=np.float32).reshape(3, 4), frozenset({1, 2, 3, 4})
    cases = [
        Case("Slice", [x, ints(start), ints(end), ints(axis), ints(step)], {}, bounds)
        for start, end, axis, step in ((-10, LOWEST, 0, -1), (-3, -10, 0, -2), (9, LOWEST, 1, -3), (-5, 3, 1, 2))
    ]
    check(cases, compiled(cases, 21), by_onnxruntime(cases, 21))


def test_old_versions_resize_where_the_size_stays_too() -> None:
    cases = [
        Case("Upsample", [np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4), real(1, 1, 1.2, scale)], {"mode": mode})
        for mode in ("nearest", "linear")
        for scale in (1.0, 1.1, 2.0)
    ]
    check(cases, compiled([constant(case) for case in cases], 9), by_onnxruntime(cases, 9))


def test_old_versions_take_the_nearest_element_behind_where_there_are_fewer() -> None:
    x = np.arange(35, dtype=np.float32).reshape(1, 1, 5, 7)
    cases = [
        Case("Resize", [x, real(1, 1, *scales)], {"mode": mode})
        for mode in ("nearest", "linear")
        for scales in ((0.6, 0.5), (0.7, 1.5), (2, 0.3), (1, 0.8))
    ]
    check(cases, compiled([constant(case) for case in cases], 10), by_onnxruntime(cases, 10))


def test_grids_of_one_image_and_of_images_of_one_row() -> None:
    rng, cases = np.random.default_rng(4), []
    for sizes in ((1, 3, 1, 4), (1, 1, 5, 1), (2, 1, 1, 1), (3, 2, 4, 3), (1, 1, 2, 1, 3), (2, 1, 3, 4, 2)):
        rank = len(sizes) - 2
        theta = rng.standard_normal((sizes[0], rank, rank + 1)).astype(np.float32)
        for aligned in (0, 1):
            cases.append(Case("AffineGrid", [theta, ints(*sizes)], {"align_corners": aligned}, frozenset({1})))
    with np.errstate(divide="ignore"):
        check(cases, compiled(cases, 20), by_reference(cases, 20))


def test_a_grid_follows_the_dynamic_sizes_of_a_image(tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("AffineGrid", ["t", "s"], ["g"], align_corners=0),
        node("GridSample", ["x", "g"], ["y"], align_corners=0),
    ]
    inputs = [info("x", [None, 3, None, None]), info("t", [None, 2, 3])]
    path = save(model(graph(nodes, inputs, [info("y", [None, 3, None, None])]), 20), tmp_path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    rng = np.random.default_rng(3)
    with nnefc.compile(path).load() as library:
        for batch, height, width in ((1, 1, 7), (2, 6, 5), (3, 4, 1)):
            feed = {"x": rng.standard_normal((batch, 3, height, width)).astype(np.float32)}
            feed["t"] = rng.standard_normal((batch, 2, 3)).astype(np.float32)
            np.testing.assert_allclose(library.run(feed)["y"], session.run(None, feed)[0], rtol=1e-4, atol=1e-5)


def constant(case: Case) -> Case:
    return Case(case.op, case.inputs, case.attributes, frozenset({1}))


def test_indices_of_any_type_have_any_depth() -> None:
    depth, values = ints(300).reshape(()), real(-1, 2)
    cases = [
        Case("OneHot", [np.array(elements, dtype), depth, values], {}, frozenset({1}))
        for elements, dtype in (([3, 255], np.uint8), ([-128, 127], np.int8), ([2.7, -1.0], np.float32))
    ]
    check(
        cases,
        compiled(cases, 21),
        by_reference([Case("OneHot", [ints(*c.inputs[0].astype(int)), depth, values]) for c in cases], 21),
    )


def test_logarithms_of_sums_of_integers_have_no_fraction() -> None:
    cases = [
        Case("ReduceLogSum", [np.array([[1, 2, 3], [7, 7, 90], [0, 0, 0], [-5, 1, 2]], kind)], {"axes": [1]})
        for kind in (np.int32, np.int64)
    ]
    check(cases, compiled(cases, 13), by_onnxruntime(cases, 13))


def test_nan_stays_in_the_largest_and_the_smallest() -> None:
    data, positions, updates = real(1, NAN, 3, 4), ints(0, 1, 2, 2, 2), real(NAN, 5, 9, NAN, 2)
    cases = [Case("ScatterElements", [data, positions, updates], {"reduction": each}) for each in ("max", "min")]
    cases += [Case("ScatterND", [data, positions[:, None], updates], {"reduction": each}) for each in ("max", "min")]
    check(cases, compiled(cases, 18), [[real(NAN, NAN, NAN, 4)]] * 4)


def test_narrow_floats_may_be_infinite_and_not_numbers(tmp_path: Path) -> None:
    x, types = real(NAN, 1, INF, -INF, 0), (TensorProto.FLOAT8E5M2, TensorProto.FLOAT8E4M3FN)
    nodes = [node("Cast", ["x"], [f"n{i}"], to=kind, saturate=0) for i, kind in enumerate(types)]
    nodes += [node("IsNaN", ["n0"], ["a"]), node("IsNaN", ["n1"], ["b"]), node("IsInf", ["n0"], ["c"])]
    nodes += [node("IsInf", ["n0"], ["d"], detect_negative=0)]
    outputs = [info(name, [5], TensorProto.BOOL) for name in "abcd"]
    with nnefc.compile(save(model(nodes, [info("x", [5])], outputs), tmp_path)).load() as library:
        found = library.run({"x": x})
    np.testing.assert_array_equal(found["a"], np.isnan(x))
    np.testing.assert_array_equal(found["b"], ~np.isfinite(x))  # the type has no infinity
    np.testing.assert_array_equal(found["c"], np.isinf(x))
    np.testing.assert_array_equal(found["d"], x == INF)


def test_powers_of_two_are_the_same_in_constants(tmp_path: Path) -> None:
    x = real(0, -0.0, 1, -1, 1.2, -1.6, 2**-127, 1e-45, 3e38, -3e38, INF, NAN, 0.75, 6)
    nodes, outputs = [], []
    for mode in ("up", "down", "nearest"):
        nodes.append(node("Cast", ["x"], [f"power_{mode}"], to=TensorProto.FLOAT8E8M0, round_mode=mode))
        nodes.append(node("BitCast", [f"power_{mode}"], [mode], to=TensorProto.UINT8))
        outputs.append(info(mode, x.shape, TensorProto.UINT8))
    with nnefc.compile(save(model(nodes, [info("x", x.shape)], outputs, opset=26), tmp_path)).load() as library:
        results = library.run({"x": x})
    for mode, found in results.items():
        np.testing.assert_array_equal(cast_array(x, "float8_e8m0fnu", True, mode).view(np.uint8), found, err_msg=mode)


def test_a_scan_without_iterations_has_its_outputs_along_their_axis(tmp_path: Path) -> None:
    body = graph([node("Identity", ["item"], ["out"])], [info("item", [3])], [info("out", [3])], name="body")
    scan = node("Scan", ["x"], ["s"], body=body, num_scan_inputs=1, scan_output_axes=[1])
    nodes = [scan, node("Concat", ["s", "more"], ["y"], axis=1)]
    more = tensor("more", np.ones((3, 2)))
    path = save(model(nodes, [info("x", [0, 3])], [info("y", [3, 2])], [more], opset=16), tmp_path)
    with nnefc.compile(path).load() as library:
        np.testing.assert_array_equal(library(np.zeros((0, 3), np.float32)), np.ones((3, 2)))


@pytest.mark.parametrize("noop", [0, 1])
def test_sizes_are_multiplied_along_all_axes_where_none_is_named(noop: int, tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], ["s"]),
        node("ReduceProd", ["s", "axes"], ["p"], keepdims=1, noop_with_empty_axes=noop),
        node("Reshape", ["x", "p"], ["y"]),
    ]
    made = model(nodes, [info("x", ["a", "b"])], [info("y", None)], [tensor("axes", [], np.int64)], opset=18)
    path = save(made, tmp_path)
    x = np.arange(15, dtype=np.float32).reshape(3, 5)
    (wanted,) = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    with nnefc.compile(path).load() as library:
        found = library(x)
    assert found.shape == wanted.shape
    np.testing.assert_array_equal(found, wanted)


def zeros(*shape: int, dtype: type = np.float32) -> np.ndarray:
    return np.zeros(shape, dtype)


SEQUENCE = [zeros(4, 2, 3), zeros(1, 20, 3), zeros(1, 20, 5)]
QUANTIZED = [zeros(1, 2, 4, 4, dtype=np.uint8), np.float32(1), np.uint8(0)]
FILTER = [zeros(2, 2, 3, 3, dtype=np.uint8), np.float32(1), np.uint8(0), np.float32(1), np.uint8(0)]


@pytest.mark.parametrize(
    ("op", "inputs", "message"),
    [
        ("LSTM", [*SEQUENCE, None, zeros(1, dtype=np.int32)], r"'sequence_lens' \[1\] should be \[2\]"),
        ("LSTM", [*SEQUENCE, zeros(1, 39)], r"'B' \[1,39\] should be \[1,40\]"),
        ("LSTM", [*SEQUENCE, None, None, None, None, zeros(1, 10)], r"'P' \[1,10\] should be \[1,15\]"),
        ("OneHot", [ints(0, 2), ints(3), zeros(1)], "are not two"),
        ("LayerNormalization", [zeros(2, 1), zeros(5)], "does not fit the elements"),
        ("InstanceNormalization", [zeros(2, 1, 4), zeros(3), zeros(3)], "one element per channel"),
        ("QLinearConv", [*QUANTIZED, *FILTER, zeros(1, dtype=np.int32)], "does not fit 2 channels"),
    ],
)
def test_operands_that_do_not_fit_each_other_are_refused(
    op: str, inputs: list[np.ndarray | None], message: str
) -> None:
    attributes = {"hidden_size": 5} if op == "LSTM" else {}
    depth = frozenset({1} if op == "OneHot" else ())
    with pytest.raises(nnefc.CompileError, match=message):
        compiled([Case(op, inputs, attributes, depth)], 21)


def test_rare_operands_empty_batches_slopes_of_scalars_and_equal_maxima() -> None:
    ties, window = np.array([[[[0, 5], [5, 0]]]], np.uint8), {"kernel_shape": [2, 2], "storage_order": 1}
    cases = [
        Case("Resize", [zeros(0, 2, 3, 3), None, None, ints(0, 2, 6, 5)], {"mode": "linear"}, frozenset({3})),
        Case("PRelu", [np.array(-2, np.float32), real(0.25)], {}, frozenset({1})),
        Case("MaxPool", [ties], window, outputs=2),  # the first row by row, in numbers column by column
    ]
    wanted = [[zeros(0, 2, 6, 5)], [np.array(-0.5, np.float32)], [ties[..., :1, 1:], ints(2).reshape(1, 1, 1, 1)]]
    check(cases, compiled(cases, 21), wanted)


def test_indices_of_a_pooling_count_in_the_shape_that_unpooling_is_given(tmp_path: Path) -> None:
    """Windows skip the last row and column of 5 x 7, so that a shape inferred from the indices' own is 4 x 6."""
    windows = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        node("MaxPool", ["x"], ["p", "i"], **windows),
        node("Neg", ["p"], ["q"]),
        node("Shape", ["x"], ["size"]),
        node("MaxUnpool", ["q", "i", "size"], ["y"], **windows),
    ]
    path = save(model(nodes, [info("x", (1, 2, "h", 7))], [info("y", None)]), tmp_path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with nnefc.compile(path).load() as library:
        for height in (5, 4):
            x = np.random.default_rng(height).standard_normal((1, 2, height, 7)).astype(np.float32)
            np.testing.assert_array_equal(library.run({"x": x})["y"], session.run(None, {"x": x})[0])


def test_diagonals_that_follow_from_sizes_or_are_inputs(tmp_path: Path) -> None:
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Split", ["shape"], ["rows", "columns"], num_outputs=2),
        node("Sub", ["columns", "rows"], ["past"]),
        node("Trilu", ["x", "past"], ["lower"], upper=0),
        node("Trilu", ["x", "k"], ["upper"], upper=1),
    ]
    inputs = [info("x", ("n", "m")), info("k", (), TensorProto.INT64)]
    path = save(model(nodes, inputs, [info("lower", None), info("upper", None)]), tmp_path)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with nnefc.compile(path).load() as library:
        for shape, k in (((3, 5), -1), ((5, 3), 2), ((1, 4), 1 << 62)):
            feed = {"x": np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape), "k": np.array(k)}
            for found, expected in zip(library.run(feed).values(), session.run(None, feed), strict=True):
                np.testing.assert_array_equal(found, expected)
