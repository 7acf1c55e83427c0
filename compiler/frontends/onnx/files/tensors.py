"""Reads tensors of ONNX files as arrays: raw and typed fields, packed narrow types, external data."""

from __future__ import annotations

import math
import sys
from typing import Any

import ml_dtypes  # noqa: F401  (registers the narrow element types)
import numpy as np
import onnx

from nnefc.frontends.onnx.checks.types import dtype_of_code
from nnefc.frontends.onnx.files.external_data import ExternalData
from nnefc.frontends.onnx.values import Array, SparseTensor, numpy_dtype
from nnefc.support.diagnostics import CompileError
from nnefc.support.mapped_files import LARGE, aligned_copy

__all__ = ["MAX_BYTES", "element_count", "packed_bytes", "read_sparse_tensor", "read_tensor"]

MAX_BYTES = 1 << 40
"""No tensor may be larger; what is is a mistake, or an attack."""

_BITS = {"int4": 4, "uint4": 4, "float4_e2m1fn": 4, "int2": 2, "uint2": 2, "float6_e2m3fn": 6, "float6_e3m2fn": 6}

_FIELDS = ("float_data", "int32_data", "string_data", "int64_data", "double_data", "uint64_data")
_FIELD = {
    "float32": "float_data",
    "complex64": "float_data",
    "float64": "double_data",
    "complex128": "double_data",
    "int64": "int64_data",
    "uint32": "uint64_data",
    "uint64": "uint64_data",
    "string": "string_data",
}
"""The typed field of an element type; `int32_data` for all others."""


def read_tensor(proto: onnx.TensorProto, what: str, external: ExternalData) -> Array:
    """The value of a tensor; may be a read-only view of a file.

    Args:
        proto: the message.
        what: how messages call the tensor.
        external: opens files of data next to the model.

    Raises:
        CompileError: an unknown element type, sizes and data that do not fit, data in no field or in several, a file
            that is not as it must be.
    """
    dtype = dtype_of_code(proto.data_type, what)
    shape = tuple(int(size) for size in proto.dims)
    count = element_count(shape, what)
    if proto.HasField("segment"):
        raise CompileError(f"{what} is stored in segments, which the standard reserves")
    given = [field for field in _FIELDS if len(getattr(proto, field))]
    if proto.HasField("raw_data") and (count or proto.raw_data):
        given.append("raw_data")
    if proto.data_location == onnx.TensorProto.EXTERNAL:
        if given:
            raise CompileError(f"{what} has its data in a file, and in the field {given[0]} too")
        if dtype == "string":
            raise CompileError(f"{what} holds strings, whose data cannot be in a file")
        data = external.read(proto.external_data, packed_bytes(dtype, count), what)
        return _from_bytes(data, dtype, shape)
    if len(given) > 1:
        raise CompileError(
            f"{what} has data in {len(given)} fields, {' and '.join(given)}: it must all be in one of them"
        )
    if count == 0:
        if given:
            raise CompileError(f"{what} has a dimension of 0, and data in the field {given[0]}")
        return np.zeros(shape, numpy_dtype(dtype))
    if not given:
        raise CompileError(f"{what} has no data")
    if given == ["raw_data"]:
        return _from_raw(proto.raw_data, dtype, shape, what)
    return _from_field(proto, given[0], dtype, shape, what)


def read_sparse_tensor(proto: onnx.SparseTensorProto, what: str, external: ExternalData) -> SparseTensor:
    """The value of a sparse tensor; indices of each dimension become offsets in the flattened tensor.

    Raises:
        CompileError: values and indices that do not fit each other or the shape, indices that do not ascend.
    """
    shape = tuple(int(length) for length in proto.dims)
    size = element_count(shape, what)
    values = read_tensor(proto.values, f"the values of {what}", external)
    if values.ndim != 1:
        raise CompileError(f"the values of {what} must have the rank 1, not {values.ndim}")
    if values.size == 0:
        return SparseTensor(values, np.zeros(0, np.int64), shape)
    indices = read_tensor(proto.indices, f"the indices of {what}", external)
    if indices.dtype != np.int64 or indices.shape not in ((values.size,), (values.size, len(shape))):
        raise CompileError(f"the indices of {what} must be int64, one or {len(shape)} for each of {values.size} values")
    if indices.ndim == 2:
        if ((indices < 0) | (indices >= np.array(shape))).any():
            raise CompileError(f"an index of {what} is out of its range")
        indices = np.ravel_multi_index(tuple(indices.T), shape) if shape else np.zeros(values.size, np.int64)
    if (indices < 0).any() or (indices >= size).any():
        raise CompileError(f"an index of {what} is out of its range")
    if (np.diff(indices) <= 0).any():
        raise CompileError(f"the indices of {what} must ascend, each used once")
    return SparseTensor(values, np.asarray(indices, np.int64), shape)


def element_count(shape: tuple[int, ...], what: str) -> int:
    """Elements in all; zero if a size is zero, whatever the others are.

    Raises:
        CompileError: no memory holds so many, or a size is negative; `what` says of what.
    """
    if len(shape) > 64:
        raise CompileError(f"{what} has the rank {len(shape)}, more than 64")
    if any(size < 0 for size in shape):
        raise CompileError(f"{what} has the negative dimension {min(shape)}")
    if math.prod(filter(None, shape)) > MAX_BYTES:  # NumPy has no array of such a shape, even if it has no elements
        raise CompileError(f"{what} has the shape {list(shape)}, more than any memory holds")
    return math.prod(shape)


def packed_bytes(dtype: str, count: int) -> int:
    """The bytes of so many elements as files hold them."""
    bits = _BITS.get(dtype)
    return -(-bits * count // 8) if bits else numpy_dtype(dtype).itemsize * count


def _from_raw(data: bytes, dtype: str, shape: tuple[int, ...], what: str) -> Array:
    if dtype == "string":
        raise CompileError(f"{what} holds strings, which cannot be in 'raw_data'")
    needed = packed_bytes(dtype, math.prod(shape))
    if len(data) != needed:
        raise CompileError(f"{what} needs {needed} bytes for {list(shape)} of {dtype}, 'raw_data' has {len(data)}")
    return _from_bytes(np.frombuffer(data, np.uint8), dtype, shape)


def _from_bytes(data: Array, dtype: str, shape: tuple[int, ...]) -> Array:
    if dtype in _BITS:
        return _unpacked(data, dtype, math.prod(shape)).reshape(shape)
    if dtype == "bool":
        return np.asarray(data != 0).reshape(shape)
    wanted = numpy_dtype(dtype)
    if data.ctypes.data % wanted.alignment and data.nbytes < LARGE:
        data = aligned_copy(data)
    array = data.view(wanted).reshape(shape)
    # Files are little-endian. Narrow types of a byte have no order.
    return array.byteswap() if sys.byteorder == "big" and wanted.itemsize > 1 else array


def _unpacked(data: Array, dtype: str, count: int) -> Array:
    """Elements of less than a byte, the first in the lowest bits; signed ones are sign-extended."""
    width = _BITS[dtype]
    bits = np.unpackbits(np.ascontiguousarray(data), bitorder="little")[: count * width].reshape(count, width)
    codes = (bits << np.arange(width, dtype=np.uint8)).sum(axis=1, dtype=np.uint8)
    return _from_codes(codes, dtype)


def _from_codes(codes: Array, dtype: str) -> Array:
    wanted = numpy_dtype(dtype)
    if dtype.startswith("float"):
        return codes.view(wanted)
    if dtype.startswith("int"):
        sign = 1 << (_BITS[dtype] - 1)
        return ((codes ^ sign).astype(np.int8) - sign).astype(wanted)
    return codes.astype(wanted)


def _from_field(proto: onnx.TensorProto, field: str, dtype: str, shape: tuple[int, ...], what: str) -> Array:
    expected = _FIELD.get(dtype, "int32_data")
    if field != expected:
        raise CompileError(f"{what} is of type {dtype}, whose data belongs in '{expected}', not in '{field}'")
    elements = getattr(proto, field)
    count = math.prod(shape)
    width = _BITS.get(dtype, 8)
    needed = -(-count * width // 8) if width in (2, 4) else count * (2 if dtype.startswith("complex") else 1)
    if len(elements) != needed:
        raise CompileError(
            f"{what} needs {needed} elements in '{field}', {list(shape)} of {dtype}; it has {len(elements)}"
        )
    if dtype == "string":
        return _strings(list(elements), shape, what)
    stored = np.uint64 if field == "uint64_data" else None  # NumPy makes floats of lists with the largest and others
    return _typed(np.array(elements, stored), dtype, count, what).reshape(shape)


def _typed(elements: Array, dtype: str, count: int, what: str) -> Array:
    """Elements of a typed field in the element type; half and narrow floats are bit patterns there."""
    wanted = numpy_dtype(dtype)
    match dtype:
        case "complex64" | "complex128":
            return elements.astype(np.float32 if dtype == "complex64" else np.float64).view(wanted)
        case "int4" | "uint4" | "int2" | "uint2" | "float4_e2m1fn":
            return _unpacked((elements & 0xFF).astype(np.uint8), dtype, count)
        case "float16" | "bfloat16":
            return (_in_range(elements, 0, 0xFFFF, what)).astype(np.uint16).view(wanted)
        case "float6_e2m3fn" | "float6_e3m2fn":
            return (_in_range(elements, 0, 0x3F, what)).astype(np.uint8).view(wanted)
        case _ if dtype.startswith("float8"):
            return (_in_range(elements, 0, 0xFF, what)).astype(np.uint8).view(wanted)
        case "bool":
            return np.asarray(elements != 0)
        case "int8" | "uint8" | "int16" | "uint16" | "int32" | "uint32":
            info = np.iinfo(wanted)
            return _in_range(elements, int(info.min), int(info.max), what).astype(wanted)
    return elements.astype(wanted)


def _in_range(elements: Array, low: int, high: int, what: str) -> Array:
    if elements.size and (int(elements.min()) < low or int(elements.max()) > high):
        raise CompileError(f"{what} has an element outside {low} to {high}, the range of its element type")
    return elements


def _strings(elements: list[Any], shape: tuple[int, ...], what: str) -> Array:
    array = np.empty(len(elements), object)
    for index, element in enumerate(elements):
        try:
            array[index] = element.decode("utf-8")
        except UnicodeDecodeError:
            raise CompileError(f"{what} has a string that is not UTF-8") from None
    return array.reshape(shape)
