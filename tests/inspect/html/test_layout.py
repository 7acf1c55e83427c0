"""Drawings of graphs: boxes apart from each other, each below what it has lines from, lines next to boxes."""

from __future__ import annotations

import random
import re
from itertools import pairwise

import pytest

from nnefc.inspect.html import layout as module
from nnefc.inspect.html.drawing import graph_svg
from nnefc.inspect.html.graph import BoxGraph, Edge, Node
from nnefc.inspect.html.layout import HEIGHT, layout


def made(count: int, seed: int, reach: int) -> BoxGraph:
    """Boxes with lines from some of the `reach` before each, as networks have them."""
    rng = random.Random(seed)
    nodes = tuple(Node("k", f"operator {i}"[: rng.randrange(3, 12)], f"tensor_{i}") for i in range(count))
    edges = {
        (rng.randrange(max(0, target - reach), target), target)
        for target in range(1, count)
        for _ in range(rng.choice((0, 1, 1, 1, 2, 3)))
    }
    return BoxGraph("g", nodes, tuple(Edge(*ends) for ends in sorted(edges)))


@pytest.mark.parametrize(("count", "reach"), [(1, 1), (2, 1), (40, 3), (300, 9), (300, 200)])
def test_boxes_and_lines_keep_their_positions(count: int, reach: int) -> None:
    graph = made(count, count, reach)
    found = layout(graph)
    rows: dict[float, list[tuple[float, float]]] = {}
    for box in found.boxes:
        rows.setdefault(box.y, []).append((box.x, box.x + box.width))
        assert box.x >= -1e-6 and box.x + box.width <= found.width + 1e-6 and box.y + HEIGHT <= found.height
    for row in rows.values():
        row.sort()
        assert all(end <= start + 1e-6 for (_, end), (start, _) in pairwise(row))
    for edge, points in zip(graph.edges, found.lines, strict=True):
        source, target = found.boxes[edge.source], found.boxes[edge.target]
        assert source.y < target.y
        assert points[0] == (source.middle, source.y + HEIGHT) and points[-1] == (target.middle, target.y)
        if len(points) == 4:
            (_, _), (x, top), (_, bottom), _ = points
            passed = [box for box in found.boxes if top - 1 <= box.y <= bottom]
            assert all(x <= box.x or box.x + box.width <= x for box in passed)


def test_the_work_grows_with_the_graph_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows that lines look at, a measure of what is not sorting: as many for each box of a far larger graph."""
    looked = 0
    is_taken = module._is_taken

    def counting(*arguments: object) -> bool:
        nonlocal looked
        looked += 1
        return is_taken(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_is_taken", counting)
    small, large = made(300, 1, 8), made(6000, 1, 8)
    layout(small)
    before, looked = looked, 0
    layout(large)
    assert looked <= 30 * before
    ladder = BoxGraph(
        "g", large.nodes, tuple(Edge(i, i + 1) for i in range(5999)) + tuple(Edge(0, i) for i in range(2, 6000))
    )
    looked = 0
    layout(ladder)
    assert looked <= 48 * 6000


def test_drawings_escape_what_models_are_called() -> None:
    graph = BoxGraph("g", (Node("input", "a<b>", 'x"&'), Node("k", "</svg>", "é" * 90)), (Edge(0, 1, "<i>"),))
    text = graph_svg(graph)
    assert "<b>" not in text and text.count("</svg>") == 1 and "&lt;i&gt;" in text
    assert len(re.findall(r'class="box"', text)) == 2
    assert graph_svg(BoxGraph("empty", (), ())).startswith("<svg")
