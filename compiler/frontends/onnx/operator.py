"""Declares operator lowerings, and defines the nodes and the context that lowerings receive.

    @operator("Relu", since=(1, 6, 13, 14))
    def _relu(ctx: Context, node: Node) -> Value:
        return ctx.apply(Relu(), node.inputs[0])

Names, types, defaults and arities of operators are those of `onnx.defs`; a lowering is only called for nodes that fit
them, with every attribute that has a default in `node.attributes`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, TypeAlias

import numpy as np
import numpy.typing as npt
from tvm import relax

from nnefc.frontends.lazy_operators import LazyOperators
from nnefc.frontends.onnx.files.model import node_description
from nnefc.frontends.onnx.operators import MODULES
from nnefc.frontends.onnx.values import STORAGE, AnyValue, Array, TensorSequence, Value, dtype_name, numpy_dtype
from nnefc.ir.constant_evaluation import Budget
from nnefc.ir.network import Body, Control
from nnefc.operators.base import Emitter, Operand, Operator, check_size, identity, is_transposed
from nnefc.operators.size_checks import lowered
from nnefc.operators.tensor.creation import SizeValues
from nnefc.support.diagnostics import CompileError
from nnefc.support.mapped_files import LARGE, release_pages, tensor_of
from nnefc.symbolic.dims import dimensions, mentions_dynamic_dim
from nnefc.symbolic.values import integer_parts

__all__ = [
    "OPERATORS",
    "AnyValue",
    "Context",
    "Lowering",
    "Node",
    "Origin",
    "Subgraph",
    "TensorSequence",
    "Value",
    "listed_name",
    "operator",
]


class Subgraph(Protocol):
    """A graph that is an attribute of a node; `Context.run_graph` inlines it.

    Attributes:
        size: how many nodes it has, with those of the graphs in it.
        source: what is the same each time that its node is lowered.
        passes_on: whether its outputs are values of the graphs around it, unchanged.
    """

    @property
    def source(self) -> object: ...

    @property
    def name(self) -> str: ...

    @property
    def input_names(self) -> tuple[str, ...]: ...

    @property
    def output_names(self) -> tuple[str, ...]: ...

    @property
    def size(self) -> int: ...

    @property
    def passes_on(self) -> bool: ...

    def seeing(self, change: Callable[[AnyValue], AnyValue]) -> Subgraph:
        """The graph, to which values of the graphs around it are what `change` makes of them."""


@dataclass(frozen=True, eq=False)
class Node:
    """A node that has been checked against its operator's schema.

    Attributes:
        op_type, domain: its operator; the domain of ai.onnx is empty.
        name: the node's own, or empty.
        version: the since-version of the operator's schema in the imported operator set.
        attributes: values by name, the schema's defaults among them. A float is a float, an int an int, a string a str,
            a tensor an array, a graph a `Subgraph`, a sparse tensor a `SparseTensor`, a type the name of the element
            type of its tensors; repeated ones are tuples. Optional ones without a default are missing if not given.
        operands: inputs, None for one that is left out; those at the end may also be missing.
        outputs: names, empty for one that is not wanted; those at the end may also be missing.
        opset: the imported version of the domain's operator set.
        operand_names: the operands' names in the model.
    """

    op_type: str
    domain: str
    name: str
    version: int
    attributes: Mapping[str, Any]
    operands: tuple[AnyValue | None, ...]
    outputs: tuple[str, ...]
    opset: int = 0
    operand_names: tuple[str, ...] = ()

    @property
    def description(self) -> str:
        """The node as messages name it."""
        return node_description(self.domain, self.op_type, self.name, self.outputs)

    @cached_property  # operators of thousands of tensors ask for one after the other
    def inputs(self) -> tuple[Value | None, ...]:
        """The operands of an operator of tensors.

        Raises:
            CompileError: one is a sequence, an optional or a map.
        """
        tensors: list[Value | None] = []
        for index, operand in enumerate(self.operands):
            if operand is not None and not isinstance(operand, Value):
                kind = type(operand).__name__.lower()
                raise CompileError(f"{self.description}: input {index} is a {kind}, not a tensor")
            tensors.append(operand)
        return tuple(tensors)

    def wants(self, index: int) -> bool:
        """Returns whether output `index` is named, so that somebody may use it."""
        return index < len(self.outputs) and bool(self.outputs[index])


@dataclass(frozen=True)
class Origin:
    """The node that computed a tensor: its operator, attributes, operands, and the number of the result."""

    op_type: str
    attributes: Mapping[str, Any]
    operands: tuple[Value | None, ...]
    index: int


@dataclass(eq=False)
class Context:
    """The context of lowerings: constants, a dataflow block of Relax, subgraphs.

    Attributes:
        start: the block builder, inside the dataflow block of the network's `main`.
        inline: runs a subgraph on values for its inputs; see `run_graph`.
        evaluate: the value of an expression over constants alone, bound by a block builder, given known values of
            variables and what may be spent.
        lower: lowers a further operator; see `call`.
        find: the value of a name that the node sees; None if there is none.
        declared_rank: the rank that the file gives for a result by its name; None if it gives none.
        runs: how many runs the session has done, int64 without axes, where something draws random numbers; see `draw`.
        warnings: what the user should know of the model, in sentences.
        labels: what the columns of tensors stand for, by the tensors' names.
        origins: how small tensors of integers were computed, by their variables, None where that is not known; see
            `sizes_of`.
        computed_choices: the first graphs, by `Subgraph.source`, of choices of which both branches are computed.
    """

    start: InitVar[relax.BlockBuilder]
    inline: Callable[[Subgraph, Sequence[AnyValue]], list[AnyValue]] | None = None
    evaluate: Callable[[relax.BlockBuilder, relax.Expr, Mapping[relax.Var, Array], Budget], Array | None] | None = None
    lower: Callable[..., list[AnyValue]] | None = None
    find: Callable[[str], AnyValue | None] | None = None
    declared_rank: Callable[[str], int | None] = lambda _name: None
    runs: Value | None = None
    warnings: list[str] = field(default_factory=list)
    labels: dict[str, tuple[int | str, ...]] = field(default_factory=dict)
    origins: dict[relax.Expr, Origin | None] = field(default_factory=dict)
    computed_choices: set[object] = field(default_factory=set)
    _draws: int = 0
    _budget: Budget = field(default_factory=Budget)
    _constants: dict[object, tuple[object, relax.Expr]] = field(default_factory=dict)
    _as_float32: dict[object, tuple[object, Value]] = field(default_factory=dict)
    """float32 of 16-bit floats, by the array's `id`, or by the function that is being built and the expression."""
    _fixed: dict[relax.Expr, Array | None] = field(default_factory=dict)
    """Variables that are computed from constants alone, and their values where somebody has asked."""
    _rounded: dict[tuple[relax.Expr | None, str], Array | None] = field(default_factory=dict)
    """The values of 16-bit floats that are variables of float32."""

    def __post_init__(self, start: relax.BlockBuilder) -> None:
        self.emitter: Emitter = _Emitter(self, start)

    @property
    def builder(self) -> relax.BlockBuilder:
        """The block builder, inside the dataflow block of `main` of the network, or of the body that is built."""
        return self.emitter.builder

    def draw(self) -> tuple[Value, int]:
        """Return the number of runs of the session, and the number of nodes that drew random numbers before this one.

        Raises:
            CompileError: it runs as often as the network itself decides; all iterations would draw the same numbers.
        """
        if len(self.emitter.frames) > 1:
            raise CompileError(
                "random numbers are not supported where the network decides at run time whether or how often they "
                "are drawn"
            )
        if self.runs is None:
            self.runs = Value((), "int64", expr=relax.Var("runs", relax.TensorType((), "int64")))
        self._draws += 1
        return self.runs, self._draws - 1

    def known(self, array: npt.ArrayLike) -> Value:
        """A tensor whose value is known at compile time."""
        return Value.known(array)

    def constant(self, value: Value) -> Array | None:
        """The value of a tensor if it can be known at compile time, else None; must not be written to."""
        if value.array is not None or not value.fixed or self.evaluate is None or value.expr is None:
            return value.array
        if value.wide:
            return self._rounded_constant(value)
        if value.stored is not None:
            return self.unrounded(Value.known(value.stored)).array
        if self._fixed.get(value.expr) is None:
            owner = next(frame for frame in reversed(self.emitter.frames) if frame.owns(value.expr))
            known = {var: to_storage(array) for var, array in self._fixed.items() if array is not None}
            made = self.evaluate(owner.builder, value.expr, known, self._budget)
            self._fixed[value.expr] = None if made is None else from_storage(made, value.dtype)
        return self._fixed[value.expr]

    def _rounded_constant(self, half: Value) -> Array | None:
        """The value of 16-bit floats that are float32 where they are computed."""
        key = half.expr, half.dtype
        if key not in self._rounded:
            exact = self.constant(self.unrounded(half))
            with np.errstate(over="ignore", invalid="ignore"):
                self._rounded[key] = None if exact is None else exact.astype(numpy_dtype(half.dtype))
        return self._rounded[key]

    def expr(self, value: Value) -> relax.Expr:
        """The tensor as a Relax expression, of the storage type (`STORAGE`); one array becomes one constant.

        Raises:
            CompileError: a program cannot hold tensors of this type: complex numbers.
        """
        if value.wide:
            return self.builder.emit(relax.op.astype(self.expr(self.unrounded(value)), value.dtype), self.emitter.hint)
        if value.sizes is not None:
            return self._written(value.sizes, value.dtype)
        if value.expr is not None:
            return self._visible(value.expr, value)
        if value.array is None:
            return self.builder.emit(
                relax.op.zeros(value.shape, STORAGE.get(value.dtype, value.dtype)), self.emitter.hint
            )
        if value.dtype.startswith("complex"):
            raise CompileError(f"tensors of type {value.dtype} can only be used where they are known at compile time")
        array = value.array
        if value.dtype == "string":
            return self._texts(array)
        if is_transposed(array):
            return self.bind(relax.op.permute_dims(self.expr(Value.known(array.T)), [1, 0]))
        key: object = (value.dtype, array.shape, array.tobytes()) if array.nbytes <= 64 else identity(array)
        if key not in self._constants:
            stored = np.ascontiguousarray(to_storage(array)).reshape(array.shape)
            # The array is kept too, so that its id is not given to another one.
            self._constants[key] = (array, relax.const(tensor_of(stored)))
        return self._constants[key][1]

    def _texts(self, array: Array) -> relax.Expr:
        """A constant of strings: a kernel writes their handles, once in each function that is being built."""
        from nnefc.operators.text.strings import TextConstant  # few networks have strings

        key: object = (id(self.emitter.frames[-1]), id(array))
        if key not in self._constants:
            # The frame and the array are kept too, so that their ids are not given to others.
            kept = (self.emitter.frames[-1], array)
            self._constants[key] = (kept, self.emitter.expr(TextConstant(array).lower(self.emitter)))
        return self._constants[key][1]

    def _written(self, sizes: Array, dtype: str) -> relax.Expr:
        """A tensor of what is known when the sizes are: integers, or quotients or booleans as these."""
        if dtype.startswith("int"):
            made = SizeValues(sizes, dtype).lower(self.emitter)
            return (
                self.emitter.expr(made) if isinstance(made, np.ndarray) else self.builder.emit(made, self.emitter.hint)
            )
        parts = [self._written(integers, "int64") for integers in integer_parts(sizes)]
        real = [self.builder.emit(relax.op.astype(part, dtype), self.emitter.hint) for part in parts]
        return real[0] if len(real) == 1 else self.builder.emit(relax.op.divide(*real), self.emitter.hint)

    def unrounded(self, half: Value, late: bool = False) -> Value:
        """16-bit floats as float32, just as the operator that they come from computed them.

        Args:
            late: whether the program converts large arrays, so that the result is no array.
        """
        if half.wide:
            return replace(half, dtype="float32", wide=False)
        array = None if late and half.array is not None and half.array.nbytes >= LARGE else half.array
        frame = self.emitter.frames[-1]
        key: object = id(array) if array is not None else (id(frame), self.expr(half))
        if key not in self._as_float32:
            # The array and the frame are kept too, so that their ids are not given to others.
            if array is not None:
                wide = array.astype(np.float32).view()  # TVM shares a view that cannot be written to
                wide.flags.writeable = False
                if wide.nbytes >= LARGE:
                    release_pages()
                self._as_float32[key] = array, Value.known(wide)
            else:
                made = self.emit(relax.op.astype(self.expr(half), "float32"))
                self._as_float32[key] = frame, replace(made, stored=half.array)
        return self._as_float32[key][1]

    def emit(self, expr: relax.Expr, dtype: str | None = None) -> Value:
        """Bind an expression to a variable; `dtype` names the type of the result where `STORAGE` hides it.

        Raises:
            CompileError: the shape of the result is not known at compile time.
        """
        return self._value(self.bind(expr), dtype)

    def bind(self, expr: relax.Expr) -> relax.Var:
        """Bind an expression to a variable, of which it is noted whether constants alone determine it."""
        fixed = all(var in self._fixed for var in relax.analysis.free_vars(expr))
        var = self.builder.emit(expr, self.emitter.hint)
        if fixed and not mentions_dynamic_dim(expr, var.ty):
            self._fixed[var] = None
        return var

    def text(self, handles: Value) -> Value:
        """Handles, which an operator of the library has made, as strings."""
        return replace(handles, dtype="string") if handles.array is None else Value.empty(handles.shape, "string")

    def emit_tuple(self, expr: relax.Expr) -> list[Value]:
        """Bind an expression of several results; each of them as a value."""
        var = self.bind(expr)
        return [self.emit(relax.TupleGetItem(var, index)) for index in range(len(var.ty.fields))]

    def apply(self, operator_: Operator, *operands: Value | Sequence[Any] | None, dtype: str | None = None) -> Any:
        """Lower an operator of the library; operands may be sequences, and named tuples, of such.

        `dtype` names the type of the result where `STORAGE` hides it.

        Returns:
            A `Value`, or a list of them if the operator has several results.
        """
        moves = operator_.moves
        known = all(v.array is not None for v in operands if isinstance(v, Value))
        given = [self._operand(v, moves, known) for v in operands]
        made = lowered(operator_, self.emitter, *given)
        if moves and isinstance(operands[0], Value):
            dtype = operands[0].dtype

        def value(part: Operand) -> Value:
            pairs = zip(operands, given, strict=True)
            same = next((own for own, operand in pairs if operand is part and isinstance(own, Value)), None)
            return self._made(part, dtype) if same is None else same

        return [value(part) for part in made] if isinstance(made, tuple | list) else value(made)

    def _operand(self, value: Value | Sequence[Any] | None, stored: bool, known: bool) -> Any:
        """A tensor, or tensors, for an operator of the library; with `stored`, arrays are of the storage type.

        Strings are arrays only where all operands are `known`.
        """
        if value is None:
            return None
        if not isinstance(value, Value):
            parts = [self._operand(part, stored, known) for part in value]
            return value._make(parts) if hasattr(value, "_make") else parts
        if value.dtype == "string":
            return value.array if known else self.expr(value)
        if value.array is None or (value.dtype in STORAGE and not stored):
            return self.expr(value)
        return to_storage(value.array)

    def _made(self, operand: Operand, dtype: str | None) -> Value:
        """Return the value of an operator's result; `dtype` is its element type where `STORAGE` hides it."""
        if isinstance(operand, np.ndarray):
            return self.known(operand if dtype is None else from_storage(operand, dtype))
        return self._value(operand, dtype) if isinstance(operand, relax.Var) else self.emit(operand, dtype)

    def _visible(self, expr: relax.Expr, value: Value) -> relax.Expr:
        """Returns the variable of a value as seen here: itself, or in a body a constant or a parameter."""
        frame = self.emitter.frames[-1]
        if len(self.emitter.frames) > 1 and isinstance(expr, relax.Var) and not frame.owns(expr):
            array = None if expr in frame.captured else self.constant(value)
            if array is not None:
                return self.expr(Value.known(array))
        return self.emitter.visible(expr)

    def build_body(
        self,
        inputs: Sequence[Value],
        states: Sequence[Value],
        make: Callable[[list[Value], list[Value]], Sequence[Value]],
        leading: int = 0,
    ) -> tuple[Body, list[Value]]:
        """Build a body of a choice or a loop, as `Emitter.body` does of values: like those that it will get."""

        def given(like: Sequence[Value], params: list[relax.Expr]) -> list[Value]:
            return [Value(v.shape, v.dtype, expr=param) for v, param in zip(like, params, strict=True)]

        def lowered(inner: list[relax.Expr], before: list[relax.Expr]) -> list[relax.Expr]:
            return list(map(self.expr, make(given(inputs, inner), given(states, before))))

        body, captured = self.emitter.body(
            list(map(self._type, inputs)), list(map(self._type, states)), lowered, leading
        )
        return body, [Value(shape_of_type(var.ty), str(var.ty.dtype), expr=var) for var in captured]

    def _type(self, value: Value) -> relax.TensorType:
        return relax.TensorType(value.shape, STORAGE.get(value.dtype, value.dtype))

    def emit_control(self, control: Control, operands: Sequence[Value], results: Sequence[Value]) -> list[Value]:
        """Call a choice or a loop.

        Args:
            results: values like those that it gives, for their types; none of them without elements.
        """
        made = self.emitter.control(control, list(map(self.expr, operands)), list(map(self._type, results)))
        return [self._value(part, like.dtype) for part, like in zip(made, results, strict=True)]

    def run_graph(self, graph: Subgraph, values: Sequence[AnyValue]) -> list[AnyValue]:
        """Inline a subgraph with `values` for its inputs, in order; returns its outputs."""
        assert self.inline is not None
        return self.inline(graph, values)

    def call(self, op_type: str, *operands: AnyValue | None, outputs: int = 1, **attributes: Any) -> list[AnyValue]:
        """Lower a further operator of ai.onnx, in the imported version."""
        assert self.lower is not None
        return self.lower(op_type, operands, outputs, attributes)

    def _value(self, var: relax.Var, dtype: str | None) -> Value:
        shape = shape_of_type(var.ty)
        name = dtype or str(var.ty.dtype)
        check_size(shape)
        if 0 in shape:
            return Value.empty(shape, name)
        return Value(shape, name, expr=var, fixed=var in self._fixed)


class _Emitter(Emitter):
    """Emits through a context, which knows what is computed from constants alone."""

    def __init__(self, ctx: Context, builder: relax.BlockBuilder) -> None:
        super().__init__(builder)
        self._ctx = ctx

    def expr(self, operand: Operand) -> relax.Expr:
        return self._ctx.expr(self._ctx.known(operand)) if isinstance(operand, np.ndarray) else self.visible(operand)

    def emit(self, expr: relax.Expr) -> relax.Expr:
        return self._ctx.expr(self._ctx.emit(expr))

    def parts(self, expr: relax.Expr) -> list[relax.Expr]:
        return [self._ctx.expr(part) for part in self._ctx.emit_tuple(expr)]


Lowering: TypeAlias = "Callable[[Context, Node], AnyValue | list[AnyValue] | list[Value]]"

OPERATORS: LazyOperators[dict[int, Lowering]] = LazyOperators(__package__, MODULES)
"""Lowerings by the name of the operator, then by the since-versions of its schemas."""


def operator(op_type: str, *, since: tuple[int, ...], domain: str = "") -> Callable[[Lowering], Lowering]:
    """Declare the lowering of an operator for the schemas with these since-versions."""
    name = listed_name(domain, op_type)

    def register(lowering: Lowering) -> Lowering:
        versions = OPERATORS.declared.get(name)
        if versions is None:
            versions = {}
            OPERATORS.declare(name, lowering.__module__, versions)
        for version in since:
            if version in versions:
                raise AssertionError(f"{op_type} of version {version} has two lowerings")
            versions[version] = lowering
        return lowering

    return register


def listed_name(domain: str, op_type: str) -> str:
    """Returns the name that an operator is listed by."""
    return f"{domain}::{op_type}" if domain else op_type


def shape_of_type(ty: relax.Type) -> tuple[int, ...]:
    """The sizes of a tensor type.

    Raises:
        CompileError: it says nothing about them.
    """
    shape = getattr(ty, "shape", None)
    if shape is None:
        raise CompileError("the shape of a result is not known at compile time")
    return dimensions(shape)


def to_storage(array: Array) -> Array:
    """An array of a type in `STORAGE` as what the program keeps; others as they are."""
    name = dtype_name(array.dtype)
    storage = STORAGE.get(name)
    if storage is None or name == "string":
        return array
    return array.view(np.uint8) if "float" in str(array.dtype) else array.astype(storage)


def from_storage(array: Array, dtype: str) -> Array:
    """The reverse of :func:`to_storage`."""
    if dtype not in STORAGE:
        return array.astype(numpy_dtype(dtype), copy=False)
    return array.view(numpy_dtype(dtype)) if "float" in dtype else array.astype(numpy_dtype(dtype))
