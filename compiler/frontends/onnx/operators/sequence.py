"""Sequences and optionals: which tensors they hold, and how many, is known at compile time."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.onnx.operator import AnyValue, Context, Node, Sequence, Value, operator
from nnefc.frontends.onnx.operators.casting import element_type
from nnefc.frontends.onnx.operators.tensors import (
    fail,
    has_input,
    input_at,
    known,
    normal_axis,
    required_value,
    shape_of,
)
from nnefc.frontends.onnx.values import Optional
from nnefc.operators.shape import Concat, Split, Squeeze, Stack

__all__: list[str] = []

_MOST_PARTS = 16_384
"""Items of a sequence; how many it would be is not in the model, but in a shape, or the trip count of a loop."""


def _sequence(node: Node, index: int = 0) -> Sequence:
    """An input that must be a sequence.

    Raises:
        CompileError: it is not.
    """
    value = node.operands[index] if index < len(node.operands) else None
    if not isinstance(value, Sequence):
        raise fail(node, f"input {index} is not a sequence")
    return value


def _position(ctx: Context, node: Node, index: int, length: int) -> int:
    """A position in a sequence, counted from the front."""
    value = required_value_at(ctx, node, index)
    if not -length <= value < max(length, 1):
        raise fail(node, f"the position {value} is out of range for a sequence of {length} tensors")
    return value + length if value < 0 else value


def required_value_at(ctx: Context, node: Node, index: int) -> int:
    """An integer input that must be known at compile time; other inputs may be sequences."""
    operand = node.operands[index]
    array = ctx.constant(operand) if isinstance(operand, Value) else None
    if array is None or array.size != 1:
        raise fail(node, "the position in a sequence must be known at compile time")
    return int(array.reshape(-1)[0])


@operator("SequenceEmpty", since=(11,))
def _empty(_ctx: Context, node: Node) -> AnyValue:
    return Sequence((), element_type(node, node.attributes.get("dtype") or 1))


@operator("SequenceConstruct", since=(11,))
def _construct(_ctx: Context, node: Node) -> AnyValue:
    values = tuple(input_at(node, i) for i in range(len(node.operands)))
    return Sequence(values, values[0].dtype if values else "")


@operator("SequenceAt", since=(11,))
def _at(ctx: Context, node: Node) -> AnyValue:
    items = _sequence(node).items
    place = _position(ctx, node, 1, len(items))
    if not items:
        raise fail(node, "the sequence is empty")
    return items[place]


@operator("SequenceInsert", since=(11,))
def _insert(ctx: Context, node: Node) -> AnyValue:
    sequence = _sequence(node)
    items, item = list(sequence.items), node.operands[1]
    if item is None:
        raise fail(node, "there is nothing to insert")
    place = len(items)
    if len(node.operands) > 2 and node.operands[2] is not None:
        place = required_value_at(ctx, node, 2)
        if not -len(items) <= place <= len(items):
            raise fail(node, f"the position {place} is not in a sequence of {len(items)}")
        place += len(items) if place < 0 else 0
    _check_count(node, len(items) + 1)
    items.insert(place, item)
    return Sequence(tuple(items), sequence.dtype)


@operator("SequenceErase", since=(11,))
def _erase(ctx: Context, node: Node) -> AnyValue:
    sequence = _sequence(node)
    items = list(sequence.items)
    if not items:
        raise fail(node, "the sequence is empty")
    given = len(node.operands) > 1 and node.operands[1] is not None
    del items[_position(ctx, node, 1, len(items)) if given else -1]
    return Sequence(tuple(items), sequence.dtype)


@operator("SequenceLength", since=(11,))
def _length(ctx: Context, node: Node) -> AnyValue:
    return known(ctx, np.array(len(_sequence(node).items), np.int64))


@operator("SplitToSequence", since=(11, 24))
def _split(ctx: Context, node: Node) -> AnyValue:
    x = input_at(node, 0)
    shape = shape_of(x)
    axis, keep = normal_axis(node, node.attributes["axis"], len(shape)), bool(node.attributes["keepdims"])
    if has_input(node, 1):
        given = required_value(ctx, node, 1, "split")
        keep = True
        sizes = [int(size) for size in given.reshape(-1)]
        if given.ndim == 0:
            if sizes[0] < 1:
                raise fail(node, f"parts of {sizes[0]} items")
            _check_count(node, -(-shape[axis] // sizes[0]))
            sizes = [min(sizes[0], shape[axis] - start) for start in range(0, shape[axis], sizes[0])]
    else:
        _check_count(node, shape[axis])
        sizes = [1] * shape[axis]
    parts = ctx.apply(Split(axis, tuple(sizes)), x)
    return Sequence(tuple(parts if keep else [ctx.apply(Squeeze((axis,)), part) for part in parts]), x.dtype)


def _check_count(node: Node, count: int) -> None:
    if count > _MOST_PARTS:
        raise fail(node, f"the sequence would have {count:,} items, at most {_MOST_PARTS:,} are supported")


@operator("ConcatFromSequence", since=(11,))
def _concat(ctx: Context, node: Node) -> AnyValue:
    values = [item for item in _sequence(node).items if isinstance(item, Value)]
    if not values:
        raise fail(node, "the sequence has no tensors")
    new = bool(node.attributes["new_axis"])
    axis = normal_axis(node, node.attributes["axis"], values[0].rank + new)
    made: Value = ctx.apply(Stack(axis) if new else Concat(axis), *values)
    return made


@operator("Optional", since=(15, 28))
def _optional(_ctx: Context, node: Node) -> AnyValue:
    value = node.operands[0] if node.operands else None
    return Optional(value, "" if value is None else getattr(value, "dtype", ""))


@operator("OptionalHasElement", since=(15, 18, 28))
def _has_element(ctx: Context, node: Node) -> AnyValue:
    value = node.operands[0] if node.operands else None
    there = value.item is not None if isinstance(value, Optional) else value is not None
    return known(ctx, np.array(there))


@operator("OptionalGetElement", since=(15, 18, 28))
def _get_element(_ctx: Context, node: Node) -> AnyValue:
    value = node.operands[0] if node.operands else None
    item = value.item if isinstance(value, Optional) else value
    if item is None:
        raise fail(node, "the optional is empty")
    return item


@operator("SequenceMap", since=(17,))
def _map(ctx: Context, node: Node) -> list[AnyValue]:
    """The body once for every place of the first sequence; tensors go to all of them."""
    length = len(_sequence(node).items)
    for operand in node.operands[1:]:
        if isinstance(operand, Sequence) and len(operand.items) != length:
            raise fail(node, f"the sequences have {length} and {len(operand.items)} items")
    body, made_of_each = node.attributes["body"], []
    for place in range(length):
        given = [operand.items[place] if isinstance(operand, Sequence) else operand for operand in node.operands]
        made_of_each.append(ctx.run_graph(body, [value for value in given if value is not None]))
    made: list[AnyValue] = []
    for index in range(len(node.outputs)):
        items = tuple(results[index] for results in made_of_each)
        made.append(Sequence(items, getattr(items[0], "dtype", "") if items else ""))
    return made
