"""Compares flattened graphs with those of the `nnef` package, whatever they call their intermediate tensors."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from typing import Any

import nnef
import numpy as np

from nnefc.frontends.nnef.flat import FlatGraph
from nnefc.frontends.nnef.values import Tensor


class Canonical:
    """Numbers for tensors that are computed in the same way, shared by the graphs that are compared.

    Copies are seen through, since the two implementations copy at different moments.
    """

    def __init__(self) -> None:
        self._numbers: dict[Any, int] = {}

    def number(self, key: Any) -> int:
        return self._numbers.setdefault(key, len(self._numbers))

    def ours(self, graph: FlatGraph) -> dict[str, Any]:
        known: dict[Tensor, Any] = {}
        operations: Counter[int] = Counter()
        shapes: dict[Any, Any] = {}
        for invocation in graph.invocations:
            arguments = {name: self._ours_value(value, known) for name, value in invocation.arguments.items()}
            name = invocation.operation.name
            if name == "copy":
                (copied,) = invocation.tensors
                known[copied] = arguments["x"]
                continue
            label = invocation.tensors[0].name if name == "external" else ""
            operation = self.number((name, label, invocation.content, tuple(sorted(arguments.items()))))
            operations[operation] += 1
            for result, tensors in invocation.results.items():
                for i, tensor in enumerate(tensors if isinstance(tensors, list) else [tensors]):
                    known[tensor] = ("tensor", self.number((operation, result, i)))
                    shapes[known[tensor]] = tensor.shape
        outputs = {tensor.name: known[tensor] for tensor in graph.outputs}
        return {"operations": operations, "outputs": outputs, "shapes": shapes}

    def _ours_value(self, value: Any, known: dict[Tensor, Any]) -> Any:
        match value:
            case Tensor():
                return known[value]
            case list():
                return ("array", *[self._ours_value(element, known) for element in value])
            case tuple():
                return ("tuple", *[self._ours_value(element, known) for element in value])
            case _:
                return _primitive(value)

    def theirs(self, graph: Any) -> dict[str, Any]:
        known: dict[str, Any] = {}
        operations: Counter[int] = Counter()
        shapes: dict[Any, Any] = {}
        for operation in graph.operations:
            arguments = {name: self._theirs_value(value, {}) for name, value in operation.attribs.items()}
            arguments |= {name: self._theirs_value(value, known) for name, value in operation.inputs.items()}
            results = list(operation.outputs.items())
            if operation.name == "copy":
                known[results[0][1]] = arguments["x"]
                continue
            label = results[0][1] if operation.name == "external" else ""
            number = self.number((operation.name, label, operation.dtype, tuple(sorted(arguments.items()))))
            operations[number] += 1
            for result, tensors in results:
                for i, tensor in enumerate(tensors if isinstance(tensors, list) else [tensors]):
                    known[tensor] = ("tensor", self.number((number, result, i)))
                    shapes[known[tensor]] = tuple(graph.tensors[tensor].shape or ())
        return {"operations": operations, "outputs": {name: known[name] for name in graph.outputs}, "shapes": shapes}

    def _theirs_value(self, value: Any, known: dict[str, Any]) -> Any:
        match value:
            case str() if value in known:
                return known[value]
            case list():
                return ("array", *[self._theirs_value(element, known) for element in value])
            case tuple():
                return ("tuple", *[self._theirs_value(element, known) for element in value])
            case _:
                return _primitive(value)


def _primitive(value: Any) -> tuple[str, Any]:
    """The package keeps scalars as 32-bit floats."""
    return (type(value).__name__, float(np.float32(value)) if isinstance(value, float) else value)


def assert_same(ours: FlatGraph, text: str, lowered: Sequence[str] = (), *, shapes: bool = True) -> None:
    """Check that the package flattens a document to the same operations, arguments, outputs and shapes."""
    reference = nnef.parse_string(text, lowered=list(lowered))
    if shapes:
        nnef.infer_shapes(reference)
    canonical = Canonical()
    mine, theirs = canonical.ours(ours), canonical.theirs(reference)
    assert [tensor.name for tensor in ours.inputs] == list(reference.inputs)
    assert mine["operations"] == theirs["operations"]
    assert mine["outputs"] == theirs["outputs"]
    if shapes:
        assert mine["shapes"] == theirs["shapes"]


_WORKER = """
import json, sys, nnef
for line in sys.stdin:
    text, lowered = json.loads(line)
    try:
        nnef.parse_string(text, lowered=lowered)
        verdict = ""
    except nnef.Error as error:
        verdict = str(error) or "error"
    print(json.dumps(verdict), flush=True)
"""


def verdicts(texts: Sequence[str], lowered: Sequence[str], seconds: float = 20) -> list[str | None]:
    """What the package says of documents: "" if it takes one, else its message; None where it crashes or hangs.

    It runs in a process of its own: broken documents make it run into its assertions.
    """
    found: list[str | None] = []
    while len(found) < len(texts):
        lines = "".join(json.dumps([text, list(lowered)]) + "\n" for text in texts[len(found) :])
        process = subprocess.Popen(
            [sys.executable, "-c", _WORKER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        try:
            output, _ = process.communicate(lines, timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            output, _ = process.communicate()
        found += [json.loads(line) for line in output.splitlines()]
        if len(found) < len(texts):
            found.append(None)
    return found
