"""Declares how TFLite's operators become those of the library, and the state while a network is lowered.

    @operator("LEAKY_RELU", types=FLOATS)
    def _leaky_relu(ctx: Lowering, node: Node) -> Result:
        return LeakyRelu(node.options.alpha).lower(ctx, node.operand(0))

Images have their channels last in TFLite, and before the spatial dimensions in the library. `channels_first` and
`channels_last` transpose; each remembers what the other has made, so that a chain of operators is not transposed back
and forth.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from tvm import relax

from nnefc.frontends.constant_folding import evaluate
from nnefc.frontends.lazy_operators import LazyOperators
from nnefc.frontends.tflite.flatbuffer import Table
from nnefc.frontends.tflite.hash_tables import HashTable
from nnefc.frontends.tflite.model import Quantization, TensorDef
from nnefc.frontends.tflite.operators import MODULES
from nnefc.ir.constant_evaluation import Budget
from nnefc.operators.base import Array, Emitter, Operand, Operator, dtype_of, rank_of, shape_of
from nnefc.operators.dtypes import STORAGE
from nnefc.operators.tensor.creation import SizeValues
from nnefc.operators.tensor.shape import Reshape, Transpose
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension

__all__ = [
    "BYTES",
    "COMPLEX",
    "FLOATS",
    "INTEGERS",
    "OPERATORS",
    "QUANTIZED",
    "REALS",
    "Declaration",
    "Lowering",
    "Node",
    "Operand",
    "Result",
    "Value",
    "operator",
]

Result: TypeAlias = Any
"""The result of a lowering: a tensor or a `Value`, or a sequence of them for several results."""

COMPLEX = "complex64"
"""A tensor of shape S is a tensor of reals of shape `[*S, 2]` in the network: real parts, then imaginary ones."""

BYTES = ("int8", "uint8")
FLOATS = ("float32",)
REALS = (*FLOATS, "float16")
INTEGERS = ("int32", "int64")
QUANTIZED = (*BYTES, "int16")


@dataclass(frozen=True, eq=False)
class Value:
    """A tensor while lowering.

    Attributes:
        operand: an array if its value is known, else an expression; None of what is known as `sizes`, and of handles.
        dtype: TFLite's element type; types of less than a byte are kept in one.
        quantization: what integers stand for.
        sizes: an array of objects, numbers and sizes, of a small integer tensor that follows from dynamic dimensions.
        handle: what a tensor of the type `resource` refers to.
    """

    operand: Operand | None
    dtype: str
    quantization: Quantization | None = None
    sizes: Array | None = None
    handle: object = None


class Lowering(Emitter):
    """The state while a network becomes one Relax function.

    Attributes:
        variables: the values of resource variables, by name.
        tables: the contents of hash tables, by number.
        offsets: where tensors lie in the memory of an accelerator, in bytes, by index.
        runs: how many runs the session has done, int64 without axes, where random numbers are drawn; see `draw`.
        run_subgraph: lowers a subgraph by its index, given its inputs.
    """

    def __init__(
        self, builder: relax.BlockBuilder, run_subgraph: Callable[[int, Sequence[Value]], list[Value]]
    ) -> None:
        super().__init__(builder)
        self.run_subgraph = run_subgraph
        self.variables: dict[str, Value] = {}
        self.tables: Mapping[int, HashTable] = {}
        self.offsets: Mapping[int, int] = {}
        self.runs: relax.Var | None = None
        self._draws = 0
        self._strings: dict[tuple[int, int], tuple[object, relax.Expr]] = {}
        self._first: dict[relax.Expr, relax.Expr] = {}
        self._known: dict[relax.Expr, Array | None] = {}
        self._budget = Budget()

    def tensor(self, value: Value) -> Operand:
        """The value as an array or an expression.

        Raises:
            CompileError: it is of a type that no program holds.
        """
        if value.operand is not None:
            is_text = isinstance(value.operand, np.ndarray) and value.operand.dtype == object
            return self._text(value.operand) if is_text else value.operand
        if value.sizes is not None:
            made: Operand = self.apply(SizeValues(value.sizes, value.dtype))
            return made
        raise CompileError(f"a tensor of type {value.dtype} has no value here")

    def _text(self, array: Array) -> relax.Expr:
        """The handles of constant strings: a kernel writes them, once in each function that is being built."""
        from nnefc.operators.text.strings import TextConstant  # few networks have strings

        key = id(self.frames[-1]), id(array)
        if key not in self._strings:
            made = self.expr(self.bound(TextConstant(array).lower(self)))
            # The frame and the array are kept too, so that their ids are not given to others.
            self._strings[key] = (self.frames[-1], array), made
            self._known[made] = None
        return self._strings[key][1]

    def draw(self) -> tuple[relax.Expr, int]:
        """Return the number of runs of the session, and the number of operators that drew numbers before this one.

        Raises:
            CompileError: it runs as often as the network itself decides; all iterations would draw the same numbers.
        """
        if self.in_body:
            raise CompileError("random numbers are not supported in branches and loops, which run as the data decide")
        if self.runs is None:
            self.runs = relax.Var("runs", relax.TensorType((), "int64"))
        self._draws += 1
        return self.runs, self._draws - 1

    def known(self, operand: Operand) -> Array | None:
        """The value of a tensor if it can be computed now, else None."""
        if isinstance(operand, np.ndarray):
            return operand
        if operand not in self._known:
            owner = next((frame for frame in reversed(self.frames) if frame.owns(operand)), None)
            fixed = owner is not None and self._is_fixed(operand)
            assert owner is not None or not fixed
            self._known[operand] = evaluate(owner.builder, operand, {}, self._budget) if owner and fixed else None
        return self._known[operand]

    def _is_fixed(self, operand: relax.Expr) -> bool:
        """Returns whether an expression depends on constants alone; a few steps are looked at."""
        waiting, seen = [operand], 0
        while waiting:
            var, seen = waiting.pop(), seen + 1
            bound = self.builder.lookup_binding(var) if isinstance(var, relax.Var) else None
            if bound is None or seen > 64:
                return False
            waiting.extend(relax.analysis.free_vars(bound))  # += would make it an array of TVM
        return True

    def channels_first(self, operand: Operand) -> Operand:
        """`[N, *spatial, C]` as `[N, C, *spatial]`."""
        if self.comes_first(operand):
            return self._first[operand]
        rank = rank_of(operand)
        made: Operand = self.apply(Transpose((0, rank - 1, *range(1, rank - 1))), operand)
        return made

    def channels_last(self, operand: Operand) -> Operand:
        """`[N, C, *spatial]` as `[N, *spatial, C]`."""
        rank, operand = rank_of(operand), self.bound(operand)
        made: Operand = self.apply(Transpose((0, *range(2, rank), 1)), operand)
        if not isinstance(made, np.ndarray) and not isinstance(operand, np.ndarray):
            self._first[made] = operand
        return made

    def comes_first(self, operand: Operand) -> bool:
        """Returns whether a tensor is there with its channels first, too."""
        return not isinstance(operand, np.ndarray) and operand in self._first

    def pointwise(self, function: Callable[..., Operand], *operands: Operand) -> Operand:
        """An element-wise function of tensors that broadcast, computed in the layout that one of them comes from."""
        rank = max(map(rank_of, operands))
        firsts = [self.comes_first(each) for each in operands]
        alike = all(
            first or rank_of(each) in (0, rank) or _is_vector(each)
            for each, first in zip(operands, firsts, strict=True)
        )
        if not any(firsts) or not alike:
            return self.bound(function(*operands))
        moved = [self._moved(each, rank) for each in operands]
        return self.channels_last(self.bound(function(*moved)))

    def _moved(self, operand: Operand, rank: int) -> Operand:
        if rank_of(operand) == rank:
            return self.channels_first(operand)
        made: Operand = operand
        if rank_of(operand) == 1:
            made = self.apply(Reshape((1, shape_of(operand)[0], *[1] * (rank - 2))), operand)
        return made


def _is_vector(operand: Operand) -> bool:
    return isinstance(operand, np.ndarray) and operand.ndim == 1


@dataclass(frozen=True, eq=False)
class Node:
    """An operator of the file while it is lowered.

    Attributes:
        name: the builtin operator's, or a custom operator's code.
        inputs: None for one that is left out.
        outputs, intermediates: as the file declares them.
        sources: the inputs as the file declares them.
        custom: the bytes of a custom operator's attributes.
    """

    ctx: Lowering
    name: str
    version: int
    options: Table
    inputs: tuple[Value | None, ...]
    outputs: tuple[TensorDef, ...]
    intermediates: tuple[TensorDef, ...] = ()
    custom: bytes = b""
    sources: tuple[TensorDef | None, ...] = ()
    mutated: dict[int, Value] = field(default_factory=dict)

    def value(self, index: int) -> Value:
        """An input.

        Raises:
            CompileError: it is left out.
        """
        found = self.optional(index)
        if found is None:
            raise CompileError(f"input {index} is missing")
        return found

    def optional(self, index: int) -> Value | None:
        """An input, or None if it is left out."""
        return self.inputs[index] if index < len(self.inputs) else None

    def operand(self, index: int) -> Operand:
        """An input as an array or an expression."""
        return self.ctx.tensor(self.value(index))

    def optional_operand(self, index: int) -> Operand | None:
        """An input as an array or an expression; None if it is left out."""
        value = self.optional(index)
        return None if value is None else self.ctx.tensor(value)

    def operands(self) -> list[Operand]:
        """All inputs."""
        return [self.operand(index) for index in range(len(self.inputs))]

    def constant(self, index: int, what: str) -> Array:
        """The value of an input that must be known at compile time.

        Raises:
            CompileError: it is not.
        """
        found = self.ctx.known(self.operand(index))
        if found is None:
            raise CompileError(f"{what} is computed at run time: it must be a constant")
        return found

    def sizes(self, index: int, what: str) -> list[Dimension]:
        """The elements of an integer input: numbers, and sizes of dynamic dimensions."""
        value = self.value(index)
        if value.sizes is not None:
            return list(value.sizes.reshape(-1))
        return [int(number) for number in self.constant(index, what).reshape(-1)]

    def number(self, index: int, what: str) -> int:
        """The one element of an integer input that must be known at compile time."""
        found = self.constant(index, what)
        if found.size != 1:
            raise CompileError(f"{what} has {found.size} elements in place of one")
        return int(found.reshape(())[()])

    def size(self, index: int, what: str) -> Dimension:
        """The one element of an integer input: a number, or a size."""
        found = self.sizes(index, what)
        if len(found) != 1:
            raise CompileError(f"{what} has {len(found)} elements in place of one")
        return found[0]

    def shape(self, index: int) -> tuple[Dimension, ...]:
        """The shape of an input."""
        value = self.value(index)
        if value.sizes is not None and value.operand is None:
            return value.sizes.shape
        shape = shape_of(self.operand(index))
        return shape[:-1] if value.dtype == COMPLEX else shape

    def rank(self, index: int) -> int:
        """The number of dimensions of an input."""
        return len(self.shape(index))

    def axis(self, axis: int, rank: int) -> int:
        """The index of an axis from the front.

        Raises:
            CompileError: there is none.
        """
        if not -rank <= axis < rank:
            raise CompileError(f"axis {axis} is out of range for a tensor of rank {rank}")
        return axis % rank

    def axes(self, axes: Sequence[int], rank: int) -> tuple[int, ...]:
        """Distinct axes in ascending order, as indices from the front."""
        return tuple(sorted({self.axis(int(axis), rank) for axis in axes}))

    def dtype(self, index: int) -> str:
        """The element type of an input."""
        return self.value(index).dtype

    def is_quantized(self, index: int = 0) -> bool:
        """Returns whether an input is of integers that stand for reals."""
        value = self.value(index)
        return value.dtype in ("int8", "uint8", "int16", "int4", "uint4", "int2") and value.quantization is not None

    def quantization(self, index: int) -> Quantization:
        """Return the quantization of an input.

        Raises:
            CompileError: the file does not say.
        """
        found = self.value(index).quantization
        if found is None:
            raise CompileError(f"input {index} of {self.dtype(index)} has no scale")
        return found

    def result(self, index: int = 0) -> Quantization:
        """Return the quantization of a result."""
        found = self.outputs[index].quantization
        if found is None:
            raise CompileError(f"result {index} of {self.outputs[index].dtype} has no scale")
        return found


Lower: TypeAlias = Callable[[Lowering, Node], Result]


@dataclass(frozen=True)
class Declaration:
    """An operator of the format.

    Attributes:
        family: the file that it is declared in.
        types: the element types of its first input that it is defined for; of none, any.
        limits: what is not supported.
    """

    name: str
    family: str
    types: tuple[str, ...]
    lower: Lower
    limits: str = ""


_FAMILIES = "nnefc.frontends.tflite.operators"

OPERATORS: LazyOperators[Declaration] = LazyOperators(_FAMILIES, MODULES)


def operator(*names: str, types: Sequence[str] = (), limits: str = "") -> Callable[[Lower], Lower]:
    """Declares a lowering for operators of these names."""

    def declare(lower: Lower) -> Lower:
        _declare(lower.__module__.rpartition(".")[2], names, types, lower, limits)
        return lower

    return declare


def table(family: str, entries: Mapping[str, Operator], types: Sequence[str]) -> None:
    """Declares operators of one operand that are an operator of the library."""
    for name, made in entries.items():
        _declare(family, [name], types, _of_one(made))


def _declare(family: str, names: Iterable[str], types: Sequence[str], lower: Lower, limits: str = "") -> None:
    for name in names:
        OPERATORS.declare(name, f"{_FAMILIES}.{family}", Declaration(name, family, tuple(types), lower, limits))


def _of_one(made: Operator) -> Lower:
    return lambda ctx, node: ctx.pointwise(lambda x: made.lower(ctx, x), node.operand(0))


def stored(dtype: str) -> str:
    """The type that tensors of an element type have in the program."""
    return STORAGE.get(dtype, dtype)


@contextmanager
def in_operator(where: str) -> Iterator[None]:
    """Names the operator in errors that are raised inside."""
    try:
        yield
    except CompileError as error:
        if error.message.startswith(where.partition(":")[0] + ":"):
            raise
        raise CompileError(f"{where}: {error.message}", hint=error.hint) from None


def value_of(made: Any, output: TensorDef) -> Value:
    """A result as a value with the type and the quantization that the file declares.

    Raises:
        CompileError: it is of another type.
    """
    if isinstance(made, Value):
        return made
    if output.dtype not in (COMPLEX, "resource") and dtype_of(made) != stored(output.dtype):
        raise CompileError(f"the result '{output.name}' is {dtype_of(made)}, the file declares {output.dtype}")
    return Value(made, output.dtype, output.quantization)
