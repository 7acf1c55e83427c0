"""Moves elements without changing them: reshape, transpose, slice, repeat, expand.

All are lowered to Relax operators that graph passes know, so that they keep blocked layouts and integer types, or
become aliases of the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from tvm import relax, tirx

from nnefc.operators.base import (
    Array,
    Emitter,
    Operand,
    Operator,
    Shape,
    check_size,
    dtype_of,
    is_array,
    is_empty,
    numpy_dtype,
    shape_of,
    zeros,
)
from nnefc.operators.math.elementwise import fitted
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.broadcasting import fits
from nnefc.symbolic.dims import is_known, known_less, may_exceed
from nnefc.symbolic.unification import unify_dims

__all__ = [
    "Copy",
    "Diagonal",
    "Expand",
    "ExpandInRun",
    "RepeatElements",
    "Reshape",
    "Roll",
    "Slice",
    "Squeeze",
    "Tile",
    "Transpose",
    "Unsqueeze",
    "distinct_results",
]


class Movement(Operator):
    """An operator whose result has elements of one tensor."""

    moves: ClassVar[bool] = True

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        """The tensor itself where nothing moves, an array if `x` is one."""
        shape = self.shape(shape_of(x))
        if is_empty(shape):
            return zeros(shape, numpy_dtype(dtype_of(x)))
        known = isinstance(x, np.ndarray) and is_known(*shape)
        return self.moved(x, shape) if known else self.built(ctx, ctx.expr(x), shape)

    def moved(self, x: Array, shape: Shape) -> Array:
        """The result, of this shape, of an array."""
        raise NotImplementedError

    def built(self, ctx: Emitter, x: relax.Expr, shape: Shape) -> relax.Expr:
        """The result, of this shape, of an expression; neither has a dimension of 0."""
        raise NotImplementedError


class _Reshaping(Movement):
    """The same elements in the same order."""

    def moved(self, x: Array, shape: Shape) -> Array:
        return x if shape == x.shape else x.reshape(shape)

    def built(self, ctx: Emitter, x: relax.Expr, shape: Shape) -> relax.Expr:
        return x if shape == shape_of(x) else relax.op.reshape(x, shape)


@dataclass(frozen=True)
class Copy(Movement):
    """The same elements in memory of their own: results of a network are not its parameters, nor each other."""

    def shape(self, x: Shape) -> Shape:
        """Return the shape of the operand."""
        return x

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        """An expression, of an array too."""
        return ctx.elements(shape_of(x), lambda tensors, index: tensors[0](*index), x, name="copy")


def distinct_results(ctx: Emitter, operands: Iterable[Operand]) -> list[relax.Var]:
    """Returns every result as a variable of its own: an input, a constant or another result is copied."""
    results: dict[relax.Var, None] = {}
    for operand in operands:
        made = isinstance(operand, relax.DataflowVar) and operand not in results
        results[operand if made else ctx.builder.emit(Copy().lower(ctx, operand))] = None
    return list(results)


@dataclass(frozen=True)
class Reshape(_Reshaping):
    """The same elements in another shape, of which one dimension may be -1: what is left for it."""

    target: Shape

    def shape(self, x: Shape) -> Shape:
        """The target, complete."""
        target = self.target
        elements, given = _without_common(x, tuple(size for size in target if size != -1))
        if target.count(-1) == 1 and given and unify_dims(elements % given, 0):
            target = tuple(elements // given if size == -1 else size for size in target)
        if any(known_less(size, 0) for size in target) or not unify_dims(*_without_common(target, x)):
            raise CompileError(f"a tensor of the shape {list(x)} cannot take the shape {list(self.target)}")
        return target


def _without_common(one: Shape, other: Shape) -> tuple[int, int]:
    """Returns how many elements two shapes have, both divided by the sizes that both have and that are not 0."""
    left, right = list(one), list(other)
    for size in one:
        if not (is_known(size) and size == 0) and size in right:
            left.remove(size)
            right.remove(size)
    return math.prod(left), math.prod(right)


@dataclass(frozen=True)
class Squeeze(_Reshaping):
    """Without the dimensions `axes`, which have the size 1."""

    axes: Shape

    def shape(self, x: Shape) -> Shape:
        """The sizes of the other dimensions."""
        if not all(unify_dims(x[axis], 1) for axis in self.axes):
            raise CompileError(f"only dimensions of size 1 can be squeezed, not {list(self.axes)} of {list(x)}")
        return tuple(size for axis, size in enumerate(x) if axis not in self.axes)


@dataclass(frozen=True)
class Unsqueeze(_Reshaping):
    """A tensor with new dimensions of size 1, which are `axes` of the result."""

    axes: Shape

    def shape(self, x: Shape) -> Shape:
        """The sizes with the new ones between them."""
        sizes = iter(x)
        return tuple(1 if axis in self.axes else next(sizes) for axis in range(len(x) + len(self.axes)))


@dataclass(frozen=True)
class Transpose(Movement):
    """The dimensions in another order: dimension `i` of the result is dimension `order[i]`."""

    order: Shape

    def shape(self, x: Shape) -> Shape:
        """The sizes in the order."""
        if sorted(self.order) != list(range(len(x))):
            raise CompileError(f"{list(self.order)} is not a permutation of the dimensions of {list(x)}")
        return tuple(x[axis] for axis in self.order)

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        """The tensor itself where the order is its own."""
        self.shape(shape_of(x))
        return x if list(self.order) == sorted(self.order) else super().lower(ctx, x)

    def moved(self, x: Array, shape: Shape) -> Array:
        return x.transpose(self.order)

    def built(self, ctx: Emitter, x: relax.Expr, shape: Shape) -> relax.Expr:
        return relax.op.permute_dims(x, list(self.order))


@dataclass(frozen=True)
class Slice(Movement):
    """Some positions of some dimensions, evenly spaced.

    Attributes:
        ranges: by dimension the first position, how many, and the step, which may be negative. All must exist.
    """

    ranges: Mapping[int, tuple[int, int, int]]

    def shape(self, x: Shape) -> Shape:
        """Return the shape with `count` elements along each axis of `ranges`.

        Raises:
            CompileError: a range exceeds its axis.
        """
        for axis, (start, count, step) in self.ranges.items():
            if is_known(start, count, step, x[axis]) and count > 0:
                last = start + (count - 1) * step
                if not (0 <= start < x[axis] and 0 <= last < x[axis]):
                    raise CompileError(
                        f"there are no positions from {start} to {last} along dimension {axis} of {list(x)}"
                    )
        return tuple(self.ranges[axis][1] if axis in self.ranges else size for axis, size in enumerate(x))

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        """The tensor itself where nothing moves, an array if `x` is one and all positions are known."""
        starts = [start for start, _, _ in self.ranges.values()]
        return super().lower(ctx, x if is_known(*starts) else ctx.expr(x))

    def moved(self, x: Array, shape: Shape) -> Array:
        index = [slice(None)] * x.ndim
        for axis, (start, count, step) in self.ranges.items():
            if (start, count, step) != (0, x.shape[axis], 1):
                end = start + count * step
                index[axis] = slice(start, None if end < 0 else end, step)
        return x if index == [slice(None)] * x.ndim else x[tuple(index)]

    def built(self, ctx: Emitter, x: relax.Expr, shape: Shape) -> relax.Expr:
        """Build the slices; one with a negative step is a forward slice that is flipped."""
        sizes, parts, reversed_ = shape_of(x), [], []
        for axis, (start, count, step) in self.ranges.items():
            if step < 0 and may_exceed(count, 1):
                reversed_.append(axis)
            first, stride = (start, step) if step > 0 else (start + (count - 1) * step, -step)
            if (first, count, stride) != (0, sizes[axis], 1):
                parts.append((axis, first, first + (count - 1) * stride + 1, stride))
        if parts:
            axes, begin, end, strides = map(list, zip(*parts, strict=True))
            exist = not is_known(*begin, *end, *sizes)  # else TVM clips, in terms that it cannot type
            x = relax.op.strided_slice(x, axes, begin, end, strides, assume_inbound=exist)
        for axis in reversed_:
            x = relax.op.flip(ctx.bound(x), axis)
        return x


@dataclass(frozen=True)
class Tile(Movement):
    """The tensor `repeats[i]` times along each dimension `i`, as a whole. `numpy.tile`."""

    repeats: Shape

    def shape(self, x: Shape) -> Shape:
        """The sizes, multiplied."""
        if len(self.repeats) != len(x):
            raise CompileError(f"{len(self.repeats)} repeats do not fit the {len(x)} dimensions of {list(x)}")
        return check_size([size * count for size, count in zip(x, self.repeats, strict=True)])

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        return super().lower(ctx, _unstored(ctx, x, self.shape(shape_of(x))))

    def moved(self, x: Array, shape: Shape) -> Array:
        return x if shape == x.shape else np.tile(x, self.repeats)

    def built(self, ctx: Emitter, x: relax.Expr, shape: Shape) -> relax.Expr:
        if shape == shape_of(x):
            return x
        if is_known(*self.repeats):
            return relax.op.tile(x, list(self.repeats))
        # Relax has no open repeats: along new dimensions, each before its own.
        own = shape_of(x)
        apart = ctx.emit(relax.op.reshape(x, [size for each in own for size in (1, each)]))
        pairs = [size for pair in zip(self.repeats, own, strict=True) for size in pair]
        return relax.op.reshape(ctx.emit(relax.op.broadcast_to(apart, pairs)), shape)


@dataclass(frozen=True)
class RepeatElements(Movement):
    """A tensor with each position of a dimension `count` times, one after the other. `numpy.repeat`."""

    count: int
    axis: int

    def shape(self, x: Shape) -> Shape:
        """The dimension, multiplied."""
        return check_size([size * self.count if axis == self.axis else size for axis, size in enumerate(x)])

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        return super().lower(ctx, _unstored(ctx, x, self.shape(shape_of(x))))

    def moved(self, x: Array, shape: Shape) -> Array:
        return x if self.count == 1 else np.repeat(x, self.count, self.axis)

    def built(self, ctx: Emitter, x: relax.Expr, shape: Shape) -> relax.Expr:
        return x if self.count == 1 else relax.op.repeat(x, self.count, self.axis)


@dataclass(frozen=True)
class Expand(Movement):
    """The tensor repeated along dimensions of size 1, and along new ones before the first, until it has a shape."""

    target: Shape

    def shape(self, x: Shape) -> Shape:
        """The target."""
        own = self.target[len(self.target) - len(x) :]
        if len(x) > len(self.target) or not all(map(fits, x, own)):
            raise CompileError(f"a tensor of the shape {list(x)} cannot be expanded to {list(self.target)}")
        return check_size(self.target)

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        return super().lower(ctx, fitted(ctx, _unstored(ctx, x, self.shape(shape_of(x))), self.target))

    def moved(self, x: Array, shape: Shape) -> Array:
        return x if shape == x.shape else np.ascontiguousarray(np.broadcast_to(x, shape))

    def built(self, ctx: Emitter, x: relax.Expr, shape: Shape) -> relax.Expr:
        return x if shape == shape_of(x) else relax.op.broadcast_to(x, shape)


@dataclass(frozen=True)
class ExpandInRun(Expand):
    """`Expand` to data-dependent sizes: the caller checks that in each run the tensor's own are these, or 1."""

    def shape(self, x: Shape) -> Shape:
        """The target."""
        return check_size(self.target)


def _unstored(ctx: Emitter, x: Operand, shape: Shape) -> Operand:
    """An expression where the result of this shape would be too large for a constant."""
    if isinstance(x, np.ndarray) and not (is_known(*shape) and is_array(shape, x.dtype, x)):
        return ctx.expr(x)
    return x


@dataclass(frozen=True)
class Roll(Movement):
    """A tensor whose elements move by `shifts[i]` positions along each dimension `i`, cyclically. `numpy.roll`."""

    shifts: Shape

    def shape(self, x: Shape) -> Shape:
        """Return the shape of the operand."""
        return x

    def moved(self, x: Array, shape: Shape) -> Array:
        return np.roll(x, self.shifts, tuple(range(x.ndim)))

    def built(self, ctx: Emitter, x: relax.Expr, shape: Shape) -> relax.Expr:
        backs = [-shift % size for shift, size in zip(self.shifts, shape, strict=True)]

        def element(tensors: tuple[tirx.Buffer, ...], index: tuple[tirx.Var, ...]) -> tirx.Expr:
            axes = zip(index, backs, shape, strict=True)
            return tensors[0](*(tirx.floormod(i + back, size) if back else i for i, back, size in axes))

        return ctx.elements(shape, element, x, name="roll") if any(backs) else x


@dataclass(frozen=True)
class Diagonal(Movement):
    """The elements of a matrix whose column is `offset` more than their row."""

    offset: int = 0

    def shape(self, x: Shape) -> Shape:
        """Returns how many there are."""
        rows, columns = x
        count = min(rows, columns - self.offset) if self.offset >= 0 else min(rows + self.offset, columns)
        if count < 1:
            raise CompileError(f"there is no diagonal {self.offset} in a matrix {list(x)}")
        return (count,)

    def moved(self, x: Array, shape: Shape) -> Array:
        return np.diagonal(x, self.offset)

    def built(self, ctx: Emitter, x: relax.Expr, shape: Shape) -> relax.Expr:
        """Every so many elements of the matrix, row after row."""
        rows, columns = shape_of(x)
        first = max(0, self.offset) + max(0, -self.offset) * columns
        flat = ctx.reshaped(x, (rows * columns,))
        return Slice({0: (first, shape[0], columns + 1)}).lower(ctx, flat)
