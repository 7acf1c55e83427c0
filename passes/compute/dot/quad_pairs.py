"""Multiplies int8 by `vpmaddubsw`, with sums in int16 that never saturate, for x86 without VNNI.

A *quad* is four neighbouring bytes of the data, and the four weights of each lane that they are multiplied by.
`vpmaddubsw` multiplies the quads of a vector and adds up neighbours in int16; two quads share these sums, which are
then added up in int32. That takes five instructions for two quads, where `vpmaddwd` on extended bytes takes eight. But
an int16 holds 255 · w for weights whose sum is 128 at most. So weights decide at compile time for each pair of quads:

    direct    u · w, u: uint8                       no lane has weights of one sign that add up to more than 128
    folded    |w| · v, v: int8                      no lane has weights whose magnitudes add up to more than 256
              v = u - 128 where w >= 0, and 127 - u where w < 0: one exclusive or
    apart     |w| · v, of each quad by itself       any: 2 · 128 · 128 is 2¹⁵

Folded products differ from u · w by 128 w, or by 127 w, which the weights alone decide. Quads may be added up in any
order, so that those that fit together are paired. A table holds where the data of each are:

    C[o, row, :] = Σ over pairs p of X[row + T[o, 2 p]] · W[o, 2 p, :] + X[row + T[o, 2 p + 1]] · W[o, 2 p + 1, :]

How many quads are in direct pairs depends on K, the weights of a result. Of weights with a normal distribution, scaled
by channel, about a tenth are for K = 256, a third for K = 576, a third to a half for K = 1,000, and more than half
for K above 2,000; nearly all others are in folded pairs. Of uniform weights none are direct.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np
from tvm import te, tirx

from nnefc.passes.tir.dot.dot_instructions import quad_pair
from nnefc.symbolic.dims import Dimension
from nnefc.targets.machine.cpu.target import Target

__all__ = ["QUAD", "QuadPairs", "convolve_quads", "has_quad_pairs", "multiply_quads", "pair_quads", "quads_of_filter"]

QUAD = 4
_DIRECT, _FOLDED = 128, 256
"""Sums of the weights of one sign, and of all magnitudes, of an element in int16."""

_COSTS = (0.67, 0.85, 0.95)
"""Time of a quad of a pair of each kind, in that of a quad by `vpmaddwd`."""

_LOOPS, _WORTH_IT = 7, 0.97
"""Time of the loops over pairs besides, and the share of the time by `vpmaddwd` from which on pairs do not pay."""

_QUANTILES = (0, 0.1, 0.25, 0.5, 1)
"""Of the pairs of a kind in each block: how many pairs of all blocks are tried to be of this kind."""

_PARTNERS = 48
"""Quads that each quad is tried with."""


@dataclass(frozen=True)
class QuadPairs:
    """Constant weights as pairs of quads, for each block of output channels.

    Attributes:
        table: `[blocks, 2 · pairs]`, int32: where the data of each quad are.
        weights: `[blocks, 2 · pairs, lanes]`: four int8 of each lane as an int32.
        direct, joined: pairs that are direct, and those that are direct or folded: the first ones.
        shift: `[blocks · lanes]`: what is to be added to the sums of uint8 data.
    """

    table: np.ndarray
    weights: np.ndarray
    direct: int
    joined: int
    shift: np.ndarray

    @property
    def limits(self) -> tuple[int, int]:
        """Returns the ends of the direct and of the folded pairs."""
        return self.direct, self.joined


def has_quad_pairs(target: Target) -> bool:
    """Whether bytes are multiplied so: by vectors of AVX2 or longer ones, without instructions for four products."""
    features = set(target.features)
    if not target.triple.startswith("x86_64") or features & {"avx512vnni", "avxvnni"} or target.tiles:
        return False
    return target.vectors.bytes == 32 and "avx2" in features


@dataclass(frozen=True)
class Quads:
    """A filter in quads.

    Attributes:
        weights: `[O, quads, 4]`.
        offsets: of the data of each, in quads.
    """

    weights: np.ndarray
    offsets: np.ndarray


def quads_of_filter(
    filters: np.ndarray, order: Sequence[int], block: int, sizes: Sequence[int], dilation: Sequence[int]
) -> tuple[Quads, list[int]]:
    """Returns the quads of a filter `[O, I, *k]`, and how many quads of the data are between neighbours in each spatial
    dimension.

    Args:
        order: the channel that each slot of the data holds, -1 for none.
        block: slots of a block.
        sizes: of the spatial dimensions of the data, with padding.
    """
    outputs, _, *kernel = filters.shape
    channels = np.asarray(order)
    spread = np.where(
        (channels >= 0).reshape(-1, *[1] * len(kernel)), filters[:, np.maximum(channels, 0)], filters.dtype.type(0)
    )
    in_blocks = spread.reshape(outputs, -1, block // QUAD, QUAD, *kernel)
    weights = np.moveaxis(in_blocks, (2, 3), (-2, -1))  # [O, blocks, *k, quads of a block, 4]
    steps = [block // QUAD * math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    step_of_axis = [block // QUAD * math.prod(sizes), *(s * d for s, d in zip(steps, dilation, strict=True)), 1]
    positions = np.indices(weights.shape[1:-1]).reshape(len(step_of_axis), -1)
    return Quads(weights.reshape(outputs, -1, QUAD), np.asarray(step_of_axis) @ positions), steps


def pair_quads(filters: np.ndarray, offsets: np.ndarray, lanes: int) -> QuadPairs | None:
    """Returns weights in pairs of quads; None where `vpmaddwd` takes no longer.

    Args:
        filters: `[O, quads, 4]`, int8.
        offsets: of the data of each quad.
        lanes: output channels of a block.
    """
    outputs, quads, _ = filters.shape
    count = -(-outputs // lanes)
    blocks = np.zeros((count * lanes, quads, QUAD), np.int8)
    blocks[:outputs] = filters
    blocks = np.ascontiguousarray(blocks.reshape(count, lanes, quads, QUAD).swapaxes(1, 2))  # [blocks, quads, lanes, 4]
    is_used = np.asarray(blocks.reshape(count, quads, -1).any(-1))
    wide = blocks.astype(np.int16).reshape(count, quads, lanes * 2, 2)
    one_sign = np.concatenate([np.maximum(wide, 0).sum(-1), np.maximum(-wide, 0).sum(-1)], -1, dtype=np.int16)
    free = is_used & (one_sign.max(-1) <= _DIRECT)
    direct = _partners(one_sign, _DIRECT, free)
    folded = _partners(np.abs(wide).sum(-1, dtype=np.int16), _FOLDED, is_used & (direct < 0))
    of_block = [_pairs(direct[b], folded[b], is_used[b]) for b in range(count)]
    numbers = _numbers([tuple(map(len, kinds)) for kinds in of_block])
    time = _LOOPS + 2 * float(np.dot(numbers, _COSTS))
    if time > _WORTH_IT * is_used.sum(1).max():
        return None
    order = np.array([_in_order(kinds, numbers) for kinds in of_block]).reshape(count, -1)
    chosen = np.where(order[..., None, None] >= 0, np.take_along_axis(blocks, order[..., None, None], 1), np.int8(0))
    return QuadPairs(
        np.where(order >= 0, np.asarray(offsets)[order], 0).astype(np.int32),
        np.ascontiguousarray(chosen).view("<i4")[..., 0],
        numbers[0],
        numbers[0] + numbers[1],
        _shift(chosen[:, 2 * numbers[0] :].astype(np.int64)),
    )


def _partners(sums: np.ndarray, maximum: int, free: np.ndarray) -> np.ndarray:
    """Returns the partner of each quad, -1 for none, `[blocks, quads]`: one with which no sum exceeds the maximum.

    Those with the largest sums are tried with those that have the smallest ones.

    Args:
        sums: `[blocks, quads, …]`.
        free: quads that may have partners.
    """
    quads = free.shape[1]
    size = np.where(free, np.einsum("bqs,bqs->bq", sums, sums, dtype=np.float32), np.inf)
    order = np.argsort(size, axis=1, kind="stable")  # those that are not free come last
    sums, free = np.take_along_axis(sums, order[..., None], 1), np.take_along_axis(free, order, 1)
    last = free.sum(1, keepdims=True) - 1
    partner = np.full(free.shape, -1)
    for attempt in range(_PARTNERS):
        distance = (attempt + 1) // 2 * (-1) ** attempt  # 0, -1, 1, -2, …
        other = last + distance - np.arange(quads)
        inside = (np.arange(quads) < other) & (other < quads)
        block, one = np.nonzero(free & inside)
        two = other[block, one]
        block, one, two = (index[free[block, two]] for index in (block, one, two))
        fits = (sums[block, one] + sums[block, two]).max(-1, initial=0) <= maximum
        block, one, two = block[fits], one[fits], two[fits]
        for a, b in ((one, two), (two, one)):
            partner[block, order[block, a]] = order[block, b]
            free[block, a] = False
    return partner


def _pairs(direct: np.ndarray, folded: np.ndarray, is_used: np.ndarray) -> list[list[tuple[int, int]]]:
    """Returns the pairs of a block that are direct, folded, and apart; -1 is no quad.

    Args:
        direct, folded: the partner of each quad.
    """
    quads = np.arange(len(direct))
    alone = quads[is_used & (direct < 0) & (folded < 0)].tolist()
    pairs = []
    for partner in (direct, folded):
        first = quads[quads < partner]
        pairs.append(list(zip(first.tolist(), partner[first].tolist(), strict=True)))
    return [*pairs, list(zip_longest(alone[::2], alone[1::2], fillvalue=-1))]


def _numbers(counts: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Returns how many pairs of each kind all blocks have, so that they take the least time.

    A pair can be one of a later kind as well, but not of an earlier one.

    Args:
        counts: pairs of each kind of each block.
    """
    array = np.array(counts)

    def choice(direct: int, folded: int) -> tuple[float, tuple[int, ...]]:
        left = np.maximum(array[:, 0] - direct, 0) + array[:, 1]
        numbers = direct, folded, int((np.maximum(left - folded, 0) + array[:, 2]).max())
        return float(np.dot(numbers, _COSTS)), numbers

    def some(numbers: np.ndarray) -> list[int]:
        return sorted({0, *np.quantile(numbers, _QUANTILES, method="lower").tolist()})

    choices = ((d, f) for d in some(array[:, 0]) for f in some(np.maximum(array[:, 0] - d, 0) + array[:, 1]))
    return min(choice(*numbers) for numbers in choices)[1]


def _in_order(kinds: Sequence[list[tuple[int, int]]], numbers: Sequence[int]) -> list[tuple[int, int]]:
    """Returns the pairs of a block, as many of each kind as all blocks have."""
    made: list[tuple[int, int]] = []
    left: list[tuple[int, int]] = []
    for pairs, number in zip(kinds, numbers, strict=True):
        left = [*left, *pairs]
        own, left = left[:number], left[number:]
        made += [*own, *[(-1, -1)] * (number - len(own))]
    return made


def _shift(folded: np.ndarray) -> np.ndarray:
    """Returns by how much sums of folded products are too small: `[blocks, quads, lanes, 4]` → `[blocks · lanes]`."""
    shift: np.ndarray = np.where(folded >= 0, 128 * folded, 127 * folded).sum((1, 3)).reshape(-1)
    return shift


def _sum_of_pairs(
    data: Callable[[tirx.Expr], tirx.Expr],
    table: Callable[[tirx.Expr], tirx.Expr],
    weights: Callable[[tirx.Expr], tirx.Expr],
    pair: te.IterVar,
    limits: tuple[int, int],
) -> tirx.Expr:
    quads = [2 * pair.var + n for n in (0, 1)]
    operands = [operand for quad in quads for operand in (data(table(quad)), weights(quad))]
    return te.sum(quad_pair(*operands, *(pair.var < limit for limit in limits)), axis=[pair])


def convolve_quads(
    data: te.Tensor,
    table: te.Tensor,
    weights: te.Tensor,
    limits: tuple[int, int],
    spatial: Sequence[Dimension],
    steps: Sequence[int],
) -> te.Tensor:
    """Convolution without padding.

    Args:
        data: `[N, quads]`, an image in any layout.
        table, weights, limits: see :class:`QuadPairs`.
        spatial: sizes of the result.
        steps: quads of the data from one position of the result to the next, in each spatial dimension.

    Returns:
        `[N, O blocks, *spatial, lanes]`.
    """
    blocks, slots, lanes = weights.shape
    pair = te.reduce_axis((0, int(slots) // 2), "pair")

    def element(n: tirx.Var, o: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        first = sum(p * step for p, step in zip(position, steps, strict=True))
        return _sum_of_pairs(
            lambda at: data(n, at + first), lambda q: table(o, q), lambda q: weights(o, q, lane), pair, limits
        )

    return te.compute((data.shape[0], blocks, *spatial, lanes), element, name="convolution")


def multiply_quads(
    left: te.Tensor, table: te.Tensor, weights: te.Tensor, limits: tuple[int, int], columns: int
) -> te.Tensor:
    """`[…, M, quads]` times weights of N `columns`: `[…, M, N]`.

    Args:
        table, weights, limits: see :class:`QuadPairs`.
    """
    *outer, _ = left.shape
    blocks, slots, lanes = weights.shape
    pair = te.reduce_axis((0, int(slots) // 2), "pair")

    def element(*index: tirx.Var) -> tirx.Expr:
        *position, block, lane = index
        return _sum_of_pairs(
            lambda at: left(*position, at), lambda q: table(block, q), lambda q: weights(block, q, lane), pair, limits
        )

    whole = te.compute((*outer, blocks, lanes), element, name="matmul")
    return te.compute(
        (*outer, columns), lambda *index: whole(*index[:-1], index[-1] // lanes, index[-1] % lanes), name="cut"
    )
