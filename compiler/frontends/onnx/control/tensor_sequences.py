"""Represents a sequence of tensors of one shape as one tensor with the length as its first dimension."""

from __future__ import annotations

import math

from nnefc.frontends.onnx.operator import Context
from nnefc.frontends.onnx.values import Stacked, TensorSequence, Value
from nnefc.operators.tensor.concatenation import Concat, Stack
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.shape import Reshape, Transpose, Unsqueeze
from nnefc.operators.tensor.tensor_sequences import Erase, Insert
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, is_known
from nnefc.symbolic.unification import unify_shapes

__all__ = ["at_position", "concatenated", "inserted", "split", "stacked", "without"]


def stacked(ctx: Context, sequence: TensorSequence | Stacked, like: Value | None = None) -> Stacked:
    """A sequence as one tensor.

    Args:
        like: has the shape and the type of elements, of a sequence that may have none.

    Raises:
        CompileError: the elements have different shapes, or are no tensors; it has none, and nothing says their shape.
    """
    if isinstance(sequence, Stacked):
        return sequence
    if not sequence.elements:
        if like is None:
            raise CompileError("nothing says what shape the tensors of an empty sequence have")
        return Stacked(Value.empty((0, *like.shape), like.dtype))
    elements = [element for element in sequence.elements if isinstance(element, Value)]
    if len(elements) < len(sequence.elements):
        raise CompileError("a sequence whose length is known only at run time cannot hold sequences")
    for element in elements[1:]:
        _check_alike(elements[0].shape, element.shape)
    return Stacked(ctx.apply(Stack(0), *elements))


def at_position(ctx: Context, sequence: Stacked, position: Value) -> Value:
    """Return the element at `position`; a run with a position that is out of range fails."""
    made: Value = ctx.apply(Gather(0), sequence.tensor, ctx.apply(Reshape(()), position))
    return made


def inserted(ctx: Context, sequence: Stacked, element: Value, position: Value | None) -> Stacked:
    """The sequence with an element more, at the end or before a position.

    Raises:
        CompileError: the element has another type or shape than those that are there.
    """
    if element.dtype != sequence.dtype:
        raise CompileError(f"the sequence is of {sequence.dtype}, the tensor to insert of {element.dtype}")
    more = ctx.apply(Unsqueeze((0,)), element)
    if isinstance(sequence.length, int) and sequence.length == 0:
        return Stacked(more)
    _check_alike(sequence.tensor.shape[1:], element.shape)
    if position is None:
        return Stacked(ctx.apply(Concat(0), sequence.tensor, more))

    return Stacked(ctx.apply(Insert(), sequence.tensor, element, position))


def _check_alike(shape: tuple[Dimension, ...], other: tuple[Dimension, ...]) -> None:
    if not unify_shapes(shape, other):
        raise CompileError(
            "a sequence whose length, or a position in it, is known only at run time holds tensors of one shape, not "
            f"{list(shape)} and {list(other)}",
            hint="let the model pad its tensors to one shape, or make the positions constants",
        )


def without(ctx: Context, sequence: Stacked, position: Value) -> Stacked:
    """The sequence without the element at a position."""
    return Stacked(ctx.apply(Erase(), sequence.tensor, position))


def concatenated(ctx: Context, sequence: Stacked, axis: int, new: bool) -> Value:
    """The elements along a dimension of theirs, or along a `new` one."""
    rank = sequence.tensor.rank
    order = [*range(1, axis + 1), 0, *range(axis + 1, rank)]
    made: Value = ctx.apply(Transpose(tuple(order)), sequence.tensor)
    if new:
        return made
    shape = made.shape
    joined: Value = ctx.apply(Reshape((*shape[:axis], math.prod(shape[axis : axis + 2]), *shape[axis + 2 :])), made)
    return joined


def split(ctx: Context, x: Value, axis: int, size: int, keep: bool) -> Stacked:
    """The parts of so many elements along a dimension; with a size of 1 and without `keep`, they lose the dimension.

    Raises:
        CompileError: the last part might be smaller.
    """
    whole = x.shape[axis]
    if not is_known(whole % size) or whole % size != 0:
        raise CompileError(
            f"parts of {size} elements of {whole} may not all have the same size, and how many there are is known only "
            "at run time",
            hint=f"give sizes that are multiples: --shape NAME=MIN..MAX:{size}",
        )
    count, part = whole // size, [size] if keep or size > 1 else []
    apart = ctx.apply(Reshape((*x.shape[:axis], count, *part, *x.shape[axis + 1 :])), x)
    order = [axis, *(other for other in range(apart.rank) if other != axis)]
    return Stacked(ctx.apply(Transpose(tuple(order)), apart))
