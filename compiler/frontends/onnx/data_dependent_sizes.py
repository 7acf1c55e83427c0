"""Derives sizes from computed tensors: `Range(0, n)`, where `n` is a sum of predicted lengths.

What such a tensor has been computed from by operators on sizes is followed back, so that sizes that follow from each
other stay so: of `Concat(1, n, Add(n, 1))` only `n` is taken from the data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tvm import relax

from nnefc.frontends.onnx.files.model import NodeDef
from nnefc.frontends.onnx.operator import Context, Origin
from nnefc.frontends.onnx.symbolic_values import computed
from nnefc.frontends.onnx.values import AnyValue, Array, Value
from nnefc.operators.tensor.data_dependent_sizes import requested_coordinate, requested_size
from nnefc.operators.tensor.shape import Reshape, Slice
from nnefc.symbolic.arrays import of_elements
from nnefc.symbolic.dims import Dimension, Size, any_number, expression, is_known, narrower_ranges, variables

__all__ = ["MAX_ELEMENTS", "distance_of", "note_integers", "sizes_of", "sizes_that_follow"]

MAX_ELEMENTS = 8
"""Elements, at most, of tensors whose elements are traced as sizes."""

_LOWER_BOUNDS = frozenset({"Abs", "Clip", "Max", "ReduceMax"})
"""Operators whose result may be a size where an operand is negative, such as a coordinate outside of an image."""


def note_integers(
    ctx: Context,
    node: NodeDef,
    attributes: Mapping[str, Any],
    operands: Sequence[AnyValue | None],
    results: Sequence[AnyValue],
) -> None:
    """Note how a node has computed small tensors of integers.

    An operand has its origin before the result has one, or never: a node may give its operand as its result.
    """
    if node.domain or not all(operand is None or _may_be_sizes(operand) for operand in operands):
        return
    for operand in operands:
        if isinstance(operand, Value) and operand.expr is not None:
            ctx.origins.setdefault(operand.expr, None)
    for index, result in enumerate(results):
        if isinstance(result, Value) and result.expr is not None and _may_be_sizes(result):
            given = tuple(operand for operand in operands if operand is None or isinstance(operand, Value))
            known = {"num_outputs": len(results)} | dict(attributes)
            ctx.origins.setdefault(result.expr, Origin(node.op_type, known, given, index))


def _may_be_sizes(value: AnyValue) -> bool:
    if not isinstance(value, Value) or not is_known(*value.shape) or math.prod(value.shape) > MAX_ELEMENTS:
        return False
    return value.array is not None or value.sizes is not None or value.dtype in ("int32", "int64", "bool")


def sizes_of(ctx: Context, value: Value, name: str) -> Array | None:
    """The elements of a tensor as sizes, the data-dependent ones called `name`; None if it cannot hold sizes."""
    return _followed(ctx, value, lambda part, may_be_negative: _taken(ctx, part, name, may_be_negative))


def sizes_that_follow(ctx: Context, value: Value) -> list[Dimension | None] | None:
    """The elements of a tensor that are known, or follow from sizes that there are, None for each other one; None if
    it cannot hold sizes.
    """
    if not _may_be_sizes(value):
        return None
    made: set[Any] = set()

    def number(on_data_dependent: Value, _may_be_negative: bool) -> Array:
        elements = []
        for index in range(math.prod(on_data_dependent.shape)):
            found = _found(ctx, on_data_dependent, index)
            if found is None:
                found = any_number(f"number{len(made)}")
                made.add(expression(found))
            elements.append(found)
        return of_elements(elements, on_data_dependent.shape)

    with narrower_ranges({}):
        followed = _followed(ctx, value, number)
        if followed is None:
            return None
        return [
            None if isinstance(each, Size) and not made.isdisjoint(variables(each.expr)) else each
            for each in followed.reshape(-1).tolist()
        ]


def distance_of(ctx: Context, start: Value, limit: Value) -> Dimension | None:
    """`limit - start` of tensors of one element, where no more than sizes of inputs are in it; None elsewhere.

    A data-dependent size, which may be negative, cancels then: `Range(a, a + n)` has n elements, whatever a is.
    """
    numbers: dict[tuple[relax.Expr, int], Dimension] = {}

    def number(on_data_dependent: Value, _may_be_negative: bool) -> Array:
        assert on_data_dependent.expr is not None
        keys = [(on_data_dependent.expr, index) for index in range(math.prod(on_data_dependent.shape))]
        for key in keys:
            if key not in numbers:
                numbers[key] = any_number(f"number{len(numbers)}")
        return of_elements([numbers[key] for key in keys], on_data_dependent.shape)

    with narrower_ranges({}):
        first, last = (_followed(ctx, end, number) for end in (start, limit))
        if first is None or last is None or first.size != 1 or last.size != 1:
            return None
        distance = last.item() - first.item()
        made = {expression(each) for each in numbers.values()}
        if isinstance(distance, Size) and not made.isdisjoint(variables(distance.expr)):
            return None
    return distance if isinstance(distance, int | Size) else None


def _followed(
    ctx: Context, value: Value, on_data_dependent: Callable[[Value, bool], Array], may_be_negative: bool = False
) -> Array | None:
    """The elements of a tensor as sizes, with what `on_data_dependent` makes of the data-dependent ones, and of whether
    they may be negative.
    """
    if value.sizes is not None:
        return value.sizes
    array = ctx.constant(value)
    if array is not None or not _may_be_sizes(value) or value.expr is None:
        return array
    origin = ctx.origins.get(value.expr)
    if origin is not None:
        is_clipped = may_be_negative or origin.op_type in _LOWER_BOUNDS
        operands = [
            None if operand is None else _followed(ctx, operand, on_data_dependent, is_clipped)
            for operand in origin.operands
        ]
        given = zip(origin.operands, operands, strict=True)
        if all(array is not None or operand is None for operand, array in given):
            made = computed(origin.op_type, origin.attributes, operands)
            if made is not None:
                return made[origin.index]
    return None if value.dtype == "bool" else on_data_dependent(value, may_be_negative)


def _taken(ctx: Context, value: Value, name: str, may_be_negative: bool) -> Array:
    """The elements as data-dependent sizes."""
    assert value.expr is not None
    flat = ctx.apply(Reshape((math.prod(value.shape),)), value)
    elements = []
    for index in range(math.prod(value.shape)):
        found = _found(ctx, value, index)
        if found is None:
            element = ctx.expr(ctx.apply(Slice({0: (index, 1, 1)}), flat))
            found = (requested_coordinate if may_be_negative else requested_size)(ctx.emitter, element, name)
            ctx.emitter.frames[-1].sizes[_key(ctx, value, index)] = found
        elements.append(found)
    return of_elements(elements, value.shape)


def _found(ctx: Context, value: Value, index: int) -> Dimension | None:
    """The size that an element has been taken as; None if it has not been."""
    key = _key(ctx, value, index)
    return next((frame.sizes[key] for frame in ctx.emitter.frames if key in frame.sizes), None)


def _key(ctx: Context, value: Value, index: int) -> Any:
    return value.expr, index, tuple(ctx.emitter.chosen_by)
