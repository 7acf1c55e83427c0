"""Multiplies int8 by `vpmaddubsw`, with sums in int16 that never saturate, for x86 without VNNI.

A *quad* is four neighbouring bytes of the data, and the four weights of each lane that they are multiplied by.
`vpmaddubsw` multiplies the quads of a vector and adds up neighbours in int16; two quads share these sums, which are
then added up in int32. That takes five instructions for two quads, where `vpmaddwd` on extended bytes takes eight, and
nine for four quads. But an int16 holds 255 · w for weights whose sum is 128 at most; of data that are known to be
smaller, larger ones. So weights decide at compile time for each pair of quads:

    shared    u · w, u: uint8                       no lane has weights of one sign that add up to more than 128 in
                                                    this pair and its neighbour together
    direct    u · w                                 none has such weights in the pair
    folded    |w| · v, v: int8                      no lane has weights whose magnitudes add up to more than 256
              v = u - 128 where w >= 0, and 127 - u where w < 0: one exclusive or
    apart     |w| · v, of each quad by itself       any: 2 · 128 · 128 is 2¹⁵

Folded products differ from u · w by 128 w, or by 127 w, which the weights alone decide. Quads may be added up in any
order, so that those that fit together are paired, and pairs likewise. A table holds where the data of each are, and
each block of output channels has its own numbers of pairs of each kind:

    C[o, row, :] = Σ over pairs p of X[row + T[o, 2 p]] · W[o, 2 p, :] + X[row + T[o, 2 p + 1]] · W[o, 2 p + 1, :]

How many quads are in direct pairs depends on K, the weights of a result. Of weights with a normal distribution, scaled
by channel, hardly any are for K = 128, a third for K = 256, more than half for K = 576, three quarters for K = 1,000,
and four fifths or more for K above 2,000; nearly all others are in folded pairs. Of uniform weights none are direct. Of
weights in 7 bits, as quantizers make them for processors without VNNI, nearly all are direct, and shared where K is 256
or more.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest

import numpy as np
from tvm import te, tirx

from nnefc.passes.compute.dot.dot_product import Multiplication
from nnefc.passes.tir.dot.dot_instructions import PMADDUBSW, quad_pair
from nnefc.symbolic.dims import Dimension
from nnefc.targets.machine.cpu.target import Target

__all__ = [
    "QUAD",
    "QuadPairs",
    "by_quad_pairs",
    "convolve_quads",
    "has_quad_pairs",
    "multiply_quads",
    "pair_quads",
    "quads_of_filter",
]

QUAD = 4
_Quads = tuple[int, ...]
_SIZES = (4, 2, 2, 2)
"""Quads of an element of each kind: those of two pairs that are shared, and those of one pair."""

_LARGEST, _FOLDED = (1 << 15) - 1, 256
"""The maximum of int16, and the maximum sum of the magnitudes of folded weights."""

_COSTS = (0.61, 0.71, 0.92, 1.04)
"""Time of a quad of a pair of each kind, in that of a quad by `vpmaddwd` (measured: Zen 3)."""

_LOOP, _WORTH_IT = 1.2, 1.3
"""Time of a loop over pairs besides, and the share of the time by `vpmaddwd` from which on pairs do not pay: they save
a copy of the data in 16 bits, and LLVM stores no sums on the stack (measured: Zen 4, convolutions of 8 to 256 channels
with any weights; those of up to 16 take as long or less by `vpmaddwd`)."""

_PADDED = 3
"""Quads without a partner, at most, that are pairs with zeros: a loop over pairs apart takes longer."""

_GROUP = 128
"""Quads among which partners are found: of more, nearly as many have one, and it takes longer."""


@dataclass(frozen=True)
class QuadPairs:
    """Constant weights as pairs of quads, for each block of output channels.

    Attributes:
        table: `[blocks, 2 · pairs]`, int32: where the data of each quad are.
        weights: `[blocks, 2 · pairs, lanes]`: four int8 of each lane as an int32.
        ends: `[blocks, 4]`, int32: of the shared, the direct, the folded pairs and those apart, in this order; what
            follows are zeros.
        shift: `[blocks · lanes]`: what is to be added to the sums of uint8 data.
    """

    table: np.ndarray
    weights: np.ndarray
    ends: np.ndarray
    shift: np.ndarray

    @property
    def kinds(self) -> tuple[bool, ...]:
        """Whether any block has pairs of each kind."""
        counts = np.diff(self.ends, axis=1, prepend=0)
        return tuple(bool(column.any()) for column in counts.T)


def has_quad_pairs(target: Target) -> bool:
    """Whether bytes are multiplied so: by vectors of 256 bits with AVX2, without instructions for four products.

    Code that shall be small does without: tables and zeros take an eighth more than the weights, and loops by kind more
    code.
    """
    features = set(target.features)
    if not target.triple.startswith("x86_64") or features & {"avx512vnni", "avxvnni"} or target.tiles or target.small:
        return False
    return target.vectors.bytes == 32 and "avx2" in features


def by_quad_pairs(data: str, bounds: tuple[int, int]) -> tuple[Multiplication, int]:
    """Returns how data are multiplied, and the largest number that they are multiplied as.

    Args:
        data: their type, of 8 bits.
        bounds: of the data.
    """
    offset = 0 if data == "uint8" else max(0, -bounds[0])
    return Multiplication("uint8", "int8", offset, PMADDUBSW), bounds[1] + offset


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


def pair_quads(filters: np.ndarray, offsets: np.ndarray, lanes: int, largest: int = 255) -> QuadPairs | None:
    """Returns weights in pairs of quads; None where `vpmaddwd` takes no longer.

    Args:
        filters: `[O, quads, 4]`, int8.
        offsets: of the data of each quad.
        lanes: output channels of a block.
        largest: of the data.
    """
    limit = _LARGEST // max(1, largest)
    outputs, quads, _ = filters.shape
    count = -(-outputs // lanes)
    blocks = np.zeros((count * lanes, quads, QUAD), np.int8)
    blocks[:outputs] = filters
    blocks = np.ascontiguousarray(blocks.reshape(count, lanes, quads, QUAD).swapaxes(1, 2))  # [blocks, quads, lanes, 4]
    is_used = np.asarray(blocks.reshape(count, quads, -1).any(-1))
    wide = blocks.astype(np.int16).reshape(count, quads, lanes * 2, 2)
    one_sign = np.concatenate([np.maximum(wide, 0).sum(-1), np.maximum(-wide, 0).sum(-1)], -1, dtype=np.int16)
    free = is_used & (one_sign.max(-1) <= limit)
    direct = _partners(one_sign, limit, free)
    shared = _shared(one_sign, limit, direct)
    folded = _partners(np.abs(wide).sum(-1, dtype=np.int16), _FOLDED, is_used & (direct < 0))
    alone = is_used & (direct < 0) & (folded < 0)
    padded = alone & (alone.sum(1, keepdims=True) <= _PADDED)
    kinds = zip(shared, direct, folded, alone & ~padded, padded & free, padded & ~free, strict=True)
    of_block = [_kinds(*block) for block in kinds]
    numbers = [_numbers(list(map(len, found))) for found in of_block]
    if sum(map(_time, numbers)) >= _WORTH_IT * count * is_used.sum(1).max():
        return None
    ends = np.cumsum(np.array(numbers) * _SIZES // 2, axis=1)
    order = np.full((count, 2 * ends.max()), -1)
    for row, found, chosen in zip(order, of_block, numbers, strict=True):
        ordered = _in_order(found, chosen)
        row[: len(ordered)] = ordered
    taken = np.where(order[..., None, None] >= 0, np.take_along_axis(blocks, order[..., None, None], 1), np.int8(0))
    folds = np.arange(order.shape[1]) >= 2 * ends[:, 1:2]
    return QuadPairs(
        np.where(order >= 0, np.asarray(offsets)[order], 0).astype(np.int32),
        np.ascontiguousarray(taken).view("<i4")[..., 0],
        ends.astype(np.int32),
        _shift(np.where(folds[..., None, None], taken, np.int8(0))),
    )


def _shared(sums: np.ndarray, maximum: int, direct: np.ndarray) -> np.ndarray:
    """Returns for the first quad of each direct pair that of the pair which it shares its sums with, -1 for none.

    Args:
        sums: of each quad, `[blocks, quads, …]`.
        direct: the partner of each quad.
    """
    is_first = direct > np.arange(direct.shape[1])
    of_pair = sums + np.take_along_axis(sums, np.maximum(direct, 0)[..., None], 1)
    return _partners(of_pair, maximum, is_first)


def _partners(sums: np.ndarray, maximum: int, free: np.ndarray) -> np.ndarray:
    """Returns the partner of each quad, -1 for none, `[blocks, quads]`: one with which no sum exceeds the maximum.

    Partners are found within groups of quads, each of which has large and small sums.

    Args:
        sums: `[blocks, quads, …]`.
        free: quads that may have partners.
    """
    size = np.einsum("bqs,bqs->bq", sums, sums, dtype=np.float32)
    order, partner = np.argsort(size, axis=1, kind="stable"), np.full(free.shape, -1)
    groups = -(-free.shape[1] // _GROUP)
    for group in range(groups):
        quads = order[:, group::groups]
        of_group = np.moveaxis(np.take_along_axis(sums, quads[..., None], 1), -1, 0)
        usable = np.take_along_axis(free, quads, 1)
        fits = usable[:, :, None] & usable[:, None] & ~np.eye(quads.shape[1], dtype=bool)
        for one in of_group:
            fits &= one[:, :, None] <= (maximum - one)[:, None]
        found = _matched(fits)
        partners = np.where(found >= 0, np.take_along_axis(quads, np.maximum(found, 0), 1), -1)
        np.put_along_axis(partner, quads, partners, 1)
    return partner


def _matched(fits: np.ndarray) -> np.ndarray:
    """Returns a matching of each graph, nearly the largest: the partner of each node, -1 for none, `[graphs, nodes]`.

    The node with the fewest neighbours that are left is matched first, with that neighbour which has the fewest.

    Args:
        fits: whether there is an edge, `[graphs, nodes, nodes]`.
    """
    graphs, nodes, _ = fits.shape
    partner, neighbours = np.full((graphs, nodes), -1), fits.sum(2)
    for _ in range(nodes // 2):
        count = np.where((partner < 0) & (neighbours > 0), neighbours, nodes)
        graph = np.flatnonzero(count.min(1) < nodes)
        if not len(graph):
            break
        one = count[graph].argmin(1)
        two = np.where(fits[graph, one], count[graph], nodes).argmin(1)
        partner[graph, one], partner[graph, two] = two, one
        neighbours[graph] -= fits[graph, one].astype(int) + fits[graph, two]
    return partner


def _kinds(
    shared: np.ndarray,
    direct: np.ndarray,
    folded: np.ndarray,
    apart: np.ndarray,
    padded_direct: np.ndarray,
    padded_folded: np.ndarray,
) -> list[list[_Quads]]:
    """Returns the quads of a block that are shared, direct, folded, and apart, as many together as `_SIZES` says.

    Args:
        shared, direct, folded: the partner of each quad, and of the first quads of direct pairs.
        apart: quads without a partner.
        padded_direct, padded_folded: those that are half of a pair of these kinds.
    """
    quads = np.arange(len(direct))
    first = quads[quads < shared]
    fours = np.stack([first, direct[first], shared[first], direct[shared[first]]], -1)
    found: list[list[_Quads]] = [list(map(tuple, fours.tolist()))]
    for partner, padded in ((direct, padded_direct), (folded, padded_folded)):
        first = quads[(quads < partner) & (shared < 0)]
        pairs = np.stack([first, partner[first]], -1).tolist()
        found.append([*map(tuple, pairs), *((quad, -1) for quad in quads[padded].tolist())])
    alone = quads[apart].tolist()
    return [*found, list(zip_longest(alone[::2], alone[1::2], fillvalue=-1))]


def _numbers(counts: Sequence[int]) -> tuple[int, ...]:
    """Returns how many of each kind a block has, such that its time is minimal.

    What is of a kind can be of a later kind as well, but not of an earlier one.

    Args:
        counts: those that are found of each kind.
    """

    def choices(kind: int, left: int) -> Iterator[tuple[int, ...]]:
        """Yield counts of pairs of each kind from `kind` on, if `left` of them can be of that kind."""
        if kind == len(_SIZES) - 1:
            yield (left,)
            return
        for number in sorted({0, left}):
            over = (left - number) * (_SIZES[kind] // _SIZES[kind + 1]) + counts[kind + 1]
            yield from ((number, *others) for others in choices(kind + 1, over))

    return min(choices(0, counts[0]), key=_time)


def _time(numbers: Sequence[int]) -> float:
    """Returns the estimated time of `numbers` of quads of each kind, in units of one quad by `vpmaddwd`."""
    kinds = zip(_SIZES, numbers, _COSTS, strict=True)
    return sum(_LOOP + size * number * cost for size, number, cost in kinds if number)


def _in_order(kinds: Sequence[list[_Quads]], numbers: Sequence[int]) -> list[int]:
    """Returns the order of the quads of a block, `numbers` of each kind; -1 stands for padding."""
    made: list[int] = []
    left: list[_Quads] = []
    for size, quads, number in zip(_SIZES, kinds, numbers, strict=True):
        parts = [each[first : first + size] for each in left for first in range(0, len(each), size)]
        whole = [*parts, *quads]
        own, left = whole[:number], whole[number:]
        made += [*chain.from_iterable(own), *[-1] * (size * (number - len(own)))]
    return made


def _shift(folded: np.ndarray) -> np.ndarray:
    """Returns what has to be added to sums of folded products, `[blocks, quads, lanes, 4]` → `[blocks · lanes]`."""
    shift: np.ndarray = (folded * np.where(folded >= 0, np.int16(128), np.int16(127))).sum((1, 3), dtype=np.int64)
    return shift.reshape(-1)


def _sum_of_pairs(
    data: Callable[[tirx.Expr], tirx.Expr],
    table: Callable[[tirx.Expr], tirx.Expr],
    weights: Callable[[tirx.Expr], tirx.Expr],
    ends: Callable[[int], tirx.Expr],
    pair: te.IterVar,
    kinds: Sequence[bool],
) -> tirx.Expr:
    quads = [2 * pair.var + n for n in (0, 1)]
    operands = [operand for quad in quads for operand in (data(table(quad)), weights(quad))]
    limits: list[tirx.Expr] = []
    for kind, occurs in enumerate(kinds):
        limits.append(ends(kind) if occurs else limits[-1] if limits else tirx.const(0, "int32"))
    return te.sum(quad_pair(operands, pair.var, limits), axis=[pair])


def convolve_quads(
    data: te.Tensor,
    table: te.Tensor,
    weights: te.Tensor,
    ends: te.Tensor,
    kinds: Sequence[bool],
    spatial: Sequence[Dimension],
    steps: Sequence[int],
) -> te.Tensor:
    """Convolution without padding.

    Args:
        data: `[N, quads]`, an image in any layout.
        table, weights, ends, kinds: see :class:`QuadPairs`.
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
            lambda at: data(n, at + first),
            lambda q: table(o, q),
            lambda q: weights(o, q, lane),
            lambda kind: ends(o, kind),
            pair,
            kinds,
        )

    return te.compute((data.shape[0], blocks, *spatial, lanes), element, name="convolution")


def multiply_quads(
    left: te.Tensor, table: te.Tensor, weights: te.Tensor, ends: te.Tensor, kinds: Sequence[bool], columns: int
) -> te.Tensor:
    """`[…, M, quads]` times weights of N `columns`: `[…, M, N]`.

    Args:
        table, weights, ends, kinds: see :class:`QuadPairs`.
    """
    *outer, _ = left.shape
    blocks, slots, lanes = weights.shape
    pair = te.reduce_axis((0, int(slots) // 2), "pair")

    def element(*index: tirx.Var) -> tirx.Expr:
        *position, block, lane = index
        return _sum_of_pairs(
            lambda at: left(*position, at),
            lambda q: table(block, q),
            lambda q: weights(block, q, lane),
            lambda kind: ends(block, kind),
            pair,
            kinds,
        )

    whole = te.compute((*outer, blocks, lanes), element, name="matmul")
    return te.compute(
        (*outer, columns), lambda *index: whole(*index[:-1], index[-1] // lanes, index[-1] % lanes), name="cut"
    )
