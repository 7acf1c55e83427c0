"""Reuses the memory of a session's large results.

The operating system clears each page of new memory at its first write, which can take longer than the run itself: a
decoder whose caches are outputs returns all of them with each token. So the memory of a result that is no longer in use
is kept for the next run.
"""

from __future__ import annotations

import math
import mmap
import threading
import weakref
from collections.abc import Sequence

import numpy as np

__all__ = ["LARGE", "ResultMemory"]

LARGE = 1 << 18
"""Bytes of an array from which it has a block of its own; smaller arrays are reused by the allocator."""
_HUGE = 1 << 22
"""Bytes of a block from which huge pages are requested, as in NumPy."""
_STEPS = 8
"""Sizes of blocks between two powers of two: a result that grows by a token with each run fits in the same block."""


class ResultMemory:
    """Makes a session's results in the memory of earlier results that are no longer in use.

    The kept memory is limited to about the bytes of one run's results. All threads may use this object. The garbage
    collector may free a result at any time, even within a method of this object, so no method waits for the lock: if it
    is taken, a block is freed instead of kept.

    Attributes:
        kept_bytes: bytes of the blocks that no result uses.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limit, self.kept_bytes = 0, 0
        self._kept: dict[int, list[mmap.mmap]] = {}  # by size, the most recently returned size last

    def limit(self, size: int) -> None:
        """Limit the kept memory to blocks for results of `size` bytes together."""
        self._limit = size + size // _STEPS  # a block is larger than its result by less than that
        if self._lock.acquire(blocking=False):
            self._shrink()
            self._lock.release()

    def empty(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        """Return a row-major array with uninitialized elements."""
        size = math.prod(shape) * dtype.itemsize
        if size < LARGE:
            return np.empty(shape, dtype)
        size = _block_size(size)
        block = self._take(size) or _new_block(size)
        array: np.ndarray = np.ndarray(shape, dtype, buffer=block)  # the base of all its views
        weakref.finalize(array, self._give_back, block).atexit = False
        return array

    def _take(self, size: int) -> mmap.mmap | None:
        if not self._lock.acquire(blocking=False):
            return None
        try:
            return self._pop(size) if size in self._kept else None
        finally:
            self._lock.release()

    def _give_back(self, block: mmap.mmap) -> None:
        """Keep a block; beyond the limit, free blocks of the least recently returned sizes."""
        if not self._lock.acquire(blocking=False):
            return
        try:
            size = len(block)
            self._kept[size] = [*self._kept.pop(size, ()), block]
            self.kept_bytes += size
            self._shrink()
        finally:
            self._lock.release()

    def _shrink(self) -> None:
        while self.kept_bytes > self._limit:
            self._pop(next(iter(self._kept)))

    def _pop(self, size: int) -> mmap.mmap:
        blocks = self._kept[size]
        block = blocks.pop()
        self.kept_bytes -= size
        if not blocks:
            del self._kept[size]
        return block


def _block_size(size: int) -> int:
    step = max(mmap.PAGESIZE, (1 << (size - 1).bit_length()) // (2 * _STEPS))
    return -(-size // step) * step


def _new_block(size: int) -> mmap.mmap:
    if not hasattr(mmap, "MAP_PRIVATE"):  # Windows
        return mmap.mmap(-1, size)
    block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if size >= _HUGE and hasattr(mmap, "MADV_HUGEPAGE"):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block
