"""Quantized networks: as the quantizer writes them, computed in integers and in reals."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from exact_products import HAS_EXACT_PRODUCTS
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import (
    CalibrationDataReader,
    QuantFormat,
    QuantType,
    quantize_dynamic,
    quantize_static,
)
from pass_runs import module_after, optimized
from relax_programs import network_of, program, summary

import nnefc
from nnefc.backends import backend_of
from nnefc.driver.formats import load_network
from nnefc.passes.graph.quantized.compute_in_integers import compute_in_integers
from nnefc.targets.machine.cpu.parsing import parse_target

HOST = parse_target("llvm")


class Graph:
    """A graph in the making, with random weights."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.initializers: list[onnx.TensorProto] = []

    def node(self, op: str, *inputs: str, **attributes: object) -> str:
        name = f"{op.lower()}{len(self.nodes)}"
        self.nodes.append(helper.make_node(op, inputs, [name], name=name, **attributes))
        return name

    def array(self, value: np.ndarray) -> str:
        name = f"w{len(self.initializers)}"
        self.initializers.append(numpy_helper.from_array(value, name))
        return name

    def weight(self, *shape: int) -> str:
        spread = self.random.uniform(0.3, 1.5, (shape[0], *[1] * (len(shape) - 1)))  # so that channels differ
        fan = max(int(np.prod(shape[1:])), 1)
        return self.array((self.random.standard_normal(shape) * spread / np.sqrt(fan)).astype(np.float32))

    def conv(self, x: str, inputs: int, outputs: int, size: int, groups: int = 1, **attributes: object) -> str:
        filters, bias = self.weight(outputs, inputs // groups, size, size), self.weight(outputs)
        return self.node("Conv", x, filters, bias, group=groups, kernel_shape=[size, size], **attributes)

    def deconv(self, x: str, inputs: int, outputs: int, size: list[int], groups: int = 1, **attributes: object) -> str:
        filters, bias = self.weight(inputs, outputs // groups, *size), self.weight(outputs)
        return self.node("ConvTranspose", x, filters, bias, group=groups, kernel_shape=size, **attributes)

    def rounded(self, x: str, step: float, zero: int) -> str:
        grid = self.array(np.float32(step)), self.array(np.uint8(zero))
        return self.node("DequantizeLinear", self.node("QuantizeLinear", x, *grid), *grid)

    def model(self, shape: tuple[int, ...], output: str) -> onnx.ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
            [helper.make_tensor_value_info(output, TensorProto.FLOAT, None)],
            self.initializers,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        return onnx.shape_inference.infer_shapes(model)


def images(seed: int) -> onnx.ModelProto:
    """Residual blocks, depthwise and grouped filters, every kind of pooling, parts and their concatenation."""
    g = Graph(seed)
    a = g.node("Relu", g.conv("x", 3, 19, 3, pads=[1, 1, 1, 1], strides=[2, 2]))
    a = g.node("MaxPool", a, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    b = g.node("Clip", g.conv(a, 19, 19, 3, 19, pads=[1, 1, 1, 1]), g.array(np.float32(0)), g.array(np.float32(6)))
    c = g.node("Add", a, g.conv(b, 19, 19, 1))
    d = g.node("Relu", g.node("Add", g.conv(c, 19, 32, 1), g.conv(c, 19, 32, 3, pads=[1, 1, 1, 1])))
    e = g.node("Concat", d, g.conv(d, 32, 16, 3, 4, pads=[1, 1, 1, 1]), axis=1)
    f = g.node("AveragePool", e, kernel_shape=[2, 2], strides=[1, 1])
    f = g.node("Mul", f, g.node("Sigmoid", f))
    h = g.node("Transpose", g.node("Reshape", f, g.array(np.array([1, 4, 12, -1]))), perm=[0, 2, 1, 3])
    h = g.node("Reshape", h, g.array(np.array([1, 48, 7, 7])))
    i = g.node("Flatten", g.node("GlobalAveragePool", g.node("LeakyRelu", h, alpha=0.1)))
    return g.model((1, 3, 32, 32), g.node("Gemm", i, g.weight(10, 48), g.weight(10), transB=1))


def shuffles(seed: int) -> onnx.ModelProto:
    """Units of both kinds of ShuffleNet; 17 channels of a group are no whole number of dot operands."""
    g = Graph(seed)

    def shuffled(x: str, groups: int) -> str:
        apart = g.node("Reshape", x, g.array(np.array([1, groups, 68 // groups, -1])))
        return g.node("Reshape", g.node("Transpose", apart, perm=[0, 2, 1, 3]), g.array(np.array([1, 68, 8, 8])))

    a = g.node("Relu", g.conv("x", 3, 24, 3, pads=[1, 1, 1, 1], strides=[2, 2]))
    b = g.node("Relu", g.conv(a, 24, 68, 1, 4))
    c = g.conv(shuffled(b, 4), 68, 68, 3, 68, pads=[1, 1, 1, 1])
    d = g.node("Relu", g.node("Add", b, g.conv(c, 68, 68, 1, 4)))
    left, right = (
        g.node("Slice", shuffled(d, 2), *(g.array(np.array([n])) for n in (begin, begin + 34, 1))) for begin in (0, 34)
    )
    e = g.node("Concat", left, g.node("Relu", g.conv(right, 34, 34, 1)), axis=1)
    f = g.node("Flatten", g.node("GlobalAveragePool", g.node("Relu", g.conv(shuffled(e, 2), 68, 20, 1))))
    return g.model((1, 3, 16, 16), g.node("Gemm", f, g.weight(10, 20), g.weight(10), transB=1))


def sequences(seed: int) -> onnx.ModelProto:
    """A layer of attention with its normalization."""
    g, width, heads, tokens = Graph(seed), 24, 3, 9
    apart, together = g.array(np.array([1, tokens, heads, width // heads])), g.array(np.array([1, tokens, width]))

    def dense(x: str, inputs: int, outputs: int) -> str:
        return g.node("Add", g.node("MatMul", x, g.weight(inputs, outputs)), g.weight(outputs))

    query, key, value = (g.node("Reshape", dense("x", width, width), apart) for _ in range(3))
    query, value = (g.node("Transpose", part, perm=[0, 2, 1, 3]) for part in (query, value))
    scores = g.node("MatMul", query, g.node("Transpose", key, perm=[0, 2, 3, 1]))
    weights = g.node("Softmax", g.node("Div", scores, g.array(np.float32(2.8))), axis=-1)
    mixed = g.node("Reshape", g.node("Transpose", g.node("MatMul", weights, value), perm=[0, 2, 1, 3]), together)
    x = g.node("Add", "x", dense(mixed, width, width))
    x = g.node("LayerNormalization", x, g.weight(width), g.weight(width))
    x = g.node("Add", x, dense(g.node("Relu", dense(x, width, 50)), 50, width))
    return g.model((1, tokens, width), x)


def rows(seed: int) -> onnx.ModelProto:
    """Layers of each row by itself."""
    g, width = Graph(seed), 24
    a = g.node("Relu", g.node("Add", g.node("MatMul", "x", g.weight(width, 40)), g.weight(40)))
    b = g.node("Erf", g.node("Div", a, g.array(np.float32(1.5))))
    c = g.node("Mul", g.node("Mul", a, b), g.array(np.float32(0.5)))
    return g.model((3, width), g.node("Gemm", c, g.weight(10, 40), g.weight(10), transB=1))


class Samples(CalibrationDataReader):  # type: ignore[misc]
    """Random data to find ranges with."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        random = np.random.default_rng(5)
        self._left: Iterator[np.ndarray] = iter(random.standard_normal((4, *shape), np.float32))

    def get_next(self) -> dict[str, np.ndarray] | None:
        sample = next(self._left, None)
        return None if sample is None else {"x": sample}


Network = Callable[[int], onnx.ModelProto]


def quantized(
    folder: Path, make: Network, form: str, activations: str = "QUInt8", weights: str = "QInt8", by_channel: bool = True
) -> Path:
    source, result = folder / "source.onnx", folder / "quantized.onnx"
    model = make(3)
    onnx.save(model, source)
    narrow = weights == "QInt8" and activations == "QUInt8" and not HAS_EXACT_PRODUCTS  # else onnxruntime saturates
    logging.disable(logging.WARNING)  # the quantizer advises to simplify the model first
    try:
        if form == "dynamic":
            quantize_dynamic(
                source, result, per_channel=by_channel, reduce_range=narrow, weight_type=QuantType[weights]
            )
        else:
            shape = tuple(d.dim_value for d in model.graph.input[0].type.tensor_type.shape.dim)
            quantize_static(
                source,
                result,
                Samples(shape),
                quant_format=QuantFormat[form],
                per_channel=by_channel,
                reduce_range=narrow,
                activation_type=QuantType[activations],
                weight_type=QuantType[weights],
                extra_options={"ActivationSymmetric": activations == "QInt8" and not by_channel},
            )
    finally:
        logging.disable(logging.NOTSET)
    return result


def sample_of(path: Path) -> dict[str, np.ndarray]:
    info = onnx.load(path).graph.input[0]
    shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
    return {"x": np.random.default_rng(8).standard_normal(shape, np.float32)}


def by_onnxruntime(path: Path, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    options = onnxruntime.SessionOptions()
    # Each node by itself: else onnxruntime rewrites quantized networks too.
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return list(session.run(None, dict(feeds)))


def by_nnefc(path: Path, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    with nnefc.compile(path).load() as model:
        return list(model.run(feeds).values())


def step_of(path: Path) -> float:
    """One step of the quantized result: the scale of the node that makes it."""
    model = onnx.load(path)
    values = {tensor.name: numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
    last = next(node for node in model.graph.node if model.graph.output[0].name in node.output)
    return float(values[last.input[1]]) if last.op_type == "DequantizeLinear" else 0.0


@pytest.mark.parametrize(
    ("make", "form", "activations", "weights", "by_channel"),
    [
        (images, "QOperator", "QUInt8", "QUInt8", False),
        (shuffles, "QDQ", "QInt8", "QInt8", True),
        *(
            pytest.param(*given, marks=pytest.mark.slow)
            for given in (
                (images, "QDQ", "QUInt8", "QInt8", True),
                (images, "QDQ", "QInt8", "QInt8", False),
                (shuffles, "QDQ", "QUInt8", "QInt8", True),
            )
        ),
        pytest.param(sequences, "QDQ", "QInt8", "QInt8", True, marks=pytest.mark.slow),
        (sequences, "QOperator", "QUInt8", "QInt8", True),
    ],
)
@pytest.mark.sample(1)
def test_quantized_networks_agree_with_onnxruntime(
    tmp_path: Path, make: Network, form: str, activations: str, weights: str, by_channel: bool
) -> None:
    path = quantized(tmp_path, make, form, activations, weights, by_channel)
    feeds = sample_of(path)
    (wanted,), (made,) = by_onnxruntime(path, feeds), by_nnefc(path, feeds)
    # Single steps may be rounded otherwise in each of the layers, and are carried on by the next ones.
    assert np.abs(made - wanted).max() <= 4 * step_of(path) + 1e-4
    assert np.abs(made - wanted).mean() <= 0.6 * step_of(path) + 1e-5


@pytest.mark.parametrize("activations", ["QUInt8", "QUInt16"])
@pytest.mark.sample(1)
def test_quantized_networks_take_any_number_of_rows(tmp_path: Path, activations: str) -> None:
    path = quantized(tmp_path, rows, "QDQ", activations)
    model = onnx.load(path)
    del model.graph.value_info[:]
    for tensor in (*model.graph.input, *model.graph.output):
        tensor.type.tensor_type.shape.dim[0].dim_param = "n"
    onnx.save(model, path)
    with nnefc.compile(path).load(threads=1) as library:
        for count in (1, 7):
            x = np.random.default_rng(count).standard_normal((count, 24), np.float32)
            (wanted,) = by_onnxruntime(path, {"x": x})
            assert np.abs(library(x) - wanted).max() <= 2 * step_of(path) + 1e-6


@pytest.mark.parametrize(
    ("make", "weights"), [pytest.param(images, "QUInt8", marks=pytest.mark.slow), (sequences, "QInt8")]
)
def test_dynamically_quantized_networks_agree_with_onnxruntime(tmp_path: Path, make: Network, weights: str) -> None:
    path = quantized(tmp_path, make, "dynamic", weights=weights, by_channel=make is sequences)
    feeds = sample_of(path)
    (wanted,), (made,) = by_onnxruntime(path, feeds), by_nnefc(path, feeds)
    np.testing.assert_allclose(made, wanted, rtol=0, atol=0.02 * np.abs(wanted).max())


def test_channels_stay_in_the_order_that_shuffles_leave_them_in(tmp_path: Path) -> None:
    """Groups read the dot operands that hold their channels; only a half that is joined to others is moved before."""
    backend = backend_of(parse_target("llvm -mcpu=x86-64-v4 -mattr=+avx512vnni"))
    module = optimized(load_network(quantized(tmp_path, shuffles, "QDQ")), backend).module
    names = [gv.name_hint for gv in module.get_global_vars()]
    assert sum("integer_convolution" in name for name in names) >= 5
    assert sum("rearrange" in name for name in names) <= 1


# Single rules: one layer each, against the reals, in steps of the result.

STEP = 0.05


def scaled_and_shifted(g: Graph, x: str) -> str:
    scaled = g.node("Add", g.weight(1, 8, 1, 1), g.node("Mul", x, g.weight(8, 1, 1)))
    return g.node("Relu", g.node("Sub", g.node("Div", scaled, g.array(np.float32(0.4))), g.weight(6)))


LAYERS: dict[str, Callable[[Graph, str], str]] = {
    "convolution": lambda g, x: g.conv(x, 8, 21, 3, pads=[1, 2, 0, 1], dilations=[1, 2]),
    "depthwise": lambda g, x: g.node("Relu", g.conv(x, 8, 8, 3, 8, pads=[1, 1, 1, 1])),
    "clipped": lambda g, x: g.node("Clip", g.conv(x, 8, 9, 1), g.array(np.float32(-0.7)), g.array(np.float32(0.9))),
    "clipped apart": lambda g, x: g.node(
        "Relu", g.node("Clip", g.conv(x, 8, 9, 1), g.array(np.float32(-0.9)), g.array(np.float32(-0.7)))
    ),
    "sum": lambda g, x: g.node("Add", x, g.conv(x, 8, 8, 1)),
    "twice": lambda g, x: g.node("Add", x, x),
    "pool": lambda g, x: g.node("MaxPool", x, kernel_shape=[2, 3], pads=[0, 1, 0, 1]),
    "joined": lambda g, x: g.node("Concat", x, g.conv(x, 8, 5, 1), axis=1),
    "transposed": lambda g, x: g.node("Transpose", g.conv(x, 8, 5, 1), perm=[0, 2, 3, 1]),
    "part": lambda g, x: g.node("Slice", x, *(g.array(np.array([n])) for n in (1, 6, 1, 2))),
    "product": lambda g, x: g.node("MatMul", x, g.weight(6, 13)),
    "square": lambda g, x: g.node("MatMul", x, g.node("Transpose", x, perm=[0, 1, 3, 2])),
    "halved": lambda g, x: g.node("Div", g.node("MatMul", x, g.weight(6, 5)), g.array(np.float32(2))),
    "padded": lambda g, x: g.node("Pad", x, g.array(np.array([0, 0, 1, 2, 0, 0, 0, 1]))),
    "filled": lambda g, x: g.node("Pad", x, g.array(np.array([0, 0, 1, 2, 0, 0, 0, 1])), g.array(np.float32(0.4))),
    "mirrored": lambda g, x: g.node("Pad", x, g.array(np.array([0, 0, 1, 2, 0, 0, 0, 1])), mode="reflect"),
    "enlarged": lambda g, x: g.node("Relu", g.deconv(x, 8, 16, [2, 2], strides=[2, 2])),
    "enlarged and cut": lambda g, x: g.deconv(
        x, 8, 5, [3, 4], strides=[2, 3], pads=[1, 0, 0, 2], output_padding=[1, 0]
    ),
    "enlarged with holes": lambda g, x: g.deconv(x, 8, 4, [2, 3], dilations=[2, 1], strides=[1, 2]),
    "enlarged in groups": lambda g, x: g.deconv(x, 8, 6, [3, 3], 2, strides=[2, 1]),
    "moved apart": lambda g, x: g.deconv(x, 8, 3, [1, 1], strides=[3, 2]),
    "all parts made": lambda g, x: g.node(
        "Concat", g.node("Relu", g.conv(x, 8, 16, 1)), g.deconv(x, 8, 32, [1, 1]), x, axis=1
    ),
    "parts of several scales": lambda g, x: g.node(
        "Concat", g.rounded(g.conv(x, 8, 16, 1), 0.03, 200), x, g.rounded(x, 0.07, 30), g.node("Tanh", x), axis=1
    ),
    "part that is needed in floats": lambda g, x: g.node(
        "Concat", *(y := g.node("Sigmoid", g.conv(x, 8, 8, 1)), g.node("Mul", y, y)), axis=1
    ),
    "scaled and shifted": lambda g, x: scaled_and_shifted(g, g.node("Tanh", x)),
    "channels scaled": lambda g, x: scaled_and_shifted(g, g.conv(x, 8, 8, 1)),
    "chosen": lambda g, x: g.node("Gather", x, g.array(np.array([3, 1, 0])), axis=1),
}


def layers(dtype: str, zero: int) -> onnx.ModelProto:
    """Every layer by itself between quantized tensors, its weights and biases quantized as well."""
    g = Graph(zero + 200)
    kind = {"uint8": np.uint8, "int8": np.int8}[dtype]
    fine, coarse = ((g.array(np.float32(s)), g.array(kind(z))) for s, z in ((0.02, zero), (STEP, zero + 9)))
    integers = g.node("QuantizeLinear", "x", *fine)
    outputs = []
    for make in LAYERS.values():
        x = g.node("DequantizeLinear", integers, *fine)
        first = len(g.nodes)
        y = make(g, x)
        inserted = []
        values = {tensor.name: tensor for tensor in g.initializers}
        for node in g.nodes[first:]:
            if node.op_type in ("Conv", "ConvTranspose", "MatMul") and node.input[1] in values:
                inserted += _quantize_weights(g, node, values)
        g.nodes[first:first] = inserted
        outputs.append(g.node("DequantizeLinear", g.node("QuantizeLinear", y, *coarse), *coarse))
    model = g.model((1, 8, 7, 6), outputs[0])
    model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs[1:])
    return onnx.shape_inference.infer_shapes(model)


def _quantize_weights(g: Graph, node: onnx.NodeProto, values: Mapping[str, onnx.TensorProto]) -> list[onnx.NodeProto]:
    """Weights of int8, by channel, and biases of int32 in steps of the sums."""
    made = []
    weights = numpy_helper.to_array(values[node.input[1]])
    axis = {"Conv": 0, "ConvTranspose": 1}.get(node.op_type, weights.ndim - 1)
    others = tuple(a for a in range(weights.ndim) if a != axis)
    scale = (np.abs(weights).max(others) / 127).astype(np.float32)
    shape = [-1 if a == axis else 1 for a in range(weights.ndim)]
    parts = [(np.rint(weights / scale.reshape(shape)).astype(np.int8), scale, axis)]
    if len(node.input) > 2:
        steps = np.tile(scale, len(numpy_helper.to_array(values[node.input[2]])) // len(scale)) * np.float32(0.02)
        parts.append((np.rint(numpy_helper.to_array(values[node.input[2]]) / steps).astype(np.int32), steps, 0))
    for index, (array, own, along) in enumerate(parts, 1):
        name = f"{node.name}_{index}"
        made.append(helper.make_node("DequantizeLinear", [g.array(array), g.array(own)], [name], axis=along))
        node.input[index] = name
    return made


@pytest.mark.parametrize(
    ("dtype", "zero"),
    [("uint8", 117), *(pytest.param(*own, marks=pytest.mark.slow) for own in (("uint8", 0), ("int8", -6)))],
)
@pytest.mark.slow
def test_layers_differ_from_the_reals_by_one_step_at_most(tmp_path: Path, dtype: str, zero: int) -> None:
    path = tmp_path / "layers.onnx"
    onnx.save(layers(dtype, zero), path)
    feeds = sample_of(path)
    wanted = by_onnxruntime(path, feeds)
    for name, integer, real in zip(LAYERS, by_nnefc(path, feeds), wanted, strict=True):
        steps = np.rint((integer - real) / STEP)
        assert np.abs(steps).max() <= 1, name
        assert np.abs(steps).mean() < 0.02, name


def test_a_quantization_after_many_limits_looks_through_some_of_them() -> None:
    grid = 'R.const(0.1, "float32"), R.const(3, "uint8")'
    limits = [f"x{n + 1} = R.nn.relu(x{n})" for n in range(1200)]
    ends = f'q = R.quantize(x1200, {grid}, out_dtype="uint8")', f"y = R.dequantize(q, {grid})"
    module = program("\n".join(["x0[4] -> y", *limits, *ends]))
    assert summary(compute_in_integers(module)).count("nn.relu") == 1200


def test_a_number_of_more_axes_than_its_product_gives_these_to_the_result(tmp_path: Path) -> None:
    g = Graph(3)
    filters = g.array(g.random.integers(-9, 10, (8, 3, 3, 3)).astype(np.int8))
    weights = g.node("DequantizeLinear", filters, g.array(np.float32(0.01)), g.array(np.int8(0)))
    product = g.node("Conv", g.rounded("x", 0.01, 3), weights)
    y = g.rounded(g.node("Mul", product, g.array(np.full((1, 1, 1, 1, 1), 0.5, np.float32))), 0.01, 100)
    onnx.save(g.model((1, 3, 6, 5), y), tmp_path / "network.onnx")
    feeds = {"x": g.random.random((1, 3, 6, 5)).astype(np.float32)}
    (wanted,) = by_onnxruntime(tmp_path / "network.onnx", feeds)
    (found,) = by_nnefc(tmp_path / "network.onnx", feeds)
    assert found.shape == wanted.shape == (1, 1, 8, 4, 3)
    np.testing.assert_allclose(found, wanted, atol=0.0101)


def test_reals_with_other_scales_than_the_result_keep_their_steps() -> None:
    """Rounded twice, as the network says: a step of one tensor is none of the other."""
    network = network_of(tvm.script.from_source(_REQUANTIZED))
    values = np.arange(256, dtype=np.uint8)
    with HOST.to_tvm():
        module = module_after(network, backend_of(HOST), "compute in integers")
    machine = tvm.relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    made = machine["main"](tvm.runtime.tensor(values))[0].numpy()
    reals = (values.astype(np.float32) - 3) * np.float32(0.3)
    np.testing.assert_array_equal(made, np.clip(np.rint(reals / np.float32(0.5)) + 7, 0, 255).astype(np.uint8))


_REQUANTIZED = """@I.ir_module
class Module:
    @R.function
    def main(x: R.Tensor((256,), "uint8")) -> R.Tuple(R.Tensor((256,), "uint8")):
        with R.dataflow():
            a = R.dequantize(x, R.const(0.3, "float32"), R.const(3, "uint8"), out_dtype="float32")
            b = R.quantize(a, R.const(0.5, "float32"), R.const(7, "uint8"), out_dtype="uint8")
            c = (b,)
            R.output(c)
        return c
"""
