"""Matrix products whose right factor is quantized in blocks: it is widened in registers, where it is multiplied by.

W[K, N] = item[k, n] * scale[k / block, n] + offset[k / block, n]

packed[N / b, K / block, words, b]     a word holds neighbours of one column: see `packed_items.py`; of 8 bits, an item
scales[N / b, K / block, b], offsets the same

The items are signed: half of their range is taken away when they are packed, and added to what the offsets are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from nnefc.passes.compute.blocked import block_array
from nnefc.passes.compute.packed_items import item_of
from nnefc.sizes import dimension, dimensions

__all__ = ["DEQUANTIZED", "multiply_blocks", "pack_blocks", "pack_items", "sums_of_blocks"]

DEQUANTIZED = "nnefc.dequantized"
"""Annotation of a sum of products with a factor that is computed from several tensors: in how many instructions.

Its first reduced axis counts the blocks; only the first factor of the sum's terms changes within one."""

_STEPS = 3  # to move the bits, to convert them


def pack_blocks(array: np.ndarray, size: int) -> np.ndarray:
    """`[N, blocks, …]` as `[N / size, blocks, …, size]`; what fills up the last columns is zero."""
    return np.ascontiguousarray(block_array(array, 0, size))


def pack_items(codes: np.ndarray, bits: int, size: int) -> np.ndarray:
    """Codes `[N, blocks, bytes]`, the lowest bits of a byte first, as `packed` above."""
    if bits == 8:
        return pack_blocks((codes ^ np.uint8(0x80)).view(np.int8), size)
    halves = np.uint8(sum(1 << (place + bits - 1) for place in range(0, 8, bits)))
    return pack_blocks(np.ascontiguousarray(codes ^ halves).view("<i4").astype(np.int32), size)


def sums_of_blocks(left: te.Tensor, block: int) -> te.Tensor:
    """`[…, M, K]` → `[…, M, K / block]`: what offsets are multiplied by."""
    *outer, depth = dimensions(left.shape)
    k = te.reduce_axis((0, block), "k")

    def element(*index: tirx.Var) -> tirx.Expr:
        *place, part = index
        return te.sum(left(*place, part * block + k.var), axis=[k])

    return te.compute((*outer, depth // block), element, name="sums_of_blocks")


def multiply_blocks(left: te.Tensor, packed: te.Tensor, scales: te.Tensor, *more: Any) -> te.Tensor:
    """`[…, M, K]` times a quantized `[K, columns]`: `[…, M, columns]`, float32.

    Args:
        left: K is a whole number of blocks.
        packed, scales: see above.
        more: if there are zero points: :func:`sums_of_blocks`, and zero points, as the scales; then four values.
            `bits`: of an integer. `columns`: N; what fills up the last vector is cut off. `rows`: M, or a little more,
            as for `multiply_packed`. `look_up`: see :func:`item_of`.
    """
    *zeros, bits, columns, rows, look_up = more
    *batch, height, _ = left.shape
    vectors, blocks, size, lanes = map(int, packed.shape)
    per = 1 if bits == 8 else 32 // bits
    axes = [te.reduce_axis((0, extent), name) for extent, name in ((blocks, "kb"), (size, "kj"), (per, "kp"))]

    def element(*index: tirx.Var) -> tirx.Expr:
        *outer, row, column = index
        block, word, part = (axis.var for axis in axes)
        source = row if dimension(height) == rows else tirx.min(row, height - 1)
        vector, lane = column // lanes, column % lanes
        a = left(*outer, source, (block * size + word) * per + part)
        stored = packed(vector, block, word, lane)
        item = stored.astype("float32") if bits == 8 else item_of(stored, part, bits, look_up)
        scale = scales(vector, block, lane).astype("float32")
        term = a * (item * scale)
        if zeros:
            sums, points = zeros
            half = tirx.const(1 << (bits - 1), "float32")
            offset = (half - points(vector, block, lane).astype("float32")) * scale
            term = term + sums(*outer, source, block) * (offset * tirx.const(1 / (size * per), "float32"))
        return te.sum(term, axis=axes)

    wide = vectors * lanes
    attrs = {DEQUANTIZED: _STEPS}
    whole = te.compute((*dimensions(batch), rows, wide), element, name="matmul", attrs=attrs)
    if rows == dimension(height) and columns == wide:
        return whole
    return te.compute((*dimensions(batch), height, columns), lambda *index: whole(*index), name="cut")
