"""Sorts nodes topologically, as the standard requires and not every exporter does."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from heapq import heapify, heappop, heappush

from nnefc.frontends.onnx.files.model import NodeDef
from nnefc.support.diagnostics import CompileError

__all__ = ["in_topological_order"]


def in_topological_order(nodes: tuple[NodeDef, ...], given: Iterable[str]) -> tuple[NodeDef, ...]:
    """The nodes of one graph in topological order: the same tuple if they are, else with as little moved as may be.

    Names that are given, or that none of the nodes makes, are there before: the check of scopes tells whether they are.

    Raises:
        CompileError: nodes need each other in a circle.
    """
    makers: dict[str, int] = dict.fromkeys(given, -1)
    for index, node in enumerate(nodes):
        for name in filter(None, node.outputs):
            makers.setdefault(name, index)
    needs = [{maker for name in _names_used(node) if (maker := makers.get(name, -1)) >= 0} for node in nodes]
    if all(maker < index for index, others in enumerate(needs) for maker in others):
        return nodes
    return tuple(nodes[index] for index in _sorted(nodes, needs))


def _sorted(nodes: Sequence[NodeDef], needs: Sequence[set[int]]) -> list[int]:
    """Returns the lexicographically smallest topological order."""
    readers: list[list[int]] = [[] for _ in nodes]
    for index, others in enumerate(needs):
        for maker in others:
            readers[maker].append(index)
    missing = list(map(len, needs))
    ready = [index for index, count in enumerate(missing) if count == 0]
    heapify(ready)
    order: list[int] = []
    while ready:
        index = heappop(ready)
        order.append(index)
        for reader in readers[index]:
            missing[reader] -= 1
            if missing[reader] == 0:
                heappush(ready, reader)
    if len(order) < len(nodes):
        raise _circle(nodes, needs, missing)
    return order


def _circle(nodes: Sequence[NodeDef], needs: Sequence[set[int]], missing: Sequence[int]) -> CompileError:
    """Some circle among the nodes that could not be placed: going from need to need, one comes round."""
    index = next(index for index, count in enumerate(missing) if count)
    path: dict[int, None] = {}
    while index not in path:
        path[index] = None
        index = min(other for other in needs[index] if missing[other])
    chain = [*path][[*path].index(index) :]
    node, maker = nodes[index], nodes[chain[1 % len(chain)]]
    name = next(name for name in _names_used(node) if name in maker.outputs)
    shown = " → ".join(nodes[i].description for i in (*chain, index))
    return CompileError(f"{node.description} needs '{name}', which depends on itself: {shown}")


def _names_used(node: NodeDef) -> Iterator[str]:
    """Names that a node needs from the graph that it is in, those that its subgraphs use among them."""
    yield from filter(None, node.inputs)
    for _, graph in node.subgraphs():
        own = {*graph.input_names, *graph.initializers, *(name for n in graph.nodes for name in n.outputs)}
        for inner in graph.nodes:
            yield from (name for name in _names_used(inner) if name not in own)
        yield from (name for name in graph.output_names if name not in own)
