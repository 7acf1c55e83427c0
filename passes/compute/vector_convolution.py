"""Computes convolutions of tensors in blocks of the channels that a thread of a GPU loads at once.

Eight 16-bit floats are the 16 bytes of one load or asynchronous copy. In blocks of eight channels, `[N, C / 8,
*spatial, 8]`, each is a vector of the depth of a matrix product, at whatever pixel the window is: an implicit GEMM
without a matrix of windows. Neighbouring pixels lie side by side, so that a warp reads and writes full lines. Padding
is a condition on the loads.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import te, tirx

from nnefc.operators.nn.convolution import accumulator, converted
from nnefc.passes.compute.blocked import block_array
from nnefc.passes.compute.row_major_convolution import GuardedWindow
from nnefc.symbolic.dims import dimensions

__all__ = ["add_pointwise_vectors", "convolve_depthwise_vectors", "convolve_vectors", "pack_vectors"]


def pack_vectors(filters: np.ndarray, size: int) -> np.ndarray:
    """`[O, I / groups, *k]` → `[*k, I / groups blocks, size, O blocks, size]`, filled up with zeros."""
    packed = block_array(block_array(filters, 0, size), 1, size)  # [O, I, *k, o, i]
    outer, inner, *kernel, _, _ = range(packed.ndim)
    return np.ascontiguousarray(packed.transpose(*kernel, inner, packed.ndim - 1, outer, packed.ndim - 2))


def convolve_vectors(
    data: te.Tensor,
    packed: te.Tensor,
    before: Sequence[int],
    after: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    dtype: str,
) -> te.Tensor:
    """Convolution with zeros around, where each group has full blocks.

    Args:
        data: `[N, groups · I, *spatial, size]`, I and O being blocks.
        packed: `[*k, I, size, groups · O, size]`.
        before, after: zeros on both sides of each spatial dimension.
        dtype: of the result; half precision is summed up in single precision.

    Returns:
        `[N, groups · O, *spatial, size]`.
    """
    batch, _, *sizes, size = dimensions(data.shape)
    *kernel, inputs, _, outputs, _ = dimensions(packed.shape)
    window = GuardedWindow(sizes, kernel, before, after, strides, dilation)
    taps = [te.reduce_axis((0, length), f"k{axis}") for axis, length in enumerate(kernel)]
    outer, inner = te.reduce_axis((0, inputs), "rb"), te.reduce_axis((0, size), "ri")
    of_group = outputs // groups
    sums = accumulator(dtype)

    def element(n: tirx.Var, block: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        first = 0 if groups == 1 else block // of_group * inputs
        value = window.element(lambda at: data(n, first + outer, *at, inner), position, taps)
        weight = packed(*taps, outer, inner, block, lane)
        return te.sum(value.astype(sums) * weight.astype(sums), axis=[*taps, outer, inner])

    return converted(te.compute((batch, outputs, *window.results, size), element, name="convolution"), dtype)


def add_pointwise_vectors(
    first: te.Tensor, second: te.Tensor, packed: te.Tensor, strides: Sequence[int], dtype: str
) -> te.Tensor:
    """Sum of two convolutions with windows of one pixel, as one sum over the channels of both.

    Args:
        first: `[N, I, *spatial, size]`, I and O being blocks.
        second: `[N, J, *larger, size]`, read with `strides`.
        packed: `[I + J, size, O, size]`.
        dtype: of the result; half precision is summed up in single precision.

    Returns:
        `[N, O, *spatial, size]`.
    """
    batch, inputs, *sizes, size = dimensions(first.shape)
    both, _, outputs, _ = dimensions(packed.shape)
    outer, inner = te.reduce_axis((0, both), "rb"), te.reduce_axis((0, size), "ri")
    sums = accumulator(dtype)

    def element(n: tirx.Var, block: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        at = [p * step for p, step in zip(position, strides, strict=True)]
        other = second(n, outer - inputs, *at, inner)
        value = tirx.if_then_else(outer < inputs, first(n, outer, *position, inner), other)
        weight = packed(outer, inner, block, lane)
        return te.sum(value.astype(sums) * weight.astype(sums), axis=[outer, inner])

    return converted(te.compute((batch, outputs, *sizes, size), element, name="convolution"), dtype)


def convolve_depthwise_vectors(
    data: te.Tensor,
    packed: te.Tensor,
    before: Sequence[int],
    after: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    dtype: str,
) -> te.Tensor:
    """Convolution of each channel by a filter of its own, with zeros around.

    Args:
        data: `[N, C blocks, *spatial, size]`.
        packed: `[C blocks, *k, size]`.
        before, after: zeros on both sides of each spatial dimension.
        dtype: of the result; half precision is summed up in single precision.

    Returns:
        `[N, C blocks, *spatial, size]`.
    """
    batch, blocks, *sizes, size = dimensions(data.shape)
    _, *kernel, _ = dimensions(packed.shape)
    window = GuardedWindow(sizes, kernel, before, after, strides, dilation)
    taps = [te.reduce_axis((0, length), f"k{axis}") for axis, length in enumerate(kernel)]
    sums = accumulator(dtype)

    def element(n: tirx.Var, block: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        value = window.element(lambda at: data(n, block, *at, lane), position, taps)
        return te.sum(packed(block, *taps, lane).astype(sums) * value.astype(sums), axis=taps)

    made = te.compute((batch, blocks, *window.results, size), element, name="depthwise_convolution")
    return converted(made, dtype)
