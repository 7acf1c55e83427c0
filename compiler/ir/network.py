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
    """A tensor kept between runs of a session.

    Attributes:
        initial: its value at the start and after a reset.
        positions: the axis of positions of a state whose first axis is that of sequences of tokens; 0 where a sequence
            has one value; None for a state that is of no sequence.
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
    """A size that is known only at run time: `multiple` times `var`, whose values have a range.

    Attributes:
        name: as users know it.
        var: in the network's shapes.
        values: of `var`.
        multiple: what sizes are multiples of.
        formula: what the size is of the others, if it follows from them; runs are checked for that.
        value: of the formula: this stands in the network's shapes then in place of `var`.
        join: two sizes that broadcast when a library runs, and the size that they broadcast to, if this is it or
            checks it.
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
        """A dimension of a new variable, whose sizes are these."""
        return cls(name, tirx.Var(name, "int64"), size.values, size.multiple)

    @property
    def size(self) -> Dimension:
        """The size of a dimension that has this name."""
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
    """A number; the name of a dynamic dimension; or how the size is computed from such names."""
    if isinstance(size, int):
        return size
    for dimension in dimensions:
        if size == dimension.size:
            return dimension.name
    return str(substituted(size, {d.var: Size(tirx.Var(d.name, "int64")) // d.multiple for d in dimensions}))


@dataclass(frozen=True)
class DataDependentSize:
    """A data-dependent size: the value of a tensor that each run computes.

    Attributes:
        var: in the network's shapes.
        limit: what its values are at most, by the dynamic dimensions: memory is laid out for that. None if there is no
            limit: what needs the size is laid out in the run, when it is known.
        values: their range; sizes are these values times its multiple.
    """

    var: tirx.Var
    limit: Dimension | None
    values: Range

    @classmethod
    def up_to(cls, limit: Dimension, var: tirx.Var) -> DataDependentSize:
        """A size of at most `limit`."""
        return cls(var, limit, Range(0, max(0, bounds(limit)[1]), max(1, size_hint(limit))))

    @property
    def dimension(self) -> DynamicDimension:
        """What users know a size without a limit as."""
        return DynamicDimension(str(self.var.name), self.var, self.values, self.values.multiple)


@dataclass(frozen=True)
class Body:
    """Part of a network that runs as often as a `If` or a `Loop` says.

    Attributes:
        module: as a network's: the parameters of `main` are the inputs, then the states; it returns a tuple of the
            outputs, then the states' new values, then one int64 for each of `counts`.
        states: how many of the parameters are states.
        controls: of the calls inside.
        counts: data-dependent sizes, which hold for one run of the body.
    """

    module: tvm.IRModule
    states: int
    controls: tuple[Control, ...]
    counts: tuple[DataDependentSize, ...] = ()


@dataclass(frozen=True)
class If:
    """Runs one of two bodies without states, whose outputs are of the same types: they are the results.

    The operands are the condition (one bool), the inputs of `then`, and the inputs of `other`.
    """

    then: Body
    other: Body

    @property
    def bodies(self) -> tuple[Body, ...]:
        """What it may run."""
        return self.then, self.other


@dataclass(frozen=True)
class Loop:
    """Runs a body again and again.

    The body's inputs are the number of the iteration (an int64 without axes, from 0 on), what stays the same in all,
    and the elements along the first axis of what is scanned. Its states go from each iteration to the next.

    The operands are the greatest trip count (one int64) if `has_trip_count`; what stays the same; the states' first
    values; what is scanned. The results are the states' last values and, for each output of the body, its values of all
    iterations along a new first axis.

    Attributes:
        trip_count: the greatest one, if it is known at compile time; it must be if anything is scanned or if the body
            has outputs. All iterations are run then.
        has_trip_count: whether that number is an operand.
        conditional: whether the first state is a bool that tells before each iteration whether there is one.
        reversed_inputs: for each tensor that is scanned, whether its last element is the first iteration's.
        reversed_outputs: for each output, whether the first iteration's value is the last element.
    """

    body: Body
    trip_count: Dimension | None
    has_trip_count: bool
    conditional: bool
    reversed_inputs: tuple[bool, ...]
    reversed_outputs: tuple[bool, ...]

    @property
    def bodies(self) -> tuple[Body, ...]:
        """What it may run."""
        return (self.body,)


Control = If | Loop


@dataclass(frozen=True)
class Network:
    """A typed network with all shapes known, in Relax.

    `module["main"]` is one Relax function in a single dataflow block. Its parameters are the inputs, in the order of
    `inputs`, then the states, in the order of `states`. It returns a tuple (always a tuple): the outputs, in the order
    of `outputs`, then the states' new values, in the order of `states`, then one int64 for each of `counts`. Trained
    values are `tvm.ir.GenericConst`. `variables` are the model's names of its trained values; passes change the values,
    so that the names alone survive. `files` are the names of files next to the model that were looked for, relative to
    its folder; some may not be there. `controls` are the choices and loops that `main` calls. `labels` are what the
    columns of outputs stand for, by the outputs' names. `texts` are the names of inputs and outputs that are strings:
    in the module they are int64, the handles of texts. `has_text` says whether its kernels compute with strings.
    `scalings` are what inputs and outputs in integers stand for, by their names, where the user asked for integers.
    `metadata` is what the model says of itself, as `nnefc.ir.model_metadata` collects it. `scenarios` are sizes of
    dynamic dimensions that the model has names for, as cases that are worth code of their own. `apart` are sizes of
    dynamic dimensions, by name, that the network need not be right for: others are for these. `vocabulary` is the
    tokenizer of a language model, as `nnefc.tokenizer` serializes it, and `chat_program` the program of its chat
    template; each is empty if there is none.
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
        """What is known of the sizes that are known at run time."""
        return {d.var: d.values for d in self.dynamic_dimensions} | {
            c.var: c.values for c in self.all_data_dependent_sizes
        }

    @property
    def unbounded_data_dependent_sizes(self) -> tuple[DataDependentSize, ...]:
        """The data-dependent sizes, and that have no limit."""
        return tuple(count for count in self.all_data_dependent_sizes if count.limit is None)

    @property
    def all_data_dependent_sizes(self) -> tuple[DataDependentSize, ...]:
        """The data-dependent sizes, those of the bodies that are called among them."""
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
    """The types of what a network or a body returns; that of the function says nothing of sizes like `32 * h`."""
    return list(main.body.body.ty.fields)


def call_control(index: int, operands: list[relax.Expr], results: list[relax.TensorType]) -> relax.Call:
    """The call of the `If` or `Loop` at this location among `controls`."""
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
