"""Reshape, Squeeze, Unsqueeze, Slice and Pad by tensors that are known only during the run."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from tvm import relax

from nnefc.frontends.onnx.data_dependent_sizes import MAX_ELEMENTS, sizes_that_follow
from nnefc.frontends.onnx.operator import Context, Node, Value
from nnefc.frontends.onnx.operators.tensors import (
    fail,
    has_input,
    input_at,
    integers,
    normal_axes,
    optional_input,
    shape_of,
    tells_at_run_time,
)
from nnefc.operators.tensor.data_dependent_shapes import (
    PadInRun,
    ReshapeInRun,
    SliceInRun,
    requested_sizes,
    reshape_sizes,
)
from nnefc.operators.tensor.shape import Reshape
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, is_known, known_less
from nnefc.symbolic.unification import unify_dims

__all__ = ["are_axes_from_data", "in_sizes", "is_sliced_in_run", "padded_in_run", "reshaped_in_run", "sliced_in_run"]


def reshaped_in_run(ctx: Context, node: Node, x: Value, reshape: Callable[[list[Dimension]], Any]) -> Any:
    """A tensor in a shape with data-dependent elements: sizes that other tensors have, or those that 0 and -1 mean.

    `reshape` takes sizes that are known, or follow from others.

    Raises:
        CompileError: it is not known how many dimensions the result has.
    """
    wanted, keep_zero = input_at(node, 1), bool(node.attributes.get("allowzero", 0))
    _let_length_be(ctx, wanted, ctx.declared_rank(node.outputs[0]))
    known = sizes_that_follow(ctx, wanted)
    if known is None:
        return reshape(integers(ctx, node, 1, "shape") or [])
    sizes = [size for size in known if size is not None]
    if len(sizes) == len(known):
        try:
            return reshape(sizes)
        except CompileError:
            pass
    fixed = {axis: size for axis, size in enumerate(known) if size is not None and known_less(0, size)}
    return in_sizes(ctx, x, reshape_sizes(ctx.emitter, ctx.expr(wanted), shape_of(x), keep_zero), "reshape", fixed)


def in_sizes(
    ctx: Context, x: Value, target: relax.Expr, name: str, known: Mapping[int, Dimension] = MappingProxyType({})
) -> Any:
    """A tensor in data-dependent sizes of as many elements: copied, unless all sizes but one determine that one.

    Args:
        ctx: where it is computed.
        x: the tensor.
        target: an int64 tensor of the sizes.
        name: of the sizes.
        known: those that are known, or follow from others, by dimension.
    """
    sizes = requested_sizes(ctx.emitter, target, name, known)
    try:
        return ctx.apply(Reshape(sizes), x)
    except CompileError:
        return ctx.apply(ReshapeInRun(sizes), x)


def _let_length_be(ctx: Context, value: Value, length: int | None) -> None:
    """Let a vector whose length is dynamic have as many elements as the declared rank of the result asks for."""
    if length is not None and value.rank == 1 and not is_known(*shape_of(value)):
        unify_dims(shape_of(value)[0], length)


def are_axes_from_data(ctx: Context, node: Node, x: Value, sign: int) -> bool:
    """Returns whether axes are data-dependent, in a known number: what the declared rank says, if nothing else does.

    `sign` is 1 where they are of dimensions that the result has more than `x`, -1 where it has them less.
    """
    if node.attributes.get("axes") is not None or not tells_at_run_time(ctx, node, 1) or 0 in shape_of(x):
        return False
    axes, rank = input_at(node, 1), ctx.declared_rank(node.outputs[0])
    _let_length_be(ctx, axes, None if rank is None else sign * (rank - x.rank))
    length = math.prod(shape_of(axes))
    return axes.rank == 1 and is_known(length) and 0 < length <= (MAX_ELEMENTS if sign > 0 else x.rank)


def is_sliced_in_run(ctx: Context, node: Node, shape: tuple[Dimension, ...]) -> bool:
    """Returns whether axes, steps or the length of the starts are data-dependent, or the positions and a step is
    negative.
    """
    if 0 in shape or any(input_at(node, i).rank != 1 for i in range(1, 5) if has_input(node, i)):
        return False
    from_data = [tells_at_run_time(ctx, node, i) for i in range(5)]
    if from_data[3] or from_data[4]:
        return True
    if not (from_data[1] or from_data[2]):
        return False
    steps = integers(ctx, node, 4, "steps") or [1]
    return not is_known(*shape_of(input_at(node, 1))) or min(steps) < 0


def sliced_in_run(ctx: Context, node: Node, x: Value) -> Any:
    """A slice with data-dependent axes or steps, or with positions in a number that is known in the run."""
    given = [optional_input(node, i) for i in range(1, 5)]
    lengths = [shape_of(value)[0] for value in given if value is not None]
    if not all(unify_dims(lengths[0], length) for length in lengths):
        raise fail(node, f"starts, ends, axes and steps do not fit: they have {', '.join(map(str, lengths))} elements")
    axes = None if tells_at_run_time(ctx, node, 3) else integers(ctx, node, 3, "axes")
    if axes is None and given[2] is None and is_known(lengths[0]):
        axes = list(range(lengths[0]))
    normal = None if axes is None else tuple(normal_axes(node, axes, x.rank))
    return ctx.apply(SliceInRun(normal), x, *given)


def padded_in_run(ctx: Context, node: Node, x: Value, axes: list[int], mode: str, fill: Value) -> Any:
    """A tensor padded by amounts of which some are data-dependent; None where all are known, or follow from sizes.

    Raises:
        CompileError: there are not two amounts for each axis, or the known ones crop more than there is.
    """
    amounts = input_at(node, 1)
    if not tells_at_run_time(ctx, node, 1) or amounts.rank != 1:
        return None
    count = len(axes)
    _let_length_be(ctx, amounts, 2 * count)
    if shape_of(amounts) != (2 * count,):
        raise fail(node, f"'pads' has {shape_of(amounts)[0]} elements for {count} axes")
    known = sizes_that_follow(ctx, amounts) or [None] * (2 * count)
    if None not in known:
        return None
    sizes = {}
    for index, axis in enumerate(axes):
        before, after = known[index], known[index + count]
        if before is not None and after is not None:
            sizes[axis] = x.shape[axis] + before + after
            if known_less(sizes[axis], 0):
                raise fail(node, f"the padding leaves nothing of the shape {list(x.shape)}")
    return ctx.apply(PadInRun(tuple(axes), mode, tuple(sizes.items())), x, amounts, fill)
