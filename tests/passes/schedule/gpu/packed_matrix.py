"""A matrix that is quantized in blocks: what is stored of it, its product with rows, and its elements."""

from __future__ import annotations

import numpy as np
from contraction_cases import Operation
from tvm import relax, te

from nnefc.operators.nn.block_quantization import element_of_block, float_codes, packed

__all__ = ["Matrix"]

BLOCK = 32


class Matrix:
    """A matrix in blocks, of random integers, and its elements in float64.

    Args:
        kind: what is stored besides integers: `scales`, `zeros` (with fractions), `offsets` of superblocks (scales and
            offsets are int8, with factors), or nothing but scales of `floats` of 8 bits.
    """

    def __init__(self, depth: int, columns: int, bits: int, kind: str) -> None:
        rng = np.random.default_rng(depth + columns)
        self.depth, self.columns, self.bits, self.kind = depth, columns, bits, kind
        blocks = -(-depth // BLOCK)
        codes = rng.integers(0, 120 if kind == "floats" else 1 << bits, (columns, blocks, BLOCK), np.uint8)
        scales = rng.uniform(0.5, 1, (columns, blocks)).astype(np.float16)
        half = np.float64(0 if kind == "floats" else 1 << bits - 1)
        values = float_codes(codes).astype(np.float64) if kind == "floats" else codes.astype(np.float64)
        data = packed(codes.reshape(columns, blocks, BLOCK), bits)
        match kind:
            case "zeros":
                zeros = rng.integers(0, 4 << bits, (columns, blocks)).astype(np.float16) / np.float16(4)
                self.tensors = [data, scales, zeros]
                wide = (values - zeros.astype(np.float64)[..., None]) * scales.astype(np.float64)[..., None]
            case "offsets":
                factors = [rng.uniform(0.01, 0.02, (columns, blocks // 2)).astype(np.float16) for _ in range(2)]
                small = [rng.integers(1, 64, (columns, blocks)).astype(np.int8) for _ in range(2)]
                self.tensors = [data, small[0], factors[0], small[1], factors[1]]
                scale, offset = (
                    (a.astype(np.float64) * b.astype(np.float64).repeat(2, 1))[..., None]
                    for a, b in zip(small, factors, strict=True)
                )
                wide = values * scale + offset
            case _:
                self.tensors = [data, scales]
                wide = (values - half) * scales.astype(np.float64)[..., None]
        self.elements = wide.reshape(columns, -1)[:, :depth].T

    def product(self, dtype: str) -> Operation:
        """The product of rows with the matrix, whose elements are rounded to a type."""

        def product(x: te.Tensor, *tensors: te.Tensor) -> te.Tensor:
            k = te.reduce_axis((0, self.depth), "k")
            adds, is_float = self.kind == "offsets", self.kind == "floats"
            wide = te.compute(
                (self.depth, self.columns),
                lambda k, n: element_of_block(tensors, k, n, self.bits, BLOCK, adds, is_float).astype(dtype),
            )
            return te.compute(
                (x.shape[0], self.columns),
                lambda i, j: te.sum(x[i, k].astype("float32") * wide[k, j].astype("float32"), axis=k),
            )

        return lambda x, *tensors: relax.BlockBuilder.current().emit_te(product, x, *tensors)

    def operands(self, rows: int, dtype: str) -> list[np.ndarray]:
        """Rows, and the matrix."""
        x = np.random.default_rng(rows).standard_normal((rows, self.depth)).astype(dtype)
        return [x, *self.tensors]
