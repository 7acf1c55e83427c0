"""Reductions over axes, argmin and argmax, cumulative sums and products.

Sums, means, products, maxima and minima are Relax's own operators: they keep the layout of their operand, and are fused
with adjacent element-wise operators. The result of an empty reduction is its identity element.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from nnefc.operators.base import (
    Array,
    Emitter,
    Operand,
    Operator,
    SameShape,
    Shape,
    dtype_of,
    is_empty,
    shape_of,
    zeros,
)
from nnefc.operators.dtypes import FLOAT16_TYPES, is_float
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.functions import truth
from nnefc.operators.math.reducers import min_max_position
from nnefc.operators.statements import T, checking, hinted, report
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, expression, greatest, is_known, may_exceed, size_hint

__all__ = [
    "AllTrue",
    "AnyTrue",
    "ArgMinMax",
    "Cumulative",
    "CumulativeInRun",
    "Hardmax",
    "LogSumExp",
    "Maximum",
    "Mean",
    "Minimum",
    "Norm",
    "Product",
    "Reduction",
    "Sum",
    "Variance",
]

_NOWHERE = 2**31 - 1  # after all positions in a tensor


@dataclass(frozen=True)
class Reduction(Operator):
    """A reduction of the elements along axes to one.

    Attributes:
        axes: in ascending order, from the front; without any the elements stay what they are.
        keepdims: whether the axes stay, with the size 1.
    """

    axes: Shape
    keepdims: bool = False

    def shape(self, x: Shape) -> Shape:
        """Return the shape of the operand without the axes, or with the size 1 along them."""
        kept = enumerate(x)
        return tuple(1 if axis in self.axes else size for axis, size in kept if self.keepdims or axis not in self.axes)

    def _count(self, x: Operand) -> int:
        """The number of elements that become one."""
        shape = shape_of(x)
        return math.prod(shape[axis] for axis in self.axes)

    def _reduced(
        self,
        ctx: Emitter,
        x: Operand,
        build: Callable[..., relax.Expr],
        known: Callable[..., Array] | None,
        empty: float,
    ) -> Operand:
        """Reduced by Relax's operator, or by NumPy's function if the value is at hand."""
        if not self.axes:
            return x
        if self._count(x) == 0:
            return zeros(self.shape(shape_of(x)), ctx.number(0, x).dtype, empty)
        if isinstance(x, np.ndarray) and known is not None:
            wide = x.astype(np.float64) if is_float(dtype_of(x)) else x
            return np.asarray(known(wide, axis=self.axes, keepdims=self.keepdims)).astype(x.dtype)
        return build(ctx.expr(x), list(self.axes), keepdims=self.keepdims)


def _magnitude(ctx: Emitter, x: Operand) -> Operand:
    """Absolute values."""
    return x if dtype_of(x).startswith(("uint", "bool")) else ctx.emit(relax.op.abs(ctx.expr(x)))


@dataclass(frozen=True)
class Sum(Reduction):
    """The sum of the elements along axes, in their type."""

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        return self._reduced(ctx, x, relax.op.sum, np.sum, 0)


@dataclass(frozen=True)
class Product(Reduction):
    """The product of the elements along axes, in their type."""

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        return self._reduced(ctx, x, relax.op.prod, np.prod, 1)


@dataclass(frozen=True)
class Mean(Reduction):
    """The mean of the elements along axes; of integers without its fraction."""

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        if is_float(dtype_of(x)):
            return self._reduced(ctx, x, relax.op.mean, np.mean, math.nan)
        total = ctx.apply(Sum(self.axes, self.keepdims), x)
        return relax.op.divide(ctx.expr(total), ctx.expr(_number(ctx, greatest(1, self._count(x)), x)))


@dataclass(frozen=True)
class Maximum(Reduction):
    """The largest element along axes; NaN where one is."""

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        if dtype_of(x) == "bool":
            return AnyTrue(self.axes, self.keepdims).lower(ctx, x)
        empty = -math.inf if is_float(dtype_of(x)) else np.iinfo(dtype_of(x)).min
        return self._reduced(ctx, x, relax.op.max, np.max, empty)


@dataclass(frozen=True)
class Minimum(Reduction):
    """The smallest element along axes; NaN where one is."""

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        if dtype_of(x) == "bool":
            return AllTrue(self.axes, self.keepdims).lower(ctx, x)
        empty = math.inf if is_float(dtype_of(x)) else np.iinfo(dtype_of(x)).max
        return self._reduced(ctx, x, relax.op.min, np.min, empty)


@dataclass(frozen=True)
class _Quantifier(Reduction):
    """Booleans from those of the elements along axes; an element is true where it is not zero."""

    def _booleans(self, ctx: Emitter, x: Operand, reduce: Callable[..., Any], known: Callable[..., Array]) -> Operand:
        """The minimum or maximum of zeros and ones: of none at all the smallest int8, or the greatest."""
        if isinstance(x, np.ndarray):
            return np.asarray(known(x, axis=self.axes, keepdims=self.keepdims))
        if not self.axes and dtype_of(x) == "bool":
            return x

        def reduced(scalar: tirx.Expr, _position: tirx.Expr, axes: list[Any]) -> Any:
            one = truth(scalar).astype("int8")
            return reduce(one, axis=axes) if axes else one

        def function(x: te.Tensor) -> te.Tensor:
            found = _along(x, self.axes, reduced)
            return te.compute(found.shape, lambda *index: found(*index) > 0, name="truth")

        name = "all" if reduce is te.min else "any"
        return ctx.reshaped(ctx.emit(ctx.compute(function, x, name=name)), self.shape(shape_of(x)))


@dataclass(frozen=True)
class AnyTrue(_Quantifier):
    """Whether any element along axes is true."""

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        return self._booleans(ctx, x, te.max, np.any)


@dataclass(frozen=True)
class AllTrue(_Quantifier):
    """Whether all elements along axes are true."""

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        return self._booleans(ctx, x, te.min, np.all)


def _along(x: te.Tensor, axes: Shape, scalar: Callable[..., Any]) -> Any:
    """A reduction in TE that keeps its axes, with the size 1.

    `element(value, position, axes)` makes the reduced value of an element, its position, row-major along the axes, as
    int32, and the reduction's variables.
    """
    along = {axis: te.reduce_axis((0, x.shape[axis]), f"along{axis}") for axis in axes}
    position: Any = tirx.const(0, "int32")
    for variable in along.values():
        position = position * variable.dom.extent.astype("int32") + variable.var.astype("int32")

    def element(*index: tirx.Var) -> Any:
        offset = [along.get(axis, i) for axis, i in enumerate(index)]
        return scalar(x(*offset), position, list(along.values()))

    kept = [1 if axis in along else size for axis, size in enumerate(x.shape)]
    return te.compute(kept, element, name="reduction")


@dataclass(frozen=True)
class ArgMinMax(Reduction):
    """The index of the maximum or minimum along axes, row-major; NaN counts as beyond all others.

    Attributes:
        largest: the maximum if true, else the minimum.
        last: whether of equal elements the last one counts, not the first.
        dtype: of the result.
    """

    largest: bool = True
    last: bool = False
    dtype: str = "int64"

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        if dtype_of(x) == "bool":
            raise CompileError("the largest of booleans is not supported: convert them to integers")
        shape, count = self.shape(shape_of(x)), self._count(x)
        if is_empty(shape) or count == 1:
            return zeros(shape, self.dtype)
        if count == 0:
            raise CompileError(f"{list(shape_of(x))} has no elements to find the largest or smallest of")
        reducer = min_max_position(self.largest, -1 if self.last else _NOWHERE, self.last)

        def function(x: te.Tensor) -> te.Tensor:
            found, _ = _along(x, self.axes, lambda scalar, position, axes: reducer((position, scalar), axis=axes))
            return te.compute(found.shape, lambda *index: found(*index).astype(self.dtype), name="position")

        name = "argmax" if self.largest else "argmin"
        return ctx.reshaped(ctx.emit(ctx.compute(function, x, name=name)), shape)


@dataclass(frozen=True)
class Hardmax(SameShape):
    """1 at the first of the largest elements along an axis, 0 elsewhere."""

    axis: int

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        if is_empty(shape_of(x)):
            return x
        first = ctx.apply(ArgMinMax((self.axis,), keepdims=True, dtype="int32"), x)

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            offset = tensors[0](*index[: self.axis], 0, *index[self.axis + 1 :])
            return (offset == index[self.axis].astype("int32")).astype(dtype_of(x))

        return ctx.elements(shape_of(x), element, first, name="hardmax")


@dataclass(frozen=True)
class LogSumExp(Reduction):
    """The logarithm of the sum of eˣ along axes, the largest element taken out first, so that nothing overflows.

    Of integers without its fraction.
    """

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        if not self.axes:
            return x
        if not is_float(dtype_of(x)):
            return Cast(dtype_of(x)).lower(ctx, ctx.apply(self, ctx.apply(Cast("float32"), x)))
        result = self.shape(shape_of(x))
        if self._count(x) == 0:
            return zeros(result, ctx.number(0, x).dtype, -math.inf)
        data, axes = ctx.expr(x), list(self.axes)
        largest = ctx.emit(relax.op.max(data, axes, keepdims=True))
        infinity = tirx.const(math.inf, dtype_of(x))

        def element(tensors: tuple[Any, ...], index: tuple[Any, ...]) -> Any:
            value = tensors[0](*index)
            return tirx.Select(tirx.abs(value) == infinity, tirx.const(0, dtype_of(x)), value)

        finite = ctx.emit(ctx.elements(shape_of(largest), element, largest, name="finite"))
        powers = ctx.emit(relax.op.exp(ctx.emit(relax.op.subtract(data, finite))))
        total = ctx.emit(relax.op.log(ctx.emit(relax.op.sum(powers, axes, keepdims=True))))
        return ctx.reshaped(ctx.emit(relax.op.add(total, finite)), result)


@dataclass(frozen=True)
class Norm(Reduction):
    """`(sum of |x|^order)^(1 / order)` along axes; the largest or smallest `|x|` for infinite orders.

    Of integers without its fraction.
    """

    order: float = 2.0

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        if self.order == 0:
            raise CompileError("the norm 0 is not supported")
        if not self.axes:
            return _magnitude(ctx, x)
        if self.order == 2:
            squares = ctx.emit(relax.op.multiply(ctx.expr(x), ctx.expr(x)))
            return _root(ctx, self._of(Sum, ctx, squares))
        values = _magnitude(ctx, x)
        if math.isinf(self.order):
            return self._of(Maximum if self.order > 0 else Minimum, ctx, values)
        if self.order == 1:
            return self._of(Sum, ctx, values)
        order, inverse = (ctx.expr(ctx.number(value, x)) for value in (self.order, 1 / self.order))
        total = self._of(Sum, ctx, ctx.emit(relax.op.power(ctx.expr(values), order)))
        return relax.op.power(ctx.expr(total), inverse)

    def _of(self, kind: type[Reduction], ctx: Emitter, x: Operand) -> Operand:
        made: Operand = ctx.apply(kind(self.axes, self.keepdims), x)
        return made


def _root(ctx: Emitter, x: Operand) -> Operand:
    """The square root; of integers without its fraction."""
    if is_float(dtype_of(x)):
        return relax.op.sqrt(ctx.expr(x))
    wide = ctx.expr(ctx.apply(Cast("float64"), x))
    return Cast(dtype_of(x)).lower(ctx, ctx.emit(relax.op.sqrt(wide)))


@dataclass(frozen=True)
class Variance(Reduction):
    """The sum of squared distances from the mean along axes, divided by the number of elements less `correction`.

    Where only a run tells that there are too few elements, they are divided by 0, as in PyTorch.
    """

    correction: float = 1.0

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        count = self._count(x)
        if not self.axes or not may_exceed(count, math.floor(self.correction)):
            raise CompileError(f"a variance of {count} elements with the correction {self.correction:g} is not defined")
        data, axes = ctx.expr(x), list(self.axes)
        centred = ctx.emit(relax.op.subtract(data, ctx.emit(relax.op.mean(data, axes, keepdims=True))))
        squares = ctx.emit(relax.op.multiply(centred, centred))
        total = ctx.emit(relax.op.sum(squares, axes, keepdims=self.keepdims))
        if is_known(count):
            return relax.op.multiply(total, ctx.expr(ctx.number(1 / (count - self.correction), x)))
        return relax.op.divide(total, ctx.expr(_number(ctx, count, x, self.correction)))


def _number(ctx: Emitter, size: Dimension, like: Operand, less: float = 0) -> Operand:
    """A size less a number, at least 0, without axes, of the element type of `like`."""
    if is_known(size):
        return ctx.number(max(size - less, 0), like)
    dtype = dtype_of(like)

    def compute(own: Dimension) -> te.Tensor:
        def value() -> tirx.Expr:
            if not is_float(dtype):
                return expression(own).astype(dtype)
            real = expression(own).astype("float64") - tirx.const(less, "float64")
            return tirx.max(real, tirx.const(0, "float64")).astype(dtype)

        return te.compute((), value, name="count")

    return ctx.emit(ctx.of_sizes(compute, size, name="count"))


@dataclass(frozen=True)
class Cumulative(SameShape):
    """Running sums or products along an axis, in the type of the elements.

    Attributes:
        axis: from the front.
        product: whether elements are multiplied, not added.
        exclusive: whether a result is of the elements before it, without its own.
        reverse: whether it runs from the end.
    """

    axis: int
    product: bool = False
    exclusive: bool = False
    reverse: bool = False

    def lower(self, ctx: Emitter, x: Operand) -> Operand:
        """16-bit floats are added up in float32."""
        data = ctx.apply(Cast("float32"), x) if dtype_of(x) in FLOAT16_TYPES else x
        scan = relax.op.cumprod if self.product else relax.op.cumsum
        made = ctx.emit(scan(self._transposed(ctx, ctx.expr(data)), self.axis, exclusive=self.exclusive))
        return Cast(dtype_of(x)).lower(ctx, self._transposed(ctx, made))

    def _transposed(self, ctx: Emitter, x: relax.Expr) -> relax.Expr:
        return ctx.emit(relax.op.flip(x, self.axis)) if self.reverse else x


@dataclass(frozen=True)
class CumulativeInRun(SameShape):
    """`Cumulative` along the axis that a tensor of one integer says; from the end, if negative.

    A run fails whose axis the operand does not have, unless a branch is chosen that does not need the result.

    Attributes:
        product, exclusive, reverse: those of `Cumulative`.
    """

    product: bool = False
    exclusive: bool = False
    reverse: bool = False

    def lower(self, ctx: Emitter, x: Operand, axis: Operand) -> Operand:
        """16-bit floats are added up in float32."""
        shape = shape_of(x)
        if is_empty(shape):
            return zeros(shape, dtype_of(x))
        data = ctx.apply(Cast("float32"), x) if dtype_of(x) in FLOAT16_TYPES else x
        kind, rank = dtype_of(data), len(shape)
        lengths = [expression(size) for size in shape]
        strides = [expression(math.prod(shape[dim + 1 :])) for dim in range(rank)]

        def write(needed: list[Any], x: Any, axis: Any, y: Any, state: Any) -> None:
            """`state`: the axis, its size, its stride and the product of the sizes before it."""
            given = axis[0].astype("int64")
            wrong = tirx.any(given < -rank, given >= rank)
            with T.If(wrong), T.Then():
                report(f"{self._name}: the data ask for an axis that a tensor of rank {rank} does not have", needed)
            state[0] = tirx.Select(wrong, _index(0), tirx.Select(given < 0, given + rank, given))
            for dim in range(rank):
                with T.If(state[0] == dim), T.Then():
                    state[1], state[2] = lengths[dim], strides[dim]
                    state[3] = expression(math.prod(shape[:dim]))
            with hinted(state[3], 1) as outer, hinted(state[1], size_hint(shape[0])) as step:
                index = state[1] - 1 - step if self.reverse else step
                with hinted(state[2], size_hint(math.prod(shape[1:]))) as inner:
                    here = (outer * state[1] + index) * state[2] + inner
                    before = here + state[2] if self.reverse else here - state[2]
                    with T.If(step == 0):
                        with T.Then():
                            y[here] = tirx.const(int(self.product), kind) if self.exclusive else x[here]
                        with T.Else():
                            element = x[before if self.exclusive else here]
                            y[here] = y[before] * element if self.product else y[before] + element

        results = [(shape, kind), ((4,), "int64")]
        made = checking(ctx, write, [data, axis], results, "cumulative_in_run")[0]
        return Cast(dtype_of(x)).lower(ctx, made)

    @property
    def _name(self) -> str:
        return "CumProd" if self.product else "CumSum"


def _index(value: int) -> Any:
    return tirx.const(value, "int64")
