"""Element types of the standard, in and out of files, in raw and in typed fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_models import graph, info, loaded, model, node, results, save

from nnefc.frontends.onnx.checks.types import DTYPES
from nnefc.frontends.onnx.files.external_data import ExternalData
from nnefc.frontends.onnx.files.tensors import read_tensor
from nnefc.frontends.onnx.values import numpy_dtype
from nnefc.support.diagnostics import CompileError

NUMBERS = [code for code in DTYPES if code != TensorProto.STRING]


def read(proto: TensorProto) -> np.ndarray:
    return read_tensor(proto, "the tensor", ExternalData(Path()))


def some_values(code: int, count: int) -> np.ndarray:
    """Random elements of an element type, among them its lower and its greatest."""
    dtype = numpy_dtype(DTYPES[code])
    rng = np.random.default_rng(code)
    if dtype == np.bool_:
        return rng.random(count) < 0.5
    if "int" in str(dtype):
        limits = (ml_dtypes.iinfo if dtype.kind == "V" else np.iinfo)(dtype)
        values = rng.integers(int(limits.min), int(limits.max), count, np.int64 if limits.min < 0 else np.uint64, True)
        values[0], values[-1] = limits.min, limits.max
        return values.astype(dtype)
    if dtype.kind == "c":
        return (rng.standard_normal(count) + 1j * rng.standard_normal(count)).astype(dtype)
    return np.abs(rng.standard_normal(count)).astype(dtype)


def same(found: np.ndarray, expected: np.ndarray) -> bool:
    return found.dtype == expected.dtype and found.shape == expected.shape and found.tobytes() == expected.tobytes()


@pytest.mark.parametrize("code", NUMBERS, ids=DTYPES.get)
@pytest.mark.parametrize("count", [1, 7, 8])
def test_raw_data_of_every_type(code: int, count: int) -> None:
    """Odd numbers of elements leave bits of the last byte of packed types unused."""
    expected = some_values(code, count)
    proto = helper.make_tensor("t", code, [count], numpy_helper.from_array(expected).raw_data, raw=True)
    assert same(read(proto), numpy_helper.to_array(proto))
    assert same(read(proto), expected)


def typed(code: int, values: np.ndarray) -> TensorProto:
    """The values in the typed field that the standard gives for their type, written by hand."""
    proto = TensorProto(name="t", data_type=code, dims=values.shape)
    name, flat = DTYPES[code], values.reshape(-1)
    if name in ("float32", "float64"):
        (proto.float_data if name == "float32" else proto.double_data).extend(flat.tolist())
    elif name.startswith("complex"):
        parts = [part for element in flat.tolist() for part in (element.real, element.imag)]
        (proto.float_data if name == "complex64" else proto.double_data).extend(parts)
    elif name == "int64":
        proto.int64_data.extend(flat.tolist())
    elif name in ("uint32", "uint64"):
        proto.uint64_data.extend(flat.tolist())
    elif name in ("int4", "uint4", "float4_e2m1fn", "int2", "uint2"):
        width = 2 if name.endswith("int2") else 4
        codes = flat.view(np.uint8) if "float" in name else flat.astype(np.int8)
        per = 8 // width
        for begin in range(0, len(flat), per):
            elements = [int(code_) & ((1 << width) - 1) for code_ in codes[begin : begin + per]]
            proto.int32_data.append(sum(element << (width * position) for position, element in enumerate(elements)))
    elif "float" in name:
        proto.int32_data.extend(flat.view(np.uint16 if values.dtype.itemsize == 2 else np.uint8).tolist())
    else:
        proto.int32_data.extend(flat.astype(np.int64).tolist())
    return proto


@pytest.mark.parametrize("code", NUMBERS, ids=DTYPES.get)
def test_typed_fields_of_every_type(code: int) -> None:
    expected = some_values(code, 15).reshape(3, 5)
    assert same(read(typed(code, expected)), expected)


def test_strings() -> None:
    proto = helper.make_tensor("t", TensorProto.STRING, [2], ["a", "ü"])
    assert read(proto).tolist() == ["a", "ü"]
    proto.string_data[0] = b"\xff"
    with pytest.raises(CompileError, match="not UTF-8"):
        read(proto)


def broken(**fields: Any) -> TensorProto:
    return TensorProto(name="t", **fields)


@pytest.mark.parametrize(
    ("proto", "message"),
    [
        (broken(data_type=99, dims=[1]), "no element type"),
        (broken(data_type=TensorProto.FLOAT, dims=[-1]), "negative dimension -1"),
        (broken(data_type=TensorProto.FLOAT, dims=[2]), "has no data"),
        (broken(data_type=TensorProto.FLOAT, dims=[2], raw_data=b"1234567"), "needs 8 bytes .* has 7"),
        (broken(data_type=TensorProto.FLOAT, dims=[2], float_data=[1]), "needs 2 elements .* has 1"),
        (broken(data_type=TensorProto.FLOAT, dims=[1], int64_data=[1]), "belongs in 'float_data', not in 'int64_data'"),
        (broken(data_type=TensorProto.FLOAT, dims=[1], float_data=[1], raw_data=b"1234"), "data in 2 fields"),
        (broken(data_type=TensorProto.FLOAT, dims=[0], float_data=[1]), "a dimension of 0, and data"),
        (broken(data_type=TensorProto.FLOAT, dims=[1 << 40, 1 << 40]), "more than any memory holds"),
        (broken(data_type=TensorProto.FLOAT, dims=[0, 1 << 50]), "more than any memory holds"),
        (broken(data_type=TensorProto.FLOAT, dims=[0, 1 << 30, 1 << 33, 1]), "more than any memory holds"),
        (broken(data_type=TensorProto.FLOAT, dims=[1] * 65, float_data=[1]), "the rank 65"),
        (broken(data_type=TensorProto.INT8, dims=[1], int32_data=[128]), "outside -128 to 127"),
        (broken(data_type=TensorProto.UINT16, dims=[1], int32_data=[-1]), "outside 0 to 65535"),
        (broken(data_type=TensorProto.BFLOAT16, dims=[1], int32_data=[1 << 16]), "outside 0 to 65535"),
        (broken(data_type=TensorProto.STRING, dims=[1], raw_data=b"a"), "cannot be in 'raw_data'"),
        (broken(data_type=TensorProto.FLOAT, dims=[1], segment=TensorProto.Segment(begin=0, end=1)), "segments"),
    ],
)
def test_tensors_that_contradict_themselves_are_refused(proto: TensorProto, message: str) -> None:
    with pytest.raises(CompileError, match=message) as caught:
        read(proto)
    assert "the tensor" in str(caught.value)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (1,)])
def test_scalars_and_empty_tensors(shape: tuple[int, ...]) -> None:
    expected = np.ones(shape, np.float32)
    assert same(read(numpy_helper.from_array(expected)), expected)


BORDER = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64", "float16", "float64"]


@pytest.mark.parametrize("name", BORDER)
def test_tensors_of_every_type_of_the_machine_go_in_and_out(tmp_path: Path, name: str) -> None:
    code = next(code for code, dtype in DTYPES.items() if dtype == name)
    x = some_values(code, 6).reshape(2, 3)
    network = loaded(
        model([node("Identity", ["x"], ["y"])], [info("x", (2, 3), code)], [info("y", (2, 3), code)]), tmp_path
    )
    assert same(results(network, x=x)["y"], x)


@pytest.mark.parametrize("name", ["int4", "uint4", "float8_e4m3fn", "float8_e5m2", "float4_e2m1fn", "bfloat16"])
def test_constants_of_narrow_types_are_data(tmp_path: Path, name: str) -> None:
    """Converted by Cast at compile time, the values are those of ml_dtypes."""
    code = next(code for code, dtype in DTYPES.items() if dtype == name)
    w = some_values(code, 6).reshape(2, 3)
    made = graph(
        [node("Cast", ["w"], ["h"], to=TensorProto.FLOAT), node("Add", ["x", "h"], ["y"])],
        None,
        None,
        [helper.make_tensor("w", code, (2, 3), numpy_helper.from_array(w).raw_data, raw=True)],
    )
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(results(loaded(model(made, opset=23), tmp_path), x=x)["y"], x + w.astype(np.float32))


def test_inputs_that_no_program_can_hold_are_refused(tmp_path: Path) -> None:
    proto = model([], [info("x", (2,), TensorProto.COMPLEX64)], [info("x", (2,), TensorProto.COMPLEX64)])
    with pytest.raises(CompileError, match="'x' is of type complex64"):
        loaded(proto, tmp_path)


def test_types_of_values_are_read_strictly(tmp_path: Path) -> None:
    proto = model([node("Neg", ["x"], ["y"])])
    proto.graph.input[0].type.tensor_type.elem_type = 77
    with pytest.raises(CompileError, match="the input 'x' has no element type of the standard"):
        loaded(proto, tmp_path)
    proto = model([node("Neg", ["x"], ["y"])], [info("x", (2, -3))])
    with pytest.raises(CompileError, match="negative dimension -3"):
        loaded(proto, tmp_path)
    assert onnx.load(save(proto, tmp_path)) == proto
