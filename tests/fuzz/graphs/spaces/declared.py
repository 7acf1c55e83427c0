"""How attribute spaces are declared, and what their entries choose with."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from graph import Tensor
from groups import Group
from onnx import helper
from steps import Rejected
from walk import Walk

__all__ = [
    "ANY",
    "BOOL",
    "DOMAIN",
    "I32",
    "I64",
    "INTEGERS",
    "SPACES",
    "F",
    "Nodes",
    "axes_of",
    "axis_of",
    "computed_indices",
    "reshaped",
    "some",
    "space",
    "weight",
]

Space = Callable[[Walk], object]
SPACES: dict[str, Space] = {}

DOMAIN = "com.microsoft"
"""Of onnxruntime's own operators."""

F, I64, I32, BOOL = np.float32, np.int64, np.int32, np.bool_
INTEGERS = (I64, I32, np.int8, np.uint8, np.int16, np.uint16, np.uint32, np.uint64)
ANY = (F, F, F, F, F, F, *INTEGERS, BOOL)


def space(*names: str) -> Callable[[Callable[[Walk, str], object]], Callable[[Walk, str], object]]:
    """Declare how nodes of these operators are made, by a function of the walk and the operator's name."""

    def declare(make: Callable[[Walk, str], object]) -> Callable[[Walk, str], object]:
        for name in names:
            SPACES[name] = lambda walk, name=name: make(walk, name)  # type: ignore[misc]
        return make

    return declare


@dataclass
class Nodes:
    """Nodes of one step, as values between them are no tensors.

    Attributes:
        walk: whose step it is.
        made: the nodes.
    """

    walk: Walk
    made: list[onnx.NodeProto] = field(default_factory=list)

    @property
    def prefix(self) -> str:
        """What the names of the next node's results begin with."""
        return f"{self.walk.prefix}v{len(self.walk.steps)}_{len(self.made)}"

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """The result of one more node."""
        return self.add_several(operator, 1, *inputs, **attributes)[0]

    def add_several(self, operator: str, results: int, *inputs: str, **attributes: Any) -> list[str]:
        """The results of one more node."""
        names = [f"{self.prefix}_{result}" for result in range(results)]
        try:
            onnx.defs.get_schema(operator, self.walk.opset)
        except onnx.defs.SchemaError as error:
            raise Rejected(str(error)) from None
        self.made.append(helper.make_node(operator, list(inputs), names, **attributes))
        return names

    def step(self, *results: str) -> list[Tensor]:
        """The step whose results these are."""
        step = Group(self.made, results, self.walk.opset)
        known = {t.name: t.exact for t in (*self.walk.tensors, *self.walk.constants)}
        return self.walk.added(step, [known[name] for name in step.inputs])


def weight(w: Walk, value: npt.NDArray[Any]) -> Tensor:
    """Numbers that an operator takes as its weights: mostly a constant, sometimes what is computed for it."""
    kind = w.one("input", "scaled", "dequantized", "transposed") if w.chance(0.25) else "constant"
    match kind:
        case "input" if len(w.inputs) < w.max_inputs:
            found = w.input_of(value)
        case "scaled":
            (minimum,) = w.add("ReduceMin", w.pick(ranks=range(1, 5)), keepdims=0)
            (scale,) = w.add("Tanh", minimum)
            (found,) = w.add("Mul", w.constant(value), scale)
        case "dequantized" if value.size and value.ndim:
            step = np.maximum(np.abs(value).reshape(len(value), -1).max(1), 1e-3) / np.float32(127)
            numbers = np.rint(value / step.reshape(-1, *[1] * (value.ndim - 1))).astype(np.int8)
            (found,) = w.add("DequantizeLinear", w.constant(numbers), w.constant(step.astype(F)), axis=0)
        case "transposed" if value.ndim:
            order = [int(axis) for axis in w.rng.permutation(value.ndim)]
            source = w.constant(np.ascontiguousarray(value.transpose(order)))
            (found,) = w.add("Transpose", source, perm=[int(axis) for axis in np.argsort(order)])
        case _:
            found = w.constant(value)
    return found


def reshaped(w: Walk, shape: tuple[int, ...]) -> Tensor | None:
    """Floats of this shape, made of some that have as many elements; None if there are none."""
    fitting = [t for t in w.tensors if t.is_float and t.array.size == math.prod(shape)]
    if not fitting:
        return None
    (found,) = w.add("Reshape", w.one(*fitting), w.integers(*shape))
    return found


def computed_indices(w: Walk, shape: tuple[int, ...], sizes: npt.ArrayLike) -> Tensor:
    """Indices that come out of nodes: what is left of integers that are divided by the sizes of the axes.

    Args:
        sizes: one, or those of the last axis of the indices.
    """
    if "Mod" in w.without or not w.takes_integers:
        raise Rejected("integers are not taken")
    if not np.all(sizes):
        raise Rejected("no location to point to")
    fitting = [t for t in w.tensors if t.array.dtype == I64 and t.shape == shape]
    numbers = w.one(*fitting) if fitting and w.chance(0.5) else w.new_input(shape, I64)
    (found,) = w.add("Mod", numbers, w.constant(sizes, I64))
    return found


def some(w: Walk, **choices: Any) -> dict[str, Any]:
    """Some of the attributes, the others left at their defaults."""
    return {name: value for name, value in choices.items() if w.chance(0.6)}


def axis_of(w: Walk, t: Tensor, extra: int = 0) -> int:
    """An axis of a tensor, from the front or from the back."""
    rank = t.array.ndim + extra
    if not rank:
        raise Rejected("a scalar has no axes")
    return w.number(-rank, rank - 1)


def axes_of(w: Walk, t: Tensor) -> list[int]:
    """Several axes of a tensor, each once."""
    rank = t.array.ndim
    if not rank:
        raise Rejected("a scalar has no axes")
    chosen = w.rng.permutation(rank)[: w.number(1, rank)]
    return [int(axis) - rank * w.chance(0.3) for axis in chosen]
