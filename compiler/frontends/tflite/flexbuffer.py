"""Reads the flexbuffer that the options of a custom operator are: a map of scalars, strings and vectors of numbers."""

from __future__ import annotations

import struct
from typing import Any

from nnefc.support.diagnostics import CompileError

__all__ = ["read_map"]

_INTEGER, _UNSIGNED, _FLOAT, _STRING, _MAP, _BOOL = 1, 2, 3, 5, 9, 26
_INDIRECT = {6: _INTEGER, 7: _UNSIGNED, 8: _FLOAT}
_VECTORS = {11: _INTEGER, 12: _UNSIGNED, 13: _FLOAT, 36: _BOOL}
_UNTYPED = 10
_FORMATS = {_INTEGER: "bhiq", _UNSIGNED: "BHIQ", _BOOL: "BHIQ"}


def read_map(data: bytes) -> dict[str, Any]:
    """The entries of a map by key; none of no bytes. Values of other types are left out.

    Raises:
        CompileError: the bytes are no map.
    """
    if not data:
        return {}
    try:
        width = data[-1]
        type_, root = data[-2] >> 2, _at(data, len(data) - 2 - width, width)
        if type_ != _MAP:
            raise ValueError
        return _entries(data, root, 1 << (data[-2] & 3))
    except (IndexError, ValueError, struct.error):
        raise CompileError("the options of the custom operator are no map") from None


def _number(data: bytes, at: int, width: int, type_: int) -> Any:
    if at < 0 or at + width > len(data):
        raise ValueError
    if type_ == _FLOAT:
        return struct.unpack_from({2: "<e", 4: "<f", 8: "<d"}[width], data, at)[0] if width > 1 else 0.0
    value = struct.unpack_from("<" + _FORMATS[type_][width.bit_length() - 1], data, at)[0]
    return bool(value) if type_ == _BOOL else value


def _at(data: bytes, at: int, width: int) -> int:
    """Return the position that the offset at `at` points to, which is always before it."""
    found = at - int(_number(data, at, width, _UNSIGNED))
    if found < 0:
        raise ValueError
    return found


def _entries(data: bytes, at: int, width: int) -> dict[str, Any]:
    if width not in (1, 2, 4, 8):
        raise ValueError
    count = _number(data, at - width, width, _UNSIGNED)
    if at + count * (width + 1) > len(data):
        raise ValueError
    keys = _at(data, at - 3 * width, width)
    key_width = _number(data, at - 2 * width, width, _UNSIGNED)
    if key_width not in (1, 2, 4, 8):
        raise ValueError
    found: dict[str, Any] = {}
    for index in range(count):
        key = _at(data, keys + index * key_width, key_width)
        name = data[key : data.index(0, key)].decode("utf-8", errors="replace")
        packed = data[at + count * width + index]
        value = _value(data, at + index * width, width, packed >> 2, 1 << (packed & 3))
        if value is not None:
            found[name] = value
    return found


def _value(data: bytes, at: int, width: int, type_: int, inner: int) -> Any:
    if type_ in (_INTEGER, _UNSIGNED, _FLOAT, _BOOL):
        return _number(data, at, width, type_)
    if type_ in _INDIRECT:
        return _number(data, _at(data, at, width), inner, _INDIRECT[type_])
    if type_ == _STRING:
        first = _at(data, at, width)
        length = _number(data, first - inner, inner, _UNSIGNED)
        return data[first : first + length].decode("utf-8", errors="replace")
    if type_ in _VECTORS or type_ == _UNTYPED:
        first = _at(data, at, width)
        count = _number(data, first - inner, inner, _UNSIGNED)
        if first + count * inner > len(data):
            raise ValueError
        types = [_VECTORS.get(type_) or data[first + count * inner + k] >> 2 for k in range(count)]
        if not set(types) <= {_INTEGER, _UNSIGNED, _FLOAT, _BOOL}:
            return None
        return tuple(_number(data, first + k * inner, inner, each) for k, each in enumerate(types))
    return None
