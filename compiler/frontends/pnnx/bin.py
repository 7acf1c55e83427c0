"""Reads the binary file of a PNNX network, `model.pnnx.bin`: a stored zip archive, one member `operator.attribute` per
tensor.

Nothing in the file is believed: members must be stored, have the size that the param file says, and have their
checksum; all together they must not be larger than the file.
"""

from __future__ import annotations

import math
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import ml_dtypes
import numpy as np

from nnefc.frontends.pnnx.lowering import Array
from nnefc.frontends.pnnx.param import ParamOperator, ParamType, known_shape
from nnefc.support.diagnostics import CompileError
from nnefc.support.mapped_files import LARGE, map_path, release_pages
from nnefc.symbolic.dims import MAX_ELEMENTS

__all__ = ["STORED_TYPES", "WeightFile"]

STORED_TYPES: Mapping[str, np.dtype[Any]] = {
    **{name: np.dtype(name) for name in ("float16", "float32", "float64", "uint8", "bool")},
    **{name: np.dtype(name) for name in ("int8", "int16", "int32", "int64")},
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
}
_LONGEST_REASON = 200
_HEADER, _NAMES = 30, 26
"""Bytes of the header of a member, which its name and other fields follow, and where the sizes of these two are."""
_PIECE = 1 << 20
# Whatever a malformed archive makes Python's reader raise.
_UNREADABLE = (
    zipfile.BadZipFile, zipfile.LargeZipFile, struct.error, EOFError, NotImplementedError, RuntimeError, ValueError,
    OverflowError, IndexError, KeyError,
)  # fmt: skip


class WeightFile:
    """The tensors of an opened file; use as a context."""

    def __init__(self, path: Path) -> None:
        """Open `path`; a file that is missing is an error only when a tensor is asked for.

        Raises:
            CompileError: the file cannot be read or is no zip archive.
        """
        self._path = path
        self._archive: zipfile.ZipFile | None = None
        self._left = 0
        self._content: Array | None = None
        try:
            self._left = path.stat().st_size
            self._archive = zipfile.ZipFile(path)
        except FileNotFoundError:
            return
        except OSError as error:
            raise CompileError(f"cannot read {path}: {error.strerror or error}") from error
        except _UNREADABLE as error:
            raise CompileError(f"{path} is not a zip archive: {_reason(error)}") from None
        for name, count in Counter(info.filename for info in self._archive.infolist()).items():
            if count > 1:
                self._archive.close()
                raise CompileError(f"{path} has {count} members '{name}'")

    def __enter__(self) -> WeightFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._archive is not None:
            self._archive.close()

    def read(self, operator: ParamOperator) -> dict[str, Array]:
        """The tensors of an operator, by their names without the operator's, in the types that the param file says.

        Raises:
            CompileError: a tensor is missing, is not of the size that the param file says, or is damaged.
        """
        return {name: self._tensor(operator, name, type) for name, type in operator.attributes.items()}

    def _tensor(self, operator: ParamOperator, name: str, type: ParamType) -> Array:
        shape, location = known_shape(type), operator.location
        if shape is None or type.dtype is None or type.dtype not in STORED_TYPES:
            what = "an unknown size" if shape is None else f"the element type {type.dtype or 'null'}"
            raise CompileError(f"the tensor '{name}' of '{operator.name}' has {what}", location=location)
        dtype = STORED_TYPES[type.dtype]
        size = math.prod(shape) * dtype.itemsize
        if size == 0:
            if math.prod(max(each, 1) for each in shape) > MAX_ELEMENTS:
                raise CompileError(f"the tensor '{name}' of '{operator.name}' is too large", location=location)
            return np.zeros(shape, dtype)
        member = f"{operator.name}.{name}"
        data = self._bytes(member, size, operator)
        if dtype == np.bool_ and data.max() > 1:
            raise CompileError(f"{self._path} ('{member}'): booleans must be 0 or 1", location=location)
        return data.view(dtype).reshape(shape)

    def _bytes(self, member: str, size: int, operator: ParamOperator) -> Array:
        location = operator.location
        if self._archive is None:
            raise CompileError(
                f"there is no file {self._path} with the tensor '{member}'",
                location=location,
                hint="the binary file lies next to the param file, under the same name but for its end",
            )
        try:
            info = self._archive.getinfo(member)
        except KeyError:
            raise CompileError(f"{self._path} has no tensor '{member}'", location=location) from None
        if info.compress_type != zipfile.ZIP_STORED:
            raise CompileError(f"{self._path} ('{member}'): members must be stored, not compressed", location=location)
        if info.compress_size != info.file_size:  # what the reader asks memory for
            raise CompileError(f"{self._path} ('{member}') is damaged: it has two sizes", location=location)
        if info.file_size != size:
            raise CompileError(
                f"{self._path} ('{member}') has {info.file_size:,} bytes, by the param file it should have {size:,}",
                location=location,
            )
        self._left -= size
        if self._left < 0:
            raise CompileError(f"{self._path}: its members claim to be larger than the file", location=location)
        try:
            if size >= LARGE:
                return self._mapped(info)
            data = self._archive.read(info)
        except OSError as error:
            raise CompileError(f"cannot read {self._path}: {error.strerror or error}", location=location) from error
        except _UNREADABLE as error:
            raise CompileError(f"{self._path} ('{member}') is damaged: {_reason(error)}", location=location) from None
        if len(data) != size:
            raise CompileError(f"{self._path} ('{member}') ends after {len(data):,} bytes", location=location)
        return np.frombuffer(data, np.uint8)

    def _mapped(self, info: zipfile.ZipInfo) -> Array:
        """The content of a large member, where it is in the file.

        Raises:
            BadZipFile: it is not there, or is damaged.
        """
        assert self._archive is not None
        self._archive.open(info).close()  # checks the header that precedes the content
        if self._content is None:
            self._content = map_path(self._path)
        names = self._content[info.header_offset + _NAMES : info.header_offset + _HEADER].view("<u2")
        start = info.header_offset + _HEADER + int(names.sum())
        content = self._content[start : start + info.file_size]
        checksum = 0
        for at in range(0, len(content), _PIECE):
            checksum = zlib.crc32(content[at : at + _PIECE].data, checksum)
        release_pages()
        if len(content) != info.file_size or checksum != info.CRC:
            raise zipfile.BadZipFile("its checksum is wrong")
        return content


def _reason(error: BaseException) -> str:
    """Describes what is wrong with an archive; names in it are shortened."""
    reason = str(error) or type(error).__name__
    return reason if len(reason) <= _LONGEST_REASON else f"{reason[:_LONGEST_REASON]}…"
