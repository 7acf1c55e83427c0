"""Concatenates and stacks tensors, and splits them into parts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar

import numpy as np
from tvm import relax

from nnefc.operators.base import (
    Emitter,
    Operand,
    Operator,
    Shape,
    is_empty,
    shape_of,
)
from nnefc.operators.tensor.data_dependent_sizes import checked_shape, depends_on_data
from nnefc.operators.tensor.shape import Slice, Squeeze, Unsqueeze
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import is_known, known_less
from nnefc.symbolic.unification import unify_dims, unify_shapes

__all__ = ["Concat", "Split", "Stack", "Unstack"]


_MAX_PARTS = 1024
"""Results of one `split`: TVM takes quadratic time for them."""


@dataclass(frozen=True)
class Concat(Operator):
    """Tensors one after the other along a dimension; their other dimensions agree, which the run checks of those that
    depend on data.
    """

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
        try:
            self.shape(*map(shape_of, operands))
        except CompileError:
            operands = self._checked(ctx, operands)
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

    def _checked(self, ctx: Emitter, operands: tuple[Operand, ...]) -> tuple[Operand, ...]:
        """The operands with the sizes that do not depend on data, as far as there are such; the run checks the others.

        Those without elements tell sizes, too.
        """
        shapes = list(map(shape_of, operands))
        if len({len(shape) for shape in shapes}) != 1:
            return operands
        sizes = [
            next((size for size in each if not depends_on_data(size)), each[0]) for each in zip(*shapes, strict=True)
        ]
        wanted = [(*sizes[: self.axis], shape[self.axis], *sizes[self.axis + 1 :]) for shape in shapes]
        return tuple(checked_shape(ctx, x, shape, "Concat") for x, shape in zip(operands, wanted, strict=True))


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
        if not is_known(x[self.axis]):
            raise CompileError(f"how many tensors {list(x)} gives along axis {self.axis} must be known at compile time")
        return ((*x[: self.axis], *x[self.axis + 1 :]),) * x[self.axis]

    def lower(self, ctx: Emitter, x: Operand) -> list[Operand]:
        layers = ctx.apply(Split(self.axis, (1,) * shape_of(x)[self.axis]), x)
        return [Squeeze((self.axis,)).lower(ctx, layer) for layer in layers]
