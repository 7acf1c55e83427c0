"""Layouts changed by transposing tiles in registers: bytes, and sums of their products."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te

from nnefc.passes.compute.transposition import transpose_to_blocks, transpose_to_row_major


@pytest.mark.parametrize(
    ("dtype", "batch", "channels", "positions", "size"),
    [("uint8", 2, 20, 23, 16), ("int8", 1, 3, 100, 4), ("int32", 1, 33, 16, 16), ("uint8", 3, 5, 50, 8)],
)
@pytest.mark.sample(2)
def test_tiles_are_transposed_and_last_blocks_filled_up(
    dtype: str, batch: int, channels: int, positions: int, size: int
) -> None:
    row_major = np.random.default_rng(0).integers(0, 100, (batch, channels, positions)).astype(dtype)
    count = -(-channels // size)
    filled = np.zeros((batch, count * size, positions), dtype)
    filled[:, :channels] = row_major
    blocked = np.ascontiguousarray(filled.reshape(batch, count, size, positions).swapaxes(2, 3))
    sizes = (batch, channels, positions, size)
    np.testing.assert_array_equal(_run(transpose_to_blocks, row_major, sizes, blocked.size), blocked.reshape(-1))
    np.testing.assert_array_equal(_run(transpose_to_row_major, blocked, sizes, row_major.size), row_major.reshape(-1))


def _run(function: object, source: np.ndarray, sizes: tuple[int, ...], size: int) -> np.ndarray:
    flat = source.reshape(-1)
    data = te.placeholder(flat.shape, str(flat.dtype))
    library = tvm.compile(te.create_prim_func([data, function(data, *sizes)]), target="llvm")
    result = tvm.runtime.tensor(np.full(size, 77, flat.dtype))
    library["main"](tvm.runtime.tensor(flat), result)
    return result.numpy()
