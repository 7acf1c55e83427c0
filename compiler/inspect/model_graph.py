"""Builds the graph of a network for viewing, as read from the model or after passes.

A box is an operator of the model, with all operations of the network that it became; or a call of a kernel, with the
tensors that it computes. Bodies of If and loops are separate graphs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from itertools import count
from typing import Any, Generic, TypeVar

import numpy as np
import tvm
from tvm import relax

from nnefc.driver.model_source import ModelSource, application_of, operator_of
from nnefc.inspect.html.graph import BoxGraph, Edge, Node
from nnefc.ir.dataflow import bindings_of
from nnefc.ir.network import Body, Loop, Network, called_controls, control_index
from nnefc.operators.recording import Application, Recording
from nnefc.passes.graph.debug_locations import debug_locations
from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import dimensions, element_count, size_hint

__all__ = ["graphs_of_model", "graphs_of_passes"]

_Fact = TypeVar("_Fact")

_MAX_TEXT = 400
_MAX_OPERATORS = 12


def graphs_of_model(source: ModelSource) -> list[BoxGraph]:
    """Return the graph of a network as in its model, and then those of the bodies in it."""
    recording = source.recording
    names = _Known(recording.names)

    def location_of(binding: relax.Binding, before: str | None) -> str | None:
        application = application_of(recording, binding)
        if application is not None:
            return application.location
        return before if names.of(binding.var) is not None else None  # what has no name is on the way to what follows

    def labelled(group: _Group) -> None:
        found = [application_of(recording, binding) for binding in group.bindings]
        applied = list(dict.fromkeys(each for each in found if each is not None))
        location = group.location or (applied[-1].location if applied else "")
        group.title = operator_of(location) or _operator_name(group.bindings[-1].value)
        group.names = [name for binding in group.bindings if (name := names.of(binding.var)) is not None]
        group.facts.append(("in the model", re.sub(r" in /.*/", " in ", location)))
        group.constants = list(_given(recording, applied))
        group.facts += list(_attributes(applied))
        group.facts.append(("becomes", ", ".join(_operators(group.bindings))))

    return list(_graphs(source.network, source.network.name, location_of, labelled))


def graphs_of_passes(network: Network, title: str) -> list[BoxGraph]:
    """Return the graph of a network after passes: a box for each operator of Relax and each call of a kernel."""

    def labelled(group: _Group) -> None:
        call = next(b for b in group.bindings)
        group.title = _operator_name(call.value)
        group.names = list(debug_locations(str(call.var.name)))
        group.facts += [("computes", ", ".join(group.names)), *_call_attributes(call.value)]
        group.constants = [("constant", *_described(each)) for each in _constants(group.bindings)]

    numbers = count()
    return list(_graphs(network, title, lambda _binding, _before: str(next(numbers)), labelled))


class _Known(Generic[_Fact]):
    """Facts about variables; for a variable that was rebuilt with other sizes, found by its name."""

    def __init__(self, facts: Mapping[Any, _Fact]) -> None:
        self._facts = facts
        self._by_name = {str(var.name): fact for var, fact in facts.items() if isinstance(var, relax.Var)}

    def of(self, var: relax.Var) -> _Fact | None:
        found = self._facts.get(var)
        return self._by_name.get(str(var.name)) if found is None else found


@dataclass
class _Group:
    """The bindings of one box."""

    location: str | None
    bindings: list[relax.Binding] = field(default_factory=list)
    title: str = ""
    names: list[str] = field(default_factory=list)
    facts: list[tuple[str, str]] = field(default_factory=list)
    constants: list[tuple[str, str, int]] = field(default_factory=list)
    """Names, types and bytes."""


_LocationOf = Callable[[relax.Binding, "str | None"], "str | None"]
"""Returns the location in the model of a binding, given that of the previous binding; None: it has that of the next
one.
"""


def _graphs(
    part: Network | Body,
    title: str,
    location_of: _LocationOf,
    labelled: Callable[[_Group], None],
) -> Iterator[BoxGraph]:
    groups = _grouped(part, location_of)
    for group in groups:
        labelled(group)
    yield _graph(part, title, groups)
    called = called_controls(part)
    for index, control in enumerate(part.controls):
        if index in called:
            for number, body in enumerate(control.bodies):
                kind = ("then", "else")[number] if len(control.bodies) > 1 else "in each round"
                inner = f"{title}, {kind} ({index + 1})"
                yield from _graphs(body, inner, location_of, labelled)


def _grouped(part: Network | Body, location_of: _LocationOf) -> list[_Group]:
    """Group consecutive bindings of the same location; elements of a tuple belong to the group of the tuple."""
    groups: list[_Group] = []
    owners: dict[relax.Var, _Group] = {}
    for binding in bindings_of(part.module["main"]):
        value = binding.value
        last = groups[-1] if groups else None
        location = location_of(binding, last.location if last is not None else None)
        if isinstance(value, relax.TupleGetItem) and value.tuple_value in owners:
            group = owners[value.tuple_value]
        elif not isinstance(value, relax.Call):
            continue  # the results, or another name of a variable
        elif control_index(value) is not None:
            group = _Group(_control_name(part, value))
            groups.append(group)
        elif last is not None and last.location in (None, location):
            group, last.location = last, location
        else:
            group = _Group(location)
            groups.append(group)
        group.bindings.append(binding)
        owners[binding.var] = group
    return groups


def _graph(part: Network | Body, title: str, groups: Sequence[_Group]) -> BoxGraph:
    main = part.module["main"]
    nodes: list[Node] = []
    edges: dict[tuple[int, int], str] = {}
    made_by: dict[relax.Var, int] = {}
    for param in main.params:
        if isinstance(param.ty, relax.TensorType):
            made_by[param] = len(nodes)
            nodes.append(Node("input", "input", str(param.name), (("type", _type(param.ty)),)))
    for group in groups:
        number = len(nodes)
        for binding in group.bindings:
            for var in relax.analysis.free_vars(binding.value):
                if var in made_by and made_by[var] != number:
                    edges.setdefault((made_by[var], number), f"{var.name}: {_type(var.ty)}")
            made_by[binding.var] = number
        nodes.append(_node(group))
    outputs = part.outputs if isinstance(part, Network) else ()
    for index, (name, expr) in enumerate(zip(outputs, _results(main), strict=False)):
        var = expr if isinstance(expr, relax.Var) else None
        nodes.append(Node("output", "output", name, (("type", _type(expr.ty)), ("number", str(index)))))
        if var in made_by:
            edges[made_by[var], len(nodes) - 1] = f"{name}: {_type(expr.ty)}"
    return BoxGraph(title, tuple(nodes), tuple(Edge(*ends, label) for ends, label in edges.items()))


def _results(main: relax.Function) -> list[relax.Expr]:
    body = main.body.body
    if isinstance(body, relax.Tuple):
        return list(body.fields)
    bound = {b.var: b.value for b in bindings_of(main)}
    value = bound.get(body)
    return list(value.fields) if isinstance(value, relax.Tuple) else []


def _node(group: _Group) -> Node:
    shown = [b for b in group.bindings if isinstance(b.var.ty, relax.TensorType)]
    named = [b for b in shown if str(b.var.name) in group.names] or shown[-1:]
    facts = [("type", "\n".join(_type(b.var.ty) for b in named)), *group.facts]
    if group.constants:
        facts.append(("constants", f"{sum(size for _, _, size in group.constants):,} bytes"))
        facts += [(name, f"{type_}, {size:,} bytes") for name, type_, size in group.constants[:_MAX_OPERATORS]]
    name = ", ".join(group.names) or (str(group.bindings[-1].var.name) if group.bindings else "")
    return Node(group.title, group.title, name, tuple((key, text[:_MAX_TEXT]) for key, text in facts if text))


def _type(ty: relax.Type) -> str:
    """Format a type, such as `float32[1, 64, 56, 56]`; for a tuple those of all its tensors."""
    if isinstance(ty, relax.TupleType):
        return ", ".join(map(_type, ty.fields))
    if not isinstance(ty, relax.TensorType) or ty.shape is None:
        return str(ty)
    return f"{ty.dtype}[{', '.join(map(str, dimensions(ty.shape)))}]"


def _constants(bindings: Sequence[relax.Binding]) -> list[tvm.ir.GenericConst]:
    found: dict[tvm.ir.GenericConst, None] = {}

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, tvm.ir.GenericConst):
            found[expr] = None

    for binding in bindings:
        relax.analysis.post_order_visit(binding.value, visit)
    return list(found)


def _described(constant: tvm.ir.GenericConst) -> tuple[str, int]:
    """Return the type and the bytes of a constant."""
    elements = size_hint(element_count(dimensions(constant.ty.shape)))
    return _type(constant.ty), elements * element_bytes(str(constant.ty.dtype))


def _given(recording: Recording, applied: Sequence[Application]) -> Iterator[tuple[str, str, int]]:
    """Yield the constants to which operators are applied: name in the model, type and bytes."""
    for application in applied:
        for operand in application.operands:
            if isinstance(operand, np.ndarray):
                name = recording.constant_name(operand) or "constant"
                yield name, f"{operand.dtype}{list(operand.shape)}", operand.nbytes


def _control_name(part: Network | Body, value: relax.Expr) -> str:
    index = control_index(value)
    control = part.controls[index] if index is not None and index < len(part.controls) else None
    return "Loop" if isinstance(control, Loop) else "If"


def _operator_name(value: relax.Expr) -> str:
    if not isinstance(value, relax.Call):
        return "part"
    if isinstance(value.op, tvm.ir.Op) and value.args and isinstance(value.args[0], tvm.ir.GlobalVar):
        return str(value.args[0].name_hint)
    return str(value.op.name).removeprefix("relax.") if isinstance(value.op, tvm.ir.Op) else str(value.op)


def _operators(bindings: Sequence[relax.Binding]) -> list[str]:
    """Return the operators that the bindings call, each once, in order."""
    found = dict.fromkeys(_operator_name(b.value) for b in bindings if isinstance(b.value, relax.Call))
    names = list(found)
    return names if len(names) <= _MAX_OPERATORS else [*names[:_MAX_OPERATORS], "…"]


def _attributes(applied: Sequence[Application]) -> Iterator[tuple[str, str]]:
    """Yields the class name and the attributes of each operator."""
    for application in applied:
        operator = application.operator
        text = "\n".join(f"{key} = {_value(value)}" for key, value in _fields(operator))
        yield type(operator).__name__, text or "no attributes"


def _fields(operator: Any) -> Iterator[tuple[str, object]]:
    """Yield the attributes of an operator, nested attributes included."""
    for each in fields(operator) if is_dataclass(operator) else ():
        value = getattr(operator, each.name)
        yield from _fields(value) if is_dataclass(value) else [(each.name, value)]


def _value(value: object) -> str:
    if isinstance(value, np.ndarray) and value.size > _MAX_OPERATORS:
        return f"{value.dtype}{list(value.shape)}"
    return repr(value) if not isinstance(value, np.ndarray) else str(value.tolist())


def _call_attributes(value: relax.Expr) -> Iterator[tuple[str, str]]:
    attributes: Mapping[str, Any] | None = getattr(value, "attrs", None)
    if attributes is not None and hasattr(attributes, "keys"):
        text = "\n".join(f"{key} = {attributes[key]}" for key in attributes.keys())  # noqa: SIM118
        if text:
            yield "attributes", text
