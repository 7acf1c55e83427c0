"""Computes int8 contractions by an instruction that multiplies two vectors and sums all products into a scalar.

Its operands are vectors along the sum, see `passes/tir/cpu/lower_dot_accumulate.py`: the reduced axis comes last in
both factors.
A few accumulators share the data: their weights are interleaved, one vector of each, in the order in which they are
read. Where signedness differs, or fewer bytes are contiguous, loads extend eight or four bytes to wider lanes.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import te, tirx

from nnefc.symbolic.dims import dimension

__all__ = [
    "convolve_lanes",
    "convolve_rows",
    "filled_up",
    "in_tiles",
    "multiply_lanes",
    "pack_columns",
    "pack_rows",
    "vector_elements",
]


def _lengths(vector: int) -> tuple[int, int, int]:
    """Returns how many bytes one instruction multiplies: as they are, or extended to 16 or to 32 bits."""
    return vector, vector // 2, vector // 4


def vector_elements(count: int, vector: int, same_sign: bool = True) -> int:
    """Returns the elements, of `count` contiguous ones, that one instruction takes; 1 if they do not fill vectors.

    Args:
        vector: bytes of one, see `Target.summed_bytes`.
    """
    return next((n for n in _lengths(vector) if count % n == 0 and (same_sign or n < vector)), 1)


def filled_up(count: int, vector: int) -> int:
    """`count`, or as many as there are with zeros behind them that fill the last vector of so many bytes."""
    whole = next((n for n in reversed(_lengths(vector)) if n >= count), vector)
    return -(-count // whole) * whole


def in_tiles(packed: np.ndarray, together: int) -> np.ndarray:
    """Returns a filter `[O blocks, …, I, block_out]` as `[O blocks, tiles, …, together, I]`: tiles of a few output
    channels.
    """
    tiled = packed.reshape(*packed.shape[:-1], -1, together)
    return np.ascontiguousarray(np.swapaxes(np.moveaxis(tiled, -2, 1), -1, -2))


def convolve_lanes(
    data: te.Tensor, weights: te.Tensor, strides: Sequence[int], dilation: Sequence[int], groups: int
) -> te.Tensor:
    """Convolution without padding.

    Args:
        data: `[N, groups · I blocks, *spatial, b]`.
        weights: `[groups · O blocks, tiles, I blocks, *k, together, b]`, see :func:`in_tiles`.

    Returns:
        `[N, groups · O blocks, *spatial, block_out]`, int32.
    """
    outer, tiles, in_blocks, *kernel, together, block_in = weights.shape
    of_group = int(outer) // groups
    spatial = _results(data.shape[2:-1], kernel, strides, dilation)
    rc = te.reduce_axis((0, in_blocks), "rc")
    taps = [te.reduce_axis((0, size), f"k{axis}") for axis, size in enumerate(kernel)]
    ri = te.reduce_axis((0, block_in), "ri")

    def element(n: tirx.Var, o: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        at = [p * s + t * d for p, s, t, d in zip(position, strides, taps, dilation, strict=True)]
        first = 0 if groups == 1 else o // of_group * int(in_blocks)
        return _sum(data(n, first + rc, *at, ri), _tile(weights, o, lane, rc, *taps, ri), [rc, *taps, ri])

    return te.compute((data.shape[0], outer, *spatial, tiles * together), element, name="convolution")


def pack_rows(filters: np.ndarray, block_out: int, vector: int) -> np.ndarray:
    """`[O, I, *k, taps]` → `[O blocks, *k, elements, block_out]`: the elements of a row of the filter, all channels of
    a tap side by side, filled up with zeros to full vectors of so many bytes."""
    outputs, inputs, *kernel, taps = filters.shape
    rows = np.moveaxis(filters, 1, -1).reshape(outputs, *kernel, taps * inputs)
    more = filled_up(taps * inputs, vector) - taps * inputs
    rows = np.pad(rows, [(0, -outputs % block_out), *[(0, 0)] * len(kernel), (0, more)])
    return np.moveaxis(rows.reshape(-1, block_out, *rows.shape[1:]), 1, -1)


def convolve_rows(
    data: te.Tensor, weights: te.Tensor, channels: int, strides: Sequence[int], dilation: Sequence[int], width: int
) -> te.Tensor:
    """Convolution of few channels without padding, whose filter's rows are vectors.

    Args:
        data: `[N, 1, *spatial, channels of all pixels of a row]`, with as many behind the last that vectors reach.
        weights: `[O blocks, tiles, *k, together, elements]`, of :func:`pack_rows` and :func:`in_tiles`.
        strides: of all spatial dimensions.
        dilation: of all but the last, whose is 1.
        width: of the result.

    Returns:
        `[N, O blocks, *spatial, block_out]`, int32.
    """
    outer, tiles, *kernel, together, elements = weights.shape
    spatial = _results(data.shape[2:-1], kernel, strides, dilation)
    taps = [te.reduce_axis((0, size), f"k{axis}") for axis, size in enumerate(kernel)]
    ri = te.reduce_axis((0, elements), "ri")

    def element(n: tirx.Var, o: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, x, lane = tail
        at = [p * s + t * d for p, s, t, d in zip(position, strides, taps, dilation, strict=False)]
        return _sum(data(n, 0, *at, x * (strides[-1] * channels) + ri), _tile(weights, o, lane, *taps, ri), [*taps, ri])

    return te.compute((data.shape[0], outer, *spatial, width, tiles * together), element, name="convolution")


def pack_columns(right: np.ndarray, together: int, elements: int) -> np.ndarray:
    """`[K, N]` → `[N / together, K / elements, together, elements]`, vectors of a few columns; the last are filled
    up."""
    rows = np.pad(right.T, [(0, -right.shape[1] % together), (0, 0)])
    return np.ascontiguousarray(np.swapaxes(rows.reshape(-1, together, rows.shape[1] // elements, elements), 1, 2))


def multiply_lanes(left: te.Tensor, packed: te.Tensor, columns: int) -> te.Tensor:
    """`[…, M, K]` times weights of :func:`pack_columns`: `[…, M, columns]`, int32; what fills up is cut off."""
    *batch, rows, _ = left.shape
    tiles, vectors, together, elements = packed.shape
    outer_k, k = te.reduce_axis((0, vectors), "k_outer"), te.reduce_axis((0, elements), "k")

    def element(*index: tirx.Var) -> tirx.Expr:
        *outer, row, column = index
        weights = packed(column // together, outer_k, column % together, k)
        return _sum(left(*outer, row, outer_k * elements + k), weights, [outer_k, k])

    wide = dimension(tiles) * dimension(together)
    whole = te.compute((*batch, rows, wide), element, name="matmul")
    if columns == wide:
        return whole
    return te.compute((*batch, rows, columns), lambda *index: whole(*index), name="cut")


def _tile(weights: te.Tensor, outer: tirx.Var, lane: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
    """Returns the part of a tiled filter that an output channel of a block reads."""
    together = weights.shape[-2]
    *taps, element = tail
    return weights(outer, lane // together, *taps, lane % together, element)


def _sum(data: tirx.Expr, weights: tirx.Expr, axes: Sequence[tirx.IterVar]) -> tirx.Expr:
    return te.sum(data.astype("int32") * weights.astype("int32"), axis=axes)


def _results(
    sizes: Sequence[tirx.Expr], kernel: Sequence[tirx.Expr], strides: Sequence[int], dilation: Sequence[int]
) -> list[int]:
    parts = zip(sizes, kernel, strides, dilation, strict=False)
    return [(dimension(e) - (int(k) - 1) * d - 1) // s + 1 for e, k, s, d in parts]
