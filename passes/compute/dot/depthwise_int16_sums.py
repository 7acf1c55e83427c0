"""Computes depthwise int8 convolutions with sums of two products in int16.

    for t in k: C += int32(A[t]) W[t]
    → for p in k / 2: C += int32(int16(A[2p]) W[2p] + int16(A[2p + 1]) W[2p + 1])

Where instructions multiply vectors of bytes to vectors of 16 bits, and add those to others of 32, a product takes half
as many of them as in int32. The sum of two has room in 16 bits if no weight is -128.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from tvm import te, tirx

from nnefc.ir.attributes import FULL_BLOCKS
from nnefc.passes.tir.dot.riscv_vectors import byte_pair
from nnefc.symbolic.dims import dimension
from nnefc.targets.machine.cpu.target import Target

__all__ = ["convolve_int16_sums", "takes_int16_sums"]


# of a filter all of whose products are written out, for positions in it are no linear function of a pair's
_MAX_TAPS = 32


def takes_int16_sums(target: Target, filters: np.ndarray) -> bool:
    """Whether products of `filters`, `[C, *k]`, are made so."""
    taps = math.prod(filters.shape[1:])
    minimum = np.iinfo(np.int8).min
    return (
        target.vectors.long_products and filters.dtype == np.int8 and 2 <= taps <= _MAX_TAPS and filters.min() > minimum
    )


def convolve_int16_sums(
    data: te.Tensor, weights: te.Tensor, strides: Sequence[int], dilation: Sequence[int], target: Target
) -> te.Tensor:
    """Convolution of each channel by a filter of its own, without padding.

    Args:
        data: `[N, C blocks, *spatial, block]`, int8.
        weights: `[C blocks, *k, block]`, int8, none of them -128.
        target: whose instructions make the products.

    Returns:
        `[N, C blocks, *spatial, block]`, int32.
    """
    batch, outer, *sizes, block = data.shape
    kernel = [int(size) for size in weights.shape[1:-1]]
    reach = [(size - 1) * d + 1 for size, d in zip(kernel, dilation, strict=True)]
    spatial = [(dimension(e) - r) // s + 1 for e, r, s in zip(sizes, reach, strides, strict=True)]
    taps = math.prod(kernel)
    pair = te.reduce_axis((0, -(-taps // 2)), "pair")

    def element(n: tirx.Var, o: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail

        def factors(tap: tirx.Expr) -> tuple[tirx.Expr, tirx.Expr]:
            positions: list[tirx.Expr] = []
            for size in reversed(kernel):
                positions.insert(0, tirx.floormod(tap, size))
                tap = tirx.floordiv(tap, size)
            at = [p * s + t * d for p, s, t, d in zip(position, strides, positions, dilation, strict=True)]
            return data(n, o, *at, lane), weights(o, *positions, lane)

        first = factors(2 * pair)
        second = factors(tirx.min(2 * pair + 1, taps - 1) if taps % 2 else 2 * pair + 1)
        is_there = 2 * pair + 1 < taps
        if target.vectors.by_scalar:
            weight = tirx.if_then_else(is_there, second[1], tirx.const(0, "int8")) if taps % 2 else second[1]
            return te.sum(byte_pair(target, *first, second[0], weight).astype("int32"), axis=[pair])
        products = [a.astype("int16") * w.astype("int16") for a, w in (first, second)]
        if taps % 2:
            products[1] = tirx.if_then_else(is_there, products[1], tirx.const(0, "int16"))
        return te.sum((products[0] + products[1]).astype("int32"), axis=[pair])

    return te.compute((batch, outer, *spatial, block), element, name="convolution", attrs={FULL_BLOCKS: True})
