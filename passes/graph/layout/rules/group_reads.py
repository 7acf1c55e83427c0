"""Plans the reads of grouped convolutions whose input channels are permuted in blocks.

Slots that lie side by side are read as a *run*, and runs that lie one behind the other as a *chain*, the first run of
which is looked up in a table. Filters have zeros for slots in between that are not the group's own:

    order of the channels      0 1 2 _ | 4 5 3 _ | 6 8 7 _        3 groups of 3
    slot by slot               0 1 2 · 6 4 5 · 8 10 9             as many products as there are channels
    in runs of 4               0 · 1 · 2                          more products, and fewer entries of the table
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from nnefc.passes.compute.blocked import blocks
from nnefc.passes.compute.channel_order import (
    chains_of_operands,
    gathered_filters,
    merge_groups,
    operands_of_groups,
)
from nnefc.passes.compute.convolution import pack_filter
from nnefc.passes.compute.dot.dot_product import Multiplication
from nnefc.passes.graph.layout.blocked_layout import FOREIGN, Blocked
from nnefc.passes.graph.quantized.packed_operands import packed_weights
from nnefc.targets.machine.cpu.target import Target

__all__ = ["Reads", "groups_in_a_block", "merged_groups", "reads_of", "slot_by_slot"]

_LOOKED_UP = 1.4
"""The cost of a table lookup, in products, where vectors are not multiplied by lanes."""

_LONGEST_CHAIN = 9
"""The longest chain, in runs, for sums that are computed in short parts."""


@dataclass(frozen=True)
class Reads:
    """How the groups of a convolution read their channels.

    Attributes:
        run: slots in a row that are read as one.
        chain: runs in a row.
        first: the first run of each chain, `[groups, chains]`.
        held: the runs that are a group's own, `[groups, chains · chain]`; -1 for others.
    """

    run: int
    chain: int
    first: np.ndarray
    held: np.ndarray

    @property
    def chains(self) -> int:
        """Returns the chains of each group."""
        count: int = self.first.shape[1]
        return count

    @property
    def elements(self) -> int:
        """Returns the number of slots that each group reads."""
        return self.chains * self.chain * self.run

    def slots(self) -> np.ndarray:
        """Returns the slots that each group reads, `[groups, elements]`."""
        length = self.chain * self.run
        return (self.first[..., None] * self.run + np.arange(length)).reshape(len(self.first), -1)

    def steps(self, kernel: Sequence[int], how: Multiplication) -> tuple[int, ...]:
        """Returns the axes of a sum, the last one varying fastest: see :func:`.channel_order.convolve_gathered`."""
        return self.chains, self.chain, *kernel, self.run // how.terms

    def time(self, how: Multiplication) -> float:
        """Returns the time of the sums, in units of one product of packed operands."""
        return self.chains * (self.chain * self.run / how.terms + _LOOKED_UP)

    def pack(self, filters: np.ndarray, layout: Blocked, how: Multiplication, size: int) -> np.ndarray:
        """Packs filters `[O, I / groups, *k]` for :func:`.channel_order.convolve_gathered`, in blocks of `size`."""
        own = packed_weights(gathered_filters(filters, layout.order, self.held, self.run), 1, how)
        packed = pack_filter(own, self.run // how.terms, size, len(self.first))
        return packed if self.chain == 1 else packed.reshape(len(packed), -1, self.chain, *packed.shape[2:])


def reads_of(layout: Blocked, groups: int, how: Multiplication, kernel: Sequence[int], target: Target) -> Reads | None:
    """Chooses the fastest reads of data in blocks, for a filter of `kernel` taps.

    None where no sum could be made in parts that are short enough. Of floats, nothing of another tensor is read, for
    that may be infinite.
    """
    order = np.asarray(layout.order)
    found = [
        reads
        for reads in _candidates(layout, groups, how, target)
        if how.is_cut(*reads.steps(kernel, how)) and ("int" in how.data or FOREIGN not in order[reads.slots()])
    ]
    return min(found, key=lambda reads: reads.time(how), default=None)


def slot_by_slot(layout: Blocked, groups: int) -> Reads:
    """Returns reads that look up each channel by itself, in the order of channels."""
    slots = layout.slots.reshape(groups, -1)
    return Reads(1, 1, slots, slots)


def _candidates(layout: Blocked, groups: int, how: Multiplication, target: Target) -> Iterator[Reads]:
    """Yields the runs to consider: packed operands; vectors and full blocks where vectors are multiplied by lanes; and
    full blocks where sums are computed in parts.
    """
    if how.terms == 1:
        yield slot_by_slot(layout, groups)
    assembled, size = target.vectors.by_lane or how.is_long, layout.size
    runs = {size, target.lanes("float32")} if assembled else {size} if how.is_in_parts else set()
    for run in sorted(runs | ({how.terms} - {1})):
        table = operands_of_groups(layout.order, groups, run)
        count = len(layout.order) // run
        lengths = _lengths(table) if run == size else {1}
        if run == size and how.is_in_parts:
            lengths |= set(range(1, min(_LONGEST_CHAIN, count) + 1))
        for length in sorted(lengths):
            yield Reads(run, length, *chains_of_operands(table, length, count))


def _lengths(runs: np.ndarray) -> set[int]:
    """Returns 1, and the lengths of sequences of adjacent runs in groups."""
    ends = (np.diff(runs, axis=1, append=-1) != 1) & (runs >= 0)
    return {1, *(int(n) for row in ends for n in np.diff(np.flatnonzero(row), prepend=-1))}


def groups_in_a_block(outputs: int, groups: int, size: int) -> int:
    """Returns the number of groups that fit into the blocks that one group needs: with zeros between them, they cost
    the same.
    """
    room = blocks(outputs, size) * size
    return next(count for count in range(room // outputs, 0, -1) if groups % count == 0)


def merged_groups(filters: np.ndarray, groups: int, size: int) -> tuple[np.ndarray, int]:
    """Merges groups that fit into one block, with zeros between them; returns the filters and the number of groups."""
    together = groups_in_a_block(filters.shape[0] // groups, groups, size)
    return merge_groups(filters, groups // together, together), groups // together
