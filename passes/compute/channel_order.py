"""Converts between blocked layouts with permuted channels, and convolves data whose channels are permuted.

A *slot* is a position for a channel: slot `s` is lane `s % b` of block `s // b`, in blocks of `b`. Tables of slots and
channels are tensors of int32; a negative entry marks an empty slot.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import te, tirx

from nnefc.passes.compute.blocked import multiply
from nnefc.symbolic.dims import dimension

__all__ = [
    "arrange",
    "arrange_array",
    "chains_of_operands",
    "convolve_gathered",
    "gather_channels",
    "gathered_filters",
    "merge_groups",
    "operands_of_groups",
    "rearrange",
    "unarrange",
]


def arrange(data: te.Tensor, table: te.Tensor, size: int) -> te.Tensor:
    """`[N, C, *spatial]` → `[N, blocks, *spatial, size]`, where `table` has the channel of each slot."""
    batch, _, *spatial = data.shape

    def element(n: tirx.Var, block: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, index = tail
        channel = table(block * size + index)
        return _or_zero(channel, data(n, tirx.max(channel, 0), *position))

    return te.compute((batch, table.shape[0] // size, *spatial, size), element, name="arrange")


def rearrange(data: te.Tensor, table: te.Tensor, size: int) -> te.Tensor:
    """Return `data` in blocks of `size` channels; `table[i]` is the slot in `data` of slot `i` of the result."""
    batch, _, *spatial, own = data.shape

    def element(n: tirx.Var, block: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, index = tail
        slot = table(block * size + index)
        source = tirx.max(slot, 0)
        return _or_zero(slot, data(n, source // own, *position, source % own))

    return te.compute((batch, table.shape[0] // size, *spatial, size), element, name="rearrange")


def unarrange(data: te.Tensor, table: te.Tensor) -> te.Tensor:
    """`[N, blocks, *spatial, size]` → `[N, C, *spatial]`, where `table` has the slot of each channel."""
    batch, _, *spatial, size = data.shape

    def element(n: tirx.Var, channel: tirx.Var, *position: tirx.Var) -> tirx.Expr:
        slot = table(channel)
        return data(n, slot // size, *position, slot % size)

    return te.compute((batch, *table.shape, *spatial), element, name="unarrange")


def gather_channels(data: te.Tensor, table: te.Tensor) -> te.Tensor:
    """`[N, C, *tail]` in row-major layout, where `table` has the channel of `data` for each channel of the result."""

    def element(n: tirx.Var, channel: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        return data(n, table(channel), *tail)

    return te.compute((data.shape[0], *table.shape, *data.shape[2:]), element, name="gather_channels")


def _or_zero(entry: tirx.Expr, value: tirx.Expr) -> tirx.Expr:
    return tirx.if_then_else(entry >= 0, value, tirx.const(0, value.expr_ty().dtype))


def arrange_array(array: np.ndarray, axis: int, order: Sequence[int], size: int) -> np.ndarray:
    """Returns a constant with `axis` in blocks of `size`, filled up with zeros: slot s holds element `order[s]` of the
    axis.

    The lane in the block comes last.
    """
    slots = np.asarray(order)
    array = np.moveaxis(array, axis, -1)
    arranged = np.where(slots >= 0, array[..., np.maximum(slots, 0)], np.zeros((), array.dtype))
    return np.ascontiguousarray(np.moveaxis(arranged.reshape(*array.shape[:-1], -1, size), -2, axis))


def merge_groups(weights: np.ndarray, groups: int, together: int) -> np.ndarray:
    """Merges groups of filters: `[O, I, *k]` of `groups · together` groups as `[O, together · I, *k]` of `groups`.

    A filter has zeros for the channels of the groups that its own was merged with.
    """
    outputs, inputs, *kernel = weights.shape
    own = weights.reshape(groups, together, -1, inputs, *kernel)
    merged = np.zeros((groups, together, own.shape[2], together, inputs, *kernel), weights.dtype)
    for group in range(together):
        merged[:, group, :, group] = own[:, group]
    return merged.reshape(outputs, together * inputs, *kernel)


def operands_of_groups(order: Sequence[int], groups: int, terms: int) -> np.ndarray:
    """Returns the packed operands of `terms` slots that hold channels of each group: `[groups, count]`, int32, filled
    up with -1.

    Args:
        order: the channel of each slot; a negative entry stands for none of them.
    """
    channels = np.asarray(order)
    of_group = (channels.max() + 1) // groups
    found = [np.unique(np.flatnonzero((channels >= 0) & (channels // of_group == g)) // terms) for g in range(groups)]
    table = np.full((groups, max(map(len, found))), -1, np.int32)
    for group, operands in enumerate(found):
        table[group, : len(operands)] = operands
    return table


def chains_of_operands(table: np.ndarray, length: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Covers the operands of each group by chains of `length` consecutive ones.

    Args:
        table: of :func:`operands_of_groups`.
        count: of all operands, at least `length`.

    Returns:
        The first operand of each chain, `[groups, chains]`; and which operands of the group the chains bring,
        `[groups, chains · length]`, -1 where one is not the group's. A group with fewer chains than others reads its
        last one again, by weights of zero: an operand of others may hold what is infinite.
    """
    firsts, brought = [], []
    for row in table:
        chains: list[int] = []
        found: list[int] = []
        for operand in map(int, row[row >= 0]):
            if not chains or operand >= chains[-1] + length:
                chains.append(min(operand, count - length))
                found += [-1] * length
            found[operand - chains[-1] - length] = operand
        firsts.append(chains)
        brought.append(found)
    maximum = max(map(len, firsts))
    first = [chains + chains[-1:] * (maximum - len(chains)) for chains in firsts]
    held = [found + [-1] * (maximum * length - len(found)) for found in brought]
    return np.array(first, np.int32), np.array(held, np.int32)


def gathered_filters(filters: np.ndarray, order: Sequence[int], table: np.ndarray, terms: int) -> np.ndarray:
    """Rearranges filters `[O, I, *k]` to one element for each slot that a group reads: `[O, count · terms, *k]`, zero
    where a slot has no channel of the group.

    Args:
        order, table: of :func:`operands_of_groups`.
    """
    outputs, inputs, *kernel = filters.shape
    groups = len(table)
    slots = (table[..., None] * terms + np.arange(terms)).reshape(groups, -1)
    channels = np.where(slots >= 0, np.asarray(order)[slots], -1) - np.arange(groups)[:, None] * inputs
    own = (channels >= 0) & (channels < inputs)
    spread = filters.reshape(groups, -1, inputs, *kernel)
    made = np.stack([part[:, np.where(is_own, c, 0)] for part, c, is_own in zip(spread, channels, own, strict=True)])
    kept = own.reshape(groups, 1, -1, *[1] * len(kernel))
    return np.where(kept, made, np.zeros((), filters.dtype)).reshape(outputs, -1, *kernel)


def convolve_gathered(
    data: te.Tensor,
    weights: te.Tensor,
    table: te.Tensor,
    strides: Sequence[int],
    dilation: Sequence[int],
    product: Callable[[tirx.Expr, tirx.Expr], tirx.Expr] = multiply,
) -> te.Tensor:
    """Convolves in groups without padding; each group gathers its channels by a table.

    Args:
        data: `[N, blocks, *spatial, b]`, of numbers or of packed dot operands.
        weights: `[groups · O blocks, I, *k, r, b']`, as :func:`.convolution.pack_filter` makes them of blocks of r
            channels. Channels come first: one after the other is then read in few rows of `data` at a time. If blocks
            are read in chains, `[groups · O blocks, chains, blocks of a chain, *k, b, b']`.
        table: `[groups, I]`, where each group reads r slots in a row: the first one over r, which divides b; or
            `[groups, chains]`, the first block of each chain.
        product: of an element of the data and one of the weights.

    Returns:
        `[N, groups · O blocks, *spatial, b']`.
    """
    rank = len(data.shape) - 3
    outer, inputs, *chain, together, lanes = weights.shape
    chain, kernel = chain[:-rank], chain[-rank:]
    size = int(data.shape[-1]) // int(together)
    groups = int(table.shape[0])
    of_group = int(outer) // groups
    reach = [(int(k) - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    spatial = [(dimension(e) - r) // s + 1 for e, r, s in zip(data.shape[2 : 2 + rank], reach, strides, strict=True)]
    channel = te.reduce_axis((0, inputs), "channel")
    links = [te.reduce_axis((0, length), "link") for length in chain]
    taps = [te.reduce_axis((0, length), f"k{axis}") for axis, length in enumerate(kernel)]
    inner = [te.reduce_axis((0, together), "inner")] if int(together) > 1 else []

    def element(n: tirx.Var, o: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        at = [p * s + t * d for p, s, t, d in zip(position, strides, taps, dilation, strict=True)]
        index = sum(links, table(0 if groups == 1 else o // of_group, channel))
        (ri,) = inner or [tirx.const(0, "int32")]
        value = data(n, index // size, *at, index % size * together + ri)
        weight = weights(o, channel, *links, *taps, ri, lane)
        return te.sum(product(value, weight), axis=[channel, *links, *taps, *inner])

    return te.compute((data.shape[0], outer, *spatial, lanes), element, name="convolution")
