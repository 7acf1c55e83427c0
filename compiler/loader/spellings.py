"""Builds a unique path for each opened library file.

The system's loader returns the library that it has already opened under a path, even if another file has been moved
there since. So each open file gets its own spelling of the path (`./a`, `././a`, …). Windows normalizes paths, so that
spellings have no effect there.
"""

from __future__ import annotations

import os
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

from .forks import keep_lock
from .tensors import LoadError

__all__ = ["SPELLINGS"]


@dataclass
class _Opened:
    """A file by device and inode, and how many libraries have it open."""

    identity: tuple[int, int]
    users: int


class _Spellings:
    """Spellings in use. Entries are never removed, since a garbage collection may release one at any time."""

    def __init__(self) -> None:
        self._opened: dict[str, _Opened] = {}
        self._lock: threading.RLock
        keep_lock(self, threading.RLock)

    def claim(self, path: Path, *, real: bool = True) -> str:
        """Returns a spelling of a file's path that no other open file uses, with symbolic links resolved if `real`.

        Raises:
            LoadError: another file is open under it, and there is no second one.
        """
        folder, name = os.path.split(os.path.realpath(path) if real else path)
        status = os.stat(path)
        identity = (status.st_dev, status.st_ino)
        with self._lock:
            while True:
                spelling = os.path.join(folder, name)
                opened = self._opened.setdefault(spelling, _Opened(identity, 0))
                if opened.identity == identity or opened.users == 0:
                    opened.identity = identity
                    opened.users += 1
                    return spelling
                if sys.platform == "win32":
                    raise LoadError(
                        f"{path} was loaded before it was replaced, and is still open: close that model first"
                    )
                folder = os.path.join(folder, ".")

    def release(self, spelling: str) -> None:
        """Releases the spelling when a library is closed."""
        with self._lock:
            self._opened[spelling].users -= 1


SPELLINGS = _Spellings()
