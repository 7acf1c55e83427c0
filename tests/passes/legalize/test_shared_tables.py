"""Tables of embeddings that a network also multiplies by: the library has them once."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc

WORDS, SIZE = 1003, 40


def _model(table: np.ndarray, *, stored_twice: bool) -> onnx.ModelProto:
    """Words that are looked up, and whose scores are products with the same table."""
    nodes = [helper.make_node("Gather", ["table", "words"], ["rows"]), helper.make_node("MatMul", ["rows", "w"], ["y"])]
    constants = [numpy_helper.from_array(table, "table")]
    if stored_twice:
        constants.append(numpy_helper.from_array(np.ascontiguousarray(table.T), "w"))
    else:
        nodes.insert(0, helper.make_node("Transpose", ["table"], ["w"], perm=[1, 0]))
    inputs = [helper.make_tensor_value_info("words", TensorProto.INT64, ["n"])]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("rows", "y")]
    graph = helper.make_graph(nodes, "table", inputs, outputs, constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.mark.parametrize("stored_twice", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_a_table_is_stored_once(tmp_path: Path, dtype: type, stored_twice: bool) -> None:
    table = np.random.default_rng(0).standard_normal((WORDS, SIZE)).astype(dtype).astype(np.float32)
    model = _model(table, stored_twice=stored_twice)
    library = tmp_path / "table.so"
    nnefc.compile(model).export(library)
    assert library.stat().st_size < 1.5 * table.size * np.dtype(dtype).itemsize + (1 << 16)
    words = np.array([0, WORDS - 1, -1, 7, 8, -WORDS])
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"words": words})
    with nnefc.load(library) as network:
        rows, scores = network(words)
    np.testing.assert_array_equal(rows, expected[0])
    np.testing.assert_allclose(scores, expected[1], atol=1e-4)
