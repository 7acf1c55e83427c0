"""Writes one HTML file with graph drawings that can be moved, zoomed and searched, and further tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from html import escape
from importlib.resources import files

from nnefc.inspect.html.drawing import graph_svg
from nnefc.inspect.html.graph import BoxGraph

__all__ = ["graph_fragment", "page"]


def page(title: str, graphs: Sequence[BoxGraph], report: str = "") -> str:
    """Returns the text of the HTML file, which fetches nothing from elsewhere.

    Args:
        title: of the page.
        graphs: at least one; the first is shown, the others can be chosen.
        report: HTML that follows the drawings.
    """
    folder = files("nnefc.inspect.html")
    style, script = (folder.joinpath(name).read_text(encoding="utf-8") for name in ("page.css", "page.js"))
    drawings = "".join(f'<div class="graph">{graph_svg(graph)}</div>' for graph in graphs)
    choices = "".join(f"<option>{escape(graph.title)}</option>" for graph in graphs)
    facts = json.dumps([[_facts(node.title, node.name, node.facts) for node in graph.nodes] for graph in graphs])
    facts = facts.replace("<", "\\u003c")  # or it could end the element
    hidden, whole = " hidden" if len(graphs) == 1 else "", "" if report else ' class="whole"'
    return f"""<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta name="viewport" content="width=device-width"><style>
{style}</style></head><body>
<header><h1>{escape(title)}</h1><select id="choice"{hidden}>{choices}</select>
<input id="search" type="search" placeholder="find: name, operator, shape"><span id="count"></span>
<button id="larger">+</button><button id="smaller">−</button><button id="fit">all</button></header>
<div id="view"{whole}><div>{drawings}</div><aside><dl><dt>Choose a box</dt>
<dd>Drag to move, turn the wheel to zoom; Enter in the field goes to the next that is found.</dd></dl></aside></div>
<div id="report">{report}</div>
<script type="application/json" id="facts">{facts}</script>
<script>
{script}</script></body></html>
"""


def _facts(title: str, name: str, facts: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    return [("operator", title), *([("name", name)] if name else []), *facts]


def graph_fragment(title: str, graph: BoxGraph) -> str:
    """A drawing alone, for notebooks: without scripts, in a window that scrolls."""
    return (
        f"<div><b>{escape(title)}</b>"
        f'<div style="max-height:32em;overflow:auto;border:1px solid #d5dae0">{graph_svg(graph)}</div></div>'
    )
