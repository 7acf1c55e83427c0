"""Scatters elements to indices that come from data; several updates of one element are combined, or the last one stays.

A scatter copies the data, then writes the updates in order. Slices along the dimension are independent of each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import tvm
from tvm import relax, te, tirx

from nnefc.operators.base import Emitter, Operand, Operator, Shape, dtype_of, is_empty, shape_of
from nnefc.operators.math.functions import FUNCTIONS
from nnefc.operators.statements import T, checking, columns, each, report
from nnefc.operators.tensor.indexing import from_the_front, tuples_from_the_front
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import is_known
from nnefc.symbolic.unification import covers, unify_dims, unify_shapes

__all__ = ["ScatterElements", "ScatterND", "TensorScatter"]


def _sum(old: Any, new: Any) -> Any:
    return tirx.Or(old, new) if _is_bool(old) else old + new


def _product(old: Any, new: Any) -> Any:
    return tirx.And(old, new) if _is_bool(old) else old * new


def _is_bool(x: Any) -> bool:
    return str(x.ty) == "bool"


_COMBINE: Mapping[str, Callable[[Any, Any], Any]] = {
    "none": lambda _old, new: new,
    "add": _sum,
    "mul": _product,
    "max": FUNCTIONS["maximum"].scalar,
    "min": FUNCTIONS["minimum"].scalar,
}


class _Scatter(Operator):
    """The base of scatters."""

    moves: ClassVar[bool] = True
    reduction: str

    def shape(self, data: Shape, indices: Shape, updates: Shape) -> Shape:
        """Return the shape of the data."""
        if self.reduction not in _COMBINE:
            raise CompileError(f"the reduction '{self.reduction}' is not one of {', '.join(_COMBINE)}")
        self.check(data, indices, updates)
        return data

    def check(self, data: Shape, indices: Shape, updates: Shape) -> None:
        """Refuse shapes that do not fit each other."""
        raise NotImplementedError

    def store(self, out: Any, position: Any, update: Any, inside: Sequence[Any], needed: Sequence[Any]) -> None:
        """Combine what is at a position with an update if that is inside; else a run fails that needs the result."""
        value = _COMBINE[self.reduction](out[position], update)
        if not inside:
            out[position] = value
            return
        with T.If(tirx.all(*inside)):
            with T.Then():
                out[position] = value
            with T.Else():
                report(f"{type(self).__name__}: an index is out of range", needed)


@dataclass(frozen=True)
class ScatterElements(_Scatter):
    """`result[indices[i][j]][j] = updates[i][j]`, for the first of two dimensions. ONNX `ScatterElements`.

    Negative indices count from the end; one that is out of range fails the run.

    Attributes:
        axis: the dimension that is indexed.
        reduction: "none" writes; "add", "mul", "max" and "min" combine with what is there.
    """

    axis: int
    reduction: str = "none"

    def check(self, data: Shape, indices: Shape, updates: Shape) -> None:
        if not data or len(indices) != len(data) or not unify_shapes(updates, indices):
            raise CompileError(
                f"the indices {list(indices)} and the updates {list(updates)} must have one shape, with the rank of "
                f"the data {list(data)}"
            )
        sizes = enumerate(zip(indices, data, strict=True))
        if not all(covers(size, count) for axis, (count, size) in sizes if axis != self.axis):
            raise CompileError(f"the indices {list(indices)} reach beyond the data {list(data)}")

    def lower(self, ctx: Emitter, data: Operand, indices: Operand, updates: Operand) -> Operand:
        positions, axis = shape_of(indices), self.axis
        shape = self.shape(shape_of(data), positions, shape_of(updates))
        size, constant = shape[axis], isinstance(indices, np.ndarray)
        if isinstance(indices, np.ndarray):
            indices = from_the_front(indices, size)
        if is_empty(positions) or is_empty(shape):
            return data
        count, stride, step = positions[axis], math.prod(shape[axis + 1 :]), math.prod(positions[axis + 1 :])
        first = _first_column(shape, positions, axis)
        width = math.prod(positions[first:])
        lines = math.prod(positions[:first]) // count
        found, strides = _spread(ctx, indices)

        def write(needed: list[Any], data: Any, indices: Any, updates: Any, out: Any) -> None:
            _copy(data, out, math.prod(shape))
            with each(lines, lines * count * width) as line:
                position = _positions(line, positions[:first], axis)
                source, target = _flat(position, positions), _flat(position, shape)
                with T.serial(0, count) as k, columns(width) as j:
                    row = [*position[:axis], k, *position[axis + 1 :], *_digits(j, positions[first:])]
                    index = indices[sum(p * s for p, s in zip(row, strides, strict=True))]
                    if not is_known(size):
                        index = index.astype("int64")
                    front = tirx.Select(index < 0, index + size, index)
                    inside = [] if constant else [front >= 0, front < size]
                    self.store(out, target + front * stride + j, updates[source + k * step + j], inside, needed)

        return checking(ctx, write, [data, found, updates], [(shape, dtype_of(data))], "scatter")[0]


@dataclass(frozen=True)
class ScatterND(_Scatter):
    """The elements, or slices, at tuples of indices are written: `result[indices[i, 0], indices[i, 1], …] =
    updates[i]`.

    ONNX `ScatterND`. Negative indices count from the end; one that is out of range fails the run.

    Attributes:
        reduction: as of `ScatterElements`.
    """

    reduction: str = "none"

    def check(self, data: Shape, indices: Shape, updates: Shape) -> None:
        depth = len(indices) - 1 + len(data) - len(updates)
        fits = indices and 1 <= depth <= len(data) and unify_dims(indices[-1], depth)
        if not fits or not unify_shapes(updates, (*indices[:-1], *data[depth:])):
            raise CompileError(
                f"the updates {list(updates)} do not fit the indices {list(indices)} and the data {list(data)}"
            )

    def lower(self, ctx: Emitter, data: Operand, indices: Operand, updates: Operand) -> Operand:
        positions = shape_of(indices)
        shape = self.shape(shape_of(data), positions, shape_of(updates))
        depth, constant = positions[-1], isinstance(indices, np.ndarray)
        if isinstance(indices, np.ndarray):
            indices = tuples_from_the_front(indices, shape[:depth])
        if is_empty(positions) or is_empty(shape):
            return data
        count, size = math.prod(positions[:-1]), math.prod(shape[depth:])

        def write(needed: list[Any], data: Any, indices: Any, updates: Any, out: Any) -> None:
            _copy(data, out, math.prod(shape))
            with T.serial(0, count) as k:
                position: Any = tirx.const(0, "int64")
                inside: list[Any] = []
                for part in range(depth):
                    index = indices[k * depth + part]
                    front = tirx.Select(index < 0, index + shape[part], index)
                    inside += [] if constant else [front >= 0, front < shape[part]]
                    position = position + front * math.prod(shape[part + 1 :])
                with columns(size) as i:
                    self.store(out, position + i, updates[k * size + i], inside, needed)

        return checking(ctx, write, [data, indices, updates], [(shape, dtype_of(data))], "scatter_nd")[0]


def _copy(source: Any, target: Any, count: int) -> None:
    rows = 64 if count % 64 == 0 else 1
    with each(rows, count) as row, T.serial(0, count // rows) as i:
        position = row * (count // rows) + i
        target[position] = source[position]


def _first_column(shape: Shape, positions: Shape, axis: int) -> int:
    """The first dimension behind `axis` of those that are next to each other in the indices and in the data."""
    first = len(shape)
    while first > axis + 1 and (first == len(shape) or positions[first] == shape[first]):
        first -= 1
    return first


def _positions(line: Any, sizes: Shape, axis: int) -> list[Any]:
    """Return the position of the line with the number `line`, 0 along `axis`."""
    found = _digits(line, (*sizes[:axis], *sizes[axis + 1 :]))
    return [*found[:axis], tirx.const(0, "int64"), *found[axis:]]


def _digits(number: Any, sizes: Shape) -> list[Any]:
    """Splits a flat index into indices of dimensions of these sizes."""
    found: list[Any] = []
    for size in reversed(sizes[1:]):
        found.insert(0, tirx.floormod(number, size))
        number = tirx.floordiv(number, size)
    return [number, *found] if sizes else []


def _flat(positions: Sequence[Any], shape: Shape) -> Any:
    """The number of the element at positions in the first dimensions, 0 in the others."""
    return sum(
        (position * math.prod(shape[axis + 1 :]) for axis, position in enumerate(positions)), tirx.const(0, "int64")
    )


def _spread(ctx: Emitter, indices: Operand) -> tuple[Operand, list[Any]]:
    """Return the tensor that `indices` are broadcast from, or the indices, and its strides in the indices' dimensions.

    Frameworks broadcast one index over the rows of updates: the stride of such a dimension is 0.
    """
    shape = shape_of(indices)
    if isinstance(indices, np.ndarray):
        for axis in range(indices.ndim):
            first = indices.take([0], axis)
            indices = first if (indices == first).all() else indices
        source: Operand = indices
    else:
        call = ctx.builder.lookup_binding(indices) if isinstance(indices, relax.Var) else None
        source = indices
        if isinstance(call, relax.Call) and call.op == tvm.ir.Op.get("relax.broadcast_to"):
            source = call.args[0]
    own = shape_of(source)
    sizes = [*[1] * (len(shape) - len(own)), *own]
    repeated = [size == 1 for size in sizes]
    return source, [0 if repeated[axis] else math.prod(sizes[axis + 1 :]) for axis in range(len(sizes))]


@dataclass(frozen=True)
class TensorScatter(Operator):
    """A cache with an update written from a position on that every batch element has for itself. ONNX `TensorScatter`.

    Attributes:
        axis: the dimension of positions, which is not the first.
        circular: whether what reaches beyond the end goes to the beginning; else it is left out.
    """

    axis: int
    circular: bool = False
    moves: ClassVar[bool] = True

    def shape(self, cache: Shape, update: Shape, starts: Shape | None = None) -> Shape:
        """Return the shape of the cache."""
        axis = self.axis
        if (
            axis == 0
            or len(update) != len(cache)
            or not unify_shapes((*update[:axis], *update[axis + 1 :]), (*cache[:axis], *cache[axis + 1 :]))
            or not covers(cache[axis], update[axis])
        ):
            raise CompileError(f"the update {list(update)} does not fit the cache {list(cache)}")
        if starts is not None and not unify_shapes(starts, cache[:1]):
            raise CompileError(f"the positions {list(starts)} are not one for each batch element of {list(cache)}")
        return cache

    def lower(self, ctx: Emitter, cache: Operand, update: Operand, starts: Operand | None = None) -> relax.Expr:
        """Without `starts` all begin at the first position."""
        shape = self.shape(shape_of(cache), shape_of(update), None if starts is None else shape_of(starts))
        size, axis = shape_of(update)[self.axis], self.axis

        def element(tensors: tuple[te.Tensor, ...], index: tuple[tirx.Var, ...]) -> tirx.Expr:
            position = index[axis].astype("int64")
            if starts is not None:
                position = position - tensors[2](index[0]).astype("int64")
            if self.circular:
                position = tirx.floormod(position, shape[axis])
            new = tensors[1](*index[:axis], position, *index[axis + 1 :])
            return tirx.if_then_else(tirx.all(position >= 0, position < size), new, tensors[0](*index))

        operands = [cache, update] if starts is None else [cache, update, starts]
        return ctx.elements(shape, element, *operands, name="tensor_scatter")
