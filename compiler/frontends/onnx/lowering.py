"""Lowers a model's nodes in order, each by its operator's lowering: the core of the ONNX front end.

A node that calls a function of the model, or whose operator the standard defines as a function and that has no lowering
of its own, is replaced by the function's body. Subgraphs are run by the lowerings of `If`, `Loop`, `Scan` in the scope
of their node.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

import onnx
import onnx.helper
from tvm import relax

from nnefc.frontends.constant_folding import evaluate
from nnefc.frontends.onnx.checks.schemas import Schema, check_required, check_types, has_body, schema_of, with_defaults
from nnefc.frontends.onnx.checks.string_types import check_strings, with_strings
from nnefc.frontends.onnx.checks.types import (
    MapType,
    OnnxTensorType,
    OptionalType,
    SequenceType,
    Type,
    ValueInfo,
    proto_of,
    type_of,
)
from nnefc.frontends.onnx.custom import custom_lowering, is_custom
from nnefc.frontends.onnx.data_dependent_sizes import note_integers
from nnefc.frontends.onnx.files.model import AttributeRef, NodeDef, OnnxFunction, OnnxGraph, OnnxModel, Opsets
from nnefc.frontends.onnx.files.reading import read_function
from nnefc.frontends.onnx.fp16 import lower_in_single
from nnefc.frontends.onnx.hints import advice_on_operator
from nnefc.frontends.onnx.operator import OPERATORS, Context, Lowering, Node, Subgraph, listed_name
from nnefc.frontends.onnx.shapes import DimensionVariables, check_declared
from nnefc.frontends.onnx.symbolic_values import computed, result_type
from nnefc.frontends.onnx.values import AnyValue, Array, Optional, SparseTensor, Value
from nnefc.frontends.refusals import REFUSALS, reason_of
from nnefc.operators.recording import note_location, note_name
from nnefc.support.diagnostics import CompileError
from nnefc.support.internal_errors import InternalError, internal_error, is_mistake

__all__ = ["GraphLowering", "Scope", "is_supported"]

_MAX_NODES = 1 << 16
"""Nodes that loops which are unrolled and functions which are expanded may come to: a minute's work and more."""

_MAX_CALLS = 64
"""Functions and subgraphs inside each other."""

_MAX_LOCATIONS = 3
"""Nodes around the one that is wrong that an error names: the innermost."""


@dataclass(eq=False)
class Scope:
    """Names that the nodes of one graph see, and what holds for all of them.

    Attributes:
        values: of names defined here; None for an optional input of a function that was not given.
        opsets: imports.
        attributes: values of the attributes of the function that this is the body of.
        infos: declared types by name.
        outputs: declared types of the graph's outputs by name.
        outer: the scope around.
        change: what becomes of values that are found there.
        by_standard: whether this is a body that the standard gives: some use types that its own operators do not take.
        inlined: whether this may be lowered several times, with other sizes each time.
    """

    opsets: Opsets
    values: dict[str, AnyValue | None] = field(default_factory=dict)
    attributes: Mapping[str, Any] = field(default_factory=dict)
    infos: Mapping[str, ValueInfo] = field(default_factory=dict)
    outputs: Mapping[str, ValueInfo] = field(default_factory=dict)
    outer: Scope | None = None
    change: Callable[[AnyValue], AnyValue] | None = None
    inlined: bool = False
    by_standard: bool = False

    def find(self, name: str) -> AnyValue | None:
        """The value of a name that is known to be visible."""
        if not self.sees(name):
            raise CompileError(f"no node computes '{name}'")
        return self.values[name] if name in self.values else self._found_around(name)

    def sees(self, name: str) -> bool:
        """Returns whether a name has a value here."""
        scope: Scope | None = self
        while scope is not None and name not in scope.values:
            scope = scope.outer
        return scope is not None

    def _found_around(self, name: str) -> AnyValue | None:
        scope, changes = self, []
        while name not in scope.values:
            if scope.change is not None:
                changes.append(scope.change)
            assert scope.outer is not None
            scope = scope.outer
        value = scope.values[name]
        for change in reversed(changes):
            value = None if value is None else change(value)
        return value


@dataclass(frozen=True, eq=False)
class _Bound:
    """A graph that is an attribute, with the scope that its names are looked up in, and what values become there."""

    graph: OnnxGraph
    scope: Scope
    change: Callable[[AnyValue], AnyValue] | None = None

    @property
    def source(self) -> object:
        return self.graph

    @property
    def name(self) -> str:
        return self.graph.name

    @property
    def input_names(self) -> tuple[str, ...]:
        return self.graph.input_names

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.graph.output_names

    @property
    def size(self) -> int:
        return _size(self.graph)

    @property
    def passes_on(self) -> bool:
        return all(node.op_type == "Identity" and not node.domain for node in self.graph.nodes)

    def seeing(self, change: Callable[[AnyValue], AnyValue]) -> _Bound:
        """The graph, to which values of the graphs around it are what `change` makes of them."""
        return replace(self, change=change)


class GraphLowering:
    """Lowers nodes into one dataflow block.

    Attributes:
        context: what the operators' lowerings get.
        symbols: sizes of dimension variables; those that only outputs have are bound when they are met.
    """

    def __init__(self, model: OnnxModel, builder: relax.BlockBuilder, symbols: DimensionVariables) -> None:
        self.symbols = symbols
        self.context = Context(
            builder,
            inline=self._inline,
            evaluate=evaluate,
            lower=self._lower_call,
            find=self._find,
            declared_rank=self._declared_rank,
        )
        self.context.emitter.refinement = symbols.opened.refinement
        self.context.emitter.ranges = dict(symbols.counts)
        self._functions = model.functions
        self._scope: Scope | None = None
        self._left = _MAX_NODES
        self._depth = 0

    def run(self, nodes: Iterable[NodeDef], scope: Scope) -> None:
        """Lower nodes; `scope` has the values of all their outputs afterwards.

        Raises:
            CompileError: an operator without a lowering, operands of types or shapes that do not fit, and all else
                that makes a node impossible.
        """
        if self._depth >= _MAX_CALLS:
            raise CompileError(f"functions and subgraphs call each other more than {_MAX_CALLS} deep")
        before, self._scope = self._scope, scope
        self._depth += 1
        try:
            for node in nodes:
                self._run_node(node, scope)
        finally:
            self._scope = before
            self._depth -= 1

    def _run_node(self, node: NodeDef, scope: Scope) -> None:
        self._left -= scope.inlined or scope.outer is not None
        if self._left < 0:
            raise CompileError(f"unrolled loops and functions come to more than {_MAX_NODES} nodes")
        operands = [scope.find(name) if name else None for name in node.inputs]
        attributes = self._attributes(node, scope)
        results = self._lower(node, operands, attributes, scope)
        wanted = [index for index, name in enumerate(node.outputs) if name]
        if wanted and wanted[-1] >= len(results):
            raise CompileError(f"{node.description}: output {wanted[-1]} is not supported")
        for name, result in zip(node.outputs, results, strict=False):
            if name:
                scope.values[name] = result
                if isinstance(result, Value):
                    note_name(result.expr if result.array is None else result.array, name)
                info = scope.infos.get(name)
                if info is not None:
                    check_declared(result, info, self.symbols, node.description, strict=not scope.inlined, inside=True)

    def _attributes(self, node: NodeDef, scope: Scope) -> dict[str, Any]:
        """Values of attributes: references to a function's are resolved, and left out where that has none."""
        found: dict[str, Any] = {}
        for name, value in node.attributes.items():
            match value:
                case AttributeRef(name=outer):
                    if outer in scope.attributes:
                        found[name] = scope.attributes[outer]
                case OnnxGraph():
                    found[name] = _Bound(value, scope)
                case tuple() if value and isinstance(value[0], OnnxGraph):
                    found[name] = tuple(_Bound(graph, scope) for graph in value)
                case OnnxTensorType() | SequenceType() | OptionalType() | MapType():
                    found[name] = _element_type(value)
                case _:
                    found[name] = value
        return found

    def _lower(
        self, node: NodeDef, operands: Sequence[AnyValue | None], attributes: dict[str, Any], scope: Scope
    ) -> list[AnyValue]:
        custom = custom_lowering(node)
        if custom is not None:
            schema = schema_of(node, scope.opsets)
            return self._apply(custom, _checked(node, schema, operands, attributes, scope.opsets), schema)
        function = self._functions.get((node.domain, node.op_type, node.overload))
        if function is not None:
            return self._call(function, node, operands, {**function.defaults, **attributes})
        schema = schema_of(node, scope.opsets)
        if not scope.by_standard:
            check_types(node, schema, operands)
        check_required(node, schema, attributes)
        complete = with_defaults(node, schema, attributes)
        lowering = OPERATORS.get(listed_name(node.domain, node.op_type), {}).get(schema.since_version)
        sizes = _of_sizes(node, operands, complete)
        if sizes is not None:
            return list(sizes)
        if lowering is not None:
            made = self._apply(lowering, _checked(node, schema, operands, complete, scope.opsets), schema)
            note_integers(self.context, node, complete, operands, made)
            return made
        body = _body(node, schema, operands, attributes, scope.opsets)
        if body is None:
            hint = advice_on_operator(node.domain, node.op_type)
            raise CompileError(f"{node.description}: {_unsupported(node, schema)}", hint=hint)
        # Some bodies of the standard do not import what they use.
        opsets = {"": onnx.defs.onnx_opset_version(), **scope.opsets, **body.opsets}
        return self._call(replace(body, opsets=opsets), node, operands, complete, by_standard=True)

    def _apply(self, lowering: Lowering, node: Node, schema: Schema) -> list[AnyValue]:
        before, self.context.emitter.hint = self.context.emitter.hint, _hint(node.outputs)
        note_location(node.description)
        try:
            check_strings(node)
            return with_strings(node, schema, lower_in_single(self.context, node, schema, lowering))
        except CompileError as error:
            if isinstance(error, InternalError) or error.message.startswith(("node ", "the node ")):
                raise
            raise CompileError(f"{node.description}: {error.message}", hint=error.hint) from error
        except REFUSALS as error:
            if is_mistake(error):
                raise internal_error(error, node.description) from error
            raise CompileError(f"{node.description}: {reason_of(error)}") from error
        finally:
            self.context.emitter.hint = before

    def _call(
        self,
        function: OnnxFunction,
        node: NodeDef,
        operands: Sequence[AnyValue | None],
        attributes: Mapping[str, Any],
        by_standard: bool = False,
    ) -> list[AnyValue]:
        """Run a function's body in a scope of its own."""
        inputs: dict[str, AnyValue | None] = dict.fromkeys(function.inputs)
        inputs.update(zip(function.inputs, operands, strict=False))
        scope = Scope(function.opsets, inputs, attributes, inlined=True, by_standard=by_standard)
        try:
            self.run(function.nodes, scope)
        except CompileError as error:
            if error.message.count(" (in ") >= _MAX_LOCATIONS:
                raise
            raise CompileError(f"{error.message} (in {node.description})", hint=error.hint) from error
        results: list[AnyValue] = []
        # A body may leave out what its node leaves out.
        wanted = max((index + 1 for index, name in enumerate(node.outputs) if name), default=0)
        for name, used in zip(function.outputs[:wanted], node.outputs, strict=False):
            value = scope.values.get(name) if not used else scope.find(name)
            if value is None and not used:
                value = Optional(None)
            if value is None:
                raise CompileError(
                    f"{node.description}: the function's output '{name}' is an input that the node leaves out"
                )
            results.append(value)
        return results

    def _inline(self, graph: Subgraph, values: Sequence[AnyValue]) -> list[AnyValue]:
        assert isinstance(graph, _Bound)
        inner = graph.graph
        if len(values) != len(inner.inputs):
            raise CompileError(f"its graph '{inner.name}' has {len(inner.inputs)} inputs, it is given {len(values)}")
        around = graph.scope
        scope = replace(around, values={}, infos=inner.infos, outer=around, change=graph.change, inlined=True)
        scope.outputs = inner.output_infos
        for name, array in inner.initializers.items():
            scope.values[name] = initial_value(array)
        for info, value in zip(inner.inputs, values, strict=True):
            check_declared(value, info, self.symbols, f"the graph '{inner.name}'", strict=False)
            scope.values[info.name] = value
        self.run(inner.nodes, scope)
        results: list[AnyValue] = []
        for info in inner.outputs:
            made = scope.find(info.name)
            if made is None:
                raise CompileError(f"the output '{info.name}' of the graph '{inner.name}' is not there")
            check_declared(made, info, self.symbols, f"the graph '{inner.name}'", strict=False)
            results.append(made)
        return results

    def _find(self, name: str) -> AnyValue | None:
        return self._scope.find(name) if self._scope is not None and self._scope.sees(name) else None

    def _declared_rank(self, name: str) -> int | None:
        if self._scope is None:
            return None
        info = self._scope.infos.get(name) or self._scope.outputs.get(name)
        declared = None if info is None else info.type
        return len(declared.shape) if isinstance(declared, OnnxTensorType) and declared.shape is not None else None

    def _lower_call(
        self, op_type: str, operands: Sequence[AnyValue | None], outputs: int, attributes: Mapping[str, Any]
    ) -> list[AnyValue]:
        assert self._scope is not None
        hint = self.context.emitter.hint
        node = NodeDef(
            op_type, "", "", "", ("",) * len(operands), tuple(f"{hint}_{i}" for i in range(outputs)), attributes, {}
        )
        opsets = self._scope.opsets if "" in self._scope.opsets else {"": onnx.defs.onnx_opset_version()}
        return self._lower(node, operands, dict(attributes), replace(self._scope, opsets=opsets))


def _of_sizes(node: NodeDef, operands: Sequence[AnyValue | None], attributes: Mapping[str, Any]) -> list[Value] | None:
    """Evaluates a node on tensors of dynamic sizes, if the result is known at compile time."""
    given = [operand for operand in operands if isinstance(operand, Value)]
    if node.domain or not any(value.sizes is not None for value in given):
        return None
    arrays: list[Array | None] = []
    for operand in operands:
        array = None if not isinstance(operand, Value) else operand.array if operand.sizes is None else operand.sizes
        if operand is not None and array is None:
            return None
        arrays.append(array)
    made = computed(node.op_type, {"num_outputs": len(node.outputs)} | dict(attributes), arrays)
    if made is None:
        return None
    dtype = result_type(node.op_type, attributes, [value.dtype for value in given])
    return [Value.of_sizes(array, dtype) for array in made]


def _size(graph: OnnxGraph) -> int:
    return sum(1 + sum(_size(inner) for _, inner in node.subgraphs()) for node in graph.nodes)


def initial_value(array: Array | SparseTensor) -> Value:
    """An initializer as a value; sparse ones are spread out."""
    return Value.known(array.dense() if isinstance(array, SparseTensor) else array)


def _checked(
    node: NodeDef, schema: Schema, operands: Sequence[AnyValue | None], attributes: Mapping[str, Any], opsets: Opsets
) -> Node:
    return Node(
        node.op_type,
        node.domain,
        node.name,
        schema.since_version,
        attributes,
        tuple(operands),
        node.outputs,
        opsets.get(node.domain, 1),
        node.inputs,
    )


def _body(
    node: NodeDef, schema: Schema, operands: Sequence[AnyValue | None], attributes: Mapping[str, Any], opsets: Opsets
) -> OnnxFunction | None:
    """The function that the standard defines an operator by, if it does."""
    version = opsets[node.domain]
    if schema.has_function:
        return _fixed_body(schema.name, schema.since_version, schema.domain, version)
    if not schema.has_context_dependent_function:
        return None
    types = [proto_of(type_of(operand)).SerializeToString() if operand is not None else b"" for operand in operands]
    pairs = enumerate(zip(node.inputs, operands, strict=True))
    names = ["" if operand is None else name or f"_{index}" for index, (name, operand) in pairs]
    proto = onnx.helper.make_node(node.op_type, names, list(node.outputs), domain=node.domain)
    for name, value in attributes.items():
        if isinstance(value, _Bound):
            return None
        proto.attribute.append(onnx.helper.make_attribute(name, value))
    usable = [v for v in schema.context_dependent_function_opset_versions if v <= version]
    text = schema.get_context_dependent_function_with_opset_version(
        max(usable, default=version), proto.SerializeToString(), types
    )
    return _parsed(text)


@cache
def _fixed_body(name: str, since: int, domain: str, version: int) -> OnnxFunction | None:
    schema = onnx.defs.get_schema(name, since, domain)
    usable = [element for element in schema.function_opset_versions if element <= version]
    return _parsed(schema.get_function_with_opset_version(max(usable, default=version)))


def _parsed(text: bytes) -> OnnxFunction | None:
    if not text:
        return None
    proto = onnx.FunctionProto()
    proto.ParseFromString(text)
    return read_function(proto)


def is_supported(domain: str, op_type: str) -> bool:
    """Returns whether operators of this name can be compiled, in one version at least."""
    domain = "" if domain == "ai.onnx" else domain
    return is_custom(domain, op_type) or listed_name(domain, op_type) in OPERATORS or has_body(domain, op_type)


def _unsupported(node: NodeDef, schema: Schema) -> str:
    if OPERATORS.get(listed_name(node.domain, node.op_type)):
        return f"version {schema.since_version} of the operator is not supported"
    return "the operator is not supported"


def _element_type(type_: Type) -> str:
    match type_:
        case OnnxTensorType(dtype):
            return dtype
        case SequenceType(element) | OptionalType(element) | MapType(element=element):
            return _element_type(element)


def _hint(outputs: Sequence[str]) -> str:
    """A name that Relax takes: letters, digits and underscores."""
    name = next((name for name in outputs if name), "value")
    letters = "".join(c if c.isascii() and c.isalnum() else "_" for c in name[:64])
    return letters if letters[:1].isalpha() else f"t{letters}"
