"""Computes convolutions of tensors in blocks of the channels that a thread of a GPU loads at once.

Eight 16-bit floats are the 16 bytes of one load or asynchronous copy, and so are 16 bytes. In blocks of eight or 16
channels, `[N, C / 8, *spatial, 8]`, each is a vector of the depth of a matrix product, at whatever pixel the window is:
an implicit GEMM without a matrix of windows. Neighbouring pixels lie side by side, so that a warp reads and writes full
lines. Padding is a condition on the loads: outside of the data they read a constant vector, or nothing where it is
zero.

Tensor cores read bytes along the depth alone, so that the input channels of a block are the last axis of their packed
filters, and the output channels that of others.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import te, tirx

from nnefc.operators.nn.convolution import accumulator, converted
from nnefc.passes.compute.blocked import block_array
from nnefc.passes.compute.row_major_convolution import GuardedWindow
from nnefc.support.element_types import EIGHT_BITS
from nnefc.symbolic.dims import dimensions

__all__ = [
    "add_pointwise_vectors",
    "convolve_depthwise_vectors",
    "convolve_vectors",
    "convolve_vectors_within",
    "gather_taps",
    "pack_taps",
    "pack_vectors",
]


def pack_vectors(filters: np.ndarray, size: int) -> np.ndarray:
    """`[O, I / groups, *k]` → `[*k, I / groups blocks, size, O blocks, size]`, filled up with zeros.

    Bytes: `[*k, I / groups blocks, O blocks, size, size]`, input channels last.
    """
    packed = block_array(block_array(filters, 0, size), 1, size)  # [O, I, *k, o, i]
    outer, inner, *kernel, outer_lane, inner_lane = range(packed.ndim)
    is_deep = str(filters.dtype) in EIGHT_BITS
    tail = (outer, outer_lane, inner_lane) if is_deep else (inner_lane, outer, outer_lane)
    return np.ascontiguousarray(packed.transpose(*kernel, inner, *tail))


def pack_taps(filters: np.ndarray, taps: int, channels: int) -> np.ndarray:
    """`[O, C, *k, w]` → `[O, taps · channels, *k, ceil(w / taps)]`: neighbouring taps of a row as channels; zeros
    where there is no tap or no channel.
    """
    outputs, inputs, *kernel, width = filters.shape
    packed = np.zeros((outputs, taps, channels, *kernel, -(-width // taps)), filters.dtype)
    for tap in range(width):
        packed[:, tap % taps, :inputs, ..., tap // taps] = filters[..., tap]
    return packed.reshape(outputs, taps * channels, *packed.shape[3:])


def gather_taps(
    data: te.Tensor, columns: int, before: int, step: int, taps: int, channels: int, around: int
) -> te.Tensor:
    """`[N, C, *spatial, W]` → `[N, 1, *spatial, columns, taps · channels]`: at each column, `taps` elements of the row.

    Args:
        before: by how many columns the first one lies before the data.
        step: from an element to the next.
        channels: C, filled up.
        around: the value of elements beyond the row.
    """
    batch, inputs, *sizes, width = dimensions(data.shape)

    def element(n: tirx.Var, _block: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, column, lane = tail
        at, channel = column + lane // channels * step - before, lane % channels
        inside = tirx.all(at >= 0, at < width, channel < inputs)
        return tirx.if_then_else(inside, data(n, channel, *position, at), tirx.const(around, data.dtype))

    return te.compute((batch, 1, *sizes, columns, taps * channels), element, name="block")


def _weight(
    packed: te.Tensor,
    taps: Sequence[tirx.Expr],
    inputs: tuple[tirx.Expr, tirx.Expr],
    outputs: tuple[tirx.Expr, tirx.Expr],
) -> tirx.Expr:
    """Returns the element of packed filters for a block and a lane of the input and of the output channels."""
    (inner, inner_lane), outer = inputs, outputs
    is_deep = str(packed.dtype) in EIGHT_BITS
    return packed(*taps, inner, *outer, inner_lane) if is_deep else packed(*taps, inner, inner_lane, *outer)


def _output_blocks(packed: te.Tensor) -> int:
    """Returns the blocks of output channels of packed filters."""
    blocks: int = dimensions(packed.shape)[-3 if str(packed.dtype) in EIGHT_BITS else -2]
    return blocks


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
        packed: `[*k, I, size, groups · O, size]`, or of bytes `[*k, I, groups · O, size, size]`.
        before, after: zeros on both sides of each spatial dimension.
        dtype: of the result; half precision is summed up in single precision.

    Returns:
        `[N, groups · O, *spatial, size]`.
    """
    return _convolve(data, packed, (before, after, strides, dilation), groups, dtype)


def convolve_vectors_within(
    data: te.Tensor,
    packed: te.Tensor,
    around: te.Tensor,
    before: Sequence[int],
    after: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    dtype: str,
) -> te.Tensor:
    """The same with the values of `around`, `[size]`, in place of zeros: as many bytes as one copy has."""
    return _convolve(data, packed, (before, after, strides, dilation), groups, dtype, around)


def _convolve(
    data: te.Tensor,
    packed: te.Tensor,
    sliding: tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]],
    groups: int,
    dtype: str,
    around: te.Tensor | None = None,
) -> te.Tensor:
    batch, _, *sizes, size = dimensions(data.shape)
    *kernel, inputs, _, _, _ = dimensions(packed.shape)
    outputs = _output_blocks(packed)
    window = GuardedWindow(sizes, kernel, *sliding)
    taps = [te.reduce_axis((0, length), f"k{axis}") for axis, length in enumerate(kernel)]
    outer, inner = te.reduce_axis((0, inputs), "rb"), te.reduce_axis((0, size), "ri")
    of_group = outputs // groups
    sums = accumulator(dtype)

    def element(n: tirx.Var, block: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        first = 0 if groups == 1 else block // of_group * inputs
        outside = None if around is None else around(inner)
        value = window.element(lambda at: data(n, first + outer, *at, inner), position, taps, outside)
        weight = _weight(packed, taps, (outer, inner), (block, lane))
        return te.sum(value.astype(sums) * weight.astype(sums), axis=[*taps, outer, inner])

    return converted(te.compute((batch, outputs, *window.results, size), element, name="convolution"), dtype)


def add_pointwise_vectors(
    first: te.Tensor, second: te.Tensor, packed: te.Tensor, strides: Sequence[int], dtype: str
) -> te.Tensor:
    """Sum of two convolutions with windows of one pixel, as one sum over the channels of both.

    Args:
        first: `[N, I, *spatial, size]`, I and O being blocks.
        second: `[N, J, *larger, size]`, read with `strides`.
        packed: `[I + J, size, O, size]`, or of bytes `[I + J, O, size, size]`.
        dtype: of the result; half precision is summed up in single precision.

    Returns:
        `[N, O, *spatial, size]`.
    """
    batch, inputs, *sizes, size = dimensions(first.shape)
    both, outputs = dimensions(packed.shape)[0], _output_blocks(packed)
    outer, inner = te.reduce_axis((0, both), "rb"), te.reduce_axis((0, size), "ri")
    sums = accumulator(dtype)

    def element(n: tirx.Var, block: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        at = [p * step for p, step in zip(position, strides, strict=True)]
        other = second(n, outer - inputs, *at, inner)
        value = tirx.if_then_else(outer < inputs, first(n, outer, *position, inner), other)
        weight = _weight(packed, (), (outer, inner), (block, lane))
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
    around: int = 0,
) -> te.Tensor:
    """Convolution of each channel by a filter of its own.

    Args:
        data: `[N, C blocks, *spatial, size]`.
        packed: `[C blocks, *k, size]`.
        before, after: widths of the padding on both sides of each spatial dimension.
        dtype: of the result; half precision is summed up in single precision.
        around: the value of the padding.

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
        outside = tirx.const(around, data.dtype)
        value = window.element(lambda at: data(n, block, *at, lane), position, taps, outside)
        return te.sum(packed(block, *taps, lane).astype(sums) * value.astype(sums), axis=taps)

    made = te.compute((batch, blocks, *window.results, size), element, name="depthwise_convolution")
    return converted(made, dtype)
