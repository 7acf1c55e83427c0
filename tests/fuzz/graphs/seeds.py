"""The graphs of seeds, and which of them are one library."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from graph import Graph
from spaces import SPACES
from steps import OPSET
from walk import Walk
from ways import Way

__all__ = ["graph_of", "libraries", "opset_of"]

_MIN = 3
"""Nodes of a graph, unless there shall be fewer at most."""
_OPSETS = range(13, 29)
_EMPTY = 0.05
"""Share of graphs with tensors that may have no elements."""
_OF_ONE_OPSET = 64
"""Seeds one after the other whose graphs are of one operator set."""


def graph_of(seed: int, steps: int, way: Way) -> Graph:
    """The graph of a seed, of operators that the way has."""
    empty = not way.nnef and np.random.default_rng([seed, 3]).random() < _EMPTY
    walk = Walk(
        seed,
        f"s{seed}_",
        way.integers,
        without=way.without,
        opset=opset_of(seed),
        may_be_empty=bool(empty),
        floats=way.floats,
        largest=way.largest,
    )
    minimum = min(_MIN, steps)
    walk.take(SPACES, minimum + seed % (steps - minimum + 1))
    return walk.graph()


def opset_of(seed: int) -> int:
    """The operator set of a graph: the same for those of a block of seeds, which may be one library."""
    rng = np.random.default_rng([seed // _OF_ONE_OPSET, 2])
    return OPSET if rng.random() < 0.4 else int(rng.choice(_OPSETS))


def libraries(seeds: range, ways: Sequence[Way], alone: bool) -> Iterator[tuple[range, Way]]:
    """The seeds whose graphs are one library, and its way."""
    shares = np.array([way.share / way.together for way in ways])
    while seeds:
        way = ways[int(np.random.default_rng(seeds[0]).choice(len(ways), p=shares / shares.sum()))]
        count = 1 if alone else min(way.together, _OF_ONE_OPSET - seeds[0] % _OF_ONE_OPSET)
        yield seeds[:count], way
        seeds = seeds[count:]
