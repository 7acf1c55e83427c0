"""Values that are no tensors: sequences and optional values. Nodes that take and give them are one step together."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from graph import Tensor, element_type
from onnx import TensorProto, helper
from steps import Rejected
from walk import Walk

from spaces.declared import ANY, BOOL, I32, I64, Nodes, axis_of, space

__all__ = ["WITH_SEQUENCES"]

_MAX = 5
"""Elements of a sequence at first."""
_IDENTITY = 14
"""The first operator set whose `Identity` takes sequences."""


def _held(w: Walk, ranks: range) -> Tensor:
    """A tensor that sequences and optional values may hold."""
    x = w.pick(ANY, ranks=ranks)
    if element_type(x.array) == TensorProto.BFLOAT16:
        raise Rejected("no sequences of bfloat16")
    return x


def _compatible(w: Walk, like: Tensor) -> Tensor:
    """A tensor of the same type, mostly of the same shape."""
    same = w.chance(0.85)
    fitting = [t for t in w.tensors if t.array.dtype == like.array.dtype and (t.shape == like.shape) == same]
    if fitting and w.chance(0.6):
        return w.one(*fitting)
    shape = like.shape if same else tuple(w.size() for _ in like.shape)
    return w.constant(w.random(shape, like.array.dtype))


@dataclass
class _Elements:
    """A sequence of a step.

    Attributes:
        name: in the graph.
        kind: element type of its elements.
        shapes: of its elements.
        are_fixed: whether others must have the same shape, as something about it is known only at run time.
    """

    name: str
    kind: np.dtype[Any]
    shapes: list[tuple[int, ...]]
    are_fixed: bool = False

    @property
    def are_alike(self) -> bool:
        """Whether all have one shape, as they must where the data choose one of them."""
        return len(set(self.shapes)) <= 1


def _position(w: Walk, elements: _Elements, shape: tuple[int, ...] | None = None) -> tuple[str, int]:
    """A position in a sequence, from the front or from the back: a constant, or what comes from outside.

    Args:
        shape: of what is put there; None if the position is that of an element.
    """
    count = len(elements.shapes)
    position = np.array(w.number(-count, count - (shape is None)), w.one(I64, I32))
    are_alike = elements.are_alike and shape in (None, *elements.shapes[:1])
    is_outside = are_alike and w.takes_integers and len(w.inputs) < w.max_inputs and w.chance(0.3)
    elements.are_fixed |= is_outside
    return (w.input_of(position) if is_outside else w.constant(position)).name, int(position)


def _sequence(w: Walk, x: Tensor, nodes: Nodes) -> _Elements:
    """A sequence that holds a tensor, or parts of it."""
    match w.one("all", "grown", "split", "split"):
        case "all":
            held = [x, *(_compatible(w, x) for _ in range(w.number(0, _MAX - 1)))]
            held = [held[k] for k in w.rng.permutation(len(held))]
            made = nodes.add("SequenceConstruct", *(t.name for t in held))
            elements = _Elements(made, x.array.dtype, [t.shape for t in held])
        case "grown":
            elements = _Elements(nodes.add("SequenceEmpty", dtype=element_type(x.array)), x.array.dtype, [])
            for element in [x, *(_compatible(w, x) for _ in range(w.number(0, 2)))]:
                _insert(w, elements, element, nodes)
        case _:
            elements = _split(w, x, nodes)
    for _ in range(w.number(0, 2)):
        match w.one("insert", "erase", "optional", "same", "branch"):
            case "insert":
                _insert(w, elements, _compatible(w, x), nodes)
            case "erase" if len(elements.shapes) > 1:
                _erase(w, elements, nodes)
            case "optional":
                elements.name = nodes.add("OptionalGetElement", nodes.add("Optional", elements.name))
            case "branch" if elements.are_alike and w.opset >= _IDENTITY:
                elements.name = _branched(w, elements, nodes)
            case "same" if w.opset >= _IDENTITY:
                elements.name = nodes.add("Identity", elements.name)
    return elements


def _insert(w: Walk, elements: _Elements, element: Tensor, nodes: Nodes) -> None:
    if elements.are_fixed and element.shape != elements.shapes[0]:
        raise Rejected("of another shape")
    names, position = [], len(elements.shapes)
    if elements.shapes and w.chance(0.6):
        name, position = _position(w, elements, element.shape)
        names = [name]
    elements.name = nodes.add("SequenceInsert", elements.name, element.name, *names)
    elements.shapes.insert(position, element.shape)


def _erase(w: Walk, elements: _Elements, nodes: Nodes) -> None:
    names, position = [], -1
    if w.chance(0.7):
        name, position = _position(w, elements)
        names = [name]
    elements.name = nodes.add("SequenceErase", elements.name, *names)
    del elements.shapes[position]


def _split(w: Walk, x: Tensor, nodes: Nodes) -> _Elements:
    axis = axis_of(w, x)
    size = x.shape[axis]
    lengths: list[str] = []
    attributes = {"axis": axis}
    match w.one("ones", "equal", "sizes"):
        case "ones":
            parts = [1] * size
            attributes["keepdims"] = w.number(0, 1)
        case "equal":
            part = w.number(1, max(1, size))
            parts = [min(part, size - start) for start in range(0, size, part)]
            lengths = [w.constant(part, w.one(I64, I32)).name]
        case _:
            cuts = sorted(w.number(0, size) for _ in range(w.number(0, 3)))
            parts = [int(each) for each in np.diff([0, *cuts, size])]
            lengths = [w.constant(parts, w.one(I64, I32)).name]
    if not all(parts):
        raise Rejected("a part has no elements")
    kept = attributes.get("keepdims", 1)
    shapes = [(*x.shape[:axis], *[part] * kept, *x.shape[axis:][1:]) for part in parts]
    return _Elements(nodes.add("SplitToSequence", x.name, *lengths, **attributes), x.array.dtype, shapes)


def _typed(name: str, kind: np.dtype[Any], is_sequence: bool = False) -> onnx.ValueInfoProto:
    """What a body takes or gives, of any shape."""
    element = int(helper.np_dtype_to_tensor_dtype(kind))
    if is_sequence:
        return helper.make_tensor_sequence_value_info(name, element, None)
    return helper.make_tensor_value_info(name, element, None)


def _branched(w: Walk, elements: _Elements, nodes: Nodes) -> str:
    """The sequence as it comes out of two branches, one of which changes its elements."""
    condition = w.constant(w.chance(0.5), BOOL) if w.chance(0.5) else w.new_input((), BOOL)
    elements.are_fixed = True
    prefix = nodes.prefix
    sides = []
    for side in ("a", "b"):
        element, given = f"{prefix}{side}_item", f"{prefix}{side}"
        first = w.constant(w.one(0, -1), I64).name
        changed = [
            helper.make_node("SequenceAt", [elements.name, first], [element]),
            helper.make_node("SequenceErase", [elements.name, first], [f"{given}_less"]),
            helper.make_node("SequenceInsert", [f"{given}_less", element], [given]),
        ]
        body = changed if side == "b" else [helper.make_node("Identity", [elements.name], [given])]
        sides.append(helper.make_graph(body, side, [], [_typed(given, elements.kind, is_sequence=True)]))
    return nodes.add("If", condition.name, then_branch=sides[0], else_branch=sides[1])


def _start(w: Walk) -> tuple[Nodes, _Elements]:
    nodes = Nodes(w)
    return nodes, _sequence(w, _held(w, range(1, 5)), nodes)


def _at(w: Walk, elements: _Elements, nodes: Nodes) -> str:
    name, _ = _position(w, elements)
    return nodes.add("SequenceAt", elements.name, name)


@space("SequenceAt")
def _taken(w: Walk, _: str) -> object:
    nodes, elements = _start(w)
    return nodes.step(*(_at(w, elements, nodes) for _ in range(w.number(1, 2))))


@space("ConcatFromSequence")
def _concatenated(w: Walk, name: str) -> object:
    nodes, elements = _start(w)
    return nodes.step(nodes.add(name, elements.name, axis=w.number(-3, 3), new_axis=w.number(0, 1)))


@space("SequenceLength")
def _length(w: Walk, name: str) -> object:
    nodes, elements = _start(w)
    return nodes.step(nodes.add(name, elements.name))


@space("SequenceMap")
def _mapped(w: Walk, name: str) -> object:
    """A function of each element, and of an element of another sequence or of a tensor that is the same for all."""
    nodes, elements = _start(w)
    if elements.kind.kind == "b":
        raise Rejected("no function of booleans")
    prefix = nodes.prefix
    element, other, result = f"{prefix}_item", f"{prefix}_other", f"{prefix}_result"
    inputs, more = [_typed(element, elements.kind)], []
    if w.chance(0.5):
        body = helper.make_node(w.one("Abs", "Identity", "Sign"), [element], [result])
    else:
        more = [elements.name if w.chance(0.5) else w.constant(w.random((1,), elements.kind)).name]
        inputs.append(_typed(other, elements.kind))
        body = helper.make_node(w.one("Max", "Min"), [element, other], [result])
    each = helper.make_graph([body], "each", inputs, [_typed(result, elements.kind)])
    elements.name = nodes.add(name, elements.name, *more, body=each)
    if w.chance(0.5):
        return nodes.step(_at(w, elements, nodes))
    return nodes.step(nodes.add("ConcatFromSequence", elements.name, axis=w.number(-2, 2), new_axis=w.number(0, 1)))


@space("SequenceInsert")
def _collected(w: Walk, name: str) -> object:
    """A sequence that a loop's trips grow, each by a part of a tensor."""
    x, nodes = _held(w, range(1, 4)), Nodes(w)
    count = w.number(1, min(4, x.shape[0]))
    prefix = nodes.prefix
    number, on, going, state, grown, element = (
        f"{prefix}{part}" for part in ("n", "on", "going", "state", "grown", "x")
    )
    start = nodes.add("SequenceEmpty", dtype=element_type(x.array))
    position = [w.constant(0, I64).name] if w.chance(0.3) else []
    body = [
        helper.make_node("Identity", [on], [going]),
        helper.make_node("Gather", [x.name, number], [element], axis=0),
        helper.make_node(name, [state, element, *position], [grown]),
    ]
    inputs = [
        helper.make_tensor_value_info(number, TensorProto.INT64, []),
        helper.make_tensor_value_info(on, TensorProto.BOOL, []),
        _typed(state, x.array.dtype, is_sequence=True),
    ]
    outputs = [
        helper.make_tensor_value_info(going, TensorProto.BOOL, []),
        _typed(grown, x.array.dtype, is_sequence=True),
    ]
    trips = w.constant(count, I64).name
    elements = _Elements(state, x.array.dtype, [x.shape[1:]] * count)
    elements.name = nodes.add("Loop", trips, "", start, body=helper.make_graph(body, "grow", inputs, outputs))
    if w.chance(0.5):
        _insert(w, elements, w.constant(w.random(x.shape[1:], x.array.dtype)), nodes)
    match w.one("at", "all", "length"):
        case "at":
            return nodes.step(_at(w, elements, nodes))
        case "all":
            return nodes.step(nodes.add("ConcatFromSequence", elements.name, axis=w.number(-1, 0), new_axis=1))
        case _:
            return nodes.step(nodes.add("SequenceLength", elements.name))


@space("OptionalGetElement")
def _optional(w: Walk, name: str) -> object:
    x, nodes = _held(w, range(5)), Nodes(w)
    optional = nodes.add("Optional", x.name)
    return nodes.step(nodes.add(name, optional), nodes.add("OptionalHasElement", optional))


WITH_SEQUENCES = frozenset(
    ("ConcatFromSequence", "OptionalGetElement", "SequenceAt", "SequenceInsert", "SequenceLength", "SequenceMap")
)
"""Entries whose steps are of several nodes."""
