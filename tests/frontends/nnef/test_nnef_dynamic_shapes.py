"""NNEF documents that leave sizes of inputs open: one library for all sizes, compared with onnxruntime and NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import nnef_reference as reference
import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc.frontends.nnef.files.tensor_file import write_tensor
from nnefc.loader import RunError
from nnefc.support.diagnostics import CompileError, ModelWarning

RNG = np.random.default_rng(5)


def real(*shape: int) -> np.ndarray:
    return (RNG.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


def model(folder: Path, text: str, values: Mapping[str, np.ndarray] | None = None) -> Path:
    """A model of a graph `g(x) -> (y)`, with files for its variables."""
    head = "version 1.0;\nextension KHR_enable_operator_expressions;\nextension KHR_enable_fragment_definitions;\n"
    (folder / "graph.nnef").write_text(head + text)
    for label, value in (values or {}).items():
        write_tensor(folder / f"{label}.dat", value)
    return folder


@pytest.mark.slow
def test_a_convolutional_network_takes_any_batch_and_image(tmp_path: Path) -> None:
    text = """graph g(x) -> (y)
    {
        x = external(shape = [0, 3, 0, 0]);
        k = variable(shape = [8, 3, 3, 3], label = 'k');
        l = variable(shape = [8, 8, 3, 3], label = 'l');
        w = variable(shape = [5, 8], label = 'w');
        c = relu(conv(x, k, stride = [2, 2], padding = [(1, 1), (1, 1)]));
        m = max_pool(c, size = [1, 1, 3, 3], stride = [1, 1, 2, 2], border = 'ignore',
                     padding = [(0, 0), (0, 0), (1, 1), (1, 1)]);
        d = conv(m, l);
        s = sigmoid(d) * d + m;
        p = mean_reduce(s, axes = [2, 3]);
        y = matmul(squeeze(p, axes = [2, 3]), w, transposeB = true);
    }"""
    values = {"k": real(8, 3, 3, 3), "l": real(8, 8, 3, 3), "w": real(5, 8)}
    nodes = [
        helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1], strides=[2, 2]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("MaxPool", ["r"], ["m"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Conv", ["m", "l"], ["d"], pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["d"], ["i"]),
        helper.make_node("Mul", ["i", "d"], ["e"]),
        helper.make_node("Add", ["e", "m"], ["s"]),
        helper.make_node("GlobalAveragePool", ["s"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("Gemm", ["f", "w"], ["y"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, "h", "w_"])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(value, name) for name, value in values.items()],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    artifact = nnefc.compile(model(tmp_path, text, values))
    assert str(artifact.inputs[0]) == "x: float32[x_0, 3, x_2, x_3]"
    assert str(artifact.outputs[0]) == "y: float32[x_0, 5]"
    with artifact.load(threads=1) as library:
        for shape in ((1, 3, 32, 32), (3, 3, 17, 90), (2, 3, 5, 4)):
            x = RNG.standard_normal(shape).astype(np.float32)
            np.testing.assert_allclose(library(x), session.run(None, {"x": x})[0], rtol=1e-4, atol=1e-5)


def test_documents_compute_with_the_shapes_of_tensors(tmp_path: Path) -> None:
    """`shape_of` in a fragment, and what the document calculates of it, follow the input."""
    text = """fragment split_in_two(x: tensor<scalar>) -> (y: tensor<scalar>)
    {
        s = shape_of(x);
        n = s[0] * 2 if length_of(s) == 2 else 1;
        y = reshape(x, shape = [n, s[1] / 2]);
    }
    graph g(x) -> (y)
    {
        x = external(shape = [0, 6]);
        a = split_in_two(x);
        y = concat([a, sqrt(abs(a))], axis = 1) * 2.0;
    }"""
    with nnefc.compile(model(tmp_path, text)).load(threads=1) as library:
        for rows in (1, 5, 40):
            x = RNG.standard_normal((rows, 6)).astype(np.float32)
            a = x.reshape(2 * rows, 3)
            np.testing.assert_allclose(library(x), np.concatenate([a, np.sqrt(abs(a))], 1) * 2, rtol=1e-6)


def test_automatic_padding_of_dynamic_sizes(tmp_path: Path) -> None:
    """Without steps, or where sizes are multiples of them, it is the same for all sizes."""
    text = """graph g(x) -> (y)
    {
        x = external(shape = [1, 1, 0, 0]);
        k = variable(shape = [1, 1, 3, 3], label = 'k');
        y = conv(x, k, stride = [2, 2]);
    }"""
    path = model(tmp_path, text, {"k": real(1, 1, 3, 3)})
    known = {"x": (1, 1, 8, 14)}
    x = RNG.standard_normal(known["x"]).astype(np.float32)
    with nnefc.compile(path, shape={"x": (1, 1, "2..:2", "2..64:2")}).load(threads=1) as library:
        np.testing.assert_allclose(library(x), nnefc.compile(path, shape=known).run({"x": x})["y"], rtol=1e-5)
        with pytest.raises(RunError, match="multiples of 2"):
            library(np.zeros((1, 1, 7, 8), np.float32))


def test_automatic_padding_takes_sizes_that_are_no_multiples_of_the_steps(tmp_path: Path) -> None:
    """As much padding as each size needs, odd amounts too."""
    text = """graph g(x) -> (y, a, b)
    {
        x = external(shape = [1, 1, 0, 0]);
        k = variable(shape = [1, 1, 3, 3], label = 'k');
        y = conv(x, k, stride = [3, 2], dilation = [1, 2]);
        a = avg_pool(x, size = [1, 1, 2, 3], stride = [1, 1, 2, 2], border = 'ignore');
        b = box(x, size = [1, 1, 4, 3], stride = [1, 1, 3, 2], border = 'constant');
    }"""
    k = real(1, 1, 3, 3)
    path = model(tmp_path, text, {"k": k})
    with nnefc.compile(path).load(threads=1) as library:
        for shape in ((1, 1, 7, 9), (1, 1, 5, 12)):
            x = RNG.standard_normal(shape).astype(np.float32)
            wanted = {
                "y": reference.conv(x, k, stride=[3, 2], dilation=[1, 2]),
                "a": reference.box(x, [1, 1, 2, 3], stride=[1, 1, 2, 2], border="ignore", normalize=True),
                "b": reference.box(x, [1, 1, 4, 3], stride=[1, 1, 3, 2]),
            }
            for name, found in library.run({"x": x}).items():
                np.testing.assert_allclose(found, wanted[name], rtol=1e-4, atol=1e-5)


def test_inputs_whose_sizes_must_be_equal_have_one_dimension(tmp_path: Path) -> None:
    text = """graph g(x, z) -> (y)
    {
        x = external(shape = [0, 4]);
        z = external(shape = [0, 4]);
        y = concat([x, z], axis = 1);
    }"""
    with nnefc.compile(model(tmp_path, text)).load(threads=1) as library:
        one = np.ones((3, 4), np.float32)
        np.testing.assert_array_equal(library(one, one), np.ones((3, 8)))
        with pytest.raises(RunError, match="both are the same"):
            library(one, np.ones((2, 4), np.float32))


def test_sizes_that_only_one_number_fits_are_that_number(tmp_path: Path) -> None:
    text = "graph g(x) -> (y) { x = external(shape = [0, 4]); y = reshape(x, shape = [8]); }"
    with pytest.warns(ModelWarning, match="the size of 'x_0' must be 2"):
        assert nnefc.compile(model(tmp_path, text)).inputs[0].shape == (2, 4)


def test_what_must_be_known_is_reported_with_the_location_and_the_option(tmp_path: Path) -> None:
    text = "graph g(x) -> (y) { x = external(shape = [0, 4]); y = tile(x, repeats = [1, 1 / (2 - shape_of(x)[0])]); }"
    with pytest.raises(CompileError, match=r"(?s)graph.nnef:4:.*--shape x=1,4"):
        nnefc.compile(model(tmp_path, text))


@pytest.mark.parametrize(
    "condition", ["shape_of(x)[0] == 3", "shape_of(x)[0] != 3", "[shape_of(x)[0]] == [3]", "shape_of(x)[0] in [3, 5]"]
)
def test_dynamic_sizes_are_not_taken_to_differ_from_all_others(condition: str, tmp_path: Path) -> None:
    text = f"graph g(x) -> (y) {{ x = external<scalar>(shape = [0, 2]); y = x if {condition} else exp(x); }}"
    with pytest.raises(CompileError, match="depends on a size that is known when the network runs: give it with"):
        nnefc.compile(model(tmp_path, text))
    x = real(3, 2)
    wanted = np.exp(x) if "!=" in condition else x
    made = nnefc.compile(tmp_path, shape={"x": (3, 2)}).run({"x": x})["y"]
    np.testing.assert_allclose(made, wanted, rtol=1e-6)


@pytest.mark.parametrize("condition", ["N > 3", "!(N == 3)", "!(N > 3)"])
def test_conditions_on_symbols_of_tract_are_no_constants(condition: str, tmp_path: Path) -> None:
    head = "version 1.0;\nextension tract_registry tract_core;\nextension tract_symbol N;\n"
    text = f"graph g(x) -> (y) {{ x = external<scalar>(shape = [N, 2]); y = x if {condition} else exp(x); }}"
    (tmp_path / "graph.nnef").write_text(head + text)
    with pytest.raises(CompileError, match="is known when the network runs, but is needed when it is compiled"):
        nnefc.compile(tmp_path)
    for count in (3, 4):
        x = real(count, 2)
        holds = {"N > 3": count > 3, "!(N == 3)": count != 3, "!(N > 3)": count <= 3}[condition]
        made = nnefc.compile(tmp_path, shape={"N": count}).run({"x": x})["y"]
        np.testing.assert_allclose(made, x if holds else np.exp(x), rtol=1e-6)


def test_sizes_next_to_dynamic_ones_may_be_expressions(tmp_path: Path) -> None:
    text = "graph g(x) -> (y) {{ x = external<scalar>(shape = [{}, 0]); y = relu(x); }}"
    artifact = nnefc.compile(model(tmp_path, text.format("2 * (3 + 1)")))
    assert [tensor.shape for tensor in artifact.inputs] == [(8, "x_1")]
    with pytest.raises(CompileError):
        nnefc.compile(model(tmp_path, text.format("length_of([1, 2, 3])")))
