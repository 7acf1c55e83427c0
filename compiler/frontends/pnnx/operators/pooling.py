"""Pooling in 1 to 3 dimensions: max, average, Lp, adaptive."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from nnefc.frontends.pnnx.lowering import Lowering, Shape, Tensor, shape_of
from nnefc.frontends.pnnx.operators.declaration import Ints, Result, Sizes, need_real, operator, spatial
from nnefc.operators.base import check_size
from nnefc.operators.math.elementwise import apply
from nnefc.operators.nn.pooling import AdaptivePool, ArgMaxPool, AveragePool, LpPool, MaxPool
from nnefc.operators.nn.window import Window
from nnefc.operators.tensor.shape import Squeeze, Unsqueeze
from nnefc.support.diagnostics import CompileError

__all__ = ["adaptive_average"]

_ONE, _ZERO = Ints((1,)), Ints((0,))


def _batched(ctx: Lowering, input: Tensor, rank: int) -> tuple[Tensor, Callable[[Tensor], Tensor]]:
    """The input with a batch, and what takes a batch that was added away again."""
    need_real(input)
    shape = shape_of(input)
    if len(shape) not in (rank + 1, rank + 2) or 0 in shape:
        raise CompileError(f"the input {list(shape)} should have the rank {rank + 2} and no empty dimension")
    if len(shape) == rank + 2:
        return input, lambda made: made
    return ctx.apply(Unsqueeze((0,)), input), lambda made: Squeeze((0,)).lower(ctx, ctx.bound(made))


def _window(
    rank: int, kernel_size: Ints, stride: Ints | None = None, padding: Ints = _ZERO, dilation: Ints = _ONE
) -> Window:
    size = spatial(kernel_size, rank, "kernel_size")
    # An empty stride is none.
    step = spatial(stride, rank, "stride") if stride else size
    around = spatial(padding, rank, "padding", 0)
    for amount, length in zip(around, size, strict=True):
        if 2 * amount > length:
            raise CompileError(f"the padding {amount} is more than half of the window {length}")
    return Window(size, step, spatial(dilation, rank, "dilation"), tuple((amount, amount) for amount in around))


def _declare_max(rank: int) -> None:
    @operator(f"nn.MaxPool{rank}d", f"F.max_pool{rank}d", rank=rank)
    def _max_pool(
        ctx: Lowering,
        input: Tensor,
        kernel_size: Ints,
        rank: int,
        stride: Ints | None = None,
        padding: Ints = _ZERO,
        dilation: Ints = _ONE,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Result:
        x, restored = _batched(ctx, input, rank)
        window = _window(rank, kernel_size, stride, padding, dilation)
        made = restored(MaxPool(window, ceil_mode, keeps_nan=True).lower(ctx, x))
        if not return_indices:
            return made
        return made, restored(ArgMaxPool(window, ceil_mode, keeps_nan=True).lower(ctx, x))


def _declare_average(rank: int) -> None:
    @operator(f"nn.AvgPool{rank}d", f"F.avg_pool{rank}d", rank=rank)
    def _avg_pool(
        ctx: Lowering,
        input: Tensor,
        kernel_size: Ints,
        rank: int,
        stride: Ints | None = None,
        padding: Ints = _ZERO,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> Result:
        if divisor_override == 0:
            raise CompileError("'divisor_override' must not be 0")
        x, restored = _batched(ctx, input, rank)
        window = _window(rank, kernel_size, stride, padding)
        return restored(AveragePool(window, ceil_mode, count_include_pad, divisor_override).lower(ctx, x))


def _declare_norm(rank: int) -> None:
    @operator(f"nn.LPPool{rank}d", f"F.lp_pool{rank}d", rank=rank)
    def _lp_pool(
        ctx: Lowering,
        input: Tensor,
        norm_type: float,
        kernel_size: Ints,
        rank: int,
        stride: Ints | None = None,
        ceil_mode: bool = False,
    ) -> Result:
        if norm_type == 0:
            raise CompileError("'norm_type' must not be 0")
        x, restored = _batched(ctx, input, rank)
        window = _window(rank, kernel_size, stride)
        if math.isinf(norm_type):
            sign = math.copysign(1, norm_type)
            sizes = apply(ctx, "multiply", apply(ctx, "abs", x), ctx.number(sign, x))
            largest = ctx.apply(MaxPool(window, ceil_mode), sizes)
            return restored(apply(ctx, "multiply", largest, ctx.number(sign, x)))
        return restored(LpPool(window, ceil_mode, norm_type, signed=True).lower(ctx, x))


# Adaptive pools: window i goes from floor(i n / m) to ceil((i + 1) n / m). The converter writes None as 0.


def _targets(output_size: tuple[Any, ...], lengths: Shape) -> Shape:
    sizes = output_size * len(lengths) if len(output_size) == 1 else output_size
    if len(sizes) != len(lengths):
        raise CompileError(f"'output_size' should have {len(lengths)} elements, it has {len(sizes)}")
    made = tuple(n if size in (None, 0) else size for n, size in zip(lengths, sizes, strict=True))
    if any(not isinstance(size, int) or not 1 <= size <= _MAX_WINDOWS for size in made):
        raise CompileError(f"'output_size' must be of integers from 1 to {_MAX_WINDOWS}, it is {list(made)}")
    return made


_MAX_WINDOWS = 1 << 24
"""Windows along one dimension of an adaptive pool; tables are made of them."""


def _adaptive(ctx: Lowering, input: Tensor, rank: int, output_size: tuple[Any, ...], average: bool) -> Result:
    x, restored = _batched(ctx, input, rank)
    sizes = shape_of(x)[2:]
    result = _targets(output_size, sizes)
    check_size((*shape_of(x)[:2], *result))
    return restored(AdaptivePool(result, average).lower(ctx, x))


def adaptive_average(ctx: Lowering, input: Tensor, result: Shape) -> Result:
    """The means over windows that divide the input into `result` parts a dimension."""
    return _adaptive(ctx, input, len(result), result, average=True)


def _declare_adaptive(rank: int) -> None:
    @operator(f"nn.AdaptiveAvgPool{rank}d", f"F.adaptive_avg_pool{rank}d", rank=rank)
    def _average_module(ctx: Lowering, input: Tensor, output_size: Sizes, rank: int) -> Result:
        return _adaptive(ctx, input, rank, output_size, average=True)

    @operator(f"nn.AdaptiveMaxPool{rank}d", f"F.adaptive_max_pool{rank}d", rank=rank, limits="without indices")
    def _max_module(
        ctx: Lowering, input: Tensor, output_size: Sizes, rank: int, return_indices: bool = False
    ) -> Result:
        if return_indices:
            raise CompileError("the indices of adaptive pools are not supported")
        return _adaptive(ctx, input, rank, output_size, average=False)


for _rank in (1, 2, 3):
    _declare_max(_rank)
    _declare_average(_rank)
    _declare_norm(_rank)
    _declare_adaptive(_rank)
