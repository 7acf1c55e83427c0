"""Random graphs of ONNX's operators (`tests/fuzz/graphs`): some in every run of the tests, and what judges them."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent / "fuzz" / "graphs"))

import comparison
from bounds import bounds_of
from comparison import Arrays, compare, difference
from corpus import CORPUS, read_case
from shrinking import shrunk
from spaces import SPACES
from walk import Graph, Walk
from ways import WAYS, Way


def graph_of(seed: int, steps: int) -> Graph:
    walk = Walk(seed, f"s{seed}_")
    walk.take(SPACES, steps)
    return walk.graph()


@pytest.mark.parametrize(
    ("seed", "way"),
    [(1, "default"), (2, "open"), (3, "threads"), (4, "nnef"), (5, "strict"), (6, "passes"), (8, "reproducible open")],
)
def test_graphs_agree_with_float64(seed: int, way: str) -> None:
    outcome = compare([graph_of(2 * seed, 3), graph_of(2 * seed + 1, 3)], WAYS[way])
    assert not outcome.findings
    assert outcome.agreed + len(outcome.refused) + len(outcome.doubtful) == 2


@pytest.mark.parametrize("path", sorted(CORPUS.glob("*.txt")), ids=lambda path: path.stem)
def test_what_was_found_stays_mended(path: Path) -> None:
    case = read_case(path)
    assert compare([case.graph], case.way).agreed == 1


def test_a_graph_is_the_same_for_the_same_seed() -> None:
    one, other = graph_of(7, 12), graph_of(7, 12)
    assert one.model().SerializeToString() == other.model().SerializeToString()
    assert len(one.steps) == 12


def test_a_wrong_graph_is_told_from_others_in_its_library(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [graph_of(seed, 2) for seed in range(40, 45)]
    run = comparison.run

    def wrong(graph: Graph, way: Way) -> Arrays:
        found = {name: np.array(array) for name, array in run(graph, way).items()}
        for name in found:
            if name.startswith("s43_"):
                found[name] = np.zeros_like(found[name]) if found[name].any() else np.ones_like(found[name])
        return found

    monkeypatch.setattr(comparison, "run", wrong)
    outcome = compare(graphs, WAYS["default"])
    assert [finding.graph.seed for finding in outcome.findings] == [43]
    assert outcome.agreed == 4


def test_a_library_that_fails_is_halved_to_the_graph_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = [graph_of(seed, 2) for seed in range(40, 45)]
    run = comparison.run

    def failing(graph: Graph, way: Way) -> Arrays:
        if any(tensor.name.startswith("s42_") for tensor in graph.outputs):
            raise ValueError("no")
        return run(graph, way)

    monkeypatch.setattr(comparison, "run", failing)
    outcome = compare(graphs, WAYS["default"])
    assert [(finding.graph.seed, finding.what) for finding in outcome.findings] == [(42, "ValueError: no")]
    assert outcome.agreed == 4


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
