"""Worker process that parses large requests, JSON or value lists of gRPC, and converts their tensors to raw bytes.

In the server's own process, the interpreter lock would make all other requests wait while a large one is parsed.

The server sends a letter (J for JSON, G for a message of gRPC), the length as eight bytes, and the JSON or message. The
worker answers with three lengths of eight bytes each, and then the three parts themselves: an index, the request
without the values of its tensors, and these values as raw bytes. The index is JSON: an error, or for each tensor the
number of the input and its size in bytes.
"""

from __future__ import annotations

import gc
import json
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any

from nnefc.loader import Tensor
from nnefc.serving.contents import values_of
from nnefc.serving.failures import FailureKind, Refused
from nnefc.serving.values import DATATYPES, from_numbers, to_raw

__all__ = ["answered", "main"]

_MAX_TAIL = 1 << 16
"""Maximum bytes of a request without the values of its tensors, which the server itself parses."""

_MAX_NAMED = 100
_MAX_AXES = 64

_TYPES = {datatype: dtype for dtype, datatype in DATATYPES.items()}

_Found = tuple[bytes, list[tuple[int, bytes]]]


def main() -> None:
    """Answer requests from standard input on standard output until the input ends."""
    gc.disable()  # JSON has no reference cycles, and nested lists are many objects to traverse
    source, sink = sys.stdin.buffer, sys.stdout.buffer
    while len(head := source.read(9)) == 9:
        kind, length = struct.unpack("<cQ", head)
        index, tail, blobs = answered(kind, source.read(length))
        sink.write(struct.pack("<3Q", len(index), len(tail), sum(map(len, blobs))))
        for part in (index, tail, *blobs):
            sink.write(part)
        sink.flush()
        gc.collect()


def answered(kind: bytes, text: bytes) -> tuple[bytes, bytes, list[bytes]]:
    """Return the three parts of an answer: the index, the request without tensor values, and the values."""
    try:
        tail, found = _READERS[kind](text)
        if len(tail) > _MAX_TAIL:
            raise Refused(
                FailureKind.TOO_LARGE,
                f"the request has more than {_MAX_TAIL:,} bytes besides the values of its tensors",
            )
    except Refused as error:
        return json.dumps({"error": [error.kind.name, str(error)]}).encode(), b"", []
    except MemoryError:
        return json.dumps({"error": [FailureKind.BUSY.name, "there is no memory for the request"]}).encode(), b"", []
    index = json.dumps({"tensors": [(number, len(blob)) for number, blob in found]}).encode()
    return index, tail, [blob for _, blob in found]


def _of_json(text: bytes) -> _Found:
    try:
        given = json.loads(text)
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError is a ValueError
        raise Refused(FailureKind.INVALID, f"the body is not JSON: {error}") from None
    if not isinstance(given, dict):
        raise Refused(FailureKind.INVALID, "the body is not an object of JSON")
    found: list[tuple[int, bytes]] = []
    inputs = given.get("inputs")
    for number, each in enumerate(inputs if isinstance(inputs, list) else []):
        if isinstance(each, dict) and isinstance(data := each.get("data"), list):
            each["data"] = []  # if this tensor is not converted, the server refuses it for its missing values
            if (tensor := _tensor(each)) is not None:
                found.append((number, to_raw(tensor, from_numbers(tensor, tensor.shape, data))))
    return json.dumps(given).encode(), found


def _tensor(each: Mapping[str, Any]) -> Any:
    """Return the input that an element of "inputs" describes; None if it is wrong: the server then says why."""
    name, datatype, shape = each.get("name"), each.get("datatype"), each.get("shape")
    if not isinstance(name, str) or not isinstance(datatype, str) or datatype not in _TYPES:
        return None
    if not isinstance(shape, list) or len(shape) > _MAX_AXES or not all(type(s) is int and s >= 0 for s in shape):
        return None
    return Tensor(name[:_MAX_NAMED], _TYPES[datatype], tuple(shape))


def _of_message(text: bytes) -> _Found:
    from google.protobuf.message import DecodeError

    from nnefc.serving.messages import INFERENCE, message

    try:
        request = message(INFERENCE, "ModelInferRequest").FromString(text)
    except DecodeError as error:
        raise Refused(FailureKind.INVALID, f"the message cannot be read: {error}") from None
    found: list[tuple[int, bytes]] = []
    for number, each in enumerate(request.inputs):
        tensor = _tensor({"name": each.name, "datatype": each.datatype, "shape": list(each.shape)})
        if tensor is not None and (values := values_of(each)) is not None:
            found.append((number, to_raw(tensor, from_numbers(tensor, tensor.shape, values))))
        each.ClearField("contents")
    return request.SerializeToString(), found


_READERS: Mapping[bytes, Callable[[bytes], _Found]] = {b"J": _of_json, b"G": _of_message}


if __name__ == "__main__":
    main()
