"""Computes convolutions of tensors in blocks of the channels that a thread of a GPU loads at once.

Eight 16-bit floats are the 16 bytes of one load or asynchronous copy, and so are 16 bytes. In blocks of eight or 16
channels, `[N, C / 8, *spatial, 8]`, each is a vector of the depth of a matrix product, at whatever pixel the window is:
an implicit GEMM without a matrix of windows. Neighbouring pixels lie side by side, so that a warp reads and writes full
lines. Padding is a condition on the loads: outside of the data they read a constant vector, or nothing where it is
zero.

Tensor cores read bytes and single precision along the depth alone: input channels are the last axis of their packed
filters, and output channels that of 16-bit floats. Of single precision, the whole depth of an output channel lies side
by side, so that bulk copies fetch long rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    "join_pointwise",
    "pack_taps",
    "pack_vectors",
]


def pack_vectors(filters: np.ndarray, size: int) -> np.ndarray:
    """`[O, I / groups, *k]` → `[*k, I / groups blocks, size, O blocks, size]`, filled up with zeros.

    Bytes: `[*k, I / groups blocks, O blocks, size, size]`, input channels last.
    Single precision: `[O blocks, size, *k, I / groups blocks, size]`.
    """
    packed = block_array(block_array(filters, 0, size), 1, size)  # [O, I, *k, o, i]
    outer, inner, *kernel, outer_lane, inner_lane = range(packed.ndim)
    if str(filters.dtype) == "float32":
        axes = (outer, outer_lane, *kernel, inner, inner_lane)
    elif str(filters.dtype) in EIGHT_BITS:
        axes = (*kernel, inner, outer, outer_lane, inner_lane)
    else:
        axes = (*kernel, inner, inner_lane, outer, outer_lane)
    return np.ascontiguousarray(packed.transpose(axes))


def join_pointwise(packed: Sequence[np.ndarray]) -> np.ndarray:
    """Joins packed filters with windows of one pixel along their input channels; the axes of windows are left out."""
    if str(packed[0].dtype) == "float32":
        return np.concatenate([each.reshape(*each.shape[:2], *each.shape[-2:]) for each in packed], axis=2)
    return np.concatenate([each.reshape(each.shape[-4:]) for each in packed])


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


@dataclass(frozen=True)
class _Filters:
    """Packed filters, as :func:`pack_vectors` returns them.

    Attributes:
        kernel: sizes of the window.
        inputs, outputs: blocks of channels.
    """

    packed: te.Tensor
    kernel: Sequence[int]
    inputs: int
    outputs: int

    @staticmethod
    def of(packed: te.Tensor) -> _Filters:
        sizes = dimensions(packed.shape)
        match str(packed.dtype):
            case "float32":
                outputs, _, *kernel, inputs, _ = sizes
            case dtype if dtype in EIGHT_BITS:
                *kernel, inputs, outputs, _, _ = sizes
            case _:
                *kernel, inputs, _, outputs, _ = sizes
        return _Filters(packed, kernel, inputs, outputs)

    def weight(
        self, taps: Sequence[tirx.Expr], inputs: tuple[tirx.Expr, tirx.Expr], outputs: tuple[tirx.Expr, tirx.Expr]
    ) -> tirx.Expr:
        """Returns the element for a block and a lane of the input and of the output channels."""
        (inner, inner_lane), outer = inputs, outputs
        match str(self.packed.dtype):
            case "float32":
                return self.packed(*outer, *taps, inner, inner_lane)
            case dtype if dtype in EIGHT_BITS:
                return self.packed(*taps, inner, *outer, inner_lane)
            case _:
                return self.packed(*taps, inner, inner_lane, *outer)


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
    """Convolves with zero padding, where each group has full blocks.

    Args:
        data: `[N, groups · I, *spatial, size]`, I and O being blocks.
        packed: `[*k, I, size, groups · O, size]`, or as :func:`pack_vectors` packs other types.
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
    """Convolves as :func:`convolve_vectors`, padded with the values of `around`, `[size]`, which are as many bytes as
    one copy moves.
    """
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
    filters = _Filters.of(packed)
    window = GuardedWindow(sizes, filters.kernel, *sliding)
    taps = [te.reduce_axis((0, length), f"k{axis}") for axis, length in enumerate(filters.kernel)]
    outer, inner = te.reduce_axis((0, filters.inputs), "rb"), te.reduce_axis((0, size), "ri")
    of_group = filters.outputs // groups
    sums = accumulator(dtype)

    def element(n: tirx.Var, block: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        first = 0 if groups == 1 else block // of_group * filters.inputs
        outside = None if around is None else around(inner)
        value = window.element(lambda at: data(n, first + outer, *at, inner), position, taps, outside)
        weight = filters.weight(taps, (outer, inner), (block, lane))
        return te.sum(value.astype(sums) * weight.astype(sums), axis=[*taps, outer, inner])

    return converted(te.compute((batch, filters.outputs, *window.results, size), element, name="convolution"), dtype)


def add_pointwise_vectors(
    first: te.Tensor, second: te.Tensor, packed: te.Tensor, strides: Sequence[int], dtype: str
) -> te.Tensor:
    """Adds two convolutions with windows of one pixel, as one sum over the channels of both.

    Args:
        first: `[N, I, *spatial, size]`, I and O being blocks.
        second: `[N, J, *larger, size]`, read with `strides`.
        packed: `[I + J, size, O, size]`, or as :func:`join_pointwise` joins filters of other types.
        dtype: of the result; half precision is summed up in single precision.

    Returns:
        `[N, O, *spatial, size]`.
    """
    batch, inputs, *sizes, size = dimensions(first.shape)
    filters = _Filters.of(packed)
    outer, inner = te.reduce_axis((0, filters.inputs), "rb"), te.reduce_axis((0, size), "ri")
    sums = accumulator(dtype)

    def element(n: tirx.Var, block: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        at = [p * step for p, step in zip(position, strides, strict=True)]
        other = second(n, outer - inputs, *at, inner)
        value = tirx.if_then_else(outer < inputs, first(n, outer, *position, inner), other)
        weight = filters.weight((), (outer, inner), (block, lane))
        return te.sum(value.astype(sums) * weight.astype(sums), axis=[outer, inner])

    return converted(te.compute((batch, filters.outputs, *sizes, size), element, name="convolution"), dtype)


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
    """Convolves each channel with a filter of its own.

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
