"""Computes matrix products with a packed right factor: `[…, K, N]` as `[…, N / b, K, b]`, zero-padded to full blocks.

A kernel then reads full vectors of `b` columns, row after row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from tvm import te, tirx

from nnefc.passes.compute.blocked import block_array, blocks, index_in_range, multiply
from nnefc.symbolic.dims import Dimension, Size, broadcast, dimension, dimensions, is_known

__all__ = ["gather_columns", "multiply_packed", "pack_right", "pack_right_array", "padded_rows", "smallest_block"]


def smallest_block(lanes: int, columns: Dimension) -> int:
    """Returns the largest number of columns of a block, a divisor of `lanes`, that leaves no more than a sixteenth of
    the memory unused.
    """
    if not isinstance(columns, int):
        return lanes
    return next(size for size in (lanes >> n for n in range(lanes)) if -columns % size * 16 <= columns)


def pack_right_array(right: np.ndarray, size: int) -> np.ndarray:
    """`[K, N]` → `[N / size, K, size]`, at compile time."""
    return np.moveaxis(block_array(right, 1, size), 0, 1)


def pack_right(right: te.Tensor, size: int, rows: Dimension | None = None) -> te.Tensor:
    """`[…, K, N]` → `[…, N / size, rows, size]`, filled up with zeros, at run time; `rows` are K or more."""
    *batch, depth, columns = right.shape
    rows = dimension(depth) if rows is None else rows
    is_whole = dimension(depth) == rows, dimension(columns) % size == 0

    def element(*index: tirx.Var) -> tirx.Expr:
        *outer, block, k, lane = index
        column = block * size + lane
        inside = ([] if is_whole[0] else [k < depth]) + ([] if is_whole[1] else [column < columns])
        scalar = right(*outer, k, column)
        return tirx.if_then_else(tirx.all(*inside), scalar, tirx.const(0, right.dtype)) if inside else scalar

    return te.compute((*batch, blocks(dimension(columns), size), rows, size), element, name="pack_right")


def multiply_packed(
    left: te.Tensor,
    packed: te.Tensor,
    columns: int,
    rows: int,
    product: Callable[[tirx.Expr, tirx.Expr], tirx.Expr] = multiply,
    axis: int = -2,
) -> te.Tensor:
    """Multiplies `[…, M, K]` by a packed `[…, K, columns]`: `[…, M, columns]`.

    Args:
        left, packed: their leading axes broadcast.
        columns: N; what fills up the last block is cut off.
        rows: M, or a little more: a number with good divisors. Rows beyond the last repeat it, and are cut off.
        product: of an element of `left` and one of `packed`.
        axis: of the rows in `left`, from the end: -3 for `[…, M, 1, K]` times a factor without a batch.
    """
    *right_batch, count, steps, size = packed.shape
    left_batch, (height, *ones, depth) = left.shape[:axis], left.shape[axis:]
    if is_known(dimension(depth), dimension(steps)) and dimension(depth) != dimension(steps):
        raise ValueError(f"sums of {depth} products have {steps} packed factors")
    batch = _broadcast(left_batch, right_batch)
    k = te.reduce_axis((0, depth), "k")

    def element(*index: tirx.Var) -> tirx.Expr:
        outer, (row, *inner, column) = index[: len(batch)], index[len(batch) :]
        source = row if dimension(height) == rows else tirx.min(row, height - 1)
        a = left(*_aligned(outer, left_batch), source, *inner, k)
        b = packed(*_aligned(outer, right_batch), column // size, k, column % size)
        return te.sum(product(a, b), axis=[k])

    wide = columns if isinstance(columns, Size) else dimension(count) * dimension(size)
    whole = te.compute((*batch, rows, *ones, wide), element, name="matmul")
    if rows == dimension(height) and columns == wide:
        return whole
    return te.compute((*batch, height, *ones, columns), lambda *index: whole(*index), name="cut")


def gather_columns(indices: te.Tensor, packed: te.Tensor, columns: int, mode: str) -> te.Tensor:
    """Gathers columns of a packed `[K, columns]` by indices of any shape, as rows: `[…, K]`.

    Args:
        packed: of float64, or of float32 or a narrower type: the result is float32 then.
        mode: what indices out of range do, as for Relax's `take`: "clip" or "wrap".
    """
    _, depth, size = map(int, packed.shape)
    dtype = "float64" if packed.dtype == "float64" else "float32"

    def element(*index: tirx.Var) -> tirx.Expr:
        *outer, k = index
        column = index_in_range(indices(*outer), columns, mode)
        return packed(column // size, k, column % size).astype(dtype)

    return te.compute((*dimensions(indices.shape), depth), element, name="gather_columns")


def padded_rows(rows: Dimension, registers: int) -> Dimension:
    """Returns the smallest number from `rows` on that divides into tiles of a good height for so many vector
    registers."""
    tallest = registers // 2 - 2
    if isinstance(rows, Size) or rows <= tallest:
        return rows
    return min(-(-rows // height) * height for height in range(tallest // 2 + 1, tallest + 1))


def _broadcast(left: list[tirx.Expr], right: list[tirx.Expr]) -> list[int]:
    rank = max(len(left), len(right))
    padded = [[1] * (rank - len(dims)) + list(dimensions(dims)) for dims in (left, right)]
    return [broadcast(a, b) for a, b in zip(*padded, strict=True)]


def _aligned(index: Sequence[tirx.Var], dims: Sequence[tirx.Expr]) -> list[tirx.Expr | int]:
    """Returns the last of `index`, as many as `dims`; 0 where the dimension is broadcast."""
    own = index[len(index) - len(dims) :]
    return [i if dimension(size) != 1 else 0 for i, size in zip(own, dims, strict=True)]
