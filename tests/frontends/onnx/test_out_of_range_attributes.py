"""Attributes and sizes at their borders: a result or one clear message, never an error of TVM's."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, helper

import nnefc

INPUT = tuple[str, int, list[int | str]]


def model(node: NodeProto, inputs: list[INPUT], result: int) -> bytes:
    values = [helper.make_tensor_value_info(*each) for each in inputs]
    graph = helper.make_graph([node], "g", values, [helper.make_tensor_value_info("y", result, None)])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    return bytes(made.SerializeToString())


@pytest.mark.parametrize("sizes", [[8, 8], ["h", "w"]])
@pytest.mark.parametrize(
    ("kind", "attributes", "expected"),
    [
        ("MaxPool", {"kernel_shape": [3, 3], "pads": [1 << 31] * 4}, "a padding of 2,147,483,648"),
        ("AveragePool", {"kernel_shape": [1 << 40] * 2, "pads": [1 << 30] * 4}, "a size of 1,099,511,627,776"),
        ("LpPool", {"kernel_shape": [3, 3], "pads": [1 << 40] * 4}, "a padding of"),
        ("Conv", {"kernel_shape": [3, 3], "strides": [1 << 33] * 2}, "a stride of"),
        ("Conv", {"kernel_shape": [3, 3], "dilations": [1 << 33] * 2, "pads": [1, 1, 1, 1]}, "a dilation of"),
    ],
)
def test_windows_beyond_32_bits_are_refused(
    sizes: list[int | str], kind: str, attributes: dict[str, list[int]], expected: str
) -> None:
    inputs: list[INPUT] = [("x", TensorProto.FLOAT, [1, 3, *sizes])]
    if kind == "Conv":
        inputs.append(("w", TensorProto.FLOAT, [4, 3, 3, 3]))
    node = helper.make_node(kind, [name for name, *_ in inputs], ["y"], **attributes)
    with pytest.raises(nnefc.CompileError, match=expected):
        nnefc.compile(model(node, inputs, TensorProto.FLOAT))


def test_nothing_is_infinite_where_neither_sign_is_looked_for() -> None:
    node = helper.make_node("IsInf", ["x"], ["y"], detect_negative=0, detect_positive=0)
    with nnefc.compile(model(node, [("x", TensorProto.FLOAT, ["n", 2])], TensorProto.BOOL)).load() as loaded:
        np.testing.assert_array_equal(loaded(np.full((3, 2), np.inf, np.float32)), np.zeros((3, 2), bool))


def test_convolutions_of_integers_have_open_channels() -> None:
    node = helper.make_node("ConvInteger", ["x", "w"], ["y"])
    inputs: list[INPUT] = [("x", TensorProto.UINT8, ["n", "c", 4]), ("w", TensorProto.UINT8, ["o", "c", "k"])]
    rng = np.random.default_rng(0)
    x, w = (rng.integers(0, 255, shape, np.uint8) for shape in ((2, 3, 4), (5, 3, 2)))
    windows = np.lib.stride_tricks.sliding_window_view(x.astype(np.int32), 2, 2)
    with nnefc.compile(model(node, inputs, TensorProto.INT32)).load() as loaded:
        np.testing.assert_array_equal(loaded(x, w), np.einsum("ncik,ock->noi", windows, w.astype(np.int32)))
