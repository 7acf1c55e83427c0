"""Pooling: maxima with and without indices, means, sums and norms of windows, adaptive pooling."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from tvm import relax, te, tirx

from nnefc.operators.base import Array, Emitter, Operand, Operator, Shape, check_table, dtype_of, shape_of
from nnefc.operators.math.reducers import largest, largest_position, lowest, min_or_max_of, minimum_reducer
from nnefc.operators.nn.window import Window
from nnefc.operators.nn.window_elements import window_element
from nnefc.symbolic.dims import Dimension, dimensions, expression, is_known

__all__ = [
    "AdaptivePool",
    "ArgMaxPool",
    "AveragePool",
    "LpPool",
    "MaxPool",
    "SumPool",
    "keeps_nan",
    "mean_of_channels",
    "window_counts",
]

_MAX_POOL = {1: relax.op.nn.max_pool1d, 2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}
_AVG_POOL = {1: relax.op.nn.avg_pool1d, 2: relax.op.nn.avg_pool2d, 3: relax.op.nn.avg_pool3d}


@dataclass(frozen=True)
class _Pool(Operator):
    """The base of poolings.

    Attributes:
        window: over the last dimensions.
        ceil: whether a last window that is not whole counts, if it begins inside (see `Window.covering`).
    """

    window: Window
    ceil: bool = False

    def shape(self, x: Shape) -> Shape:
        """The leading dimensions, then how often the window fits each other one."""
        lead, sizes = self._split(x)
        return (*lead, *self._covering(sizes).results(sizes))

    def _split(self, shape: Shape) -> tuple[Shape, Shape]:
        at = len(shape) - self.window.rank
        return shape[:at], shape[at:]

    def _covering(self, sizes: Shape) -> Window:
        return self.window.covering(sizes) if self.ceil else self.window


def _native(window: Window, shape: Shape) -> dict[str, Any] | None:
    """The window as attributes of Relax's poolings; None if it is not of their kind.

    They slide over one to three dimensions of `[N, C, *spatial]`, and do not define windows wholly in the padding.
    """
    amounts = zip((*window.before, *window.after), (*window.reach, *window.reach), strict=True)
    if window.rank not in _MAX_POOL or len(shape) != window.rank + 2 or not is_known(*window.widths):
        return None
    if any(amount < 0 or amount >= reach for amount, reach in amounts if amount):
        return None
    return {
        "pool_size": list(window.size),
        "strides": list(window.stride),
        "dilation": list(window.dilation),
        "padding": window.widths,
    }


_Element = Callable[[tirx.Expr], tirx.Expr]


def _reduced(
    window: Window,
    shape: Shape,
    result: Shape,
    reduce: Callable[..., tirx.Expr],
    outside: _Element,
    name: str,
    change: _Element,
    idempotent: bool = False,
) -> Callable[[te.Tensor], te.Tensor]:
    """`reduce` over each window of `change(element)`; positions outside count as `outside(dtype)`.

    `idempotent` says that `reduce` may take an element twice.
    """
    lead = len(result) - window.rank

    def pool(x: te.Tensor) -> te.Tensor:
        offsets = _offsets(window)

        def element(*index: tirx.Var) -> tirx.Expr:
            value = window_element(
                lambda positions: change(x(*index[:lead], *positions)),
                window, index[lead:], offsets, shape[lead:], result[lead:], outside(x.dtype),
                idempotent=idempotent,
            )  # fmt: skip
            return reduce(value, axis=offsets)

        return te.compute(result, element, name=name)

    return pool


def _offsets(window: Window) -> list[Any]:
    return [te.reduce_axis((0, size), f"offset{axis}") for axis, size in enumerate(window.size)]


def _zero(dtype: Any) -> tirx.Expr:
    return tirx.const(0, dtype)


def _itself(x: tirx.Expr) -> tirx.Expr:
    return x


@dataclass(frozen=True)
class MaxPool(_Pool):
    """The largest element of each window; positions outside never win.

    ONNX `MaxPool`, `torch.nn.functional.max_pool2d`; NNEF `max_pool` with the border "ignore".

    Attributes:
        keeps_nan: whether NaN wins, as in PyTorch; else it never does.
    """

    keeps_nan: bool = False

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        shape = shape_of(x)
        window = self._covering(self._split(shape)[1])
        attributes = _native(window, shape)
        if attributes is not None:
            return _MAX_POOL[window.rank](ctx.expr(x), count_include_pad=self.keeps_nan, **attributes)
        reduce = min_or_max_of(maximum=True) if self.keeps_nan else largest
        pool = _reduced(window, shape, self.shape(shape), reduce, minimum_reducer, "max_pool", _itself, idempotent=True)
        return ctx.compute(pool, x, name="max_pool")


def keeps_nan(call: relax.Call) -> bool:
    """Returns whether NaN wins in a call of Relax's maximum of windows.

    Relax has no attribute that says so: `count_include_pad`, which means nothing to maxima, stands for it.
    """
    return bool(call.attrs.count_include_pad)


@dataclass(frozen=True)
class SumPool(_Pool):
    """The sum of each window; positions outside are zeros. NNEF `box`."""

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        shape = shape_of(x)
        window = self._covering(self._split(shape)[1])
        if all(size == 1 for size in window.size) and not window.pads:
            return _strided(ctx, x, window.stride)
        return ctx.compute(
            _reduced(window, shape, self.shape(shape), te.sum, _zero, "sum_pool", _itself), x, name="sum_pool"
        )


def _strided(ctx: Emitter, x: Operand, stride: Shape) -> relax.Expr:
    """Every `stride`-th element of the last dimensions: windows of one position."""
    lead = len(shape_of(x)) - len(stride)
    axes = [lead + axis for axis, step in enumerate(stride) if step != 1]
    if not axes:
        return ctx.expr(x)
    ends = [shape_of(x)[axis] for axis in axes]
    return relax.op.strided_slice(ctx.expr(x), axes, [0] * len(axes), ends, [stride[axis - lead] for axis in axes])


@dataclass(frozen=True)
class AveragePool(_Pool):
    """The sum of each window, divided by the number of its positions, or by a given one.

    ONNX `AveragePool`, NNEF `avg_pool`, `torch.nn.functional.avg_pool2d`.

    Attributes:
        count_padding: whether positions in the padding count; those behind it that `ceil` adds never do.
        divisor: what to divide by instead.
    """

    count_padding: bool = True
    divisor: float | None = None

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        shape = shape_of(x)
        lead, sizes = self._split(shape)
        window = self._covering(sizes)
        exact = window == self.window
        attributes = _native(window, shape)
        if attributes is not None and self.divisor is None and (exact or not self.count_padding):
            return _AVG_POOL[window.rank](ctx.expr(x), count_include_pad=self.count_padding, **attributes)
        if exact and self.count_padding and self.divisor is None and _is_of_channels(window, len(shape)):
            return mean_of_channels(ctx, x, *window.padding[1])
        divisors = self._divisors(ctx, sizes, lead, dtype_of(x))
        sums = ctx.compute(
            _reduced(window, shape, self.shape(shape), te.sum, _zero, "sum_pool", _itself), x, name="sum_pool"
        )
        return relax.op.divide(ctx.emit(sums), ctx.expr(divisors))

    def _divisors(self, ctx: Emitter, lengths: Shape, lead: Shape, dtype: str) -> Operand:
        """Returns how many positions of each window count, at least one; `[1, …, *results]`."""
        ones = (1,) * len(lead)
        if self.divisor is not None:
            return np.full(ones + (1,) * len(lengths), self.divisor).astype(dtype)
        covering = self._covering(lengths)
        if self.count_padding and covering == self.window:  # every window lies in the padded tensor
            return np.full(ones + (1,) * len(lengths), math.prod(self.window.size)).astype(dtype)
        results = covering.results(lengths)
        if is_known(*lengths):
            counts = window_counts(self.window, lengths, results, self.count_padding)
            return counts.reshape(ones + counts.shape).astype(dtype)

        def compute(*sizes: Dimension) -> te.Tensor:
            own, shape = sizes[: len(lengths)], tuple(map(expression, sizes[len(lengths) :]))

            def element(*index: tirx.Var) -> tirx.Expr:
                positions = index[len(lead) :]
                counts = _window_counts(self.window, own, positions, self.count_padding)
                return tirx.max(counts, tirx.const(1, "int64")).astype(dtype)

            return te.compute((*ones, *shape), element, name="window_counts")

        return ctx.emit(ctx.of_sizes(compute, *lengths, *results, name="window_counts"))


def _window_counts(window: Window, sizes: Shape, positions: Sequence[tirx.Expr], padding: bool) -> tirx.Expr:
    """Returns how many positions of the window at some position lie in the tensor, with `padding` also those in its
    padding.
    """
    counts: tirx.Expr = tirx.const(1, "int64")
    axes = zip(window.size, window.stride, window.dilation, window.padding, sizes, positions, strict=True)
    for size, stride, dilation, (before, after), length, slot in axes:
        low, high = (-before, length + after) if padding else (0, length)
        first = slot.astype("int64") * stride - before
        inside = (
            tirx.all(first + offset * dilation >= expression(low), first + offset * dilation < expression(high))
            for offset in range(size)
        )
        counts = counts * sum((each.astype("int64") for each in inside), tirx.const(0, "int64"))
    return counts


def window_counts(window: Window, sizes: Shape, results: Shape, padding: bool) -> Array:
    """Returns how many positions of each window lie in the tensor, with `padding` also those in its padding; at least
    one.

    float64, `[*results]`, 1 along dimensions where all windows have equally many.
    """
    counts = np.ones((1,) * len(sizes))
    axes = zip(window.size, window.stride, window.dilation, window.padding, sizes, results, strict=True)
    for axis, (size, stride, dilation, (before, after), length, count) in enumerate(axes):
        check_table(count * size)
        positions = np.arange(count)[:, None] * stride + np.arange(size) * dilation - before
        low, high = (-before, length + after) if padding else (0, length)
        along = ((positions >= low) & (positions < high)).sum(1)
        along = along[:1] if (along == along[0]).all() else along
        counts = counts * along.reshape([-1 if other == axis else 1 for other in range(len(sizes))])
    return np.maximum(counts, 1)


def _is_of_channels(window: Window, rank: int) -> bool:
    """Returns whether the window has several channels of one position, and there is one for each channel."""
    if window.rank != rank or rank < 2:
        return False
    parts = list(zip(window.size, window.stride, window.dilation, window.padding, strict=True))
    if any(part != (1, 1, 1, (0, 0)) for axis, part in enumerate(parts) if axis != 1):
        return False
    size, stride, dilation, (before, after) = parts[1]
    return stride == dilation == 1 and min(before, after) >= 0 and before + after + 1 == size


def mean_of_channels(ctx: Emitter, x: Operand, before: int, after: int) -> relax.Expr:
    """The mean over `before` channels, the own one and `after` channels; those that do not exist count as 0.

    An average pooling of the tensor `[N, C, *spatial]` seen as `[N, 1, C, spatial]`: the form that passes recognize.
    """
    shape = shape_of(x)
    seen = ctx.emit(relax.op.reshape(ctx.expr(x), (shape[0], 1, shape[1], math.prod(shape[2:]))))
    size = (before + 1 + after, 1)
    means = relax.op.nn.avg_pool2d(seen, size, padding=[before, 0, after, 0], count_include_pad=True)
    return relax.op.reshape(ctx.emit(means), shape)


@dataclass(frozen=True)
class LpPool(_Pool):
    """The p-norm of each window: `(sum of |x|^p)^(1/p)`. ONNX `LpPool`; `torch.nn.functional.lp_pool2d`.

    Attributes:
        p: the norm.
        signed: whether powers keep the signs of their elements, as in PyTorch. A last window that is not whole has the
            mean of its own positions there, times those of a whole one.
    """

    p: float = 2.0
    signed: bool = False

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        window = self._covering(self._split(shape_of(x))[1])
        result = self.shape(shape_of(x))

        def power(value: tirx.Expr) -> tirx.Expr:
            return value * value if self.p == 2 else _power(value if self.signed else tirx.abs(value), self.p)

        if self.signed and window != self.window:
            powers = ctx.elements(shape_of(x), lambda tensors, index: power(tensors[0](*index)), x, name="powers")
            means = ctx.apply(AveragePool(self.window, self.ceil), ctx.bound(powers))
            count = np.array(math.prod(window.size)).astype(dtype_of(x))
            return p_root(ctx, relax.op.multiply(means, ctx.expr(count)), self.p)
        sums = ctx.compute(_reduced(window, shape_of(x), result, te.sum, _zero, "lp_pool", power), x, name="lp_pool")
        return p_root(ctx, sums, self.p)


def _power(value: tirx.Expr, exponent: float) -> tirx.Expr:
    if exponent == 1:
        return value
    dtype = str(value.ty.dtype)
    name = "pow" if dtype == "float64" else "powf"
    return tirx.call_pure_extern(dtype, name, value, tirx.const(exponent, dtype))


def p_root(ctx: Emitter, sums: relax.Expr, p: float) -> relax.Expr:
    """The p-th root of each element."""
    if p == 1:
        return sums
    bound = ctx.emit(sums)
    if p == 2:
        return relax.op.sqrt(bound)
    return ctx.elements(
        shape_of(bound), lambda tensors, index: _power(tensors[0](*index), 1 / p), bound, name="nth_root"
    )


@dataclass(frozen=True)
class ArgMaxPool(_Pool):
    """The index of the maximum of each window; of equal elements, the first in row-major order.

    NNEF `argmax_pool`, the second result of ONNX's `MaxPool` and of `torch.nn.functional.max_pool2d`.

    Attributes:
        within: what an index counts in, row by row: the window (int32), its channel or the whole tensor (int64).
        column_major: whether the spatial dimensions are numbered column by column.
        keeps_nan: whether the last NaN is the max, as in PyTorch; else it is one only in
            windows without a number.
    """

    within: Literal["window", "channel", "tensor"] = "channel"
    column_major: bool = False
    keeps_nan: bool = False

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        return ctx.compute(self._positions(self.shape(shape_of(x))), x, name="argmax_pool")

    def _positions(self, result: Shape) -> Callable[[te.Tensor], te.Tensor]:
        lead = len(result) - self.window.rank
        dtype, nowhere = ("int32", 2**31 - 1) if self.within == "window" else ("int64", 2**62)
        reducer = largest_position(nowhere, self.keeps_nan)

        def argmax(x: te.Tensor) -> te.Tensor:
            shape = list(dimensions(x.shape))
            window = self._covering(tuple(shape[lead:]))
            offsets = _offsets(window)

            def element(*index: tirx.Var) -> Any:
                positions = window.positions(index[lead:], offsets)
                inside = window.inside(positions, shape[lead:], result[lead:])
                position = self._number(index[:lead], positions, offsets, shape, dtype)
                value = x(*index[:lead], *positions)
                if inside:
                    within = tirx.all(*inside)
                    value = tirx.if_then_else(within, value, lowest(x.dtype, self.keeps_nan))
                    position = tirx.if_then_else(within, position, tirx.const(nowhere, dtype))
                return reducer((position, value), axis=offsets)

            both = te.compute(result, element, name="argmax_pool")

            def found(*index: tirx.Var) -> tirx.Expr:
                # A window that lies outside altogether has no largest element: its first position stands for it.
                slot = both[0](*index)
                number = self._by_columns(slot, shape[lead:]) if self.column_major else slot
                return tirx.Select(slot < tirx.const(nowhere, dtype), number, tirx.const(0, dtype))

            return te.compute(result, found, name="argmax_pool_index")

        return argmax

    def _number(
        self, outer: Sequence[Any], positions: Sequence[Any], offsets: Sequence[Any], shape: Sequence[int], dtype: str
    ) -> tirx.Expr:
        lead = len(outer)
        number: Any = tirx.const(0, dtype)
        steps: list[tuple[Any, int]]
        if self.within == "window":
            steps = [(offset.var, size) for offset, size in zip(offsets, self.window.size, strict=True)]
        else:
            steps = list(zip(positions, shape[lead:], strict=True))
            if self.within == "tensor":
                steps = [*zip(outer, shape[:lead], strict=True), *steps]
        for slot, size in steps:
            number = number * size + slot.astype(dtype)
        return number

    def _by_columns(self, number: Any, sizes: Sequence[Dimension]) -> Any:
        """The number that an element has column by column, from its row-major number in the channel or the tensor."""
        plane = expression(math.prod(sizes))
        inner, columns, height = tirx.floormod(number, plane), tirx.const(0, "int64"), tirx.const(1, "int64")
        made: Any = number - inner
        positions: list[Any] = []
        for size in reversed(sizes):
            positions.insert(0, tirx.floormod(inner, expression(size)))
            inner = tirx.floordiv(inner, expression(size))
        for position, size in zip(positions, sizes, strict=True):
            columns, height = columns + position * height, height * expression(size)
        return made + columns


@dataclass(frozen=True)
class AdaptivePool(Operator):
    """Means or maxima of as many parts of each spatial dimension as the result has elements.

    Part i of n elements in m parts is from floor(i n / m) to ceil((i + 1) n / m), so that parts may overlap. The
    maximum of a part in which something is not a number is none.
    `torch.nn.functional.adaptive_avg_pool2d`, `adaptive_max_pool2d`.

    Attributes:
        results: the sizes of the result.
        average: means, not maxima.
    """

    results: Shape
    average: bool

    def shape(self, x: Shape) -> Shape:
        """The leading dimensions, then `results`."""
        return (*x[: len(x) - len(self.results)], *self.results)

    def lower(self, ctx: Emitter, x: Operand) -> relax.Expr:
        shape = shape_of(x)
        lead = len(shape) - len(self.results)
        sizes = shape[lead:]
        if all(count == 1 for count in self.results):
            reduce = relax.op.mean if self.average else relax.op.max
            return reduce(ctx.expr(x), list(range(lead, len(shape))), keepdims=True)
        if all(length % count == 0 for length, count in zip(sizes, self.results, strict=True)):
            size = tuple(length // count for length, count in zip(sizes, self.results, strict=True))
            window = Window.of(size, stride=size)
            pool = AveragePool(window) if self.average else MaxPool(window, keeps_nan=True)
            return pool.lower(ctx, x)
        made = ctx.compute(self._uneven(shape), x, name="adaptive_pool")
        if not self.average:
            return made
        counts = np.ones((1,) * len(shape))
        for axis, (length, count) in enumerate(zip(sizes, self.results, strict=True), lead):
            along = _part_sizes(length, count).astype(np.float64)
            counts = counts * along.reshape([-1 if other == axis else 1 for other in range(len(shape))])
        return relax.op.multiply(ctx.emit(made), ctx.expr((1 / counts).astype(dtype_of(x))))

    def _uneven(self, shape: Shape) -> Callable[[te.Tensor], te.Tensor]:
        """Parts of different sizes: each is as large as the largest, what does not belong to it is left out."""
        lead = len(shape) - len(self.results)
        lengths = shape[lead:]
        sizes = [int(_part_sizes(n, m).max()) for n, m in zip(lengths, self.results, strict=True)]
        reduce = te.sum if self.average else min_or_max_of(maximum=True)

        def pool(x: te.Tensor) -> te.Tensor:
            offsets = [te.reduce_axis((0, size), f"offset{axis}") for axis, size in enumerate(sizes)]
            outside = _zero(x.dtype) if self.average else minimum_reducer(x.dtype)

            def element(*index: tirx.Var) -> tirx.Expr:
                positions, inside = [], []
                for i, offset, n, m in zip(index[lead:], offsets, lengths, self.results, strict=True):
                    start, end = tirx.floordiv(i * n, m), tirx.floordiv((i + 1) * n + m - 1, m)
                    positions.append(tirx.min(start + offset, n - 1))
                    inside.append(start + offset < end)
                value = tirx.if_then_else(tirx.all(*inside), x(*index[:lead], *positions), outside)
                return reduce(value, axis=offsets)

            return te.compute(self.shape(shape), element, name="adaptive_pool")

        return pool


def _part_sizes(size: int, count: int) -> Array:
    """Returns how many of `size` elements each of `count` parts has."""
    i = np.arange(count)
    return np.asarray(-(-(i + 1) * size // count) - i * size // count)
