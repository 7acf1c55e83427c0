"""Libraries for several architectures of NVIDIA GPUs: each device runs the instructions that it has."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from emulated_networks import on_cuda, without_machine_code
from fake_driver import FakeDriver
from onnx import TensorProto, helper

import nnefc
from nnefc.targets.codegen.cuda.code import CudaCode
from nnefc.targets.codegen.cuda.compiler import compile_image

WEIGHTS = np.random.default_rng(1).standard_normal((64, 512)).astype(np.float32)
ROWS = 1000


def product(
    folder: Path, before: Sequence[onnx.NodeProto] = (), rows: int = ROWS, weights: np.ndarray = WEIGHTS
) -> Path:
    """Writes a network that multiplies the rows of `x`, or of what `before` computes as `rows`, by a constant."""
    nodes = [*before, helper.make_node("MatMul", ["rows" if before else "x", "w"], ["y"])]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows if name == "x" else None, size])
        for name, size in zip("xy", weights.shape, strict=True)
    )
    graph = helper.make_graph(nodes, "product", [x], [y], [onnx.numpy_helper.from_array(weights, "w")])
    path = folder / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def code_of(artifact: nnefc.Artifact) -> CudaCode:
    assert isinstance(artifact.code, CudaCode)
    return artifact.code


def launches(part: str) -> list[str]:
    """Returns the names of the kernels that were launched which have this part."""
    launched = (line for line in FakeDriver.install().log if line.startswith("cuLaunchKernel"))
    return [name for line in launched for name in re.findall(r"\w*_kernel\b", line) if part in name]


@pytest.mark.parametrize(
    ("architectures", "capability", "kernel"),
    [
        ((80, 90), 80, "matmul_kernel"),
        ((80, 90), 90, "matmul_of_sm_90_kernel"),
        ((80, 86, 90, 100), 89, "matmul_kernel"),
        ((80, 90, 100, 103), 100, "matmul_of_sm_100_kernel"),
    ],
)
def test_a_device_runs_the_products_that_it_has_instructions_for(
    architectures: tuple[int, ...], capability: int, kernel: str, tmp_path: Path
) -> None:
    x = np.random.default_rng(2).standard_normal((ROWS, 64)).astype(np.float32)
    wanted = x @ WEIGHTS
    with (
        on_cuda(precision="fp16", architectures=architectures, capability=capability) as made,
        nnefc.compile(product(tmp_path)).load() as model,
    ):
        FakeDriver.install().clear()
        np.testing.assert_allclose(model(x), wanted, atol=1e-3 * abs(wanted).max())
        assert launches("matmul") == [kernel]
    assert "wgmma" in code_of(made[0]).kernels.source


@pytest.mark.parametrize(("capability", "kernel"), [(90, "attention_of_sm_90_kernel"), (80, "attention_kernel")])
@pytest.mark.sample(1)
def test_attention_is_multiplied_by_the_instructions_of_a_device(capability: int, kernel: str, tmp_path: Path) -> None:
    shapes = {"q": (4, 128, 32), "k": (4, 32, 128), "v": (4, 128, 32), "y": (4, 128, 32)}
    q, k, v, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    nodes = [
        helper.make_node("MatMul", ["q", "k"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["weights"], axis=-1),
        helper.make_node("MatMul", ["weights", "v"], ["y"]),
    ]
    path = tmp_path / "attention.onnx"
    graph = helper.make_graph(nodes, "attention", [q, k, v], [y])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    rng = np.random.default_rng(3)
    values = {name: rng.standard_normal(shapes[name]).astype(np.float32) / 4 for name in "qkv"}
    wanted = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, values)[0]
    with (
        on_cuda(precision="fp16", architectures=(80, 90), capability=capability),
        nnefc.compile(path).load() as model,
    ):
        FakeDriver.install().clear()
        np.testing.assert_allclose(model.run(values)["y"], wanted, atol=5e-3 * abs(wanted).max())
        assert launches("attention") == [kernel]


def test_sizes_that_stay_on_the_device_choose_no_instructions(tmp_path: Path) -> None:
    """The host, which knows the device, does not know these sizes."""
    before = [
        helper.make_node("ReduceSum", ["x", "one"], ["sums"], keepdims=0),
        helper.make_node("Greater", ["sums", "zero"], ["chosen"]),
        helper.make_node("Compress", ["x", "chosen"], ["rows"], axis=0),
    ]
    path = product(tmp_path, before)
    model = onnx.load(path)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array([1]), "one"))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.array(0, np.float32), "zero"))
    onnx.save(model, path)
    x = np.random.default_rng(2).standard_normal((ROWS, 64)).astype(np.float32)
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    with on_cuda(precision="fp16", architectures=(80, 90)), nnefc.compile(path).load() as loaded:
        wanted = session.run(None, {"x": x})[0]
        FakeDriver.install().clear()
        np.testing.assert_allclose(loaded(x), wanted, atol=1e-3 * abs(wanted).max())
        assert launches("matmul") == ["matmul_kernel"]


def test_machine_code_of_an_architecture_has_its_own_kernels_alone(tmp_path: Path) -> None:
    """Blocks of pairs among them: older architectures have no clusters."""
    path = product(tmp_path, rows=4096, weights=np.ones((1024, 4096), np.float32))
    with without_machine_code():
        source = code_of(nnefc.compile(path, target="cuda -arch=sm_80,sm_100 -precision=fp16"))
    assert "__cluster_dims__(2, 1, 1)" in source.kernels.source
    usage = compile_image(source.kernels.source, (80, 100)).usage
    registers = {(each.kernel, each.architecture): each.registers for each in usage}
    general, own = "matmul_kernel", "matmul_of_sm_100_kernel"
    assert registers[general, 80] > 32 > 8 > registers[own, 80]
    assert registers[own, 100] > 32 > 8 > registers[general, 100]
