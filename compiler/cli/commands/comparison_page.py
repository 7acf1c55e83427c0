"""Writes the page of `nnefc compare --html`: the model's graph with the error of each tensor, and a table of them."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import TYPE_CHECKING

from nnefc.inspect.html.graph import BoxGraph, Node
from nnefc.inspect.html.page import page

if TYPE_CHECKING:
    from nnefc.comparison.compare import ComparedTensor, Comparison

__all__ = ["comparison_page"]

_HEADS = ("tensor", "error", "largest difference", "mean difference", "range", "type", "of")
_DECADES = 4
"""The scale of a bar in powers of ten: it is full at the bound, and empty where the error is smaller by this many."""


def comparison_page(title: str, graphs: Sequence[BoxGraph], found: Comparison, lines: Sequence[str]) -> str:
    """Return the page as HTML.

    Args:
        title: of the page, such as the model's name.
        graphs: of the model; their boxes have the names of its tensors.
        found: the comparison.
        lines: the conclusion, as lines of text.
    """
    tensors = {tensor.name: tensor for tensor in (*found.tensors, *found.outputs)}
    marked = [
        replace(graph, nodes=tuple(_marked(node, tensors, found.bound) for node in graph.nodes)) for graph in graphs
    ]
    words = "".join(f"<p>{escape(line)}</p>" for line in lines if line)
    note = (
        f"<p>Errors are the largest difference over the largest value of the tensor; {found.bound:.0e} is allowed. "
        "Bars in boxes are errors, by their logarithm: a full bar is an error that is not allowed.</p>"
    )
    rows = "".join(_row(tensor, found.bound) for tensor in (*found.tensors, *found.outputs))
    heads = "".join(f"<th{' class=n' if 0 < n < 5 else ''}>{head}</th>" for n, head in enumerate(_HEADS))
    table = f'<div class="wide"><table><tr>{heads}</tr>{rows}</table></div>'
    return page(title, marked, f"{words}{note}<section><h2>Tensors in the order of the network</h2>{table}</section>")


def _marked(node: Node, tensors: Mapping[str, ComparedTensor], bound: float) -> Node:
    """Return a box with the largest error of its tensors."""
    known = [tensors[name] for name in node.name.split(", ") if name in tensors]
    if not known:
        return node
    worst = max(known, key=lambda tensor: _size(tensor.difference.relative))
    error = worst.difference.relative
    facts = (("error", _number(error)), ("largest difference", _number(worst.difference.largest)))
    return replace(node, facts=(*facts, *node.facts), weight=_share(error, bound))


def _share(error: float, bound: float) -> float:
    if not error <= bound:
        return 1.0
    return max(0.0, min(0.97, 1 + math.log10(error / bound) / _DECADES)) if error > 0 else 0.0


def _row(tensor: ComparedTensor, bound: float) -> str:
    apart = tensor.difference
    numbers = (apart.relative, apart.largest, apart.mean, apart.scale)
    cells = [f"<td>{escape(tensor.name)}</td>", *(f"<td class=n>{_number(number)}</td>" for number in numbers)]
    shape = ", ".join(map(str, tensor.shape))
    cells += [f"<td>{escape(f'{tensor.dtype}[{shape}]')}</td>", f"<td>{escape(_position(tensor))}</td>"]
    return f"<tr{'' if apart.relative <= bound else ' class=far'}>{''.join(cells)}</tr>"


def _position(tensor: ComparedTensor) -> str:
    """Return where the model computes a tensor, without the folder of the model."""
    return re.sub(r" in \S*/", " in ", tensor.location) or "output"


def _number(value: float) -> str:
    return f"{value:.2e}" if math.isfinite(value) else "wrong"


def _size(value: float) -> float:
    return value if math.isfinite(value) else math.inf
