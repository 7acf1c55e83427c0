"""Whole networks as libraries for CUDA, executed without a GPU, compared with the same networks on this CPU."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
from emulated_networks import agree, on_cuda
from onnx import TensorProto, helper
from small_networks import NETWORKS, Net
from tvm import relax, te

import nnefc
from nnefc.driver.compile import compile_network
from nnefc.ir.network import Network
from nnefc.loader import RunError
from nnefc.targets.codegen.cuda.code import CudaCode
from nnefc.targets.machine.cpu.parsing import parse_target

DIGITS = Path(__file__).parents[2] / "examples" / "digits" / "model.nnef"


@pytest.mark.slow
def test_digits_are_the_same_and_no_access_is_wrong() -> None:
    image = np.random.default_rng(0).random((1, 1, 8, 8), dtype=np.float32)
    agree(DIGITS, {"image": image}, checks=True)


SLOW = ("resnet", "unet", "vision transformer", "bert")  # the last is computed in bfloat16 below


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.slow] * (name in SLOW)) for name in NETWORKS])
@pytest.mark.sample(1)
def test_a_small_network_is_the_same_and_no_access_is_wrong(name: str, tmp_path: Path) -> None:
    net = Net(seed=len(name))
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model(NETWORKS[name](net)).SerializeToString())
    agree(path, net.inputs, checks=True)


@pytest.mark.parametrize("name", ["bert", pytest.param("mobilenet", marks=pytest.mark.slow)])
def test_a_small_network_in_bfloat16_is_nearly_the_same(name: str, tmp_path: Path) -> None:
    net = Net(seed=len(name))
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model(NETWORKS[name](net)).SerializeToString())
    made = agree(path, net.inputs, checks=True, tolerance=2**-7, precision="bf16")
    assert isinstance(made.code, CudaCode)
    assert "bf16.bf16.f32" in made.code.kernels.source


def test_an_index_out_of_range_fails_the_run_with_a_message(tmp_path: Path) -> None:
    net = Net(seed=1)
    positions = net.given(np.array([2, -3, 9], np.int64))
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model([net.do("Gather", net.floats(5, 4), positions)]).SerializeToString())
    with on_cuda(checks=True), nnefc.compile(path).load() as network:
        with pytest.raises(RunError, match="Gather: an index is out of range"):
            network.run(net.inputs)
        right = {**net.inputs, positions: np.array([2, -3, 0], np.int64)}
        (found,) = network.run(right).values()
    np.testing.assert_array_equal(found, net.inputs["input1"][[2, 2, 0]])


@pytest.mark.parametrize(
    "dtype", [np.uint8, np.int16, *(pytest.param(each, marks=pytest.mark.slow) for each in (np.int8, np.uint16))]
)
@pytest.mark.sample(1)
def test_arithmetic_of_narrow_integers_wraps_around(dtype: type, tmp_path: Path) -> None:
    """Before a result is divided or made a float, too: C computes with integers of 32 bits."""
    x = np.random.default_rng(0).integers(1, np.iinfo(dtype).max, 64, dtype)
    element = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    steps = [("Add", "xx", "a"), ("Mul", "ax", "m"), ("Sub", "xa", "d"), ("BitwiseNot", "m", "n"), ("Div", "dx", "q")]
    nodes = [helper.make_node(name, [*given], [made]) for name, given, made in steps]
    nodes += [helper.make_node("Cast", [name], [f"{name}_float"], to=TensorProto.FLOAT) for name in "amndq"]
    given = [helper.make_tensor_value_info("x", element, x.shape)]
    made = [helper.make_tensor_value_info(f"{name}_float", TensorProto.FLOAT, x.shape) for name in "amndq"]
    graph = helper.make_graph(nodes, "narrow", given, made)
    path = tmp_path / "network.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9), path)
    agree(path, {"x": x}, checks=True)


def test_quantized_networks_are_the_same_up_to_a_step(tmp_path: Path) -> None:
    net = Net(seed=2)
    step, zero = np.float32(0.05), np.int8(3)

    def rounded(x: str) -> str:
        parameters = net.constant(step), net.constant(zero)
        return net.do("DequantizeLinear", net.do("QuantizeLinear", x, *parameters), *parameters)

    weight = np.random.default_rng(2).integers(-100, 100, (8, 4, 3, 3)).astype(np.int8)
    scales, zeros = net.constant(np.full(8, 0.01, np.float32)), net.constant(np.zeros(8, np.int8))
    filters = net.do("DequantizeLinear", net.constant(weight), scales, zeros, axis=0)
    y = rounded(net.do("Conv", rounded(net.floats(1, 4, 9, 7)), filters, pads=[1, 1, 1, 1]))
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model([y]).SerializeToString())
    agree(path, net.inputs, tolerance=1.01 / 124)  # one step of the largest value, 124 steps


@pytest.mark.slow
def test_a_recurrent_layer_in_integers_is_the_same(tmp_path: Path) -> None:
    net, rng = Net(seed=4), np.random.default_rng(4)
    weights = [net.constant(rng.integers(-100, 100, (2, depth, 24)).astype(np.int8)) for depth in (5, 6)]
    scale = net.constant(np.full((2, 1), 0.01, np.float32)), net.constant(np.zeros((2, 1), np.int8))
    x, bias = net.floats(3, 2, 5), net.weight(2, 48)
    attributes = {"hidden_size": 6, "direction": "bidirectional", "domain": "com.microsoft"}
    y = net.do("DynamicQuantizeLSTM", x, *weights, bias, "", "", "", "", *scale, *scale, **attributes)
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model([net.do("Cast", y, to=1)]).SerializeToString())  # whose type is known without shapes
    agree(path, net.inputs, checks=True)


def test_constants_of_float64_keep_all_their_bits(tmp_path: Path) -> None:
    """TVM alone writes 15 digits after the point."""
    net = Net(seed=3)
    x = net.given(np.random.default_rng(3).standard_normal(5))
    small = net.do("Mul", x, net.constant(np.float64(2.0**-53)))
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model([net.do("Add", small, net.constant(np.float64(1e-17 / 3)))]).SerializeToString())
    with on_cuda(), nnefc.compile(path).load() as network:
        (found,) = network.run(net.inputs).values()
    np.testing.assert_array_equal(found, net.inputs[x] * 2.0**-53 + 1e-17 / 3)


def test_two_shifted_remainders_of_one_access_are_right() -> None:
    """TVM alone makes wrong code of them for GPUs."""
    x = np.random.default_rng(0).standard_normal((6, 9)).astype(np.float32)

    def moved(shape: tuple[int, int], position: Callable[..., Sequence[object]]) -> relax.Expr:
        def shifted(a: te.Tensor) -> te.Tensor:
            return te.compute(shape, lambda i, j: a[position(i, j)])

        return builder.emit_te(shifted, var)

    positions = [
        ((6, 9), lambda i, j: ((i + 2) % 6, (j + 4) % 9)),
        ((6, 9), lambda i, j: (i, (j + 4) % 9)),
        ((12, 9), lambda i, j: ((i + 1) // 2 % 6, (j + 1) // 2)),
        ((12, 18), lambda i, j: ((i + 1) // 2 % 6, (j + 1) // 2 % 9)),
    ]
    builder = relax.BlockBuilder()
    var = relax.Var("x", relax.TensorType(x.shape, "float32"))
    with builder.function("main", [var]):
        with builder.dataflow():
            made = [moved(*case) for case in positions]
            result = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(result)
    network = Network("shifts", builder.finalize(), ("x",), tuple(f"y{number}" for number in range(len(positions))))
    with on_cuda() as artifacts, compile_network(network, parse_target("llvm")).load() as library:
        found = library.run({"x": x})
    for number, (shape, position) in enumerate(positions):
        np.testing.assert_array_equal(found[f"y{number}"], x[position(*np.indices(shape))])
    assert isinstance(artifacts[0].code, CudaCode)
    assert len(artifacts[0].code.kernels.launches) == len(positions)


def test_a_result_that_only_the_same_launch_reads_is_in_registers(tmp_path: Path) -> None:
    net = Net(seed=1)
    y = net.do("Conv", net.floats(1, 8, 5, 7), net.weight(16, 8, 1, 1))
    z = net.do("Conv", net.do("LRN", y, size=5, alpha=1e-2), net.weight(16, 16, 1, 1))
    path = tmp_path / "network.onnx"
    path.write_bytes(net.model([z]).SerializeToString())
    agree(path, net.inputs, checks=True, tolerance=4e-3, precision="fp16")
