"""Random walks through ONNX's operators: graphs that are valid, with their values in float64.

A walk holds tensors with their values. Each step takes some of them, makes a node by an operator's entry in
:mod:`spaces`, and evaluates it with ONNX's reference in float64. Steps that the reference refuses, or whose values are
too large to compare, are taken back; so every graph that comes out is valid.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from graph import Graph, Tensor
from onnx import helper
from steps import OPSET, Rejected, Step, attributes_of, evaluate, in_float32, is_float

__all__ = ["OF_NO_SET", "Walk"]

LARGEST = 1e5
"""Of a value: sums of larger ones say little in float32."""
MAX_ELEMENTS = 1 << 14
_TYPES = {"float32": "float", "float64": "double"}
"""Element types that ONNX's schemas call otherwise than NumPy."""

# fmt: off
OF_NO_SET = frozenset((
    "Affine", "Crop", "ImageScaler", "ParametricSoftplus", "ScaledTanh", "SimplifiedLayerNormalization",
))
# fmt: on
"""Experiments of the early standard, which models of all operator sets have in its domain."""

_WITHOUT_ELEMENTS = (IndexError, ValueError, ZeroDivisionError)
"""What samplers raise where they look for an element of a tensor that has none."""

# fmt: off
_WINDOWS = frozenset((
    "AveragePool", "Conv", "ConvInteger", "ConvTranspose", "FusedConv", "LpPool", "MaxPool", "NhwcConv",
    "NhwcFusedConv", "NhwcMaxPool", "QLinearAveragePool", "QLinearConv",
))
# fmt: on
"""What moves a window over images, which the reference allows to be smaller than the window."""

Array = npt.NDArray[Any]


@dataclass
class Walk:
    """The state of a walk.

    Attributes:
        seed: of all that is random in it.
        prefix: what the names of its tensors begin with.
        takes_integers: whether nodes take integers that are no indices.
        max_inputs: of the graph.
        without: operators that are not taken, in bodies neither.
        opset: the operator set that nodes are of.
        may_be_empty: whether some tensors have no elements.
        floats: the type of the graph's floats, which those that entries ask for as float32 have.
        largest: of values.
    """

    seed: int
    prefix: str = ""
    takes_integers: bool = True
    max_inputs: int = 6
    without: frozenset[str] = frozenset()
    opset: int = OPSET
    may_be_empty: bool = False
    floats: npt.DTypeLike = np.float32
    largest: float = LARGEST
    rng: np.random.Generator = field(init=False)
    tensors: list[Tensor] = field(default_factory=list)
    inputs: list[Tensor] = field(default_factory=list)
    constants: list[Tensor] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.rng = np.random.default_rng(self.seed)
        self.floats = np.dtype(self.floats)

    # What samplers choose with.

    def chance(self, share: float) -> bool:
        """Whether an event of this probability happens."""
        return bool(self.rng.random() < share)

    def one(self, *choices: Any) -> Any:
        """One of the choices."""
        return choices[int(self.rng.integers(len(choices)))]

    def number(self, minimum: int, maximum: int) -> int:
        """An integer from `minimum` to `maximum`.

        Raises:
            Rejected: there is none.
        """
        if minimum > maximum:
            raise Rejected("no number")
        return int(self.rng.integers(minimum, maximum + 1))

    def size(self) -> int:
        """A dimension: mostly small, often odd."""
        if self.may_be_empty and self.chance(0.1):
            return 0
        return int(self.rng.choice([1, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33]))

    def real(self, low: float, high: float) -> float:
        """A float32 between two numbers."""
        return float(np.float32(self.rng.uniform(low, high)))

    # Tensors.

    def new_input(self, shape: Sequence[int], dtype: Any = np.float32) -> Tensor:
        """A new input of the graph with random values."""
        if len(self.inputs) >= self.max_inputs:
            raise Rejected("no tensor fits")
        return self.input_of(self.random(shape, dtype))

    def input_of(self, value: Array) -> Tensor:
        """A new input of the graph with these values."""
        tensor = self._tensor(f"x{len(self.inputs)}", value.astype(self._kind(value.dtype), copy=False))
        self.inputs.append(tensor)
        self.tensors.append(tensor)
        return tensor

    def random(self, shape: Sequence[int], dtype: Any = np.float32) -> Array:
        """Random values: normal floats, small integers, booleans."""
        kind = self._kind(dtype)
        if is_float(kind):
            return np.asarray(self.rng.standard_normal(shape), kind)
        if kind.kind == "b":
            return np.asarray(self.rng.random(shape) < 0.5)
        minimum = 0 if kind.kind == "u" else -9
        return np.asarray(self.rng.integers(minimum, 10, shape), kind)

    def constant(self, value: npt.ArrayLike, dtype: Any = None, *, is_float32: bool = False) -> Tensor:
        """A new initializer.

        Args:
            is_float32: whatever the graph's other floats are.
        """
        array = np.asarray(value, dtype)
        array = array if is_float32 else array.astype(self._kind(array.dtype), copy=False)
        tensor = self._tensor(f"c{len(self.constants)}", array)
        self.constants.append(tensor)
        return tensor

    def integers(self, *values: int) -> Tensor:
        """A new initializer of rank 1 with int64."""
        return self.constant(values, np.int64)

    def pick(self, dtypes: Sequence[Any] = (np.float32,), ranks: Iterable[int] = range(7), minimum: int = 0) -> Tensor:
        """A tensor of one of these types and ranks, rather a late one; a new input where there is none.

        Args:
            smallest: elements that it has at smallest.
        """
        kinds, ranks = [self._kind(d) for d in dtypes], list(ranks)
        kinds = kinds if self.takes_integers else [kind for kind in kinds if kind.kind not in "iu"]
        if not kinds:
            raise Rejected("of integers alone")
        fitting = [
            t for t in self.tensors if t.array.dtype in kinds and t.array.ndim in ranks and t.array.size >= minimum
        ]
        if fitting and not self.chance(0.05):
            return fitting[-1 - min(int(self.rng.exponential(2.5)), len(fitting) - 1)]
        if len(self.inputs) >= self.max_inputs:
            raise Rejected("no tensor fits")
        rank = int(self.rng.choice([r for r in ranks if r <= 5] or ranks))
        shape = [self.size() for _ in range(rank)]
        while math.prod(shape) > MAX_ELEMENTS // 4:
            shape[int(np.argmax(shape))] = 3
        if math.prod(shape) < minimum:
            raise Rejected("too few elements")
        return self.new_input(shape, self.one(*kinds))

    def fitting(self, tensor: Tensor) -> Tensor:
        """A tensor of the same type whose shape broadcasts with this one's."""

        def fits(other: Tensor) -> bool:
            pairs = zip(reversed(other.shape), reversed(tensor.shape), strict=False)
            return other.array.dtype == tensor.array.dtype and all(a == b or 1 in (a, b) for a, b in pairs)

        found = [t for t in self.tensors if fits(t)]
        if found and self.chance(0.5):
            return self.one(*found)
        shape = [1 if self.chance(0.3) else size for size in tensor.shape][
            self.number(0, tensor.array.ndim) if self.chance(0.3) else 0 :
        ]
        return self.constant(self.random(shape, tensor.array.dtype))

    def add(self, operator: str, *inputs: Tensor | None, outputs: int = 1, **attributes: Any) -> list[Tensor]:
        """Add a node; its results, none of which is empty, too large or not a number.

        Raises:
            Rejected: it makes no sense here; nothing was added.
        """
        node = helper.make_node(operator, [t.name if t else "" for t in inputs], self.names(outputs), **attributes)
        self.check(node, inputs)
        try:
            step = Step(node, opset=self.opset)
        except Exception as error:  # an attribute that the reference does not take
            raise Rejected(str(error)) from None
        return self.added(step, [t and t.exact for t in inputs])

    def names(self, count: int) -> list[str]:
        """Of the results of the next step."""
        return [f"{self.prefix}t{len(self.steps)}_{k}" for k in range(count)]

    def added(self, step: Step, inputs: Sequence[Array | None]) -> list[Tensor]:
        """Add a step that has these inputs; its results.

        Raises:
            Rejected: as for :meth:`add`.
        """
        values = evaluate(step, inputs)
        for value in values:
            if value.dtype.kind not in "fiub" or not (value.size or self.may_be_empty):
                raise Rejected("not a tensor that can be compared")
            if 0 in _positions_of(step, value) and step.node.op_type in _WINDOWS:
                raise Rejected("the window fits nowhere")
            if value.size > MAX_ELEMENTS:
                raise Rejected("too large")
            if value.dtype.kind == "f" and not np.abs(value).max(initial=0) < self.largest:  # which no NaN is
                raise Rejected("not finite")
        found = [Tensor.of(name, value, self.floats) for name, value in zip(step.node.output, values, strict=True)]
        self.steps.append(step)
        self.tensors += found
        return found

    def inside(self, name: str, given: Sequence[Tensor]) -> Walk:
        """A walk that begins with these tensors, for a body of the next node; its constants are outside."""
        prefix = f"{self.prefix}{name}{len(self.steps)}_"
        walk = Walk(
            int(self.rng.integers(1 << 62)),
            prefix,
            self.takes_integers,
            max_inputs=0,
            without=self.without,
            opset=self.opset,
            may_be_empty=self.may_be_empty,
            floats=self.floats,
            largest=self.largest,
        )
        walk.constants = self.constants
        walk.tensors += given
        return walk

    def take(self, spaces: Mapping[str, Callable[[Walk], object]], count: int) -> None:
        """Take about `count` steps by random entries of a table."""
        names = sorted(spaces.keys() - self.without)
        refusals = (Rejected, *_WITHOUT_ELEMENTS) if self.may_be_empty else (Rejected,)
        for _ in range(12 * count):
            if len(self.steps) >= count:
                return
            before = len(self.steps), len(self.constants), len(self.inputs), len(self.tensors)
            try:
                spaces[names[int(self.rng.integers(len(names)))]](self)
            except refusals:
                del self.steps[before[0] :], self.constants[before[1] :], self.inputs[before[2] :]
                del self.tensors[before[3] :]

    def graph(self) -> Graph:
        """What was made: outputs are all tensors that no node takes."""
        used = {name for step in self.steps for name in step.inputs}
        made = {name for step in self.steps for name in step.node.output}
        outputs = [t for t in self.tensors if t.name in made and t.name not in used]
        inputs = [t for t in self.inputs if t.name in used]
        known = {t.name: t for t in (*self.tensors, *self.constants)}
        constants = [t for t in self.constants if t.name in used]
        return Graph(self.seed, self.steps, inputs, constants, outputs, known, opset=self.opset, floats=self.floats)

    def check(self, node: onnx.NodeProto, inputs: Sequence[Tensor | None]) -> None:
        """Raise `Rejected` if the operator set has no such operator, or not with these inputs and attributes."""
        if node.domain or node.op_type in OF_NO_SET:
            return
        try:
            schema = onnx.defs.get_schema(node.op_type, self.opset, node.domain)
        except onnx.defs.SchemaError as error:
            raise Rejected(str(error)) from None
        if (
            schema.deprecated
            or len(inputs) > schema.max_input
            or any(a.name not in schema.attributes for a in node.attribute)
        ):
            raise Rejected(f"{node.op_type} of operator set {self.opset} does not have it so")
        for number, tensor in enumerate(inputs):
            formal = schema.inputs[min(number, len(schema.inputs) - 1)]
            if tensor is not None and f"tensor({_TYPES.get(tensor.array.dtype.name, tensor.array.dtype.name)})" not in (
                formal.types
            ):
                raise Rejected(f"{node.op_type} of operator set {self.opset} takes no {tensor.array.dtype}")

    def _kind(self, dtype: npt.DTypeLike) -> np.dtype[Any]:
        """The type that the graph has for one that an entry asks for."""
        kind = np.dtype(dtype)
        return np.dtype(self.floats) if kind == np.float32 else kind

    def _tensor(self, name: str, array: Array) -> Tensor:
        return Tensor(f"{self.prefix}{name}", array, in_float32(array))


def _positions_of(step: Step, value: Array) -> tuple[int, ...]:
    """The sizes of images that a step makes, whose channels come before them or last."""
    last = step.node.op_type.startswith("Nhwc") or attributes_of(step.node).get("channels_last")
    return value.shape[1:-1] if last else value.shape[2:]
