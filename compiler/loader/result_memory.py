"""Memory of a session's large results, which later runs use again.

The operating system clears each page of new memory when it is written first, which can take longer than the network: a
decoder whose caches are outputs gives as many bytes with each token as it reads. The memory of a result that is no
longer in use is therefore kept for the next run.
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
"""Bytes of an array from which on it has a block of its own; the allocator keeps smaller ones by itself."""
_HUGE = 1 << 22
"""Bytes of a block from which on huge pages are asked for, as NumPy does."""
_STEPS = 8
"""Sizes of blocks between two powers of two: results that grow by a token a run fit into their blocks again."""


class ResultMemory:
    """Makes a session's results, with the memory of earlier ones that are no longer in use.

    What is kept has no more bytes than the results of one run. All threads may use it. A result may be collected within
    any call, even of this object: nothing waits for the lock, a block is freed in place of being kept.

    Attributes:
        kept_bytes: those of blocks that no result uses.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limit, self.kept_bytes = 0, 0
        self._kept: dict[int, list[mmap.mmap]] = {}  # by size; the size that was given back last is the last one

    def limit(self, size: int) -> None:
        """Keep at most the blocks of results that have so many bytes."""
        self._limit = size + size // _STEPS  # a block is larger than its result by less than that
        if self._lock.acquire(blocking=False):
            self._shrink()
            self._lock.release()

    def empty(self, shape: Sequence[int], dtype: np.dtype) -> np.ndarray:
        """Returns a row-major array whose elements have any values."""
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
        """Keep a block, in place of those whose size was given back longest ago."""
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
