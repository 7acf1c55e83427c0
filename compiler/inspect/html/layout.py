"""Lays out a graph in rows: each box below all boxes that it has edges from.

1. A box is in the row after the last of those that it reads; what reads nothing is just above its first reader.
2. In a row, boxes stand in the order of the middles of what they have lines to, above and then below, and as near to
   those as there is room.
3. A line of several rows goes straight if nothing is in its way, else in a lane to the right of all that it passes.

The time is linear in boxes and lines, except for sorting and for routing lines, which looks at a bounded number of
rows: networks of thousands of operators are drawn in less than a second.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass

from nnefc.inspect.html.graph import BoxGraph

__all__ = ["Box", "Layout", "layout"]

_LETTER = 7.2
_MIN, _MAX = 90.0, 260.0  # widths
HEIGHT = 40.0
_APART, _BELOW, _LANE = 18.0, 34.0, 9.0
_SWEEPS = 3
_LOOKED_AT = 48
"""Rows that a line looks through for its way; longer ones take a lane."""


@dataclass(frozen=True)
class Box:
    """A box: its left upper corner and its width; all are `HEIGHT` high."""

    x: float
    y: float
    width: float

    @property
    def middle(self) -> float:
        """Where lines begin and end."""
        return self.x + self.width / 2


@dataclass(frozen=True)
class Layout:
    """A drawing: boxes in the order of the nodes, and for each edge where its line goes, from point to point."""

    boxes: tuple[Box, ...]
    lines: tuple[tuple[tuple[float, float], ...], ...]
    width: float
    height: float


def layout(graph: BoxGraph) -> Layout:
    """A drawing of a graph."""
    above: list[list[int]] = [[] for _ in graph.nodes]
    below: list[list[int]] = [[] for _ in graph.nodes]
    for edge in graph.edges:
        above[edge.target].append(edge.source)
        below[edge.source].append(edge.target)
    row_of = _rows(above, below)
    widths = [min(_MAX, max(_MIN, _LETTER * max(len(n.title), len(n.name)) + 16)) for n in graph.nodes]
    rows: list[list[int]] = [[] for _ in range(max(row_of, default=-1) + 1)]
    for node, row in enumerate(row_of):
        rows[row].append(node)
    middles = _middles(rows, above, below, widths)
    shift = -min((m - w / 2 for m, w in zip(middles, widths, strict=True)), default=0.0)
    boxes = tuple(
        Box(m - w / 2 + shift, row * (HEIGHT + _BELOW), w) for m, w, row in zip(middles, widths, row_of, strict=True)
    )
    lines, right = _lines(graph, boxes, rows, row_of)
    height = len(rows) * (HEIGHT + _BELOW)
    return Layout(boxes, tuple(lines), max([right, *(box.x + box.width for box in boxes)], default=0.0), height)


def _rows(above: Sequence[Sequence[int]], below: Sequence[Sequence[int]]) -> list[int]:
    row_of: list[int] = []
    for sources in above:
        row_of.append(max((row_of[source] + 1 for source in sources), default=0))
    for node, readers in enumerate(below):
        if not above[node] and readers:
            row_of[node] = max(0, min(row_of[reader] for reader in readers) - 1)
    return row_of


def _middles(
    rows: Sequence[list[int]], above: Sequence[Sequence[int]], below: Sequence[Sequence[int]], widths: Sequence[float]
) -> list[float]:
    """Returns the middle of each box; `rows` are sorted from left to right."""
    middles = [0.0] * len(widths)
    for sweep in range(_SWEEPS):
        downwards = sweep % 2 == 0
        for row in rows if downwards else reversed(rows):
            wanted = {}
            for node in row:
                near = above[node] if downwards else below[node]
                near = near or (below[node] if sweep else ())
                wanted[node] = sum(middles[other] for other in near) / len(near) if near else middles[node]
            row.sort(key=wanted.__getitem__)
            _put(row, wanted, widths, middles)
    return middles


def _put(row: Sequence[int], wanted: dict[int, float], widths: Sequence[float], middles: list[float]) -> None:
    """Arrange the boxes of a row in their order, between where they lie pushed to the right and pushed to the left."""
    edge = float("-inf")
    right = []
    for node in row:
        right.append(max(wanted[node], edge + widths[node] / 2))
        edge = right[-1] + widths[node] / 2 + _APART
    edge = float("inf")
    for index, node in reversed(list(enumerate(row))):
        left = min(wanted[node], edge - widths[node] / 2)
        edge = left - widths[node] / 2 - _APART
        middles[node] = (left + right[index]) / 2


def _lines(
    graph: BoxGraph, boxes: Sequence[Box], rows: Sequence[Sequence[int]], row_of: Sequence[int]
) -> tuple[list[tuple[tuple[float, float], ...]], float]:
    """The lines of all edges, and how far to the right they go."""
    starts = [[boxes[node].x for node in row] for row in rows]
    ends = [[boxes[node].x + boxes[node].width for node in row] for row in rows]
    rightmost = max((end[-1] for end in ends), default=0.0)
    lanes = _Lanes()
    lines: list[tuple[tuple[float, float], ...]] = [()] * len(graph.edges)
    right = 0.0
    for index in sorted(range(len(graph.edges)), key=lambda index: row_of[graph.edges[index].source]):
        edge = graph.edges[index]
        source, target = boxes[edge.source], boxes[edge.target]
        first, last = row_of[edge.source] + 1, row_of[edge.target]
        start, end = (source.middle, source.y + HEIGHT), (target.middle, target.y)
        if last <= first:
            lines[index] = (start, end)
            continue
        x = target.middle
        if last - first > _LOOKED_AT:
            x = rightmost + lanes.take(first, last)
        elif any(_is_taken(starts[row], ends[row], x) for row in range(first, last)):
            x = max(ends[row][-1] for row in range(first, last)) + lanes.take(first, last)
        right = max(right, x)
        top, bottom = first * (HEIGHT + _BELOW), (last - 1) * (HEIGHT + _BELOW) + HEIGHT
        lines[index] = (start, (x, top), (x, bottom), end)
    return lines, right


def _is_taken(starts: Sequence[float], ends: Sequence[float], x: float) -> bool:
    """Returns whether a box of a row is where a line would pass."""
    index = bisect_left(ends, x - _LANE)
    return index < len(starts) and starts[index] < x + _LANE


class _Lanes:
    """Lanes next to the boxes, each reserved for a range of rows and then released."""

    def __init__(self) -> None:
        self._free: list[int] = []
        self._taken: list[tuple[int, int]] = []  # the last row, and the lane
        self._count = 0

    def take(self, first: int, last: int) -> float:
        """Returns how far a free lane is from the boxes; `first` never becomes smaller from call to call."""
        while self._taken and self._taken[0][0] < first:
            heapq.heappush(self._free, heapq.heappop(self._taken)[1])
        if not self._free:
            self._count += 1
            heapq.heappush(self._free, self._count)
        lane = heapq.heappop(self._free)
        heapq.heappush(self._taken, (last, lane))
        return _LANE * (lane + 1)
