"""Pools in 1 to 3 dimensions: largest values, means, norms, and adaptive ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from nnefc.diagnostics import CompileError
from nnefc.frontends.pnnx.functions import power
from nnefc.frontends.pnnx.lowering import Lowering, Shape, Tensor, dtype_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import Extents, Ints, Result, need_real, need_size, operator, spatial

__all__ = ["adaptive_average"]

_MAX = {1: relax.op.nn.max_pool1d, 2: relax.op.nn.max_pool2d, 3: relax.op.nn.max_pool3d}
_AVG = {1: relax.op.nn.avg_pool1d, 2: relax.op.nn.avg_pool2d, 3: relax.op.nn.avg_pool3d}
_ONE, _ZERO = Ints((1,)), Ints((0,))


def _batched(at: Lowering, input: Tensor, rank: int) -> tuple[relax.Expr, Callable[[relax.Expr], relax.Expr]]:
    """The input with a batch, and what takes a batch that was added away again."""
    need_real(input)
    shape = shape_of(input)
    if len(shape) not in (rank + 1, rank + 2) or 0 in shape:
        raise CompileError(f"the input {list(shape)} should have the rank {rank + 2} and no empty dimension")
    if len(shape) == rank + 2:
        return at.expr(input), lambda made: made
    return at.emit(relax.op.expand_dims(at.expr(input), 0)), lambda made: relax.op.squeeze(at.emit(made), 0)


def _sizes(extents: Shape, size: Shape, stride: Shape, padding: Shape, dilation: Shape, ceil: bool) -> Shape:
    """The extents of the result (documentation of `torch.nn.MaxPool2d`); the last window begins inside."""
    result = []
    for n, k, s, p, d in zip(extents, size, stride, padding, dilation, strict=True):
        if 2 * p > k:
            raise CompileError(f"the padding {p} is more than half of the window {k}")
        room = n + 2 * p - d * (k - 1) - 1
        if room < 0:
            raise CompileError(f"the input {list(extents)} with its padding is smaller than the window {list(size)}")
        count = (-(-room // s) if ceil else room // s) + 1
        if ceil and (count - 1) * s >= n + p:
            count -= 1
        result.append(count)
    return tuple(result)


def _window(rank: int, kernel_size: Ints, stride: Ints | None, padding: Ints, dilation: Ints) -> tuple[Shape, ...]:
    size = spatial(kernel_size, rank, "kernel_size")
    # An empty stride is none.
    step = spatial(stride, rank, "stride") if stride else size
    return size, step, spatial(padding, rank, "padding", 0), spatial(dilation, rank, "dilation")


def _declare_max(rank: int) -> None:
    @operator(f"nn.MaxPool{rank}d", f"F.max_pool{rank}d", rank=rank)
    def _max_pool(
        at: Lowering,
        input: Tensor,
        kernel_size: Ints,
        rank: int,
        stride: Ints | None = None,
        padding: Ints = _ZERO,
        dilation: Ints = _ONE,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Result:
        x, restored = _batched(at, input, rank)
        size, step, around, dilations = _window(rank, kernel_size, stride, padding, dilation)
        result = _sizes(shape_of(x)[2:], size, step, around, dilations, ceil_mode)
        made = restored(
            _MAX[rank](
                x,
                pool_size=list(size),
                strides=list(step),
                padding=[*around, *around],
                dilation=list(dilations),
                ceil_mode=ceil_mode,
            )
        )
        if not return_indices:
            return made
        return made, restored(_max_places(at, x, result, size, step, around, dilations))


def _max_places(
    at: Lowering, x: relax.Expr, result: Shape, size: Shape, stride: Shape, padding: Shape, dilation: Shape
) -> relax.Expr:
    """Where in its channel the largest element of each window lies: the first one in the order of memory."""
    batch, channels, *extents = shape_of(x)

    def compute(x: te.Tensor) -> te.Tensor:
        offsets = [te.reduce_axis((0, k), "k") for k in size]

        def element(n: tirx.Var, c: tirx.Var, *place: tirx.Var) -> tirx.Expr:
            source, inside, flat = [], [], tirx.const(0, "int64")
            for i, k, s, p, d, extent in zip(place, offsets, stride, padding, dilation, extents, strict=True):
                position = i * s + k * d - p
                source.append(position)
                inside += [position >= 0, position < extent]
                flat = flat * extent + position
            low = tirx.min_value(x.dtype)
            value = tirx.if_then_else(tirx.all(*inside), x(n, c, *source), low)
            # What lies outside must not be found before a least value inside.
            place_ = tirx.if_then_else(tirx.all(*inside), flat, tirx.const(1 << 62, "int64"))
            return _FIRST_LARGEST((place_, value), axis=offsets)

        return te.compute((batch, channels, *result), element, name="max_place")[0]

    return at.emit(at.compute(compute, x, name="max_place"))


def _first_largest(left: Any, right: Any) -> tuple[tirx.Expr, tirx.Expr]:
    keep = tirx.any(left[1] > right[1], tirx.all(left[1] == right[1], left[0] < right[0]))
    return tirx.Select(keep, left[0], right[0]), tirx.Select(keep, left[1], right[1])


_FIRST_LARGEST = te.comm_reducer(
    _first_largest,
    lambda place, value: (tirx.const(1 << 62, place), tirx.min_value(value)),
    name="first_largest",
)


def _average(
    at: Lowering, input: Tensor, rank: int, size: Shape, step: Shape, around: Shape, ceil: bool, include: bool
) -> Result:
    x, restored = _batched(at, input, rank)
    extents = shape_of(x)[2:]
    result = _sizes(extents, size, step, around, (1,) * rank, ceil)
    over = any((c - 1) * s + k > n + 2 * p for c, s, k, n, p in zip(result, step, size, extents, around, strict=True))
    if not (over and ceil):
        pool = _AVG[rank]
        return restored(
            pool(
                x,
                pool_size=list(size),
                strides=list(step),
                padding=[*around, *around],
                ceil_mode=ceil,
                count_include_pad=include,
            )
        )
    return restored(
        _window_sums(at, x, result, size, step, around, _window_counts(extents, result, size, step, around, include))
    )


def _window_counts(extents: Shape, result: Shape, size: Shape, step: Shape, around: Shape, include: bool) -> np.ndarray:
    """How many elements PyTorch divides each window by: those inside, with `include` the padding's too."""
    counts = np.ones((1,) * len(extents), np.float32)
    for axis, (n, count, k, s, p) in enumerate(zip(extents, result, size, step, around, strict=True)):
        start = np.arange(count) * s - p
        end = np.minimum(start + k, n + p)
        if not include:
            start, end = np.maximum(start, 0), np.minimum(end, n)
        along = (end - start).astype(np.float32)
        counts = counts * along.reshape([-1 if other == axis else 1 for other in range(len(extents))])
    return counts


def _window_sums(
    at: Lowering, x: relax.Expr, result: Shape, size: Shape, step: Shape, around: Shape, counts: np.ndarray
) -> relax.Expr:
    batch, channels, *extents = shape_of(x)

    def compute(x: te.Tensor) -> te.Tensor:
        offsets = [te.reduce_axis((0, k), "k") for k in size]

        def element(n: tirx.Var, c: tirx.Var, *place: tirx.Var) -> tirx.Expr:
            source = [i * s + k - p for i, k, s, p in zip(place, offsets, step, around, strict=True)]
            inside = [test for i, extent in zip(source, extents, strict=True) for test in (i >= 0, i < extent)]
            value = tirx.if_then_else(tirx.all(*inside), x(n, c, *source), tirx.const(0, x.dtype))
            return te.sum(value, axis=offsets)

        return te.compute((batch, channels, *result), element, name="window_sum")

    sums = at.emit(at.compute(compute, x, name="window_sum"))
    return relax.op.divide(sums, at.expr(counts[None, None].astype(dtype_of(x))))


def _declare_average(rank: int) -> None:
    @operator(f"nn.AvgPool{rank}d", f"F.avg_pool{rank}d", rank=rank)
    def _avg_pool(
        at: Lowering,
        input: Tensor,
        kernel_size: Ints,
        rank: int,
        stride: Ints | None = None,
        padding: Ints = _ZERO,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Result:
        size, step, around, _ = _window(rank, kernel_size, stride, padding, _ONE)
        if divisor_override is None:
            return _average(at, input, rank, size, step, around, ceil_mode, count_include_pad)
        if divisor_override == 0:
            raise CompileError("'divisor_override' must not be 0")
        x, restored = _batched(at, input, rank)
        result = _sizes(shape_of(x)[2:], size, step, around, (1,) * rank, ceil_mode)
        divisor = np.full((1,) * rank, divisor_override, np.float32)
        return restored(_window_sums(at, x, result, size, step, around, divisor))


def _declare_norm(rank: int) -> None:
    @operator(f"nn.LPPool{rank}d", f"F.lp_pool{rank}d", rank=rank)
    def _lp_pool(
        at: Lowering,
        input: Tensor,
        norm_type: float,
        kernel_size: Ints,
        rank: int,
        stride: Ints | None = None,
        ceil_mode: bool = False,
    ) -> Result:
        if norm_type == 0:
            raise CompileError("'norm_type' must not be 0")
        size, step, around, _ = _window(rank, kernel_size, stride, _ZERO, _ONE)
        x, restored = _batched(at, input, rank)
        powers = at.elements(
            shape_of(x),
            lambda inputs, index: power(inputs[0](*index), tirx.const(norm_type, inputs[0].dtype)),
            x,
            name="power",
        )
        result = _sizes(shape_of(x)[2:], size, step, around, (1,) * rank, ceil_mode)
        sums = at.emit(_window_sums(at, powers, result, size, step, around, np.ones((1,) * rank, np.float32)))

        def root(inputs: Any, index: Any) -> tirx.Expr:
            return power(inputs[0](*index), tirx.const(1 / norm_type, inputs[0].dtype))

        return restored(at.elements(shape_of(sums), root, sums, name="power_root"))


# Adaptive pools: window i goes from floor(i n / m) to ceil((i + 1) n / m). The converter writes None as 0.


def _targets(output_size: tuple[Any, ...], extents: Shape) -> Shape:
    sizes = output_size * len(extents) if len(output_size) == 1 else output_size
    if len(sizes) != len(extents):
        raise CompileError(f"'output_size' should have {len(extents)} items, it has {len(sizes)}")
    made = tuple(n if size in (None, 0) else size for n, size in zip(extents, sizes, strict=True))
    if any(not isinstance(size, int) or not 1 <= size <= _MOST_WINDOWS for size in made):
        raise CompileError(f"'output_size' must be of integers from 1 to {_MOST_WINDOWS}, it is {list(made)}")
    return made


_MOST_WINDOWS = 1 << 24
"""Windows along one dimension of an adaptive pool; tables are made of them."""


def _adaptive_sizes(n: int, m: int) -> np.ndarray:
    """How many of `n` items each of `m` windows has."""
    i = np.arange(m)
    return np.asarray(-(-(i + 1) * n // m) - i * n // m)


def _adaptive(at: Lowering, input: Tensor, rank: int, output_size: tuple[Any, ...], average: bool) -> Result:
    x, restored = _batched(at, input, rank)
    extents = shape_of(x)[2:]
    result = _targets(output_size, extents)
    need_size((*shape_of(x)[:2], *result))
    if result == (1,) * rank:
        axes = list(range(2, 2 + rank))
        return restored((relax.op.mean if average else relax.op.max)(x, axes, keepdims=True))
    if all(n % m == 0 for n, m in zip(extents, result, strict=True)):
        size = [n // m for n, m in zip(extents, result, strict=True)]
        pool = _AVG[rank] if average else _MAX[rank]
        return restored(pool(x, pool_size=size, strides=size))
    return restored(_uneven(at, x, result, average))


def adaptive_average(at: Lowering, input: Tensor, result: Shape) -> Result:
    """The means over windows that divide the input into `result` parts a dimension."""
    return _adaptive(at, input, len(result), result, average=True)


def _uneven(at: Lowering, x: relax.Expr, result: Shape, average: bool) -> relax.Expr:
    """Windows of different sizes: each is as large as the largest, what does not belong to it is left out."""
    batch, channels, *extents = shape_of(x)
    sizes = [int(_adaptive_sizes(n, m).max()) for n, m in zip(extents, result, strict=True)]

    def compute(x: te.Tensor) -> te.Tensor:
        offsets = [te.reduce_axis((0, k), "k") for k in sizes]

        def element(b: tirx.Var, c: tirx.Var, *place: tirx.Var) -> tirx.Expr:
            source, inside = [], []
            for i, k, n, m in zip(place, offsets, extents, result, strict=True):
                start, end = tirx.floordiv(i * n, m), tirx.floordiv((i + 1) * n + m - 1, m)
                source.append(tirx.min(start + k, tirx.const(n - 1, "int64")))
                inside.append(start + k < end)
            rest = tirx.const(0, x.dtype) if average else tirx.min_value(x.dtype)
            value = tirx.if_then_else(tirx.all(*inside), x(b, c, *source), rest)
            return (te.sum if average else te.max)(value, axis=offsets)

        return te.compute((batch, channels, *result), element, name="adaptive_pool")

    made = at.emit(at.compute(compute, x, name="adaptive_pool"))
    if not average:
        return made
    counts = np.ones((1,) * len(result))
    for axis, (n, m) in enumerate(zip(extents, result, strict=True)):
        along = _adaptive_sizes(n, m).astype(np.float64)
        counts = counts * along.reshape([-1 if other == axis else 1 for other in range(len(result))])
    return relax.op.multiply(made, at.expr((1 / counts)[None, None].astype(dtype_of(x))))


def _declare_adaptive(rank: int) -> None:
    @operator(f"nn.AdaptiveAvgPool{rank}d", f"F.adaptive_avg_pool{rank}d", rank=rank)
    def _average_module(at: Lowering, input: Tensor, output_size: Extents, rank: int) -> Result:
        return _adaptive(at, input, rank, output_size, average=True)

    @operator(f"nn.AdaptiveMaxPool{rank}d", f"F.adaptive_max_pool{rank}d", rank=rank, limits="without indices")
    def _max_module(
        at: Lowering, input: Tensor, output_size: Extents, rank: int, return_indices: bool = False
    ) -> Result:
        if return_indices:
            raise CompileError("the indices of adaptive pools are not supported")
        return _adaptive(at, input, rank, output_size, average=False)


for _rank in (1, 2, 3):
    _declare_max(_rank)
    _declare_average(_rank)
    _declare_norm(_rank)
    _declare_adaptive(_rank)
