"""Tolerates faults of models that do not affect their results, most of them with a warning.

Exporters, and people who edit models, leave such things behind; other engines let many of them pass. What changes the
meaning of a model, or leaves it open, is still an error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import onnx.defs
from onnx import helper

from nnefc.frontends.onnx.files.model import NodeDef, OnnxFunction, OnnxGraph, OnnxModel

__all__ = ["is_leftover", "used_functions", "with_all_imports", "without_dead_nodes"]


def with_all_imports(model: OnnxModel, ir_version: int) -> tuple[OnnxModel, list[str]]:
    """The model with operator sets imported for all domains that its nodes are of; and warnings.

    The standard's own, whose version says what operators mean, is added to functions alone, as the model has it.
    """
    warnings: list[str] = []
    graphs = [model.graph, *(g for t in model.trainings for g in (t.initialization, t.algorithm) if g is not None)]
    given = dict(model.opsets)
    for domain in sorted(_domains(node for graph in graphs for node in graph.nodes) - {*given, ""}):
        given[domain] = _version(domain, ir_version)
        warnings.append(f"the model imports no operator set of the domain '{domain}': version {given[domain]} is taken")
    functions = {}
    for key, function in model.functions.items():
        missing = sorted(_domains(function.nodes) - {*function.opsets})
        added = {d: given.get(d, _version(d, ir_version)) for d in missing if d or "" in given}
        functions[key] = replace(function, opsets={**function.opsets, **added}) if added else function
        warnings += [
            f"the function '{function.name}' imports no operator set of the domain '{domain or 'ai.onnx'}': version "
            f"{version} is taken"
            for domain, version in added.items()
        ]
    return replace(model, opsets=given, functions=functions), warnings


def _domains(nodes: Iterable[NodeDef]) -> set[str]:
    found: set[str] = set()
    for node in nodes:
        found.add(node.domain)
        for _, graph in node.subgraphs():
            found |= _domains(graph.nodes)
    return found


def _version(domain: str, ir_version: int) -> int:
    """The version of a domain's operator set that belongs to a version of the format."""
    if domain != "ai.onnx.ml":
        return 1
    rows = [row for row in helper.VERSION_TABLE if row[1] <= ir_version]
    return max((int(row[3]) for row in rows), default=1)


def used_functions(model: OnnxModel) -> dict[tuple[str, str, str], OnnxFunction]:
    """The functions that the model's graphs call, and those that these call."""
    used: dict[tuple[str, str, str], OnnxFunction] = {}
    graphs = [model.graph, *(g for t in model.trainings for g in (t.initialization, t.algorithm) if g is not None)]
    waiting = [node for graph in graphs for node in graph.nodes]
    while waiting:
        node = waiting.pop()
        waiting += [inner for _, graph in node.subgraphs() for inner in graph.nodes]
        key = node.domain, node.op_type, node.overload
        if key in model.functions and key not in used:
            used[key] = model.functions[key]
            waiting += model.functions[key].nodes
    return used


def without_dead_nodes(
    graph: OnnxGraph, wanted: Iterable[str], is_supported: Callable[[NodeDef], bool]
) -> tuple[OnnxGraph, list[str]]:
    """The graph without nodes that have no results, or are not supported and not needed; and warnings.

    Args:
        wanted: names that are asked for besides the outputs.
        is_supported: whether a node's operator is.
    """
    alive = {*graph.output_names, *wanted}
    kept: list[NodeDef] = []
    dead: list[NodeDef] = []
    for node in reversed(graph.nodes):
        if any(node.outputs) and (not alive.isdisjoint(node.outputs) or is_supported(node)):
            kept.append(node)
            alive.update(_names_used(node))
        else:
            dead.append(node)
    warnings = [f"{node.description} is left out: nothing needs its results" for node in reversed(dead)]
    return (replace(graph, nodes=tuple(reversed(kept))) if dead else graph), warnings


def _names_used(node: NodeDef) -> Iterator[str]:
    yield from filter(None, node.inputs)
    for _, graph in node.subgraphs():
        for inner in graph.nodes:
            yield from _names_used(inner)
        yield from graph.output_names


_LEFTOVERS: Mapping[str, Callable[[Any, Mapping[str, Any]], bool]] = {
    "consumed_inputs": lambda _value, _others: True,
    "is_test": lambda value, _others: bool(value),
    "spatial": lambda value, _others: value == 1,
    "broadcast": lambda _value, others: "axis" not in others,
    "output_sequence": lambda _value, _others: True,
}
"""Attributes that later versions of operators lack, and whether the version without them computes the same."""


def is_leftover(node: NodeDef, name: str) -> bool:
    """Returns whether an attribute that the imported version of an operator lacks is an earlier version's, and without
    effect.
    """
    is_without_effect = _LEFTOVERS.get(name)
    return (
        is_without_effect is not None
        and name in _attributes_ever(node.op_type, node.domain)
        and is_without_effect(node.attributes[name], node.attributes)
    )


@cache
def _attributes_ever(op_type: str, domain: str) -> frozenset[str]:
    schemas = (s for s in onnx.defs.get_all_schemas_with_history() if (s.name, s.domain) == (op_type, domain))
    return frozenset(name for schema in schemas for name in schema.attributes)
