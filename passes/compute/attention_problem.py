"""What an attention computes, as functions of the index, and what a machine has room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx

from nnefc.passes.tir.expressions import int64
from nnefc.sizes import Dimension, expression

__all__ = ["LOWEST", "Attended", "AttentionTiles", "Index", "Loads", "keys_seen"]

LOWEST = -3.4028234663852886e38  # of all finite numbers: what a row is compared with of which nothing is seen

Index = Sequence[tirx.Expr]
Loads = Sequence[Callable[[Index], tirx.Expr]]


@dataclass(frozen=True, eq=False)
class Attended:
    """What is computed; `loads` are the operands, each a function of an index.

    Attributes:
        batch: sizes of the axes before queries and keys: batch items, heads.
        queries, keys, size, width: how many queries and keys there are, and how long they and values are.
        query, key, value: `(loads, batch index, position, place)` gives a number of these.
        score: `(loads, batch index, query, key, product)` makes a score of a product.
        ends: `(loads, batch index, query)` are numbers that a key must be below to be seen by a query or one before it.
        firsts: the same, of the first key that a query or one after it may see.
        result: the shape of the result, and the index in it of `(batch index, query, place)`.
        empty: what becomes of a query of which all scores are minus infinity: zeros, or else what is not a number.
    """

    batch: tuple[Dimension, ...]
    queries: Dimension
    keys: Dimension
    size: int
    width: int
    query: Callable[[Loads, Index, tirx.Expr, tirx.Expr], tirx.Expr]
    key: Callable[[Loads, Index, tirx.Expr, tirx.Expr], tirx.Expr]
    value: Callable[[Loads, Index, tirx.Expr, tirx.Expr], tirx.Expr]
    score: Callable[[Loads, Index, tirx.Expr, tirx.Expr, tirx.Expr], tirx.Expr]
    ends: Sequence[Callable[[Loads, Index, tirx.Expr], tirx.Expr]]
    firsts: Sequence[Callable[[Loads, Index, tirx.Expr], tirx.Expr]]
    shape: tuple[Dimension, ...]
    result: Callable[[Index, tirx.Expr, tirx.Expr], Index]
    empty: bool


@dataclass(frozen=True)
class AttentionTiles:
    """What fits into registers and the first cache.

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
    """The first key that queries from `first` to `last` may see, and the one behind the last."""
    begin, end = int64(0), expression(problem.keys)
    for limit in problem.ends:
        end = tirx.min(end, limit(loads, batch, last))
    for limit in problem.firsts:
        begin = tirx.max(begin, limit(loads, batch, first))
    return begin, tirx.max(end, begin)
