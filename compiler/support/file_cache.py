"""Keeps files in a folder that several processes share: checked when they are found, least recently used ones removed.

Next to each file `NAME` is `NAME.sum`, its size and its XXH3 of 128 bits. The time of the last use is the time of
modification of that small file. The file `total-bytes` has a line with the size of each addition after one with the
size of all files before: only when these exceed the limit is the folder listed, which may have tens of thousands of
files. The sum is an upper bound, for a file may replace another one of its name.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass
from pathlib import Path

from nnefc.support.diagnostics import CompileError
from nnefc.support.output_files import write_error, write_text, write_together

__all__ = ["CachedFile", "FileCache"]

_SUM = ".sum"

_TOTAL = "total-bytes"

_MAX_LINES = 1 << 16
"""Bytes of the file of sizes, which is written again then."""

_SPARE = 16
"""The part of the limit that is free when files have been removed, so that the next additions need not list them."""


@dataclass(frozen=True)
class CachedFile:
    """A file of a cache.

    Attributes:
        path: the file.
        bytes: its size.
        used: when it was last written or found, in seconds since 1970.
    """

    path: Path
    bytes: int
    used: float


class FileCache:
    """A folder of files by name, whose sizes together stay below a limit.

    Files are written whole or not at all, so that any number of processes may use a folder at the same time. A file
    whose content has changed since it was written is not found; the next one of its name replaces it.
    """

    def __init__(self, folder: Path, max_bytes: int) -> None:
        """`folder` need not exist; `max_bytes` is the limit of the sizes of all files."""
        self.folder = folder
        self.max_bytes = max_bytes

    def find(self, name: str) -> Path | None:
        """Returns the file of this name, and notes its use; None if there is none, or if its content has changed."""
        path = self.folder / name
        sums = _sums(path)
        try:
            if sums.read_text(encoding="ascii") != _sum_of(path):
                return None
            os.utime(sums)
        except (OSError, ValueError):
            return None
        return path

    def read(self, name: str) -> bytes | None:
        """Returns the content of the file of this name, and notes its use; None as of :meth:`find`."""
        path = self.folder / name
        sums = _sums(path)
        try:
            content = path.read_bytes()
            if sums.read_text(encoding="ascii") != _sum_of_content(content):
                return None
            os.utime(sums)
        except (OSError, ValueError):
            return None
        return content

    def add(self, name: str, write: Callable[[Path], object]) -> Path:
        """Adds a file, or replaces it; then removes others, least recently used first, if all exceed the limit.

        Args:
            name: of the file.
            write: is given the path at which it must write the file.

        Raises:
            CompileError: the folder or the file cannot be written.
        """

        def both(new: Path) -> None:
            write(new / name)
            _sums(new / name).write_text(_sum_of(new / name), encoding="ascii")

        self._write(both, last=f"{name}{_SUM}")
        path = self.folder / name
        with contextlib.suppress(OSError):  # another process has removed it
            self._shrink({path}, path.stat().st_size)
        return path

    def add_contents(self, contents: Mapping[str, bytes]) -> None:
        """Adds several small files by name, as :meth:`add` does, and looks at the limit once.

        Raises:
            CompileError: the folder or a file cannot be written.
        """

        def all_of_them(new: Path) -> None:
            for name, content in contents.items():
                (new / name).write_bytes(content)
                _sums(new / name).write_text(_sum_of_content(content), encoding="ascii")

        if contents:
            self._write(all_of_them)
            self._shrink({self.folder / name for name in contents}, sum(map(len, contents.values())))

    def files(self) -> list[CachedFile]:
        """Returns all files, the least recently used first."""
        return sorted(self._files(), key=lambda file: (file.used, file.path.name))

    def clear(self) -> list[CachedFile]:
        """Removes all files of the cache, and returns those that were there; other files of the folder stay."""
        removed = self.files()
        for file in removed:
            _remove(file.path)
        with contextlib.suppress(OSError):
            (self.folder / _TOTAL).unlink(missing_ok=True)
        return removed

    def _files(self) -> Iterator[CachedFile]:
        try:
            sums = [path for path in self.folder.iterdir() if path.suffix == _SUM]
        except OSError:
            return
        for each in sums:
            path = each.with_suffix("")
            with contextlib.suppress(OSError):  # another process has removed it
                yield CachedFile(path, path.stat().st_size, each.stat().st_mtime)

    def _write(self, write: Callable[[Path], None], *, last: str = "") -> None:
        """Moves the files that `write` writes to a folder into this one, each before its checksum."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise write_error(self.folder, error) from error
        write_together(self.folder, write, last=last)

    def _shrink(self, kept: Set[Path], added: int) -> None:
        """Removes files if they exceed the limit, but none of `kept`, which have just been added: `added` bytes."""
        known = self._running_total(added)
        if known is not None and known <= self.max_bytes:
            return
        files = self.files()
        total = sum(file.bytes for file in files)
        enough = self.max_bytes - self.max_bytes // _SPARE if total > self.max_bytes else total
        for file in files:
            if total <= enough:
                break
            if file.path not in kept:
                _remove(file.path)
                total -= file.bytes
        with contextlib.suppress(CompileError):  # then the next addition lists the files again
            write_text(self.folder / _TOTAL, f"{total}\n")

    def _running_total(self, added: int) -> int | None:
        """Returns at least the size of all files with those that have just been added; None if it is unknown."""
        try:
            with open(self.folder / _TOTAL, "a+b", buffering=0, opener=_existing) as file:
                file.write(b"%d\n" % added)
                file.seek(0)
                lines = file.read(_MAX_LINES) or b""
            return sum(map(int, lines.split())) if len(lines) < _MAX_LINES else None
        except (OSError, ValueError):
            return None


def _existing(path: str, flags: int) -> int:
    """Opens a file that is there already.

    Raises:
        OSError: it is not, or may not be written.
    """
    return os.open(path, flags & ~os.O_CREAT)


def _sums(path: Path) -> Path:
    return path.with_name(f"{path.name}{_SUM}")


def _sum_of(path: Path) -> str:
    """Returns the size and the digest of a file.

    Raises:
        OSError: it cannot be read.
    """
    from xxhash import xxh3_128  # which the compiler comes with, not the loader alone

    with path.open("rb") as file:
        digest = hashlib.file_digest(file, xxh3_128).hexdigest()
        return f"{os.fstat(file.fileno()).st_size} {digest}\n"


def _sum_of_content(content: bytes) -> str:
    """Returns the size and the digest of the content of a file."""
    from xxhash import xxh3_128_hexdigest

    return f"{len(content)} {xxh3_128_hexdigest(content)}\n"


def _remove(path: Path) -> None:
    for file in (_sums(path), path):  # in this order, a file without its sum is never found
        with contextlib.suppress(OSError):  # it is gone, or in use on a system that keeps such files
            file.unlink()
