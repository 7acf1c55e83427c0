"""Makes a graph that shows a difference small: the fewest steps that still do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from graph import Graph
from steps import Rejected, needed_for

__all__ = ["shrunk"]

Fails = Callable[[Graph], bool]


def shrunk(graph: Graph, fails: Fails, maximum: int = 100) -> Graph:
    """A graph with fewer steps, of the same seed, for which `fails` still holds.

    Args:
        maximum: how often `fails` is asked.
    """
    asked = 0

    def still(candidate: Graph) -> bool:
        nonlocal asked
        asked += 1
        try:
            return asked <= maximum and bool(candidate.outputs) and fails(candidate.with_values())
        except Rejected:
            return False

    while (half := len(graph.outputs) // 2) > 0:
        parts = (_pruned(replace(graph, outputs=part)) for part in (graph.outputs[:half], graph.outputs[half:]))
        smaller = next((part for part in parts if still(part)), None)
        if smaller is None:
            break
        graph = smaller
    chunk = max(1, len(graph.steps) // 2)
    while chunk:
        position, went = 0, False
        while position < len(graph.steps):
            candidate = _without(graph, position, chunk)
            if len(candidate.steps) < len(graph.steps) and still(candidate):
                graph, went = candidate, True
            else:
                position += chunk
        chunk = chunk // 2 or int(went)
    return graph.with_values()


def _without(graph: Graph, position: int, count: int) -> Graph:
    """Without these steps: what they made comes from outside; if it was an output, what they took is one instead."""
    removed = graph.steps[position : position + count]
    kept = graph.steps[:position] + graph.steps[position + count :]
    gone = {name for step in removed for name in step.node.output}
    there = {name for step in kept for name in step.node.output}
    needed = {name for step in kept for name in step.inputs} & gone
    outputs = [t for t in graph.outputs if t.name not in gone]
    if len(outputs) < len(graph.outputs):
        taken = {name for step in removed for name in step.inputs} & there
        outputs += [graph.tensors[name] for name in sorted(taken - {t.name for t in outputs})]
    inputs = [*graph.inputs, *(graph.tensors[name] for name in sorted(needed))]
    return _pruned(replace(graph, steps=kept, inputs=inputs, outputs=outputs))


def _pruned(graph: Graph) -> Graph:
    """Without what no output needs."""
    steps, needed = needed_for((t.name for t in graph.outputs), graph.steps)
    return replace(
        graph,
        steps=steps,
        inputs=[t for t in graph.inputs if t.name in needed],
        constants=[t for t in graph.constants if t.name in needed],
    )
