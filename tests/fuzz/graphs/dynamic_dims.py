"""Sizes of graphs' inputs that are left open: drawn, and closed again where operators ask something of them."""

from __future__ import annotations

import re
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from graph import Graph

import nnefc
from nnefc.driver.formats import load_network

__all__ = ["drawn_sizes", "may_be_dynamic"]

_ASKED = re.compile(
    r"the sizes? of '(?P<name>[^']+)' must be (?:multiples of (?P<factor>\d+)|no less than (?P<smallest>\d+)"
    r"|from (?P<low>\d+) to (?P<high>\d+)|(?P<only>\d+)) for"
)
_LIMITED = re.compile(
    r": (?P<formula>[\w +*-]+) must be no (?P<side>less|more) than (?P<end>\d+) for the network's operators"
)


def drawn_sizes(graph: Graph) -> dict[str, int]:
    """Sizes of a graph's inputs, by name, that shall be left open if they may be."""
    rng = np.random.default_rng(graph.seed)
    shares = {0: 0.0, 1: 0.2}  # models take no dynamic size for 0 without an option
    return {name: size for name, size in graph.sizes.items() if rng.random() < shares.get(size, 0.7)}


def may_be_dynamic(graph: Graph) -> frozenset[str]:
    """Those of the drawn sizes that a graph's front end leaves open together, and that it may have then."""
    sizes = drawn_sizes(graph)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "graph.onnx"
        while sizes:
            onnx.save(graph.model(sizes), source)
            closed = _not_dynamic(source, sizes, graph)
            if closed is None:
                break
            kept = list(sizes) if closed else list(sizes)[: len(sizes) // 2]
            sizes = {name: sizes[name] for name in kept if name not in closed}
    return frozenset(sizes)


def _not_dynamic(source: Path, sizes: Mapping[str, int], graph: Graph) -> set[str] | None:
    """Which sizes a model cannot leave open, of which nothing is known if there are none; None if all can be."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", nnefc.ModelWarning)
        try:
            network = load_network(source)
        except nnefc.CompileError as error:
            return {name for name in sizes if re.search(rf"\b{name}\b", str(error))}
        except Exception:  # whatever else is raised is found when it is compiled
            return None
    closed: set[str] = set()
    for message in (str(each.message) for each in caught):
        asked, limited = _ASKED.search(message), _LIMITED.search(message)
        if asked is None and not (limited and _is_within(sizes, limited)):
            closed |= {name for name in sizes if re.search(rf"\b{name}\b", message)}
        elif asked and asked["name"] in sizes and not _fits(sizes[asked["name"]], asked):
            closed.add(asked["name"])
    values: dict[str, set[int]] = {}
    names: dict[str, list[str]] = {}
    for tensor in graph.inputs:
        for axis, size in enumerate(network.input_shapes[tensor.name]):
            own = f"{tensor.name}_{axis}"
            if isinstance(size, int):
                closed |= {own} if size != tensor.shape[axis] else set()
                continue
            same = next((d.name for d in network.dynamic_dimensions if d.size == size), None)
            if same is not None:
                values.setdefault(same, set()).add(tensor.shape[axis])
                names.setdefault(same, []).append(own)
    for same, found in values.items():
        if len(found) > 1:  # what is 1 is repeated
            closed.update(name for name in names[same] if sizes[name] == 1)
    return closed or None


def _is_within(sizes: Mapping[str, int], limited: re.Match[str]) -> bool:
    """Whether a sum of sizes is one of those that a front end limits it to."""
    if not set(re.findall(r"[^\W\d]\w*", limited["formula"])) <= set(sizes):
        return False
    total, end = eval(limited["formula"], {}, dict(sizes)), int(limited["end"])
    return bool(total >= end if limited["side"] == "less" else total <= end)


def _fits(size: int, asked: re.Match[str]) -> bool:
    """Whether a size is one of those that a front end says that it must be."""
    if asked["factor"]:
        return size % int(asked["factor"]) == 0
    if asked["only"]:
        return size == int(asked["only"])
    return int(asked["smallest"] or asked["low"]) <= size <= int(asked["high"] or size)
