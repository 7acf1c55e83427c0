"""Computes matrix products by seven products of submatrices instead of eight (Strassen, 1969; Winograd's variant).

    [A₁₁ A₁₂]   [B₁₁ B₁₂]     Lₚ = a sum of blocks of A         combine_left, at run time
    [A₂₁ A₂₂] · [B₂₁ B₂₂]     Rₚ = a sum of blocks of B         combine_right, at compile time
                              Pₚ = Lₚ Rₚ,  p = 0 … 6
                              each block of the result is a sum of Pₚ

The four blocks have every other row, the halves of the sum, and every other vector of columns: what belongs
together lies together, and of an odd number of rows it is the last one that is filled up.

An eighth of the multiplications is saved; the sums take time in proportion to the matrices alone. The result differs
from the direct sum by rounding, about twice as much as another order of summation would.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import te, tirx

from nnefc.ir.attributes import LONGEST_PART, PERIODS, STRASSEN_PRODUCTS
from nnefc.passes.compute.periodic_select import chosen
from nnefc.symbolic.dims import dimensions

__all__ = [
    "COUNT",
    "LEFT",
    "RESULT",
    "RIGHT",
    "combine_left",
    "combine_right",
    "multiply_submatrices",
]


COUNT = 7  # products of blocks
_PART = 200  # terms of a sum; the sums of blocks make their rounding twice as large

# Coefficients of the blocks 11, 12, 21, 22 of A and of B in the factors of each product
LEFT = np.array([[1, 0, 0, 0], [0, 1, 0, 0], [1, 1, -1, -1], [0, 0, 0, 1], [0, 0, 1, 1], [-1, 0, 1, 1], [1, 0, -1, 0]])
RIGHT = np.array(
    [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1], [1, -1, -1, 1], [-1, 1, 0, 0], [1, -1, 0, 1], [0, -1, 0, 1]]
)
# and of each product in the blocks of the result
RESULT = np.array([[1, 1, 0, 0, 0, 0, 0], [1, 0, 1, 0, 1, 1, 0], [1, 0, 0, -1, 0, 1, 1], [1, 0, 0, 0, 1, 1, 1]])


def combine_right(right: np.ndarray, size: int) -> np.ndarray:
    """`[K, N]` → `[7, N / 2 / size, K / 2, size]`, computed in float64; K is even, N a multiple of 2 `size`."""
    depth, blocks = right.shape[0] // 2, right.shape[1] // (2 * size)
    parts = np.moveaxis(right.reshape(2, depth, blocks, 2, size), (3, 2), (1, 2)).reshape(4, blocks, depth, size)
    factors = np.empty((COUNT, blocks, depth, size), right.dtype)
    signs = RIGHT.astype(np.float64)
    for block in range(blocks):  # a part that stays in the cache; and BLAS would wake threads for nothing
        factors[:, block] = np.einsum("pq,qkn->pkn", signs, parts[:, block].astype(np.float64))
    return factors


def combine_left(left: te.Tensor, rows: int, tile: int, size: int) -> te.Tensor:
    """`[…, M, K]` → `[…, 7, rows / tile, K / 2 / size, tile, size]`, in which a tile of rows is read as one stream.

    `rows` is at least M / 2, and what is beyond the last row of A repeats it; K is a multiple of 2 `size`.
    """
    *batch, height, depth = left.shape
    half = int(depth) // 2

    def element(*index: tirx.Var) -> tirx.Expr:
        *outer, product, block, step, within, lane = index
        k = step * size + lane
        pair = [tirx.min((block * tile + within) * 2 + i, int(height) - 1) for i in range(2)]
        parts = [left(*outer, r, c) for r in pair for c in (k, k + half)]
        return chosen(product, [_sum(factor, parts) for factor in LEFT])

    shape, periods = (*batch, COUNT, rows // tile, half // size, tile, size), [*(1 for _ in batch), COUNT, 1, 1, 1, 1]
    return te.compute(shape, element, name="combine_left", attrs={PERIODS: periods})


def multiply_submatrices(left: te.Tensor, right: te.Tensor, height: int) -> te.Tensor:
    """Returns the product `[…, M, N]` of the results of `combine_left` and `combine_right`; M is `height`."""
    *batch, _, count, steps, tile, lanes = dimensions(left.shape)
    _, blocks, _, size = dimensions(right.shape)
    rows, columns = count * tile, blocks * size
    step, lane = te.reduce_axis((0, steps), "step"), te.reduce_axis((0, lanes), "lane")

    def product(*index: tirx.Var) -> tirx.Expr:
        *outer, p, row, column = index
        a = left(*outer, p, row // tile, step, row % tile, lane)
        return te.sum(a * right(p, column // size, step * lanes + lane, column % size), axis=[step, lane])

    attrs = {LONGEST_PART: _PART, STRASSEN_PRODUCTS: 1}
    products = te.compute((*batch, COUNT, rows, columns), product, name="products", attrs=attrs)

    def element(*index: tirx.Var) -> tirx.Expr:
        *outer, row, column = index
        within = column // (2 * size) * size + column % size
        each = [products(*outer, p, row // 2, within) for p in range(COUNT)]
        parts = [_sum(part, each) for part in RESULT]
        side = column // size % 2
        return chosen(row % 2, [chosen(side, parts[:2]), chosen(side, parts[2:])])

    return te.compute((*batch, height, 2 * columns), element, name="result")


def _sum(coefficients: np.ndarray, terms: Sequence[tirx.Expr]) -> tirx.Expr:
    """Returns the sum of the terms, each times 1, −1 or 0; the sum begins with a term that is added, if there
    is one.
    """
    pairs = [(int(c), term) for c, term in zip(coefficients, terms, strict=True) if c]
    (_, total), *tail = sorted(pairs, key=lambda pair: -pair[0])
    for coefficient, term in tail:
        total = total + term if coefficient > 0 else total - term
    return total
