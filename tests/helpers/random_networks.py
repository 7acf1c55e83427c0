"""Random networks of ordinary operations over awkward shapes, for comparison with NumPy."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from relax_programs import Case, Graph, Value

__all__ = ["Step", "Walk", "random_case"]

_CHANNELS = (1, 2, 3, 5, 8, 16, 16, 17, 24, 32, 32, 33, 48)
_SIZES = {1: (1, 2, 7, 16, 31, 64), 2: (1, 2, 5, 8, 13, 16, 19), 3: (1, 3, 4, 6, 7)}
_CALM = ("relu", "leakyrelu", "sigmoid", "silu", "gelu", "tanh", "erf", "abs", "negative", "sin", "cos", "atan", "clip")


def random_case(seed: int, steps: int) -> Case:
    """A random graph of about `steps` operations with one or two inputs and several outputs."""
    rng = np.random.default_rng(seed)
    rank = int(rng.choice([1, 2, 2, 2, 2, 3]))
    inputs = []
    for _ in range(int(rng.integers(1, 3))):
        spatial = rng.choice(_SIZES[rank], rank)
        shape = (int(rng.choice([1, 1, 1, 2, 3])), int(rng.choice(_CHANNELS)), *map(int, spatial))
        inputs.append(rng.standard_normal(shape).astype(np.float32))
    return Case(inputs, lambda graph, *xs: Walk(graph, rng, xs).outputs(steps), 1e-4, f"seed {seed}")


# Takes a walk of some kind and a value, and returns a new value, or None where it makes no sense.
Step = Callable[[Any, Value], "Value | None"]


class Walk:
    """A random walk through operations: each step makes a value of those before.

    Attributes:
        largest: elements of a tensor.
        kept: values that are outputs in any case.
    """

    largest = 1 << 15

    def __init__(self, graph: Graph, rng: np.random.Generator, values: Sequence[Value]) -> None:
        self.graph = graph
        self.rng = rng
        self.values = list(values)
        self.kept: list[Value] = []

    def steps(self) -> Sequence[Step]:
        """What may be done next; one is as likely as it occurs often."""
        return _STEPS

    def outputs(self, count: int) -> list[Value]:
        """Take `count` random steps, and return the last value and some of the others."""
        made, steps = 0, self.steps()
        for _ in range(20 * count):
            step = steps[int(self.rng.integers(len(steps)))]
            value = step(self, self.pick())
            if value is None:
                continue
            value = self.calmed(value)
            if value.array.size > self.largest:
                continue
            self.values.append(value)
            made += 1
            if made == count:
                break
        chosen = self.rng.choice(len(self.values), int(self.rng.integers(1, 4)))
        extra = [self.graph.constant(self.random((3,)))] if self.chance(0.05) else []
        return [self.values[-1], *(self.values[int(i)] for i in chosen), *extra, *self.kept]

    def pick(self) -> Value:
        """A value, rather a late one."""
        back = min(int(self.rng.exponential(2.0)), len(self.values) - 1)
        return self.values[-1 - back]

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)

    def random(self, shape: Sequence[int], scale: float = 1.0) -> np.ndarray:
        return (self.rng.standard_normal(shape) * scale).astype(np.float32)

    def some(self, low: int, high: int, count: int) -> list[int]:
        return [int(v) for v in self.rng.integers(low, high + 1, count)]

    def calmed(self, value: Value) -> Value:
        """Values near 1, so that rounding stays small and no function overflows."""
        largest = float(np.abs(value.array).max(initial=0))
        if largest <= 8:
            return value
        if self.chance(0.5) or not math.isfinite(largest):
            return self.graph.unary("tanh", value)
        scale = np.array(2.0 ** -math.ceil(math.log2(largest / 4)), np.float32)
        return self.graph.binary("multiply", value, self.graph.constant(scale))

    # Steps.

    def convolution(self, x: Value) -> Value | None:
        if not 3 <= len(x.shape) <= 5:
            return None
        rank, channels = len(x.shape) - 2, x.shape[1]
        groups = (
            int(self.rng.choice([g for g in range(1, channels + 1) if channels % g == 0])) if self.chance(0.4) else 1
        )
        if self.chance(0.15):
            groups = channels
        per_group = int(self.rng.choice(_CHANNELS))
        outputs = channels if groups == channels and self.chance(0.7) else groups * max(1, per_group // groups)
        kernel = [3] * rank if self.chance(0.4) else self.some(1, 4, rank)
        strides = [1] * rank if self.chance(0.6) else self.some(1, 3, rank)
        dilation = [1] * rank if self.chance(0.8) else self.some(1, 2, rank)
        padding = [1] * 2 * rank if self.chance(0.4) else self.some(0, 2, 2 * rank)
        for axis in range(rank):
            missing = (kernel[axis] - 1) * dilation[axis] + 1 - x.shape[2 + axis] - padding[axis] - padding[rank + axis]
            padding[axis] += max(0, missing)
        inputs = channels // groups
        weights = self.random((outputs, inputs, *kernel), 1 / math.sqrt(inputs * math.prod(kernel)))
        result = self.graph.convolve(x, weights, strides, padding, dilation, groups)
        if self.chance(0.5):
            result = self.per_channel(result)
        if self.chance(0.5):
            result = self.graph.unary("relu", result)
        return result

    def pooling(self, x: Value) -> Value | None:
        if not 3 <= len(x.shape) <= 5:
            return None
        rank = len(x.shape) - 2
        size = self.some(1, 4, rank)
        strides, dilation = self.some(1, 3, rank), [1] * rank if self.chance(0.8) else self.some(1, 2, rank)
        padding = [int(self.rng.integers(0, k // 2 + 1)) for k in (*size, *size)]
        for axis in range(rank):
            missing = (size[axis] - 1) * dilation[axis] + 1 - x.shape[2 + axis] - padding[axis] - padding[rank + axis]
            if missing > 0:
                return None
        ceil = self.chance(0.3)
        rooms = [x.shape[2 + a] + padding[a] + padding[rank + a] - (size[a] - 1) * dilation[a] - 1 for a in range(rank)]
        last = [-(-room // s) * s for room, s in zip(rooms, strides, strict=True)]
        if ceil and any(at >= x.shape[2 + a] + padding[a] for a, at in enumerate(last)):
            ceil = False  # the last window would see nothing but padding
        if self.chance(0.5):
            return self.graph.max_pool(x, size, strides, padding, dilation, ceil)
        if any(d > 1 for d in dilation):
            return None
        return self.graph.average_pool(x, size, strides, padding, dilation, ceil, self.chance(0.5))

    def per_channel(self, x: Value) -> Value:
        name = str(self.rng.choice(["add", "multiply", "subtract", "divide", "maximum", "minimum"]))
        if len(x.shape) < 2:
            shape: tuple[int, ...] = ()
        else:
            channels = (x.shape[1],) + (1,) * (len(x.shape) - 2)
            shape = [(1, *channels), channels, (), (1,) * len(x.shape), x.shape][int(self.rng.integers(5))]
        array = self.random(shape)
        if name == "divide":
            array = np.copysign(np.abs(array) + 0.5, array)
        constant = self.graph.constant(array)
        if name != "divide" and self.chance(0.3):
            return self.graph.binary(name, constant, x)
        return self.graph.binary(name, x, constant)

    def activation(self, x: Value) -> Value:
        return self.graph.unary(str(self.rng.choice(_CALM)), x)

    def wild(self, x: Value) -> Value:
        """A function that zeros are not in the domain of, of a positive value."""
        shape = (1, x.shape[1]) + (1,) * (len(x.shape) - 2) if len(x.shape) > 1 and self.chance(0.7) else ()
        bound = self.graph.constant(np.abs(self.random(shape)) + np.float32(0.3))
        positive = self.graph.binary(str(self.rng.choice(["maximum", "add"])), self.graph.unary("abs", x), bound)
        name = str(self.rng.choice(["log", "sqrt", "rsqrt", "exp", "power", "divide", "invert", "cosh"]))
        match name:
            case "power":
                return self.graph.binary("power", positive, self.graph.constant(np.float32(0.7)))
            case "invert":
                return self.graph.binary("divide", self.graph.constant(np.float32(1)), positive)
            case "divide":
                return self.graph.binary("divide", x, positive)
        return self.graph.unary(name, positive)

    def join(self, x: Value) -> Value | None:
        """A binary operation with another value that broadcasts against this one."""
        found = [v for v in self.values if _broadcasts(v.shape, x.shape)]
        y = found[int(self.rng.integers(len(found)))]
        name = str(self.rng.choice(["add", "multiply", "subtract", "maximum", "minimum"]))
        return self.graph.binary(name, *((x, y) if self.chance(0.7) else (y, x)))

    def concatenation(self, x: Value) -> Value | None:
        axis = int(self.rng.integers(len(x.shape))) if self.chance(0.4) else min(1, len(x.shape) - 1)
        tail = x.shape[:axis] + x.shape[axis + 1 :]
        found = [
            v for v in self.values if len(v.shape) == len(x.shape) and v.shape[:axis] + v.shape[axis + 1 :] == tail
        ]
        parts = [x, *(found[int(i)] for i in self.rng.integers(len(found), size=int(self.rng.integers(0, 4))))]
        return self.graph.concatenate(parts, axis - len(x.shape) if self.chance(0.3) else axis)

    def reduction(self, x: Value) -> Value | None:
        rank = len(x.shape)
        count = int(self.rng.integers(1, rank + 1))
        spatial = list(range(2, rank))
        axes = sorted(int(a) for a in self.rng.choice(rank, count, replace=False))
        if spatial and self.chance(0.6):
            axes = spatial
        keep = self.chance(0.8) or count == rank
        return self.graph.reduce(str(self.rng.choice(["mean", "sum", "max", "min"])), x, axes, keep)

    def gate(self, x: Value) -> Value | None:
        """Squeeze and excitation: a factor for each channel."""
        if not 3 <= len(x.shape) <= 5:
            return None
        mean = self.graph.reduce("mean", x, range(2, len(x.shape)))
        squeezed = self.convolution(mean) if self.chance(0.5) else mean
        weights = self.random((x.shape[1], squeezed.shape[1], *(1,) * (len(x.shape) - 2)))
        if squeezed.shape[2:] != (1,) * (len(x.shape) - 2):
            return None
        factor = self.graph.unary("sigmoid", self.graph.convolve(squeezed, weights))
        return self.graph.binary("multiply", x, factor)

    def reshape(self, x: Value) -> Value:
        size = x.array.size
        divisors = [d for d in range(1, min(size, 64) + 1) if size % d == 0]
        shapes = [(x.shape[0], size // x.shape[0]), (size,), (1, *x.shape)[:5] if len(x.shape) < 5 else (size,)]
        a = int(self.rng.choice(divisors))
        b = int(self.rng.choice([d for d in divisors if (size // a) % d == 0]))
        shapes += [(1, a, b, size // a // b), (a, size // a), (1, a, size // a), (size // a // b, a, b, 1)]
        return self.graph.reshape(x, shapes[int(self.rng.integers(len(shapes)))])

    def transpose(self, x: Value) -> Value:
        return self.graph.transpose(x, [int(a) for a in self.rng.permutation(len(x.shape))])

    def square_and_transpose(self, x: Value) -> Value | None:
        """An element together with its mirror image."""
        if len(x.shape) < 2 or x.shape[-1] != x.shape[-2]:
            return None
        inner = self.activation(x)
        axes = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
        return self.graph.binary("add", inner, self.graph.transpose(inner, axes))

    def slice(self, x: Value) -> Value | None:
        axis = int(self.rng.integers(len(x.shape)))
        if x.shape[axis] < 2:
            return None
        begin = int(self.rng.integers(0, x.shape[axis] - 1))
        return self.graph.slice(
            x, axis, begin, int(self.rng.integers(begin + 1, x.shape[axis] + 1)), self.some(1, 3, 1)[0]
        )

    def split(self, x: Value) -> Value | None:
        axis = int(self.rng.integers(len(x.shape)))
        if x.shape[axis] < 2:
            return None
        first, second = self.graph.split(x, [int(self.rng.integers(1, x.shape[axis]))], axis)
        self.values.append(first)
        return second

    def softmax(self, x: Value) -> Value:
        return self.graph.softmax(x, int(self.rng.integers(len(x.shape))))

    def product(self, x: Value) -> Value | None:
        """A matrix product with a constant, or with a matrix of the network's own."""
        if len(x.shape) < 2:
            return None
        if self.chance(0.3):
            axes = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
            scale = self.graph.constant(np.float32(1 / math.sqrt(x.shape[-1])))
            return self.graph.binary("multiply", self.graph.matmul(x, self.graph.transpose(x, axes)), scale)
        columns = int(self.rng.choice([1, 2, 7, 8, 10, 16, 17, 24, 40]))
        scale = 1 / math.sqrt(x.shape[-1])
        if self.chance(0.3):
            weights = self.graph.transpose(self.graph.constant(self.random((columns, x.shape[-1]), scale)), [1, 0])
        else:
            weights = self.graph.constant(self.random((x.shape[-1], columns), scale))
        result = self.graph.matmul(x, weights)
        if self.chance(0.5):
            result = self.graph.binary("add", result, self.graph.constant(self.random((columns,))))
        return result


def _broadcasts(shape: tuple[int, ...], to: tuple[int, ...]) -> bool:
    if len(shape) > len(to):
        return False
    return all(a in (1, b) for a, b in zip(reversed(shape), reversed(to), strict=False))


_STEPS: tuple[Step, ...] = (
    *[Walk.convolution] * 6,
    *[Walk.pooling] * 3,
    *[Walk.per_channel] * 3,
    *[Walk.activation] * 3,
    *[Walk.wild] * 2,
    *[Walk.join] * 4,
    *[Walk.concatenation] * 3,
    *[Walk.reduction] * 2,
    Walk.gate,
    *[Walk.reshape] * 2,
    Walk.transpose,
    Walk.square_and_transpose,
    Walk.slice,
    Walk.split,
    Walk.softmax,
    *[Walk.product] * 2,
)
