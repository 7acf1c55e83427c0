"""Random graphs of ONNX's operators (`tests/fuzz/graphs`): some in every run of the tests, and what judges them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "fuzz" / "graphs"))

from bounds import bounds_of
from comparison import WAYS, compare, difference
from shrinking import shrunk
from spaces import SPACES
from walk import Graph, Walk


def graph_of(seed: int, steps: int) -> Graph:
    walk = Walk(seed)
    walk.take(SPACES, steps)
    return walk.graph()


@pytest.mark.parametrize(
    ("seed", "way"),
    [(1, "default"), (2, "open"), (3, "threads"), (4, "nnef"), (5, "strict"), (6, "passes"), (7, "reproducible")],
)
def test_graphs_agree_with_float64(seed: int, way: str) -> None:
    outcome = compare(graph_of(seed, 5), [WAYS[way]])
    assert not outcome.findings


def test_a_graph_is_the_same_for_the_same_seed() -> None:
    one, other = graph_of(7, 12), graph_of(7, 12)
    assert one.model().SerializeToString() == other.model().SerializeToString()
    assert len(one.steps) == 12


def test_results_that_are_wrong_in_one_item_are_told_from_rounding() -> None:
    walk = Walk(11)
    x = walk.new_input((5, 7))
    (product,) = walk.add("MatMul", x, walk.constant(walk.random((7, 9))))
    walk.add("Tanh", product)
    graph = walk.graph()
    bounds = bounds_of(graph)
    (name,) = bounds
    rounded = np.tanh(x.array @ graph.constants[0].array)
    assert difference({name: rounded}, bounds) == ""
    rounded[3, 4] += 3e-5
    assert "[3, 4]" in difference({name: rounded}, bounds)


def test_nothing_is_asked_of_what_a_rounding_may_turn() -> None:
    walk = Walk(12)
    (halves,) = walk.add("Mul", walk.new_input((3,)), walk.constant(np.float32(0)))
    (halves,) = walk.add("Add", halves, walk.constant(np.float32(0.3)))
    (halves,) = walk.add("Add", halves, walk.constant(np.float32(0.2)))
    walk.add("Floor", walk.add("Add", halves, walk.constant(np.float32(0.5)))[0])
    graph = walk.graph()
    bounds = bounds_of(graph)
    (name,) = bounds
    assert difference({name: np.zeros(3, np.float32)}, bounds) == ""
    assert difference({name: np.ones(3, np.float32)}, bounds) == ""


def test_a_graph_that_fails_becomes_small() -> None:
    graph = graph_of(21, 12)
    kind = graph.steps[4].node.op_type
    small = shrunk(graph, lambda candidate: kind in candidate.operators(), most=200)
    assert small.operators() == [kind]
