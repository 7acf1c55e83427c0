"""Computes matrix products of 16-bit floats with float32 accumulators."""

from __future__ import annotations

from tvm import te, tirx

from nnefc.operators.nn.convolution import accumulator
from nnefc.symbolic.dims import broadcast, dimensions

__all__ = ["multiply_row_major"]


def multiply_row_major(left: te.Tensor, right: te.Tensor, dtype: str) -> te.Tensor:
    """`[…, M, K]` times `[…, K, N]`, whose leading axes broadcast: `[…, M, N]` of type `dtype`."""
    *left_batch, rows, depth = dimensions(left.shape)
    *right_batch, _, columns = dimensions(right.shape)
    rank = max(len(left_batch), len(right_batch))
    padded = [[1] * (rank - len(dims)) + dims for dims in (left_batch, right_batch)]
    batch = [broadcast(a, b) for a, b in zip(*padded, strict=True)]
    k = te.reduce_axis((0, depth), "k")
    sums = accumulator(dtype)

    def element(*index: tirx.Var) -> tirx.Expr:
        *outer, row, column = index
        a = left(*_own(outer, left_batch), row, k).astype(sums)
        b = right(*_own(outer, right_batch), k, column).astype(sums)
        return te.sum(a * b, axis=[k])

    made = te.compute((*batch, rows, columns), element, name="matmul")
    if str(made.dtype) == dtype:
        return made
    return te.compute(made.shape, lambda *index: made(*index).astype(dtype), name="narrow")


def _own(index: list[tirx.Var], dims: list[int]) -> list[tirx.Expr | int]:
    """Returns the last of `index`, as many as `dims`; 0 where the dimension is broadcast."""
    own = index[len(index) - len(dims) :]
    return [i if size != 1 else 0 for i, size in zip(own, dims, strict=True)]
