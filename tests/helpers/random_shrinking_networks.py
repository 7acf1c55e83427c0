"""Random ONNX networks of dynamic width that cut so much off it that some tensors have no elements where it is small.

A network is a list of steps, each of which makes a tensor [2, channels, width] of those before; it is computed in NumPy
for any width of its input.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["CutCase", "random_cut_case"]

_Function = Callable[..., np.ndarray]

_CHANNELS = (1, 3, 8, 17)
_END = (1 << 31) - 1
_EXAMPLES = (*range(1, 10), 16, 25, 40, 300)


@dataclass(frozen=True)
class CutCase:
    """A network of one input, [2, channels, "w"].

    Attributes:
        steps: what makes each further tensor, and of which ones.
        outputs: the numbers of the tensors that are outputs.
    """

    model: onnx.ModelProto
    channels: int
    steps: Sequence[tuple[_Function, Sequence[int]]]
    outputs: Sequence[int]

    def expected(self, x: np.ndarray) -> list[np.ndarray]:
        """The outputs by NumPy, in float64."""
        values = [x.astype(np.float64)]
        for function, operands in self.steps:
            values.append(function(*(values[number] for number in operands)))
        return [values[number] for number in self.outputs]


def random_cut_case(seed: int, steps: int) -> CutCase:
    """A network of so many steps."""
    walk = _Walk(np.random.default_rng(seed))
    while len(walk.steps) < steps:
        walk.go()
    outputs = sorted({steps, *(int(number) for number in walk.rng.integers(1, steps + 1, 2))})
    shape = [2, walk.channels, "w"]
    graph = helper.make_graph(
        walk.nodes,
        "cut",
        [helper.make_tensor_value_info("t0", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info(f"t{number}", TensorProto.FLOAT, None) for number in outputs],
        walk.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return CutCase(model, walk.channels, walk.steps, outputs)


class _Walk:
    """Chooses steps by the shapes that tensors have for some widths of the input."""

    def __init__(self, rng: np.random.Generator) -> None:
        self.rng = rng
        self.channels = self._some(*_CHANNELS)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self.steps: list[tuple[_Function, Sequence[int]]] = []
        self._examples = [[np.zeros((2, self.channels, width)) for width in _EXAMPLES]]

    def go(self) -> None:
        """Take a step, if the one that is tried makes sense."""
        at = max(0, len(self._examples) - 1 - int(self.rng.exponential(1.5)))
        kinds = (
            *[self._cut] * 4, *[self._added] * 3, self._padding, *[self._pooling] * 2, self._total, self._product,
            self._convolution, self._activation, self._softmax, self._join, self._concatenation,
        )  # fmt: skip
        kinds[int(self.rng.integers(len(kinds)))](at)

    def _some(self, *values: int) -> int:
        return int(self.rng.choice(values))

    def _random(self, *shape: int) -> np.ndarray:
        return self.rng.standard_normal(shape).astype(np.float32)

    def _widths(self, at: int) -> list[int]:
        return [example.shape[2] for example in self._examples[at]]

    def _constant(self, value: np.ndarray | Sequence[int]) -> str:
        name = f"k{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def _emit(self, kind: str, function: _Function, operands: Sequence[int], *more: str, **attributes: object) -> None:
        """A node; `more` are constants, after the operands."""
        self._note(kind, [*(f"t{number}" for number in operands), *more], function, operands, **attributes)

    def _note(
        self, kind: str, names: Sequence[str], function: _Function, operands: Sequence[int], **attributes: object
    ) -> None:
        self.steps.append((function, operands))
        self.nodes.append(helper.make_node(kind, names, [f"t{len(self.steps)}"], **attributes))
        examples = zip(*(self._examples[number] for number in operands), strict=True)
        self._examples.append([function(*values) for values in examples])

    def _cut(self, at: int) -> None:
        begin, end, step = self._some(0, 0, 1, 2, 4), self._some(0, 0, 1, 2, 5), self._some(1, 1, 1, 2, 3)
        ends = -end if end else _END
        more = [self._constant([number]) for number in (begin, ends, 2, step)]
        self._emit("Slice", lambda x: x[:, :, begin:ends:step], [at], *more)

    def _added(self, at: int) -> None:
        """Positions of known values, before or after the others."""
        elements = self._random(2, self._examples[at][0].shape[1], self._some(1, 2, 3))
        order = self._some(1, -1)
        names = [f"t{at}", self._constant(elements)][::order]
        self._note("Concat", names, lambda x: np.concatenate([x, elements][::order], 2), [at], axis=2)

    def _padding(self, at: int) -> None:
        before, after = self._some(0, 1, 3), self._some(0, 1, 2)
        more = self._constant([0, 0, before, 0, 0, after])
        self._emit("Pad", lambda x: np.pad(x, [(0, 0), (0, 0), (before, after)]), [at], more)

    def _pooling(self, at: int) -> None:
        """Without padding; from one result on, no size is negative."""
        width, stride = [(3, 2), (4, 3), (5, 4), (2, 2)][self._some(0, 1, 2, 3)]
        if min(self._widths(at)) == 0:
            return

        def function(x: np.ndarray) -> np.ndarray:
            count = (x.shape[2] - width) // stride + 1
            parts = [x[:, :, n * stride : n * stride + width].max(2) for n in range(count)]
            return np.stack(parts, 2) if parts else x[:, :, :0]

        self._emit("MaxPool", function, [at], kernel_shape=[width], strides=[stride])

    def _total(self, at: int) -> None:
        axis = self._some(1, 2, 2)
        self._emit("ReduceSum", lambda x: x.sum(axis, keepdims=True), [at], self._constant([axis]))

    def _product(self, at: int) -> None:
        """Of all channels with each other; over no elements it is 0."""
        equation = "ncw,nmw->ncm"
        self._emit("Einsum", lambda x, y: np.einsum(equation, x, y), [at, at], equation=equation)

    def _convolution(self, at: int) -> None:
        channels, made = self._examples[at][0].shape[1], self._some(*_CHANNELS)
        if max(self._widths(at)) == 0:  # refused, as in other compilers
            return
        weights = self._random(made, channels, 3) / np.float32(3 * channels) ** 0.5

        def function(x: np.ndarray) -> np.ndarray:
            padded = np.pad(x, [(0, 0), (0, 0), (1, 1)])
            return sum(np.einsum("oc,ncw->now", weights[:, :, k], padded[:, :, k : k + x.shape[2]]) for k in range(3))

        self._emit("Conv", function, [at], self._constant(weights), pads=[1, 1])

    def _activation(self, at: int) -> None:
        kind, function = [("Tanh", np.tanh), ("Sigmoid", lambda x: 1 / (1 + np.exp(-x)))][self._some(0, 1)]
        self._emit(kind, function, [at])

    def _softmax(self, at: int) -> None:
        def function(x: np.ndarray) -> np.ndarray:
            powers = np.exp(x - x.max(1, keepdims=True))
            return powers / powers.sum(1, keepdims=True)

        self._emit("Softmax", function, [at], axis=1)

    def _join(self, at: int) -> None:
        shapes = [[value.shape for value in examples] for examples in self._examples]
        other = self._some(*(number for number, found in enumerate(shapes) if found == shapes[at]))
        self._emit("Add", np.add, [at, other])

    def _concatenation(self, at: int) -> None:
        channels = [examples[0].shape[1] for examples in self._examples]
        other = self._some(*(number for number, found in enumerate(channels) if found == channels[at]))
        self._emit("Concat", lambda x, y: np.concatenate([x, y], 2), [at, other], axis=2)
