"""Parses protobuf fields in wire format: a key with field number and wire type, then the content.

https://protobuf.dev/programming-guides/encoding
"""

from __future__ import annotations

from collections.abc import Iterator

__all__ = ["BYTES", "FIXED32", "VARINT", "MalformedError", "field_head", "fields", "key_of", "read_varint"]

VARINT, FIXED64, BYTES, FIXED32 = 0, 1, 2, 5
"""How fields are stored."""


class MalformedError(Exception):
    """The bytes are no message of protobuf."""


def fields(message: memoryview, first: int, last: int) -> Iterator[tuple[int, int, int, int]]:
    """The number of each field, where it begins, where its content does, and where it ends.

    Raises:
        MalformedError: the bytes are no fields.
    """
    at = first
    while at < last:
        begin = at
        key, at = read_varint(message, at, last)
        match key & 7:
            case 0:
                content, at = at, read_varint(message, at, last)[1]
            case 1:
                content, at = at, at + 8
            case 2:
                size, content = read_varint(message, at, last)
                at = content + size
            case 5:
                content, at = at, at + 4
            case _:
                raise MalformedError
        if at > last:
            raise MalformedError
        yield key >> 3, begin, content, at


def read_varint(message: memoryview, at: int, last: int) -> tuple[int, int]:
    """An integer of seven bits a byte, and where it ends.

    Raises:
        MalformedError: it does not end.
    """
    value = shift = 0
    while at < last and shift < 70:
        byte = message[at]
        value, at, shift = value | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return value, at
    raise MalformedError


def key_of(number: int, storage: int) -> int:
    """The key of a field."""
    return number << 3 | storage


def field_head(number: int, size: int) -> bytes:
    """The key and the size of a field that is stored as bytes."""
    made = bytearray()
    for value in (key_of(number, BYTES), size):
        while value > 127:
            made.append(value & 127 | 128)
            value >>= 7
        made.append(value)
    return bytes(made)
