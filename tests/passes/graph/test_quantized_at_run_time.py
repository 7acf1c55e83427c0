"""Convolutions of data that are quantized while a network runs stay in blocks, whatever zero points weights have."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from pass_runs import module_after
from program_text import network_text

import nnefc
from nnefc.backends import backend_of
from nnefc.driver.formats import load_network
from nnefc.frontends.dynamic_shapes import dynamic_shape_context
from nnefc.targets.machine.cpu.parsing import parse_target


class _Layers:
    """Convolutions one after the other, each of which quantizes its data, with scales and zero points as they come."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: np.ndarray) -> str:
        self.constants.append(numpy_helper.from_array(value, f"c{len(self.constants)}"))
        return str(self.constants[-1].name)

    def node(self, operator: str, *inputs: str, outputs: int = 1, **attributes: object) -> list[str]:
        made = [f"t{len(self.nodes)}_{n}" for n in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), made, **attributes))
        return made

    def convolution(self, x: str, inputs: int, outputs: int, kernel: tuple[int, ...], **attributes: object) -> str:
        filters = self.rng.integers(0, 256, (outputs, inputs, *kernel)).astype(np.uint8)
        zero = self.constant(np.array(117, np.uint8))
        data, scale, origin = self.node("DynamicQuantizeLinear", x, outputs=3)
        sums = self.node("ConvInteger", data, self.constant(filters), origin, zero, **attributes)[0]
        bias = self.constant(self.rng.integers(-900, 900, (1, outputs, *[1] * len(kernel))).astype(np.int32))
        moved = self.node("Cast", self.node("Add", sums, bias)[0], to=TensorProto.FLOAT)[0]
        return self.node("LeakyRelu", self.node("Mul", moved, scale)[0], alpha=0.25)[0]

    def model(self, x: list[int | str], y: str) -> onnx.ModelProto:
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x)
        result = helper.make_tensor_value_info(y, TensorProto.FLOAT, None)
        graph = helper.make_graph(self.nodes, "layers", [given], [result], self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def layers(rank: int, seed: int) -> onnx.ModelProto:
    """Three convolutions and a sum, of numbers of channels that fill no blocks, and one that does."""
    net, kernel = _Layers(seed), (3, 2, 3)[:rank]
    pads = [1] * (2 * rank)
    a = net.convolution("x", 3, 21, kernel, pads=pads, strides=[2] * rank)
    b = net.convolution(a, 21, 32, kernel, pads=pads, dilations=[2] * rank) if rank == 1 else a
    b = net.convolution(b, 32 if rank == 1 else 21, 21, (1,) * rank)
    return net.model([1, 3, *["height", "width", 6][:rank]], net.node("Add", a, b)[0] if rank > 1 else b)


@pytest.mark.parametrize("rank", [1, 2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.sample(1)
def test_results_are_those_of_onnxruntime(rank: int, tmp_path: Path) -> None:
    model = layers(rank, rank)
    onnx.save(model, tmp_path / "layers.onnx")
    nnefc.compile(tmp_path / "layers.onnx").export(tmp_path / "layers.so")
    library = nnefc.load(tmp_path / "layers.so")
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for seed, sizes in enumerate([(17, 9), (40, 33)]):
        x = np.random.default_rng(seed).standard_normal((1, 3, *(*sizes, 6)[:rank])).astype(np.float32)
        (wanted,) = session.run(None, {"x": x})
        found = library(x)
        scale = np.abs(wanted).max()
        np.testing.assert_allclose(found / scale, wanted / scale, atol=1e-6)


def test_only_the_result_leaves_the_blocks(tmp_path: Path) -> None:
    onnx.save(layers(2, 0), tmp_path / "layers.onnx")
    network = load_network(tmp_path / "layers.onnx")
    with dynamic_shape_context(network.dynamic_dimensions, network.input_shapes, network.all_data_dependent_sizes):
        module = module_after(network, backend_of(parse_target("llvm -mcpu=x86-64-v3")), "assign layouts")
    calls = [line for line in network_text(module).splitlines() if " = unblock" in line]
    assert len([line for line in calls if "height" in line.partition(" = ")[0]]) == 1
