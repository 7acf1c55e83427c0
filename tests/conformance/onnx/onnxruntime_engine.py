"""Runs one node test with onnxruntime, in the form that serves it best.

Versions that it does not know yet are lowered to the newest that it knows: many operators did not change since.
Tensors of types that NumPy lacks are copied in and out through their memory.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx_cases import Case, mismatch
from onnx_outcome import Outcome

__all__ = ["run_onnxruntime"]

_IR_VERSION = re.compile(r"max supported IR version: (\d+)")
_OPSET = re.compile(r"support for domain ai\.onnx is till opset (\d+)")


def run_onnxruntime(case: Case) -> Outcome:
    """The test on one thread."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 4
    try:
        session, lowered = _session(case.model, options)
        names = [item.name for item in session.get_inputs() if item.name in case.inputs]
        types = {item.name: item.type.tensor_type.elem_type for item in case.model.graph.input}
        if any(_is_narrow(value) for value in (*case.inputs.values(), *case.outputs.values())):
            found = _through_memory(session, case, names, types)
        else:
            results = session.run(list(case.outputs), {name: case.inputs[name] for name in names})
            found = {name: _plain(value) for name, value in zip(case.outputs, results, strict=True)}
    except Exception as error:
        lines = str(error).splitlines() or [type(error).__name__]
        return Outcome("refused", lines[0][:200])
    difference = mismatch(case, found)
    if difference is not None:
        return Outcome("wrong", difference)
    return Outcome("lowered", lowered) if lowered else Outcome("pass")


def _session(model: onnx.ModelProto, options: onnxruntime.SessionOptions) -> tuple[onnxruntime.InferenceSession, str]:
    """A session, and which versions were lowered for it."""
    lowered = []
    while True:
        try:
            data = model.SerializeToString()
            return onnxruntime.InferenceSession(data, options, providers=["CPUExecutionProvider"]), ", ".join(lowered)
        except Exception as error:
            if (known := _IR_VERSION.search(str(error))) and model.ir_version > int(known[1]):
                lowered.append(f"IR {model.ir_version} to {known[1]}")
                model = _copy(model)
                model.ir_version = int(known[1])
            elif (known := _OPSET.search(str(error))) and _standard(model).version > int(known[1]):
                lowered.append(f"opset {_standard(model).version} to {known[1]}")
                model = _copy(model)
                _standard(model).version = int(known[1])
            else:
                raise


def _copy(model: onnx.ModelProto) -> onnx.ModelProto:
    copied = onnx.ModelProto()
    copied.CopyFrom(model)
    return copied


def _standard(model: onnx.ModelProto) -> onnx.OperatorSetIdProto:
    return next(opset for opset in model.opset_import if opset.domain == "")


def _through_memory(
    session: onnxruntime.InferenceSession, case: Case, names: list[str], types: Mapping[str, int]
) -> dict[str, Any]:
    feeds = {name: _value(case.inputs[name], types[name]) for name in names}
    results = session.run_with_ort_values(list(case.outputs), feeds)
    return {name: _array(value) for name, value in zip(case.outputs, results, strict=True)}


def _value(array: Any, kind: int) -> onnxruntime.OrtValue:
    if not _is_narrow(array):
        return onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(array))
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(array.shape), kind)
    packed = _packed(array)
    ctypes.memmove(value.data_ptr(), packed.ctypes.data, packed.nbytes)
    return value


def _array(value: onnxruntime.OrtValue) -> np.ndarray:
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(value.element_type()))
    count = int(np.prod(value.shape()))
    if dtype.isbuiltin != 2:
        return np.asarray(value.numpy())
    size = -(-count * _bits(dtype) // 8)
    data = np.frombuffer(ctypes.string_at(value.data_ptr(), size), np.uint8)
    return _unpacked(data, dtype, count).reshape(value.shape())


def _is_narrow(value: Any) -> bool:
    """Whether a value is an array of a type that is not NumPy's own."""
    return isinstance(value, np.ndarray) and value.dtype.isbuiltin == 2


def _bits(dtype: np.dtype) -> int:
    information = ml_dtypes.iinfo if "int" in dtype.name else ml_dtypes.finfo
    return int(information(dtype).bits)


def _packed(array: np.ndarray) -> np.ndarray:
    """The bytes of a tensor: types below 8 bits share them, the first element in the lowest bits."""
    bits, data = _bits(array.dtype), np.ascontiguousarray(array).view(np.uint8).ravel()
    if bits >= 8:
        return data
    each = 8 // bits
    padded = np.pad(data & (1 << bits) - 1, (0, -len(data) % each)).reshape(-1, each)
    return np.bitwise_or.reduce(padded << bits * np.arange(each, dtype=np.uint8), axis=1).astype(np.uint8)


def _unpacked(data: np.ndarray, dtype: np.dtype, count: int) -> np.ndarray:
    bits = _bits(dtype)
    if bits >= 8:
        return data.view(dtype)
    parts = (data[:, None] >> bits * np.arange(8 // bits, dtype=np.uint8)) & (1 << bits) - 1
    values = parts.ravel()[:count].astype(np.uint8)
    if dtype.name.startswith("int"):  # the sign's bit is carried on
        values = np.where(values >= 1 << bits - 1, values.astype(np.int16) - (1 << bits), values).astype(np.int8)
        return values.astype(dtype)
    return values.view(dtype) if "float" in dtype.name else values.astype(dtype)


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [np.asarray(item) for item in value]
    return None if value is None else np.asarray(value)
