"""Entry point of the ONNX front end: file → checked model → one Relax function."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
from tvm import relax

from nnefc.frontends.dynamic_shapes import dynamic_shape_context
from nnefc.frontends.onnx.checks.scopes import check_model
from nnefc.frontends.onnx.checks.tolerance import without_dead_nodes
from nnefc.frontends.onnx.files.model import NodeDef, OnnxGraph, OnnxModel
from nnefc.frontends.onnx.files.reading import read_model
from nnefc.frontends.onnx.hints import made_by
from nnefc.frontends.onnx.lowering import GraphLowering, Scope, initial_value, is_supported
from nnefc.frontends.onnx.shapes import (
    Absent,
    Border,
    DimensionVariables,
    Leaf,
    bind_inputs,
    check_declared,
    item_variables,
    no_such_name,
)
from nnefc.frontends.onnx.training import check_trainings, training_step
from nnefc.frontends.onnx.values import STORAGE, AnyValue, Array, Map, Optional, Stacked, TensorSequence, Value
from nnefc.ir.network import Network, State
from nnefc.operators.base import build_main, is_empty
from nnefc.operators.math.elementwise import Elementwise
from nnefc.operators.recording import note_name
from nnefc.operators.tensor.shape import distinct_results
from nnefc.support.diagnostics import CompileError, ExternalDataError, warn
from nnefc.symbolic.refinement import Refinement, refined

__all__ = ["load"]

_MAX_LISTED = 10  # names in a message

_NO_RUNS = np.zeros((), np.int64)
"""The first value of the state that counts runs, where random numbers are drawn."""


def load(
    path: str | os.PathLike[str],
    *,
    shape: Mapping[str, Any] | None = None,
    values: Mapping[str, Any] | None = None,
    output_tensors: tuple[str, ...] = (),
    entry: str | None = None,
    overridable: bool = False,
    is_tied: bool = False,
    is_apart: bool = True,
) -> Network:
    """Load an ONNX model as a network.

    A sequence among the inputs or outputs becomes a tensor for each of its elements, `NAME.0`, `NAME.1` and so on.
    Tensors of types that no machine computes with (int4, float8, …) have the types that `values.STORAGE` gives for
    them.

    Args:
        path: the file; data of large tensors may be in files next to it.
        shape: sizes of dimension variables and shapes of inputs, by name. The elements' shapes for a sequence, None for
            an optional input that is not there. What is not given stays open.
        values: inputs whose values are known at compile time, by name; they are no inputs of the network then.
        output_tensors: names of values of the graph to return in place of its outputs.
        entry: None for the model's graph; `training:0` for the step of its first training.
        overridable: whether initializers that are inputs too, are inputs of the network; else they are constants.
        is_tied: whether dynamic sizes that broadcast are one size.
        is_apart: whether the network need not be right for single sizes, which it names.

    Raises:
        CompileError: anything in the model or in the arguments that does not fit.
    """
    model = _checked(Path(path), output_tensors)
    with made_by(model.producer):
        graph = model.graph
        states: Mapping[str, Array] = {}
        updates: Mapping[str, str] = {}
        if entry is not None:
            graph, states, updates = training_step(model, entry, lambda g: _evaluated(model, g, entry))
        builder = _Builder(model, graph, states, updates)
        network = builder.build(shape, values, output_tensors, overridable, is_tied, is_apart)
    for text in dict.fromkeys(builder.warnings):
        warn(f"{Path(path).name}: {text}")
    return network


def _checked(path: Path, output_tensors: tuple[str, ...]) -> OnnxModel:
    """A model that keeps the rules of the format, or breaks them without harm."""
    try:
        model = read_model(path)
        graph, warnings = without_dead_nodes(model.graph, output_tensors, lambda node: _is_known(model, node))
        model = replace(model, graph=graph)
        with made_by(model.producer):
            check_model(model)
            check_trainings(model)
    except CompileError as error:
        if error.hint is not None or isinstance(error, ExternalDataError):
            raise
        raise CompileError(error.message, location=error.location, hint=_BROKEN) from error
    for text in warnings:
        warn(f"{path.name}: {text}")
    return model


_BROKEN = (
    "the file breaks a rule of the format: report it to what wrote it, or mend it with the package onnx, whose "
    "onnx.checker.check_model(path) tells more"
)


def _is_known(model: OnnxModel, node: NodeDef) -> bool:
    known = is_supported(node.domain, node.op_type) or (node.domain, node.op_type, node.overload) in model.functions
    return known or bool(model.trainings)  # whose graphs may need anything


def _evaluated(model: OnnxModel, graph: OnnxGraph, what: str) -> dict[str, Array]:
    """The outputs of a graph without inputs, computed now."""
    builder = relax.BlockBuilder()
    found: dict[str, Array] = {}

    def make() -> list[relax.Expr]:
        interpreter = GraphLowering(model, builder, DimensionVariables())
        interpreter.context.runs = interpreter.context.known(np.zeros((), np.int64))  # there is no other run
        scope = Scope(model.opsets, _initial(graph), infos=graph.infos)
        interpreter.run(graph.nodes, scope)
        for name in graph.output_names:
            value = scope.find(name)
            array = interpreter.context.constant(value) if isinstance(value, Value) else None
            if array is None:
                raise CompileError(f"{what}: the initialization's '{name}' is not known at compile time")
            found[name] = array
        return []

    build_main(builder, make, list)
    return found


def _initial(graph: OnnxGraph) -> dict[str, AnyValue | None]:
    found: dict[str, AnyValue | None] = {}
    for name, array in graph.initializers.items():
        value = found[name] = initial_value(array)
        if value.array is not None:
            note_name(value.array, name)
    return found


class _Builder:
    """Makes the network of one graph.

    `states` are first values by name of what is kept between runs, `updates` the names of their new values. When it is
    built, `warnings` say what the user should know.
    """

    def __init__(
        self, model: OnnxModel, graph: OnnxGraph, states: Mapping[str, Array], updates: Mapping[str, str]
    ) -> None:
        self._model = model
        self._graph = graph
        self._states = states
        self._updates = updates
        self.warnings: list[str] = []

    def build(
        self,
        shape: Mapping[str, Any] | None,
        values: Mapping[str, Any] | None,
        output_tensors: tuple[str, ...],
        overridable: bool,
        is_tied: bool,
        is_apart: bool,
    ) -> Network:
        """The network, with dynamic dimensions as narrow as its operators need them."""
        network, refinement = refined(
            lambda known: self._attempt(shape, values, output_tensors, overridable, known), is_tied, is_apart
        )
        apart = {name: size for name, size in (refinement.apart or {}).items() if name in network.dimension_names}
        self.warnings += refinement.notes.values()
        return replace(network, apart=apart)

    def _attempt(
        self,
        shape: Mapping[str, Any] | None,
        values: Mapping[str, Any] | None,
        output_tensors: tuple[str, ...],
        overridable: bool,
        refinement: Refinement,
    ) -> Network:
        graph = self._graph
        constants = set(self._states) if overridable else {*graph.initializers, *self._states}
        infos = [info for info in graph.inputs if info.name not in constants]
        borders, symbols = bind_inputs(infos, shape, values, refinement)
        leaves = [leaf for border in borders.values() for leaf in _leaves(border)]
        with dynamic_shape_context(symbols.opened.all(), {leaf.name: leaf.shape for leaf in leaves}):
            symbols.check_formulas()
            return self._built(borders, symbols, output_tensors)

    def _built(
        self, borders: Mapping[str, Border], symbols: DimensionVariables, output_tensors: tuple[str, ...]
    ) -> Network:
        graph = self._graph
        symbols.loose |= item_variables([*graph.inputs, *graph.outputs, *graph.infos.values()])
        leaves = [leaf for border in borders.values() for leaf in _leaves(border)]
        for leaf in leaves:
            _check_leaf(leaf)
        params = {leaf.name: _parameter(leaf.name, leaf.shape, leaf.dtype) for leaf in leaves}
        if len(params) != len(leaves):
            raise CompileError("two inputs of the network would have the same name: one is an element of a sequence")
        kept = {name: _parameter(name, array.shape, str(array.dtype)) for name, array in self._states.items()}
        builder = relax.BlockBuilder()
        interpreter = GraphLowering(self._model, builder, symbols)
        outputs: dict[str, Value] = {}

        def make() -> list[relax.Expr]:
            scope = Scope(self._model.opsets, _initial(graph), infos=graph.infos, outputs=graph.output_infos)
            scope.values.update({name: _value(border, params) for name, border in borders.items()})
            for name, var in kept.items():
                array = self._states[name]
                scope.values[name] = Value(array.shape, str(array.dtype), expr=var)
            interpreter.run(graph.nodes, scope)
            outputs.update(self._outputs(scope, symbols, output_tensors))
            new = [self._new_state(scope, name) for name in self._states]
            runs = interpreter.context.runs
            if runs is not None:
                assert runs.expr is not None
                kept[_unused_name("runs", {*params, *outputs, *self._states})] = runs.expr
                new.append(interpreter.context.apply(Elementwise("add"), runs, Value.known(np.int64(1))))
            counts = interpreter.context.emitter.counts
            results = map(interpreter.context.expr, [*outputs.values(), *new])
            return [*distinct_results(interpreter.context.emitter, results), *counts.values()]

        if any(array.dtype == object for array in self._states.values()):
            raise CompileError("a state of strings is not supported: a session keeps numbers between runs")
        module = build_main(builder, make, lambda: [*params.values(), *kept.values()])
        for name in interpreter.context.emitter.ranges:
            raise no_such_name(
                name, [*borders, *sorted(symbols.sizes), *sorted(interpreter.context.emitter.count_names)]
            )
        self.warnings = [*_wrong_shapes(symbols), *interpreter.context.warnings]
        given = {leaf.name: leaf.dtype for leaf in leaves} | {name: value.dtype for name, value in outputs.items()}
        texts = frozenset(name for name, dtype in given.items() if dtype == "string")
        return Network(
            self._model.name,
            module,
            tuple(params),
            tuple(outputs),
            tuple(State(name, np.array(self._states.get(name, _NO_RUNS))) for name in kept),
            variables=tuple(name for name in graph.initializers if name not in params and name not in self._states),
            files=self._model.files,
            controls=interpreter.context.emitter.controls,
            dynamic_dimensions=symbols.opened.all(),
            counts=tuple(interpreter.context.emitter.counts),
            labels={name: labels for name, labels in interpreter.context.labels.items() if name in outputs},
            texts=texts,
            has_text=bool(texts) or interpreter.context.emitter.has_text,
            metadata=self._model.metadata,
        )

    def _outputs(self, scope: Scope, symbols: DimensionVariables, wanted: tuple[str, ...]) -> dict[str, Value]:
        found: dict[str, Value] = {}
        for info in self._graph.outputs:
            value = scope.find(info.name)
            assert value is not None
            check_declared(value, info, symbols, "the model's graph", strict=True)
            found.update(_tensors(info.name, value))
        if wanted:
            found.clear()
        for name in wanted:
            if name not in scope.values:
                close = get_close_matches(name, scope.values, 1)
                outputs = ", ".join(self._graph.output_names[:_MAX_LISTED])
                raise CompileError(
                    f"the model has no tensor '{name}'",
                    hint=f"did you mean '{close[0]}'?" if close else f"its outputs are {outputs}",
                )
            value = scope.find(name)
            assert value is not None
            found.update(_tensors(name, value))
        return found

    def _new_state(self, scope: Scope, name: str) -> Value:
        value, array = scope.find(self._updates.get(name, name)), self._states[name]
        if not isinstance(value, Value) or (value.dtype, value.shape) != (str(array.dtype), array.shape):
            found = f"{value.dtype}{list(value.shape)}" if isinstance(value, Value) else "no tensor"
            raise CompileError(
                f"the new value of '{name}' is {found}, the state itself {array.dtype}{list(array.shape)}"
            )
        return value


def _wrong_shapes(symbols: DimensionVariables) -> Iterable[str]:
    if symbols.contradictions:
        first, *others = symbols.contradictions.values()
        more = f"; {len(others)} more are wrong too" if others else ""
        yield f"a declared shape is wrong, the computed one holds: {first}{more}"


def _unused_name(name: str, used: set[str]) -> str:
    while name in used:
        name += "_"
    return name


def _parameter(name: str, shape: tuple[int, ...], dtype: str) -> relax.Var:
    return relax.Var(name, relax.TensorType(shape, STORAGE.get(dtype, dtype)))


def _leaves(border: Border) -> Iterable[Leaf]:
    match border:
        case Leaf():
            yield border
        case tuple():
            for element in border:
                yield from _leaves(element)


def _check_leaf(leaf: Leaf) -> None:
    if leaf.dtype.startswith("complex"):
        raise CompileError(
            f"the input '{leaf.name}' is of type {leaf.dtype}, which a library cannot take",
            hint=f"give its value to the compiler, --value {leaf.name}=…, or leave what reads it out of the model",
        )


def _value(border: Border, params: Mapping[str, relax.Var]) -> AnyValue:
    match border:
        case Leaf(name, shape, dtype):
            if is_empty(shape):
                return Value.empty(shape, dtype)
            return Value(shape, dtype, expr=params[name])
        case Absent(dtype):
            return Optional(None, dtype)
        case Value() | Map():
            return border
    elements = tuple(_value(element, params) for element in border)
    return TensorSequence(elements, elements[0].dtype if elements and isinstance(elements[0], Value) else "")


def _tensors(name: str, value: AnyValue) -> dict[str, Value]:
    """The tensors that an output comes to, by name."""
    match value:
        case Value():
            if value.dtype.startswith("complex"):
                raise CompileError(f"the output '{name}' is of type {value.dtype}, which a library cannot return")
            return {name: value}
        case Stacked(tensor):
            return {name: tensor}
        case Optional(element):
            return {} if element is None else _tensors(name, element)
        case TensorSequence(elements):
            return {
                key: part
                for i, element in enumerate(elements)
                for key, part in _tensors(f"{name}.{i}", element).items()
            }
    raise CompileError(f"the output '{name}' is a map, which a library cannot return")
