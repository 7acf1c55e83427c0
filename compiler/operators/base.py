"""Defines the base class of operators, and the emitter that they are lowered with."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar, TypeAlias

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax, te, tirx
from tvm.ir import GenericConst

from nnefc.ir.kernel_calls import call_te
from nnefc.ir.network import MAX_ELEMENTS, Body, Control, DataDependentSize, Loop, call_control
from nnefc.operators.dtypes import STORAGE, Kind, dtype_name, is_of, numpy_dtype
from nnefc.operators.recording import recorded
from nnefc.support.diagnostics import CompileError
from nnefc.support.mapped_files import LARGE, tensor_of
from nnefc.symbolic.dims import (
    Dimension,
    DynamicSize,
    dimension,
    dimensions,
    expression,
    is_known,
    known_less,
)
from nnefc.symbolic.prover import known
from nnefc.symbolic.refinement import Refinement

__all__ = [
    "Array",
    "Emitter",
    "Operand",
    "Operator",
    "SameShape",
    "Shape",
    "build_main",
    "check_size",
    "check_table",
    "dtype_of",
    "identity",
    "is_array",
    "is_empty",
    "is_transposed",
    "numpy_dtype",
    "rank_of",
    "shape_of",
    "zeros",
]

Array: TypeAlias = npt.NDArray[Any]
Shape: TypeAlias = tuple[int, ...]
Operand: TypeAlias = Array | relax.Expr
"""A tensor: an array where its value is known at compile time, else an expression of Relax."""

_MAX_TABLE = 1 << 24


def shape_of(operand: Operand) -> Shape:
    """The shape of an array or an expression of Relax."""
    if isinstance(operand, np.ndarray):
        return operand.shape
    return dimensions(operand.ty.shape)


def rank_of(operand: Operand) -> int:
    """The number of dimensions of an array or an expression of Relax."""
    return len(shape_of(operand))


def dtype_of(operand: Operand) -> str:
    """The element type of an array or an expression of Relax."""
    return str(operand.dtype if isinstance(operand, np.ndarray) else operand.ty.dtype)


def is_empty(shape: Shape) -> bool:
    """Returns whether tensors of this shape have no elements."""
    return any(isinstance(size, int) and size == 0 for size in shape)


_MAX_BYTES = 1 << 14
_GROWTH = 4


def is_array(shape: Shape, dtype: np.dtype[Any], *operands: Array) -> bool:
    """Returns whether a tensor of known sizes is an array from the beginning, not an expression.

    Large ones that are made of little are expressions: passes decide which of them are worth their bytes.
    """
    size = math.prod(shape) * dtype.itemsize
    return size <= max(_MAX_BYTES, _GROWTH * sum(operand.nbytes for operand in operands)) or dtype.kind not in "biuf"


def zeros(shape: Shape, dtype: Any, value: float = 0) -> Operand:
    """A tensor of zeros, or of another value: an array if its sizes are known. What has no elements to be computed
    from.

    Args:
        dtype: the element type, of NumPy or by its name.
    """
    if is_known(*shape):
        return np.full(shape, value, dtype)
    name = dtype_name(np.dtype(dtype))
    stored = STORAGE.get(name, name)
    return relax.op.full(shape, relax.const(np.array(value).astype(numpy_dtype(stored)), stored), stored)


def check_size(shape: Sequence[int]) -> Shape:
    """The shape, if a tensor may have it.

    Raises:
        CompileError: a dimension is negative, or there would be too many elements.
    """
    if any(known_less(size, 0) for size in shape):
        raise CompileError(f"a tensor cannot have the shape {list(shape)}")
    if is_known(*shape) and math.prod(shape) > MAX_ELEMENTS:
        raise CompileError(
            f"a tensor would have the shape {list(shape)}, which is {math.prod(shape):,} elements: a tensor may have "
            f"{MAX_ELEMENTS:,}"
        )
    return tuple(shape)


def check_table(entries: int) -> None:
    """Refuse a table of positions along an axis that no real network needs, before memory is taken for it.

    Raises:
        CompileError: without a location; the caller adds it.
    """
    if entries > _MAX_TABLE:
        raise CompileError(
            f"the operation needs a table of {entries} entries along one dimension, more than {_MAX_TABLE}"
        )


_Chosen: TypeAlias = tuple[tuple[relax.Expr, bool], ...]
"""Conditions that hold, or do not hold, where what is built is needed."""


@dataclass(eq=False)
class _Frame:
    """The function that is being built: the network's own, or a body inside it.

    Attributes:
        builder: the block builder, inside the dataflow block of `main`.
        params: the body's own parameters; none for the network's function.
        captured: variables of the functions around it that the body uses, and the parameters that stand for them here.
        controls: the choices and loops that it calls.
        counts: data-dependent sizes, each with the tensor that has it.
        sizes: sizes read from tensors, by tensor, element index, and the conditions of the enclosing branches.
        positions: of nonzero elements in the first part of a flat tensor, by tensor, size, and those conditions.
    """

    builder: relax.BlockBuilder
    params: tuple[relax.Var, ...] = ()
    captured: dict[relax.Var, relax.Var] = field(default_factory=dict)
    controls: list[Control] = field(default_factory=list)
    counts: dict[DataDependentSize, relax.Expr] = field(default_factory=dict)
    sizes: dict[tuple[relax.Expr, int, _Chosen], Dimension] = field(default_factory=dict)
    positions: dict[tuple[relax.Expr, Dimension, _Chosen], relax.Expr] = field(default_factory=dict)

    def owns(self, var: relax.Var) -> bool:
        """Returns whether a variable is this function's own."""
        own = (*self.params, *self.captured.values())
        return any(var.same_as(param) for param in own) or self.builder.lookup_binding(var) is not None


class Emitter:
    """Emits into one dataflow block of Relax: that of the network's function, or of a body that is being built.

    Attributes:
        hint: what the tensors that are built now should be called.
        frames: from the network's function to the body that is being built.
        has_text: whether a kernel that was built computes with strings.
        count_names: the names that such sizes have been given, also those that proved to be other ones.
        refinement: what is known of dynamic sizes, where the network can be built again when more is found out.
        chosen_by: what is built now is needed only where these conditions, each of one element, hold or do not hold.
        ranges: what a user says of data-dependent sizes, by name, as far as they have not been met.
    """

    def __init__(self, builder: relax.BlockBuilder) -> None:
        self.hint = ""
        self.frames = [_Frame(builder)]
        self.has_text = False
        self.count_names: set[str] = set()
        self.chosen_by: list[tuple[relax.Expr, bool]] = []
        self.refinement: Refinement | None = None
        self.ranges: dict[str, DynamicSize] = {}
        self._constants: dict[object, tuple[Array, relax.Expr]] = {}

    @property
    def builder(self) -> relax.BlockBuilder:
        """The block builder, inside the block."""
        return self.frames[-1].builder

    @property
    def controls(self) -> tuple[Control, ...]:
        """The Ifs and Loops that the function being built calls."""
        return tuple(self.frames[-1].controls)

    @property
    def counts(self) -> dict[DataDependentSize, relax.Expr]:
        """The data-dependent sizes of the function being built, each with the tensor that holds it."""
        return self.frames[-1].counts

    def expr(self, operand: Operand) -> relax.Expr:
        """The operand as an expression of Relax; one array becomes one constant, however often it is used.

        A large matrix in column-major order becomes a transposition: packing reads it where it is.
        In a body, what it uses of the functions around it becomes a parameter.
        """
        if not isinstance(operand, np.ndarray):
            return self.visible(operand)
        if is_transposed(operand):
            return self.emit(relax.op.permute_dims(self.expr(operand.T), [1, 0]))
        key = identity(operand)
        if key not in self._constants:
            value = np.ascontiguousarray(operand).reshape(operand.shape)
            # Without the type, 64-bit elements would be truncated. The array is kept, so that no other gets its
            # address, which is the key.
            tensor = relax.const(value, str(value.dtype)) if value.nbytes < LARGE else relax.const(tensor_of(value))
            self._constants[key] = (operand, tensor)
        return self._constants[key][1]

    def visible(self, expr: relax.Expr) -> relax.Expr:
        """Returns the expression, or in a body the parameter that stands for a variable of an enclosing function."""
        frame = self.frames[-1]
        if len(self.frames) == 1 or not isinstance(expr, relax.Var) or frame.owns(expr):
            return expr
        if expr not in frame.captured:
            frame.captured[expr] = relax.Var(str(expr.name), expr.ty)
        return frame.captured[expr]

    def emit(self, expr: relax.Expr) -> relax.Expr:
        """Bind an intermediate expression to a variable; who asks for an operator binds its result."""
        return self.builder.emit(expr, self.hint)

    def parts(self, expr: relax.Expr) -> list[relax.Expr]:
        """The results of an expression that has several, each bound to a variable."""
        whole = self.builder.emit(expr, self.hint)
        return [self.emit(relax.TupleGetItem(whole, index)) for index in range(len(whole.ty.fields))]

    def apply(self, operator: Operator, *operands: Operand | None) -> Any:
        """The result of an operator, bound to a variable if it is computed; a list of them if it has several."""
        made = operator.lower(self, *operands)
        return [self.bound(part) for part in made] if isinstance(made, list | tuple) else self.bound(made)

    def bound(self, operand: Operand) -> Operand:
        """The operand, bound to a variable if it is an expression that is computed."""
        if isinstance(operand, np.ndarray | relax.Var | GenericConst):
            return operand
        return self.emit(operand)

    def number(self, value: float, like: Operand) -> Array:
        """A constant without axes, of the element type of `like`."""
        return np.array(value).astype(numpy_dtype(dtype_of(like)))

    def compute(
        self,
        function: Callable[..., Any],
        *operands: Operand,
        name: str,
        attrs: Mapping[str, Any] = MappingProxyType({}),
    ) -> relax.Expr:
        """A computation in TE over the operands, as a call of a kernel called `name` with these attributes."""
        given = map(self.expr, operands)
        return call_te(self.builder, function, *given, name=name, attrs=attrs)

    def elements(
        self,
        shape: Sequence[int],
        element: Callable[[tuple[Any, ...], tuple[Any, ...]], Any],
        *operands: Operand,
        name: str,
    ) -> relax.Expr:
        """A tensor computed element by element: `element(tensors, index)` is the one at `index`."""

        def compute(*tensors: te.Tensor) -> te.Tensor:
            return te.compute(tuple(shape), lambda *index: element(tensors, index), name=name)

        return self.compute(compute, *operands, name=name)

    def of_sizes(self, function: Callable[..., te.Tensor], *sizes: Dimension, name: str) -> relax.Expr:
        """A computation without operands: `function` takes the sizes, as the kernel `name` knows them."""

        def compute(own: Sequence[tirx.Expr]) -> te.Tensor:
            return function(*map(dimension, own))

        return call_te(self.builder, compute, list(map(expression, sizes)), name=name)

    def reshaped(self, operand: Operand, shape: Sequence[int]) -> Operand:
        """The same elements in another shape."""
        if shape_of(operand) == tuple(shape):
            return operand
        if isinstance(operand, np.ndarray):
            return operand.reshape(tuple(shape))
        return self.emit(relax.op.reshape(self.expr(operand), tuple(shape)))

    @property
    def in_body(self) -> bool:
        """Whether a branch or the body of a loop is being built."""
        return len(self.frames) > 1

    def chosen(self, condition: relax.Expr, one: Dimension, other: Dimension) -> relax.Expr:
        """Returns one of two sizes as an int64 scalar: the first if a condition of one element holds."""

        def compute(condition: te.Tensor, one: tirx.Expr, other: tirx.Expr) -> te.Tensor:
            return te.compute((), lambda: tirx.Select(condition(*index), one, other), name="chosen")

        index = [0] * rank_of(condition)
        sizes = map(expression, (one, other))
        return self.emit(call_te(self.builder, compute, condition, *sizes, name="chosen"))

    def checkpoint(self) -> Callable[[], None]:
        """What forgets the data-dependent sizes of what is built from here on, if it turns out not to be used.

        Unused bindings are removed; bindings of such sizes are kept, since a run checks them.
        """
        frame, names, ranges = self.frames[-1], set(self.count_names), dict(self.ranges)
        counts, sizes, positions = dict(frame.counts), dict(frame.sizes), dict(frame.positions)

        def forget() -> None:
            known().forget({count.var for count in frame.counts.keys() - counts.keys()})
            frame.counts, frame.sizes, frame.positions = counts, sizes, positions
            self.count_names, self.ranges = names, ranges

        return forget

    def body(
        self,
        inputs: Sequence[relax.TensorType],
        states: Sequence[relax.TensorType],
        make: Callable[[list[relax.Expr], list[relax.Expr]], Sequence[Operand]],
        leading: int = 0,
    ) -> tuple[Body, list[relax.Expr]]:
        """Build a body of a choice or a loop.

        Args:
            inputs, states: their types.
            make: lowers it, given its inputs and states; returns its outputs and the states' new values. Of the
                functions around it, it uses what `expr` gives it.
            leading: how many of the inputs come before what it captures.

        Returns:
            The body, and what it captures: variables of the function around it.
        """
        types = [*inputs, *states]
        params = [relax.Var(f"p{index}", type_) for index, type_ in enumerate(types)]
        frame = _Frame(relax.BlockBuilder(), tuple(params))
        self.frames.append(frame)
        try:
            module = build_main(
                frame.builder,
                lambda: [
                    *map(self.expr, make(params[: len(inputs)], params[len(inputs) :])),
                    *frame.counts.values(),
                ],
                lambda: [*params[:leading], *frame.captured.values(), *params[leading:]],
            )
        finally:
            self.frames.pop()
        return Body(module, len(states), tuple(frame.controls), tuple(frame.counts)), list(frame.captured)

    def control(
        self, control: Control, operands: Sequence[Operand], results: Sequence[relax.TensorType]
    ) -> list[relax.Expr]:
        """Call a choice or a loop, whose results have these types; none of them is without elements."""
        controls = self.frames[-1].controls
        call = call_control(len(controls), list(map(self.expr, operands)), list(results))
        controls.append(control)
        var = self.builder.emit(call, self.hint)
        if len(results) == 1:
            return [var]
        return [self.builder.emit(relax.TupleGetItem(var, index), self.hint) for index in range(len(results))]

    def scan(
        self,
        iteration: Callable[[relax.Expr, relax.Expr, list[relax.Expr]], tuple[Sequence[Operand], Sequence[Operand]]],
        elements: relax.Expr,
        states: Sequence[Operand],
        backwards: bool = False,
    ) -> tuple[list[relax.Expr], list[relax.Expr]]:
        """Run a loop with one iteration for each element along the first dimension of a tensor.

        Args:
            iteration: lowers one, given its number (an int64 without axes, from 0 on), its element and the states;
                returns the new states and what else it computes.
            elements: at least two elements; none of the tensors is without elements.
            states: before the first iteration.
            backwards: whether the last element is the first iteration's; results are in the order of the elements.

        Returns:
            The states after the last iteration, and what each computes besides, stacked along a new first dimension.
        """
        count, *size = shape_of(elements)
        kept = [relax.TensorType(shape_of(state), dtype_of(state)) for state in states]
        stacked: list[relax.TensorType] = []

        def make(given: list[relax.Expr], before: list[relax.Expr]) -> list[Operand]:
            number, element = given
            after, made = iteration(number, element, before)
            stacked.extend(relax.TensorType((count, *shape_of(part)), dtype_of(part)) for part in made)
            return [*made, *after]

        inputs = [relax.TensorType((), "int64"), relax.TensorType(size, dtype_of(elements))]
        body, captured = self.body(inputs, kept, make, leading=1)
        loop = Loop(body, count, False, False, (backwards,), (backwards,) * len(stacked))
        results = self.control(loop, [*captured, *states, elements], [*kept, *stacked])
        return results[: len(kept)], results[len(kept) :]


def build_main(
    builder: relax.BlockBuilder, make: Callable[[], list[relax.Expr]], params: Callable[[], list[relax.Var]]
) -> tvm.IRModule:
    """Build `main` and the kernels that it calls, without what its results do not need.

    Args:
        make: emits its one dataflow block; returns its results.
        params: its parameters, asked for afterwards.
    """
    failure: BaseException | None = None
    results: list[relax.Expr] = []
    with builder.function("main"):
        with builder.dataflow():
            try:
                results = make()
            except BaseException as error:
                failure = error  # raised when the builder's blocks are closed: left open, it warns of them
            made = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(made, params())
    if failure is not None:
        raise failure
    return relax.transform.DeadCodeElimination(["main"])(builder.finalize())


def identity(array: Array) -> object:
    """Return a key that is equal for arrays that may share a constant: the value of numbers, else the address."""
    if array.ndim == 0:
        return array.dtype.str, str(array.dtype), array.tobytes()
    return array.dtype.str, array.shape, array.strides, array.__array_interface__["data"][0]


def _of_kind(lower: Callable[..., Any]) -> Callable[..., Any]:
    """The method `lower` of an operator, which refuses numbers that it cannot compute with."""

    @functools.wraps(lower)
    def checked(operator: Operator, ctx: Emitter, *operands: Any, **options: Any) -> Any:
        if operands and isinstance(operands[0], np.ndarray | relax.Expr):
            dtype = dtype_of(operands[0])
            if not is_of(dtype, operator.takes):
                raise CompileError(f"the operand is of {dtype}, but must be of {operator.takes}: cast it before")
        return lower(operator, ctx, *operands, **options)

    return checked


def is_transposed(array: Array) -> bool:
    """Returns whether an array is a large matrix in column-major order."""
    return array.ndim == 2 and array.nbytes >= LARGE and array.flags.f_contiguous and not array.flags.c_contiguous


class Operator:
    """An operator with its attributes; subclasses are frozen dataclasses.

    `shape` takes the shapes of the operands and returns that of the result, `lower` takes the operands and returns the
    result, an expression that is not bound yet or an array. Both take and return tuples where there are several
    results.

    Raises:
        CompileError: the attributes and the operands do not fit each other. Front ends add the location.
    """

    KINDS: ClassVar[list[type[Operator]]] = []
    """All operators but those of users, in the order of their declaration."""

    moves: ClassVar[bool] = False
    """Whether the elements of the results are elements of the first operand as they are, of any element type."""

    def __init_subclass__(cls, listed: bool = True, **options: Any) -> None:
        super().__init_subclass__(**options)
        if listed:
            Operator.KINDS.append(cls)
        for name in [name for name in ("lower",) if name in vars(cls)]:
            setattr(cls, name, recorded(_of_kind(vars(cls)[name])))

    @property
    def takes(self) -> Kind:
        """The first kind of numbers that the first operand may be of."""
        return "booleans"

    def shape(self, *shapes: Any) -> Any:
        """The shape of the result, from those of the operands."""
        raise NotImplementedError

    def lower(self, ctx: Emitter, *operands: Any) -> Any:
        """The result, built with `ctx`."""
        raise NotImplementedError


class SameShape(Operator, listed=False):
    """An operator whose result has the shape of its first operand."""

    def shape(self, x: Shape, *_others: Any) -> Shape:
        """Returns the shape of the first operand."""
        return x
