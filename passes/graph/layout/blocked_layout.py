"""Describes the blocked layout of a tensor during layout assignment: which channel each slot holds.

`[N, C, *spatial]` lies in memory as `[N, blocks, *spatial, b]`. A *slot* is a position for a channel: lane `s % b` of
block `s // b`. A layout says which channel each slot holds, so that operations which only move channels, as the
shuffles between grouped convolutions do, change the layout and no data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np

__all__ = ["EMPTY", "FOREIGN", "Blocked"]

# What a slot without a channel holds.
EMPTY = -1  # some finite number
FOREIGN = -2  # whatever a channel of another tensor has


@dataclass(frozen=True)
class Blocked:
    """The blocked layout of a tensor: slot s holds channel `order[s]`, or is :data:`EMPTY` or :data:`FOREIGN`.

    Each channel has one slot.

    Attributes:
        order: of all slots, in full blocks.
        size: slots of a block.
    """

    order: tuple[int, ...]
    size: int

    @classmethod
    def of(cls, channels: int, size: int, groups: int = 1) -> Blocked:
        """Returns the channels in order, in blocks of `size`; each of `groups` equal parts of them starts a block."""
        of_group = channels // groups
        slots = np.full((groups, -(-of_group // size) * size), EMPTY)
        slots[:, :of_group] = np.arange(channels).reshape(groups, of_group)
        return cls(tuple(slots.reshape(-1).tolist()), size)

    @cached_property
    def slots(self) -> np.ndarray:
        """The slot of each channel."""
        order = np.asarray(self.order)
        found = np.empty(self.channels, np.int32)
        found[order[order >= 0]] = np.flatnonzero(order >= 0)
        return found

    @cached_property
    def channels(self) -> int:
        """Returns the number of channels."""
        return max(self.order) + 1

    @property
    def blocks(self) -> int:
        """Returns the number of blocks."""
        return len(self.order) // self.size

    @property
    def is_in_order(self) -> bool:
        """Whether the slots hold the channels one after the other, and only the last ones are empty."""
        return self == Blocked.of(self.channels, self.size)

    @property
    def is_full(self) -> bool:
        """Whether every slot holds a channel."""
        return self.channels == len(self.order)

    @property
    def is_whole(self) -> bool:
        """Whether no slot is :data:`FOREIGN`."""
        return FOREIGN not in self.order

    def gathered(self, sources: Sequence[int]) -> Blocked:
        """Returns the layout of the same data seen as other channels: channel i is what was channel `sources[i]`.
        `sources` has each channel once at most.
        """
        order = np.asarray(self.order)
        order = np.where(order >= 0, FOREIGN, order)
        order[self.slots[np.asarray(sources)]] = np.arange(len(sources))
        return Blocked(tuple(order.tolist()), self.size)

    def split(self, seams: Sequence[int]) -> list[Blocked] | None:
        """Returns the layouts of parts of the channels, the second from `seams[0]` on, …, as blocks that follow each
        other.

        None if a block has channels of several parts, or the blocks have another order than the parts.
        """
        ends, size = [*seams, self.channels], self.size
        block_of = self.slots // size
        firsts = [0, *(int(block_of[seam:end].min()) for seam, end in pairwise(ends)), self.blocks]
        parts = []
        for begin, end, first, last in zip([0, *seams], ends, firsts, firsts[1:], strict=False):
            if block_of[begin:end].max() >= last or block_of[begin:end].min() < first:
                return None
            order = self.order[first * size : last * size]
            parts.append(Blocked(tuple(channel - begin if channel >= 0 else channel for channel in order), size))
        return parts

    @staticmethod
    def joined(parts: Sequence[Blocked]) -> Blocked:
        """Returns the layout of two tensors whose blocks follow each other, of the same block size; channels follow
        likewise.
        """
        order: list[int] = []
        before = 0
        for part in parts:
            order += [before + channel if channel >= 0 else channel for channel in part.order]
            before += part.channels
        return Blocked(tuple(order), parts[0].size)
