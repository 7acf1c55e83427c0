"""Keeps large tensors and lists in the model's file, because parsing a protobuf message copies them.

A model's message is rewritten before it is parsed, in the few fields that are large:

    initializer { dims: 4096 dims: 4096 raw_data: "…" }
      →  initializer { dims: 4096 dims: 4096 data_location: EXTERNAL external_data { location, offset, length } }

    attribute { name: "nodes_values" floats: 0.5 floats: 0.25 … type: FLOATS }
      →  attribute { name: "nodes_values" t { data_location: EXTERNAL external_data { … } } type: FLOATS }
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from nnefc.frontends.onnx.columns import KINDS, field_run
from nnefc.support.mapped_files import LARGE, map_file, release_pages
from nnefc.support.wire_format import BYTES, MalformedError, field_head, fields

__all__ = ["ITSELF", "LOCATIONS", "Message", "mapped_message", "without_large_tensors"]

ITSELF = "\0model"
"""The location of data that are in the file of the model: no path is written so."""

LOCATIONS: Mapping[int, str] = {kind: f"{ITSELF} {name}" for kind, name in KINDS.items()}
"""The locations of the elements of attributes that are in the file of the model, by the type of the attribute."""

_MIN = LARGE
"""Bytes of a large tensor, and of the messages that have one in them."""

_MIN_LIST = 1 << 20
"""Bytes of a large list."""

_MAX_DEPTH = 64
"""Messages inside each other that are looked into; protobuf itself takes no more than 100."""

Message = npt.NDArray[np.uint8]

_Fields = Mapping[int, str]


def _numbers(message: Any, **parts: str) -> _Fields:
    """The kinds of messages inside of others, by the number of their field."""
    return {message.DESCRIPTOR.fields_by_name[name].number: kind for name, kind in parts.items()}


_PARTS: Mapping[str, _Fields] = {
    "model": _numbers(onnx.ModelProto, graph="graph", functions="function"),
    "graph": _numbers(onnx.GraphProto, node="node", initializer="tensor"),
    "function": _numbers(onnx.FunctionProto, node="node"),
    "node": _numbers(onnx.NodeProto, attribute="attribute"),
    "attribute": _numbers(onnx.AttributeProto, t="tensor", tensors="tensor", g="graph", graphs="graph"),
}
"""Fields of messages in which large tensors may be."""

_TENSOR = {name: field.number for name, field in onnx.TensorProto.DESCRIPTOR.fields_by_name.items()}
_DATA = {
    _TENSOR["raw_data"]: None,
    _TENSOR["float_data"]: onnx.TensorProto.FLOAT,
    _TENSOR["double_data"]: onnx.TensorProto.DOUBLE,
}
"""Fields whose bytes are those of the elements, and the element type that they are for, if it is one."""
_KEPT = {_TENSOR[name] for name in ("dims", "data_type", "name", "doc_string")}
"""Fields of tensors that are kept as they are; tensors with others are, too."""


def mapped_message(path: Path) -> Message | None:
    """A model's file in memory, read where it is touched; None for small files, and what is no file.

    Raises:
        OSError: it cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_BINARY", 0) | getattr(os, "O_NONBLOCK", 0))
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size < _MIN:
            return None
        return map_file(descriptor, status.st_size)
    finally:
        os.close(descriptor)


def without_large_tensors(message: Message) -> bytes:
    """The message of a model whose large tensors and attributes have their data in the file ITSELF: `message`.

    What is no message of protobuf is left as it is, for the parser to refuse.
    """
    try:
        return b"".join(_rewritten(message.data, "model", 0, len(message), 0))
    except MalformedError:
        return message.tobytes()
    finally:
        release_pages()


def _rewritten(message: memoryview, kind: str, first: int, last: int, depth: int) -> Iterator[bytes | memoryview]:
    """The bytes of a message of a kind, with large fields rewritten."""
    special = {"tensor": _apart, "attribute": _list_apart}.get(kind)
    made = special(message, first, last) if special is not None else None
    if made is not None or kind not in _PARTS or depth > _MAX_DEPTH:
        yield message[first:last] if made is None else made
        return
    for number, begin, content, end in fields(message, first, last):
        inner = _PARTS[kind].get(number) if end - begin >= _MIN and message[begin] & 7 == BYTES else None
        if inner is None:
            yield message[begin:end]
            continue
        parts = list(_rewritten(message, inner, content, end, depth + 1))
        yield field_head(number, sum(map(len, parts)))
        yield from parts


def _apart(message: memoryview, first: int, last: int) -> bytes | None:
    """A tensor without its data; None if these are not in one field alone."""
    found = list(fields(message, first, last))
    data = [each for each in found if each[0] in _DATA]
    if len(data) != 1 or any(number not in _KEPT for number, *_ in found if number not in _DATA):
        return None
    ((field, begin, content, end),) = data
    kept = b"".join(bytes(message[begin:stop]) for number, begin, _, stop in found if number != field)
    wanted = _DATA[field]
    if message[begin] & 7 != BYTES or (wanted is not None and onnx.TensorProto.FromString(kept).data_type != wanted):
        return None
    return kept + _reference(ITSELF, content, end)


def _list_apart(message: memoryview, first: int, last: int) -> bytes | None:
    """An attribute whose value is a list, without it if it is one run of large fields; None if there is no list."""
    kept, run, at = list[bytes](), None, first
    while at < last:
        found = field_run(message, at, last)
        if found is None:
            _, begin, _, at = next(fields(message, at, last))
            if at - begin >= _MIN_LIST:
                return None
            kept.append(bytes(message[begin:at]))
        elif run is not None or found.end - found.begin < _MIN_LIST:
            return bytes(message[first:last])
        else:
            run, at = found, found.end
    if run is None:
        return None
    if not _is_list(b"".join(kept), run.kind):
        return bytes(message[first:last])
    tensor = _reference(LOCATIONS[run.kind], run.begin, run.end)
    return b"".join(kept) + field_head(onnx.AttributeProto.T_FIELD_NUMBER, len(tensor)) + tensor


def _is_list(kept: bytes, kind: int) -> bool:
    """Returns whether an attribute without its list is of the type of the list, and has no other value."""
    proto = onnx.AttributeProto.FromString(kept)
    return proto.type == kind and {field.name for field, _ in proto.ListFields()} <= {"name", "type", "doc_string"}


def _reference(location: str, begin: int, end: int) -> bytes:
    """Return the fields of a tensor that refer to external data."""
    reference = onnx.TensorProto(data_location=onnx.TensorProto.EXTERNAL)
    for key, value in (("location", location), ("offset", str(begin)), ("length", str(end - begin))):
        reference.external_data.add(key=key, value=value)
    made: bytes = reference.SerializeToString()
    return made
