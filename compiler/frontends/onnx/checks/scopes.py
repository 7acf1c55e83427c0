"""Checks a whole model before it is lowered: names and their scopes, functions, attributes.

The rules are those of the standard's IR specification. Every graph is checked, also one that would never run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from nnefc.frontends.onnx.checks.schemas import check_node, schema_of
from nnefc.frontends.onnx.checks.tolerance import used_functions
from nnefc.frontends.onnx.checks.types import MapType, OnnxTensorType, OptionalType, SequenceType, Type
from nnefc.frontends.onnx.custom import is_custom
from nnefc.frontends.onnx.files.model import (
    AttributeRef,
    FunctionKey,
    NodeDef,
    OnnxFunction,
    OnnxGraph,
    OnnxModel,
    Opsets,
)
from nnefc.support.diagnostics import CompileError

__all__ = ["check_call", "check_combined", "check_graph", "check_model"]


@dataclass(frozen=True)
class _Scope:
    """Names visible to the nodes of a graph.

    Attributes:
        names: defined so far, here; filled as the nodes are read.
        outer: the scope around, if this graph is an attribute of one of its nodes.
        opsets: the imports that hold.
        attributes: names of the attributes of the function that this is the body of; None outside of functions.
    """

    opsets: Opsets
    attributes: AbstractSet[str] | None
    outer: _Scope | None = None
    names: set[str] = field(default_factory=set)

    def around(self) -> Iterator[_Scope]:
        """This scope and those around it, from the inside out."""
        scope: _Scope | None = self
        while scope is not None:
            yield scope
            scope = scope.outer

    def sees(self, name: str) -> bool:
        return any(name in scope.names for scope in self.around())


def check_model(model: OnnxModel) -> None:
    """Check the model's graph and its functions.

    Raises:
        CompileError: a rule is broken; the message names the node, its operator and the name in question.
    """
    for function in used_functions(model).values():
        _check_function(function, model.functions)
    _check_recursion(model.functions)
    # What is missing is let pass, other than by onnx's own checker, where it can be given, or computed.
    for info in model.graph.inputs:
        if not _is_whole(info.type) and info.name not in model.graph.initializers:
            raise CompileError(
                f"the input '{info.name}' of the model's graph has no declared element type",
                hint="declare it: model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT",
            )
    check_graph(model.graph, model, "the model's graph")


def _is_whole(type_: Type | None) -> bool:
    """Returns whether a type says what the elements are."""
    match type_:
        case OnnxTensorType(dtype):
            return bool(dtype)
        case SequenceType(element) | OptionalType(element) | MapType(element=element):
            return _is_whole(element)
    return False


def check_graph(graph: OnnxGraph, model: OnnxModel, what: str) -> None:
    """Check a graph that no other one is around."""
    scope = _Scope(model.opsets, None)
    for name in graph.initializers:
        scope.names.add(name)
    _define_inputs(graph, scope, what, may_be_initializers=True)
    _check_nodes(graph.nodes, scope, model.functions, what)
    _check_outputs(graph, scope, what)


def check_combined(first: OnnxGraph, second: OnnxGraph, what: str) -> None:
    """Check that two graphs can be put one after the other: no name may be defined in both."""
    names = {*first.initializers, *first.input_names, *(name for node in first.nodes for name in node.outputs if name)}
    for kind, others in (
        ("initializer", second.initializers),
        ("input", second.input_names),
        ("node output", (name for node in second.nodes for name in node.outputs)),
    ):
        for name in others:
            if name in names:
                raise CompileError(f"{what}: the {kind} '{name}' has the name of a value of the model's graph")
    for name in second.output_names:
        if name in first.output_names:
            raise CompileError(f"{what}: the output '{name}' is an output of the model's graph too")


def _define_inputs(graph: OnnxGraph, scope: _Scope, what: str, *, may_be_initializers: bool) -> None:
    seen: set[str] = set()
    for name in graph.input_names:
        if name in seen:
            raise CompileError(f"{what} has two inputs '{name}'")
        if name in graph.initializers and not may_be_initializers:
            raise CompileError(f"{what}: '{name}' is both an input and an initializer, which only the model's may be")
        seen.add(name)
    scope.names.update(seen)


def _check_nodes(
    nodes: Iterable[NodeDef], scope: _Scope, functions: Mapping[FunctionKey, OnnxFunction], what: str
) -> None:
    nodes, makers = tuple(nodes), dict[str, NodeDef]()
    for node in nodes:
        for name in filter(None, node.outputs):
            other = makers.get(name)
            if other is not None:
                raise CompileError(
                    f"{what}: '{name}' is computed by {other.description} and again by {node.description}"
                )
            if name in scope.names:
                raise CompileError(f"{node.description}: its output '{name}' has the name of an input or initializer")
            makers[name] = node
    for node in nodes:
        for name in filter(None, node.inputs):
            if not scope.sees(name):
                raise CompileError(f"{node.description}: no node computes its input '{name}'")
        for name in filter(None, node.outputs):
            if scope.sees(name):
                raise CompileError(f"{node.description}: its output '{name}' has the name of a value of an outer graph")
        _check_one(node, scope, functions)
        scope.names.update(filter(None, node.outputs))


def _check_one(node: NodeDef, scope: _Scope, functions: Mapping[FunctionKey, OnnxFunction]) -> None:
    for name, value in node.attributes.items():
        if not isinstance(value, AttributeRef):
            continue
        if scope.attributes is None:
            raise CompileError(
                f"{node.description}: its attribute '{name}' refers to a function's attribute, but is not in a function"
            )
        if value.name not in scope.attributes:
            raise CompileError(
                f"{node.description}: its attribute '{name}' refers to '{value.name}', which the function does not have"
            )
    function = functions.get((node.domain, node.op_type, node.overload))
    if function is not None and not is_custom(node.domain, node.op_type):
        check_call(node, function)
    else:
        check_node(node, schema_of(node, scope.opsets))
    for name, graph in node.subgraphs():
        inner = _Scope(scope.opsets, scope.attributes, scope)
        what = f"the graph '{name}' of {node.description}"
        _define_inputs(graph, inner, what, may_be_initializers=False)
        inner.names.update(graph.initializers)
        _check_nodes(graph.nodes, inner, functions, what)
        _check_outputs(graph, inner, what)


def _check_outputs(graph: OnnxGraph, scope: _Scope, what: str) -> None:
    seen: set[str] = set()
    for name in graph.output_names:
        if not scope.sees(name):
            raise CompileError(f"{what}: no node computes its output '{name}'")
        if name in seen and scope.outer is None:
            raise CompileError(f"{what} has the output '{name}' twice")
        seen.add(name)


def check_call(node: NodeDef, function: OnnxFunction) -> None:
    """Check a node that calls a function.

    Raises:
        CompileError: too many inputs or outputs, or an unknown attribute.
    """
    for kind, names, formals in (("input", node.inputs, function.inputs), ("output", node.outputs, function.outputs)):
        if len(names) > len(formals):
            raise CompileError(f"{node.description}: the function has {len(formals)} {kind}s, the node {len(names)}")
    for name in node.attributes:  # those that are left out are left out of what refers to them
        if name not in function.required and name not in function.defaults:
            raise CompileError(f"{node.description}: the function has no attribute '{name}'")


def _check_function(function: OnnxFunction, functions: Mapping[FunctionKey, OnnxFunction]) -> None:
    what = f"the function '{function.name}'"
    scope = _Scope(function.opsets, frozenset((*function.required, *function.defaults)))
    scope.names.update(filter(None, function.inputs))
    _check_nodes(function.nodes, scope, functions, what)
    for name in function.outputs:
        if name not in scope.names:
            raise CompileError(f"{what}: no node computes its output '{name}'")


def _check_recursion(functions: Mapping[FunctionKey, OnnxFunction]) -> None:
    """No function may call itself, directly or through others."""
    done: set[FunctionKey] = set()
    for start in functions:
        path: list[tuple[FunctionKey, Iterator[FunctionKey]]] = [(start, _calls(functions[start].nodes))]
        if start in done:
            continue
        while path:
            key, calls = path[-1]
            callee = next((call for call in calls if call in functions and call not in done), None)
            if callee is None:
                done.add(key)
                path.pop()
            elif callee in (element for element, _ in path):
                raise CompileError(f"the function '{callee[1]}' calls itself")
            else:
                path.append((callee, _calls(functions[callee].nodes)))


def _calls(nodes: Iterable[NodeDef]) -> Iterator[FunctionKey]:
    for node in nodes:
        yield node.domain, node.op_type, node.overload
        for _, graph in node.subgraphs():
            yield from _calls(graph.nodes)
