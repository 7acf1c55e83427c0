"""Orders weights for a unit that multiplies pairs of rows by pairs of columns.

    vectors:   W[…, term, column]                     w0c0 w0c1 w0c2 w0c3   w1c0 w1c1 w1c2 w1c3
    pairs:     W[…, term / 2, column, term % 2]       w0c0 w1c0 w0c1 w1c1   w0c2 w1c2 w0c3 w1c3

A register then has two dot operands of two columns as they are in memory: no instruction brings them together.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import te, tirx

from nnefc.passes.compute.blocked import multiply
from nnefc.passes.compute.convolution import convolve
from nnefc.passes.compute.matmul import multiply_packed

__all__ = ["convolve_paired", "multiply_paired", "pair_terms"]


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
