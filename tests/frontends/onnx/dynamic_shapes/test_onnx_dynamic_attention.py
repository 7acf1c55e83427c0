"""Attention of lengths that are known at run time, compared with onnxruntime: full tiles, what is left, single
queries."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import nnefc

_rng = np.random.default_rng(3)
HEADS, GROUPS, SIZE = 6, 2, 16
WIDTH = HEADS * SIZE

Shape = Sequence[int | str]


def numbers(*shape: int) -> np.ndarray:
    return _rng.standard_normal(shape).astype(np.float32)


def value(name: str, shape: Shape | None, dtype: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, dtype, shape)


def masked() -> onnx.ModelProto:
    """As PyTorch writes it: heads apart, scaled, masked by a sum, heads joined."""
    nodes = []
    for name in "qkv":
        order = [0, 2, 3, 1] if name == "k" else [0, 2, 1, 3]
        nodes.append(helper.make_node("Reshape", [name, "apart"], [f"{name}_apart"]))
        nodes.append(helper.make_node("Transpose", [f"{name}_apart"], [f"{name}_heads"], perm=order))
    nodes += [
        helper.make_node("MatMul", ["q_heads", "k_heads"], ["scores"]),
        helper.make_node("Mul", ["scores", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v_heads"], ["made"]),
        helper.make_node("Transpose", ["made"], ["moved"], perm=[0, 2, 1, 3]),
        helper.make_node("Reshape", ["moved", "joined"], ["y"]),
    ]
    constants = [
        helper.make_tensor("apart", TensorProto.INT64, [4], [0, 0, HEADS, SIZE]),
        helper.make_tensor("joined", TensorProto.INT64, [3], [0, 0, WIDTH]),
        helper.make_tensor("scale", TensorProto.FLOAT, [], [0.25]),
    ]
    inputs = [value("q", ["n", "l", WIDTH]), *(value(x, ["n", "s", WIDTH]) for x in "kv")]
    inputs.append(value("mask", ["n", 1, "l", "s"]))
    graph = helper.make_graph(nodes, "masked", inputs, [value("y", ["n", "l", WIDTH])], constants)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def grouped() -> onnx.ModelProto:
    """As the model builder of onnxruntime-genai writes it, with caches of any length."""
    names = ["q", "k", "v", "past_k", "past_v", "last", "total"]
    node = helper.make_node(
        "GroupQueryAttention", names, ["y", "all_k", "all_v"], domain="com.microsoft",
        num_heads=HEADS, kv_num_heads=GROUPS,
    )  # fmt: skip
    inputs = [value("q", [1, "l", WIDTH]), *(value(x, [1, "l", GROUPS * SIZE]) for x in "kv")]
    inputs += [value(f"past_{x}", [1, GROUPS, "p", SIZE]) for x in "kv"]
    inputs += [value("last", [1], TensorProto.INT32), value("total", [], TensorProto.INT32)]
    graph = helper.make_graph(
        [node], "g", inputs, [value("y", [1, "l", WIDTH]), value("all_k", None), value("all_v", None)]
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def of_masked(batch: int, queries: int, keys: int) -> Mapping[str, np.ndarray]:
    data = [numbers(batch, length, WIDTH) for length in (queries, keys, keys)]
    mask = np.where(_rng.random((batch, 1, queries, keys)) < 0.2, np.float32(-1e9), np.float32(0))
    return dict(zip("qkv", data, strict=True)) | {"mask": mask}


def of_grouped(queries: int, past: int) -> Mapping[str, np.ndarray]:
    made = {"q": numbers(1, queries, WIDTH)}
    made |= {x: numbers(1, queries, GROUPS * SIZE) for x in "kv"}
    made |= {f"past_{x}": numbers(1, GROUPS, past, SIZE) for x in "kv"}
    total = np.int32(past + queries)
    return made | {"last": np.array([total - 1], np.int32), "total": np.array(total, np.int32)}


MASKED = [(1, 1, 2), (1, 1, 150), (2, 3, 7), (1, 16, 16), (2, 17, 5), (1, 33, 100), (1, 130, 77), (1, 200, 64)]
GROUPED = [(1, 1), (1, 40), (1, 300), (5, 9), (70, 20)]


@pytest.mark.parametrize(
    ("model", "inputs"),
    [(masked, [of_masked(*sizes) for sizes in MASKED]), (grouped, [of_grouped(*sizes) for sizes in GROUPED])],
)
@pytest.mark.sample(1)
def test_attention_of_dynamic_lengths_agrees_with_onnxruntime(
    model: Callable[[], onnx.ModelProto], inputs: Sequence[Mapping[str, np.ndarray]], tmp_path: Path
) -> None:
    path = tmp_path / "model.onnx"
    path.write_bytes(model().SerializeToString())
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    artifact = nnefc.compile(path, profile=True)
    assert any("attention" in kernel.kernel for kernel in artifact.description.kernels)
    with artifact.load(threads=2) as library:
        for given in inputs:
            (expected, *_), found = session.run(None, dict(given)), library.run(given)["y"]
            np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


def test_caches_may_be_empty_where_their_range_begins_with_0(tmp_path: Path) -> None:
    names = ["q", "k", "v", "", "", "", "past_k", "past_v"]
    node = helper.make_node(
        "MultiHeadAttention", names, ["y", "all_k", "all_v"], domain="com.microsoft", num_heads=HEADS, unidirectional=1
    )
    inputs = [
        *(value(x, ["n", "l", WIDTH]) for x in "qkv"),
        *(value(f"past_{x}", ["n", HEADS, "p", SIZE]) for x in "kv"),
    ]
    graph = helper.make_graph([node], "g", inputs, [value(name, None) for name in ("y", "all_k", "all_v")])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), path)
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    with nnefc.compile(path, shape={"p": "0.."}).load(threads=1) as library:
        assert [(d.name, d.minimum) for d in library.dimensions if d.name == "p"] == [("p", 0)]
        for batch, length, past in ((1, 5, 0), (2, 1, 5), (1, 40, 0), (1, 3, 6)):
            data = {x: numbers(batch, length, WIDTH) for x in "qkv"}
            data |= {f"past_{x}": numbers(batch, HEADS, past, SIZE) for x in "kv"}
            for made, wanted in zip(library.run(data).values(), session.run(None, data), strict=True):
                np.testing.assert_allclose(made, wanted, rtol=0, atol=1e-5)
