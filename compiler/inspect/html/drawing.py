"""Draws a graph as SVG, for pages whose scripts find boxes by their numbers and for notebooks without scripts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

from nnefc.inspect.html.graph import BoxGraph, Node
from nnefc.inspect.html.kinds import kind_of, paint
from nnefc.inspect.html.layout import HEIGHT, Box, layout

__all__ = ["graph_svg"]

_BORDER = 12
_LETTERS = 34  # of a line in a box
_BAR = 4


def graph_svg(graph: BoxGraph) -> str:
    """The drawing, as large as it is."""
    found = layout(graph)
    width, height = found.width + 2 * _BORDER, found.height + 2 * _BORDER
    lines = "".join(
        f'<path d="{_path(points)}"><title>{escape(edge.label)}</title></path>'
        for edge, points in zip(graph.edges, found.lines, strict=True)
    )
    boxes = "".join(_boxes(graph.nodes, found.boxes))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="{-_BORDER} {-_BORDER} {width:.0f} {height:.0f}" font-family="sans-serif" font-size="12">'
        f'<g class="lines" fill="none" stroke="#8a94a0">{lines}</g><g class="boxes">{boxes}</g></svg>'
    )


def _boxes(nodes: Sequence[Node], boxes: Sequence[Box]) -> Iterator[str]:
    for number, (node, box) in enumerate(zip(nodes, boxes, strict=True)):
        texts = [(16, "600", node.title), (31, "400", node.name)]
        x = f"{box.middle:.1f}"
        yield (
            f'<g class="box" data-number="{number}"><title>{escape(f"{node.title} {node.name}")}</title>'
            f'<rect x="{box.x:.1f}" y="{box.y:.1f}" width="{box.width:.1f}" height="{HEIGHT:.0f}" rx="5" '
            f'{paint("group" if node.kind == "group" else kind_of(node.kind))} stroke="#5b6570"/>'
        )
        if node.weight is not None:
            share = min(1.0, max(0.0, node.weight))
            yield (
                f'<rect x="{box.x:.1f}" y="{box.y + HEIGHT - _BAR:.1f}" width="{box.width * share:.1f}" '
                f'height="{_BAR}" class="share" fill="#c0392b"/>'
            )
        for y, weight, text in texts:
            yield (
                f'<text x="{x}" y="{box.y + y:.1f}" text-anchor="middle" font-weight="{weight}">'
                f"{escape(_short(text))}</text>"
            )
        yield "</g>"


def _path(points: Sequence[tuple[float, float]]) -> str:
    """From the bottom of a box to the top of another: curves between rows, straight lines next to boxes."""
    text = "M{:.1f} {:.1f}".format(*points[0])
    for (x0, y0), (x1, y1) in pairwise(points):
        middle = (y0 + y1) / 2
        text += f"V{y1:.1f}" if x0 == x1 else f"C{x0:.1f} {middle:.1f} {x1:.1f} {middle:.1f} {x1:.1f} {y1:.1f}"
    return text


def _short(text: str) -> str:
    """A name whose middle is left out if it is long: ends tell names of one network apart."""
    if len(text) <= _LETTERS:
        return text
    return f"{text[: _LETTERS // 2 - 1]}…{text[-_LETTERS // 2 :]}"
