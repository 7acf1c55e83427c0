"""Random loops with data-dependent sizes: states that grow, what is found in each row, sequences; for comparison.

A model is a loop over the rows of `x: [n, w]`, both open, whose body is a chain of random steps on a row.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["random_feeds", "random_loop"]

FLOAT, INT, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
_INTEGERS = {"none": 0, "first": [0], "two": [2]}
_REALS = {"level": 0.5, "start": 0.0, "limit": 2.0, "zero": 0.0, "unit": 1.0, "seed": [1.0]}


class _Walk:
    """Writes the nodes of a body; a value is its name, and whether it is a vector or a real."""

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self.nodes: list[onnx.NodeProto] = []
        self._names = 0

    def add(self, op_type: str, inputs: str, **attributes: Any) -> str:
        """The first output of a node."""
        self._names += 1
        name = f"v{self._names}"
        outputs = [name, f"{name}_positions"] if op_type == "TopK" else [name]
        self.nodes.append(helper.make_node(op_type, inputs.split(), outputs, **attributes))
        return name

    def some(self, *choices: Any) -> Any:
        """One of these."""
        return choices[int(self._rng.integers(len(choices)))]

    def step(self, vector: str) -> str:
        """A vector from a vector, of another data-dependent size, or of the same."""
        match self.some("found", "unique", "best", "shorter", "calm", "joined"):
            case "found":
                mask = self.add("Greater", f"{vector} level")
                return self.add("Compress", f"{vector} {mask}", axis=0)
            case "unique":
                return self.add("Unique", self.add("Round", vector), axis=0)
            case "best":
                size = self.add("Shape", vector)
                fewer = self.add("Div", f"{size} two")
                return self.add("TopK", f"{vector} {fewer}", axis=0)
            case "shorter":
                total = self.add("Cast", self.add("ReduceSum", vector, keepdims=0), to=INT)
                end = self.add("Unsqueeze", self.add("Abs", total) + " first")
                return self.add("Slice", f"{vector} first {end}")
            case "calm":
                return self.add(self.some("Tanh", "Abs", "Sigmoid"), vector)
        return self.add("Concat", f"{vector} {self.add('Neg', vector)}", axis=0)

    def real(self, vector: str) -> str:
        """A number that says much of a vector."""
        weights = self.add("CumSum", self.add("Add", f"{self.add('Mul', f'{vector} zero')} unit") + " none")
        return self.add("ReduceSum", self.add("Mul", f"{vector} {weights}"), keepdims=0)

    def loop(self) -> onnx.GraphProto:
        """A loop over rows, with some outputs."""
        vector = self.add("Gather", "x i")
        for _ in range(int(self._rng.integers(1, 5))):
            vector = self.step(vector)
        number = self.real(vector)
        grows, collects, ends = (bool(self._rng.integers(2)) for _ in range(3))
        states = {"a": ("start", self.add("Add", f"a {number}"))}
        if grows:
            grown = self.some(self.add("Unsqueeze", f"{number} first"), vector)
            states["s"] = ("seed", self.add("Concat", f"s {grown}", axis=0))
        if collects:
            states["q"] = ("nothing", self.add("SequenceInsert", f"q {number}"))
        on = self.add("Less", f"{self.add('Abs', number)} limit") if ends else self.add("Identity", "c")
        scanned = [] if ends and grows else [self.add("Identity", number)]
        body = helper.make_graph(
            self.nodes,
            "body",
            [_tensor("i", [], INT), _tensor("c", [], BOOL), *(_state(name, name) for name in states)],
            [
                _tensor(on, [], BOOL),
                *(_state(name, after) for name, (_, after) in states.items()),
                *(_tensor(name, []) for name in scanned),
            ],
        )
        last = [f"{name}_last" for name in states]
        inputs = ["trips", "", *(first for first, _ in states.values())]
        nodes = [
            helper.make_node("Shape", ["x"], ["size"], start=0, end=1),
            helper.make_node("Squeeze", ["size"], ["trips"]),
            *([helper.make_node("SequenceEmpty", [], ["nothing"])] if collects else []),
            helper.make_node("Loop", inputs, [*last, *["each"] * len(scanned)], body=body),
            *([helper.make_node("ConcatFromSequence", ["q_last"], ["all"], axis=0, new_axis=1)] if collects else []),
        ]
        outputs = [name for name in last if name != "q_last"] + ["each"] * len(scanned) + ["all"] * collects
        return helper.make_graph(
            nodes, "loops", [_tensor("x", ["n", "w"])], [_tensor(name, None) for name in outputs], _constants()
        )


def random_loop(seed: int) -> onnx.ModelProto:
    """A model of a loop, with a trip count and perhaps a condition."""
    graph = _Walk(np.random.default_rng(seed)).loop()
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _constants() -> list[onnx.TensorProto]:
    integers = {name: np.array(value, np.int64) for name, value in _INTEGERS.items()}
    reals = {name: np.array(value, np.float32) for name, value in _REALS.items()}
    return [numpy_helper.from_array(value, name) for name, value in (integers | reals).items()]


def _tensor(name: str, shape: Any, kind: int = FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def _state(kind: str, name: str) -> onnx.ValueInfoProto:
    """`q` is a sequence, the others are tensors."""
    return _sequence(name) if kind == "q" else _tensor(name, None)


def _sequence(name: str) -> onnx.ValueInfoProto:
    return helper.make_value_info(name, helper.make_sequence_type_proto(helper.make_tensor_type_proto(FLOAT, None)))


def random_feeds(seed: int, count: int) -> list[dict[str, np.ndarray]]:
    """Inputs of as many sizes."""
    rng = np.random.default_rng(seed)
    shapes = [(int(rng.integers(1, 30)), int(rng.integers(1, 12))) for _ in range(count)]
    return [{"x": rng.standard_normal(shape).astype(np.float32)} for shape in shapes]
