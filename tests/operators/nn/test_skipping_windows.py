"""Convolutions whose windows skip most of the padding."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc


@pytest.mark.parametrize(
    ("size", "stride", "dilation", "groups", "pads"),
    [(1, 510, 1, 1, (255,) * 4), (3, 30, 2, 2, (60, 61, 59, 40)), (2, 5, 1, 4, (1, 0, 0, 3))],
)
def test_only_what_windows_read_is_stored(
    size: int, stride: int, dilation: int, groups: int, pads: tuple[int, ...]
) -> None:
    rng, info = np.random.default_rng(3), helper.make_tensor_value_info
    weights = rng.standard_normal((8, 4 // groups, size, size)).astype(np.float32)
    attributes = {"strides": [stride] * 2, "dilations": [dilation] * 2, "group": groups, "pads": pads}
    nodes = [helper.make_node("Conv", ["x", "w"], ["y"], **attributes)]
    inputs, outputs = [info("x", TensorProto.FLOAT, [2, 4, 20, 20])], [info("y", TensorProto.FLOAT, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs, [numpy_helper.from_array(weights, "w")])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    x = rng.standard_normal((2, 4, 20, 20)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x": x})
    with nnefc.compile(proto).load() as library:
        assert library.workspace_bytes < 1 << 16
        np.testing.assert_allclose(library.run({"x": x})["y"], expected, rtol=1e-5, atol=1e-5)
