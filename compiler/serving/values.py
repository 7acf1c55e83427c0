"""Converts the protocol's tensors to arrays and back: from and to raw bytes and lists of values.

Raw bytes are little-endian and row-major; a string is its length as four bytes, followed by its bytes. A bfloat16
tensor is an array of uint16 with the bit patterns, as everywhere in the loader.

Source: the Open Inference Protocol, «Tensor Data» and «Binary Tensor Data Extension».
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any, TypeAlias

import numpy as np

from nnefc.loader import Tensor
from nnefc.loader.arrays import float32_of_bfloat16
from nnefc.loader.tensors import DTYPES
from nnefc.serving.failures import FailureKind, Refused

__all__ = ["DATATYPES", "Array", "from_numbers", "from_raw", "to_numbers", "to_raw"]

Array: TypeAlias = "np.ndarray[Any, Any]"

DATATYPES = {
    "bool": "BOOL",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": "FP16",
    "bfloat16": "BF16",
    "float32": "FP32",
    "float64": "FP64",
    "string": "BYTES",
}
"""The protocol's name of each element type of the loader."""

_LENGTH_BYTES = 4
_UNDECODABLE = "surrogateescape"  # the loader decodes bytes of strings in this way, as they need not be UTF-8


def from_raw(tensor: Tensor, shape: tuple[int, ...], data: bytes | memoryview) -> Array:
    """Return an input from raw bytes; an array of numbers is a view of `data`.

    Args:
        tensor: the input; its element type counts.
        shape: of the array.
        data: little-endian and row-major.

    Raises:
        Refused: there are more or fewer bytes than the shape needs, or they are no values of the type.
    """
    count = math.prod(shape)
    if tensor.dtype == "string":
        return _strings(tensor, shape, memoryview(data))
    dtype = DTYPES[tensor.dtype]
    if len(data) != count * dtype.itemsize:
        raise Refused(
            FailureKind.INVALID,
            f'input "{tensor.name}" has {len(data):,} bytes, but the shape {list(shape)} of {DATATYPES[tensor.dtype]} '
            f"needs {count * dtype.itemsize:,}",
        )
    if tensor.dtype == "bool":
        bits = np.frombuffer(data, np.uint8)
        if bits.size and bits.max() > 1:
            raise Refused(FailureKind.INVALID, f'input "{tensor.name}" of BOOL has bytes that are neither 0 nor 1')
        return bits.view(np.bool_).reshape(shape)
    found = np.frombuffer(data, dtype.newbyteorder("<")).reshape(shape)
    return found.astype(dtype, copy=False)


def _strings(tensor: Tensor, shape: tuple[int, ...], data: memoryview) -> Array:
    count, offset = math.prod(shape), 0
    if count * _LENGTH_BYTES > len(data):  # check before allocating: the client chooses the shape
        raise _broken_strings(tensor, count)
    found = np.empty(count, np.object_)
    for number in range(count):
        begin = offset + _LENGTH_BYTES
        if begin > len(data):
            raise _broken_strings(tensor, count)
        offset = begin + int.from_bytes(data[offset:begin], "little")
        if offset > len(data):
            raise _broken_strings(tensor, count)
        found[number] = bytes(data[begin:offset])
    if offset != len(data):
        raise _broken_strings(tensor, count)
    return found.reshape(shape)


def _broken_strings(tensor: Tensor, count: int) -> Refused:
    return Refused(
        FailureKind.INVALID,
        f'input "{tensor.name}" does not hold {count:,} strings, each a length of 4 bytes and as many bytes',
    )


def to_raw(tensor: Tensor, array: Array) -> bytes:
    """Return an output as raw bytes, little-endian and row-major."""
    if tensor.dtype == "string":
        texts = [_bytes_of(text) for text in array.reshape(-1).tolist()]
        return b"".join(chain.from_iterable((len(text).to_bytes(_LENGTH_BYTES, "little"), text) for text in texts))
    return array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def _bytes_of(text: str | bytes) -> bytes:
    return text if isinstance(text, bytes) else text.encode("utf-8", _UNDECODABLE)


def from_numbers(tensor: Tensor, shape: tuple[int, ...], data: Sequence[Any]) -> Array:
    """Return an input from a list of values: flat, or nested lists, row-major.

    Raises:
        Refused: there are more or fewer elements than the shape needs, or some are of another type or out of range.
    """
    flat: Sequence[Any] = data
    for _ in shape:
        if not flat or not isinstance(flat[0], list):
            break
        if not all(type(part) is list for part in flat):
            raise Refused(FailureKind.INVALID, f'input "{tensor.name}" has lists next to values in its data')
        flat = list(chain.from_iterable(flat))
    if len(flat) != math.prod(shape):
        raise Refused(
            FailureKind.INVALID,
            f'input "{tensor.name}" has {len(flat):,} elements, but the shape {list(shape)} needs {math.prod(shape):,}',
        )
    taken = _PYTHON_TYPES[tensor.dtype if tensor.dtype in _PYTHON_TYPES else DTYPES[tensor.dtype].kind]
    wrong = set(map(type, flat)) - taken
    if wrong:
        raise Refused(
            FailureKind.INVALID,
            f'input "{tensor.name}" of {DATATYPES[tensor.dtype]} has an element that is a '
            f"{min(kind.__name__ for kind in wrong)}",
        )
    try:
        return _converted(tensor, flat).reshape(shape)
    except (OverflowError, UnicodeEncodeError) as error:
        raise Refused(
            FailureKind.INVALID, f'input "{tensor.name}" has an element that is no {DATATYPES[tensor.dtype]}: {error}'
        ) from error


_PYTHON_TYPES: dict[str, set[type]] = {
    "string": {str, bytes},
    "bfloat16": {int, float},
    "b": {bool},
    "i": {int},
    "u": {int},
    "f": {int, float},
}
"""The Python types that values from JSON or a message may have, by element type or else by NumPy's kind of dtype."""


def _converted(tensor: Tensor, flat: Sequence[Any]) -> Array:
    if tensor.dtype == "string":
        found = np.empty(len(flat), np.object_)
        found[:] = [text if isinstance(text, bytes) else text.encode() for text in flat]
        return found
    with np.errstate(over="ignore"):  # values beyond the range of the type become infinite, as in any conversion
        if tensor.dtype == "bfloat16":
            return _rounded_to_bfloat16(np.array(flat, np.float32))
        return np.array(flat, DTYPES[tensor.dtype])


def _rounded_to_bfloat16(array: Array) -> Array:
    """Round float32 to bit patterns of bfloat16, to nearest, ties to even; NaN stays NaN."""
    bits = array.view(np.uint32)
    rounded = (bits + (np.uint32(0x7FFF) + ((bits >> 16) & 1))) >> 16
    return np.where(np.isnan(array), np.uint32(0x7FC0), rounded).astype(np.uint16)


def to_numbers(tensor: Tensor, array: Array) -> list[Any]:
    """Return an output as a flat list of values for JSON, row-major.

    Raises:
        Refused: the output has a string that is not UTF-8.
    """
    if tensor.dtype == "bfloat16":
        array = float32_of_bfloat16(array)
    flat: list[Any] = array.reshape(-1).tolist()
    if tensor.dtype == "string":
        try:
            "".join(flat).encode()
        except UnicodeEncodeError:
            raise Refused(
                FailureKind.INVALID, f'output "{tensor.name}" has bytes that are no UTF-8: ask for it as binary data'
            ) from None
    return flat
