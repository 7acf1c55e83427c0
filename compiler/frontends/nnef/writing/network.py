"""Writes a network of any format as an NNEF document, from the recorded applications of its operators.

For every variable of the network's function, the outermost operator that gave it and that NNEF can say is written;
where NNEF has none for it, what it is made of is. What nothing needs in the end is left out again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tvm import relax
from tvm.ir import GenericConst

from nnefc.frontends.dynamic_shapes import dynamic_shape_context
from nnefc.frontends.nnef.declarations import STANDARD
from nnefc.frontends.nnef.flat import FlatGraph, Invocation, tensors_in
from nnefc.frontends.nnef.language.types import Dialect
from nnefc.frontends.nnef.values import Tensor
from nnefc.frontends.nnef.writing import (
    activations,
    creation,
    elementwise,
    products,
    quantization,
    recurrent,
    reductions,
    regions,
    tract_integers,
    tract_spectra,
    windows,
)
from nnefc.frontends.nnef.writing import data_movement as movements
from nnefc.frontends.nnef.writing.document import Array, Document, Unsayable
from nnefc.frontends.nnef.writing.names import UniqueNames, identifier, label
from nnefc.frontends.nnef.writing.quantized_tensors import Rounded
from nnefc.frontends.nnef.writing.relax_calls import operator_of
from nnefc.frontends.nnef.writing.rules import RULES
from nnefc.frontends.nnef.writing.scans import scanned_loop
from nnefc.frontends.nnef.writing.tract import TRACT_RULES, TractDocument, TractFragment
from nnefc.ir.dataflow import bindings_of
from nnefc.ir.network import Control, Loop, Network, control_index
from nnefc.operators.base import dtype_of, shape_of
from nnefc.operators.recording import Application, Recording
from nnefc.support.diagnostics import CompileError

__all__ = ["Written", "written"]

_RULES = (
    activations,
    creation,
    elementwise,
    movements,
    products,
    quantization,
    recurrent,
    reductions,
    regions,
    windows,
    tract_integers,
    tract_spectra,
)
"""Modules that declare rules when they are imported."""

_HINT = "convert a part of the network that ends before it, with --output-tensor NAME; nnefc compile takes all of it"

_WITHOUT_REGISTRY = "write it without --registry: the standard has variables that are updated"

_CHOOSES = "NNEF has no branches, and the network chooses here"

_REGISTRY = "write it in tract's dialect, which has more operators, with --registry tract_core"

_WIDTHS = {"scalar": "float32", "integer": "int32", "logical": "bool"}


@dataclass(frozen=True)
class Written:
    """A document, and what goes with it.

    Attributes:
        graph: flat.
        values: of the variables, by their labels.
        renamed: what the network calls tensors that have another name in the document, by that name.
        coded: labels of variables whose files have integers that stand for scalars.
        widths: element types of inputs and outputs that NNEF has no name for, by their names in the document.
        quantization: the text of `graph.quant`; empty for none.
        extensions: what the document's `extension` statements say.
        fragments: that the graph calls: the bodies of loops.
        metadata: what the network's model says of itself.
    """

    graph: FlatGraph
    values: Mapping[str, Array]
    renamed: Mapping[str, str]
    widths: Mapping[str, str]
    quantization: str = ""
    extensions: tuple[str, ...] = ()
    coded: frozenset[str] = frozenset()
    fragments: tuple[FlatGraph, ...] = ()
    metadata: Mapping[str, str] = field(default_factory=dict)


def written(network: Network, recording: Recording, registry: str | None = None) -> Written:
    """The network as a document of the standard, or, with a registry, of tract's dialect.

    Raises:
        CompileError: NNEF cannot say something that the network needs; with its location in the model.
    """
    _check(network)
    if registry is not None and network.states:
        raise CompileError(
            "the network keeps states between runs, for which tract_core has no operator", hint=_WITHOUT_REGISTRY
        )
    try:
        with dynamic_shape_context(network.dynamic_dimensions, network.input_shapes):
            return _written(network, recording, registry is not None)
    except Unsayable as error:
        location = f"{error.location}: " if error.location else ""
        ways = [_HINT]
        if "dynamic size" in error.reason:
            ways.insert(0, "give the sizes that are open, with --shape NAME=SIZE")
        if registry is None and error.reason != _CHOOSES:
            ways.insert(0, _REGISTRY)
        raise CompileError(f"{location}{error.reason}", hint="; or ".join(ways)) from None


def _check(network: Network) -> None:
    if network.counts:
        raise CompileError("the network has data-dependent sizes, which NNEF cannot say", hint=_HINT)
    if not network.inputs:
        raise CompileError(
            "the network has no inputs, and a graph of NNEF has one at least",
            hint="nnefc compile takes such networks as they are",
        )
    if network.texts or network.has_text:
        raise CompileError("the network computes with strings, which NNEF does not have", hint=_HINT)


def _written(network: Network, recording: Recording, in_tracts_dialect: bool) -> Written:
    main = network.module["main"]
    kind, rules = (TractDocument, {**RULES, **TRACT_RULES}) if in_tracts_dialect else (Document, RULES)
    document = kind(constant_name=recording.constant_name, rules=rules)
    rounded = None if in_tracts_dialect else Rounded(document, main)
    writer = _Writer(document, recording, network.controls, rounded)
    inputs = _inputs(document, network, main.params[: len(network.inputs)])
    states = _states(document, network, main.params[len(network.inputs) :])
    results = writer.run(main, [*inputs, *states])
    outputs, updated = results[: len(network.outputs)], results[len(network.outputs) :]
    updates = [
        document.call("update", variable=state, value=value) for state, value in zip(states, updated, strict=True)
    ]
    return _finished(network, document, inputs, outputs, updates, rounded)


def _inputs(document: Document, network: Network, params: Any) -> list[Tensor]:
    made = []
    for name, var in zip(network.inputs, params, strict=True):
        document.hint = name
        made.append(document.external(dtype_of(var), shape_of(var)))
    return made


def _states(document: Document, network: Network, params: Any) -> list[Tensor]:
    made = []
    for state in network.states:
        document.hint = state.name
        made.append(document.state(state.initial))
    return made


class _Writer:
    """Writes a function of a network, or of a body in it, into a document."""

    def __init__(
        self, document: Document, recording: Recording, controls: Sequence[Control], rounded: Rounded | None = None
    ) -> None:
        self._document = document
        self._recording = recording
        self._controls = controls
        self._made: dict[Application, list[Any]] = {}
        self._rounded = rounded

    def run(self, main: relax.Function, params: Sequence[Any]) -> list[Tensor]:
        """Write the function with these tensors as its parameters; returns its results."""
        self._document.values.update(zip(main.params, params, strict=True))
        for var, value in _bindings(main):
            self._write(var, value)
        found = self._document.values[main.body.body]
        if isinstance(found, Unsayable):
            raise found
        assert isinstance(found, list)
        return found

    def _write(self, var: relax.Expr, value: relax.Expr) -> None:
        """Write a binding, or note why it cannot be."""
        document = self._document
        document.hint = self._recording.names.get(var, str(var.name))
        try:
            rounded = self._rounded.dequantized(value) if self._rounded is not None else None
            document.values[var] = rounded if rounded is not None else self._from_rule(var, value)
        except Unsayable as error:
            document.values[var] = error
            return
        name = self._recording.names.get(var)
        made = document.values[var]
        if name is not None and isinstance(made, Tensor):
            document.named.setdefault(made, name)

    def _from_rule(self, var: relax.Expr, value: relax.Expr) -> Any:
        """Write a value by the outermost operator that has a rule, else as a call of Relax."""
        failures: list[Unsayable] = []
        applications = [*self._recording.applications.get(var, []), *self._recording.applications.get(value, [])]
        location = applications[0][0].location if applications else f"the tensor '{self._document.hint}'"
        for application, index in applications:
            try:
                made = self._applied(application)
            except Unsayable as error:
                failures.append(error)
            else:
                return made if index is None else made[index]
        try:
            return self._called(value)
        except Unsayable as error:
            found = _best_reason(failures, error)
            found.location = found.location or location
            raise found from None

    def _applied(self, application: Application) -> Any:
        """Writes an application of an operator; once where it has several results."""
        known = self._made.get(application)
        if known is not None:
            return known
        made = self._document.say(application.operator, *application.operands)
        if isinstance(made, list):
            self._made[application] = made
        return made

    def _called(self, value: relax.Expr) -> Any:
        document = self._document
        match value:
            case relax.TupleGetItem():
                whole = document.values.get(value.tuple_value)
                if isinstance(whole, Unsayable):
                    raise whole
                assert isinstance(whole, list)
                return whole[value.index]
            case relax.Tuple():
                return [document.tensor(field) for field in value.fields]
            case relax.Call() if (index := control_index(value)) is not None:
                return self._controlled(self._controls[index], list(value.args[1].fields))
            case relax.Call():
                operator, operands = operator_of(value)
                return document.say(operator, *operands)
            case relax.Var() | GenericConst():
                return document.value(value)
        raise Unsayable(f"NNEF has no form of a {type(value).__name__} of Relax")

    def _controlled(self, control: Control, operands: list[relax.Expr]) -> Any:
        """The results of a loop; branches cannot be written."""
        if not isinstance(control, Loop):
            raise Unsayable(_CHOOSES)
        body = control.body

        def write(document: Document, main: relax.Function, params: Sequence[Any]) -> list[Tensor]:
            return _Writer(document, self._recording, body.controls).run(main, params)

        return scanned_loop(self._document, control, operands, write)


def _best_reason(applied: list[Unsayable], called: Unsayable) -> Unsayable:
    """Why an operand of an operator could not be written, or why the outermost operator with a rule could not.

    `called` is why what the operators are made of could not: it tells more only where they have no rules.
    """
    for error in applied:
        if error.location:
            return error
    reasons = (error for error in (*applied, called) if not error.no_rule)
    return next(reasons, called if called.location or not applied else applied[0])


def _bindings(main: relax.Function) -> Iterator[tuple[relax.Expr, relax.Expr]]:
    for binding in bindings_of(main):
        yield binding.var, binding.value


def _finished(
    network: Network,
    document: Document,
    inputs: list[Tensor],
    outputs: list[Tensor],
    updates: list[Tensor],
    rounded: Rounded | None,
) -> Written:
    """The graph with what is needed alone, and with names."""
    document.hint = ""
    own: list[Tensor] = []
    for tensor in outputs:  # outputs have names of their own: no two are one tensor, and none is an input
        if tensor in own or tensor in inputs or tensor in document.variables:
            tensor = document.call("copy", x=tensor)
        own.append(tensor)
    kept = _needed(document.invocations, [*inputs, *own, *updates])
    names, renamed = _names(network, document, kept, inputs, own)
    taken = UniqueNames()
    labels = _labels(document, kept, names, taken)
    final = {tensor: replace(tensor, name=name) for tensor, name in names.items()}
    graph = FlatGraph(
        _graph_name(network),
        Dialect.FINAL,
        tuple(final[tensor] for tensor in inputs),
        tuple(final[tensor] for tensor in own),
        tuple(_renamed(invocation, final, labels) for invocation in kept),
    )
    values = {labels[tensor]: document.variables[tensor] for tensor in labels}
    if isinstance(document, TractDocument):
        fragments = _fragments(document, kept, taken, values)
        extensions = tuple(_extensions(network))
        return Written(
            graph, values, renamed, {}, extensions=extensions, fragments=fragments, metadata=network.metadata
        )
    text = rounded.text(names) if rounded is not None else ""
    coded = frozenset(labels[tensor] for tensor in labels if rounded is not None and tensor in rounded.entries)
    widths = _widths(network, final, inputs, own)
    return Written(graph, values, renamed, widths, text, coded=coded, metadata=network.metadata)


def _graph_name(network: Network) -> str:
    """An identifier that no operation has."""
    name = identifier(network.name or "network")
    return f"{name}_" if STANDARD.lookup(name, Dialect.FINAL) is not None else name


def _fragments(
    document: TractDocument, kept: list[Invocation], taken: UniqueNames, values: dict[str, Array]
) -> tuple[FlatGraph, ...]:
    """The fragments that what is kept calls, those first that others call; `values` gets those of their variables."""
    named = {fragment.name: fragment for fragment in document.fragments}
    made: dict[str, FlatGraph] = {}

    def write(invocations: list[Invocation]) -> None:
        for each in invocations:
            name = each.arguments.get("body") if each.operation.name == "tract_core_scan" else None
            if isinstance(name, str) and name not in made:
                fragment, own = named[name], _needed(named[name].body.invocations, list(named[name].results))
                write(own)
                made[name] = _fragment(fragment, own, taken, values)

    write(kept)
    return tuple(made.values())


def _fragment(
    fragment: TractFragment, kept: list[Invocation], taken: UniqueNames, values: dict[str, Array]
) -> FlatGraph:
    """A fragment with names."""
    body = fragment.body
    given = UniqueNames(body.fixed.values())
    names = dict(body.fixed)
    for tensor in (tensor for invocation in kept for tensor in invocation.tensors if tensor not in names):
        names[tensor] = given.unique(identifier(body.named.get(tensor) or body.hints[tensor] or "t"))
    labels = _labels(body, kept, names, taken)
    values.update({labels[tensor]: body.variables[tensor] for tensor in labels})
    final = {tensor: replace(tensor, name=name) for tensor, name in names.items()}
    return FlatGraph(
        fragment.name,
        Dialect.FINAL,
        tuple(final[tensor] for tensor in fragment.parameters),
        tuple(final[tensor] for tensor in fragment.results),
        tuple(_renamed(invocation, final, labels) for invocation in kept),
    )


def _extensions(network: Network) -> Iterator[str]:
    """The registry, and the dynamic dimensions with their ranges."""
    yield "tract_registry tract_core"
    for dimension in (each for each in network.dynamic_dimensions if each.formula is None):
        name = identifier(str(dimension.var.name))  # as expressions of sizes are spelled
        yield f"tract_symbol {name}"
        yield f"tract_assert {name} >= {dimension.values.minimum}"


def _needed(invocations: list[Invocation], wanted: list[Tensor]) -> list[Invocation]:
    """Returns the bindings that the wanted tensors depend on, in their order."""
    needed, kept = set(wanted), []
    for invocation in reversed(invocations):
        if any(tensor in needed for tensor in invocation.tensors):
            kept.append(invocation)
            needed.update(tensors_in(invocation.arguments.values()))
    return kept[::-1]


def _names(
    network: Network, document: Document, kept: list[Invocation], inputs: list[Tensor], outputs: list[Tensor]
) -> tuple[dict[Tensor, str], dict[str, str]]:
    """Identifiers: those of inputs and outputs first, then those that the model has, then others."""
    given = UniqueNames(identifier(str(dimension.var.name)) for dimension in network.dynamic_dimensions)
    names: dict[Tensor, str] = {}
    renamed: dict[str, str] = {}

    def give(tensor: Tensor, name: str, is_the_models: bool = True) -> None:
        if tensor not in names:
            names[tensor] = given.unique(identifier(name))
            if is_the_models and names[tensor] != name:
                renamed[names[tensor]] = name

    for tensor, name in zip([*inputs, *outputs], [*network.inputs, *network.outputs], strict=True):
        give(tensor, name)
    made = [tensor for invocation in kept for tensor in invocation.tensors]
    for tensor in made:
        if tensor in document.named:
            give(tensor, document.named[tensor])
    for tensor in made:
        give(tensor, document.hints[tensor], is_the_models=False)
    return names, renamed


def _labels(
    document: Document, kept: list[Invocation], names: Mapping[Tensor, str], given: UniqueNames
) -> dict[Tensor, str]:
    """Labels of variables: what the model calls them, as names of files; each once among `given`."""
    variables = [tensor for invocation in kept for tensor in invocation.tensors if tensor in document.variables]
    return {tensor: given.unique(label(document.named.get(tensor, names[tensor]))) for tensor in variables}


def _renamed(invocation: Invocation, final: Mapping[Tensor, Tensor], labels: Mapping[Tensor, str]) -> Invocation:
    def value(element: Any) -> Any:
        if isinstance(element, Tensor):
            return final[element]
        return type(element)(map(value, element)) if isinstance(element, list | tuple) else element

    arguments = {name: value(argument) for name, argument in invocation.arguments.items()}
    if invocation.operation.name == "variable":
        arguments["label"] = labels[invocation.tensors[0]]
    results = {name: value(result) for name, result in invocation.results.items()}
    return replace(invocation, arguments=arguments, results=results)


def _widths(
    network: Network, final: Mapping[Tensor, Tensor], inputs: list[Tensor], outputs: list[Tensor]
) -> dict[str, str]:
    """Element types at the borders that become another one where the document is read."""
    main = network.module["main"]
    types = [dtype_of(var) for var in main.params[: len(inputs)]]
    types += [str(ty.dtype) for ty in main.body.body.ty.fields[: len(outputs)]]
    pairs = zip([*inputs, *outputs], types, strict=True)
    return {final[tensor].name: dtype for tensor, dtype in pairs if dtype != _WIDTHS[tensor.content]}
