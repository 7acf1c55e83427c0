"""Matrix products whose right factor is quantized in blocks: it is widened in registers, where it is multiplied by.

W[K, N] = (q[k, n] - zero[k / block, n]) * scale[k / block, n]

packed[N / b, K / block, block · bits / 8, b]     a byte holds a few neighbours of one column
scales[N / b, K / block, b], zeros the same
"""

from __future__ import annotations

from typing import Any

import numpy as np
from tvm import te, tirx

from nnefc.passes.compute.blocked import block_array
from nnefc.sizes import dimension, dimensions

__all__ = ["DEQUANTIZED", "multiply_blocks", "pack_blocks"]

DEQUANTIZED = "nnefc.dequantized"
"""Annotation of a sum of products with a factor that is computed from several tensors: in how many instructions."""

_STEPS = 4  # to take the bits, to convert, to subtract, to multiply


def pack_blocks(array: np.ndarray, size: int) -> np.ndarray:
    """`[N, blocks, …]` as `[N / size, blocks, …, size]`; what fills up the last columns is zero."""
    return np.ascontiguousarray(block_array(array, 0, size))


def multiply_blocks(left: te.Tensor, packed: te.Tensor, scales: te.Tensor, *more: Any) -> te.Tensor:
    """`[…, M, K]` times a quantized `[K, columns]`: `[…, M, columns]`, float32.

    Args:
        left: K is a whole number of blocks.
        packed, scales: see above.
        more: zero points, as the scales, if there are; then three numbers. `bits`: of an integer. `columns`: N; what
            fills up the last vector is cut off. `rows`: M, or a little more, as for `multiply_packed`.
    """
    *zeros, bits, columns, rows = more
    *batch, height, _ = left.shape
    vectors, blocks, size, lanes = map(int, packed.shape)
    per = 8 // bits
    axes = [te.reduce_axis((0, extent), name) for extent, name in ((blocks, "kb"), (size, "kj"), (per, "kp"))]

    def element(*index: tirx.Var) -> tirx.Expr:
        *outer, row, column = index
        block, byte, part = (axis.var for axis in axes)
        source = row if dimension(height) == rows else tirx.min(row, height - 1)
        a = left(*outer, source, (block * size + byte) * per + part)
        vector, lane = column // lanes, column % lanes
        code = packed(vector, block, byte, lane).astype("int32")
        places = [code >> place * bits & (1 << bits) - 1 for place in range(per)]
        code = places[0]
        for place, other in enumerate(places[1:], 1):  # no shift by a variable: each place is a round of its own
            code = tirx.Select(part == place, other, code)
        zero = zeros[0](vector, block, lane).astype("float32") if zeros else tirx.const(1 << (bits - 1), "float32")
        weight = (code.astype("float32") - zero) * scales(vector, block, lane).astype("float32")
        return te.sum(a * weight, axis=axes)

    wide = vectors * lanes
    attrs = {DEQUANTIZED: _STEPS}
    whole = te.compute((*dimensions(batch), rows, wide), element, name="matmul", attrs=attrs)
    if rows == dimension(height) and columns == wide:
        return whole
    return te.compute((*dimensions(batch), height, columns), lambda *index: whole(*index), name="cut")
