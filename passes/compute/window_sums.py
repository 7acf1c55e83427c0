"""Sums integers under a sliding window over all channels: a convolution with a filter of ones.

lanes[n, y, x, i] = Σ_b x[n, b, y, x, i]       of slots that hold a channel
pixels[n, 0, y, x] = Σ_i lanes[n, y, x, i]
sums[n, 0, y, x] = Σ_taps pixels[n, 0, y · s + ty, x · s + tx]
"""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Sequence

from tvm import te, tirx

from nnefc.symbolic.dims import dimension

__all__ = ["sum_blocks", "sum_channels", "sum_lanes", "sum_windows"]


def sum_blocks(data: te.Tensor, kept: te.Tensor) -> te.Tensor:
    """Sums bytes over blocks, `[N, blocks, *spatial, b]` → int32 `[N, *spatial, b]`; `kept` `[blocks, b]` masks the
    bits that count.
    """
    batch, outer, *spatial, size = data.shape
    block = te.reduce_axis((0, outer), "block")

    def element(n: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        return te.sum((data(n, block, *position, lane) & kept(block, lane)).astype("int32"), axis=block)

    return te.compute((batch, *spatial, size), element, name="lanes")


def sum_lanes(data: te.Tensor) -> te.Tensor:
    """Sums over lanes, `[N, *spatial, b]` → `[N, 1, *spatial]`."""
    batch, *spatial, size = data.shape
    lane = te.reduce_axis((0, size), "lane")
    return te.compute((batch, 1, *spatial), lambda n, _, *at: te.sum(data(n, *at, lane), axis=lane), name="pixels")


def sum_channels(data: te.Tensor) -> te.Tensor:
    """Sums over a few channels, bytes `[N, C, *spatial]` → int32 `[N, 1, *spatial]`."""
    batch, channels, *spatial = data.shape

    def element(n: tirx.Var, _: tirx.Var, *at: tirx.Var) -> tirx.Expr:
        return functools.reduce(operator.add, (data(n, c, *at).astype("int32") for c in range(int(channels))))

    return te.compute((batch, 1, *spatial), element, name="pixels")


def sum_windows(data: te.Tensor, kernel: Sequence[int], strides: Sequence[int], dilation: Sequence[int]) -> te.Tensor:
    """Sums under windows of the size `kernel`, without padding: `[N, 1, *spatial]` → the same with fewer positions."""
    batch, _, *sizes = data.shape
    positions = zip(sizes, kernel, strides, dilation, strict=True)
    spatial = [(dimension(size) - (taps - 1) * step - 1) // stride + 1 for size, taps, stride, step in positions]

    def element(n: tirx.Var, one: tirx.Var, *at: tirx.Var) -> tirx.Expr:
        steps = list(zip(at, strides, dilation, strict=True))
        taps = itertools.product(*map(range, kernel))
        return functools.reduce(
            operator.add,
            (data(n, one, *(i * s + t * d for t, (i, s, d) in zip(tap, steps, strict=True))) for tap in taps),
        )

    return te.compute((batch, 1, *spatial), element, name="windows")
