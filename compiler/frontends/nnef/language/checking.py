"""Checks the semantic rules for bodies of graphs and fragments (section 3.3.1)."""

from __future__ import annotations

from collections.abc import Iterable

from nnefc.frontends.nnef.environment import Environment, UserFragment, operators_enabled
from nnefc.frontends.nnef.language import syntax
from nnefc.frontends.nnef.language.inference import Annotations, Inference
from nnefc.frontends.nnef.language.syntax import Source
from nnefc.frontends.nnef.language.types import Dialect, TensorType, convertible
from nnefc.support.diagnostics import CompileError

__all__ = ["check_definition", "check_document", "choose_graph"]

_NOT_IN_FRAGMENTS = {
    Dialect.PROVISIONAL: frozenset(("external",)),
    Dialect.FINAL: frozenset(("external", "variable", "update")),
}


def choose_graph(document: syntax.Document, name: str | None) -> syntax.Graph:
    """The graph of that name; without a name, the only graph.

    Raises:
        CompileError: there is no such graph, or there are several and none is named; the message lists them.
    """
    by_name: dict[str, syntax.Graph] = {}
    for graph in document.graphs:
        if graph.name in by_name:
            location = document.source.location(graph.at)
            raise CompileError(f"the graph '{graph.name}' is defined twice", location=location)
        by_name[graph.name] = graph
    if name is None and len(by_name) == 1:
        return document.graphs[0]
    listed = ", ".join(f"'{known}'" for known in by_name)
    if name is None:
        hint = f"Choose one: --graph {document.graphs[0].name}."
        raise CompileError(f"the document '{document.source.file}' has several graphs: {listed}", hint=hint)
    if name not in by_name:
        raise CompileError(f"the document '{document.source.file}' has no graph '{name}'", hint=f"It has {listed}.")
    return by_name[name]


def check_document(document: syntax.Document, graph: syntax.Graph, environment: Environment) -> Annotations:
    """Check all fragments and one graph of a document.

    Raises:
        CompileError: the first rule that is broken.
    """
    annotations = Annotations()
    operators = operators_enabled(document)
    for fragment in environment.fragments.values():
        _check_fragment(fragment, environment, annotations, operators, _NOT_IN_FRAGMENTS[document.dialect])
    _GraphCheck(document, graph, environment, annotations, operators).check()
    return annotations


def check_definition(definition: UserFragment, environment: Environment, annotations: Annotations) -> None:
    """Check the standard's definition of a compound, which may hold variables."""
    _check_fragment(definition, environment, annotations, True, frozenset(("external",)))


def _check_fragment(
    fragment: UserFragment,
    environment: Environment,
    annotations: Annotations,
    operators: bool,
    forbidden: frozenset[str],
) -> None:
    """Check a fragment's body: parameters are not assigned, results are, once and with the declared type."""
    definition, signature = fragment.syntax, fragment.signature
    if definition.body is None:
        return
    for invocation in _invocations(definition.body):
        if invocation.name in forbidden:
            location = definition.source.location(invocation.at)
            hint = "Make the tensor in the graph and give it to the fragment as an argument."
            raise CompileError(f"'{invocation.name}' is not allowed in a fragment", location=location, hint=hint)
    inference = Inference(environment, definition.source, annotations, generic=signature.generic, operators=operators)
    inference.names.update({parameter.name: parameter.type for parameter in signature.parameters})
    _check_assignments(definition.body, inference, operators)
    for result in definition.results:
        actual = inference.names.get(result.name)
        if actual is None:
            inference.fail(definition.end, f"the result '{result.name}' of '{definition.name}' is not assigned")
        if not convertible(actual, result.type):
            at = _assigned_at(definition.body, result.name)
            spelled = f"type {inference.spell(result.type)}, the value assigned of type {inference.spell(actual)}"
            inference.fail(at, f"the result '{result.name}' is of {spelled}")


def _check_assignments(body: Iterable[syntax.Assignment], inference: Inference, operators: bool) -> None:
    for assignment in body:
        if not operators and not isinstance(assignment.value, syntax.Invocation):
            hint = "Write 'extension KHR_enable_operator_expressions;' after the version."
            inference.fail(assignment.value.at, "the right side must be an invocation", hint)
        inference.define(assignment.target, inference.type_of(assignment.value))


def _assigned_at(body: Iterable[syntax.Assignment], name: str) -> int:
    """Returns the location where an identifier is assigned."""
    for assignment in body:
        for identifier in syntax.identifiers_of(assignment.target):
            if identifier.name == name:
                return identifier.at
    raise KeyError(name)


class _GraphCheck:
    """The rules for one graph."""

    def __init__(
        self,
        document: syntax.Document,
        graph: syntax.Graph,
        environment: Environment,
        annotations: Annotations,
        operators: bool,
    ) -> None:
        self._graph = graph
        self._source: Source = document.source
        self._environment = environment
        self._annotations = annotations
        self._operators = operators
        self._inputs = {identifier.name for identifier in graph.inputs}
        self._inference = Inference(environment, document.source, annotations, generic=False, operators=operators)

    def check(self) -> None:
        """Inputs are results of `external` and nothing else is; identifiers are tensors; outputs are assigned."""
        fail = self._inference.fail
        self._check_declaration()
        for assignment in self._graph.body:
            self._find_externals(assignment.target, assignment.value)
        for invocation in _invocations(self._graph.body):
            if invocation.name == "external" and invocation not in self._annotations.inputs:
                hint = "Assign it to an identifier that the graph lists as an input."
                fail(invocation.at, "'external' defines only inputs of the graph", hint)
        _check_assignments(self._graph.body, self._inference, self._operators)
        for assignment in self._graph.body:
            for identifier in syntax.identifiers_of(assignment.target):
                self._check_identifier(identifier)
        for what, identifiers in (("input", self._graph.inputs), ("output", self._graph.outputs)):
            for identifier in identifiers:
                if identifier.name not in self._inference.names:
                    fail(identifier.at, f"the {what} '{identifier.name}' of the graph is not assigned")

    def _check_declaration(self) -> None:
        name = self._graph.name
        if self._environment.dialect is Dialect.FINAL and self._environment.lookup(name) is not None:
            self._inference.fail(self._graph.at, f"the graph has the name of the operation '{name}'")
        seen: set[str] = set()
        for identifier in (*self._graph.inputs, *self._graph.outputs):
            if identifier.name in seen:
                message = f"the graph has a second input or output called '{identifier.name}'"
                self._inference.fail(identifier.at, message)
            seen.add(identifier.name)

    def _find_externals(self, target: syntax.Target, value: syntax.Expression) -> None:
        """Find out which input each `external` defines; an input that anything else defines is an error."""
        match target, value:
            case syntax.Identifier(_, name), syntax.Invocation(_, "external"):
                if name in self._inputs:
                    self._annotations.inputs[value] = name
            case (syntax.Array(_, targets), syntax.Array(_, values)) | (
                syntax.Tuple(_, targets),
                syntax.Tuple(_, values),
            ) if len(targets) == len(values):
                for element, element_value in zip(targets, values, strict=True):
                    self._find_externals(element, element_value)  # type: ignore[arg-type]
            case _:
                for identifier in syntax.identifiers_of(target):
                    if identifier.name in self._inputs:
                        message = f"the input '{identifier.name}' of the graph must be defined by 'external'"
                        hint = f"Write {identifier.name} = external(shape = […])."
                        self._inference.fail(identifier.at, message, hint)

    def _check_identifier(self, identifier: syntax.Identifier) -> None:
        type_ = self._inference.names[identifier.name]
        if not isinstance(type_, TensorType):
            message = f"identifiers in a graph are tensors, '{identifier.name}' is of type "
            hint = "Unpack it: [a, b] = … for an array, a, b = … for a tuple."
            self._inference.fail(identifier.at, message + self._inference.spell(type_), hint)


def _invocations(body: Iterable[syntax.Assignment]) -> Iterable[syntax.Invocation]:
    """All invocations of a body, in no particular order."""
    pending: list[syntax.Expression | None] = [assignment.value for assignment in body]
    while pending:
        match pending.pop():
            case syntax.Invocation() as invocation:
                yield invocation
                pending += [argument.value for argument in invocation.arguments]
            case syntax.Array(_, elements) | syntax.Tuple(_, elements):
                pending += elements
            case syntax.Subscript(_, a, b) | syntax.Binary(_, _, a, b):
                pending += (a, b)
            case syntax.Range(_, a, b, c) | syntax.Select(_, a, b, c):
                pending += (a, b, c)
            case syntax.Unary(_, _, a) | syntax.Builtin(_, _, a):
                pending.append(a)
            case syntax.Comprehension(_, iterators, condition, element):
                pending += (condition, element, *[iterator.sequence for iterator in iterators])
