"""Builds a unique path for each opened library file.

When a path is opened twice, the system's loader returns the library that is already open under this path, even if the
file has been replaced meanwhile. So each open file gets its own spelling of the path (`./a`, `././a`, …). Windows
normalizes paths, so this does not work there.
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
    """A file that was opened under a spelling: its device and inode, and the number of libraries that have it open."""

    identity: tuple[int, int]
    users: int


class _Spellings:
    """The spellings in use.

    Entries are never removed: a garbage collection within :meth:`claim` may call :meth:`release`.
    """

    def __init__(self) -> None:
        self._opened: dict[str, _Opened] = {}
        self._lock: threading.RLock
        keep_lock(self, threading.RLock)

    def claim(self, path: Path, *, real: bool = True) -> str:
        """Return a spelling of a file's path under which no other file is open.

        Args:
            path: of the file.
            real: whether symbolic links are resolved.

        Raises:
            LoadError: on Windows, a file that has been replaced is still open under this path.
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
        """Release a spelling, when a library is closed."""
        with self._lock:
            self._opened[spelling].users -= 1


SPELLINGS = _Spellings()
