"""Makes private copies of files that no other user can change, so that the file that is loaded is the one that was
checked.

On Linux and Android a copy is a sealed file in memory; on macOS and Windows it is in a temporary folder that only this
user can access, and that is removed with the copy.
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
    """A private copy of a file.

    Attributes:
        path: under which this process can open the copy, until :meth:`close`.
    """

    def __init__(self, path: Path, remove: Callable[[], None]) -> None:
        self.path = path
        self._finalizer = weakref.finalize(self, _in_process, os.getpid(), remove)

    def close(self) -> None:
        """Remove the copy; existing mappings of it stay valid."""
        self._finalizer()


def _in_process(owner: int, remove: Callable[[], None]) -> None:
    """Remove a copy in the process that made it: a forked process must not remove its parent's copies."""
    if os.getpid() == owner:
        remove()


def private_copy(source: Path, digest: str) -> PrivateFile:
    """Copy a file, and check the copy.

    Args:
        source: the file.
        digest: SHA-256 of the content that it must have, in hexadecimal.

    Raises:
        LoadError: the content is another, or the file cannot be read or copied.
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
    """Return a private file with the given content.

    Args:
        content: of the file.
        name: of the file, where it has to be in a folder.

    Raises:
        LoadError: the file cannot be written.
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
    """Return the error for a file that does not match its signature."""
    return LoadError(f"{file} is not the file that was signed: it was changed, or the signature is another's")


def _in_memory(file: BinaryIO) -> tuple[PrivateFile, str] | None:
    """Return a sealed copy in memory, opened by its descriptor, and its digest; None without support by the system."""
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

    folder = tempfile.mkdtemp(prefix="nnefc-")  # accessible for this user only

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
    """Copy to the end of a file; return the SHA-256 of the copied bytes, in hexadecimal."""
    digest = hashlib.sha256()
    while part := source.read(_PART):
        digest.update(part)
        target.write(part)
    return digest.hexdigest()
