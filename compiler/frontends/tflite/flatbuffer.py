"""Reads flatbuffers by the declared schema, and verifies every offset, vtable, vector and string on the way.

A table becomes a `Table`, with the fields of its declaration as attributes: scalars, `str`, tables, tuples of tables
and strings, and NumPy views of vectors of scalars. Tables that several offsets share are read once, and all that is
read has no more parts than the file has words, so that the time is linear in the file's size whatever it holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from nnefc.frontends.tflite.schema import TABLES, UNIONS, Field, default_of, fields_of
from nnefc.support.diagnostics import CompileError

__all__ = ["SCALARS", "Table", "read_root"]

SCALARS = {
    **{f"{kind[0]}{bits}": np.dtype(f"<{kind}{bits // 8}") for kind in "iu" for bits in (8, 16, 32, 64)},
    "f32": np.dtype("<f4"),
    "bool": np.dtype("u1"),
}
"""NumPy's types of the scalars of a schema."""

_Bytes = npt.NDArray[np.uint8]


class Table:
    """A table that was read: its declared fields are attributes; one that the file leaves out has its default.

    Fields of other tables have their defaults, too: operators may leave their options out, or have those of another.

    Attributes:
        kind: the name of the declaration.
    """

    def __init__(self, kind: str, values: dict[str, Any]) -> None:
        self.kind = kind
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        default = default_of(name)
        if default is None:
            raise AttributeError(f"{self.kind} has no field {name}")
        return default


def read_root(data: _Bytes, kind: str, identifier: bytes, file: str) -> Table:
    """The root table of a flatbuffer.

    Args:
        data: the file.
        kind: the root table's declaration.
        identifier: the four bytes from the fourth on.
        file: what messages call it.

    Raises:
        CompileError: the bytes are no such flatbuffer.
    """
    if len(data) < 8 or data[4:8].tobytes() != identifier:
        raise CompileError(f"'{file}' is not a TFLite model: it lacks the identifier {identifier.decode()}")
    return _Reader(data, file).root(kind)


class _Reader:
    def __init__(self, data: _Bytes, file: str) -> None:
        self._data = data
        self._file = file
        self._tables: dict[tuple[int, str], Table] = {}
        self._strings: dict[int, str] = {}
        self._parts = len(data) // 4 + 16
        self._text = len(data)

    def root(self, kind: str) -> Table:
        return self._table(self._offset(0), kind)

    def _fail(self, what: str) -> CompileError:
        return CompileError(f"'{self._file}' is not a valid flatbuffer: {what}", hint="export or download it again")

    def _spend(self, parts: int) -> None:
        self._parts -= parts
        if self._parts < 0:
            raise self._fail("it has more parts than its size allows")

    def _scalar(self, at: int, type_: str) -> Any:
        dtype = SCALARS[type_]
        if at < 0 or at + dtype.itemsize > len(self._data):
            raise self._fail(f"a value lies outside of the file, at byte {at}")
        return self._data[at : at + dtype.itemsize].view(dtype)[0].item()

    def _offset(self, at: int) -> int:
        """Return the position that the offset at `at` points to, which is always further on in the file."""
        distance: int = self._scalar(at, "u32")
        if distance == 0 or at + distance > len(self._data) - 4:
            raise self._fail(f"an offset points outside of the file, at byte {at}")
        return at + distance

    def _table(self, at: int, kind: str) -> Table:
        found = self._tables.get((at, kind))
        if found is None:
            self._spend(1)
            found = self._tables[at, kind] = Table(kind, self._values(at, kind))
        return found

    def _values(self, at: int, kind: str) -> dict[str, Any]:
        vtable = at - self._scalar(at, "i32")
        if vtable < 0:
            raise self._fail(f"a vtable lies outside of the file, of the table at byte {at}")
        size, length = self._scalar(vtable, "u16"), self._scalar(vtable + 2, "u16")
        if size < 4 or size % 2 or length < 4 or vtable + size > len(self._data) or at + length > len(self._data):
            raise self._fail(f"a vtable has a wrong size, of the table at byte {at}")

        def location(slot: int) -> int | None:
            entry = 4 + 2 * slot
            offset = self._scalar(vtable + entry, "u16") if entry + 2 <= size else 0
            if offset and not 4 <= offset < length:
                raise self._fail(f"a field lies outside of its table, at byte {at}")
            return at + offset if offset else None

        return {field.name: self._field(field, location(field.slot), location) for field in fields_of(kind)}

    def _field(self, field: Field, at: int | None, location: Any) -> Any:
        match field.kind:
            case "scalar":
                value = field.default if at is None else self._scalar(at, field.of)
                return bool(value) if field.of == "bool" else value
            case "union":
                return self._union(field, 0 if at is None else self._scalar(at, "u8"), location(field.slot + 1))
            case "string":
                return "" if at is None else self._string(self._offset(at))
            case "table":
                return None if at is None else self._table(self._offset(at), field.of)
        return self._vector(field.of, None if at is None else self._offset(at))

    def _union(self, field: Field, type_: int, at: int | None) -> Table | None:
        """The table of a union; one of a type that the schema lacks, or without fields, is empty."""
        kinds = UNIONS[field.of]
        if type_ == 0 or at is None:
            return None
        kind = kinds[type_ - 1] if type_ <= len(kinds) else f"{field.of} {type_}"
        return self._table(self._offset(at), kind) if kind in TABLES else Table(kind, {})

    def _vector(self, of: str, at: int | None) -> Any:
        """A view of scalars, or a tuple of strings or tables; an absent one is empty."""
        dtype = SCALARS.get(of)
        if at is None:
            return () if dtype is None else np.zeros(0, dtype)
        count, first = self._scalar(at, "u32"), at + 4
        if first + count * (4 if dtype is None else dtype.itemsize) > len(self._data):
            raise self._fail(f"a vector of {count:,} elements is longer than the file, at byte {at}")
        if dtype is not None:
            self._spend(1)
            return self._data[first : first + count * dtype.itemsize].view(dtype)
        self._spend(count)
        offsets = [self._offset(first + 4 * index) for index in range(count)]
        return tuple(self._string(offset) if of == "str" else self._table(offset, of) for offset in offsets)

    def _string(self, at: int) -> str:
        if at not in self._strings:
            length = self._scalar(at, "u32")
            self._text -= length
            if at + 4 + length > len(self._data) or self._text < 0:
                raise self._fail(f"a string is longer than the file, at byte {at}")
            self._strings[at] = self._data[at + 4 : at + 4 + length].tobytes().decode("utf-8", errors="replace")
        return self._strings[at]
