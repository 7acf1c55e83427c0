"""What kernels have for themselves inside of loops, where sizes are open."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc

RNG = np.random.default_rng(7)
_HINDERED = 64 << 20
"""Bytes of scratch memory that every thread would have, that are too many."""


def compiled(
    folder: Path, nodes: list[onnx.NodeProto], shape: list[int | str], shapes: dict[str, list[int]]
) -> nnefc.Artifact:
    constants = [numpy_helper.from_array(np.array(value, np.int64), name) for name, value in shapes.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10), folder / "m.onnx")
    return nnefc.compile(folder / "m.onnx")


@pytest.mark.parametrize("size", [(2, 3, 5, 7), (1, 3, 16, 16), (3, 3, 1, 1), (2, 3, 33, 130)], ids=str)
@pytest.mark.sample(2)
def test_rows_as_long_as_products_of_dynamic_sizes_are_parts_of_the_workspace(
    size: tuple[int, ...], tmp_path: Path
) -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "rows"], ["r"]),
        helper.make_node("Softmax", ["r"], ["y"], axis=-1),
    ]
    artifact = compiled(tmp_path, nodes, ["n", 3, "h", "w"], {"rows": [0, 0, -1]})
    assert artifact.description.scratch_bytes < _HINDERED
    x = RNG.standard_normal(size).astype(np.float32)
    rows = np.exp(x.reshape(*size[:2], -1).astype(np.float64))
    for threads in (1, 3):
        with artifact.load(threads=threads) as model:
            assert np.allclose(model.run({"x": x})["y"], rows / rows.sum(-1, keepdims=True), rtol=1e-5)


def test_a_single_row_of_dynamic_sizes_is_part_of_the_workspace(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Concat", ["x", "x"], ["c"], axis=1),
        helper.make_node("ReduceLogSumExp", ["c"], ["y"], keepdims=1),
    ]
    artifact = compiled(tmp_path, nodes, ["n", 1, "w", 8], {})
    assert artifact.description.scratch_bytes < _HINDERED
    for size in ((1, 1, 1, 8), (5, 1, 17, 8)):
        x = RNG.standard_normal(size).astype(np.float32)
        wanted = np.log(2 * np.exp(x.astype(np.float64)).sum()).reshape(1, 1, 1, 1)
        assert np.allclose(artifact.run({"x": x})["y"], wanted, rtol=1e-5)
