"""Parses value types of ONNX files, and lists the element types of the standard."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import onnx

from nnefc.frontends.onnx.values import AnyValue, Map, Optional, Stacked, TensorSequence, Value
from nnefc.support.diagnostics import CompileError

__all__ = [
    "DTYPES",
    "DeclaredSize",
    "MapType",
    "OnnxTensorType",
    "OptionalType",
    "SequenceType",
    "Type",
    "ValueInfo",
    "dtype_of_code",
    "proto_of",
    "read_type",
    "spelled",
    "type_of",
]

_T = onnx.TensorProto

DTYPES: Mapping[int, str] = {
    _T.FLOAT: "float32",
    _T.UINT8: "uint8",
    _T.INT8: "int8",
    _T.UINT16: "uint16",
    _T.INT16: "int16",
    _T.INT32: "int32",
    _T.INT64: "int64",
    _T.STRING: "string",
    _T.BOOL: "bool",
    _T.FLOAT16: "float16",
    _T.DOUBLE: "float64",
    _T.UINT32: "uint32",
    _T.UINT64: "uint64",
    _T.COMPLEX64: "complex64",
    _T.COMPLEX128: "complex128",
    _T.BFLOAT16: "bfloat16",
    _T.FLOAT8E4M3FN: "float8_e4m3fn",
    _T.FLOAT8E4M3FNUZ: "float8_e4m3fnuz",
    _T.FLOAT8E5M2: "float8_e5m2",
    _T.FLOAT8E5M2FNUZ: "float8_e5m2fnuz",
    _T.UINT4: "uint4",
    _T.INT4: "int4",
    _T.FLOAT4E2M1: "float4_e2m1fn",
    # Newer than the oldest onnx that is supported.
    24: "float8_e8m0fnu",
    25: "uint2",
    26: "int2",
    27: "float6_e2m3fn",
    28: "float6_e3m2fn",
}
"""Element types by `TensorProto.DataType`."""

_CODES = {name: code for code, name in DTYPES.items()}

_SPELLED = {
    "float32": "float",
    "float64": "double",
    "float8_e4m3fn": "float8e4m3fn",
    "float8_e4m3fnuz": "float8e4m3fnuz",
    "float8_e5m2": "float8e5m2",
    "float8_e5m2fnuz": "float8e5m2fnuz",
    "float4_e2m1fn": "float4e2m1",
    "float8_e8m0fnu": "float8e8m0",
    "float6_e2m3fn": "float6e2m3",
    "float6_e3m2fn": "float6e3m2",
}
"""Names of element types in the type strings of schemas, where they differ."""

_MAX_RANK = 64
_MAX_NESTING = 16

DeclaredSize: TypeAlias = "int | str | None"
"""A number, a dimension variable, or unknown and unrelated to any other."""


@dataclass(frozen=True)
class OnnxTensorType:
    """A tensor; `shape` is None if not even the rank is declared, `dtype` empty if the element type is not."""

    dtype: str
    shape: tuple[DeclaredSize, ...] | None
    sparse: bool = False


@dataclass(frozen=True)
class SequenceType:
    """A sequence of values of one type."""

    element: Type


@dataclass(frozen=True)
class OptionalType:
    """A value that may be missing."""

    element: Type


@dataclass(frozen=True)
class MapType:
    """A map from integers or strings."""

    key: str
    element: Type


Type: TypeAlias = "OnnxTensorType | SequenceType | OptionalType | MapType"


@dataclass(frozen=True)
class ValueInfo:
    """A name and what the file says of its type; None if it says nothing."""

    name: str
    type: Type | None


def dtype_of_code(code: int, what: str) -> str:
    """The element type with this number.

    Raises:
        CompileError: there is none; `what` says where.
    """
    try:
        return DTYPES[code]
    except KeyError:
        raise CompileError(f"{what} has no element type of the standard: its number is {code}") from None


def read_type(proto: onnx.TypeProto, what: str, depth: int = 0) -> Type | None:
    """A type as declared; None if it is left open.

    Raises:
        CompileError: an element type or a size that cannot be; opaque types.
    """
    if depth > _MAX_NESTING:
        raise CompileError(f"the type of {what} is nested more than {_MAX_NESTING} times")
    kind = proto.WhichOneof("value")
    match kind:
        case None:
            return None
        case "tensor_type" | "sparse_tensor_type":
            tensor = getattr(proto, kind)
            dtype = dtype_of_code(tensor.elem_type, what) if tensor.elem_type else ""
            shape = _read_shape(tensor.shape, what) if tensor.HasField("shape") else None
            return OnnxTensorType(dtype, shape, sparse=kind == "sparse_tensor_type")
        case "sequence_type":
            return SequenceType(_element(proto.sequence_type.elem_type, what, depth))
        case "optional_type":
            return OptionalType(_element(proto.optional_type.elem_type, what, depth))
        case "map_type":
            key = dtype_of_code(proto.map_type.key_type, f"the key of {what}")
            return MapType(key, _element(proto.map_type.value_type, what, depth))
    raise CompileError(f"the type of {what} is of the kind {kind}, which is not supported")


def _element(proto: onnx.TypeProto, what: str, depth: int) -> Type:
    return read_type(proto, what, depth + 1) or OnnxTensorType("", None)


_OPEN = ("", "?")
"""Spellings of a dimension without a name: exporters write `?`, or a size of -1, for a dynamic one."""


def _read_shape(proto: onnx.TensorShapeProto, what: str) -> tuple[DeclaredSize, ...]:
    if len(proto.dim) > _MAX_RANK:
        raise CompileError(f"{what} has the rank {len(proto.dim)}, more than {_MAX_RANK}")
    sizes: list[DeclaredSize] = []
    for dim in proto.dim:
        match dim.WhichOneof("value"):
            case "dim_value":
                if dim.dim_value < -1:
                    raise CompileError(f"{what} has the negative dimension {dim.dim_value}")
                sizes.append(None if dim.dim_value == -1 else int(dim.dim_value))
            case "dim_param":
                sizes.append(None if dim.dim_param in _OPEN else dim.dim_param)
            case _:
                sizes.append(None)
    return tuple(sizes)


def type_of(value: AnyValue) -> Type:
    """The type of a value that is there."""
    match value:
        case Value():
            return OnnxTensorType(value.dtype, value.shape)
        case TensorSequence(elements, dtype):
            return SequenceType(type_of(elements[0]) if elements else OnnxTensorType(dtype, None))
        case Stacked():
            return SequenceType(type_of(value.element))
        case Optional(element, dtype):
            return OptionalType(type_of(element) if element is not None else OnnxTensorType(dtype, None))
        case Map(elements):
            whole = all(isinstance(key, int) for key in elements)
            first = next(iter(elements.values()), np.float32(0))
            return MapType("int64" if whole else "string", OnnxTensorType(str(np.asarray(first).dtype), ()))


def spelled(type_: Type) -> str:
    """The type as the schemas of operators spell it, without shapes: `seq(tensor(float))`."""
    match type_:
        case OnnxTensorType(dtype, _, sparse):
            return f"{'sparse_tensor' if sparse else 'tensor'}({_SPELLED.get(dtype, dtype)})"
        case SequenceType(element):
            return f"seq({spelled(element)})"
        case OptionalType(element):
            return f"optional({spelled(element)})"
        case MapType(key, element):
            return f"map({_SPELLED.get(key, key)},{spelled(element)})"


def proto_of(type_: Type) -> onnx.TypeProto:
    """The type as a message."""
    proto = onnx.TypeProto()
    match type_:
        case OnnxTensorType(dtype, shape, _):
            proto.tensor_type.elem_type = _CODES.get(dtype, 0)
            if shape is not None:
                proto.tensor_type.shape.SetInParent()
                for size in shape:
                    dim = proto.tensor_type.shape.dim.add()
                    if isinstance(size, int):
                        dim.dim_value = size
                    elif isinstance(size, str):
                        dim.dim_param = size
        case SequenceType(element):
            proto.sequence_type.elem_type.CopyFrom(proto_of(element))
        case OptionalType(element):
            proto.optional_type.elem_type.CopyFrom(proto_of(element))
        case MapType(key, element):
            proto.map_type.key_type = _CODES[key]
            proto.map_type.value_type.CopyFrom(proto_of(element))
    return proto
