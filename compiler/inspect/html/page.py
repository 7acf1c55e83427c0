"""Writes one HTML file with graph drawings that can be moved, zoomed and searched, and further tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from nnefc.inspect.html.drawing import graph_svg
from nnefc.inspect.html.folding import folded
from nnefc.inspect.html.graph import BoxGraph
from nnefc.inspect.html.kinds import KINDS, kind_of

__all__ = ["graph_fragment", "page"]


@dataclass(frozen=True)
class _View:
    """A drawing of the page.

    Attributes:
        graph: what it shows.
        opens: for each box the number of the view that it opens; None for none.
        parent: the view that it was opened from.
    """

    graph: BoxGraph
    opens: tuple[int | None, ...] = ()
    parent: int | None = None


def page(title: str, graphs: Sequence[BoxGraph], report: str = "") -> str:
    """Returns the text of the HTML file, which fetches nothing from elsewhere.

    Args:
        title: of the page.
        graphs: at least one; the first is shown, the others can be chosen. Large ones are folded by
            the scopes of names.
        report: HTML that follows the drawings.
    """
    folder = files("nnefc.inspect.html")
    style, script = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    views = _views(graphs)
    drawings = "".join(f'<div class="graph">{graph_svg(view.graph)}</div>' for view in views)
    choices = "".join(
        f"<option>{'— ' * (view.parent is not None)}{escape(view.graph.title)}</option>" for view in views
    )
    facts = _embedded([[_facts(n.title, n.name, n.facts) for n in view.graph.nodes] for view in views])
    links = _embedded([_links(view) for view in views])
    hidden, whole = " hidden" if len(views) == 1 else "", "" if report else ' class="whole"'
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><style>
{style}</style></head><body>
<header><h1>{escape(title)}</h1><select id="choice" aria-label="drawing"{hidden}>{choices}</select>
<input id="search" type="search" placeholder="find: name, operator, shape"><span id="count"></span>
<span class="buttons"><button id="larger" title="larger">+</button><button id="smaller" title="smaller">−</button>
<button id="fit" title="show all">all</button><button id="about" title="the network">about</button></span></header>
<div id="view"{whole}><div class="drawings">{drawings}<canvas class="map" hidden></canvas></div><aside></aside></div>
<div id="report">{report}</div>
<script type="application/json" id="facts">{facts}</script>
<script type="application/json" id="links">{links}</script>
<script>
{script}</script></body></html>
"""


def _views(graphs: Sequence[BoxGraph]) -> list[_View]:
    """Returns the drawings of all graphs: of a large one its groups, all of it, and what is in each group."""
    views: list[_View] = []
    for graph in graphs:
        found = folded(graph)
        if found is None:
            views.append(_View(graph))
            continue
        first, whole = len(views) + 2, len(views)
        opens = tuple(None if group is None else first + group for group in found.opens)
        views += [_View(found.graph, opens), _View(graph)]
        views += [_View(group, (), whole) for group in found.groups]
    return views


def _links(view: _View) -> dict[str, object]:
    """Returns what the page's script knows of a drawing: its lines, kinds, groups, and the facts of the whole."""
    kinds = ["group" if node.kind == "group" else kind_of(node.kind) for node in view.graph.nodes]
    return {
        "edges": [(edge.source, edge.target, edge.label) for edge in view.graph.edges],
        "kinds": {kind: KINDS[kind] for kind in KINDS if kind in kinds},
        "about": view.graph.about,
        "opens": {number: target for number, target in enumerate(view.opens) if target is not None},
        "parent": view.parent,
    }


def _embedded(value: object) -> str:
    """Returns JSON that cannot end the element which it is in."""
    return json.dumps(value).replace("<", "\\u003c")


def _facts(title: str, name: str, facts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [("operator", title), *([("name", name)] if name else []), *facts]


def graph_fragment(title: str, graph: BoxGraph) -> str:
    """A drawing alone, for notebooks: without scripts, in a window that scrolls."""
    return (
        f"<div><b>{escape(title)}</b>"
        f'<div style="max-height:32em;overflow:auto;border:1px solid #d5dae0">{graph_svg(graph)}</div></div>'
    )
