"""Imports and exports arrays by DLPack."""

from __future__ import annotations

import ctypes
import sys
from ctypes import (
    CFUNCTYPE,
    POINTER,
    PYFUNCTYPE,
    Structure,
    c_char_p,
    c_int,
    c_int32,
    c_int64,
    c_uint8,
    c_uint16,
    c_uint32,
    c_uint64,
    c_void_p,
    py_object,
    pythonapi,
)
from dataclasses import dataclass
from typing import Any

from .tensors import RunError

__all__ = [
    "BFLOAT",
    "CUDA",
    "CUDA_MANAGED",
    "HOST_DEVICES",
    "KINDS",
    "ORDER",
    "Shown",
    "capsule_of",
    "shown_by_capsule",
]

KINDS = {"i": 0, "u": 1, "f": 2, "b": 6}  # NumPy's kind of an element type → DLPack's type code
BFLOAT = 4
CUDA, CUDA_MANAGED = 2, 13  # DLPack's device types with GPU memory
HOST_DEVICES = (1, 3, 11)  # and those with host memory: pageable, pinned for CUDA, pinned for ROCm
ORDER = "<" if sys.byteorder == "little" else ">"


@dataclass(frozen=True)
class Shown:
    """The description of another library's array.

    Attributes:
        address: of the first element.
        kind: NumPy's kind of the element type, "bfloat", or "?" if it is neither.
        element_bytes: of an element.
        shape: of the array.
        strides: in elements; None: row-major.
        read_only: whether the array may not be written.
        owner: keeps the memory alive.
    """

    address: int
    kind: str
    element_bytes: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    read_only: bool
    owner: Any


class _DlTensor(Structure):
    _fields_ = (
        ("data", c_void_p),
        ("device_type", c_int32),
        ("device_id", c_int32),
        ("ndim", c_int32),
        ("code", c_uint8),
        ("bits", c_uint8),
        ("lanes", c_uint16),
        ("shape", POINTER(c_int64)),
        ("strides", POINTER(c_int64)),
        ("byte_offset", c_uint64),
    )


_Deleter = CFUNCTYPE(None, c_void_p)


class _DlManaged(Structure):
    _fields_ = (("tensor", _DlTensor), ("context", c_void_p), ("deleter", _Deleter))


class _DlVersioned(Structure):
    _fields_ = (
        ("major", c_uint32),
        ("minor", c_uint32),
        ("context", c_void_p),
        ("deleter", _Deleter),
        ("flags", c_uint64),
        ("tensor", _DlTensor),
    )


_DL_READ_ONLY = 1  # of the flags
_DLTENSOR_VERSIONED = b"dltensor_versioned"
_DLTENSOR = b"dltensor"  # the name of a capsule that has not been consumed
_capsule_pointer = PYFUNCTYPE(c_void_p, c_void_p, c_char_p)(("PyCapsule_GetPointer", pythonapi))
_capsule_has_name = PYFUNCTYPE(c_int, c_void_p, c_char_p)(("PyCapsule_IsValid", pythonapi))
_new_capsule = PYFUNCTYPE(py_object, c_void_p, c_char_p, c_void_p)(("PyCapsule_New", pythonapi))


def shown_by_capsule(capsule: Any, value: Any) -> Shown:
    """Return the description of an array by a DLPack capsule.

    The capsule is not consumed: the description keeps it, and the capsule frees its memory when it is deleted.

    Raises:
        RunError: the capsule has an unknown version of DLPack.
    """
    read_only = False  # unversioned capsules have no flag for it
    if _capsule_has_name(id(capsule), _DLTENSOR_VERSIONED):
        pointer = _capsule_pointer(id(capsule), _DLTENSOR_VERSIONED)
        versioned = ctypes.cast(pointer, POINTER(_DlVersioned)).contents
        if versioned.major != 1:
            raise RunError(f"version {versioned.major} of DLPack is not known")
        tensor, read_only = versioned.tensor, bool(versioned.flags & _DL_READ_ONLY)
    else:
        tensor = ctypes.cast(_capsule_pointer(id(capsule), _DLTENSOR), POINTER(_DlManaged)).contents.tensor
    kind = {**{code: kind for kind, code in KINDS.items()}, BFLOAT: "bfloat"}.get(tensor.code, "?")
    shape = tuple(tensor.shape[axis] for axis in range(tensor.ndim))
    strides = tuple(tensor.strides[axis] for axis in range(tensor.ndim)) if tensor.strides else None
    address = (tensor.data or 0) + tensor.byte_offset
    return Shown(address, kind, tensor.bits * tensor.lanes // 8, shape, strides, read_only, (capsule, value))


# Structs of capsules that other libraries use, by address; removed when the other library calls the deleter.
_shown_to_others: dict[int, tuple[_DlManaged, Any, Any]] = {}


def _forget(address: int) -> None:
    _shown_to_others.pop(address, None)


def _drop_capsule(capsule: int) -> None:
    if _capsule_has_name(capsule, _DLTENSOR):  # the consumer of a capsule renames it
        _forget(_capsule_pointer(capsule, _DLTENSOR))


_forget_native, _drop_native = _Deleter(_forget), _Deleter(_drop_capsule)


def capsule_of(array: Any, code: int) -> Any:
    """Return a DLPack capsule of a `DeviceArray`, which is kept alive by it; `code` is DLPack's type code."""
    rank = len(array.shape)
    sizes = (c_int64 * (2 * rank + 1))(*array.shape)
    step = 1
    for axis in reversed(range(rank)):
        sizes[rank + axis] = step
        step *= array.shape[axis]
    tensor = _DlTensor(array.address, CUDA, array.device, rank, code, 8 * array.dtype.itemsize, 1)
    tensor.shape = ctypes.cast(sizes, POINTER(c_int64))
    tensor.strides = ctypes.cast(ctypes.byref(sizes, 8 * rank), POINTER(c_int64))
    managed = _DlManaged(tensor, None, _forget_native)
    address = ctypes.addressof(managed)
    _shown_to_others[address] = managed, sizes, array
    return _new_capsule(address, _DLTENSOR, ctypes.cast(_drop_native, c_void_p))
