"""Where storages lie in a workspace: those that are alive at the same time do not overlap."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from tvm import tirx

from nnefc.passes.tir.alignment import aligned
from nnefc.sizes import Dimension, Size, is_known

__all__ = ["OpenStorage", "Storage", "assign_offsets", "left_open", "lower_bound", "stacked"]


@dataclass(eq=False)
class Storage:
    """Memory that one buffer, or several that were brought together, live in.

    Attributes:
        first, last: the numbers of the steps that it is alive from, and to.
        output: which of the caller's buffers it is, if it is one; it takes no place in the workspace then.
        offset: where it begins there, once that is known.
        part: of the workspace: 0 is laid out before the run, the others when a size is known that only the data tell.
    """

    bytes: Dimension
    first: int
    last: int
    output: int | None = None
    offset: Dimension = 0
    part: int = 0


@dataclass(frozen=True)
class OpenStorage:
    """A storage whose place in the workspace is known at run time, when sizes are.

    Attributes:
        offset: the variable that stands for it.
        bytes, first, last, part: as of a :class:`Storage`.
    """

    offset: tirx.Var
    bytes: Dimension
    first: int
    last: int
    part: int = 0


def left_open(storages: Collection[Storage], inside: Collection[OpenStorage]) -> tuple[OpenStorage, ...]:
    """The storages with variables for offsets, if the size of any is open; else none.

    Args:
        inside: those of the bodies of choices and loops, which come along.
    """
    if not inside and all(is_known(storage.bytes) for storage in storages):
        return ()
    made = list(inside)
    for storage in storages:
        offset = tirx.Var("offset", "int64")
        storage.offset = Size(offset)
        made.append(OpenStorage(offset, storage.bytes, storage.first, storage.last, storage.part))
    return tuple(made)


def assign_offsets(storages: Collection[Storage]) -> int:
    """Choose offsets so that storages alive at the same time do not overlap; returns the bytes in all.

    The largest first, each in the first gap that it fits into (Pisarchyk and Lee, 2020).
    """
    placed: list[Storage] = []
    end = 0
    for storage in sorted(storages, key=lambda s: (-s.bytes, s.first)):
        size = aligned(storage.bytes)
        offset = 0
        for other in placed:  # in order of their offsets
            if other.last < storage.first or storage.last < other.first:
                continue
            if other.offset - offset >= size:
                break
            offset = max(offset, other.offset + aligned(other.bytes))
        storage.offset = offset
        placed.append(storage)
        placed.sort(key=lambda s: s.offset)
        end = max(end, offset + size)
    return end


def lower_bound(storages: Collection[Storage]) -> int:
    """The largest sum of storages alive at one time: no workspace needs less."""
    changes: defaultdict[int, int] = defaultdict(int)
    for storage in storages:
        changes[storage.first] += aligned(storage.bytes)
        changes[storage.last + 1] -= aligned(storage.bytes)
    most = alive = 0
    for time in sorted(changes):
        alive += changes[time]
        most = max(most, alive)
    return most


def stacked(sizes: Iterable[int]) -> tuple[tuple[int, ...], int]:
    """Offsets of areas of these sizes, one after the other, and their end."""
    offsets, end = [], 0
    for size in sizes:
        offsets.append(end)
        end += aligned(size)
    return tuple(offsets), end
