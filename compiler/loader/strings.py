"""Converts string arrays of NumPy to `nnefc_string` and back."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np

from .checks import check_type
from .tensors import RunError, Tensor

__all__ = ["decoded", "encoded", "room_for"]

_UNDECODABLE = "surrogateescape"  # keeps bytes that are not UTF-8 when they are decoded and encoded again


def room_for(tensor: Tensor) -> np.ndarray:
    """Return memory for an nnefc_string for each element: `[elements, 2]`, an address and a number of bytes, zeros."""
    return np.zeros((math.prod(tensor.shape), 2), np.uintp)


def encoded(tensor: Tensor, array: np.ndarray) -> np.ndarray:
    """Encode an input of strings as nnefc_string, `[elements, 2]`; the bytes follow in the same memory.

    Raises:
        RunError: the array has another shape, or elements that are not strings or cannot be encoded in UTF-8.
    """
    if array.dtype.kind not in "OSTU":
        raise RunError(
            f'input "{tensor.name}" is an array of {array.dtype}, but the model has strings: use .astype(str)'
        )
    if array.shape != tensor.shape:
        check_type("input", tensor, array.astype(object))
    texts = [_utf8(tensor, element) for element in array.reshape(-1).tolist()]
    sizes = np.fromiter(map(len, texts), np.uintp, len(texts))
    room = np.empty((len(texts), 2), np.uintp)
    memory = np.empty(room.nbytes + int(sizes.sum()), np.uint8)
    memory[room.nbytes :] = np.frombuffer(b"".join(texts), np.uint8)
    strings = memory[: room.nbytes].view(np.uintp).reshape(room.shape)
    strings[:, 0] = memory.ctypes.data + room.nbytes + np.cumsum(sizes) - sizes
    strings[:, 1] = sizes
    return strings


def _utf8(tensor: Tensor, element: Any) -> bytes:
    if isinstance(element, bytes):
        return element
    if not isinstance(element, str):
        raise RunError(
            f'input "{tensor.name}" has an element that is a {type(element).__name__}, not a str: {element!r}'
        )
    try:
        return element.encode("utf-8", _UNDECODABLE)
    except UnicodeEncodeError:
        raise RunError(f'input "{tensor.name}" has an element that UTF-8 cannot encode: {element!r}') from None


def decoded(tensor: Tensor, array: np.ndarray) -> np.ndarray:
    """Return an output: strings as an array of `str` objects, other outputs unchanged.

    `array` has nnefc_strings if `tensor` is of strings; their bytes are valid until the next run.
    """
    if tensor.dtype != "string":
        return array
    count, made = math.prod(tensor.shape), np.empty(tensor.shape, np.object_)
    pairs = array[:count].tolist()
    made.reshape(-1)[:] = [ctypes.string_at(*pair).decode("utf-8", _UNDECODABLE) if pair[1] else "" for pair in pairs]
    return made
