"""Computes grouped convolutions whose groups are narrower than a block: each lane reads the lanes of its own group.

    s[lane] += x[lane ^ turn] * W[turn][lane]        turn = 0, …, channels of a group - 1

In a whole block of 16 channels, in groups of four, that is four products for each position of the filter, where a
filter with zeros for the channels of the other groups takes sixteen. `x` with its lanes in another order is one
instruction on what has been loaded: see :mod:`nnefc.passes.tir.cpu.permute_lanes`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import te, tirx

from nnefc.symbolic.dims import dimension

__all__ = ["convolve_permuted", "permuted_filters"]


def permuted_filters(filters: np.ndarray, order: Sequence[int], size: int) -> np.ndarray | None:
    """`[C, channels of a group, *k]` → `[C blocks, *k[:-1], turns, k[-1], size]`, zero in slots without a channel.

    Args:
        order: the channel of each slot of blocks of `size`.

    Returns:
        None if the channels of a group do not lie side by side, at a multiple of their number.
    """
    turns = filters.shape[1]
    slots = np.arange(len(order))
    channels = np.asarray(order)
    groups = np.where(channels >= 0, channels // turns, -1).reshape(-1, turns)
    if np.any(groups != groups[:, :1]):
        return None
    own = channels >= 0
    parts = []
    for turn in range(turns):
        read = channels[slots ^ turn] % turns
        part = filters[np.maximum(channels, 0), read]
        parts.append(np.where(own.reshape(-1, *[1] * (part.ndim - 1)), part, np.zeros((), part.dtype)))
    made = np.stack(parts, -2)  # [slots, *k[:-1], turns, k[-1]]
    return np.ascontiguousarray(np.moveaxis(made.reshape(-1, size, *made.shape[1:]), 1, -1))


def convolve_permuted(
    data: te.Tensor, weights: te.Tensor, strides: Sequence[int], dilation: Sequence[int]
) -> te.Tensor:
    """Convolves in groups of as many outputs as inputs, without padding.

    Args:
        data: `[N, C blocks, *spatial, block]`.
        weights: as :func:`permuted_filters` makes them.

    Returns:
        `[N, C blocks, *spatial, block]`.
    """
    batch, outer, *sizes, block = data.shape
    *rows, turns, columns = weights.shape[1:-1]
    kernel = [*rows, columns]
    reach = [(int(k) - 1) * d + 1 for k, d in zip(kernel, dilation, strict=True)]
    spatial = [(dimension(e) - r) // s + 1 for e, r, s in zip(sizes, reach, strides, strict=True)]
    taps = [te.reduce_axis((0, size), f"k{axis}") for axis, size in enumerate(kernel)]
    turn = te.reduce_axis((0, turns), "turn")

    def element(n: tirx.Var, o: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        at = [p * s + t * d for p, s, t, d in zip(position, strides, taps, dilation, strict=True)]
        weight = weights(o, *taps[:-1], turn, taps[-1], lane)
        value = data(n, o, *at, lane ^ turn)
        return te.sum(value * weight.astype(value.expr_ty().dtype), axis=[*taps[:-1], turn, taps[-1]])

    return te.compute((batch, outer, *spatial, block), element, name="convolution")
