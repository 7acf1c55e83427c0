"""Emitter for documents of tract's dialect: operands of any element type, and compile-time values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

import numpy as np
from tvm import relax
from tvm.ir import GenericConst

from nnefc.frontends.constant_folding import evaluate
from nnefc.frontends.nnef.dynamic.sizes import simplified
from nnefc.frontends.nnef.dynamic.values import (
    Sizes,
    Value,
    common_type,
    content_of,
    is_sizes,
    spelled,
)
from nnefc.frontends.nnef.operations.lowering import Lowering
from nnefc.frontends.nnef.values import Tensor
from nnefc.ir.constant_evaluation import Budget
from nnefc.operators.base import Operand, dtype_of, numpy_dtype, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Where, apply
from nnefc.operators.tensor.concatenation import Stack
from nnefc.operators.tensor.creation import SizeValues
from nnefc.operators.tensor.data_dependent_sizes import data_dependent_size
from nnefc.support.diagnostics import CompileError, Location
from nnefc.symbolic.arrays import Array, of_elements
from nnefc.symbolic.dims import Dimension, DynamicSize, Size, is_known
from nnefc.symbolic.values import Quotient, integer_parts

__all__ = ["DynamicEmitter", "Sequences"]

_NOWHERE = Location("", 0, 0, "")
_MAX_KNOWN = 1 << 16


@dataclass(frozen=True, eq=False)
class Sequences:
    """Sequences that a session remembers.

    Attributes:
        numbers: those of this run, `[B]`; None where there is one.
        count: how many a session has room for.
        context: how many positions each may have.
        past: how many the longest one of this run had before.
        lengths: how many new ones each of this run has, `[B]`.
        kept: of tensors that are kept, by their storage and the length of their ring, the new positions and those
            before.
        rings: windows, and lengths of their rings, whose limits a state keeps.
    """

    numbers: Operand | None
    count: int
    context: int
    past: Dimension
    lengths: Operand
    kept: dict[tuple[Operand, str, int], Operand] = field(default_factory=dict)
    rings: set[tuple[int, int]] = field(default_factory=set)


class DynamicEmitter(Lowering):
    """Emits into one dataflow block of Relax.

    Attributes:
        updates: by the names of the network's states, what each is before the first run, and its new value.
        state_variables: what stands for each in a run.
        sequence_axes: the axes of positions of those that sequences of tokens have, as `ir.network.State` has them.
        real_parts: of complex tensors without an imaginary part, that is, with zeros behind each element.
        lengths: how much caches hold before the run, each a size and the state that says it.
        sequences: what is known of the sequences whose positions before the run an operand says.
    """

    def __init__(self, builder: relax.BlockBuilder) -> None:
        super().__init__(builder)
        self.updates: dict[str, tuple[Array, Operand]] = {}
        self.state_variables: dict[str, relax.Var] = {}
        self.sequence_axes: dict[str, int] = {}
        self.lengths: list[tuple[Dimension, relax.Var]] = []
        self.sequences: dict[Operand, Sequences] = {}
        self.real_parts: dict[Operand, Operand] = {}
        self._counters: dict[str, relax.Var] = {}
        self._budget = Budget()

    # Operands

    def tensor(self, value: Value, dtype: str | None = None) -> Operand:
        """A value as a tensor; numbers and sizes in the element type `dtype`, if one is given.

        Raises:
            CompileError: it is none.
        """
        operand = self._tensor(value)
        if isinstance(operand, np.ndarray) and operand.dtype == object:
            return self.written(operand, dtype)
        weak = isinstance(value, bool | int | float) or _all_numbers(value)
        return self.apply(Cast(dtype), operand) if weak and dtype and dtype_of(operand) != dtype else operand

    def _tensor(self, value: Value) -> Operand:
        match value:
            case np.ndarray() | relax.Expr():
                return value
            case bool():
                return np.array(value)
            case int() | Size():
                return of_elements([value], ())
            case float():
                with np.errstate(over="ignore"):
                    return np.array(value, np.float32)
            case list() if value:
                return self._joined([self._tensor(element) for element in value])
            case _:
                raise CompileError(f"a tensor is needed, {spelled(value)} is given")

    def _joined(self, elements: Sequence[Operand]) -> Operand:
        """Elements of an array as a tensor with one more axis."""
        if all(isinstance(element, np.ndarray) for element in elements):
            if any(element.dtype != object for element in elements):
                elements = [simplified(element) if is_sizes(element) else element for element in elements]
            return np.stack(elements)
        dtype = common_type([dtype_of(element) for element in elements if not is_sizes(element)])
        return self.apply(Stack(0), *(self.apply(Cast(dtype), self.tensor(element, dtype)) for element in elements))

    def written(self, sizes: Sizes, dtype: str | None = None) -> Operand:
        """A tensor of sizes as a tensor of numbers: int64, float32 or booleans, or `dtype`."""
        known = simplified(sizes)
        if known.dtype != object:
            return self.apply(Cast(dtype or str(known.dtype).replace("float64", "float32")), known)
        above, *below = (self.apply(SizeValues(part, "int64")) for part in integer_parts(sizes))
        if below:
            real = "float32"
            parts = [self.apply(Cast(real), part) for part in (above, *below)]
            return self.apply(Cast(dtype or real), apply(self, "divide", *parts))
        booleans = not isinstance(sizes.reshape(-1)[0], int | Size | Quotient)
        return self.apply(Cast(dtype or ("bool" if booleans else "int64")), above)

    def promoted(self, values: Sequence[Value]) -> list[Operand]:
        """Tensors of one element type: that of those that have one; numbers and sizes take it.

        So do known reals of one element: exports store PyTorch's numbers as float64, as which it does not compute
        either.
        """
        tensors = [self._tensor(value) for value in values]
        strong = [
            dtype_of(tensor)
            for value, tensor in zip(values, tensors, strict=True)
            if not (is_sizes(tensor) or isinstance(value, int | float) or _is_real_number(tensor))
        ]
        if all(numpy_dtype(dtype).kind in "iub" for dtype in strong):
            strong += [dtype_of(tensor) for tensor in tensors if _is_real_number(tensor)]
        if not strong:
            made = [self.tensor(value) for value in values]
            dtype = common_type([dtype_of(tensor) for tensor in made])
            return [self.apply(Cast(dtype), tensor) for tensor in made]
        dtype = common_type(strong)
        real = any(isinstance(value, float) for value in values) or any(map(_has_quotients, tensors))
        if real and numpy_dtype(dtype).kind in "iu":
            dtype = "float32"
        return [self.apply(Cast(dtype), self.tensor(value, dtype)) for value in values]

    # States

    def state(self, name: str, value: Array, positions: int | None = None) -> relax.Var:
        """Returns a tensor that runs leave to the next one, with its value before the first; `update` sets it.

        Args:
            name: a number may follow it.
            value: before the first run.
            positions: the axis of positions, as :class:`nnefc.ir.network.State` has it.

        Raises:
            CompileError: it is in the body of a loop.
        """
        if self.in_body:
            raise CompileError("what keeps a state between runs cannot be in the body of a scan")
        name = next(each for n in count() if (each := f"{name}{n or ''}") not in self.state_variables)
        self.state_variables[name] = relax.Var(name, relax.TensorType(value.shape, str(value.dtype)))
        self.updates[name] = value, self.state_variables[name]
        if positions is not None:
            self.sequence_axes[name] = positions
        return self.state_variables[name]

    def update(self, state: relax.Var, value: Operand) -> None:
        """Sets the value of a state after the run."""
        self.updates[str(state.name)] = self.updates[str(state.name)][0], value

    def length(self, name: str, maximum: int) -> Dimension:
        """Returns how many positions caches hold before the run, a size that a state says; `maximum` at most."""
        state = self.state(name, np.array(0))
        size = self.past(name, state, maximum)
        self.lengths.append((size, state))
        return size

    def past(self, name: str, count: relax.Expr, maximum: int) -> Dimension:
        """A size that a tensor of one element says, how many positions come before those of a run; `maximum` at
        most."""
        self.ranges[name] = DynamicSize(0, maximum)
        return data_dependent_size(self, count, None, name)

    def kept(self, initial: Operand) -> tuple[Operand, relax.Var]:
        """Returns a state, which is `initial` before the first run and later the value of its last update; and its
        handle for the update.

        Where no constant says what it is at first, the first run takes that from its inputs.

        Raises:
            CompileError: only a run knows its shape.
        """
        shape, known = shape_of(initial), self.known(initial)
        if isinstance(known, np.ndarray):
            state = self.state(f"{self.hint}_state", np.ascontiguousarray(known).reshape(known.shape))
            return state, state
        if not is_known(*shape):
            raise CompileError(
                f"a state that is kept between runs has the shape {list(shape)}, which only a run knows",
                hint="give the sizes with --shape, or let each run begin again with --scan-states reset",
            )
        state = self.state(f"{self.hint}_state", np.zeros(shape, numpy_dtype(dtype_of(initial))))
        is_first = apply(self, "equal", self.counter("runs", 1), np.array(0))
        return self.apply(Where(), is_first, initial, state), state

    def counter(self, name: str, step: Dimension) -> relax.Var:
        """A state, an int64 without axes, that counts what runs have brought: `step` each; one for each step."""
        key = str(step)
        if key not in self._counters or self.in_body:
            state = self.state(name, np.array(0))
            self.update(state, apply(self, "add", state, self.tensor(step, "int64")))
            self._counters[key] = state
        return self._counters[key]

    # Known values

    def known(self, value: Value) -> Value:
        """The value of a tensor, where it follows from constants alone and is small; others as they are."""
        if not isinstance(value, relax.Expr) or len(self.frames) > 1:
            return value
        shape = shape_of(value)
        if not all(isinstance(size, int) for size in shape) or int(np.prod(shape)) > _MAX_KNOWN:
            return value
        if isinstance(value, GenericConst):
            return value.value.numpy()
        if not self._is_constant(value):
            return value
        found = evaluate(self.builder, value, {}, self._budget)
        return value if found is None else found

    def _is_constant(self, var: relax.Expr) -> bool:
        waiting: list[relax.Expr] = [var]
        seen: set[relax.Expr] = set()
        while waiting:
            each = waiting.pop()
            if each in seen:
                continue
            seen.add(each)
            bound = self.builder.lookup_binding(each)
            if bound is None:
                return False
            waiting += list(relax.analysis.free_vars(bound))
        return True

    # What the standard's operations ask for

    def as_tensor(self, operand: Operand) -> Tensor:
        """A tensor of the standard's operations that stands for an operand."""
        made = Tensor(self.hint, content_of(operand), shape_of(operand), _NOWHERE)
        self.bind(made, operand)
        return made


def _all_numbers(value: Value) -> bool:
    return isinstance(value, list) and all(
        isinstance(element, int | float) or _all_numbers(element) for element in value
    )


def _is_real_number(operand: Operand) -> bool:
    return isinstance(operand, np.ndarray) and operand.size == 1 and operand.dtype == np.float64


def _has_quotients(operand: Operand) -> bool:
    return (
        isinstance(operand, np.ndarray)
        and operand.dtype == object
        and any(isinstance(element, Quotient) for element in operand.reshape(-1))
    )
