"""Minimal graphs that were compiled wrongly once: `tests/fuzz/corpus`, a model's text each, after lines that say of it

# what was wrong
# way: in which it was found
# open: names of the inputs' sizes that are left open, as INPUT_AXIS
# states: inputs that are states, and the outputs that these are in the next run, as INPUT=OUTPUT
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx
from graph import Graph, Tensor
from onnx import helper, numpy_helper
from steps import Step, in_float32
from walk import Walk
from ways import WAYS, Way

__all__ = ["CORPUS", "Case", "read_case"]

CORPUS = Path(__file__).parents[1] / "corpus"


@dataclass(frozen=True)
class Case:
    """A graph that shows a difference in compilers that have the mistake.

    Attributes:
        what: was wrong.
        way: in which it is compiled and run.
        graph: with random inputs.
    """

    what: str
    way: Way
    graph: Graph


def read_case(path: Path) -> Case:
    """The graph of a file."""
    described, lines = [], []
    for line in path.read_text(encoding="utf-8").splitlines():
        (described if line.startswith("#") else lines).append(line)
    about = dict(line.removeprefix("# ").split(": ", 1) for line in described[1:])
    opened = frozenset(about.get("open", "").split())
    kept = dict(pair.split("=") for pair in about["states"].split()) if "states" in about else None
    graph = replace(_graph(onnx.parser.parse_model("\n".join(lines))), opened=opened, kept=kept)
    return Case(described[0].removeprefix("# "), WAYS[about["way"]], graph)


def _graph(model: onnx.ModelProto) -> Graph:
    """A graph of known sizes, with random inputs."""
    walk = Walk(0)
    inputs = []
    for info in model.graph.input:
        kind = info.type.tensor_type
        shape = [size.dim_value for size in kind.shape.dim]
        array = walk.random(shape, helper.tensor_dtype_to_np_dtype(kind.elem_type))
        inputs.append(Tensor(info.name, array, in_float32(array)))
    constants = []
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        constants.append(Tensor(tensor.name, array, in_float32(array)))
    (opset,) = [each.version for each in model.opset_import if not each.domain]
    steps = [Step(node, opset=opset) for node in model.graph.node]
    outputs = [Tensor(info.name, np.empty(0), np.empty(0)) for info in model.graph.output]
    floats = next((each.array.dtype for each in (*inputs, *constants) if each.is_float), np.dtype(np.float32))
    return Graph(0, steps, inputs, constants, outputs, {}, opset=opset, floats=floats).with_values()
