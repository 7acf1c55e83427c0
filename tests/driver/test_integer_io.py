"""Inputs and outputs in the integers of a quantized network: those of the network in floats, quantized outside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import nnefc
from nnefc import CompileError


def quantized(path: Path, *, dtype: type = np.int8, moved: bool = False, float_output: bool = False) -> np.ndarray:
    """Write a matrix product between bytes, perhaps of a transposed input; returns an input."""
    random = np.random.default_rng(4)
    zero = numpy_helper.from_array(np.array(5, dtype), "zero")
    constants = [
        zero,
        numpy_helper.from_array(np.float32(0.03), "scale"),
        numpy_helper.from_array(np.float32(0.2), "step"),
        numpy_helper.from_array(random.integers(-127, 128, (6, 3)).astype(np.int8), "w"),
        numpy_helper.from_array(np.float32(0.01), "fine"),
        numpy_helper.from_array(np.array(0, np.int8), "none"),
    ]
    source, shape = ("transposed_x", (6, 2)) if moved else ("x", (2, 6))
    nodes = [helper.make_node("Transpose", ["x"], ["transposed_x"], perm=[1, 0])] if moved else []
    nodes += [
        helper.make_node("QuantizeLinear", [source, "scale", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["a"]),
        helper.make_node("DequantizeLinear", ["w", "fine", "none"], ["b"]),
        helper.make_node("MatMul", ["a", "b"], ["c"]),
        helper.make_node("QuantizeLinear", ["c", "step", "zero"], ["r"]),
        helper.make_node("DequantizeLinear", ["r", "step", "zero"], ["d"]),
        helper.make_node("Softmax" if float_output else "Flatten", ["d"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "product",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (2, 3))],
        constants,
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return random.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("moved", [False, True])
@pytest.mark.sample(2)
def test_integers_go_in_and_come_out(dtype: type, moved: bool, tmp_path: Path) -> None:
    model = tmp_path / "product.onnx"
    x = quantized(model, dtype=dtype, moved=moved)
    library = nnefc.compile(model, io=np.dtype(dtype).name)
    (given,), (made,) = library.inputs, library.outputs
    assert (given.dtype, made.dtype) == (np.dtype(dtype).name, np.dtype(dtype).name)
    assert (given.scale, given.zero_point) == (pytest.approx(0.03), 5)
    assert (made.scale, made.zero_point) == (pytest.approx(0.2), 5)
    limits = np.iinfo(dtype)
    integers = np.clip(np.rint(x / np.float32(0.03)) + 5, limits.min, limits.max).astype(dtype)
    found = library.run({"x": integers})["y"]
    expected = nnefc.compile(model).run({"x": x})["y"]
    np.testing.assert_array_equal((found.astype(np.float32) - 5) * np.float32(0.2), expected)


def test_headers_say_what_integers_stand_for(tmp_path: Path) -> None:
    quantized(tmp_path / "product.onnx")
    nnefc.compile(tmp_path / "product.onnx", "cortex-m4", io="int8").export(tmp_path / "net.a", name="net")
    header = (tmp_path / "net.h").read_text()
    assert "int net_run(const int8_t *x, int8_t *y, void *arena);" in header
    assert "#define NET_INPUT_0_SCALE 0.0299999993f " in header
    assert "#define NET_OUTPUT_0_ZERO_POINT 5\n" in header


def test_outputs_in_floats_are_refused_by_name(tmp_path: Path) -> None:
    quantized(tmp_path / "product.onnx", float_output=True)
    with pytest.raises(CompileError, match="the output 'y' is not dequantized from int8"):
        nnefc.compile(tmp_path / "product.onnx", io="int8")


def test_other_types_are_refused_by_name(tmp_path: Path) -> None:
    quantized(tmp_path / "product.onnx", dtype=np.uint8)
    with pytest.raises(CompileError, match="the input 'x' is quantized to uint8, not to int8"):
        nnefc.compile(tmp_path / "product.onnx", io="int8")
    with pytest.raises(CompileError, match="io 'int4' is none of float, int8, uint8"):
        nnefc.compile(tmp_path / "product.onnx", io="int4")


def test_precision_auto_is_refused_before_the_model_is_read(tmp_path: Path) -> None:
    with pytest.raises(CompileError, match=r"auto may choose floats, .* int8") as caught:
        nnefc.compile(tmp_path / "none.onnx", precision="auto", io="int8")
    assert "--precision int8 --io int8" in str(caught.value)


def test_inputs_of_networks_in_floats_are_refused() -> None:
    model = Path(__file__).parents[2] / "examples" / "digits" / "model.nnef"
    with pytest.raises(CompileError, match="the input 'image' is used in floats"):
        nnefc.compile(model, io="int8")
