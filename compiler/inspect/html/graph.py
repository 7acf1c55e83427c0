"""Defines the graph that a page draws: boxes and the edges between them."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["BoxGraph", "Edge", "Node"]


@dataclass(frozen=True)
class Node:
    """A box.

    Attributes:
        kind: what it is, an operator, `input`, `output` or `group`; its colour follows from it.
        title: its first line.
        name: its second line; what it is found by.
        facts: what is shown of it when it is chosen: a name and a text each.
        weight: a share of the whole, from 0 to 1, that is shown as a bar; None for none.
    """

    kind: str
    title: str
    name: str
    facts: tuple[tuple[str, str], ...] = ()
    weight: float | None = None

    @property
    def is_boundary(self) -> bool:
        """Whether it is an input or output."""
        return self.kind in ("input", "output")


@dataclass(frozen=True)
class Edge:
    """A line from one box to a later one, by their indices among a graph's nodes; `label` says what goes along it."""

    source: int
    target: int
    label: str = ""


@dataclass(frozen=True)
class BoxGraph:
    """Boxes, in an order in which each comes after those that it has lines from.

    Attributes:
        title: of the drawing.
        nodes, edges: boxes and lines.
        about: the facts of the whole before a box is chosen: a name and a text each.
    """

    title: str
    nodes: tuple[Node, ...]
    edges: tuple[Edge, ...]
    about: tuple[tuple[str, str], ...] = ()
