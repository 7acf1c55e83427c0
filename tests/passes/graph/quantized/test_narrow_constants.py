"""Large constants stay in the narrow types of their model, for all consumers."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from relax_programs import program, summary, target
from tvm import relax

import nnefc
from nnefc.ir.dataflow import bindings_of
from nnefc.passes.graph.fold_constants import fold_constants
from nnefc.passes.graph.quantized import narrow_constants as conversion
from nnefc.passes.graph.quantized.narrow_constants import narrow_constants
from nnefc.passes.graph.rewriter import array_of, is_constant, operands

_FP16_TYPES = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}


@dataclass
class Weights:
    """Weights of a model, stored as `kind` says, and of its twin in float32."""

    kind: str
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(7))
    narrow: list[onnx.TensorProto] = field(default_factory=list)
    wide: list[onnx.TensorProto] = field(default_factory=list)
    nodes: list[onnx.NodeProto] = field(default_factory=list)

    def add(self, name: str, *shape: int, axis: int = 0) -> str:
        """Weights called `name`; `axis` is that of the scales, where each position has its own."""
        real = (self.random.standard_normal(shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)
        if self.kind in _FP16_TYPES:
            stored = real.astype(_FP16_TYPES[self.kind])
            self.narrow.append(numpy_helper.from_array(stored, f"{name}_n"))
            self.nodes.append(helper.make_node("Cast", [f"{name}_n"], [name], to=TensorProto.FLOAT))
            self.wide.append(numpy_helper.from_array(stored.astype(np.float32), name))
            return name
        dtype, zero = (np.uint8, 131) if "uint8" in self.kind else (np.int8, 0)
        by = tuple(a for a in range(len(shape)) if a != axis) if "axis" in self.kind else None
        scale = np.maximum(np.abs(real).max(by) / np.float32(100), 1e-6).astype(np.float32)
        spread = [-1 if a == axis else 1 for a in range(len(shape))] if by is not None else []
        stored = (np.rint(real / scale.reshape(spread)) + zero).astype(dtype)
        reals = (stored.astype(np.float32) - np.float32(zero)) * scale.reshape(spread)
        self.wide.append(numpy_helper.from_array(reals, name))
        zeros = np.full(scale.shape, zero, dtype)
        self.narrow += [
            numpy_helper.from_array(a, f"{name}_{n}") for n, a in (("q", stored), ("s", scale), ("z", zeros))
        ]
        inputs = [f"{name}_{n}" for n in "qsz"]
        self.nodes.append(helper.make_node("DequantizeLinear", inputs, [name], axis=axis))
        return name


def _network(kind: str) -> tuple[onnx.ModelProto, onnx.ModelProto]:
    """A table that is gathered from and multiplied by, convolutions, products: narrow, and in float32."""
    w = Weights(kind)
    nodes = [
        helper.make_node("Conv", ["x", w.add("k", 32, 16, 3, 3)], ["c"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("ConvTranspose", ["r", w.add("u", 32, 16, 2, 2, axis=1)], ["t"], strides=[2, 2]),
        helper.make_node("GlobalAveragePool", ["t"], ["p"]),
        helper.make_node("Flatten", ["p"], ["f"]),
        helper.make_node("MatMul", ["f", w.add("m", 16, 64, axis=1)], ["h"]),
        helper.make_node("Gather", [w.add("table", 96, 64), "i"], ["g"]),
        helper.make_node("Add", ["h", "g"], ["s"]),
        helper.make_node("Mul", ["s", w.add("by", 32, 64)], ["e"]),
        helper.make_node("Gemm", ["e", "table"], ["y"], transB=1),
    ]
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 9, 7]),
        helper.make_tensor_value_info("i", TensorProto.INT64, [32]),
    ]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, [32, 96])]
    made = []
    for before, initializers in ((w.nodes, w.narrow), ([], w.wide)):
        graph = helper.make_graph([*before, *nodes], "g", inputs, outputs, initializers)
        made.append(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10))
    return made[0], made[1]


_OLD = "llvm -mcpu=x86-64"  # no conversions of float16


@pytest.mark.parametrize(
    ("kind", "machine"),
    [("int8", "llvm"), ("int8 axis", "llvm"), ("uint8", "llvm"), ("float16", "llvm"), ("bfloat16", _OLD)],
)
@pytest.mark.sample(2)
def test_libraries_hold_little_more_than_their_models(kind: str, machine: str, tmp_path: Path) -> None:
    """The table has two readers, and is held once for each."""
    if kind == "float16" and not target(machine).widens("float16"):
        pytest.skip("this machine has no conversions of float16")
    narrow, wide = _network(kind)
    (tmp_path / "model.onnx").write_bytes(narrow.SerializeToString())
    artifact = nnefc.compile(tmp_path / "model.onnx", target=machine)
    held = sum(len(one.raw_data) for one in narrow.graph.initializer)
    table = next(len(one.raw_data) for one in narrow.graph.initializer if one.name in ("table_q", "table_n"))
    assert artifact.description.constant_bytes <= 1.05 * (held + table)
    x = np.random.default_rng(3).standard_normal((1, 16, 9, 7)).astype(np.float32)
    i = np.random.default_rng(4).integers(0, 96, 32)
    session = onnxruntime.InferenceSession(wide.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = session.run(None, {"x": x, "i": i})[0]
    np.testing.assert_allclose(artifact.run({"x": x, "i": i})["y"], expected, rtol=1e-4, atol=2e-5)


def test_groups_of_transposed_convolutions_have_the_same_scales(tmp_path: Path) -> None:
    w = Weights("int8 axis")
    node = helper.make_node("ConvTranspose", ["x", w.add("k", 16, 16, 2, 2, axis=1)], ["y"], group=2)
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 16, 3, 4])]
    outputs = [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)]
    x = np.random.default_rng(5).standard_normal((1, 16, 3, 4)).astype(np.float32)
    graph = helper.make_graph([*w.nodes, node], "g", inputs, outputs, w.narrow)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx", providers=["CPUExecutionProvider"])
    y = nnefc.compile(tmp_path / "model.onnx").run({"x": x})["y"]
    np.testing.assert_allclose(y, session.run(None, {"x": x})[0], rtol=1e-4, atol=2e-5)


def _bytes(mod: tvm.IRModule) -> int:
    calls = [b.value for b in bindings_of(mod["main"]) if isinstance(b.value, relax.Call)]
    return sum(array_of(o).nbytes for call in calls for o in operands(call) if is_constant(o))


def test_each_reader_widens_a_constant_by_itself() -> None:
    fp16_values = np.random.default_rng(0).standard_normal((32, 64)).astype(np.float16).astype(np.float32)
    module = program("x[32, 64] -> c, d\nc = R.multiply(x, H)\nd = R.add(c, H)", H=fp16_values)
    narrow = fold_constants(narrow_constants(module, target("x86-64-v3")))
    expected = """widen[32, 64] = widen(const[32, 64])
c[32, 64] = multiply(x, widen)
widen1[32, 64] = widen(const[32, 64])
d[32, 64] = add(c, widen1)
-> c, d"""
    assert summary(narrow).replace("lv", "widen") == expected


@pytest.mark.parametrize("text", ["c = R.sort(H)\nd = R.add(x, c)", "d = R.sum(H, axis=[0])"])
def test_constants_stay_wide_for_readers_that_cannot_widen(text: str) -> None:
    fp16_values = np.ones((32, 64), np.float32)
    module = program(f"x[32, 64] -> d\n{text}", H=fp16_values)
    assert _bytes(narrow_constants(module, target("x86-64-v3"))) == fp16_values.nbytes


@pytest.mark.parametrize(("value", "machine"), [(0.1, "x86-64-v3"), (1 + 2**-10, "x86-64")])
def test_constants_stay_wide_that_no_narrow_type_of_the_machine_holds(value: float, machine: str) -> None:
    module = program("x[32, 64] -> d\nd = R.add(x, H)", H=np.full((32, 64), value, np.float32))
    assert _bytes(narrow_constants(module, target(machine))) == 32 * 64 * 4


def test_steps_stay_in_the_kernels_of_what_they_come_after(tmp_path: Path) -> None:
    """A kernel that widens a constant is element-wise still: it is the epilogue of the product before it."""
    scale = np.random.default_rng(2).uniform(0.5, 2, (32, 64)).astype(np.float16).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "k"], ["c"]), helper.make_node("Mod", ["c", "s"], ["y"], fmod=1)]
    info = helper.make_tensor_value_info
    kernels = []
    for value in (scale, scale * np.float32(1.1)):
        weights = [
            numpy_helper.from_array(np.full((24, 64), 0.1, np.float32), "k"),
            numpy_helper.from_array(value, "s"),
        ]
        ends = [info("x", TensorProto.FLOAT, [32, 24])], [info("y", TensorProto.FLOAT, [32, 64])]
        graph = helper.make_graph(nodes, "g", *ends, weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
        (tmp_path / "model.onnx").write_bytes(model.SerializeToString())
        kernels.append(len(nnefc.compile(tmp_path / "model.onnx", target="x86-64-v3").code.module.functions))
    assert kernels[0] == kernels[1]


@pytest.mark.parametrize(("dtype", "size"), [(np.float16, 1.0), (ml_dtypes.bfloat16, 1e20)])
def test_each_part_of_a_large_constant_must_be_exact(dtype: type, size: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(conversion, "_CONVERTED", 1000)
    given = np.random.default_rng(0).standard_normal((400, 100), np.float32) * np.float32(size)
    table = given.astype(dtype).astype(np.float32)
    found = conversion._in_16_bits(table, None)
    assert found is not None
    assert found.dtype == dtype
    np.testing.assert_array_equal(found.astype(np.float32), table)
    table[-1, -1] = 1 / 3
    assert conversion._in_16_bits(table, None) is None
