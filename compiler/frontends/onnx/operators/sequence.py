"""Sequences and optionals, most of which hold tensors whose number is known at compile time.

Others are one tensor, see `stacks`: such as grow in a loop, or whose elements are chosen by what is computed.
"""

from __future__ import annotations

import numpy as np

from nnefc.frontends.onnx.control.loops import Repetition, repeat
from nnefc.frontends.onnx.control.tensor_sequences import at_position, concatenated, inserted, split, stacked, without
from nnefc.frontends.onnx.operator import AnyValue, Context, Node, TensorSequence, Value, operator
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
from nnefc.frontends.onnx.values import Optional, Stacked
from nnefc.operators.tensor.concatenation import Concat, Split, Stack
from nnefc.operators.tensor.shape import Squeeze
from nnefc.symbolic.arrays import of_elements
from nnefc.symbolic.dims import is_known
from nnefc.symbolic.unification import unify_dims

__all__: list[str] = []

_MAX_PARTS = 16_384
"""Elements of a sequence; how many it would be is not in the model, but in a shape, or the trip count of a loop."""


def _sequence(node: Node, index: int = 0) -> TensorSequence | Stacked:
    """An input that must be a sequence.

    Raises:
        CompileError: it is not.
    """
    value = node.operands[index] if index < len(node.operands) else None
    if not isinstance(value, TensorSequence | Stacked):
        raise fail(node, f"input {index} is not a sequence")
    return value


def _position(ctx: Context, node: Node, index: int, length: int, end: int) -> int | None:
    """A position below `end` in a sequence, from the front; None if it is known only at run time."""
    array = ctx.constant(_position_tensor(node, index))
    if array is None:
        return None
    value = int(array.reshape(-1)[0])
    if not -length <= value < end:
        raise fail(node, f"the position {value} is out of range for a sequence of {length} tensors")
    return value + length if value < 0 else value


def _position_tensor(node: Node, index: int) -> Value:
    """An input that must be one integer; other inputs may be sequences."""
    operand = node.operands[index]
    if not isinstance(operand, Value) or any(size != 1 for size in operand.shape):
        raise fail(node, "a position in a sequence must be one integer")
    return operand


def _given(node: Node, index: int) -> bool:
    return index < len(node.operands) and node.operands[index] is not None


@operator("SequenceEmpty", since=(11,))
def _empty(_ctx: Context, node: Node) -> AnyValue:
    return TensorSequence((), element_type(node, node.attributes.get("dtype") or 1))


@operator("SequenceConstruct", since=(11,))
def _construct(_ctx: Context, node: Node) -> AnyValue:
    values = tuple(input_at(node, i) for i in range(len(node.operands)))
    return TensorSequence(values, values[0].dtype if values else "")


@operator("SequenceAt", since=(11,))
def _at(ctx: Context, node: Node) -> AnyValue:
    sequence = _sequence(node)
    if isinstance(sequence, TensorSequence):
        if not sequence.elements:
            raise fail(node, "the sequence is empty")
        offset = _position(ctx, node, 1, len(sequence.elements), len(sequence.elements))
        if offset is not None:
            return sequence.elements[offset]
    return at_position(ctx, stacked(ctx, sequence), _position_tensor(node, 1))


@operator("SequenceInsert", since=(11,))
def _insert(ctx: Context, node: Node) -> AnyValue:
    sequence, element = _sequence(node), node.operands[1]
    if element is None:
        raise fail(node, "there is nothing to insert")
    offset: int | None = None
    if isinstance(sequence, TensorSequence):
        length = len(sequence.elements)
        offset = _position(ctx, node, 2, length, length + 1) if _given(node, 2) else length
    if isinstance(sequence, Stacked) or offset is None:
        if not isinstance(element, Value):
            raise fail(node, "a sequence whose length is known only at run time holds tensors alone")
        position = _position_tensor(node, 2) if _given(node, 2) else None
        return inserted(ctx, stacked(ctx, sequence, element), element, position)
    elements = list(sequence.elements)
    _check_count(node, len(elements) + 1)
    elements.insert(offset, element)
    return TensorSequence(tuple(elements), sequence.dtype)


@operator("SequenceErase", since=(11,))
def _erase(ctx: Context, node: Node) -> AnyValue:
    sequence = _sequence(node)
    position = _position_tensor(node, 1) if _given(node, 1) else known(ctx, np.array(-1))
    if isinstance(sequence, TensorSequence):
        if not sequence.elements:
            raise fail(node, "the sequence is empty")
        length = len(sequence.elements)
        offset = _position(ctx, node, 1, length, length) if _given(node, 1) else length - 1
        if offset is not None:
            return TensorSequence((*sequence.elements[:offset], *sequence.elements[offset + 1 :]), sequence.dtype)
    return without(ctx, stacked(ctx, sequence), position)


@operator("SequenceLength", since=(11,))
def _length(ctx: Context, node: Node) -> AnyValue:
    sequence = _sequence(node)
    length = sequence.length if isinstance(sequence, Stacked) else len(sequence.elements)
    return Value.of_sizes(of_elements([length], ()), "int64")


@operator("SplitToSequence", since=(11, 24))
def _split(ctx: Context, node: Node) -> AnyValue:
    x = input_at(node, 0)
    shape = shape_of(x)
    axis, keep = normal_axis(node, node.attributes["axis"], len(shape)), bool(node.attributes["keepdims"])
    if not has_input(node, 1) and not is_known(shape[axis]):
        return split(ctx, x, axis, 1, keep)
    if has_input(node, 1):
        given = required_value(ctx, node, 1, "split")
        keep = True
        if given.ndim == 0 and given > 0 and not is_known(shape[axis]):
            return split(ctx, x, axis, int(given), keep)
        sizes = [int(size) for size in given.reshape(-1)]
        if given.ndim == 0:
            if sizes[0] < 1:
                raise fail(node, f"parts of {sizes[0]} elements")
            _check_count(node, -(-shape[axis] // sizes[0]))
            sizes = [min(sizes[0], shape[axis] - start) for start in range(0, shape[axis], sizes[0])]
    else:
        _check_count(node, shape[axis])
        sizes = [1] * shape[axis]
    parts = ctx.apply(Split(axis, tuple(sizes)), x)
    return TensorSequence(tuple(parts if keep else [ctx.apply(Squeeze((axis,)), part) for part in parts]), x.dtype)


def _check_count(node: Node, count: int) -> None:
    if count > _MAX_PARTS:
        raise fail(node, f"the sequence would have {count:,} elements, at most {_MAX_PARTS:,} are supported")


@operator("ConcatFromSequence", since=(11,))
def _concat(ctx: Context, node: Node) -> AnyValue:
    sequence, new = _sequence(node), bool(node.attributes["new_axis"])
    if isinstance(sequence, Stacked):
        axis = normal_axis(node, node.attributes["axis"], sequence.tensor.rank - 1 + new)
        return concatenated(ctx, sequence, axis, new)
    values = [element for element in sequence.elements if isinstance(element, Value)]
    if not values:
        raise fail(node, "the sequence has no tensors")
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
    there = value.element is not None if isinstance(value, Optional) else value is not None
    return known(ctx, np.array(there))


@operator("OptionalGetElement", since=(15, 18, 28))
def _get_element(_ctx: Context, node: Node) -> AnyValue:
    value = node.operands[0] if node.operands else None
    element = value.element if isinstance(value, Optional) else value
    if element is None:
        raise fail(node, "the optional is empty")
    return element


@operator("SequenceMap", since=(17,))
def _map(ctx: Context, node: Node) -> list[AnyValue]:
    """The body once for every position of the first sequence; tensors go to all of them."""
    _sequence(node)
    if any(isinstance(operand, Stacked) for operand in node.operands):
        return _mapped_in_a_loop(ctx, node)
    sequences = [operand for operand in node.operands if isinstance(operand, TensorSequence)]
    length = len(sequences[0].elements)
    for other in sequences[1:]:
        if len(other.elements) != length:
            raise fail(node, f"the sequences have {length} and {len(other.elements)} elements")
    body, made_of_each = node.attributes["body"], []
    for offset in range(length):
        given = [
            operand.elements[offset] if isinstance(operand, TensorSequence) else operand for operand in node.operands
        ]
        made_of_each.append(ctx.run_graph(body, [value for value in given if value is not None]))
    made: list[AnyValue] = []
    for index in range(len(node.outputs)):
        elements = tuple(results[index] for results in made_of_each)
        made.append(TensorSequence(elements, getattr(elements[0], "dtype", "") if elements else ""))
    return made


def _mapped_in_a_loop(ctx: Context, node: Node) -> list[AnyValue]:
    """Lower `SequenceMap` to a loop, for sequences whose lengths are known only at run time."""
    operands = [operand for operand in node.operands if operand is not None]
    over = [index for index, operand in enumerate(operands) if isinstance(operand, TensorSequence | Stacked)]
    sequences = [stacked(ctx, operand) for operand in operands if isinstance(operand, TensorSequence | Stacked)]
    if not all(unify_dims(sequences[0].length, other.length) for other in sequences):
        raise fail(node, f"the sequences have {' and '.join(str(other.length) for other in sequences)} elements")

    def iteration(
        _number: Value, _states: list[AnyValue], elements: list[Value]
    ) -> tuple[Value, list[AnyValue], list[Value]]:
        given = list(operands)
        for index, element in zip(over, elements, strict=True):
            given[index] = element
        made = ctx.run_graph(node.attributes["body"], given)
        if not all(isinstance(value, Value) for value in made):
            raise fail(node, "a sequence whose length is known only at run time holds tensors alone")
        return ctx.known(np.array(True)), [], [value for value in made if isinstance(value, Value)]

    loop = Repetition(
        iteration,
        states=[],
        limit=sequences[0].length,
        count=None,
        running=ctx.known(np.array(True)),
        scanned=tuple(sequence.tensor for sequence in sequences),
        reversed_inputs=(False,) * len(sequences),
        reversed_outputs=(False,) * len(node.attributes["body"].output_names),
    )
    return [Stacked(output) for output in repeat(ctx, loop)[1]]
