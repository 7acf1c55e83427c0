"""Loops over windows are cut where these lie inside: right at every size, and without a choice in the middle."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm_ffi
from onnx import TensorProto, helper
from tvm import tirx

import nnefc
from nnefc.passes.tir.common.expressions import inside
from nnefc.passes.tir.common.partition_windows import partition_windows, with_interior_version

SAME = {"auto_pad": "SAME_UPPER"}
POOLS = [
    ("MaxPool", [2, 2], [2, 2], SAME),
    ("MaxPool", [3, 3], [2, 2], {"auto_pad": "SAME_LOWER"}),
    ("MaxPool", [3, 2], [1, 3], {"pads": [1, 0, 2, 1]}),
    ("MaxPool", [5, 6], [1, 1], SAME),
    ("MaxPool", [2, 3], [2, 1], {"pads": [1, 1, 1, 2], "dilations": [3, 2]}),
    ("MaxPool", [3, 3], [2, 2], {"ceil_mode": 1, "pads": [1, 1, 0, 0]}),
    ("AveragePool", [3, 3], [2, 2], SAME),
    ("AveragePool", [3, 2], [2, 2], {**SAME, "count_include_pad": 1}),
    ("AveragePool", [3, 5], [1, 1], SAME),
    ("AveragePool", [3, 3], [1, 2], {"pads": [1, 1, 2, 0]}),
    ("AveragePool", [3, 3], [2, 2], {"pads": [1] * 4, "count_include_pad": 1}),
    ("LpPool", [3, 3], [2, 1], {**SAME, "p": 2}),
    ("LpPool", [2, 3], [2, 2], {"pads": [1, 0, 1, 2], "p": 1}),
]
LINES = [
    ("MaxPool", [3], [2], SAME),
    ("AveragePool", [4], [3], {"pads": [2, 1]}),
    ("AveragePool", [3], [1], SAME),
    ("LpPool", [3], [2], {"auto_pad": "SAME_LOWER", "p": 2}),
]
VOLUMES = [
    ("MaxPool", [2, 3, 2], [2, 1, 2], SAME),
    ("AveragePool", [2, 2, 3], [1, 2, 2], {**SAME, "count_include_pad": 0}),
]


def model(pools: Sequence[tuple[str, list[int], list[int], dict[str, object]]], sizes: list[object]) -> onnx.ModelProto:
    """Poolings of one input side by side."""
    nodes = [
        helper.make_node(name, ["x"], [f"y{n}"], kernel_shape=size, strides=stride, **attributes)
        for n, (name, size, stride, attributes) in enumerate(pools)
    ]
    outputs = [helper.make_tensor_value_info(f"y{n}", TensorProto.FLOAT, None) for n in range(len(pools))]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes)]
    graph = helper.make_graph(nodes, "pools", given, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.parametrize(
    ("pools", "shape", "sizes"),
    [
        (POOLS[::3], ["n", 3, "h", "w"], [*product((7, 8, 22), (7, 9, 37))]),
        pytest.param(POOLS, ["n", 3, "h", "w"], [*product((7, 8, 22), (7, 9, 37))], marks=pytest.mark.slow),
        pytest.param(LINES, ["n", 2, "w"], [(5,), (6,), (41,)], marks=pytest.mark.slow),
        pytest.param(VOLUMES, [1, 2, "d", "h", "w"], [(3, 4, 5), (4, 6, 21)], marks=pytest.mark.slow),
    ],
    ids=["planes", "all planes", "lines", "volumes"],
)
def test_pools_of_dynamic_sizes_are_those_of_onnxruntime(
    pools: Sequence[tuple[str, list[int], list[int], dict[str, object]]],
    shape: list[object],
    sizes: Sequence[tuple[int, ...]],
) -> None:
    made = model(pools, shape)
    library = nnefc.compile(made).load(threads=1)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for own in sizes:
        x = np.random.default_rng(sum(own)).standard_normal((1, shape[1], *own)).astype(np.float32) - 1
        wanted = session.run(None, {"x": x})
        for pool, found, right in zip(pools, library.run({"x": x}).values(), wanted, strict=True):
            np.testing.assert_allclose(found, right, rtol=2e-6, atol=2e-6, err_msg=f"{pool} of {own}")


def rows(choose: bool) -> tirx.For:
    """Maxima of three in a row, of which some may lie outside; by a choice, or by the nearest position inside."""
    count, y = tirx.Var("n", "int64"), tirx.Var("y", "int64")
    x, t = tirx.Var("x", "int64"), tirx.Var("t", "int64")
    data = tirx.decl_buffer((count * 8,), "float32", "data")
    out = tirx.decl_buffer((count,), "float32", "out")
    position, row, zero = (
        x * 2 + t - 1,
        tirx.max(tirx.min(y + t - 1, 7), tirx.IntImm("int64", 0)),
        tirx.IntImm("int64", 0),
    )
    outside = tirx.const(-1, "float32")
    read = data[tirx.max(tirx.min(position, count - 1), zero) * 8 + row]
    value = tirx.Select(tirx.all(position >= 0, position < count), read, outside) if choose else read
    store = tirx.BufferStore(out, tirx.Max(out[x], value), [x])
    inner = tirx.For(t, zero, tirx.IntImm("int64", 3), tirx.ForKind.SERIAL, store)
    return tirx.For(x, zero, count // 2, tirx.ForKind.SERIAL, inner)


@pytest.mark.parametrize("choose", [False, True])
def test_the_middle_has_no_choice(choose: bool) -> None:
    cut = partition_windows(rows(choose))
    assert isinstance(cut, tirx.IfThenElse)  # whether rows are inside

    def choices(loop: tirx.Stmt) -> int:
        assert isinstance(loop, tirx.For)
        value = loop.body.body.value  # the larger one of what was found so far and this
        return sum(isinstance(part, tirx.Select | tirx.Min | tirx.Max) for part in inside(value.b))

    assert [choices(loop) for loop in cut.then_case.seq] == [2 + choose, 0, 2 + choose]
    assert [choices(loop) for loop in cut.else_case.seq] == [4 + choose, 2, 4 + choose]


def test_a_tile_whose_windows_lie_inside_has_no_choice() -> None:
    loop = rows(choose=True)
    start, count = tirx.Var("start", "int64"), tirx.Var("n", "int64")
    body = tvm_ffi.structural_map(loop.body, (tirx.Var, lambda var: start + var if var.same_as(loop.loop_var) else var))
    tile = tirx.For(loop.loop_var, tirx.IntImm("int64", 0), tirx.IntImm("int64", 7), tirx.ForKind.UNROLLED, body)
    versions = with_interior_version(tile)
    assert isinstance(versions, tirx.IfThenElse) and versions.else_case.same_as(tile)
    chosen = [versions.then_case.body.body.value.b, tile.body.body.value.b]
    assert [any(isinstance(part, tirx.Select | tirx.Min) for part in inside(value)) for value in chosen] == [
        False,
        True,
    ]
    dynamic = tirx.For(tile.loop_var, tile.min, count, tirx.ForKind.SERIAL, body)
    assert with_interior_version(dynamic).same_as(dynamic)


def test_loops_that_choose_by_values_stay_whole() -> None:
    x, t = tirx.Var("x", "int64"), tirx.Var("t", "int64")
    data = tirx.decl_buffer((100,), "float32", "data")
    chosen = tirx.Select(data[x] > tirx.const(0, "float32"), data[x + t], tirx.const(0, "float32"))
    zero = tirx.IntImm("int64", 0)
    inner = tirx.For(t, zero, tirx.IntImm("int64", 3), tirx.ForKind.SERIAL, tirx.BufferStore(data, chosen, [x]))
    loop = tirx.For(x, zero, tirx.IntImm("int64", 50), tirx.ForKind.SERIAL, inner)
    assert partition_windows(loop).same_as(loop)


def test_pools_of_dynamic_padding_behind_convolutions_are_those_of_onnxruntime() -> None:
    """Channels in blocks, of which the last one is not full."""
    weights = np.random.default_rng(0).standard_normal((10, 3, 1, 1)).astype(np.float32)
    nodes = [helper.make_node("Conv", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["b"])]
    pools = [("MaxPool", [3, 3], [2, 2]), ("AveragePool", [2, 3], [2, 2]), ("MaxPool", [5, 5], [1, 1])]
    for n, (name, size, stride) in enumerate(pools):
        nodes.append(helper.make_node(name, ["b"], [f"y{n}"], kernel_shape=size, strides=stride, **SAME))
    outputs = [helper.make_tensor_value_info(f"y{n}", TensorProto.FLOAT, None) for n in range(len(pools))]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w"])]
    graph = helper.make_graph(nodes, "net", given, outputs, [onnx.numpy_helper.from_array(weights, "w")])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    library = nnefc.compile(made).load(threads=1)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for batch, height, width in ((1, 1, 1), (2, 7, 22), (1, 9, 37)):
        x = np.random.default_rng(width).standard_normal((batch, 3, height, width)).astype(np.float32)
        for found, right in zip(library.run({"x": x}).values(), session.run(None, {"x": x}), strict=True):
            np.testing.assert_allclose(found, right, rtol=2e-6, atol=2e-6)
