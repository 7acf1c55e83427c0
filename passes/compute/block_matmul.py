"""Matrix products whose right factor is quantized in blocks: it is widened in registers, where it is multiplied by.

W[K, N] = item[k, n] * scale[k / block, n] + offset[k / block, n]

packed[N / b, K / block, words, b]     a word holds neighbours of one column: see `packed_items.py`; of 8 bits, an item
scales[N / b, K / block, b], offsets the same

The items are signed: half of their range is taken away when they are packed, and added to what the offsets are.

Where the other factor may be rounded to 8 bits, and the target sums up products of bytes, both are integers:

x[M, K] = q[m, k] * r[m, k / block]            y[M, N] = sum over blocks of (q W)[m, n] * r * scale + sums[m] * offset
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import te, tirx

from nnefc.operators.block_quantization import unpacked
from nnefc.passes.compute.blocked import block_array
from nnefc.passes.compute.packed_items import bytes_of, item_of
from nnefc.sizes import Dimension, dimension, dimensions

__all__ = [
    "DEQUANTIZED",
    "multiply_blocks",
    "multiply_blocks_of_bytes",
    "pack_blocks",
    "pack_bytes",
    "pack_items",
    "sums_of_blocks",
]

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


def pack_bytes(codes: np.ndarray, bits: int, size: int, signed: bool) -> np.ndarray:
    """Codes as `pack_items` takes them, as `packed` above, for :func:`bytes_of`.

    Args:
        signed: whether bytes are; of fewer bits, items are not.
    """
    items = unpacked(codes ^ np.uint8(0x80 if signed and bits == 8 else 0), bits)
    words = items.reshape(*items.shape[:-1], -1, 8 // bits, 4)
    parts = np.bitwise_or.reduce(words << (np.arange(8 // bits, dtype=np.uint8) * bits)[:, None], axis=-2)
    return pack_blocks(np.ascontiguousarray(parts).view("<i4")[..., 0].astype(np.int32), size)


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

    return _sums(element, (*dimensions(batch), rows, vectors * lanes), dimension(height), columns)


def _sums(
    element: Callable[..., tirx.Expr], shape: tuple[Dimension, ...], height: Dimension, columns: int
) -> te.Tensor:
    """Sums of shape `[…, rows, columns]` without what fills up the last rows and columns."""
    *batch, rows, wide = shape
    attrs = {DEQUANTIZED: _STEPS}
    whole = te.compute((*batch, rows, wide), element, name="matmul", attrs=attrs)
    if rows == height and columns == wide:
        return whole
    return te.compute((*batch, height, columns), lambda *index: whole(*index), name="cut")


def multiply_blocks_of_bytes(
    left: te.Tensor, ranges: te.Tensor, sums: te.Tensor, packed: te.Tensor, scales: te.Tensor, *more: Any
) -> te.Tensor:
    """`[…, M, K]`, rounded to 8 bits, times a quantized `[K, columns]`: `[…, M, columns]`, float32.

    Args:
        left: packed dot operands, `[…, M, K / 4]`.
        ranges, sums: `[…, M, K / block]`: the scales of `left`, and the sums of what it stands for.
        packed, scales: see above.
        more: zero points, as the scales, if there are; then `bits`, `columns` and `rows` as of :func:`multiply_blocks`,
            and `how` bytes are multiplied.
    """
    *zeros, bits, columns, rows, how = more
    *batch, height, _ = left.shape
    vectors, blocks, size, lanes = map(int, packed.shape)
    per = 8 // bits
    axes = [te.reduce_axis((0, extent), name) for extent, name in ((blocks, "kb"), (size, "kj"), (per, "kp"))]
    origin = 128 if bits == 8 and how.weights == "int8" else 0

    def element(*index: tirx.Var) -> tirx.Expr:
        *outer, row, column = index
        block, word, part = (axis.var for axis in axes)
        source = row if dimension(height) == rows else tirx.min(row, height - 1)
        vector, lane = column // lanes, column % lanes
        a = left(*outer, source, (block * size + word) * per + part)
        dot = how.product(a, bytes_of(packed(vector, block, word, lane), part, bits))
        scale = scales(vector, block, lane).astype("float32")
        term = dot.astype("float32") * (scale * ranges(*outer, source, block))
        zero = zeros[0](vector, block, lane).astype("float32") if zeros else tirx.const(1 << (bits - 1), "float32")
        offset = (tirx.const(origin, "float32") - zero) * scale
        if zeros or origin != 1 << (bits - 1):
            term = term + sums(*outer, source, block) * (offset * tirx.const(1 / (size * per), "float32"))
        return te.sum(term, axis=axes)

    return _sums(element, (*dimensions(batch), rows, vectors * lanes), dimension(height), columns)
