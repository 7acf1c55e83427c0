"""Defines :class:`Network`, the result of every front end: a Relax function and the names of its tensors.

The branches of an `If` and the body of a `Loop` are each a `Body`: a network within the network, which runs as often as
computed values decide. In Relax, `main` calls the `If` or `Loop` at `controls[3]` as

    results = R.call_dps_packed("nnefc.control.3", operands, out_ty=…)

No pass looks into this call: its operands and results are in row-major layout, and it is a barrier to fusion.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import tvm
from tvm import relax, tirx

from nnefc.ir.attributes import CONTROL
from nnefc.ir.dataflow import bindings_of
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import (
    MAX_ELEMENTS,
    Dimension,
    DynamicSize,
    Range,
    Size,
    bounds,
    dimensions,
    element_count,
    is_known,
    size_hint,
    substituted,
)
from nnefc.symbolic.named_formulas import Formula

__all__ = [
    "MAX_ELEMENTS",
    "Body",
    "Control",
    "DataDependentSize",
    "DynamicDimension",
    "If",
    "Loop",
    "Network",
    "Scaling",
    "State",
    "call_control",
    "called_controls",
    "check_sizes",
    "control_index",
    "result_types",
    "size_by_name",
]


@dataclass(frozen=True)
class State:
    """A tensor that is kept between runs of a session.

    Attributes:
        initial: its value at the start and after a reset.
        positions: the axis of token positions of a state whose first axis is that of sequences; 0 if a sequence has one
            value; None if the state does not belong to sequences.
    """

    name: str
    initial: np.ndarray
    positions: int | None = None


@dataclass(frozen=True)
class Scaling:
    """Quantization parameters of an integer input or output: real = `(integer - zero_point) · scale`."""

    scale: float
    zero_point: int


@dataclass(frozen=True)
class DynamicDimension:
    """A size that is known at run time only: `multiple` times `var`, whose values have a range.

    Attributes:
        name: for users.
        var: in the network's shapes.
        values: the range of `var`.
        multiple: a divisor of all sizes.
        formula: by which the size is computed from other dimensions; each run checks it. None if it is independent.
        value: of the formula, which the network's shapes have instead of `var`.
        join: two sizes that are broadcast at run time and the result, if this dimension is the result or checks it.
    """

    name: str
    var: tirx.Var
    values: Range
    multiple: int = 1
    formula: Formula | None = None
    value: Dimension | None = None
    join: tuple[Dimension, Dimension, Dimension] | None = None

    @classmethod
    def of(cls, name: str, size: DynamicSize) -> DynamicDimension:
        """Return a dimension with a new variable and the given range."""
        return cls(name, tirx.Var(name, "int64"), size.values, size.multiple)

    @property
    def size(self) -> Dimension:
        """The size in the network's shapes."""
        return Size(self.var) * self.multiple if self.value is None else self.value

    @property
    def minimum(self) -> int:
        """The smallest size."""
        return self.values.minimum * self.multiple

    @property
    def maximum(self) -> int:
        """The largest size."""
        return self.values.maximum * self.multiple

    @property
    def size_hint(self) -> int:
        """The size for estimates."""
        return self.values.size_hint * self.multiple


def size_by_name(size: Dimension, dimensions: Sequence[DynamicDimension]) -> int | str:
    """Return a size as a number, the name of a dynamic dimension, or a formula of such names."""
    if isinstance(size, int):
        return size
    for dimension in dimensions:
        if size == dimension.size:
            return dimension.name
    return str(substituted(size, {d.var: Size(tirx.Var(d.name, "int64")) // d.multiple for d in dimensions}))


@dataclass(frozen=True)
class DataDependentSize:
    """A data-dependent size: the value of a tensor that is computed in each run.

    Attributes:
        var: in the network's shapes.
        limit: an upper bound, which may depend on dynamic dimensions: memory is planned for it. None without a bound:
            memory that depends on the size is laid out during the run, when the size is known.
        values: the range of `var`; sizes are these values times its multiple.
    """

    var: tirx.Var
    limit: Dimension | None
    values: Range

    @classmethod
    def up_to(cls, limit: Dimension, var: tirx.Var) -> DataDependentSize:
        """Return a size of at most `limit`."""
        return cls(var, limit, Range(0, max(0, bounds(limit)[1]), max(1, size_hint(limit))))

    @property
    def dimension(self) -> DynamicDimension:
        """The dynamic dimension that represents a size without a bound to users."""
        return DynamicDimension(str(self.var.name), self.var, self.values, self.values.multiple)


@dataclass(frozen=True)
class Body:
    """A branch of an `If` or the body of a `Loop`.

    Attributes:
        module: as that of a network: the parameters of `main` are the inputs, then the states; it returns a tuple of
            the outputs, then the states' new values, then one int64 for each of `counts`.
        states: the number of parameters that are states.
        controls: that the body calls.
        counts: data-dependent sizes, which are valid within one run of the body.
    """

    module: tvm.IRModule
    states: int
    controls: tuple[Control, ...]
    counts: tuple[DataDependentSize, ...] = ()


@dataclass(frozen=True)
class If:
    """Runs one of two bodies without states, whose outputs have the same types, and returns its outputs.

    The operands are the condition (one bool), the inputs of `then`, and the inputs of `other`.
    """

    then: Body
    other: Body

    @property
    def bodies(self) -> tuple[Body, ...]:
        """Both branches."""
        return self.then, self.other


@dataclass(frozen=True)
class Loop:
    """Runs a body repeatedly.

    The body's inputs are the iteration number (an int64 scalar, from 0), the loop-invariant tensors, and the slices of
    the scanned tensors along their first axis. Its states are carried from each iteration to the next.

    The operands are the maximum trip count (one int64) if `has_trip_count`, the loop-invariant tensors, the states'
    initial values, and the scanned tensors. The results are the states' final values and, for each output of the body,
    its values in all iterations along a new first axis.

    Attributes:
        trip_count: the maximum trip count, if it is known at compile time; it must be known if tensors are scanned or
            the body has outputs. All iterations are run then.
        has_trip_count: whether the maximum trip count is an operand.
        conditional: whether the first state is a bool, the condition for running the next iteration.
        reversed_inputs: for each scanned tensor, whether the first iteration gets its last slice.
        reversed_outputs: for each output, whether the value of the first iteration is the last slice.
    """

    body: Body
    trip_count: Dimension | None
    has_trip_count: bool
    conditional: bool
    reversed_inputs: tuple[bool, ...]
    reversed_outputs: tuple[bool, ...]

    @property
    def bodies(self) -> tuple[Body, ...]:
        """The body."""
        return (self.body,)


Control = If | Loop


@dataclass(frozen=True)
class Network:
    """A typed network with all shapes known, in Relax.

    `module["main"]` is one Relax function in a single dataflow block. Its parameters are the inputs, in the order of
    `inputs`, then the states, in the order of `states`. It returns a tuple (always a tuple): the outputs, in the order
    of `outputs`, then the states' new values, in the order of `states`, then one int64 for each of `counts`. Trained
    values are `tvm.ir.GenericConst`.

    Attributes:
        name: of the network.
        module: the program.
        inputs, outputs: their names.
        states: tensors that are kept between runs.
        variables: the model's names of its trained values; passes change the values, so that only the names remain
            valid.
        files: names of files next to the model, relative to its folder, that the front end looked for; some may not
            exist.
        controls: the `If`s and loops that `main` calls.
        dynamic_dimensions: in the shapes of inputs.
        counts: the data-dependent sizes.
        labels: the classes that the columns of outputs stand for, by output.
        texts: the names of inputs and outputs of strings, which are int64 in the module: string handles.
        has_text: whether its kernels compute with strings.
        scalings: scales and zero points of integer inputs and outputs, by name, if the user asked for these.
        scenarios: sizes of dynamic dimensions that the model has names for, for which specialized code is worthwhile.
        metadata: of the model, as collected by `nnefc.ir.model_metadata`.
        apart: single sizes of dynamic dimensions, by name, for which the network need not be correct, since there are
            separate networks for them.
        vocabulary: the tokenizer of a language model, serialized by `nnefc.tokenizer`; empty for none.
        chat_program: the compiled chat template; empty for none.
    """

    name: str
    module: tvm.IRModule
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    states: tuple[State, ...] = ()
    variables: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    controls: tuple[Control, ...] = ()
    dynamic_dimensions: tuple[DynamicDimension, ...] = ()
    counts: tuple[DataDependentSize, ...] = ()
    labels: Mapping[str, tuple[int | str, ...]] = field(default_factory=dict)
    texts: frozenset[str] = frozenset()
    has_text: bool = False
    scalings: Mapping[str, Scaling] = field(default_factory=dict)
    scenarios: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    apart: Mapping[str, int] = field(default_factory=dict)
    vocabulary: bytes = b""
    chat_program: bytes = b""

    @property
    def dimension_names(self) -> set[str]:
        """The names of the dynamic dimensions."""
        return {dimension.name for dimension in self.dynamic_dimensions}

    @property
    def ranges(self) -> dict[tirx.Var, Range]:
        """The known ranges of dynamic dimensions and data-dependent sizes."""
        return {d.var: d.values for d in self.dynamic_dimensions} | {
            c.var: c.values for c in self.all_data_dependent_sizes
        }

    @property
    def unbounded_data_dependent_sizes(self) -> tuple[DataDependentSize, ...]:
        """The data-dependent sizes without an upper bound."""
        return tuple(count for count in self.all_data_dependent_sizes if count.limit is None)

    @property
    def all_data_dependent_sizes(self) -> tuple[DataDependentSize, ...]:
        """The data-dependent sizes, those of called bodies included."""
        return tuple(_all_counts(self))

    @property
    def input_shapes(self) -> dict[str, tuple[Dimension, ...]]:
        """The shapes of the inputs, by name."""
        return {
            name: dimensions(param.ty.shape)
            for name, param in zip(self.inputs, self.module["main"].params, strict=False)
        }


def called_controls(part: Network | Body) -> set[int | None]:
    """Returns the indices of the `controls` that a network or a body calls."""
    return {control_index(binding.value) for binding in bindings_of(part.module["main"])}


def _all_counts(part: Network | Body) -> Iterator[DataDependentSize]:
    yield from part.counts
    called = called_controls(part) if part.controls else ()
    for index, control in enumerate(part.controls):
        if index in called:
            for body in control.bodies:
                yield from _all_counts(body)


def result_types(main: relax.Function) -> list[relax.TensorType]:
    """Return the types of the results of a network or a body; the return type of the function loses sizes such as
    `32 * h`.
    """
    return list(main.body.body.ty.fields)


def call_control(index: int, operands: list[relax.Expr], results: list[relax.TensorType]) -> relax.Call:
    """Return the call of the `If` or `Loop` at an index of `controls`."""
    return relax.op.call_dps_packed(f"{CONTROL}{index}", relax.Tuple(operands), results)


def control_index(expr: relax.Expr) -> int | None:
    """Returns the index in `controls` that an expression calls, or None; its operands are the fields of
    `expr.args[1]`.
    """
    if not isinstance(expr, relax.Call) or expr.op != tvm.ir.Op.get("relax.call_dps_packed"):
        return None
    return int(str(expr.args[0].global_symbol).removeprefix(CONTROL))


def check_sizes(part: Network | Body) -> None:
    """Check that no tensor of a network, or of a body in it, has more than `MAX_ELEMENTS` elements.

    Raises:
        CompileError: one has.
    """
    main = part.module["main"]
    for var in (*main.params, *(binding.var for binding in bindings_of(main))):
        for ty in _tensor_types(var.ty):
            shape = dimensions(ty.shape)
            if is_known(*shape) and element_count(shape) > MAX_ELEMENTS:
                raise CompileError(
                    f"the tensor '{var.name}' of shape {list(shape)} has {element_count(shape):,} elements, a "
                    f"tensor may "
                    f"have {MAX_ELEMENTS:,}",
                    hint="give the model smaller inputs, or cut the tensor into several",
                )
    for control in part.controls:
        for body in control.bodies:
            check_sizes(body)


def _tensor_types(ty: relax.Type) -> list[relax.TensorType]:
    return (
        [ty]
        if isinstance(ty, relax.TensorType)
        else [element for field in ty.fields for element in _tensor_types(field)]
    )
