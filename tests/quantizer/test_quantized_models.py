"""Quantized networks as files: NNEF with `graph.quant`, ONNX with `QuantizeLinear`, and what they compute to."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from click.testing import CliRunner
from quantized_networks import integer_layers
from small_networks import Net

import nnefc
from nnefc.cli import main
from nnefc.driver import quantize_model
from nnefc.driver.formats import load_network
from nnefc.frontends.onnx.qdq_model import layers_without_a_node
from nnefc.support.diagnostics import CompileError


def small_model() -> tuple[onnx.ModelProto, str]:
    """Batch normalization, a depthwise convolution, a shortcut, a pooling, products with and without a bias."""
    net = Net(seed=3)
    x = net.floats(1, 3, 11, 11)
    a = net.do("MaxPool", net.convolution(x, 3, 20), kernel_shape=[3, 3], strides=[2, 2])
    b = net.do("Relu", net.do("Add", a, net.convolution(a, 20, 20, groups=20, relu=False)))
    c = net.do("Flatten", net.do("GlobalAveragePool", b))
    d = net.do("Relu", net.do("Gemm", c, net.weight(24, 20), net.weight(24), transB=1))
    return net.model([net.do("MatMul", d, net.weight(24, 10))]), x


def once(make: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that gives what its first call gave."""
    results: list[Any] = []

    def first(*given: Any) -> Any:
        if not results:
            results.append(make(*given))
        return results[0]

    return first


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With a model, data, and both files that are made of them."""
    position = tmp_path_factory.mktemp("quantized")
    model, x = small_model()
    onnx.save(model, position / "model.onnx")
    data = np.random.default_rng(7).standard_normal((5, 3, 11, 11), np.float32)
    np.savez(position / "data.npz", **{x: data})
    with pytest.MonkeyPatch.context() as patch:
        for name in ("plan_quantization", "_errors"):  # which compile the network several times
            patch.setattr(quantize_model, name, once(getattr(quantize_model, name)))
        for output in ("small.nnef", "small.onnx"):
            report = nnefc.quantize(position / "model.onnx", position / output, calibrate=position / "data.npz")
    assert [layer.decibels is not None for layer in report.layers] == [True] * 4
    assert 0 < next(iter(report.outputs.values())) < 0.05
    return position


def data_of(folder: Path) -> tuple[str, np.ndarray]:
    with np.load(folder / "data.npz") as arrays:
        ((name, array),) = arrays.items()
        return name, array


def test_both_files_are_computed_in_integers(folder: Path) -> None:
    assert integer_layers(load_network(folder / "small.nnef")) == 4
    assert integer_layers(load_network(folder / "small.onnx")) == 4


def test_the_files_hold_bytes(folder: Path) -> None:
    codes = [array for array in onnx.load(folder / "small.onnx").graph.initializer if array.data_type == 3]
    assert len([array for array in codes if len(array.dims) > 1]) == 4
    entries = (folder / "small.nnef" / "graph.quant").read_text()
    assert entries.count("symmetric = true") == 4
    sizes = [path.stat().st_size for path in (folder / "small.nnef").glob("*_weights.dat")]
    weights = [math.prod(array.dims) for array in codes if len(array.dims) > 1]
    assert sorted(sizes) == sorted(128 + size for size in weights)


def run_all(path: Path, data: np.ndarray) -> np.ndarray:
    with nnefc.compile(path).load() as library:
        name = library.inputs[0].name
        return np.stack([next(iter(library.run({name: one[None]}).values())) for one in data])


def test_both_files_compute_what_onnxruntime_does(folder: Path) -> None:
    """A value halfway between two steps may become either: of what the last layer reads, one step at most."""
    name, data = data_of(folder)
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(folder / "small.onnx", options)
    exact = np.stack([session.run(None, {name: one[None]})[0] for one in data])
    found = {file: run_all(folder / file, data) for file in ("small.nnef", "small.onnx")}
    np.testing.assert_array_equal(found["small.nnef"], found["small.onnx"])
    step, weights = last_layer(folder)
    assert (np.abs(found["small.nnef"] - exact) <= step * np.abs(weights).sum(0) + 1e-6).all()
    assert np.mean(np.abs(found["small.nnef"] - exact) > 1e-5) < 0.3


def last_layer(folder: Path) -> tuple[float, np.ndarray]:
    """The scale of what it reads, and its weights."""
    graph = onnx.load(folder / "small.onnx").graph
    values = {array.name: onnx.numpy_helper.to_array(array) for array in graph.initializer}
    (product,) = [node for node in graph.node if node.op_type == "MatMul"]
    made = {name: node for node in graph.node for name in node.output}
    scale, codes_scale = (values[made[name].input[1]] for name in product.input)
    return float(scale), values[made[product.input[1]].input[0]] * codes_scale


def enlarging_model() -> tuple[onnx.ModelProto, str]:
    """An image at half the size next to itself, as in U-Net."""
    net = Net(seed=5)
    x = net.floats(1, 3, 12, 12)
    a = net.convolution(x, 3, 16)
    b = net.convolution(net.do("MaxPool", a, kernel_shape=[2, 2], strides=[2, 2]), 16, 24)
    c = net.do("ConvTranspose", b, net.weight(24, 16, 2, 2, scale=0.2), net.weight(16), strides=[2, 2])
    d = net.do("Dropout", net.do("Concat", a, c, axis=1))
    return net.model([net.convolution(d, 32, 5, relu=False)]), x


@pytest.mark.parametrize("files", [("made.onnx",), pytest.param(("made.onnx", "made.nnef"), marks=pytest.mark.slow)])
@pytest.mark.slow
def test_parts_of_a_concatenation_are_stored_by_its_scale(files: tuple[str, ...], tmp_path: Path) -> None:
    model, x = enlarging_model()
    onnx.save(model, tmp_path / "model.onnx")
    data = np.random.default_rng(7).standard_normal((4, 3, 12, 12), np.float32)
    found = {}
    for file in files:
        report = nnefc.quantize(tmp_path / "model.onnx", tmp_path / file, calibrate={x: data})
        assert [layer.decibels is not None for layer in report.layers] == [True] * 4
        assert integer_layers(load_network(tmp_path / file)) == 4
        found[file] = run_all(tmp_path / file, data)
    np.testing.assert_array_equal(found[files[-1]], found["made.onnx"])
    graph = onnx.load(tmp_path / "made.onnx").graph
    values = {array.name: onnx.numpy_helper.to_array(array) for array in graph.initializer}
    read = [float(values[node.input[1]]) for node in graph.node if node.op_type == "QuantizeLinear"]
    assert len(read) == 4  # the input, what is pooled, what is enlarged, and the concatenation
    assert len(set(read)) == 3
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(tmp_path / "made.onnx", options)
    exact = np.stack([session.run(None, {x: one[None]})[0] for one in data])
    np.testing.assert_allclose(found["made.onnx"], exact, rtol=0, atol=0.02 * np.abs(exact).max())


def test_the_command_prints_what_layers_lose_and_leaves_some_in_floats(tmp_path: Path) -> None:
    net = Net(seed=3)
    x = net.floats(1, 3, 8, 8)
    pooled = net.do("Flatten", net.do("GlobalAveragePool", net.convolution(x, 3, 16)))
    model = net.model([net.do("MatMul", pooled, net.weight(16, 4))])
    name = model.graph.output[0].name
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", **{x: np.random.default_rng(7).standard_normal((5, 3, 8, 8), np.float32)})
    command = ["quantize", str(tmp_path / "model.onnx"), "-o", str(tmp_path / "other.nnef.tgz")]
    command += ["--calibrate", str(tmp_path / "data.npz"), "--per-tensor", "--method", "entropy", "--exclude", name]
    done = CliRunner().invoke(main, command)
    assert done.exit_code == 0, done.output
    assert done.output.count(" dB") == 1
    assert f"{name} " in done.output
    assert "excluded" in done.output
    assert integer_layers(load_network(tmp_path / "other.nnef.tgz")) == 1


def test_converting_a_quantized_network_keeps_its_integers(folder: Path) -> None:
    """ONNX with `QuantizeLinear` and `DequantizeLinear` becomes NNEF with entries, and computes the same."""
    nnefc.convert(folder / "small.onnx", folder / "converted.nnef")
    assert integer_layers(load_network(folder / "converted.nnef")) == 4
    assert (folder / "converted.nnef" / "graph.quant").read_text().count("symmetric = true") == 4


def test_what_cannot_be_written_is_refused(folder: Path, tmp_path: Path) -> None:
    data = folder / "data.npz"
    with pytest.raises(CompileError, match=r"is not a model of ONNX, and only those are written as .onnx"):
        nnefc.quantize(folder / "small.nnef", tmp_path / "x.onnx", calibrate=data, exclude=())
    with pytest.raises(CompileError, match="method 'mean' is none of minmax"):
        nnefc.quantize(folder / "model.onnx", tmp_path / "x.onnx", calibrate=data, method="mean")
    with pytest.raises(CompileError, match="there are no layers 'middle'"):
        nnefc.quantize(folder / "model.onnx", tmp_path / "x.onnx", calibrate=data, keep_wide=("middle",))
    with pytest.raises(CompileError, match="there is no folder"):
        nnefc.quantize(folder / "model.onnx", tmp_path / "none" / "x.onnx", calibrate=data)


def test_layers_that_took_in_a_factor_of_an_activation_are_no_nodes(tmp_path: Path) -> None:
    """A hard sigmoid scales what it reads; a bias may be made of constants by nodes of its own."""
    net = Net(seed=2)
    x = net.do("Conv", net.floats(1, 3, 8, 8), net.weight(4, 3, 1, 1))
    bias = net.do("Reshape", net.weight(4), net.constant(np.array([1, 4, 1, 1])))
    y = net.do("Add", net.do("Conv", x, net.weight(4, 4, 1, 1)), bias)
    onnx.save(net.model([net.do("HardSigmoid", y)]), tmp_path / "model.onnx")
    assert layers_without_a_node(tmp_path / "model.onnx", dict.fromkeys([x, y, "other"], False)) == ["other"]
    assert layers_without_a_node(tmp_path / "model.onnx", {"v4": False}) == ["v4"]
