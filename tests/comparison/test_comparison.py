"""Networks compared tensor by tensor: what is found where something is wrong, and that nothing is where all is well."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tvm
import tvm_ffi
from onnx_models import graph, info, model, node, save, tensor
from runtime_samples import sample_library
from tvm import relax, tirx

import nnefc
from nnefc.backends import backend_of
from nnefc.backends.cpu import CpuBackend
from nnefc.cli.commands.compare import comparison_lines
from nnefc.comparison.compare import compare
from nnefc.comparison.kernel_stages import kernel_stages
from nnefc.comparison.passes import outputs_after_each
from nnefc.driver.formats import load_network
from nnefc.ir.error_metrics import difference
from nnefc.passes import after
from nnefc.passes.backend import MEMORY_BUDGET
from nnefc.passes.graph.rewriter import Rewriter, is_call
from nnefc.quantizer import observation as observing
from nnefc.support.diagnostics import CompileError
from nnefc.targets.machine.any_target import parse_any_target

ROOT = Path(__file__).parents[2]
DIGITS = ROOT / "examples" / "digits" / "model.nnef"
PNNX = ROOT / "tests" / "data" / "pnnx" / "attention.pnnx.param"


def network(seed: int = 0) -> onnx.ModelProto:
    """Two convolutions with a sigmoid between them, their sum, and a matrix product; 5 channels, 9 by 7."""
    rng = np.random.default_rng(seed)
    weights = [
        tensor("w1", rng.standard_normal((5, 3, 3, 3)) / 5),
        tensor("w2", rng.standard_normal((5, 5, 3, 3)) / 7),
        tensor("w3", rng.standard_normal((63, 11)) / 8),
        tensor("flat", [-1, 5, 63], np.int64),
    ]
    nodes = [
        node("Conv", ["x", "w1"], ["first"], pads=[1] * 4),
        node("Sigmoid", ["first"], ["gate"]),
        node("Conv", ["gate", "w2"], ["second"], pads=[1] * 4),
        node("Add", ["first", "second"], ["sum"]),
        node("Relu", ["sum"], ["kept"]),
        node("Reshape", ["kept", "flat"], ["rows"]),
        node("MatMul", ["rows", "w3"], ["product"]),
        node("Softmax", ["product"], ["y"], axis=-1),
    ]
    made = graph(nodes, [info("x", (2, 3, 9, 7))], [info("y", (2, 5, 11))], weights)
    return model(made)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(network(), tmp_path_factory.mktemp("comparison"))


def test_tensors_agree_with_onnxruntime_in_the_order_of_the_network(path: Path) -> None:
    found = compare(path)
    assert (found.reference, found.is_close, found.first, found.wrong_pass) == ("onnxruntime", True, None, None)
    names = [tensor.name for tensor in found.tensors]
    assert names == [
        name for name in ("first", "gate", "second", "sum", "kept", "rows", "product", "y") if name in names
    ]
    assert {"kept", "y"} <= set(names)
    assert [(output.name, output.shape) for output in found.outputs] == [("y", (2, 5, 11))]
    assert all(0 < tensor.difference.relative < 1e-5 for tensor in found.tensors if tensor.name != "y")
    assert all("Relu" in tensor.location for tensor in found.tensors if tensor.name == "kept")
    assert json.loads(json.dumps(found.record()))["tensors"][0]["name"] == "first"


def product_network(rows: int | str = 3, seed: int = 0) -> onnx.ModelProto:
    """A matrix product, whose kernel has a loop of 11 iterations, and a softmax of what is positive in it."""
    weights = tensor("w", np.random.default_rng(seed).standard_normal((9, 11)))
    nodes = [
        node("MatMul", ["x", "w"], ["product"]),
        node("Relu", ["product"], ["kept"]),
        node("Softmax", ["kept"], ["y"], axis=-1),
    ]
    return model(graph(nodes, [info("x", (rows, 9))], [info("y", (rows, 11))], [weights]))


@pytest.fixture(scope="module")
def product_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save(product_network(), tmp_path_factory.mktemp("product"))


class TanhForRelu(Rewriter):
    def rewrite(self, var: relax.Var, call: relax.Call) -> relax.Expr:
        return relax.op.tanh(call.args[0]) if is_call(call, "nn.relu") else call


@tvm.transform.module_pass(opt_level=0, name="WrongPass")
class WrongPass:
    def transform_module(self, mod: tvm.IRModule, _context: tvm.transform.PassContext) -> tvm.IRModule:
        return TanhForRelu(mod).transform()


def test_a_wrong_pass_and_what_it_does_are_named(product_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(CpuBackend, "passes", CpuBackend.passes.with_passes([after("group parts", WrongPass())]))
    found = compare(product_path, passes=True, every=True)
    assert not found.is_close
    assert found.first is not None and found.first.name == "kept"
    assert found.wrong_pass == "WrongPass"


def test_dynamic_sizes_are_those_of_the_inputs(tmp_path: Path) -> None:
    path = save(product_network("batch"), tmp_path)
    x = np.random.default_rng(1).standard_normal((5, 9)).astype(np.float32)
    found = compare(path, inputs={"x": x}, reference="plain")
    assert found.is_close
    assert {tensor.shape[0] for tensor in (*found.outputs, *found.tensors)} == {5}


SMALL = """version 1.0;
graph net(x) -> (y) {
    x = external<scalar>(shape = [2, 5, 7]);
    a = tanh(x);
    b = matmul(a, x, transposeB = true);
    c = add(b, 1.0);
    y = softmax(c, axes = [2]);
}
"""


@pytest.mark.parametrize("model_path", [SMALL, pytest.param(PNNX, marks=pytest.mark.slow)], ids=["NNEF", "PNNX"])
def test_other_formats_are_compared_with_their_operators_one_by_one(model_path: Path | str, tmp_path: Path) -> None:
    if isinstance(model_path, str):
        (tmp_path / "net.nnef").write_text(model_path)
        model_path = tmp_path / "net.nnef"
    found = compare(model_path)
    assert (found.reference, found.is_close) == ("plain", True)
    assert len(found.tensors) > 3 and found.outputs


def test_float16_are_compared_with_the_float32_build(path: Path) -> None:
    found = compare(path, precision="bf16", reference="fp32", keep_wide=("first",))
    assert found.is_close and found.bound > 1e-2
    errors = {tensor.name: tensor.difference.relative for tensor in found.tensors}
    assert max(errors.values()) > 1e-4


@pytest.mark.slow
def test_integers_are_compared_with_floats(path: Path) -> None:
    rng = np.random.default_rng(3)
    images = rng.standard_normal((6, 2, 3, 9, 7)).astype(np.float32)
    found = compare(path, precision="int8", calibrate={"x": images}, inputs={"x": images[0]})
    assert found.is_close and found.outputs[0].difference.relative > 1e-3


def test_a_library_of_another_network_is_reported_apart(product_path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.so"
    nnefc.compile(save(product_network(seed=1), tmp_path)).export(other)
    found = compare(product_path, library=other)
    assert (found.tensors, found.is_close) == ((), False)
    assert found.first is not None and found.first.name == "y"
    nnefc.compile(product_path).export(other)
    assert compare(product_path, library=other).is_close


def test_every_tensor_is_compared_in_parts_where_memory_is_short(
    product_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observing, "_TENSOR_BYTES", 2 * 3 * 11 * 4)
    parts = compare(product_path, every=True, reference="plain")
    assert [tensor.name for tensor in parts.tensors] == ["product", "kept", "y"]
    assert (parts.is_close, parts.left_out) == (True, 0)


def branching() -> onnx.ModelProto:
    bodies = {
        name: helper_graph([node(op, ["x"], [f"{name}_y"])], f"{name}_y")
        for name, op in (("then_branch", "Tanh"), ("else_branch", "Abs"))
    }
    nodes = [
        node("ReduceSum", ["x"], ["total"], keepdims=0),
        node("Greater", ["total", "zero"], ["positive"]),
        node("If", ["positive"], ["chosen"], **bodies),
        node("Exp", ["chosen"], ["y"]),
    ]
    return model(graph(nodes, initializers=[tensor("zero", 0.0)]))


def helper_graph(nodes: list[onnx.NodeProto], output: str) -> onnx.GraphProto:
    return onnx.helper.make_graph(nodes, "body", [], [info(output)])


def test_what_needs_the_runtime_is_compared_with_a_strict_build(tmp_path: Path) -> None:
    path = save(branching(), tmp_path)
    assert compare(path, reference="strict").is_close
    for options in ({"reference": "plain"}, {"passes": True}):
        with pytest.raises(CompileError, match="choices or loops"):
            compare(path, **options)


def test_mistakes_are_reported(product_path: Path) -> None:
    mistakes: list[tuple[dict[str, Any], str]] = [
        ({"inputs": {"z": np.zeros(1)}}, "no input 'z'"),
        ({"inputs": {"x": np.zeros((3, 8), np.float32)}}, "is given the shape"),
        ({"reference": "numpy"}, "no reference 'numpy'"),
    ]
    for options, message in mistakes:
        with pytest.raises(CompileError, match=message):
            compare(product_path, **options)
    with pytest.raises(CompileError, match=r"onnxruntime does not run|none of the outputs"):
        compare(product_path, library=sample_library())
    with pytest.raises(CompileError, match="reads models of ONNX"):
        compare(DIGITS, reference="onnxruntime")


def test_differences_are_over_the_largest_value() -> None:
    inf, nan = np.inf, np.nan
    apart = difference(np.array([1.0, -4.5]), np.array([1.0, -4.0]))
    assert (apart.largest, apart.mean, apart.scale, apart.relative) == (0.5, 0.25, 4.0, 0.125)
    assert difference(np.array([inf, nan, 1.0]), np.array([inf, nan, 1.0])).relative == 0
    assert difference(np.array([nan, 2.0]), np.array([1.0, 2.0])).wrong == 1
    assert difference(np.array([inf, 2.0]), np.array([-inf, 2.0])).relative == inf
    assert difference(np.array([True, False]), np.array([True, True])).mean == 0.5
    assert difference(np.array(["a", "b"], object), np.array(["a", "b"], object)).relative == 0
    assert difference(np.zeros((0, 3)), np.zeros((0, 3))).relative == 0
    assert difference(np.array([255], np.uint8), np.array([1], np.uint8)).largest == 254


@pytest.mark.slow
def test_each_pass_and_each_step_of_a_kernel_is_computed(product_path: Path) -> None:
    network, backend = load_network(product_path), backend_of(parse_any_target("native"))
    backend.check()
    given = {"x": np.random.default_rng(5).standard_normal((3, 9)).astype(np.float32)}
    after = dict(outputs_after_each(network, backend, given, False, MEMORY_BUDGET))
    assert next(iter(after)) == "network"
    assert "fuse" in after
    assert all(difference(found["y"], after["network"]["y"]).relative < 1e-5 for found in after.values())
    steps = list(kernel_stages(network, backend, given, False, MEMORY_BUDGET))
    assert {"schedule", "flatten buffers", "raw pointers", "export"} <= {step.step for step in steps}
    assert all(step.difference.relative < 1e-5 for step in steps)


@pytest.mark.slow
def test_scans_are_computed_after_each_pass(tmp_path: Path) -> None:
    nodes = [node("CumSum", ["x", "axis"], ["y"])]
    made = model(graph(nodes, [info("x", (1, 9, 24))], [info("y", (1, 9, 24))], [tensor("axis", 1, np.int64)]))
    network, backend = load_network(save(made, tmp_path)), backend_of(parse_any_target("native"))
    backend.check()
    given = {"x": np.random.default_rng(6).standard_normal((1, 9, 24)).astype(np.float32)}
    after = dict(outputs_after_each(network, backend, given, False, MEMORY_BUDGET))
    assert all(np.allclose(found["y"], given["x"].cumsum(1), atol=1e-5) for found in after.values())
    assert all(s.difference.relative < 1e-5 for s in kernel_stages(network, backend, given, False, MEMORY_BUDGET))


def test_inputs_of_which_the_shape_alone_is_used_are_no_obstacle(tmp_path: Path) -> None:
    made = model(graph([node("EyeLike", ["x"], ["y"])], [info("x", (5, 3))], [info("y", (5, 3))]))
    assert compare(save(made, tmp_path), reference="plain").is_close


def test_a_wrong_step_of_a_kernel_is_named(product_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def one_iteration_less(func: tirx.PrimFunc) -> tirx.PrimFunc:
        def shorter(loop: tirx.For) -> tirx.For:
            if not isinstance(loop.extent, tirx.IntImm) or int(loop.extent) != 11:
                return loop
            return tirx.For(loop.loop_var, loop.min, loop.extent - 1, loop.kind, loop.body)

        return tvm_ffi.structural_map(func, (tirx.For, shorter))

    passes = CpuBackend.passes.with_passes([after("split vector tails", one_iteration_less)])
    monkeypatch.setattr(CpuBackend, "passes", passes)
    found = compare(product_path, passes=True)
    assert not found.is_close
    assert (found.wrong_pass, found.wrong_step and found.wrong_step.step) == (None, "one iteration less")
    assert found.record()["wrong_step"][1] == "one iteration less"
    assert "the first step after which a kernel is wrong: one iteration less" in "\n".join(comparison_lines(found))
