"""Declares the structs and constants of `nnefc.h` for ctypes."""

from __future__ import annotations

from ctypes import POINTER, Structure, c_char_p, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p

__all__ = [
    "ABI_VERSION",
    "BUSY",
    "CANCELLED",
    "DATA_DEPENDENT",
    "DESCRIPTION_BYTES",
    "DYNAMIC_ABI_VERSION",
    "NO_AXIS",
    "OK",
    "OPTIONS_BYTES",
    "TIMED_OUT",
    "UNSUPPORTED_CPU",
    "DescriptionStruct",
    "InputStruct",
    "KernelTimesStruct",
    "OptionsStruct",
    "OutputStruct",
    "StateBytesStruct",
]

ABI_VERSION, DYNAMIC_ABI_VERSION = 1, 2
DATA_DEPENDENT = 1 - (1 << 63)  # in the shape of an output: a data-dependent size, known after the run
NO_AXIS = 2 - (1 << 63)  # in the shape of an output of data-dependent rank: the axis does not exist
OK, UNSUPPORTED_CPU, BUSY, CANCELLED, TIMED_OUT = 0, 3, 6, 11, 13  # those of nnefc_status with messages of their own


class _TensorStruct(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("type", c_int32),
        ("rank", c_int32),
        ("shape", POINTER(c_int64)),
        ("bytes", c_uint64),
    )


class _DimensionStruct(Structure):
    _fields_ = (
        ("name", c_char_p),
        ("least", c_int64),
        ("most", c_int64),
        ("multiple", c_int64),
        ("typical", c_int64),
    )


class _StringStruct(Structure):
    _fields_ = (("data", c_void_p), ("size", c_size_t))


class _EntryStruct(Structure):
    _fields_ = (("key", _StringStruct), ("value", _StringStruct))


class DescriptionStruct(Structure):
    _fields_ = (
        ("abi_version", c_uint32),
        ("struct_size", c_uint32),
        ("model", c_char_p),
        ("target", c_char_p),
        ("compiler", c_char_p),
        ("inputs", POINTER(_TensorStruct)),
        ("outputs", POINTER(_TensorStruct)),
        ("states", POINTER(_TensorStruct)),
        ("input_count", c_uint32),
        ("output_count", c_uint32),
        ("state_count", c_uint32),
        ("cpu_feature_count", c_uint32),
        ("cpu_features", POINTER(c_char_p)),
        ("workspace_bytes", c_uint64),
        ("scratch_bytes", c_uint64),
        ("constant_bytes", c_uint64),
        ("state_bytes", c_uint64),
        ("variable_count", c_uint32),
        ("variables", POINTER(c_char_p)),
        ("source", c_char_p),
        ("weights", c_char_p),
        ("device", c_char_p),
        ("device_bytes", c_uint64),
        ("dimension_count", c_uint32),
        ("dimensions", POINTER(_DimensionStruct)),
        ("metadata_count", c_uint32),
        ("metadata", POINTER(_EntryStruct)),
    )


class InputStruct(Structure):
    _fields_ = (("data", c_void_p), ("bytes", c_uint64), ("shape", c_void_p))


class OutputStruct(Structure):
    _fields_ = (
        ("memory", c_void_p),
        ("capacity", c_uint64),
        ("data", c_void_p),
        ("bytes", c_uint64),
        ("shape", POINTER(c_int64)),
    )


class KernelTimesStruct(Structure):
    _fields_ = (
        ("kernel", c_char_p),
        ("tensors", c_char_p),
        ("rule", c_char_p),
        ("operations", c_uint64),
        ("bytes", c_uint64),
        ("calls", c_uint64),
        ("nanoseconds", c_uint64),
        ("last_begin", c_uint64),
        ("last_nanoseconds", c_uint64),
    )


DESCRIPTION_BYTES = DescriptionStruct.source.offset  # the minimum size, that of the first version of the ABI


class OptionsStruct(Structure):
    _fields_ = (
        ("struct_size", c_uint32),
        ("threads", c_int32),
        ("workspace", c_void_p),
        ("workspace_bytes", c_uint64),
        ("weights", c_char_p),
        ("device", c_int64),
        ("keep_subnormals", c_int32),
        ("reserved", c_int32),
        ("processors", POINTER(c_int32)),
        ("parallel_for", c_void_p),
        ("parallel_for_pool", c_void_p),
        ("constant_bytes", c_uint64),
        ("constants", c_void_p),
    )


OPTIONS_BYTES = OptionsStruct.weights.offset  # the size that libraries of all versions accept


class StateBytesStruct(Structure):
    _fields_ = (("own", c_uint64), ("shared", c_uint64), ("mapped", c_uint64))
