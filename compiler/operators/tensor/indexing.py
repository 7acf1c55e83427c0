"""Gathers elements at indices that come from data, and converts indices (one-hot and others)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

import numpy as np
from tvm import relax, te, tirx

from nnefc.operators.base import (
    Array,
    Emitter,
    Operand,
    Operator,
    Shape,
    check_size,
    dtype_of,
    is_empty,
    numpy_dtype,
    rank_of,
    shape_of,
    zeros,
)
from nnefc.operators.statements import T, checking, report
from nnefc.operators.tensor.data_dependent_sizes import not_empty
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, bounds, expression, is_known, may_exceed
from nnefc.symbolic.unification import covers, unify_dims, unify_shapes

__all__ = [
    "AdvancedIndex",
    "Gather",
    "GatherElements",
    "GatherND",
    "OneHot",
    "Outside",
    "ReverseSequence",
    "from_the_front",
]

Outside: TypeAlias = Literal["error", "clip", "wrap"]
"""How indices out of range are treated. "error": negative ones count from the end, others fail the run. "clip": each
becomes the nearest valid one. "wrap": indices are taken modulo the size."""


def from_the_front(indices: Array, size: int, outside: Outside = "error") -> Array:
    """Indices known at compile time as positions in a dimension of this size; of the same type if that has room.

    Where the size is open, those that count from its end, or are out of range, stay as they are.

    Raises:
        CompileError: "error", and one is out of range; or there are no positions.
    """
    _check_source(size, indices.shape)
    wide = indices.astype(np.int64)
    if outside == "error":
        for index in (int(wide.min()), int(wide.max())) if wide.size else ():
            if not covers(size, -index if index < 0 else index + 1):
                raise CompileError(f"the index {index} is out of the range [{-size},{size - 1}]")
        if is_known(size):
            wide = np.where(wide < 0, wide + size, wide)
    elif is_known(size):
        wide = np.clip(wide, 0, size - 1) if outside == "clip" else np.mod(wide, size)
    return wide if may_exceed(size - 1, np.iinfo(indices.dtype).max) else wide.astype(indices.dtype)


def _positions(ctx: Emitter, indices: Array, sizes: Shape, operator: str) -> Operand:
    """Indices known at compile time as positions, computed if they count from the end of a dynamic size; `sizes` cycle.

    They are wrapped by :func:`from_the_front` where that knows the size, and in range unless it is data-dependent: the
    run looks then, in `operator`'s name.
    """
    columns = indices.reshape(-1, len(sizes)).T
    if any(may_exceed(max(int(c.max()) + 1, -int(c.min())), n) for c, n in zip(columns, sizes, strict=True) if c.size):
        return _checked(ctx, indices, sizes, operator)
    if not (indices < 0).any():
        return indices

    def element(tensors: tuple[te.Tensor, ...], position: tuple[tirx.Var, ...]) -> tirx.Expr:
        index, size = tensors[0](*position), expression(sizes[-1])
        for part, other in enumerate(sizes[:-1]):
            size = tirx.Select(position[-1] == part, expression(other), size)
        return tirx.Select(index < _like(index, 0), index + size.astype(str(index.ty)), index)

    return ctx.emit(ctx.elements(indices.shape, element, indices, name="positions"))


def _check_source(size: int, indices: Shape) -> None:
    if is_empty((size,)) and not is_empty(indices):
        raise CompileError("there is nothing to take from a dimension of size 0")


def tuples_from_the_front(indices: Array, sizes: Shape) -> Array:
    """The same, of tuples of indices along the last axis: one index for each of the sizes."""
    return np.stack([from_the_front(indices[..., i], size) for i, size in enumerate(sizes)], axis=-1)


def _wrapped(index: tirx.Expr, size: int) -> tirx.Expr:
    """An index that may count from the end as a position; out of range it is the nearest, so that nothing is harmed."""
    zero, last = _like(index, 0), _like(index, size - 1)
    return tirx.max(tirx.min(tirx.Select(index < zero, index + _like(index, size), index), last), zero)


def _like(x: tirx.Expr, value: Dimension) -> tirx.Expr:
    return _of_type(value, str(x.ty))


def _of_type(value: Dimension, dtype: str) -> tirx.Expr:
    return tirx.const(value, dtype) if is_known(value) else expression(value).astype(dtype)


def _checked(ctx: Emitter, indices: Operand, sizes: Shape, operator: str) -> Operand:
    """Indices known at run time as positions; `sizes` cycle. Those out of range fail the run, in `operator`'s name."""
    count, dtype = math.prod(shape_of(indices)), dtype_of(indices)
    message = f"{operator}: an index is out of range"

    def write(needed: list[Any], source: Any, out: Any) -> None:
        with T.serial(0, count // len(sizes)) as i:
            for part, size in enumerate(sizes):
                position = i * len(sizes) + part
                index = source[position]
                with T.If(tirx.any(index < _of_type(-size, dtype), index >= _of_type(size, dtype))), T.Then():
                    report(message, needed)
                out[position] = _wrapped(index, size)

    return checking(ctx, write, [indices], [(shape_of(indices), dtype)], "check_indices")[0]


@dataclass(frozen=True)
class Gather(Operator):
    """The positions of a dimension that `indices` says. `numpy.take`.

    Attributes:
        axis: the dimension; those of the indices replace it.
        outside: what indices out of range do.
    """

    axis: int = 0
    outside: Outside = "error"
    moves: ClassVar[bool] = True

    def shape(self, x: Shape, indices: Shape) -> Shape:
        """Return the shape of `x` with the axis replaced by the dimensions of the indices."""
        _check_source(x[self.axis], indices)
        return check_size((*x[: self.axis], *indices, *x[self.axis + 1 :]))

    def lower(self, ctx: Emitter, x: Operand, indices: Operand) -> Operand:
        shape, size = self.shape(shape_of(x), shape_of(indices)), shape_of(x)[self.axis]
        mode = "clip"  # nothing is out of range, but of the mode "fast" TVM warns
        if isinstance(indices, np.ndarray):
            indices = np.asarray(from_the_front(indices, size, self.outside))
            if isinstance(x, np.ndarray):
                return np.asarray(np.take(x, indices, self.axis))
        if is_empty(shape):
            return zeros(shape, numpy_dtype(dtype_of(x)))
        not_empty(ctx, size, math.prod(shape_of(indices)), "Gather")
        if self.outside == "error":
            check = _positions if isinstance(indices, np.ndarray) else _checked
            indices = check(ctx, indices, (size,), "Gather")
        elif not (isinstance(indices, np.ndarray) and is_known(size)):
            mode = self.outside
        return relax.op.take(ctx.expr(x), ctx.expr(indices), self.axis, mode)


@dataclass(frozen=True)
class GatherElements(Operator):
    """`result[i][j] = x[indices[i][j]][j]`, for the first of two dimensions. ONNX `GatherElements`, `torch.gather`.

    Attributes:
        axis: the dimension that is indexed.
        outside: what indices out of range do; they do not wrap.
    """

    axis: int
    outside: Outside = "error"
    moves: ClassVar[bool] = True

    def shape(self, x: Shape, indices: Shape) -> Shape:
        """Return the shape of the indices."""
        axes = enumerate(zip(x, indices, strict=False))
        _check_source(x[self.axis] if x else 0, indices)
        if len(x) != len(indices) or not all(covers(size, count) for axis, (size, count) in axes if axis != self.axis):
            raise CompileError(f"the indices {list(indices)} do not fit the input {list(x)}")
        return indices

    def lower(self, ctx: Emitter, x: Operand, indices: Operand) -> Operand:
        shape, size = self.shape(shape_of(x), shape_of(indices)), shape_of(x)[self.axis]
        clips = self.outside == "clip" and not (isinstance(indices, np.ndarray) and is_known(size))
        if isinstance(indices, np.ndarray):
            indices = np.asarray(from_the_front(indices, size, self.outside))
            if isinstance(x, np.ndarray):
                index = list(np.indices(shape, sparse=True))
                index[self.axis] = indices
                return np.asarray(x[tuple(index)])
        if is_empty(shape):
            return zeros(shape, numpy_dtype(dtype_of(x)))
        not_empty(ctx, size, math.prod(shape), "GatherElements")
        if isinstance(indices, np.ndarray):
            indices = indices if clips else _positions(ctx, indices, (size,), "GatherElements")
        elif not clips:
            indices = _checked(ctx, indices, (size,), "GatherElements")

        def element(tensors: tuple[te.Tensor, ...], position: tuple[tirx.Var, ...]) -> tirx.Expr:
            index = tensors[1](*position)
            if clips:
                index = tirx.max(tirx.min(index, _like(index, size - 1)), _like(index, 0))
            return tensors[0](*position[: self.axis], index, *position[self.axis + 1 :])

        return ctx.elements(shape, element, x, indices, name="gather_elements")


def tuple_length(size: Dimension, maximum: int, wanted: int | None = None) -> int:
    """The number of indices in a tuple: the size of the last dimension of the indices of `GatherND` and `ScatterND`.

    Args:
        size: of that dimension.
        maximum: the number of dimensions that can be indexed.
        wanted: the length that other operands or the rank of the result ask for, where they are known.

    Raises:
        CompileError: no such length fits, or several do: the rank of the result depends on it.
        Refined: one length fits, and dynamic dimensions that are refined give it.
    """
    minimum, greatest = (max(1, bounds(size)[0]), min(maximum, bounds(size)[1])) if wanted is None else (wanted, wanted)
    if not 1 <= minimum <= greatest <= maximum:
        raise CompileError(f"indices of {size} elements do not fit {maximum} dimensions")
    if minimum < greatest:
        raise CompileError(
            f"indices of {size} elements select among {maximum} dimensions: how many elements decides the rank "
            f"of the result, "
            "and it is not known at compile time",
            hint=f"fix it: --shape {size}={greatest}, or another number from {minimum} to {greatest}",
        )
    if not unify_dims(size, minimum):
        raise CompileError(f"indices of {size} elements are not the {minimum} that the result's rank asks for")
    return minimum


@dataclass(frozen=True)
class GatherND(Operator):
    """The elements, or slices, at tuples of indices: `result[i] = x[indices[i, 0], indices[i, 1], …]`. ONNX `GatherND`.

    Attributes:
        batch: how many leading dimensions both tensors share.
        depth: how many dimensions a tuple indexes, where that is known besides from the last size of the indices.
    """

    batch: int = 0
    depth: int | None = None
    moves: ClassVar[bool] = True

    def shape(self, x: Shape, indices: Shape) -> Shape:
        """The dimensions of the indices but the last, then those that they do not index."""
        batch = self.batch
        if not indices or not 0 <= batch < min(len(x), len(indices)) or not unify_shapes(x[:batch], indices[:batch]):
            raise CompileError(f"the indices {list(indices)} and the input {list(x)} do not share {batch} dimensions")
        depth = tuple_length(indices[-1], len(x) - batch, self.depth)
        return check_size((*indices[:-1], *x[batch + depth :]))

    def lower(self, ctx: Emitter, x: Operand, indices: Operand) -> Operand:
        shape, batch, outer = self.shape(shape_of(x), shape_of(indices)), self.batch, rank_of(indices) - 1
        depth = shape_of(indices)[-1]
        sizes = shape_of(x)[batch : batch + depth]
        if isinstance(indices, np.ndarray):
            indices = tuples_from_the_front(indices, sizes)
        if is_empty(shape):
            return zeros(shape, numpy_dtype(dtype_of(x)))
        for size in sizes:
            not_empty(ctx, size, math.prod(shape_of(indices)), "GatherND")
        check = _positions if isinstance(indices, np.ndarray) else _checked
        indices = check(ctx, indices, sizes, "GatherND")

        def element(tensors: tuple[te.Tensor, ...], position: tuple[tirx.Var, ...]) -> tirx.Expr:
            index = [tensors[1](*position[:outer], part) for part in range(depth)]
            return tensors[0](*position[:batch], *index, *position[outer:])

        return ctx.elements(shape, element, x, indices, name="gather_nd")


@dataclass(frozen=True)
class AdvancedIndex(Operator):
    """`x[a, :, b, …]` of NumPy and PyTorch, with tensors of integers that broadcast together.

    What they select replaces the first one's dimension if the dimensions stand side by side, else it comes
    first. Negative indices count from the end; one that is out of range reads the nearest position.

    Attributes:
        axes: the dimensions that are indexed, in ascending order, one for each tensor of indices.
    """

    axes: Shape
    moves: ClassVar[bool] = True

    def shape(self, x: Shape, *indices: Shape) -> Shape:
        """The dimensions that are not indexed, with the common ones of the indices between or before them."""
        try:
            common = np.broadcast_shapes(*indices)
        except ValueError:
            raise CompileError(f"the indices {', '.join(str(list(i)) for i in indices)} do not broadcast") from None
        for axis in self.axes:
            _check_source(x[axis], common)
        kept = [size for axis, size in enumerate(x) if axis not in self.axes]
        return check_size((*kept[: self._first], *common, *kept[self._first :]))

    @property
    def _first(self) -> int:
        return self.axes[0] if self.axes[-1] - self.axes[0] == len(self.axes) - 1 else 0

    def lower(self, ctx: Emitter, x: Operand, *indices: Operand) -> Operand:
        sizes, first = shape_of(x), self._first
        shape = self.shape(sizes, *map(shape_of, indices))
        if is_empty(shape):
            return zeros(shape, numpy_dtype(dtype_of(x)))
        end = first + max(map(rank_of, indices))
        for axis in self.axes:
            not_empty(ctx, sizes[axis], math.prod(shape), "index")

        def element(tensors: tuple[te.Tensor, ...], position: tuple[tirx.Var, ...]) -> tirx.Expr:
            tail, own = iter((*position[:first], *position[end:])), position[first:end]
            chosen = {}
            for axis, index, tensor in zip(self.axes, indices, tensors[1:], strict=True):
                dims = zip(shape_of(index), own[len(own) - rank_of(index) :], strict=True)
                chosen[axis] = _wrapped(tensor(*(0 if n == 1 else i for n, i in dims)).astype("int64"), sizes[axis])
            return tensors[0](*(chosen[axis] if axis in chosen else next(tail) for axis in range(len(sizes))))

        return ctx.elements(shape, element, x, *indices, name="index")


@dataclass(frozen=True)
class OneHot(Operator):
    """`values[1]` at the index along a new dimension, `values[0]` elsewhere. Negative indices count from the end; reals
    are cut to integers.

    Attributes:
        depth: the size of the new dimension; an index out of its range has no hot position.
        axis: the new dimension in the result.
    """

    depth: Dimension
    axis: int
    moves: ClassVar[bool] = True

    def shape(self, values: Shape, indices: Shape) -> Shape:
        """Return the shape of the indices with the new dimension."""
        if not unify_shapes(values, (2,)):
            raise CompileError(f"the values {list(values)} are not two: that of other positions and the hot one")
        return check_size((*indices[: self.axis], self.depth, *indices[self.axis :]))

    def lower(self, ctx: Emitter, values: Operand, indices: Operand) -> Operand:
        shape = self.shape(shape_of(values), shape_of(indices))
        if is_empty(shape):
            return zeros(shape, numpy_dtype(dtype_of(values)))

        def element(tensors: tuple[te.Tensor, ...], position: tuple[tirx.Var, ...]) -> tirx.Expr:
            index = tensors[1](*position[: self.axis], *position[self.axis + 1 :]).astype("int64")
            front = tirx.Select(index < 0, index + _like(index, self.depth), index)
            return tirx.Select(front == position[self.axis].astype("int64"), tensors[0](1), tensors[0](0))

        return ctx.elements(shape, element, values, indices, name="one_hot")


@dataclass(frozen=True)
class ReverseSequence(Operator):
    """The first `lengths[b]` positions in time of each batch element `b` in reverse, the others as they are.

    Attributes:
        time, batch: the dimensions of time and of batch elements.
    """

    time: int
    batch: int
    moves: ClassVar[bool] = True

    def shape(self, x: Shape, lengths: Shape) -> Shape:
        """Return the shape of the first operand."""
        if len(x) < 2 or not unify_shapes(lengths, (x[self.batch],)):
            raise CompileError(f"{list(lengths)} lengths do not fit the sequences {list(x)}")
        return x

    def lower(self, ctx: Emitter, x: Operand, lengths: Operand) -> Operand:
        shape = self.shape(shape_of(x), shape_of(lengths))
        if is_empty(shape):
            return x

        def element(tensors: tuple[te.Tensor, ...], position: tuple[tirx.Var, ...]) -> tirx.Expr:
            length, t = tensors[1](position[self.batch]), position[self.time].astype("int64")
            source = tirx.Select(t < length, length - 1 - t, t)
            source = tirx.max(tirx.min(source, _like(source, shape[self.time] - 1)), _like(source, 0))
            return tensors[0](*position[: self.time], source, *position[self.time + 1 :])

        return ctx.elements(shape, element, x, lengths, name="reverse_sequence")
