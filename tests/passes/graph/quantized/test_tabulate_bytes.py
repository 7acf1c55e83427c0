"""Functions from bytes to bytes become lookup tables, where that is less work, and compute what they did before."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from relax_programs import program, summary, target
from tvm import relax

import nnefc
from nnefc.passes.graph.quantized.tabulate_bytes import tabulate_bytes
from nnefc.passes.graph.rewriter import array_of, is_call
from nnefc.passes.legalize.element_wise import ELEMENT_WISE
from nnefc.passes.legalize.quantization import QUANTIZATION

COMPUTATIONS = {**ELEMENT_WISE, **QUANTIZATION}
ZERO = {"zero": np.array(0, np.uint8)}


def tabulated(text: str, machine: str = "llvm -mcpu=x86-64-v3") -> str:
    return summary(tabulate_bytes(program(text, **ZERO), target(machine), COMPUTATIONS))


def test_a_chain_that_rounds_between_its_operators_is_one_table() -> None:
    before = """x: uint8[3, 5] -> y
        a = R.dequantize(x, R.const(0.1, "float32"), zero, axis=1, out_dtype="float32")
        s = R.sigmoid(a)
        b = R.quantize(s, R.const(0.004, "float32"), zero, axis=1, out_dtype="uint8")
        c = R.dequantize(b, R.const(0.004, "float32"), zero, axis=1, out_dtype="float32")
        d = R.multiply(a, c)
        y = R.quantize(d, R.const(0.05, "float32"), zero, axis=1, out_dtype="uint8")"""
    assert tabulated(before) == "y[3, 5] = look_up(x, const[256])\n-> y"


def test_what_is_read_in_a_wider_type_is_converted_after_the_table() -> None:
    before = """x: uint8[3, 5]; z[3, 5] -> y
        a = R.dequantize(x, R.const(0.1, "float32"), zero, axis=1, out_dtype="float32")
        s = R.erf(a)
        b = R.quantize(s, R.const(0.004, "float32"), zero, axis=1, out_dtype="uint8")
        c = R.dequantize(b, R.const(0.004, "float32"), zero, axis=1, out_dtype="float32")
        y = R.add(c, z)"""
    assert tabulated(before).splitlines()[0] == "b[3, 5] = look_up(x, const[256])"


@pytest.mark.parametrize(
    "step",
    [
        "b = R.nn.relu(a)",  # limits and other scales are less work than a table
        "b = R.multiply(R.sigmoid(a), z)",  # not of one tensor
        "b = R.sigmoid(R.multiply(a, R.reshape(z, R.shape([3, 5]))))",
    ],
)
def test_other_functions_stay(step: str) -> None:
    before = f"""x: uint8[3, 5]; z[3, 5] -> y
        a = R.dequantize(x, R.const(0.1, "float32"), zero, axis=1, out_dtype="float32")
        {step}
        y = R.quantize(b, R.const(0.05, "float32"), zero, axis=1, out_dtype="uint8")"""
    assert "look_up" not in tabulated(before)


def test_long_chains_are_several_tables() -> None:
    lines = [
        line
        for n in range(1, 36)
        for line in (
            f'a{n} = R.dequantize(y{n - 1}, R.const(0.1, "float32"), zero, axis=1, out_dtype="float32")',
            f'y{n} = R.quantize(R.tanh(a{n}), R.const(0.01, "float32"), zero, axis=1, out_dtype="uint8")',
        )
    ]
    made = tabulated("\n".join(["y0: uint8[3, 5] -> y35", *lines]))
    assert made.count("look_up") == 3
    assert made.splitlines()[-2].startswith("y35[3, 5] = look_up(y32,")


def test_tables_hold_what_the_operators_compute() -> None:
    module = program(
        """x: int8[4] -> y
        a = R.dequantize(x, R.const(0.05, "float32"), R.const(3, "int8"), axis=0, out_dtype="float32")
        b = R.tanh(a)
        y = R.quantize(b, R.const(0.009, "float32"), R.const(-7, "int8"), axis=0, out_dtype="int8")"""
    )
    made = tabulate_bytes(module, target("llvm -mcpu=znver3"), COMPUTATIONS)
    (call,) = (b.value for b in made["main"].body.blocks[0].bindings if is_call(b.value, "call_tir"))
    assert isinstance(call.args[1], relax.Tuple)
    x = (np.arange(-128, 128) - 3) * np.float32(0.05)
    expected = np.clip(np.rint(np.tanh(x) / np.float32(0.009)) - 7, -128, 127).astype(np.int8)
    np.testing.assert_array_equal(array_of(call.args[1].fields[1]), expected)


def activations(kind: type, minimum: int) -> onnx.ModelProto:
    """A convolution, an activation function that rounds after each operator, and a further convolution."""
    random = np.random.default_rng(1)
    nodes: list[onnx.NodeProto] = []
    arrays: list[onnx.TensorProto] = []

    def array(value: np.ndarray) -> str:
        arrays.append(numpy_helper.from_array(value, f"w{len(arrays)}"))
        return str(arrays[-1].name)

    def node(op: str, *inputs: str, **attributes: object) -> str:
        nodes.append(helper.make_node(op, inputs, [f"t{len(nodes)}"], **attributes))
        return str(nodes[-1].output[0])

    def rounded(x: str, step: float, zero: int) -> str:
        grid = array(np.array(step, np.float32)), array(np.array(zero + minimum, kind))
        return node("DequantizeLinear", node("QuantizeLinear", x, *grid), *grid)

    def conv(x: str, inputs: int, outputs: int, size: int) -> str:
        filters = array(random.integers(-127, 128, (outputs, inputs, size, size)).astype(np.int8))
        scale = array(random.uniform(0.001, 0.003, outputs).astype(np.float32))
        weights = node("DequantizeLinear", filters, scale, array(np.zeros(outputs, np.int8)), axis=0)
        return node("Conv", x, weights, kernel_shape=[size, size], pads=[size // 2] * 4)

    a = rounded(conv(rounded("x", 0.03, 120), 5, 19, 1), 0.02, 130)
    b = rounded(node("Erf", node("Div", a, array(np.array(2**0.5, np.float32)))), 1 / 127, 128)
    c = rounded(node("Mul", a, rounded(node("Add", b, array(np.array([1], np.float32))), 2 / 255, 0)), 0.02, 60)
    d = rounded(conv(c, 19, 3, 3), 0.03, 128)
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 5, 7, 9])],
        [helper.make_tensor_value_info(d, TensorProto.FLOAT, None)],
        arrays,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(("kind", "minimum"), [(np.uint8, 0), pytest.param(np.int8, -128, marks=pytest.mark.slow)])
def test_results_are_those_of_onnxruntime(tmp_path: Path, kind: type, minimum: int) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(activations(kind, minimum), path)
    unoptimized = onnxruntime.SessionOptions()
    unoptimized.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxruntime.InferenceSession(str(path), unoptimized, providers=["CPUExecutionProvider"])
    with nnefc.compile(path).load(threads=2) as model:
        for batch in (1, 3):
            x = np.random.default_rng(batch).standard_normal((batch, 5, 7, 9)).astype(np.float32)
            (expected,) = session.run(None, {"x": x})
            wrong = np.abs(model(x) - expected) > 1e-6
            assert wrong.mean() < 0.02  # sums in integers fall on the other side of a half
            assert np.abs(model(x) - expected).max() < 0.04
