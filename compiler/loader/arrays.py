"""Converts host arrays to inputs of a run, and outputs of a run to arrays."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from ctypes import c_char
from typing import Any

import numpy as np

from .checks import check_type
from .dlpack import HOST_DEVICES, KINDS, ORDER, Shown, shown_by_capsule
from .strings import decoded, encoded, room_for
from .tensors import DTYPES, RunError, Tensor

__all__ = [
    "DENSE",
    "Empty",
    "address_of",
    "as_array",
    "copied",
    "float32_of_bfloat16",
    "returned",
    "source_of",
    "target_for",
    "trimmed",
]

Empty = Callable[[tuple[int, ...], np.dtype], np.ndarray]
"""Makes an array of a shape and an element type, with uninitialized elements."""

DENSE = 0x001 | 0x100  # NumPy's flags C_CONTIGUOUS and ALIGNED


def as_array(tensor: Tensor, value: Any) -> np.ndarray:
    """Return an input as a NumPy array, without a copy if it is already in host memory.

    Raises:
        RunError: NumPy cannot read the value.
    """
    if isinstance(value, np.ndarray):
        return value
    if isinstance(value, Mapping):
        raise RunError(f'input "{tensor.name}" is a {type(value).__name__}: run(…) takes inputs by name')
    try:
        if hasattr(value, "__dlpack__"):
            return _lent(tensor, value) if tensor.dtype == "bfloat16" else np.from_dlpack(value)
        return np.asarray(value, np.object_ if tensor.dtype == "string" else None)
    except Exception as error:  # the array's library may raise any type of error
        raise RunError(
            f'input "{tensor.name}" is a {type(value).__name__} that NumPy cannot read ({error}): pass an array in the '
            "machine's own memory; bfloat16 as uint16 bit patterns"
        ) from error


def source_of(tensor: Tensor, value: Any, role: str = "input") -> np.ndarray:
    """Return an input or state as a dense row-major array: the value itself if it is one, else a copy.

    Strings are encoded as nnefc_string. `role` is "input" or "state", for messages.

    Raises:
        RunError: the value has another element type or shape than `tensor`.
    """
    array = value if type(value) is np.ndarray else as_array(tensor, value)
    if tensor.dtype == "string":
        return encoded(tensor, array)
    if array.dtype is not DTYPES[tensor.dtype] or array.shape != tensor.shape:
        check_type(role, tensor, array)
    return array if array.flags.num & DENSE == DENSE else np.require(array, requirements=["C", "A"])


def target_for(tensor: Tensor, value: Any, empty: Empty = np.empty) -> np.ndarray:
    """Return the array that a run writes an output to: the caller's `value`, or for None one that `empty` makes.

    Raises:
        RunError: the caller's array does not match `tensor`, or is not dense, row-major and writable.
    """
    if value is None:
        return room_for(tensor) if tensor.dtype == "string" else empty(tensor.shape, DTYPES[tensor.dtype])
    array = value if isinstance(value, np.ndarray) else _lent_for_writing(tensor, value)
    check_type("out for", tensor, array)
    flags = array.flags
    if not (flags.c_contiguous and flags.aligned and flags.writeable):
        raise RunError(f'out for "{tensor.name}" must be writable, dense and row-major, as np.empty makes it')
    return room_for(tensor) if tensor.dtype == "string" else array


def returned(out: Sequence[Any], results: list[Any]) -> list[Any]:
    """Return the outputs: the caller's arrays where `out` has them, else the arrays of `results`."""
    for number, given in enumerate(out):
        if given is not None:
            result = results[number]
            if isinstance(result, np.ndarray) and result.dtype.hasobject:  # strings have to be copied
                given[...] = result
            results[number] = given
    return results


def copied(tensor: Tensor, found: Any, empty: Empty) -> np.ndarray:
    """Copy an output from the session's memory, an :class:`OutputStruct`, to an array that `empty` makes."""
    shape = tuple(found.shape[: len(tensor.shape)])
    if tensor.dtype == "string":
        strings = room_for(Tensor(tensor.name, tensor.dtype, shape))
        ctypes.memmove(strings.ctypes.data, found.data, strings.nbytes if strings.size else 0)
        return decoded(Tensor(tensor.name, tensor.dtype, shape), strings)
    result = empty(shape, DTYPES[tensor.dtype])
    if result.nbytes:
        ctypes.memmove(result.ctypes.data, found.data, result.nbytes)
    return result


def trimmed(array: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the part of an output that a run has written; `shape` is that of the part."""
    return array if array.shape == shape else array.reshape(-1)[: math.prod(shape)].reshape(shape)


def address_of(array: Any) -> int:
    """Return the address of a dense NumPy array's elements; five times as fast as `array.ctypes`."""
    try:
        return ctypes.addressof(c_char.from_buffer(array))
    except (TypeError, ValueError):  # the array is read-only, or has no elements
        return int(array.ctypes.data)


# Libraries with immutable arrays that DLPack does not report as read-only.
_IMMUTABLE = ("jax", "jaxlib", "pyarrow", "tensorflow")


def _lent_for_writing(tensor: Tensor, value: Any) -> np.ndarray:
    """Return another library's array as a NumPy array in the same memory, to be written.

    Raises:
        RunError: the array has no DLPack, or may not be written.
    """
    kind = type(value).__name__
    if not hasattr(value, "__dlpack__") or not hasattr(value, "__dlpack_device__"):
        raise RunError(f'out for "{tensor.name}" is a {kind}, neither a NumPy array nor another with __dlpack__')
    if type(value).__module__.partition(".")[0] in _IMMUTABLE:
        raise RunError(f'out for "{tensor.name}" is a {kind}, which cannot be written: use np.empty, or omit out')
    try:
        return _lent(tensor, value)
    except Exception as error:  # the array's library may raise any type of error
        raise RunError(f'out for "{tensor.name}" is a {kind} that cannot be written ({error})') from error


class _Lent:
    """Another library's array in host memory, with NumPy's `__array_interface__`; NumPy's array keeps it alive."""

    def __init__(self, shown: Shown, typestr: str) -> None:
        self._owner = shown.owner
        size = shown.element_bytes
        strides = None if shown.strides is None else tuple(size * stride for stride in shown.strides)
        data = shown.address, shown.read_only
        self.__array_interface__ = {
            "shape": shown.shape,
            "typestr": typestr,
            "data": data,
            "strides": strides,
            "version": 3,
        }


def _lent(tensor: Tensor, value: Any) -> np.ndarray:
    """Return another library's array in host memory as a NumPy array, writable if the other is; bfloat16 as uint16.

    NumPy's own `from_dlpack` does not support bfloat16, and treats unversioned DLPack capsules as read-only.

    Raises:
        RunError: the array is not in host memory, or its element type does not exist in NumPy.
    """
    if value.__dlpack_device__()[0] not in HOST_DEVICES:
        raise RunError("it is not in the host's memory")
    try:
        capsule = value.__dlpack__(max_version=(1, 0))
    except TypeError:  # an older version
        capsule = value.__dlpack__()
    shown = shown_by_capsule(capsule, value)
    kind = "u" if shown.kind == "bfloat" and tensor.dtype == "bfloat16" else shown.kind
    if kind not in KINDS:
        raise RunError(f"its elements are of a type that NumPy lacks, but the model has {tensor.dtype}")
    return np.asarray(_Lent(shown, f"{'|' if shown.element_bytes == 1 else ORDER}{kind}{shown.element_bytes}"))


def float32_of_bfloat16(bits: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return float32 of bfloat16 bit patterns in uint16, the upper 16 bits of float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)
