"""Computes depthwise int8 convolutions by instructions that sum two int16 products (int16x2).

    for t in k: C += int32(A[t]) W[t]
    → for p in k / 2: C += dot([A[2p], A[2p + 1]], [W[2p], W[2p + 1]])

The two elements of a product come from adjacent rows: a pixel and the one below it, interleaved channel by channel.
The same pair is multiplied by other columns of the filter for the pixel's neighbours.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence

import numpy as np
import tvm
from tvm import te, tirx

from nnefc.ir.attributes import COMPUTED_OPERANDS
from nnefc.passes.tir.common.intrinsics import register_pure_operator
from nnefc.symbolic.dims import ceil_div, dimension

__all__ = ["convolve_rows", "pack_rows", "use_int16x2"]


_NAME = "nnefc.pair_of_bytes"


def _paired(kernel: Sequence[int]) -> int:
    """Returns the first axis of a filter along which pairs of taps need the fewest padding zeros."""
    return min(range(len(kernel)), key=lambda axis: ceil_div(kernel[axis], 2) / kernel[axis])


def pack_rows(filters: np.ndarray) -> np.ndarray:
    """`[C, *k]` of bytes → the same with pairs along one axis, int32; the last of an odd number is with a zero."""
    axis = _paired(filters.shape[1:]) + 1
    wide = np.moveaxis(filters.astype(np.int16), axis, -1)
    even = np.pad(wide, [(0, 0)] * (wide.ndim - 1) + [(0, wide.shape[-1] % 2)])
    return np.ascontiguousarray(np.moveaxis(np.ascontiguousarray(even).view("<i4"), -1, axis).astype(np.int32))


def convolve_rows(
    data: te.Tensor,
    weights: te.Tensor,
    strides: Sequence[int],
    dilation: Sequence[int],
    kernel: Sequence[int],
    product: Callable[[tirx.Expr, tirx.Expr], tirx.Expr],
) -> te.Tensor:
    """Convolution of each channel by a filter of its own, without padding.

    Args:
        data: `[N, C blocks, *spatial, block]`, int8 or uint8.
        weights: `[C blocks, *k, block]` as :func:`pack_rows` makes them.
        kernel: the filter's sizes.
        product: of two packed operands of two numbers of 16 bits.

    Returns:
        `[N, C blocks, *spatial, block]`, int32.
    """
    batch, outer, *sizes, block = data.shape
    reach = [(size - 1) * d + 1 for size, d in zip(kernel, dilation, strict=True)]
    spatial = [(dimension(e) - r) // s + 1 for e, r, s in zip(sizes, reach, strides, strict=True)]
    paired = _paired(kernel)
    counts = [ceil_div(size, 2) if axis == paired else size for axis, size in enumerate(kernel)]
    taps = [te.reduce_axis((0, count), f"k{axis}") for axis, count in enumerate(counts)]

    def element(n: tirx.Var, o: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail

        def scalar(second: int) -> tirx.Expr:
            positions = list(taps)
            tap = 2 * taps[paired] + second
            positions[paired] = tirx.min(tap, kernel[paired] - 1) if second and kernel[paired] % 2 else tap
            at = [p * s + t * d for p, s, t, d in zip(position, strides, positions, dilation, strict=True)]
            return data(n, o, *at, lane)

        pair = tirx.call_intrin("int32", _NAME, scalar(0), scalar(1))
        return te.sum(product(pair, weights(o, *taps, lane)), axis=taps)

    return te.compute((batch, outer, *spatial, block), element, name="convolution", attrs={COMPUTED_OPERANDS: True})


@functools.cache  # TVM refuses a second registration
def use_int16x2() -> None:
    """Registers the operator with TVM and its code generator for CPUs, in this process."""
    register_pure_operator(_NAME, "two bytes as two numbers of 16 bits in a word", _pair)


def _pair(call: tvm.ir.Call) -> tirx.Expr:
    """Interleaves the elements of two int16 vectors: the first one is in the low halves of int32 lanes."""
    lanes = int(tvm.DataType(str(call.expr_ty().dtype)).lanes)
    if lanes == 1:
        low, high = (scalar.astype("int32") for scalar in call.args)
        return (high << tirx.const(16, "int32")) | (low & tirx.const(0xFFFF, "int32"))
    wide = [scalar.astype(f"int16x{lanes}") for scalar in call.args]
    turns = [lane + lanes * which for lane in range(lanes) for which in range(2)]
    return tirx.reinterpret(f"int32x{lanes}", tirx.Shuffle(wide, turns))
