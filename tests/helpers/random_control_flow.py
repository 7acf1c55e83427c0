"""Random models of ONNX with branches and loops inside each other."""

from __future__ import annotations

import random

import numpy as np
import onnx
from onnx_models import BOOL, INT64, graph, info, model, node, tensor

__all__ = ["random_control_flow"]


def random_control_flow(seed: int) -> onnx.ModelProto:
    """A model with the inputs `x`, `[3, 3]` float32, and `m`, a trip count; its values stay between -1 and 1."""
    return _Writer(seed).model()


def _square(name: str) -> onnx.ValueInfoProto:
    return info(name, (3, 3))


class _Writer:
    """Writes random graphs of branches and loops inside each other; values stay between -1 and 1."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.count = 0

    def name(self) -> str:
        self.count += 1
        return f"v{self.count}"

    def pick(self, visible: list[str]) -> str:
        return self.random.choice(visible[-4:] if self.random.random() < 0.7 else visible)

    def nodes(self, visible: list[str], depth: int) -> tuple[list[onnx.NodeProto], list[str]]:
        """Some nodes that use what is visible; returns them and what is visible after them."""
        made: list[onnx.NodeProto] = []
        visible = list(visible)
        for _ in range(self.random.randint(1, 4)):
            kinds = ["unary", "binary", "product"] + (["choice", "loop", "loop"] if depth < 3 else [])
            new, names = getattr(self, self.random.choice(kinds))(visible, depth)
            made += new
            visible += names
        return made, visible

    def unary(self, visible: list[str], _depth: int) -> tuple[list[onnx.NodeProto], list[str]]:
        name = self.name()
        return [node(self.random.choice(["Tanh", "Sin", "Neg", "Identity"]), [self.pick(visible)], [name])], [name]

    def binary(self, visible: list[str], _depth: int) -> tuple[list[onnx.NodeProto], list[str]]:
        name, inner = self.name(), self.name()
        operands = [self.pick(visible), self.pick(visible)]
        return [node(self.random.choice(["Add", "Sub", "Mul"]), operands, [inner]), node("Sin", [inner], [name])], [
            name
        ]

    def product(self, visible: list[str], _depth: int) -> tuple[list[onnx.NodeProto], list[str]]:
        name, inner = self.name(), self.name()
        return [node("MatMul", [self.pick(visible), "w"], [inner]), node("Tanh", [inner], [name])], [name]

    def condition(self, visible: list[str]) -> tuple[list[onnx.NodeProto], str]:
        total, name = self.name(), self.name()
        limit = self.random.choice(["low", "zero", "high"])
        return [
            node("ReduceSum", [self.pick(visible)], [total], keepdims=0),
            node("Less", [total, limit], [name]),
        ], name

    def choice(self, visible: list[str], depth: int) -> tuple[list[onnx.NodeProto], list[str]]:
        before, condition = self.condition(visible)
        count = self.random.randint(1, 2)
        branches = []
        for _ in range(2):
            nodes, inside = self.nodes(visible, depth + 1)
            outputs = [self.name() for _ in range(count)]
            nodes += [node("Identity", [self.pick(inside)], [name]) for name in outputs]
            branches.append(graph(nodes, [], [_square(name) for name in outputs], name=self.name()))
        names = [self.name() for _ in range(count)]
        return [*before, node("If", [condition], names, then_branch=branches[0], else_branch=branches[1])], names

    def loop(self, visible: list[str], depth: int) -> tuple[list[onnx.NodeProto], list[str]]:
        """By a number known or given, by a condition, or by both; sometimes with an output of each iteration."""
        states = self.random.randint(1, 3)
        trips = self.random.choice(["m", "two", "many" if depth == 0 else "two", "three"])
        ends = self.random.random() < 0.4
        number, go, on = self.name(), self.name(), self.name()
        params = [self.name() for _ in range(states)]
        nodes, inside = self.nodes([*visible, *params], depth + 1)
        if ends:
            more, condition = self.condition(inside)
            nodes += more
        nodes.append(node("Identity", [condition if ends else go], [on]))
        new = [self.name() for _ in range(states)]
        nodes += [node("Identity", [self.pick([*inside[len(visible) :]])], [name]) for name in new]
        scan = [self.name()] if trips != "m" and not ends and self.random.random() < 0.5 else []
        nodes += [node("ReduceMean", [self.pick(inside), "first"], [name], keepdims=0) for name in scan]
        inner = graph(
            nodes,
            [info(number, (), INT64), info(go, (), BOOL), *map(_square, params)],
            [info(on, (), BOOL), *map(_square, new), *(info(name, (3,)) for name in scan)],
            name=self.name(),
        )
        names = [self.name() for _ in range(states)]
        stacked = [self.name() for _ in scan]
        made = [node("Loop", [trips, "", *(self.pick(visible) for _ in params)], [*names, *stacked], body=inner)]
        for name in stacked:
            mean, spread = self.name(), self.name()
            made += [node("ReduceMean", [name, "first"], [mean], keepdims=0), node("Add", ["x", mean], [spread])]
            made.append(node("Sin", [spread], [self.name()]))
            names.append(made[-1].output[0])
        return made, names

    def model(self) -> onnx.ModelProto:
        nodes, visible = self.nodes(["x", "w"], 0)
        while not any(element.op_type in ("If", "Loop") for element in nodes):
            nodes, visible = self.nodes(["x", "w"], 0)
        outputs = list(dict.fromkeys([visible[-1], *self.random.sample(visible[2:], min(2, len(visible) - 2))]))
        constants = [
            tensor("w", np.random.default_rng(self.count).uniform(-1, 1, (3, 3))),
            *(tensor(name, value) for name, value in [("low", -1), ("zero", 0), ("high", 1)]),
            *(tensor(name, value, np.int64) for name, value in [("two", 2), ("three", 3), ("many", 400)]),
            tensor("first", [0], np.int64),
        ]
        return model(nodes, [_square("x"), info("m", (), INT64)], [_square(name) for name in outputs], constants)
