"""Reads external tensor data next to the model, and rejects locations outside of the model's folder."""

from __future__ import annotations

import hashlib
import os
import re
import stat
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from nnefc.frontends.onnx.files.large_tensors import ITSELF
from nnefc.frontends.onnx.values import Array
from nnefc.support.diagnostics import ExternalDataError
from nnefc.support.mapped_files import map_file

__all__ = ["ExternalData"]

_KEYS = ("location", "offset", "length", "checksum")
_DIGITS = re.compile(r"[0-9]{1,19}")
_SHA1 = re.compile(r"[0-9a-fA-F]{40}")


class ExternalData:
    """Reads data of tensors from files in the folder of one model. Each file is opened and mapped once.

    Attributes:
        folder: of the model.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files: dict[str, Array] = {}
        self._checked: set[tuple[str, str]] = set()

    def add(self, location: str, content: Array) -> None:
        """Let a location that is no path stand for bytes that are in memory."""
        self._files[location] = content

    @property
    def files(self) -> tuple[str, ...]:
        """The names of the files read so far, relative to the folder, sorted."""
        return tuple(sorted(name for name in self._files if not name.startswith(ITSELF)))

    def read(self, entries: Iterable[Any], size: int | None, what: str) -> Array:
        """`[size]` uint8: a read-only view of the bytes of one tensor.

        Args:
            entries: pairs of key and value, as in `TensorProto.external_data`.
            size: bytes that the tensor needs; None for as many as the entries say.
            what: how messages call the tensor.

        Raises:
            ExternalDataError: no file, a file outside the folder, a range outside the file, a wrong length or checksum.
        """
        keys = self._keys(entries, what)
        location = keys.get("location", "")
        data = self._file(location, what)
        offset = _number(keys.get("offset", "0"), "offset", what)
        length = _number(keys["length"], "length", what) if "length" in keys else size or 0
        if size is not None and length != size:
            raise ExternalDataError(f"{what} needs {size} bytes, its 'length' in {location} is {length}")
        if offset + length > data.size:
            raise ExternalDataError(f"{what} ends at byte {offset + length} of {location}, which has {data.size}")
        if "checksum" in keys:
            self._check(location, keys["checksum"], data, what)
        return data[offset : offset + length]

    def _keys(self, entries: Iterable[Any], what: str) -> dict[str, str]:
        keys: dict[str, str] = {}
        for entry in entries:
            if entry.key in keys:
                raise ExternalDataError(f"{what} gives '{entry.key}' of its data twice")
            # Others are notes of the tools that wrote the model, `basepath` for one.
            if entry.key in _KEYS:
                keys[entry.key] = entry.value
        return keys

    def _file(self, location: str, what: str) -> Array:
        if location not in self._files:
            self._files[location] = _mapped(self._path(location, what), location, what)
        return self._files[location]

    def _path(self, location: str, what: str) -> Path:
        """The file, in the model's folder also after symbolic links."""
        parts = PurePosixPath(location)
        if not location or "\0" in location or "\\" in location or parts.is_absolute() or ".." in parts.parts:
            raise ExternalDataError(
                f"{what} has its data in {location!r}, which is not a path inside the model's folder",
                hint="the path must be relative to the model, without '..'",
            )
        try:
            folder = self.folder.resolve()
            path = (folder / parts).resolve()
        except (OSError, RuntimeError) as error:
            raise ExternalDataError(f"{what} has its data in {location!r}, whose links lead in a circle") from error
        if not path.is_relative_to(folder) or path == folder:
            raise ExternalDataError(f"{what} has its data in {location!r}, which leads out of the model's folder")
        return path

    def _check(self, location: str, checksum: str, data: Array, what: str) -> None:
        if not _SHA1.fullmatch(checksum):
            raise ExternalDataError(f"the checksum of {what} is not a SHA-1 digest of 40 hexadecimal digits")
        if (location, checksum.lower()) in self._checked:
            return
        digest = hashlib.sha1(data.data, usedforsecurity=False).hexdigest()
        if digest != checksum.lower():
            raise ExternalDataError(f"the file {location} with {what} has the SHA-1 digest {digest}, not {checksum}")
        self._checked.add((location, checksum.lower()))


def _number(text: str, key: str, what: str) -> int:
    if not _DIGITS.fullmatch(text):
        raise ExternalDataError(f"{what} gives its data's {key} as {text[:40]!r}, not as a number of bytes")
    return int(text)


def _mapped(path: Path, location: str, what: str) -> Array:
    """A regular file in memory, read when it is touched."""
    try:
        # Pipes and devices: open would wait for the first, and reading the second may never end.
        descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0))
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                raise ExternalDataError(f"{location}, with the data of {what}, is not a regular file")
            if status.st_size == 0:
                return np.zeros(0, np.uint8)
            return map_file(descriptor, status.st_size)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise ExternalDataError(
            f"the file {location} with the data of {what} cannot be read: {error.strerror}",
            hint=f"it belongs to the model: copy it to {path}",
        ) from error
