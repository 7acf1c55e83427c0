"""Large initializers stay in the file of their model: messages of protobuf are copied when they are parsed.

A model's message is rewritten before it is parsed, in the few places where large tensors are:

    initializer { dims: 4096 dims: 4096 raw_data: "…" }
      →  initializer { dims: 4096 dims: 4096 data_location: EXTERNAL external_data { location, offset, length } }
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx

from nnefc.mapped_files import map_file

__all__ = ["ITSELF", "mapped_message", "without_large_tensors"]

ITSELF = "\0model"
"""The location of data that are in the file of the model: no path is written so."""

_LEAST = 1 << 20
"""Bytes of a large tensor."""

_GRAPH = onnx.ModelProto.DESCRIPTOR.fields_by_name["graph"].number
_INITIALIZER = onnx.GraphProto.DESCRIPTOR.fields_by_name["initializer"].number
_TENSOR = {name: field.number for name, field in onnx.TensorProto.DESCRIPTOR.fields_by_name.items()}
_RAW = _TENSOR["raw_data"]
_KEPT = {_TENSOR[name] for name in ("dims", "data_type", "name", "doc_string")}
"""Fields of tensors that are kept as they are; tensors with others are, too."""

Message = npt.NDArray[np.uint8]


def mapped_message(path: Path) -> Message | None:
    """A model's file in memory, read where it is touched; None for small files, and what is no file.

    Raises:
        OSError: it cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size < _LEAST:
            return None
        return map_file(descriptor, status.st_size)
    finally:
        os.close(descriptor)


def without_large_tensors(message: Message) -> bytes:
    """The message of a model whose large initializers have their data in the file ITSELF: `message`.

    What is no message of protobuf is left as it is, for the parser to refuse.
    """
    try:
        return b"".join(_model(message.data))
    except _MalformedError:
        return message.tobytes()


class _MalformedError(Exception):
    """No message of protobuf."""


def _model(message: memoryview) -> Iterator[bytes | memoryview]:
    for number, begin, content, end in _fields(message, 0, len(message)):
        if number != _GRAPH:
            yield message[begin:end]
            continue
        graph = list(_graph(message, content, end))
        yield _head(number, sum(map(len, graph)))
        yield from graph


def _graph(message: memoryview, first: int, last: int) -> Iterator[bytes | memoryview]:
    for number, begin, content, end in _fields(message, first, last):
        tensor = _apart(message, content, end) if number == _INITIALIZER and end - begin >= _LEAST else None
        yield message[begin:end] if tensor is None else _head(number, len(tensor)) + tensor


def _apart(message: memoryview, first: int, last: int) -> bytes | None:
    """A tensor without its data; None if these are not in one field alone."""
    fields = list(_fields(message, first, last))
    raw = [(content, end) for number, _, content, end in fields if number == _RAW]
    if len(raw) != 1 or any(number not in _KEPT for number, *_ in fields if number != _RAW):
        return None
    ((content, end),) = raw
    reference = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", ITSELF), ("offset", str(content)), ("length", str(end - content))):
        reference.external_data.add(key=key, value=value)
    kept = b"".join(bytes(message[begin:stop]) for number, begin, _, stop in fields if number != _RAW)
    made: bytes = kept + reference.SerializeToString()
    return made


def _fields(message: memoryview, first: int, last: int) -> Iterator[tuple[int, int, int, int]]:
    """Of each field its number, where it begins, where its content does, and where it ends."""
    at = first
    while at < last:
        begin = at
        key, at = _varint(message, at, last)
        match key & 7:
            case 0:  # an integer
                content, at = at, _varint(message, at, last)[1]
            case 1:  # 64 bits
                content, at = at, at + 8
            case 2:  # bytes
                size, content = _varint(message, at, last)
                at = content + size
            case 5:  # 32 bits
                content, at = at, at + 4
            case _:
                raise _MalformedError
        if at > last:
            raise _MalformedError
        yield key >> 3, begin, content, at


def _varint(message: memoryview, at: int, last: int) -> tuple[int, int]:
    """An integer, and where it ends."""
    value = shift = 0
    while at < last and shift < 70:
        byte = message[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at
    raise _MalformedError


def _head(number: int, size: int) -> bytes:
    """What comes before the bytes of a field."""
    made = bytearray()
    for value in (number << 3 | 2, size):
        while value > 127:
            made.append(value & 127 | 128)
            value >>= 7
        made.append(value)
    return bytes(made)
