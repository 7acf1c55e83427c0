"""Computes matrix products of 16-bit floats with float32 accumulators, and of bytes with int32 ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tvm import te, tirx

from nnefc.operators.nn.convolution import accumulator
from nnefc.symbolic.dims import broadcast, dimensions

__all__ = ["multiply_row_major", "multiply_transposed"]


def multiply_row_major(left: te.Tensor, right: te.Tensor, dtype: str) -> te.Tensor:
    """Multiplies `[…, M, K]` by `[…, K, N]`, whose leading axes broadcast: `[…, M, N]` of type `dtype`."""
    *batch, _, columns = dimensions(right.shape)
    return _product(left, batch, columns, dtype, lambda outer, k, column: right(*outer, k, column))


def multiply_transposed(left: te.Tensor, right: te.Tensor, dtype: str) -> te.Tensor:
    """Multiplies `[…, M, K]` by the transpose of `[…, N, K]`: `[…, M, N]` of type `dtype`. Both lie along the depth."""
    *batch, columns, _ = dimensions(right.shape)
    return _product(left, batch, columns, dtype, lambda outer, k, column: right(*outer, column, k))


def _product(
    left: te.Tensor,
    right_batch: Sequence[int],
    columns: int,
    dtype: str,
    right: Callable[[Sequence[tirx.Expr | int], tirx.Expr, tirx.Expr], tirx.Expr],
) -> te.Tensor:
    *left_batch, rows, depth = dimensions(left.shape)
    rank = max(len(left_batch), len(right_batch))
    padded = [[1] * (rank - len(dims)) + [*dims] for dims in (left_batch, right_batch)]
    batch = [broadcast(a, b) for a, b in zip(*padded, strict=True)]
    k = te.reduce_axis((0, depth), "k")
    sums = accumulator(dtype)

    def element(*index: tirx.Var) -> tirx.Expr:
        *outer, row, column = index
        a = left(*_own(outer, left_batch), row, k).astype(sums)
        b = right(_own(outer, right_batch), k, column).astype(sums)
        return te.sum(a * b, axis=[k])

    made = te.compute((*batch, rows, columns), element, name="matmul")
    if str(made.dtype) == dtype:
        return made
    return te.compute(made.shape, lambda *index: made(*index).astype(dtype), name="narrow")


def _own(index: list[tirx.Var], dims: Sequence[int]) -> list[tirx.Expr | int]:
    """Returns the last of `index`, as many as `dims`; 0 where the dimension is broadcast."""
    own = index[len(index) - len(dims) :]
    return [i if size != 1 else 0 for i, size in zip(own, dims, strict=True)]
