"""Opens the files of a model: a folder, a tar archive of one (uncompressed or gzip), or a single document.

Members are not unpacked to files of their own. What comes from outside is checked before it is believed: names stay
inside the model, links are not followed out of it, and an archive's sizes are bounded by what it really holds.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from nnefc.frontends.compressed import GZIP, MAX_RATIO, largest_content, unpacked
from nnefc.frontends.file_names import NNEF_DOCUMENT, NNEF_QUANTIZATION
from nnefc.frontends.nnef.files.tensor_file import parse_tensor
from nnefc.operators.nn.block_quantization import BlockTensor
from nnefc.support.diagnostics import CompileError
from nnefc.support.mapped_files import map_path, stream_of

__all__ = ["ModelFiles", "open_model"]

MAX_TEXT_BYTES = 64 << 20
"""A document larger than this is refused: a network of 100,000 operations takes about 20 MB."""

MAX_MEMBERS = 1_000_000

_MIN_INSIDE = 1 << 20
"""Bytes that a compressed archive inside another one may unpack to, however small it is: there may be many."""

Bytes = npt.NDArray[np.uint8]


class ModelFiles(Protocol):
    """The files of one model by their names relative to its folder, with `/` between folders."""

    @property
    def document(self) -> str:
        """The name of the document, as messages show it."""

    @property
    def asked(self) -> tuple[str, ...]:
        """The names of all files asked for so far, also of those that are not there, sorted; none of an archive."""

    def find(self, name: str) -> Bytes | None:
        """The content of a file, mapped rather than copied where possible, or None if there is none of that name."""

    def describe(self, name: str) -> str:
        """The name of a file as messages show it."""

    def tensor(self, label: str) -> npt.NDArray[Any] | BlockTensor | None:
        """The elements of the variable with a label, as stored; None if there is no file of it."""

    def text(self) -> str:
        """The document."""

    def quantization(self) -> str | None:
        """The text of `graph.quant`, or None without one."""

    def text_of(self, name: str) -> str | None:
        """The content of a text file, or None if there is none of that name."""

    def inner(self, label: str) -> ModelFiles | None:
        """A model inside this one: an archive `label.nnef.tgz` or `label.nnef.tar`, or a folder; None for none."""


@contextmanager
def open_model(path: Path | str) -> Iterator[ModelFiles]:
    """Open a model.

    Args:
        path: a folder with `graph.nnef`, a tar archive of one (also gzip-compressed), or a document.

    Raises:
        CompileError: there is no such file, it holds no document, or an archive's member is unsafe.
    """
    path = Path(path)
    try:
        if path.is_dir():
            yield _Folder(path, path / NNEF_DOCUMENT)
        elif not path.exists():
            raise CompileError(f"there is no file or folder '{path}'")
        elif path.stat().st_size == 0:
            raise CompileError(f"'{path}' is empty")
        else:
            content = map_path(path)
            if content[:2].tobytes() == GZIP:
                yield _Archive(path, _decompress(path, content, largest_content(len(content))))
            elif content[257:262].tobytes() == b"ustar":
                yield _Archive(path, content)
            else:
                yield _Folder(path.parent, path)
    except OSError as error:
        raise CompileError(f"cannot read '{error.filename or path}': {error.strerror}") from None


def _inner_archive(files: ModelFiles, label: str) -> _Archive | None:
    for ending in (".nnef.tgz", ".nnef.tar"):
        content = files.find(label + ending)
        if content is not None:
            path = Path(files.describe(label + ending))
            if content[:2].tobytes() == GZIP:
                content = _decompress(path, content, _MIN_INSIDE + MAX_RATIO * len(content))
            return _Archive(path, content)
    return None


def _tensor(files: ModelFiles, label: str) -> npt.NDArray[Any] | BlockTensor | None:
    name = f"{label.removeprefix('/')}.dat"
    content = files.find(name)
    return None if content is None else parse_tensor(content, files.describe(name)).array


def _decode(content: Bytes, name: str) -> str:
    if len(content) > MAX_TEXT_BYTES:
        raise CompileError(f"'{name}' is too large for a text file: {len(content)} bytes, at most {MAX_TEXT_BYTES}")
    try:
        return content.tobytes().decode("utf-8")
    except UnicodeDecodeError as error:
        raise CompileError(f"'{name}' is not a text file: byte {error.start} is not UTF-8") from None


def _safe(name: str) -> bool:
    """Returns whether a name stays inside the model's folder."""
    path = PurePosixPath(name)
    return not path.is_absolute() and ".." not in path.parts and "\\" not in name and "\0" not in name


@dataclass(frozen=True)
class _Folder:
    """Files in a folder: the model's own, or one that begins with `inside` there, whose names go to the same set."""

    root: Path
    path: Path
    inside: str = ""
    names: set[str] = field(default_factory=set)

    @property
    def asked(self) -> tuple[str, ...]:
        return tuple(sorted(self.names))

    @property
    def document(self) -> str:
        return str(self.path)

    def describe(self, name: str) -> str:
        return str(self.root / name)

    def find(self, name: str) -> Bytes | None:
        if not _safe(name):
            raise CompileError(f"the file name '{name}' leads out of the model's folder '{self.root}'")
        self.names.add(str(PurePosixPath(self.inside, name)))
        path = self.root / name
        if not path.is_file():
            return None
        if not path.resolve().is_relative_to(self.root.resolve()):
            raise CompileError(f"'{path}' is a link out of the model's folder")
        if path.stat().st_size == 0:
            return np.empty(0, np.uint8)
        return map_path(path)

    def tensor(self, label: str) -> npt.NDArray[Any] | BlockTensor | None:
        return _tensor(self, label)

    def text(self) -> str:
        if not self.path.is_file():
            raise CompileError(
                f"the folder '{self.root}' holds no '{NNEF_DOCUMENT}'", hint="give the folder that holds the document"
            )
        return _decode(np.fromfile(self.path, np.uint8), self.document)

    def quantization(self) -> str | None:
        return self.text_of(NNEF_QUANTIZATION)

    def text_of(self, name: str) -> str | None:
        content = self.find(name)
        return None if content is None else _decode(content, self.describe(name))

    def inner(self, label: str) -> ModelFiles | None:
        if self.find(f"{label}/{NNEF_DOCUMENT}") is not None:
            return _Folder(self.root / label, self.root / label / NNEF_DOCUMENT, f"{self.inside}{label}/", self.names)
        return _inner_archive(self, label)


class _Member(tarfile.TarInfo):
    """A member of an archive; one with content is a file.

    Where a name is longer than the 100 characters that there is room for, and is cut off behind a slash, Python takes
    an ordinary file of the oldest kind for a folder, and what is in it for the next member. tract writes such files.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _Member:
        """The member of a block."""
        made = super().frombuf(buf, encoding, errors)
        if made.isdir() and made.size > 0 and bytes(buf[156:157]) == tarfile.AREGTYPE:
            made.type = tarfile.REGTYPE
        return made


class _Archive:
    """A tar archive in memory or mapped; its members are views into it."""

    def __init__(self, path: Path, content: Bytes) -> None:
        self._path = path
        self._bytes = content
        self._members: dict[str, tuple[int, int]] = {}
        self.asked: tuple[str, ...] = ()
        try:
            with tarfile.open(fileobj=stream_of(content), mode="r:", tarinfo=_Member) as archive:
                for member in archive:
                    self._add(member)
        except (tarfile.TarError, EOFError, ValueError, OverflowError) as error:
            raise CompileError(f"'{path}' is not a valid tar archive: {error}") from None
        except RecursionError:  # one for each header that says more of the next one
            raise CompileError(f"'{path}' is not a valid tar archive: hundreds of headers for one member") from None
        self._folder = self._find_folder()

    def _add(self, member: tarfile.TarInfo) -> None:
        name = str(PurePosixPath(member.name))
        if not _safe(member.name):
            raise CompileError(f"'{self._path}' holds a member that leads out of it: '{member.name}'")
        if member.isdir():
            return
        if not member.isreg() or member.issparse():
            raise CompileError(
                f"'{self._path}' holds '{member.name}', which is not an ordinary file",
                hint="pack the archive with links replaced by files (tar --dereference)",
            )
        if member.size < 0 or member.offset_data + member.size > len(self._bytes):
            raise CompileError(f"'{self._path}' is cut short: '{member.name}' reaches beyond its end")
        if name in self._members:
            raise CompileError(f"'{self._path}' holds '{name}' twice")
        if len(self._members) == MAX_MEMBERS:
            raise CompileError(f"'{self._path}' holds more than {MAX_MEMBERS} files")
        self._members[name] = (member.offset_data, member.size)

    def _find_folder(self) -> str:
        """Finds the folder of the document: the top, or the only folder that has one."""
        if NNEF_DOCUMENT in self._members:
            return ""
        folders = [name.removesuffix(NNEF_DOCUMENT) for name in self._members if name.endswith("/" + NNEF_DOCUMENT)]
        if len(folders) != 1:
            found = "none" if not folders else f"{len(folders)}: {', '.join(sorted(folders)[:5])}"
            raise CompileError(f"'{self._path}' should hold one '{NNEF_DOCUMENT}', it holds {found}")
        return folders[0]

    @property
    def document(self) -> str:
        return self.describe(NNEF_DOCUMENT)

    def describe(self, name: str) -> str:
        return f"{self._path}/{self._folder}{name}"

    def find(self, name: str) -> Bytes | None:
        if not _safe(name):
            raise CompileError(f"the file name '{name}' leads out of the model in '{self._path}'")
        location = self._members.get(self._folder + str(PurePosixPath(name)))
        return None if location is None else self._bytes[location[0] : location[0] + location[1]]

    def tensor(self, label: str) -> npt.NDArray[Any] | BlockTensor | None:
        return _tensor(self, label)

    def text(self) -> str:
        content = self.find(NNEF_DOCUMENT)
        assert content is not None
        return _decode(content, self.document)

    def quantization(self) -> str | None:
        return self.text_of(NNEF_QUANTIZATION)

    def text_of(self, name: str) -> str | None:
        content = self.find(name)
        return None if content is None else _decode(content, self.describe(name))

    def inner(self, label: str) -> ModelFiles | None:
        if self.find(f"{label}/{NNEF_DOCUMENT}") is None:
            return _inner_archive(self, label)
        folder = copy(self)
        folder._folder = f"{self._folder}{PurePosixPath(label)}/"
        return folder


def _decompress(path: Path, content: Bytes, maximum: int) -> Bytes:
    """The content of a gzip file: a tar archive of no more than so many bytes."""

    def check(head: bytes) -> None:
        if head[257:262] != b"ustar":
            raise CompileError(f"'{path}' is not a valid tar archive, once unpacked")

    return unpacked(path, content, maximum, "unpack it and give the folder", check)
