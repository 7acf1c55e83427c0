"""Networks quantized by what their inputs look like: their layers, how exact they are, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from quantized_networks import integer_layers
from small_networks import Net

import nnefc
from nnefc.driver.artifact import Artifact
from nnefc.driver.compile import compile_network
from nnefc.driver.formats import load_network
from nnefc.ir.dataflow import bindings_of
from nnefc.ir.network import Network
from nnefc.passes.graph.rewriter import is_call
from nnefc.quantizer.calibration import samples_of
from nnefc.quantizer.equalization import equalized, has_pairs, with_values
from nnefc.quantizer.layers import Layer, LayerGraph
from nnefc.quantizer.plan import Read, planned, tensors_read
from nnefc.quantizer.quantize import (
    QuantizationOptions,
    QuantizationPlan,
    _Planner,
    input_types,
    plan_quantization,
    quantized,
    simplified,
)
from nnefc.quantizer.ranges import METHODS, Histogram, ValueRange, grid_of_range
from nnefc.support.diagnostics import CompileError
from nnefc.targets.description.library import TensorDescription
from nnefc.targets.machine.cpu.parsing import parse_target

HOST = parse_target("llvm")
DIGITS = Path(__file__).parents[2] / "examples" / "digits"

compiled = partial(compile_network, target=HOST)


@cache
def model() -> tuple[bytes, str]:
    """A convolution, a bottleneck with a shortcut, a pooling and a classifier; and its input's name."""
    net = Net(seed=3)
    x = net.floats(1, 3, 17, 17)
    a = net.do("MaxPool", net.convolution(x, 3, 24), kernel_shape=[3, 3], strides=[2, 2])
    b = net.convolution(a, 24, 40, size=1)
    b = net.convolution(b, 40, 40, groups=40)
    b = net.convolution(b, 40, 24, size=1, relu=False)
    c = net.do("Relu", net.do("Add", a, b))
    d = net.convolution(net.do("Concat", c, a, axis=1), 48, 32)
    e = net.do("Flatten", net.do("GlobalAveragePool", d))
    made = net.model([net.do("Gemm", e, net.weight(32, 10), net.weight(10))])
    return made.SerializeToString(), x


def inputs(runs: int, *shape: int, seed: int = 0) -> dict[str, np.ndarray]:
    return {model()[1]: np.random.default_rng(seed).standard_normal((runs, *shape), np.float32)}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("model") / "model.onnx"
    file.write_bytes(model()[0])
    return file


@pytest.fixture(scope="module")
def network(path: Path) -> Network:
    return load_network(path)


def plan_of(network: Network, options: QuantizationOptions, runs: int = 6) -> QuantizationPlan:
    samples = samples_of(inputs(runs, 3, 17, 17), input_types(network))
    return plan_quantization(network, samples, options, compiled)


@pytest.fixture(scope="module")
def plan(network: Network) -> QuantizationPlan:
    return plan_of(network, QuantizationOptions())


def results(made: Network | Artifact, given: dict[str, np.ndarray]) -> np.ndarray:
    with (compiled(made) if isinstance(made, Network) else made).load() as library:
        return np.concatenate([next(iter(library.run(one).values())) for one in samples_of(given, library.inputs)])


@pytest.fixture(scope="module")
def floats(network: Network) -> Artifact:
    return compiled(network)


@pytest.fixture(scope="module")
def integers(network: Network, plan: QuantizationPlan) -> Artifact:
    return compiled(quantized(network, plan))


def noise(found: np.ndarray, exact: np.ndarray) -> float:
    """The root of the mean square of the differences, over that of the results."""
    return float(np.sqrt(np.mean((found - exact) ** 2) / np.mean(exact**2)))


def test_all_layers_are_computed_in_integers(network: Network, plan: QuantizationPlan) -> None:
    assert len(plan.layers) == 6
    assert integer_layers(quantized(network, plan)) == 6
    assert all(each.decibels is not None and each.decibels > 25 for each in plan.noise)


def test_results_are_near_those_of_floats(floats: Artifact, integers: Artifact) -> None:
    data = inputs(4, 3, 17, 17, seed=1)
    assert noise(results(integers, data), results(floats, data)) < 0.05


def test_layers_stay_in_floats_by_name_and_by_position(tmp_path: Path) -> None:
    net = Net(seed=8)
    x = y = net.floats(1, 3, 7, 7)
    for inputs, outputs in ((3, 6), (6, 6), (6, 6), (6, 4)):
        y = net.convolution(y, inputs, outputs, size=1)
    onnx.save(net.model([y]), tmp_path / "model.onnx")
    network = load_network(tmp_path / "model.onnx")
    name = LayerGraph(simplified(network).module).layers[1].name
    options = QuantizationOptions(
        method="percentile", per_channel=False, exclude=(name,), keep_wide=("last",), equalize=False, correct=False
    )
    data = {x: np.random.default_rng(0).standard_normal((2, 3, 7, 7), np.float32)}
    found = plan_quantization(network, samples_of(data, input_types(network)), options, compiled)
    assert [each.reason for each in found.noise] == ["", "excluded", "", "kept wide"]
    assert integer_layers(quantized(network, found)) == 2


def test_what_only_moves_elements_is_stored_as_integers(network: Network, plan: QuantizationPlan) -> None:
    """The pooling between the first layers is of bytes: they are quantized before it."""
    module = quantized(network, plan).module
    calls = [binding.value for binding in bindings_of(module["main"])]
    definitions = {b.var: b.value for b in bindings_of(module["main"])}
    (pool,) = [call for call in calls if is_call(call, "nn.max_pool2d")]
    assert is_call(definitions[pool.args[0]], "dequantize")


def test_a_part_of_which_a_concatenation_has_only_the_maxima_keeps_its_values(tmp_path: Path) -> None:
    net = Net(seed=4)
    x, other = net.floats(1, 4, 8, 8), net.floats(1, 4, 4, 4)
    added = net.do("Add", x, net.constant(np.ones((), np.float32)))
    wide = net.do("Conv", x, net.weight(4, 4, 1, 1))
    joined = net.do("Concat", net.do("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2]), other, axis=1)
    onnx.save(net.model([net.do("Conv", joined, net.weight(4, 8, 1, 1)), added, wide]), tmp_path / "model.onnx")
    data = {name: np.stack([array[0]] * 2) for name, array in net.inputs.items()}
    data[x] = data[x] - 3
    data[x][:, :, ::2, ::2] = 1  # the maxima
    network = load_network(tmp_path / "model.onnx")
    name = LayerGraph(simplified(network).module).layers[0].name
    options = QuantizationOptions(exclude=(name,))
    plan = plan_quantization(network, samples_of(data, input_types(network)), options, compiled)
    assert [each.decibels is None for each in plan.noise] == [True, False]
    with compiled(quantized(network, plan)).load() as library:
        found = library.run({name: array[:1] for name, array in data.items()})
    np.testing.assert_array_equal(found[added], data[x][:1] + 1)


def test_a_concatenation_within_another_is_stored_with_its_parts_by_one_scale(tmp_path: Path) -> None:
    net = Net(seed=4)
    a, b, c = (net.do("Relu", net.floats(1, 2, 4, 4)) for _ in range(3))
    inner = net.do("Concat", a, b, axis=1)
    outer = net.do("Concat", inner, c, axis=1)
    ends = [net.do("Conv", outer, net.weight(3, 6, 1, 1)), net.do("Conv", inner, net.weight(3, 4, 1, 1))]
    onnx.save(net.model([*ends, net.do("Add", a, b)]), tmp_path / "model.onnx")
    graph = LayerGraph(load_network(tmp_path / "model.onnx").module)
    first, last = graph.layers
    assert list(graph.parts) == [first.data, last.data]
    read = Read(np.float32(0.1), 0)
    plans = [planned(first, read, None, per_channel=True), planned(last, None, None, per_channel=True)]
    assert len(graph.parts[last.data]) == 2
    assert tensors_read(graph, plans)[0] == dict.fromkeys([first.data, last.data, *graph.parts[last.data]], read)


def test_parts_of_a_concatenation_that_only_its_maxima_are_read_of_are_not_stored_by_their_scale(
    tmp_path: Path,
) -> None:
    net = Net(seed=4)
    a, b, c = net.floats(1, 2, 8, 8), net.floats(1, 2, 8, 8), net.floats(1, 2, 4, 4)
    pooled = net.do("MaxPool", net.do("Concat", a, b, axis=1), kernel_shape=[2, 2], strides=[2, 2])
    end = net.do("Conv", net.do("Concat", pooled, c, axis=1), net.weight(3, 6, 1, 1))
    onnx.save(net.model([end, net.do("Add", a, b)]), tmp_path / "model.onnx")
    graph = LayerGraph(load_network(tmp_path / "model.onnx").module)
    (layer,) = graph.layers
    read = Read(np.float32(0.1), 0)
    assert tensors_read(graph, [planned(layer, read, None, per_channel=True)])[0] == {layer.data: read}


def test_networks_of_dynamic_sizes(tmp_path: Path) -> None:
    net = Net(seed=4)
    x = net.convolution(net.convolution(net.floats(1, 3, 17, 17), 3, 16), 16, 16, groups=16)
    made = net.model([x])
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    made.graph.output[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    onnx.save(made, tmp_path / "open.onnx")
    data = inputs(12, 3, 17, 17)
    artifact = nnefc.compile(tmp_path / "open.onnx", precision="int8", calibrate=data, specialize=[{"batch": 2}])
    wide = nnefc.compile(tmp_path / "open.onnx")
    with artifact.load() as narrow, wide.load() as exact:
        for size in (1, 2, 5):
            one = {name: value[:size] for name, value in data.items()}
            (found,), (wanted,) = narrow.run(one).values(), exact.run(one).values()
            assert noise(found, wanted) < 0.05


def random_range(layer: Layer) -> ValueRange:
    """What might have been seen of a tensor that a layer reads."""
    count = layer.weights.shape[0] if layer.is_product else layer.weights.shape[1] * layer.groups
    return ValueRange(np.zeros(count), np.random.default_rng(count).uniform(0.01, 5, count))


@pytest.mark.slow
def test_equalized_channels_have_the_same_results(network: Network, floats: Artifact) -> None:
    simple = simplified(network)
    graph = LayerGraph(simple.module)
    assert has_pairs(graph)
    ranges = {layer.data: random_range(layer) for layer in graph.layers}
    data = inputs(2, 3, 17, 17)
    exact = results(floats, data)
    for per_channel in (True, False):
        values = equalized(graph, ranges, per_channel)
        assert len(values.weights) == 3  # of the bottleneck, whose layers follow each other
        changed = replace(simple, module=with_values(simple.module, values))
        np.testing.assert_allclose(results(changed, data), exact, rtol=1e-4, atol=1e-4)


def test_channels_are_not_equalized_through_what_does_not_multiply_with_factors(tmp_path: Path) -> None:
    net = Net(seed=6)
    first = x = net.convolution(net.floats(1, 3, 9, 9), 3, 16, relu=False)
    for between in ("Tanh", "Add", "Sigmoid", "Elu", "Add"):
        x = net.do(between, *[x, first][: 1 + (between == "Add")])
        x = net.convolution(x, 16, 16, relu=False)
    onnx.save(net.model([x]), tmp_path / "model.onnx")
    graph = LayerGraph(simplified(load_network(tmp_path / "model.onnx")).module)
    assert len(graph.layers) == 6
    assert not has_pairs(graph)


@pytest.mark.parametrize("per_channel", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_ranges_of_an_equalized_network_are_those_that_runs_of_it_have(network: Network, per_channel: bool) -> None:
    samples = samples_of(inputs(3, 3, 17, 17), input_types(network))
    planner = _Planner(simplified(network), samples, QuantizationOptions(per_channel=per_channel), compiled)
    before = planner._ranges()
    found, seen = planner._equalized(before), planner._ranges()
    assert found.keys() == seen.keys() != before.keys()
    for var, ranges in seen.items():
        for one, other in zip(found[var], ranges, strict=True):
            np.testing.assert_allclose((one.low.min(), one.high.max()), (other.low.min(), other.high.max()), rtol=1e-4)
        np.testing.assert_allclose(found[var][1].high, ranges[1].high, rtol=1e-4, atol=1e-5)


def test_equalized_weights_have_the_same_range_on_both_sides(network: Network) -> None:
    graph = LayerGraph(simplified(network).module)
    ranges = {layer.data: random_range(layer) for layer in graph.layers}
    values = equalized(graph, ranges, per_channel=False)
    one, two = (layer for layer in graph.layers if layer.var in values.weights and layer.weights.shape[-1] == 1)
    outputs = np.abs(values.weights[one.var]).max((1, 2, 3))
    inner = np.abs(values.weights[next(v for v in values.weights if v not in (one.var, two.var))]).max((1, 2, 3))
    ratio = outputs / inner
    np.testing.assert_allclose(ratio, ratio[0], rtol=1e-2)


@pytest.mark.slow
def test_a_corrected_bias_takes_the_mean_error_away(
    network: Network, plan: QuantizationPlan, floats: Artifact, integers: Artifact
) -> None:
    """Of the last layer, compared with the same plan with the biases that the network has."""
    data = inputs(6, 3, 17, 17)
    simple = LayerGraph(simplified(network).module)
    own = [replace(each, bias=layer.bias) for layer, each in zip(simple.layers, plan.layers, strict=True)]
    exact = results(floats, data).mean(0)
    errors = [
        np.abs(results(made, data).mean(0) - exact).mean()
        for made in (integers, quantized(network, replace(plan, layers=tuple(own))))
    ]
    assert errors[0] < errors[1]


@pytest.mark.parametrize("method", METHODS)
def test_ranges_of_outliers(method: str) -> None:
    """One value in 100,000 is far out: all methods but minmax leave it out."""
    values = np.abs(np.random.default_rng(0).standard_normal(100_000)).astype(np.float32)
    values[7] = 60
    histogram = Histogram(0.0, 60.0)
    histogram.add(values)
    low, high = METHODS[method](histogram)
    assert low == 0
    assert high == 60 if method == "minmax" else 2.5 < high < 12


def test_a_grid_has_zero_in_it() -> None:
    for low, high in ((0.0, 3.0), (-1.0, 2.5), (-4.0, 0.0), (0.0, 0.0)):
        scale, zero = grid_of_range(low, high)
        assert 0 <= zero <= 255
        assert (255 - zero) * scale >= high - scale
        assert -zero * scale <= low + scale


@pytest.mark.parametrize("method", ["minmax", pytest.param("percentile", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_digits_in_integers(method: str) -> None:
    test = np.load(DIGITS / "test.npz")
    images = test["images"].astype(np.float32) / 16
    artifact = nnefc.compile(DIGITS / "model.nnef", precision="int8", calibrate={"image": images[:64]}, method=method)
    with artifact.load() as library:
        found = [next(iter(library.run({"image": image[None]}).values())).argmax() for image in images]
    assert np.mean(np.array(found) == test["labels"]) >= 0.98


def test_what_is_no_batch_is_one_run() -> None:
    def runs(**shapes: tuple[str | int, ...]) -> int:
        given = [TensorDescription(name, "float32", shape) for name, shape in shapes.items()]
        arrays = {name: np.zeros((64, 3)[: len(shape)], np.float32) for name, shape in shapes.items()}
        return samples_of(arrays, given).runs

    assert runs(x=("n", 3)) == runs(x=("n", 3), mask=("n",)) == 8
    assert runs(audio=("n",)) == runs(x=("n", 3), y=("m", 3)) == 1


@pytest.mark.parametrize(
    ("change", "message", "way_out"),
    [
        (lambda d: {"other": d}, "no values of the input", "it has ['other']"),
        (lambda d: {model()[1]: np.where(d > 2, np.nan, d)}, "not all finite: nan at", "scales of all tensors"),
        (lambda d: {model()[1]: np.where(d > 2, 1e39, np.float64(0))}, "not all finite: 1e+39 at", "scales of all"),
        (lambda d: {model()[1]: d[:0]}, "has no values", "typical"),
        (lambda d: {model()[1]: d[:, :, :5]}, "not those of the inputs", "float32[1, 3, 17, 17]"),
        (lambda d: None, "needs data", "--calibrate"),
    ],
)
def test_data_that_do_not_fit_are_refused(path: Path, change, message: str, way_out: str) -> None:
    with pytest.raises(CompileError) as caught:
        nnefc.compile(path, precision="int8", calibrate=change(inputs(3, 3, 17, 17)[model()[1]]))
    assert message in str(caught.value)
    assert way_out in str(caught.value)


def test_layers_that_there_are_none_of_are_refused(network: Network, tmp_path: Path) -> None:
    with pytest.raises(CompileError, match="no layer 'w1'"):
        plan_of(network, QuantizationOptions(exclude=("w1",)))
    net = Net(seed=1)
    onnx.save(net.model([net.do("Relu", net.floats(1, 4))]), tmp_path / "relu.onnx")
    with pytest.raises(CompileError, match="nothing to quantize"):
        nnefc.compile(tmp_path / "relu.onnx", precision="int8", calibrate={"input0": np.ones((2, 4), np.float32)})
    for given in ({"calibrate": {"input0": np.ones((2, 4), np.float32)}}, {"method": "entropy"}):
        with pytest.raises(CompileError, match="calibrate and method for precision auto and int8"):
            nnefc.compile(tmp_path / "relu.onnx", **given)
