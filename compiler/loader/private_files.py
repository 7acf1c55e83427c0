"""Makes private copies of files that no other user can change, so that the file that was checked is the file that is
loaded.

On Linux and Android a copy is in memory, sealed; on macOS and Windows it is in a folder of this user's alone, which is
removed with it.
"""

from __future__ import annotations

import hashlib
import io
import os
import shutil
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from .tensors import LoadError

__all__ = ["PrivateFile", "not_signed", "private_copy", "private_file_of"]

_PART = 1 << 20


class PrivateFile:
    """A copy of a file.

    Attributes:
        path: under which this process can open it, until :meth:`close`.
    """

    def __init__(self, path: Path, remove: Callable[[], None]) -> None:
        self.path = path
        self._finalizer = weakref.finalize(self, _in_process, os.getpid(), remove)

    def close(self) -> None:
        """Remove the copy; what is mapped of it stays mapped."""
        self._finalizer()


def _in_process(owner: int, remove: Callable[[], None]) -> None:
    """Remove a copy where it was made: what a forked child has is its parent's."""
    if os.getpid() == owner:
        remove()


def private_copy(source: Path, digest: str) -> PrivateFile:
    """Copy a file, which is read once.

    Args:
        source: the file.
        digest: SHA-256 of what it must contain, in hexadecimal.

    Raises:
        LoadError: it contains something else, or it cannot be read or copied.
    """
    try:
        with source.open("rb") as file:
            made = _in_memory(file) or _in_folder(file, source.name)
    except OSError as error:
        raise LoadError(f"{source} cannot be read, or copied to be checked: {error.strerror}") from error
    copy, found = made
    if found != digest:
        copy.close()
        raise not_signed(source)
    return copy


def private_file_of(content: bytes | bytearray | memoryview, name: str) -> PrivateFile:
    """Makes a file of what is in memory; `name` is what it is called where it must be in a folder.

    Raises:
        LoadError: it cannot be written.
    """
    file = io.BytesIO(content)
    try:
        copy, _ = _in_memory(file) or _in_folder(file, name)
    except OSError as error:
        raise LoadError(
            f"a library of {len(content)} bytes cannot be written to be loaded: {error.strerror}"
        ) from error
    return copy


def not_signed(file: Path) -> LoadError:
    """The error of a file that is not what its signature says."""
    return LoadError(f"{file} is not the file that was signed: it was changed, or the signature is another's")


def _in_memory(file: BinaryIO) -> tuple[PrivateFile, str] | None:
    """Returns a sealed copy in memory, which is opened by its descriptor; None where the system has no such files."""
    if not hasattr(os, "memfd_create"):
        return None
    import fcntl

    seals = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL
    try:
        descriptor = os.memfd_create("nnefc", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError:
        return None
    copy = PrivateFile(Path(f"/proc/self/fd/{descriptor}"), lambda: os.close(descriptor))
    try:
        if not copy.path.exists():
            copy.close()
            return None
        with open(descriptor, "wb", closefd=False) as target:
            digest = _copied(file, target)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, seals)
    except BaseException:
        copy.close()
        raise
    return copy, digest


def _in_folder(file: BinaryIO, name: str) -> tuple[PrivateFile, str]:
    import tempfile

    folder = tempfile.mkdtemp(prefix="nnefc-")  # of this user alone

    def remove() -> None:
        shutil.rmtree(folder, ignore_errors=True)

    path = Path(folder, name)
    copy = PrivateFile(path, remove)
    try:
        with path.open("xb") as target:
            digest = _copied(file, target)
    except BaseException:
        copy.close()
        raise
    return copy, digest


def _copied(source: BinaryIO, target: BinaryIO) -> str:
    """Copy to the end; the digest of what was written."""
    digest = hashlib.sha256()
    while part := source.read(_PART):
        digest.update(part)
        target.write(part)
    return digest.hexdigest()
