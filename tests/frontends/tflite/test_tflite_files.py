"""Files: hostile bytes are refused, weights are read in all their forms, custom operators are named."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tflite_files import Graph, flatbuffer, model_file, reference

import nnefc
from nnefc.frontends.tflite import load
from nnefc.frontends.tflite.flexbuffer import read_map
from nnefc.frontends.tflite.model import read_model
from nnefc.support.diagnostics import CompileError

RNG = np.random.default_rng(5)


def written(folder: Path, content: bytes) -> Path:
    path = folder / "model.tflite"
    path.write_bytes(content)
    return path


def small() -> bytes:
    graph = Graph()
    x = graph.input((1, 4, 4, 2), "int8", scale=0.1, zero=3)
    w = graph.tensor((3, 2, 2, 2), "int8", RNG.integers(-9, 9, (3, 2, 2, 2), dtype=np.int8), scale=[0.1, 0.2, 0.3])
    y = graph.output((1, 4, 4, 3), "int8", scale=0.2)
    graph.add("CONV_2D", [x, w, -1], [y], "Conv2DOptions", stride_w=1, stride_h=1)
    return model_file(graph)


def test_changed_and_cut_files_are_refused_or_read(tmp_path: Path) -> None:
    """Whatever the bytes are, there is a network or a `CompileError`."""
    content, refused = small(), 0
    for number in range(60):
        changed = bytearray(content)
        if number % 10 == 0:
            changed = changed[: RNG.integers(8, len(changed))]
        for _ in range(RNG.integers(1, 4)):
            changed[RNG.integers(8, len(changed))] = RNG.integers(0, 256)
        try:
            load(written(tmp_path, bytes(changed)))
        except CompileError:
            refused += 1
    assert refused > 20


def test_a_model_in_memory_is_its_bytes() -> None:
    network = nnefc.compile(small())
    x = RNG.integers(-128, 128, (1, 4, 4, 2), dtype=np.int8)
    assert network.run({"t0": x})["t2"].shape == (1, 4, 4, 3)


def test_models_are_written_as_nnef(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input((1, 5, 6, 2))
    w, bias = (RNG.standard_normal(shape).astype(np.float32) for shape in ((3, 2, 2, 2), (3,)))
    made = graph.tensor((1, 5, 6, 3))
    operands = [x, graph.tensor(w.shape, value=w), graph.tensor(bias.shape, value=bias)]
    graph.add("CONV_2D", operands, [made], "Conv2DOptions", stride_w=1, stride_h=1, fused_activation_function=1)
    graph.add("LOGISTIC", [made], [graph.output((1, 5, 6, 3))])
    path = written(tmp_path, model_file(graph))
    nnefc.convert(path, tmp_path / "model.nnef")
    given = RNG.standard_normal((1, 5, 6, 2)).astype(np.float32)
    results = [nnefc.compile(each).run({"t0": given})["t4"] for each in (path, tmp_path / "model.nnef")]
    np.testing.assert_allclose(*results, atol=1e-6)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"version": 9}, "version 9 of the format"),
        ({"subgraphs": []}, "no subgraph"),
        ({"subgraphs": [{"outputs": [3]}]}, "an output is tensor 3, and there are 0"),
        ({"subgraphs": [{"tensors": [{"buffer": 7}]}]}, "has buffer 7"),
        ({"subgraphs": [{"tensors": [{"type": 99}]}]}, "the element type 99"),
        ({"subgraphs": [{"operators": [{"opcode_index": 4}]}]}, "operator 0 has no operator code"),
        ({"buffers": [{"offset": 1 << 40, "size": 8}]}, "a buffer lies outside"),
    ],
)
def test_what_breaks_a_rule_is_named(fields: dict, message: str, tmp_path: Path) -> None:
    model = {"version": 3, "buffers": [{}], "subgraphs": [{}], **fields}
    with pytest.raises(CompileError, match=message):
        read_model(written(tmp_path, flatbuffer("Model", model)))


def test_errors_name_the_subgraph_and_the_operator(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input((2, 3))
    graph.add("FlexErf", [x], [graph.output((2, 3))])
    with pytest.raises(CompileError, match=r"subgraph 0, operator 0 \(FlexErf\): the custom operator") as error:
        nnefc.compile(written(tmp_path, model_file(graph)))
    assert "TensorFlow's own" in str(error.value.hint)


def test_buffers_behind_the_flatbuffer_are_read(tmp_path: Path) -> None:
    graph = Graph()
    x = graph.input((3,))
    y = graph.output((3,))
    c = graph.tensor((3,), buffer=1)
    graph.add("ADD", [x, c], [y], "AddOptions")
    values = np.array([1, 2, 3], np.float32).tobytes()
    short = model_file(graph, buffers=[{}, {"offset": 1 << 20, "size": 12}])
    content = model_file(graph, buffers=[{}, {"offset": len(short), "size": 12}]) + values
    model = read_model(written(tmp_path, content))
    np.testing.assert_array_equal(model.array(model.subgraphs[0].tensors[2]), [1, 2, 3])


def test_sparse_weights_are_spread_out(tmp_path: Path) -> None:
    """DENSIFY of blocks of 1 × 2 in compressed rows."""
    dense = np.array([[0, 0, 1, 2], [3, 4, 0, 0], [0, 0, 0, 0], [5, 6, 7, 8]], np.float32)
    graph = Graph()
    x = graph.input((2, 4))
    levels = [
        {"format": 0, "dense_size": 4},
        {"format": 1, "array_segments": ("Int32Vector", {"values": [0, 1, 2, 2, 4]}),
         "array_indices": ("Uint8Vector", {"values": [1, 0, 0, 1]})},
        {"format": 0, "dense_size": 2},
    ]  # fmt: skip
    sparsity = {"traversal_order": [0, 1, 2], "block_map": [1], "dim_metadata": levels}
    value = np.array([1, 2, 3, 4, 5, 6, 7, 8], np.float32)
    w, spread = graph.tensor((4, 4), value=value, sparsity=sparsity), graph.tensor((4, 4))
    graph.add("DENSIFY", [w], [spread])
    graph.add("FULLY_CONNECTED", [x, spread, -1], [graph.output((2, 4))], "FullyConnectedOptions")
    given = RNG.standard_normal((2, 4)).astype(np.float32)
    made = nnefc.compile(written(tmp_path, model_file(graph))).run({"t0": given})
    np.testing.assert_allclose(next(iter(made.values())), given @ dense.T, rtol=1e-5)


def test_transposed_convolutions_of_mediapipe_have_a_bias(tmp_path: Path) -> None:
    graph = Graph()
    w, bias = (RNG.standard_normal(shape).astype(np.float32) for shape in ((2, 2, 2, 3), (1, 1, 1, 2)))
    x = graph.input((1, 3, 4, 3))
    operands = [x, graph.tensor(w.shape, value=w), graph.tensor(bias.shape, value=bias)]
    options = np.frombuffer(np.array([1, 2, 2], "<i4").tobytes(), np.uint8)
    graph.add("Convolution2DTransposeBias", operands, [graph.output((1, 5, 8, 2))], custom_options=options)
    given = RNG.standard_normal((1, 3, 4, 3)).astype(np.float32)
    made = next(iter(nnefc.compile(written(tmp_path, model_file(graph))).run({"t0": given}).values()))
    wanted = np.zeros((1, 6, 8, 2)) + bias
    for i in range(3):
        for j in range(4):
            wanted[0, 2 * i : 2 * i + 2, 2 * j : 2 * j + 2] += np.einsum("ohwc,c->hwo", w, given[0, i, j])
    # Of an odd number of rows MediaPipe cuts off the last one of the result.
    np.testing.assert_allclose(made, wanted[:, :5], atol=1e-5)


def test_flexbuffers_are_read() -> None:
    data = bytes([97, 0, 98, 0, 2, 5, 4, 2, 1, 5, 3, 4, 4, 4, 36, 1])  # malformed: refused, whatever it is
    with pytest.raises(CompileError, match="no map"):
        read_map(data)
    assert read_map(b"") == {}


def test_operators_follow_a_convolution_of_bytes() -> None:
    """Each of them reads the convolution's layout, and gives the bits of LiteRT's reference kernels."""
    graph = Graph()
    x = graph.input((1, 11, 12, 4), "int8", scale=0.05, zero=3)
    w = graph.tensor((8, 3, 3, 4), "int8", RNG.integers(-127, 128, (8, 3, 3, 4), dtype=np.int8), scale=[0.01] * 8)
    bias = graph.tensor((8,), "int32", RNG.integers(-500, 500, 8, dtype=np.int32), scale=[0.0005] * 8)
    y = graph.tensor((1, 9, 10, 8), "int8", scale=0.1, zero=-5)
    graph.add("CONV_2D", [x, w, bias], [y], "Conv2DOptions", padding=1, stride_w=1, stride_h=1)

    def reads(
        name: str, shape: tuple[int, ...], *operands: int, options: str = "", scale: float = 0.1, **fields: Any
    ) -> None:
        zero = -5 if scale == 0.1 else -128
        graph.add(name, [y, *operands], [graph.output(shape, "int8", scale=scale, zero=zero)], options, **fields)

    window = {"options": "Pool2DOptions", "filter_width": 3, "filter_height": 2}
    for padding, stride, shape in ((1, 1, (1, 8, 8, 8)), (0, 2, (1, 5, 5, 8)), (0, 1, (1, 9, 10, 8))):
        for name in ("AVERAGE_POOL_2D", "MAX_POOL_2D"):
            reads(name, shape, **window, padding=padding, stride_w=stride, stride_h=stride)
    reads("LOGISTIC", (1, 9, 10, 8), scale=1 / 256)
    reads("ADD", (1, 9, 10, 8), y, options="AddOptions")
    axes = graph.tensor((2,), "int32", np.array([1, 2], np.int32))
    reads("MEAN", (1, 8), axes, options="ReducerOptions")
    pads = graph.tensor((4, 2), "int32", np.array([[0, 0], [1, 2], [0, 1], [0, 0]], np.int32))
    reads("PAD", (1, 12, 11, 8), pads)
    size = graph.tensor((2,), "int32", np.array([18, 20], np.int32))
    reads("RESIZE_NEAREST_NEIGHBOR", (1, 18, 20, 8), size, options="ResizeNearestNeighborOptions")
    model = model_file(graph)
    given = RNG.integers(-128, 128, (1, 11, 12, 4), dtype=np.int8)
    wanted = reference(model, [given])[0]
    for (name, found), expected in zip(nnefc.compile(model).run({"t0": given}).items(), wanted, strict=True):
        np.testing.assert_array_equal(found, expected, err_msg=name)
