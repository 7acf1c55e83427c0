"""Random networks whose batch, height and width are open, for comparison with NumPy at any size.

A network is a list of steps, each of which makes a value of those before; it is built once with dynamic sizes, and
again for every size, in NumPy. No step may depend on a dynamic size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from relax_programs import Graph, Value, opened
from tvm import relax, tirx

from nnefc.ir.network import Network

__all__ = ["DynamicCase", "random_dynamic_case"]

Step = Callable[[Graph, Sequence[Value]], Value]

_CHANNELS = (1, 3, 8, 16, 17, 32)
_CALM = ("relu", "leakyrelu", "sigmoid", "silu", "tanh", "abs", "clip", "sin")


class _DynamicGraph(Graph):
    """Emits operations on tensors of dynamic sizes; their values here are of no use."""

    def emit(self, expr: relax.Expr, array: np.ndarray) -> Value:
        return Value(self._builder.emit(expr), array)


@dataclass(frozen=True)
class DynamicCase:
    """A network of one input, [n, channels, h, w].

    Attributes:
        steps: what makes each further value.
        outputs: the numbers of the values that are outputs.
    """

    network: Network
    channels: int
    steps: Sequence[Step]
    outputs: Sequence[int]

    def expected(self, x: np.ndarray) -> list[np.ndarray]:
        """The outputs by NumPy, in float64."""
        builder = relax.BlockBuilder()
        param = relax.Var("x", relax.TensorType(x.shape, "float32"))
        with builder.function("main", [param]):
            with builder.dataflow():
                values = _replayed(Graph(builder), Value(param, x.astype(np.float64)), self.steps)
                result = builder.emit_output(values[-1].expr)
            builder.emit_func_output(result)
        return [values[number].array for number in self.outputs]


def _replayed(graph: Graph, x: Value, steps: Sequence[Step]) -> list[Value]:
    values = [x]
    for step in steps:
        values.append(step(graph, values))
    return values


def random_dynamic_case(seed: int, steps: int) -> DynamicCase:
    """A network of so many steps."""
    rng = np.random.default_rng(seed)
    channels = int(rng.choice(_CHANNELS))
    n, h, w = (tirx.Var(name, "int64") for name in "nhw")
    x = relax.Var("x", relax.TensorType((n, channels, h, w), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            walk = _Walk(rng, _DynamicGraph(builder), Value(x, np.zeros((2, channels, 24, 24))))
            while len(walk.steps) < steps:
                walk.go()
            last = len(walk.values) - 1
            outputs = sorted({last, *(int(i) for i in rng.integers(1, last + 1, 2))})
            result = builder.emit_output(relax.Tuple([walk.values[number].expr for number in outputs]))
        builder.emit_func_output(result)
    names = tuple(f"y{number}" for number in outputs)
    return DynamicCase(opened(Network("open", builder.finalize(), ("x",), names)), channels, walk.steps, outputs)


class _Walk:
    """Chooses steps by what is known of shapes at compile time."""

    def __init__(self, rng: np.random.Generator, graph: Graph, x: Value) -> None:
        self._rng = rng
        self._graph = graph
        self.values = [x]
        self.steps: list[Step] = []

    def go(self) -> None:
        """Take a step, if the one that is tried makes sense."""
        at = max(0, len(self.values) - 1 - int(self._rng.exponential(1.5)))
        chosen = (
            *[self._convolution] * 4, *[self._pooling] * 2, *[self._activation] * 2, *[self._join] * 3, self._gate,
            self._concatenation, self._reduction, self._softmax, self._transposition, *[self._product] * 2,
        )  # fmt: skip
        step = chosen[int(self._rng.integers(len(chosen)))](at, self._shape(at))
        if step is not None:
            self.steps.append(step)
            self.values.append(step(self._graph, self.values))

    def _shape(self, at: int) -> list[int | str]:
        """Sizes as numbers, and as texts where they are open."""
        sizes = self.values[at].expr.ty.shape.values
        return [int(size) if isinstance(size, tirx.IntImm) else str(size) for size in sizes]

    def _random(self, *shape: int) -> np.ndarray:
        scale = 1 / math.sqrt(max(1, math.prod(shape[1:])))
        return (self._rng.standard_normal(shape) * scale).astype(np.float32)

    def _some(self, *values: int) -> int:
        return int(self._rng.choice(values))

    def _is_image(self, shape: Sequence[int | str]) -> bool:
        return len(shape) == 4 and isinstance(shape[1], int)

    def _convolution(self, at: int, shape: Sequence[int | str]) -> Step | None:
        """No output is smaller than 1, for images of any size."""
        if not self._is_image(shape):
            return None
        channels = int(shape[1])
        groups, made = (channels, channels) if self._some(0, 0, 1) else (1, self._some(*_CHANNELS))
        kernel, stride, dilation = self._some(1, 3, 3, 5), self._some(1, 1, 2), self._some(1, 1, 2)
        weights, bias = self._random(made, channels // groups, kernel, kernel), self._random(made, 1, 1)
        room = dilation * (kernel - 1)
        padding = [room // 2, room // 2, room - room // 2, room - room // 2]
        activation = str(self._rng.choice(_CALM))

        def step(graph: Graph, values: Sequence[Value]) -> Value:
            made = graph.convolve(values[at], weights, stride, padding, dilation, groups)
            return graph.unary(activation, graph.binary("add", made, graph.constant(bias)))

        return step

    def _pooling(self, at: int, shape: Sequence[int | str]) -> Step | None:
        if not self._is_image(shape):
            return None
        size, stride = self._some(2, 3), self._some(1, 2)
        if self._some(0, 1):
            return lambda graph, values: graph.max_pool(values[at], size, stride, [size // 2] * 4)
        return lambda graph, values: graph.average_pool(values[at], size, stride, [size // 2] * 4)

    def _activation(self, at: int, shape: Sequence[int | str]) -> Step:
        name = str(self._rng.choice(_CALM))
        return lambda graph, values: graph.unary(name, values[at])

    def _join(self, at: int, shape: Sequence[int | str]) -> Step | None:
        others = [i for i in range(len(self.values)) if self._shape(i) == shape]
        other, name = self._some(*others), str(self._rng.choice(["add", "multiply", "maximum"]))
        return lambda graph, values: graph.unary("tanh", graph.binary(name, values[at], values[other]))

    def _gate(self, at: int, shape: Sequence[int | str]) -> Step | None:
        """Squeeze and excitation."""
        if not self._is_image(shape):
            return None
        weights = self._random(int(shape[1]), int(shape[1]), 1, 1)

        def step(graph: Graph, values: Sequence[Value]) -> Value:
            factor = graph.unary("sigmoid", graph.convolve(graph.reduce("mean", values[at], [2, 3]), weights))
            return graph.binary("multiply", values[at], factor)

        return step

    def _concatenation(self, at: int, shape: Sequence[int | str]) -> Step:
        axis = self._some(*range(len(shape)))
        others = [i for i in range(len(self.values)) if self._shape(i) == shape]
        other = self._some(*others)
        return lambda graph, values: graph.concatenate([values[at], values[other]], axis)

    def _reduction(self, at: int, shape: Sequence[int | str]) -> Step:
        axes = sorted(self._rng.choice(len(shape), self._some(1, 2), replace=False).tolist())
        name = str(self._rng.choice(["mean", "max"]))
        return lambda graph, values: graph.reduce(name, values[at], axes)

    def _softmax(self, at: int, shape: Sequence[int | str]) -> Step:
        axis = self._some(*range(len(shape)))
        return lambda graph, values: graph.softmax(values[at], axis)

    def _transposition(self, at: int, shape: Sequence[int | str]) -> Step:
        axes = self._rng.permutation(len(shape)).tolist()
        return lambda graph, values: graph.transpose(values[at], axes)

    def _product(self, at: int, shape: Sequence[int | str]) -> Step:
        """With a constant, or with the tensor's own transpose."""
        if isinstance(shape[-1], int):
            weights = self._random(self._some(1, 8, 17, 32), shape[-1]).T
            return lambda graph, values: graph.matmul(values[at], graph.constant(np.ascontiguousarray(weights)))
        axes = [*range(len(shape) - 2), len(shape) - 1, len(shape) - 2]

        def step(graph: Graph, values: Sequence[Value]) -> Value:
            x = graph.softmax(values[at], -1)
            return graph.matmul(x, graph.transpose(x, axes))

        return step
