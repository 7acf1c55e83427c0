"""onnxruntime behind ONNX's interface for engines, in the form that serves it best.

Versions that it does not know yet are lowered to the newest that it knows: many operators did not change since.
Tensors of types that NumPy lacks are copied in and out through their memory.
"""

from __future__ import annotations

import ctypes
import re
from typing import Any

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
from onnx import helper
from onnx.backend.base import Backend, BackendRep

__all__ = ["OnnxruntimeBackend"]

_IR_VERSION = re.compile(r"max supported IR version: (\d+)")
_OPSET = re.compile(r"support for domain ai\.onnx is till opset (\d+)")


class _Session(BackendRep):  # type: ignore[misc]
    """A session on one thread.

    Attributes:
        lowered: which versions were lowered for it.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 4
        self._session, self.lowered = _session(model, options)
        self._names = [element.name for element in self._session.get_inputs()]
        self._types = {element.name: element.type.tensor_type.elem_type for element in model.graph.input}
        self._results = [element.name for element in model.graph.output]
        types = [element.type.tensor_type.elem_type for element in (*model.graph.input, *model.graph.output)]
        self._narrow = any(type_ and _dtype(type_).isbuiltin == 2 for type_ in types)

    def run(self, inputs: Any, **_: Any) -> list[Any]:
        given = dict(zip(self._names, inputs, strict=False))
        if not self._narrow:
            return [_converted(value) for value in self._session.run(self._results, given)]
        feeds = {name: _value(value, self._types[name]) for name, value in given.items()}
        return [_array(value) for value in self._session.run_with_ort_values(self._results, feeds)]


class OnnxruntimeBackend(Backend):  # type: ignore[misc]
    """onnxruntime as an engine of ONNX's."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, _device: str = "CPU", **_: Any) -> _Session:
        return _Session(model)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        return device == "CPU"


def _dtype(kind: int) -> np.dtype[Any]:
    return np.dtype(helper.tensor_dtype_to_np_dtype(kind))


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


def _value(array: Any, kind: int) -> onnxruntime.OrtValue:
    if not _is_narrow(array):
        return onnxruntime.OrtValue.ortvalue_from_numpy(np.asarray(array))
    value = onnxruntime.OrtValue.ortvalue_from_shape_and_type(list(array.shape), kind)
    packed = _packed(array)
    ctypes.memmove(value.data_ptr(), packed.ctypes.data, packed.nbytes)
    return value


def _array(value: onnxruntime.OrtValue) -> np.ndarray:
    dtype = _dtype(value.element_type())
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


def _converted(value: Any) -> Any:
    if isinstance(value, list):
        return [np.asarray(element) for element in value]
    return None if value is None else np.asarray(value)
