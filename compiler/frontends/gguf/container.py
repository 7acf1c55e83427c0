"""Reads the container format GGUF: metadata and memory-mapped tensors.

Little-endian: `GGUF`, u32 version, u64 number of tensors, u64 number of keys; the keys, each a string, a u32 type and a
value; the tensors, each a string, u32 number of dimensions, u64 dimensions from the innermost, u32 element type, u64
offset; then, aligned, the data. A string is a u64 length and UTF-8; an array a u32 type, a u64 length and the elements.

Every number of a file is checked before it is used; what does not fit is an error that names the key or the tensor.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from nnefc.frontends.decoder import StoredTensor
from nnefc.frontends.decoder.weights import shown
from nnefc.frontends.tensor_types import type_numbered
from nnefc.frontends.tensor_types.tensor_type import Bytes
from nnefc.support.diagnostics import CompileError
from nnefc.support.mapped_files import map_path

__all__ = ["MAGIC", "Container", "read_container"]

MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_MAX_KEYS, _MAX_TENSORS, _MAX_NAME, _MAX_DIMENSIONS, _MAX_DEPTH = 1 << 16, 1 << 20, 1 << 16, 4, 4
_MAX_ELEMENTS = 1 << 40
_MAX_VALUES = 1 << 24
"""Elements of all arrays in the metadata: as objects of Python they take many times their bytes."""
_DEFAULT_ALIGNMENT = 32

_STRING, _ARRAY = 8, 9
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
"""Types of values, and how `struct` calls them."""


@dataclass(frozen=True)
class Container:
    """A file of GGUF.

    Attributes:
        path: of the file.
        metadata: values by their keys: numbers, strings, booleans, lists.
        tensors: by their names.
    """

    path: Path
    metadata: Mapping[str, Any]
    tensors: Mapping[str, StoredTensor]


class _Reader:
    """Reads values one after the other, within the bytes of the file."""

    def __init__(self, path: Path, data: Bytes) -> None:
        self.path, self._data, self._view = path, data, data.data
        self.at = 0
        self.what = "the header"
        self._values = 0

    def refuse(self, reason: str) -> NoReturn:
        """Raises an error that says where in the file it is."""
        raise CompileError(f"'{self.path}' is not a valid GGUF file: {self.what}: {reason}")

    def number(self, code: str) -> Any:
        """Returns a number."""
        size = struct.calcsize(f"<{code}")
        if self.at + size > len(self._data):
            self.refuse("the file ends there: the download was cut off")
        (value,) = struct.unpack_from(f"<{code}", self._view, self.at)
        self.at += size
        return value

    def text(self, maximum: int) -> str:
        """Returns a string of a limited length."""
        length = self.number("Q")
        if length > maximum or self.at + length > len(self._data):
            room = min(maximum, len(self._data) - self.at)
            self.refuse(f"a string of {length:,} bytes, where at most {room:,} can be")
        found = bytes(self._view[self.at : self.at + length])
        self.at += length
        return found.decode("utf-8", errors="replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        """Returns a value of a type."""
        if kind in _NUMBERS:
            return self.number(_NUMBERS[kind])
        if kind == _STRING:
            return self.text(len(self._data))
        if kind != _ARRAY:
            self.refuse(f"there is no type {kind} of values")
        if depth == _MAX_DEPTH:
            self.refuse(f"arrays are nested more than {_MAX_DEPTH} deep")
        own, count = self.number("I"), self.number("Q")
        size = struct.calcsize(f"<{_NUMBERS[own]}") if own in _NUMBERS else 8 if own == _STRING else 12
        if count > (len(self._data) - self.at) // size:
            self.refuse(f"an array of {count:,} elements is longer than the file")
        self._values += count
        if self._values > _MAX_VALUES:
            self.refuse(f"arrays have more than {_MAX_VALUES:,} elements together")
        if own in _NUMBERS:
            found = struct.unpack_from(f"<{count}{_NUMBERS[own]}", self._view, self.at)
            self.at += count * size
            return list(found)
        return [self.value(own, depth + 1) for _ in range(count)]


@dataclass(frozen=True)
class _Info:
    """The entry of a tensor in the header; dimensions begin with the outermost."""

    name: str
    shape: tuple[int, ...]
    type: int
    offset: int


def read_container(path: Path) -> Container:
    """Reads the metadata of a file and maps its tensors; no elements are read.

    Raises:
        CompileError: the file cannot be read, or is not as the format says.
    """
    try:
        data = map_path(path) if path.stat().st_size else np.empty(0, np.uint8)
    except OSError as error:
        raise CompileError(f"cannot read '{path}': {error.strerror or error}") from None
    reader = _Reader(path, data)
    if data[:4].tobytes() != MAGIC:
        raise CompileError(f"'{path}' is not a GGUF file: it does not begin with GGUF")
    reader.at = 4
    version = reader.number("I")
    if version not in _VERSIONS:
        big = int.from_bytes(version.to_bytes(4, "little"), "big")
        reader.refuse(
            "it is big-endian, which is not supported" if big in _VERSIONS else f"version {version} is not supported"
        )
    tensors, keys = reader.number("Q"), reader.number("Q")
    if keys > _MAX_KEYS or tensors > _MAX_TENSORS:
        reader.refuse(f"{keys:,} keys and {tensors:,} tensors, more than {_MAX_KEYS:,} and {_MAX_TENSORS:,}")
    metadata = _metadata(reader, keys)
    infos = [_info(reader, n) for n in range(tensors)]
    return Container(path, metadata, _mapped(reader, data, infos, _alignment(reader, metadata)))


def _metadata(reader: _Reader, count: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for n in range(count):
        reader.what = f"key {n}"
        key = reader.text(_MAX_NAME)
        reader.what = f"the key '{shown(key)}'"
        if key in found:
            reader.refuse("it is there twice")
        found[key] = reader.value(reader.number("I"))
    return found


def _info(reader: _Reader, n: int) -> _Info:
    reader.what = f"tensor {n}"
    name = reader.text(_MAX_NAME)
    reader.what = f"the tensor '{shown(name)}'"
    rank = reader.number("I")
    if not 1 <= rank <= _MAX_DIMENSIONS:
        reader.refuse(f"{rank} dimensions, where 1 to {_MAX_DIMENSIONS} can be")
    shape = tuple(reader.number("Q") for _ in range(rank))[::-1]
    if 0 in shape or max(shape) > _MAX_ELEMENTS or math.prod(shape) > _MAX_ELEMENTS:
        reader.refuse(f"a tensor cannot have the shape {list(shape)}")
    return _Info(name, shape, reader.number("I"), reader.number("Q"))


def _alignment(reader: _Reader, metadata: Mapping[str, Any]) -> int:
    reader.what = "the key 'general.alignment'"
    found = metadata.get("general.alignment", _DEFAULT_ALIGNMENT)
    if not isinstance(found, int) or isinstance(found, bool) or not 0 < found <= 1 << 20 or found & (found - 1):
        reader.refuse(f"{shown(found)} is not a power of two")
    return found


def _mapped(reader: _Reader, data: Bytes, infos: list[_Info], alignment: int) -> dict[str, StoredTensor]:
    """Returns the tensors as views of the file, after the checks of their locations."""
    start = -(-reader.at // alignment) * alignment
    found: dict[str, StoredTensor] = {}
    for info in infos:
        reader.what = f"the tensor '{shown(info.name)}'"
        if info.name in found:
            reader.refuse("it is there twice")
        kind = type_numbered(info.type)
        if kind is None:
            raise CompileError(f"'{reader.path}': {reader.what} has elements of type {info.type}: it is not supported")
        if info.shape[-1] % kind.elements:
            reader.refuse(f"rows of {info.shape[-1]} elements are not full blocks of {kind.elements} ({kind.name})")
        if info.offset % alignment:
            reader.refuse(f"its offset {info.offset} is not a multiple of {alignment}")
        begin, size = start + info.offset, kind.data_bytes(info.shape)
        if begin + size > len(data):
            reader.refuse(f"its {size:,} bytes from {begin:,} on reach beyond the file of {len(data):,}")
        found[info.name] = StoredTensor(kind, info.shape, data[begin : begin + size])
    _check_overlaps(reader, infos, found)
    return found


def _check_overlaps(reader: _Reader, infos: list[_Info], found: Mapping[str, StoredTensor]) -> None:
    end, before = 0, ""
    for info in sorted(infos, key=lambda info: info.offset):
        if info.offset < end:
            reader.what = f"the tensor '{shown(info.name)}'"
            reader.refuse(f"it overlaps the tensor '{shown(before)}'")
        end, before = info.offset + len(found[info.name].data), info.name
