"""Orders weights for a unit that multiplies pairs of rows by pairs of columns.

    vectors:   W[…, term, column]                     w0c0 w0c1 w0c2 w0c3   w1c0 w1c1 w1c2 w1c3
    pairs:     W[…, term / 2, column, term % 2]       w0c0 w1c0 w0c1 w1c1   w0c2 w1c2 w0c3 w1c3

A register then has two dot operands of two columns as they are in memory: no instruction brings them together. Where a
pixel is one dot operand, as that of an image of three channels, they are those of two taps of a row of the filter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import te, tirx

from nnefc.passes.compute.blocked import multiply
from nnefc.passes.compute.convolution import convolve
from nnefc.passes.compute.matmul import multiply_packed
from nnefc.symbolic.dims import dimension

__all__ = ["convolve_paired", "convolve_paired_taps", "multiply_paired", "pair_terms"]


def pair_terms(packed: np.ndarray, terms: int) -> np.ndarray:
    """Returns packed weights `[…, sum, columns]` as `[…, sum / terms, columns, terms]`."""
    apart = packed.reshape(*packed.shape[:-2], -1, terms, packed.shape[-1])
    return np.ascontiguousarray(np.swapaxes(apart, -1, -2))


def convolve_paired(
    data: te.Tensor,
    weights: te.Tensor,
    strides: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    product: Callable[[tirx.Expr, tirx.Expr], tirx.Expr] = multiply,
) -> te.Tensor:
    """Convolution without padding, as :func:`convolve`, with weights of :func:`pair_terms`."""
    return convolve(data, _Paired(weights), strides, dilation, groups, product)


def convolve_paired_taps(
    data: te.Tensor,
    weights: te.Tensor,
    strides: Sequence[int],
    dilation: Sequence[int],
    product: Callable[[tirx.Expr, tirx.Expr], tirx.Expr] = multiply,
) -> te.Tensor:
    """Convolution without padding of pixels of one dot operand; the taps of a row of the filter are next to each other.

    Args:
        data: `[N, 1, *spatial, 1]`.
        weights: `[O blocks, *k, block]` as :func:`pair_terms` makes them: `[O blocks, *k, k / 2, block, 2]`.

    Returns:
        `[N, O blocks, *spatial, block]`.
    """
    batch, _, *sizes, _ = data.shape
    filters, *kernel, columns, terms = weights.shape
    taps = [*map(int, kernel[:-1]), int(kernel[-1]) * int(terms)]
    reach = [(size - 1) * d + 1 for size, d in zip(taps, dilation, strict=True)]
    spatial = [(dimension(e) - r) // s + 1 for e, r, s in zip(sizes, reach, strides, strict=True)]
    axes = [te.reduce_axis((0, size), f"k{axis}") for axis, size in enumerate(kernel)]
    term = te.reduce_axis((0, terms), "term")

    def element(n: tirx.Var, o: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        moved = [*axes[:-1], axes[-1] * terms + term]
        at = [p * s + t * d for p, s, t, d in zip(position, strides, moved, dilation, strict=True)]
        return te.sum(product(data(n, 0, *at, 0), weights(o, *axes, lane, term)), axis=[*axes, term])

    return te.compute((batch, filters, *spatial, columns), element, name="convolution")


def multiply_paired(
    left: te.Tensor,
    packed: te.Tensor,
    columns: int,
    rows: int,
    product: Callable[[tirx.Expr, tirx.Expr], tirx.Expr] = multiply,
) -> te.Tensor:
    """Matrix product, as :func:`multiply_packed`, with weights of :func:`pair_terms`."""
    return multiply_packed(left, _Paired(packed), columns, rows, product)


class _Paired:
    """Weights, read by indices in the order of vectors."""

    def __init__(self, tensor: te.Tensor) -> None:
        self._tensor = tensor
        *outer, parts, columns, terms = tensor.shape
        self._terms = int(terms)
        self.dtype = tensor.dtype
        self.shape = (*outer, int(parts) * self._terms, columns)

    def __call__(self, *index: tirx.Expr) -> tirx.Expr:
        *outer, term, column = index
        if self.shape[-2] == self._terms:
            return self._tensor(*outer, 0, column, term)
        return self._tensor(*outer, term // self._terms, column, term % self._terms)
