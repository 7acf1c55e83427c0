"""Assigns offsets in a workspace so that storages that are live at the same time do not overlap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice
from operator import attrgetter

import numpy as np
from tvm import tirx

from nnefc.passes.tir.common.alignment import aligned
from nnefc.symbolic.dims import Dimension, Size, is_known

__all__ = ["DynamicStorage", "Storage", "alive_at", "assign_offsets", "stacked", "with_dynamic_offsets"]


@dataclass(eq=False)
class Storage:
    """Memory that one buffer, or several aliased ones, occupy.

    Attributes:
        first, last: the numbers of the steps that it is alive from, and to.
        outside: the base and index of the memory that it is, if not of the workspace: an output, or a loop's new state.
        offset: where it begins there, once that is known.
        part: of the workspace: 0 is laid out before the run, the others when a data-dependent size is known.
    """

    bytes: Dimension
    first: int
    last: int
    outside: tuple[str, int] | None = None
    offset: Dimension = 0
    part: int = 0


@dataclass(frozen=True)
class DynamicStorage:
    """A storage whose offset in the workspace is known at run time, when the dynamic dimensions are.

    Attributes:
        offset: the variable that stands for it.
        bytes, first, last, part: as of a :class:`Storage`.
    """

    offset: tirx.Var
    bytes: Dimension
    first: int
    last: int
    part: int = 0


def with_dynamic_offsets(
    storages: Collection[Storage], inside: Collection[DynamicStorage]
) -> tuple[DynamicStorage, ...]:
    """Returns the storages with variables for offsets, if the size of any is dynamic; else none.

    Args:
        inside: those of the bodies of choices and loops, which come along.
    """
    if not inside and all(is_known(storage.bytes) for storage in storages):
        return ()
    made = list(inside)
    for storage in storages:
        offset = tirx.Var("offset", "int64")
        storage.offset = Size(offset)
        made.append(DynamicStorage(offset, storage.bytes, storage.first, storage.last, storage.part))
    return tuple(made)


_ORDERS: Sequence[Callable[[Storage], tuple[int, ...]]] = (
    lambda storage: (-storage.bytes, storage.first),
    lambda storage: (-storage.bytes * (storage.last - storage.first), storage.first),
    lambda storage: (storage.first, -storage.bytes),
)
"""The orders in which storages are assigned: by size (Pisarchyk and Lee, 2020), by size × lifetime, by first use."""

_MAX_TRIES, _MAX_ASSIGNED = 16, 8192
"""The number of changes that are tried for each order, each of which moves a storage before the one that it lies on;
and the number of storages that are assigned in all tries together.
"""


def assign_offsets(storages: Collection[Storage]) -> int:
    """Chooses offsets so that storages alive at the same time do not overlap; returns the total bytes.

    Each storage gets the first gap that it fits into. If an order leaves gaps, others are tried.

    Each comes into the first gap that it fits into; the order decides. Where one leaves gaps, others are tried.
    """
    minimum = max(alive_at(storages), default=0)
    best = _Placed.of(sorted(storages, key=_ORDERS[0]))
    for tried in islice(_tries(storages), _MAX_ASSIGNED // max(len(storages), 1)):
        if best.bytes <= minimum:
            break
        best = min(best, tried, key=attrgetter("bytes"))
    for storage, offset in zip(best.ordered, best.begins, strict=True):
        storage.offset = int(offset)
    return best.bytes


@dataclass(frozen=True)
class _Placed:
    """Storages in the order in which they were assigned, with their bounds."""

    ordered: Sequence[Storage]
    begins: np.ndarray
    ends: np.ndarray

    @classmethod
    def of(cls, ordered: Sequence[Storage]) -> _Placed:
        """Assigns each storage to the first gap that the storages before it leave."""
        firsts, lasts = (np.array([getattr(s, end) for s in ordered], np.int64) for end in ("first", "last"))
        maximum = sum(abs(aligned(storage.bytes)) for storage in ordered)  # of the greatest dynamic sizes, any number
        begins, ends = np.zeros((2, len(ordered)), np.int64 if maximum < 1 << 63 else object)
        for count, storage in enumerate(ordered):
            size, offset = aligned(storage.bytes), 0
            neighbours = _neighbours(storage, firsts[:count], lasts[:count])
            for other in neighbours[np.argsort(begins[neighbours])]:
                if begins[other] - offset >= size:
                    break
                offset = max(offset, int(ends[other]))
            begins[count], ends[count] = offset, offset + size
        return cls(ordered, begins, ends)

    @property
    def bytes(self) -> int:
        """Returns the total size in bytes."""
        return int(self.ends.max(initial=0))

    def with_top_earlier(self) -> _Placed:
        """Returns a new assignment, with the storage that reaches highest before the last of those that are alive with
        it.
        """
        top = int(np.argmax(self.ends))
        ordered = list(self.ordered)
        storage = ordered.pop(top)
        before = [at for at in range(top) if ordered[at].first <= storage.last and storage.first <= ordered[at].last]
        ordered.insert(before[-1] if before else 0, storage)
        return _Placed.of(ordered)


def _tries(storages: Collection[Storage]) -> Iterator[_Placed]:
    """Yields assignments in different orders."""
    for order in _ORDERS:
        tried = _Placed.of(sorted(storages, key=order))
        yield tried
        for _ in range(_MAX_TRIES):
            tried = tried.with_top_earlier()
            yield tried


def _neighbours(storage: Storage, firsts: np.ndarray, lasts: np.ndarray) -> np.ndarray:
    """Returns the positions of the storages that are alive together with a storage."""
    return np.flatnonzero((firsts <= storage.last) & (lasts >= storage.first))


def alive_at(storages: Collection[Storage]) -> tuple[int, ...]:
    """Returns the bytes that are alive at each time; no workspace needs less than the maximum of them."""
    changes: defaultdict[int, int] = defaultdict(int)
    for storage in storages:
        changes[storage.first] += aligned(storage.bytes)
        changes[storage.last + 1] -= aligned(storage.bytes)
    return tuple(accumulate(changes[time] for time in range(max(changes, default=0))))


def stacked(sizes: Iterable[int]) -> tuple[tuple[int, ...], int]:
    """Returns the offsets of areas of these sizes, one after the other, and their end."""
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += aligned(size)
    return tuple(offsets), end
