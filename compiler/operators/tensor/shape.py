"""Moves elements without changing them: reshape, transpose, slice, concatenate, repeat.

All are lowered to Relax operators that graph passes know, so that they keep blocked layouts and integer types, or
become aliases of the same memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
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
from nnefc.symbolic.unification import unify_dims, unify_shapes

__all__ = [
    "ChannelShuffle",
    "Concat",
    "Copy",
    "DepthToSpace",
    "Diagonal",
    "Expand",
    "ExpandInRun",
    "RepeatElements",
    "Reshape",
    "Roll",
    "Slice",
    "SpaceToDepth",
    "Split",
    "Squeeze",
    "Stack",
    "Tile",
    "Transpose",
    "Unsqueeze",
    "Unstack",
    "distinct_results",
]

_MAX_PARTS = 1024
"""Results of one `split`: TVM takes quadratic time for them."""


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
    """Returns how many elements two shapes have, both divided by the dynamic sizes that both have."""
    left, right = list(one), list(other)
    for size in one:
        if not is_known(size) and size in right:
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


class _Shuffle(Operator):
    """A tensor seen in `parts`, these in another `order`, seen in the shape of the result."""

    moves: ClassVar[bool] = True

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        parts, order = self.parts(shape_of(x))
        ordered = ctx.apply(Transpose(order), ctx.reshaped(x, parts))
        return Reshape(self.shape(shape_of(x))).lower(ctx, ordered)

    def parts(self, x: Shape) -> tuple[Shape, Shape]:
        """The parts of the dimensions of a tensor, and the order of these."""
        raise NotImplementedError


@dataclass(frozen=True)
class DepthToSpace(_Shuffle):
    """`block²` channels become blocks of `block × block` pixels of one; of `[…, C, H, W]`.

    Attributes:
        block: the width and height of blocks.
        depth_first: whether the channels of one pixel lie side by side (ONNX `DCR`), or those of one block do (ONNX
            `CRD`, `torch.nn.PixelShuffle`: Shi et al., 2016).
    """

    block: int
    depth_first: bool = False

    def shape(self, x: Shape) -> Shape:
        """Fewer channels, more pixels."""
        *batch, c, h, w = self._checked(x)
        return (*batch, c // self.block**2, h * self.block, w * self.block)

    def parts(self, x: Shape) -> tuple[Shape, Shape]:
        *batch, c, h, w = self._checked(x)
        size, b = self.block, len(batch)
        kept = tuple(range(b))
        if self.depth_first:
            return (*batch, size, size, c // size**2, h, w), (*kept, b + 2, b + 3, b, b + 4, b + 1)
        return (*batch, c // size**2, size, size, h, w), (*kept, b, b + 3, b + 1, b + 4, b + 2)

    def _checked(self, x: Shape) -> Shape:
        if len(x) < 3 or self.block < 1 or not unify_dims(x[-3] % self.block**2, 0):
            raise CompileError(f"blocks of {self.block} do not fit the channels of {list(x)}")
        return x


@dataclass(frozen=True)
class SpaceToDepth(_Shuffle):
    """Blocks of `block × block` pixels become channels: the reverse of `DepthToSpace`, with the same attributes."""

    block: int
    depth_first: bool = False

    def shape(self, x: Shape) -> Shape:
        """More channels, fewer pixels."""
        *batch, c, h, w = self._checked(x)
        return (*batch, c * self.block**2, h // self.block, w // self.block)

    def parts(self, x: Shape) -> tuple[Shape, Shape]:
        *batch, c, h, w = self._checked(x)
        size, b = self.block, len(batch)
        order = (b + 2, b + 4, b, b + 1, b + 3) if self.depth_first else (b, b + 2, b + 4, b + 1, b + 3)
        return (*batch, c, h // size, size, w // size, size), (*range(b), *order)

    def _checked(self, x: Shape) -> Shape:
        if len(x) < 3 or self.block < 1 or not all(unify_dims(size % self.block, 0) for size in x[-2:]):
            raise CompileError(f"blocks of {self.block} do not fit the pixels of {list(x)}")
        return x


@dataclass(frozen=True)
class ChannelShuffle(_Shuffle):
    """The channels of `groups` groups in turns (Zhang et al., "ShuffleNet", 2017), of `[N, C, *spatial]`."""

    groups: int

    def shape(self, x: Shape) -> Shape:
        """Return the shape of the operand."""
        return x

    def parts(self, x: Shape) -> tuple[Shape, Shape]:
        if len(x) < 3 or self.groups < 1 or not unify_dims(x[1] % self.groups, 0):
            raise CompileError(f"the channels of {list(x)} cannot be shuffled in {self.groups} groups")
        n, c, *tail = x
        return (n, self.groups, c // self.groups, *tail), (0, 2, 1, *range(3, len(x) + 1))


@dataclass(frozen=True)
class Concat(Operator):
    """Tensors one after the other along a dimension; their other dimensions agree."""

    axis: int
    moves: ClassVar[bool] = True

    def shape(self, *shapes: Shape) -> Shape:
        """The sum of the sizes along the dimension."""
        first = shapes[0]
        tail = (*first[: self.axis], *first[self.axis + 1 :])
        if not all(unify_shapes(tail, (*shape[: self.axis], *shape[self.axis + 1 :])) for shape in shapes):
            listed = ", ".join(str(list(shape)) for shape in dict.fromkeys(shapes))
            raise CompileError(f"the shapes {listed} must agree in all dimensions but {self.axis}")
        return (*first[: self.axis], sum(shape[self.axis] for shape in shapes), *first[self.axis + 1 :])

    def lower(self, ctx: Emitter, *operands: Operand) -> Operand:
        self.shape(*map(shape_of, operands))
        arrays = [operand for operand in operands if isinstance(operand, np.ndarray)]
        if len(arrays) == len(operands) > 1:
            return np.concatenate(arrays, self.axis)
        filled = [operand for operand in operands if not is_empty(shape_of(operand)[self.axis : self.axis + 1])]
        if len(filled) < 2:
            return (filled or operands)[0]
        given = [ctx.expr(operand) for operand in filled]
        joined = ctx.builder.normalize(relax.op.concat(given, self.axis))
        if joined.ty.shape is not None:
            return joined
        # TVM does not know the ranges of dynamic sizes, and so not that these are equal.
        first = shape_of(given[0])
        wanted = [(*first[: self.axis], shape_of(x)[self.axis], *first[self.axis + 1 :]) for x in given]
        same = [ctx.emit(relax.op.reshape(x, shape)) for x, shape in zip(given, wanted, strict=True)]
        return relax.op.concat(same, self.axis)


@dataclass(frozen=True)
class Stack(Operator):
    """Tensors of one shape along a new dimension."""

    axis: int
    moves: ClassVar[bool] = True

    def shape(self, *shapes: Shape) -> Shape:
        """Return the shape with a new dimension whose size is the number of tensors."""
        if not all(unify_shapes(shapes[0], shape) for shape in shapes):
            listed = ", ".join(str(list(shape)) for shape in dict.fromkeys(shapes))
            raise CompileError(f"tensors of different shapes cannot be stacked: {listed}")
        return (*shapes[0][: self.axis], len(shapes), *shapes[0][self.axis :])

    def lower(self, ctx: Emitter, *operands: Operand) -> Operand:
        self.shape(*map(shape_of, operands))
        return Concat(self.axis).lower(ctx, *(ctx.apply(Unsqueeze((self.axis,)), operand) for operand in operands))


@dataclass(frozen=True)
class Split(Operator):
    """Parts of these sizes along a dimension."""

    axis: int
    sizes: Shape
    moves: ClassVar[bool] = True

    def shape(self, x: Shape) -> tuple[Shape, ...]:
        """Return the shapes of the parts."""
        if any(known_less(size, 0) for size in self.sizes) or not unify_dims(sum(self.sizes), x[self.axis]):
            raise CompileError(
                f"{list(x)} cannot be split into parts of {_listed(self.sizes)} along dimension {self.axis}"
            )
        return tuple((*x[: self.axis], size, *x[self.axis + 1 :]) for size in self.sizes)

    def lower(self, ctx: Emitter, x: Operand) -> list[Operand]:
        self.shape(shape_of(x))
        starts = [*accumulate(self.sizes, initial=0)][:-1]
        few = 1 < len(self.sizes) <= _MAX_PARTS and not is_empty(self.sizes) and is_known(*self.sizes)
        if few and not isinstance(x, np.ndarray):
            return ctx.parts(relax.op.split(ctx.expr(x), starts[1:], self.axis))
        ranges = [(start, size, 1) for start, size in zip(starts, self.sizes, strict=True)]
        return [Slice({self.axis: range_}).lower(ctx, x) for range_ in ranges]


def _listed(sizes: Sequence[int]) -> str:
    return str(list(sizes)) if len(sizes) <= 20 else f"[{', '.join(map(str, sizes[:20]))}, …]"


@dataclass(frozen=True)
class Unstack(Operator):
    """The tensor at each position of a dimension."""

    axis: int
    moves: ClassVar[bool] = True

    def shape(self, x: Shape) -> tuple[Shape, ...]:
        """Without the dimension."""
        return ((*x[: self.axis], *x[self.axis + 1 :]),) * x[self.axis]

    def lower(self, ctx: Emitter, x: Operand) -> list[Operand]:
        layers = ctx.apply(Split(self.axis, (1,) * shape_of(x)[self.axis]), x)
        return [Squeeze((self.axis,)).lower(ctx, layer) for layer in layers]
