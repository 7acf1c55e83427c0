"""States of random graphs: an input of NNEF that is a variable instead, updated by an output of the same shape.

    x = external<scalar>(shape = [2, 3]);           x = variable<scalar>(shape = [2, 3], label = 'x');
    y = relu(x);                               →    y = relu(x);
                                                    x_next = update(x, y);

Several runs one after the other compute what the graph does, written out as often: each time with the outputs of the
time before.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
from graph import Graph
from steps import Rejected
from walk import LARGEST
from ways import RUNS_OF_STATES

from nnefc.frontends.nnef.files.tensor_file import write_tensor

__all__ = ["in_run", "kept_of", "with_variables", "written_out"]


def kept_of(graph: Graph) -> dict[str, str]:
    """Inputs that shall be states, and the outputs that each is in the next run; all of them values to compare."""
    rng = np.random.default_rng(graph.seed)
    kept: dict[str, str] = {}
    if not graph.inputs:
        return kept
    for x in (tensor for tensor in graph.inputs if tensor.is_float):
        fitting = [y.name for y in graph.outputs if y.is_float and y.shape == x.shape]
        if fitting:
            kept[x.name] = fitting[int(rng.integers(len(fitting)))]
    if len(kept) == len(graph.inputs):  # a document has an input
        kept.popitem()
    try:
        results = written_out(graph, kept).outputs
    except Rejected:
        return {}
    floats = [y.exact for y in results if y.is_float]
    return kept if all(np.isfinite(y).all() and np.abs(y).max(initial=0) < LARGEST for y in floats) else {}


def in_run(name: str, number: int) -> str:
    """What a tensor of the graph is called in one of the runs."""
    return f"{name}_{number}"


def written_out(graph: Graph, kept: Mapping[str, str]) -> Graph:
    """The runs as one graph.

    Raises:
        Rejected: the reference cannot compute them.
    """
    steps, outputs = [], []
    made = [name for step in graph.steps for name in step.node.output]
    for number in range(RUNS_OF_STATES):
        names = {name: in_run(name, number) for name in made}
        if number:
            names |= {x: in_run(y, number - 1) for x, y in kept.items()}
        steps += [step.renamed(names) for step in graph.steps]
        outputs += [replace(y, name=names[y.name]) for y in graph.outputs]
    return replace(graph, steps=steps, outputs=outputs).with_values()


def with_variables(folder: Path, graph: Graph, kept: Mapping[str, str]) -> None:
    """Make inputs of a graph's document variables that are updated; the folder gets their values."""
    document = folder / "graph.nnef"
    text = document.read_text(encoding="utf-8")
    values = {tensor.name: tensor.array for tensor in graph.inputs}
    text = re.sub(r"(\bgraph \w+\()([^)]*)", lambda match: match[1] + _without(match[2], kept), text, count=1)
    for x, y in kept.items():
        text, count = re.subn(
            rf"\b{x} = external<scalar>\(shape = (\[[^]]*\])\)",
            rf"{x} = variable<scalar>(shape = \1, label = '{x}')",
            text,
        )
        assert count == 1, f"{x} is no input of the document"
        end = text.rindex("}")
        text = f"{text[:end]}    {x}_next = update({x}, {y});\n{text[end:]}"
        write_tensor(folder / f"{x}.dat", values[x])
    document.write_text(text, encoding="utf-8")


def _without(names: str, kept: Mapping[str, str]) -> str:
    return ", ".join(name for name in map(str.strip, names.split(",")) if name not in kept)
