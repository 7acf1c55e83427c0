"""Describes an attention by functions of the index, and checks that its tiles fit the target's memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx

from nnefc.passes.compute.loops import spread
from nnefc.passes.tir.common.expressions import int64
from nnefc.symbolic.dims import Dimension, bounds, expression

__all__ = ["LOWEST", "Attended", "AttentionTiles", "Datum", "Index", "Loads", "keys_seen"]

LOWEST = -3.4028234663852886e38  # the lowest finite number: the maximum of a row whose keys are all hidden

Index = Sequence[tirx.Expr]
Loads = Sequence[Callable[[Index], tirx.Expr]]
Datum = Callable[[Loads, Index, tirx.Expr, tirx.Expr], tirx.Expr]


@dataclass(frozen=True, eq=False)
class Attended:
    """The computation of an attention; `loads` are the operands, each a function of an index.

    Attributes:
        batch: sizes of the axes before queries and keys: batch elements, heads.
        queries, keys, size, width: how many queries and keys there are, and how long they and values are.
        query, key, value: `(loads, batch index, position, position)` gives a number of these.
        score: `(loads, batch index, query, key, product)` makes a score of a product.
        ends: `(loads, batch index, query)` are numbers that a key must be below to be seen by a query or one before it.
        firsts: the same, of the first key that a query or one after it may see.
        result: the shape of the result, and the index in it of `(batch index, query, position)`.
        empty: what becomes of a query of which all scores are minus infinity: zeros, or else NaN.
        defined: zeros come of such a query, and of one with a score of NaN as well.
        weight: `(loads, batch index, query, key, power)` is what is multiplied with a value; None: the power itself.
        chosen: `(loads, batch index, query, key)` is 0 where a weight is zero even if the power is NaN, else 1;
            None: nowhere.
        is_converted: whether keys and values are converted to float32, or chosen from two tensors, when they are read.
    """

    batch: tuple[Dimension, ...]
    queries: Dimension
    keys: Dimension
    size: int
    width: int
    query: Datum
    key: Datum
    value: Datum
    score: Callable[[Loads, Index, tirx.Expr, tirx.Expr, tirx.Expr], tirx.Expr]
    ends: Sequence[Callable[[Loads, Index, tirx.Expr], tirx.Expr]]
    firsts: Sequence[Callable[[Loads, Index, tirx.Expr], tirx.Expr]]
    shape: tuple[Dimension, ...]
    result: Callable[[Index, tirx.Expr, tirx.Expr], Index]
    empty: bool
    defined: bool = False
    weight: Callable[[Loads, Index, tirx.Expr, tirx.Expr, tirx.Expr], tirx.Expr] | None = None
    chosen: Callable[[Loads, Index, tirx.Expr, tirx.Expr], tirx.Expr] | None = None
    is_converted: bool = False

    def share(self, total: tirx.Expr, lanes: int) -> tirx.Expr:
        """Returns the factor of the sums from vectors of the powers' total: its inverse, or zeros."""
        one, zero = (spread(tirx.const(x, "float32"), lanes) for x in (1, 0))
        if self.defined:
            return tirx.Select(total > zero, one / total, zero)
        if self.empty:
            return tirx.Select(total == zero, zero, one / total)
        if bounds(self.keys)[0] > 0:
            return one / total
        return tirx.Select(expression(self.keys) > int64(0), one / total, zero)


@dataclass(frozen=True)
class AttentionTiles:
    """Tile sizes that fit into registers and the L1 cache.

    Attributes:
        lanes: queries in a vector.
        sizes: of tiles, the largest first: how many vectors of queries, and how many numbers of keys, or of values,
            are multiplied with these at once. The last has one vector.
        block: keys of a block, at least.
        heads: that share keys, so many at once, of a single query; 0 if it is in a tile as others are.
        parallel: whether threads share the tiles.
    """

    lanes: int
    sizes: tuple[tuple[int, int], ...]
    block: int
    heads: int
    parallel: bool


def keys_seen(
    problem: Attended, loads: Loads, batch: Index, first: tirx.Expr, last: tirx.Expr
) -> tuple[tirx.Expr, tirx.Expr]:
    """Returns the first key that queries from `first` to `last` may see, and the one behind the last."""
    begin, end = int64(0), expression(problem.keys)
    for limit in problem.ends:
        end = tirx.min(end, limit(loads, batch, last))
    for limit in problem.firsts:
        begin = tirx.max(begin, limit(loads, batch, first))
    return begin, tirx.max(end, begin)
