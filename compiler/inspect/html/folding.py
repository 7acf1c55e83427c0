"""Folds large graphs by the scopes of names: a box for each, and a graph of what is in it.

    layer1/0/conv  layer1/0/relu  layer1/1/conv  head/pool        layer1, 3 operators    head, 1 operator

Boxes of one scope are folded as far as they follow each other in the order of the graph, which therefore has no cycles
afterwards. The work is linear in boxes and edges.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from nnefc.inspect.html.graph import BoxGraph, Edge, Node

__all__ = ["Folded", "folded"]

_MIN_NODES = 60
"""Graphs with fewer boxes are shown as they are."""

_MAX_GROUPS = 48
_MAX_DEPTH = 8
_MAX_LINES = 40

_Scope = tuple[str, ...]


@dataclass(frozen=True)
class Folded:
    """A graph of groups.

    Attributes:
        graph: the groups and the network's inputs and outputs.
        groups: what is in each group.
        opens: for each box of the graph the number of its group; None for inputs and outputs.
    """

    graph: BoxGraph
    groups: tuple[BoxGraph, ...]
    opens: tuple[int | None, ...]


def folded(graph: BoxGraph) -> Folded | None:
    """Returns the groups of a large graph; None for a small one, and where names have no scopes."""
    inner = [number for number, node in enumerate(graph.nodes) if not node.is_boundary]
    if len(inner) < _MIN_NODES:
        return None
    groups = _groups(graph, inner)
    if groups is None:
        return None
    position_of: dict[int, int] = {}
    nodes: list[Node] = []
    opens: list[int | None] = []
    first_of = {members[0]: index for index, (_, members) in enumerate(groups)}
    heaviest = max([1e-12, *(_weight(graph, members) for _, members in groups)])
    for number, node in enumerate(graph.nodes):
        if node.is_boundary:
            position_of[number] = len(nodes)
            nodes.append(node)
            opens.append(None)
        elif number in first_of:
            scope, members = groups[first_of[number]]
            position_of |= dict.fromkeys(members, len(nodes))
            nodes.append(_group_node(graph, scope, members, heaviest))
            opens.append(first_of[number])
    edges: dict[tuple[int, int], str] = {}
    for edge in graph.edges:
        ends = position_of[edge.source], position_of[edge.target]
        if ends[0] != ends[1]:
            edges.setdefault(ends, edge.label)
    whole = BoxGraph(
        f"{graph.title}, folded", tuple(nodes), tuple(Edge(*ends, label) for ends, label in edges.items()), graph.about
    )
    return Folded(whole, _inner_graphs(graph, groups), tuple(opens))


def _groups(graph: BoxGraph, inner: Sequence[int]) -> list[tuple[str, list[int]]] | None:
    """Returns the names and boxes of groups, as deep in the scopes as there are few enough."""
    names = [graph.nodes[number].name.partition(",")[0] for number in inner]
    separators = r"[/.:]+" if any(re.search(r"[/.:]", name) for name in names) else r"_"
    scopes = [tuple(filter(None, re.split(separators, name)))[:-1] for name in names]
    best: list[tuple[_Scope, list[int]]] | None = None
    for depth in range(1, min(_MAX_DEPTH, max(map(len, scopes), default=0)) + 1):
        runs: list[tuple[_Scope, list[int]]] = []
        for number, scope in zip(inner, scopes, strict=True):
            cut = scope[:depth]
            if runs and (cut == runs[-1][0] or not cut):
                runs[-1][1].append(number)
            else:
                runs.append((cut, [number]))
        if len(runs) * 2 > len(inner) or (best is not None and len(runs) > _MAX_GROUPS):
            break
        if len(runs) > 1:
            best = runs
    if best is None:
        return None
    seen: Counter[_Scope] = Counter()
    named = []
    for scope, members in best:
        seen[scope] += 1
        again = f" ({seen[scope]})" if seen[scope] > 1 else ""
        named.append(("/".join(scope) + again, members))
    return named


def _weight(graph: BoxGraph, members: Sequence[int]) -> float:
    return sum(graph.nodes[number].weight or 0.0 for number in members)


def _group_node(graph: BoxGraph, scope: str, members: Sequence[int], heaviest: float) -> Node:
    found = [graph.nodes[number] for number in members]
    titles = Counter(node.title for node in found)
    operators = "\n".join(f"{count} × {title}" for title, count in titles.most_common(_MAX_LINES))
    shown = ", ".join(node.name for node in found[:_MAX_LINES]) + (" …" if len(found) > _MAX_LINES else "")
    has_weights = any(node.weight is not None for node in found)
    return Node(
        "group",
        scope or "(no scope)",
        f"{len(members)} operator{'s' * (len(members) > 1)}",
        (("operators", operators), ("tensors", shown)),
        _weight(graph, members) / heaviest if has_weights else None,
    )


def _inner_graphs(graph: BoxGraph, groups: Sequence[tuple[str, list[int]]]) -> tuple[BoxGraph, ...]:
    """Returns the graph of each group, with a box for each tensor that comes from outside or goes there."""
    owner = {number: index for index, (_, members) in enumerate(groups) for number in members}
    inside: list[list[Edge]] = [[] for _ in groups]
    incoming: list[dict[tuple[int, int], str]] = [{} for _ in groups]
    outgoing: list[dict[tuple[int, int], str]] = [{} for _ in groups]
    for edge in graph.edges:
        source, target = owner.get(edge.source), owner.get(edge.target)
        if source is not None and source == target:
            inside[source].append(edge)
            continue
        if target is not None:
            incoming[target][edge.source, edge.target] = edge.label
        if source is not None:
            outgoing[source][edge.source, edge.target] = edge.label
    made = []
    for index, (scope, members) in enumerate(groups):
        before = list(dict.fromkeys(source for source, _ in incoming[index]))
        after = list(dict.fromkeys(target for _, target in outgoing[index]))
        first = len(before)
        middle = {number: first + position for position, number in enumerate(members)}
        start = {number: position for position, number in enumerate(before)}
        end = {number: first + len(members) + position for position, number in enumerate(after)}
        nodes = [_outside(graph.nodes[number], "from") for number in before]
        nodes += [graph.nodes[number] for number in members]
        nodes += [_outside(graph.nodes[number], "to") for number in after]
        edges = [Edge(start[source], middle[target], label) for (source, target), label in incoming[index].items()]
        edges += [Edge(middle[edge.source], middle[edge.target], edge.label) for edge in inside[index]]
        edges += [Edge(middle[source], end[target], label) for (source, target), label in outgoing[index].items()]
        made.append(BoxGraph(scope or "(no scope)", tuple(nodes), tuple(edges), graph.about))
    return tuple(made)


def _outside(node: Node, way: str) -> Node:
    """Returns a box for what is outside of a group."""
    return Node("input" if way == "from" else "output", f"{way} {node.title}", node.name, node.facts[:1])
