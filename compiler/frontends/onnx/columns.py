"""Decodes very long attribute lists, as tree ensembles have, lazily from the bytes of the file.

A list of Python takes ten times the bytes of the file. A column keeps a view of these bytes, and decodes them into an
array in steps of a MiB:

    floats: 3D 00 00 00 3F  3D 00 00 80 3E …       →   float32 [0.5, 0.25, …]
    ints: 40 03  40 AC 02 …                        →   int32 [3, 300, …], or int64
    strings: 4A 04 4C 45 41 46 …                   →   object ["LEAF", …], equal strings being one
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx

from nnefc.support.diagnostics import CompileError
from nnefc.support.mapped_files import release_pages
from nnefc.support.wire_format import BYTES, FIXED32, VARINT, MalformedError, key_of, read_varint

__all__ = ["KINDS", "Column", "Run", "field_run"]

Array = npt.NDArray[Any]
Bytes = npt.NDArray[np.uint8]

_A = onnx.AttributeProto
_FLOATS, _INTS, _STRINGS = _A.FLOATS_FIELD_NUMBER, _A.INTS_FIELD_NUMBER, _A.STRINGS_FIELD_NUMBER

KINDS = {int(_A.FLOATS): "floats", int(_A.INTS): "ints", int(_A.STRINGS): "strings"}
"""The fields of columns, by the types of their attributes."""

_KINDS = {
    key_of(_FLOATS, FIXED32): int(_A.FLOATS),
    key_of(_FLOATS, BYTES): int(_A.FLOATS),
    key_of(_INTS, VARINT): int(_A.INTS),
    key_of(_INTS, BYTES): int(_A.INTS),
    key_of(_STRINGS, BYTES): int(_A.STRINGS),
}
"""Attribute types by the key of an element, or of packed elements."""

_PIECE = 1 << 20
_MAX_VARINT = 10  # bytes
_NARROW = 4  # bytes of integers below 2²⁸


@dataclass(frozen=True, eq=False)
class Column:
    """The elements of an attribute.

    Attributes:
        data: the bytes of the fields, their keys included.
        kind: the type of the attribute.
        what: how messages call the attribute.
    """

    data: Bytes
    kind: int
    what: str

    def __bool__(self) -> bool:
        return True

    def __len__(self) -> int:
        return len(self.array())

    def __iter__(self) -> Iterator[Any]:
        return iter(self.array().tolist())

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Array:
        made = self.array()
        return made if dtype is None else made.astype(dtype, copy=False)

    def array(self) -> Array:
        """The elements, decoded.

        Raises:
            CompileError: the bytes are no elements of this kind.
        """
        try:
            if not len(self.data) or _KINDS.get(int(self.data[0])) != self.kind:
                raise MalformedError
            packed = self.data[0] & 7 == BYTES and self.kind != _A.STRINGS
            data = self._packed() if packed else self.data
            if self.kind == _A.FLOATS:
                return _floats(data, packed)
            if self.kind == _A.INTS:
                return _integers(data, packed)
            return _strings(data, self.what)
        except MalformedError:
            raise CompileError(f"the {self.what} is damaged") from None
        finally:
            release_pages()

    def _packed(self) -> Bytes:
        size, at = read_varint(self.data.data, 1, min(len(self.data), 1 + _MAX_VARINT))
        if at + size != len(self.data):
            raise MalformedError
        return self.data[at:]


@dataclass(frozen=True)
class Run:
    """Range of a message with the elements of an attribute: from `begin` to `end`; `kind` is the attribute's type."""

    kind: int
    begin: int
    end: int


def field_run(message: memoryview, at: int, last: int) -> Run | None:
    """The fields of one list that begin at `at`, one after the other; None if another field does."""
    key = message[at]
    kind = _KINDS.get(key)
    if kind is None:
        return None
    data = np.frombuffer(message[at:last], np.uint8)
    if key & 7 == BYTES and kind != _A.STRINGS:
        size, content = read_varint(message, at + 1, last)
        if content + size > last:
            raise MalformedError
        return Run(kind, at, content + size)
    if kind == _A.FLOATS:
        keys = data[: len(data) // 5 * 5 : 5]
        others = np.flatnonzero(keys != key)
        return Run(kind, at, at + 5 * int(others[0] if len(others) else len(keys)))
    pieces = _varints(data, 2) if kind == _A.INTS else _texts(data)
    return Run(kind, at, at + max((end for end, *_ in pieces), default=0))


def _floats(data: Bytes, packed: bool) -> Array:
    size = 4 if packed else 5
    if len(data) % size or (not packed and (data[::size] != data[0]).any()):
        raise MalformedError
    values = data.reshape(-1, size)[:, size - 4 :]
    return np.ascontiguousarray(values).view("<f4").reshape(-1).astype(np.float32, copy=False)


def _integers(data: Bytes, packed: bool) -> Array:
    count = sum(int(np.count_nonzero(data[at : at + _PIECE] < 128)) for at in range(0, len(data), _PIECE))
    made, filled, last = np.empty(count if packed else count // 2, np.int32), 0, 0
    for end, piece, starts, ends in _varints(data, 1 if packed else 2):
        more, values = ends - starts, np.zeros(len(ends), np.uint64)
        for byte in range(int(more.max()) + 1):
            (longer,) = np.nonzero(more >= byte)
            values[longer] |= (piece[starts[longer] + byte] & np.uint8(127)).astype(np.uint64) << np.uint64(7 * byte)
        if more.max() >= _NARROW and made.dtype != np.int64:
            made = made.astype(np.int64)
        made[filled : filled + len(values)] = values.view(np.int64)
        filled, last = filled + len(values), end
    if last != len(data) or filled != len(made):
        raise MalformedError
    return made


def _varints(data: Bytes, each: int) -> Iterator[tuple[int, Bytes, Array, Array]]:
    """Integers with a key before each (`each` is 2) or without (1), up to the first with another key.

    Yields where a piece ends, the piece, and where integers in it begin and have their last byte.
    """
    at = 0
    while at < len(data):
        piece = data[at : at + _PIECE]
        ends = np.flatnonzero(piece < 128)  # of a varint, keys included
        ends = ends[: len(ends) // each * each]
        keys, ends = ends[::each], ends[each - 1 :: each]
        begins = np.concatenate([[0], ends[:-1] + 1])[: len(ends)]
        starts = begins + each - 1
        good = ends - starts < _MAX_VARINT
        if each == 2:
            good &= (keys == begins) & (piece[begins] == data[0])
        count = len(good) if good.all() else int(np.argmin(good))
        if count == 0:
            return
        at += int(ends[count - 1]) + 1
        yield at, piece, starts[:count], ends[:count]
        if count < len(good):
            return


def _texts(data: Bytes) -> Iterator[tuple[int, bytes, Array, Array]]:
    """Strings with a key before each.

    Yields where a piece ends, the piece, and where strings in it begin and end.
    """
    at = 0
    while at < len(data):
        piece = data[at : at + _PIECE]
        begins, ends = _short_texts(piece, int(data[0]))
        last = int(ends[-1]) if len(ends) else 0
        content = piece.tobytes()
        more = _more_texts(content, last, int(data[0]))
        if more:
            begins, ends = (
                np.append(own, added) for own, added in zip((begins, ends), zip(*more, strict=True), strict=True)
            )
        if not len(ends):
            return
        at += int(ends[-1])
        yield at, content, begins, ends


def _short_texts(piece: Bytes, key: int) -> tuple[Array, Array]:
    """Return the offsets of leading strings of less than 128 bytes, none of whose lengths equals the key."""
    (keys,) = np.nonzero(piece[:-1] == key)
    sizes = piece[keys + 1].astype(np.int64)
    ends = keys + 2 + sizes
    good = (sizes < 128) & (ends <= len(piece)) & (keys == np.concatenate([[0], ends[:-1]])[: len(keys)])
    count = len(good) if good.all() else int(np.argmin(good))
    return keys[:count] + 2, ends[:count]


def _more_texts(content: bytes, at: int, key: int) -> list[tuple[int, int]]:
    """Return the (begin, end) offsets of strings of any length, from `at` on."""
    found, view = list[tuple[int, int]](), memoryview(content)
    while at < len(content) and content[at] == key:
        try:
            size, begin = read_varint(view, at + 1, len(content))
        except MalformedError:
            break
        at = begin + size
        if at > len(content):
            break
        found.append((begin, at))
    return found


def _strings(data: Bytes, what: str) -> Array:
    known: dict[bytes, str] = {}
    parts, last = list[Array](), 0
    for end, content, begins, ends in _texts(data):
        texts = [content[begin:stop] for begin, stop in zip(begins.tolist(), ends.tolist(), strict=True)]
        for text in dict.fromkeys(text for text in texts if text not in known):
            try:
                known[text] = text.decode("utf-8")
            except UnicodeDecodeError:
                raise CompileError(f"the {what} is not UTF-8") from None
        parts.append(np.array([known[text] for text in texts], object))
        last = end
    if last != len(data):
        raise MalformedError
    return np.concatenate(parts)
