"""The first layers in patches: the same results in less memory, whatever the sizes, strides and padding are."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc
import nnefc.passes.plan.patches as patches_module
from nnefc.passes.plan.memory import plan_memory


def random() -> np.random.Generator:
    return np.random.default_rng(5)


class Graph:
    """A network of images that grows node by node."""

    def __init__(self, *shape: int) -> None:
        self.shape = shape
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._random = random()

    def node(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def constant(self, array: np.ndarray) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def conv(self, x: str, inputs: int, outputs: int, size: int, groups: int = 1, **attributes: Any) -> str:
        w = self._random.standard_normal((outputs, inputs // groups, size, size)).astype(np.float32)
        bias = self._random.standard_normal(outputs).astype(np.float32)
        return self.node("Conv", x, self.constant(w / size), self.constant(bias), group=groups, **attributes)

    def write(self, result: str, path: Path) -> Path:
        given = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        outputs = [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)]
        graph = helper.make_graph(self.nodes, "images", [given], outputs, self.weights)
        onnx.save(
            onnx.shape_inference.infer_shapes(
                helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
            ),
            path,
        )
        return path


def separable(height: int = 37, width: int = 29, stride: int = 2) -> tuple[Graph, str]:
    """Convolutions by channel and by pixel, with odd sizes, as the first of MobileNet."""
    net = Graph(1, 3, height, width)
    x = net.node("Relu", net.conv("x", 3, 8, 3, strides=[stride, stride], pads=[0, 1, 1, 0]))
    x = net.node("Relu", net.conv(x, 8, 8, 3, groups=8, pads=[1, 1, 1, 1]))
    x = net.node("Relu", net.conv(x, 8, 24, 1))
    x = net.node("Relu", net.conv(x, 24, 24, 5, groups=24, strides=[2, 3], pads=[2, 1, 2, 1]))
    return net, net.conv(x, 24, 4, 1)


def dilated() -> tuple[Graph, str]:
    net = Graph(1, 2, 41, 17)
    x = net.conv("x", 2, 16, 3, dilations=[2, 1], pads=[2, 1, 2, 1])
    x = net.node("MaxPool", x, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1])
    x = net.node("AveragePool", x, kernel_shape=[2, 2], pads=[1, 0, 0, 1])
    return net, net.conv(x, 16, 3, 3, strides=[3, 2])


def residual() -> tuple[Graph, str]:
    """Two ways from one tensor to a sum, of which one needs more rows than the other."""
    net = Graph(1, 4, 33, 20)
    x = net.node("Relu", net.conv("x", 4, 16, 3, pads=[1, 1, 1, 1]))
    y = net.node("Relu", net.conv(x, 16, 16, 3, pads=[1, 1, 1, 1]))
    x = net.node("Add", x, net.conv(y, 16, 16, 3, pads=[1, 1, 1, 1]))
    return net, net.conv(x, 16, 4, 3, strides=[2, 2])


NETWORKS = {"separable": separable, "dilated": dilated, "residual": residual}


def quantized(model: Path, shape: tuple[int, ...]) -> Path:
    quantization = pytest.importorskip("onnxruntime.quantization")

    class Samples(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            data = random().standard_normal((2, *shape)).astype(np.float32)
            self.left = [{"x": sample} for sample in data]

        def get_next(self) -> Mapping[str, np.ndarray] | None:
            return self.left.pop() if self.left else None

    path = model.with_suffix(".int8.onnx")
    types = {"activation_type": quantization.QuantType.QInt8, "weight_type": quantization.QuantType.QInt8}
    form = quantization.QuantFormat.QDQ
    quantization.quantize_static(model, path, Samples(), quant_format=form, per_channel=True, **types)
    return path


def in_both_ways(model: Path, **options: Any) -> tuple[nnefc.Artifact, nnefc.Artifact]:
    whole, patches = (nnefc.compile(model, patches=patches, **options) for patches in (False, True))
    return whole, patches


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "residual")) for name in NETWORKS]
)
@pytest.mark.slow
def test_results_in_floats_are_the_same(name: str, tmp_path: Path) -> None:
    net, result = NETWORKS[name]()
    whole, patches = in_both_ways(net.write(result, tmp_path / "net.onnx"), strict=True, small=True)
    assert patches.description.workspace_bytes < 0.9 * whole.description.workspace_bytes
    x = random().standard_normal(net.shape).astype(np.float32)
    np.testing.assert_allclose(patches.run({"x": x})[result], whole.run({"x": x})[result], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name != "residual")) for name in NETWORKS]
)
def test_results_in_integers_are_the_same_bit_for_bit(name: str, tmp_path: Path) -> None:
    net, result = NETWORKS[name]()
    model = quantized(net.write(result, tmp_path / "net.onnx"), net.shape)
    whole, patches = in_both_ways(model, io="int8", small=True)
    assert patches.description.workspace_bytes < 0.9 * whole.description.workspace_bytes
    x = random().integers(-128, 128, net.shape, np.int8)
    assert np.array_equal(patches.run({"x": x})[result], whole.run({"x": x})[result])


@pytest.mark.parametrize("height", [31, pytest.param(26, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_heights_of_any_remainder(height: int, tmp_path: Path) -> None:
    net, result = separable(height, 13, 1)
    whole, patches = in_both_ways(net.write(result, tmp_path / "net.onnx"), strict=True, small=True)
    assert patches.description.workspace_bytes < 0.9 * whole.description.workspace_bytes
    x = random().standard_normal(net.shape).astype(np.float32)
    np.testing.assert_allclose(patches.run({"x": x})[result], whole.run({"x": x})[result], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("target", ["cortex-m4", pytest.param("cortex-m55", marks=pytest.mark.slow)])
def test_microcontrollers_compute_images_in_patches(target: str, tmp_path: Path) -> None:
    net, result = separable()
    model = quantized(net.write(result, tmp_path / "net.onnx"), net.shape)
    whole, patches = in_both_ways(model, target=target, io="int8")
    assert patches.description.workspace_bytes < 0.7 * whole.description.workspace_bytes


@pytest.mark.slow
def test_few_plans_of_memory_are_made_however_many_choices_there_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    net = Graph(1, 4, 48, 20)
    x = net.conv("x", 4, 4, 3)
    for _ in range(40):
        x = net.conv(x, 4, 4, 3, groups=4, pads=[1, 1, 1, 1])
    model = net.write(net.conv(x, 4, 4, 3, strides=[4, 4]), tmp_path / "net.onnx")
    made = 0

    def counting(*arguments: Any) -> Any:
        nonlocal made
        made += 1
        return plan_memory(*arguments)

    monkeypatch.setattr(patches_module, "plan_memory", counting)
    nnefc.compile(model, "cortex-m4", patches=True)
    assert 1 <= made <= 9


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"specialize": [{"n": 2}]}, id="specialize"),
        pytest.param({"target": "x86-64", "multi": True}, id="multi", marks=pytest.mark.slow),
    ],
)
@pytest.mark.slow
def test_programs_of_one_library_have_parts_of_their_own(options: dict[str, Any], tmp_path: Path) -> None:
    """Batches, so that parts are copied between the rows of others."""
    net = Graph(2, 3, 64, 64)
    x = net.node("Relu", net.conv("x", 3, 16, 3, pads=[1, 1, 1, 1]))
    result = net.node("MaxPool", net.conv(x, 16, 8, 3, pads=[1, 1, 1, 1]), kernel_shape=[4, 4], strides=[4, 4])
    if "specialize" in options:
        net.shape = ("n", 3, 64, 64)
    model = net.write(result, tmp_path / "net.onnx")
    whole, patches = nnefc.compile(model), nnefc.compile(model, patches=True, **options)
    x = random().standard_normal((2, 3, 64, 64)).astype(np.float32)
    np.testing.assert_allclose(patches.run({"x": x})[result], whole.run({"x": x})[result], rtol=1e-5, atol=1e-4)


def test_a_network_without_images_stays_as_it_is(tmp_path: Path) -> None:
    net = Graph(5, 64)
    result = net.node("MatMul", "x", net.constant(np.eye(64, dtype=np.float32)))
    whole, patches = in_both_ways(net.write(result, tmp_path / "net.onnx"))
    assert whole.code.objects == patches.code.objects


def test_gpus_have_none() -> None:
    with pytest.raises(nnefc.CompileError, match="computes whole tensors"):
        nnefc.compile("any.onnx", "cuda", patches=True)
