"""Computes convolutions in blocked layout; see :mod:`nnefc.passes.compute.blocked`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import te, tirx

from nnefc.passes.compute.blocked import block_array, multiply
from nnefc.symbolic.dims import dimension, expression

__all__ = ["convolve", "convolve_depthwise", "convolve_wider", "pack_filter", "scale_inputs"]


def pack_filter(weights: np.ndarray, block_in: int, block_out: int, groups: int) -> np.ndarray:
    """`[O, I / groups, *k]` → `[groups · O blocks, I blocks, *k, block_in, block_out]`, filled up with zeros.

    With `block_in` = 0 the input channels stay one dimension: `[groups · O blocks, 1, *k, I / groups, block_out]`. Then
    no multiplication is spent on what fills up the last block of the data.
    """
    outputs, inputs, *kernel = weights.shape
    grouped = weights.reshape(groups, outputs // groups, inputs, *kernel)
    packed = block_array(block_array(grouped, 2, block_in or inputs), 1, block_out)
    return packed.reshape(-1, *packed.shape[2:])


def scale_inputs(weights: te.Tensor, scale: te.Tensor) -> te.Tensor:
    """Multiplies a filter, as :func:`pack_filter` makes it for one group, by a factor for each input channel.

    Args:
        scale: `[1, C blocks, 1, …, block]`.
    """
    of_block, size = weights.shape[-2], scale.shape[-1]
    ones = [0] * (len(scale.shape) - 3)

    def element(*index: tirx.Var) -> tirx.Expr:
        _, outer, *_, inner, _ = index
        channel = outer * of_block + inner
        return weights(*index).astype(scale.dtype) * scale(0, channel // size, *ones, channel % size)

    return te.compute(weights.shape, element, name="scale")


def convolve(
    data: te.Tensor,
    weights: te.Tensor,
    strides: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    product: Callable[[tirx.Expr, tirx.Expr], tirx.Expr] = multiply,
    outputs: tuple[int, int] | None = None,
) -> te.Tensor:
    """Convolves without padding.

    Args:
        data: `[N, groups · I blocks, *spatial, b]`, or `[N, I, *spatial]` where the filter's input channels are not
            blocked (groups = 1).
        weights: as :func:`pack_filter` makes them.
        product: of an element of the data and one of the weights.
        outputs: blocks of the result, and channels in each, if the filter's are wider (groups = 1).

    Returns:
        `[N, groups · O blocks, *spatial, block_out]`.
    """
    batch = data.shape[0]
    filters, in_blocks, *kernel, block_in, wide = weights.shape
    outer, block_out = (filters, wide) if outputs is None else map(expression, outputs)
    rank = len(kernel)
    row_major = len(data.shape) == rank + 2
    reach = [(int(k) - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    spatial = [(dimension(e) - r) // s + 1 for e, r, s in zip(data.shape[2 : 2 + rank], reach, strides, strict=True)]
    of_group = int(outer) // groups
    rc = te.reduce_axis((0, in_blocks), "rc")
    taps = [te.reduce_axis((0, size), f"k{axis}") for axis, size in enumerate(kernel)]
    ri = te.reduce_axis((0, block_in), "ri")

    def element(n: tirx.Var, o: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        at = [p * s + t * d for p, s, t, d in zip(position, strides, taps, dilation, strict=True)]
        if row_major:
            value = data(n, ri, *at)
        else:
            channel = rc * block_in + ri
            start = 0 if groups == 1 else o // of_group * (data.shape[1] // groups)
            value = data(n, start + channel // data.shape[-1], *at, channel % data.shape[-1])
        block, first = (o, 0) if outputs is None else (o * block_out // wide, o * block_out % wide)
        weight = weights(block, rc, *taps, ri, first + lane)
        return te.sum(product(value, weight), axis=[rc, *taps, ri])

    return te.compute((batch, outer, *spatial, block_out), element, name="convolution")


def convolve_wider(
    data: te.Tensor,
    weights: te.Tensor,
    strides: Sequence[int],
    dilation: Sequence[int],
    width: int,
    product: Callable[[tirx.Expr, tirx.Expr], tirx.Expr] = multiply,
    blocks: int | None = None,
    outputs: tuple[int, int] | None = None,
) -> te.Tensor:
    """Convolve in one group, see :func:`convolve`, and crop the result to `width` columns and `blocks` output blocks.

    `data` may have more columns than `width` needs, and `weights` more blocks of output channels.
    """
    whole = convolve(data, weights, strides, dilation, 1, product, outputs)
    batch, outer, *rows, _, block = whole.shape
    return te.compute((batch, blocks or outer, *rows, width, block), lambda *index: whole(*index), name="columns")


def convolve_depthwise(
    data: te.Tensor,
    weights: te.Tensor,
    strides: Sequence[int],
    dilation: Sequence[int],
    product: Callable[[tirx.Expr, tirx.Expr], tirx.Expr] = multiply,
) -> te.Tensor:
    """Convolves each channel with a filter of its own, without padding.

    Args:
        data: `[N, C blocks, *spatial, block]`.
        weights: `[C blocks, *k, block]`.
        product: of an element of the data and one of the weights.

    Returns:
        `[N, C blocks, *spatial, block]`.
    """
    batch, outer, *sizes, block = data.shape
    kernel = weights.shape[1:-1]
    reach = [(int(k) - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    spatial = [(dimension(e) - r) // s + 1 for e, r, s in zip(sizes, reach, strides, strict=True)]
    taps = [te.reduce_axis((0, size), f"k{axis}") for axis, size in enumerate(kernel)]

    def element(n: tirx.Var, o: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        at = [p * s + t * d for p, s, t, d in zip(position, strides, taps, dilation, strict=True)]
        return te.sum(product(data(n, o, *at, lane), weights(o, *taps, lane)), axis=taps)

    return te.compute((batch, outer, *spatial, block), element, name="convolution")
