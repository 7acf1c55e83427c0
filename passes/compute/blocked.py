"""Defines the blocked layout: `[N, C, *spatial]` as `[N, ceil(C / b), *spatial, b]`, the last block padded with zeros.

A vector register then holds `b` channels of one position, whatever the spatial sizes are (Georganas et al., 2018).
"""

from __future__ import annotations

import numpy as np
from tvm import te, tirx

from nnefc.symbolic.dims import ceil_div

__all__ = ["block", "block_array", "blocks", "index_in_range", "multiply", "unblock"]


def multiply(value: tirx.Expr, weight: tirx.Expr) -> tirx.Expr:
    """Returns a product in the type of `value`; weights may be stored in a narrower one."""
    return value * weight.astype(value.expr_ty().dtype)


def index_in_range(index: tirx.Expr, size: int, mode: str) -> tirx.Expr:
    """Brings an int64 index into `0 .. size - 1` by the mode of Relax's `take`, "clip" or "wrap"."""
    index = index.astype("int64")
    if mode == "wrap":
        return tirx.floormod(index, size)
    return tirx.max(tirx.min(index, size - 1), tirx.const(0, "int64"))


def blocks(channels: int, size: int) -> int:
    """Returns the number of blocks of `size` that hold `channels`."""
    return ceil_div(channels, size)


def block(data: te.Tensor, size: int) -> te.Tensor:
    """`[N, C, *spatial]` → `[N, ceil(C / size), *spatial, size]`."""
    batch, channels, *spatial = data.shape

    def element(n: tirx.Var, cb: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, ci = tail
        channel = cb * size + ci
        value = data(n, channel, *position)
        if channels % size == 0:
            return value
        return tirx.if_then_else(channel < channels, value, tirx.const(0, data.dtype))

    return te.compute((batch, blocks(int(channels), size), *spatial, size), element, name="block")


def unblock(data: te.Tensor, channels: int) -> te.Tensor:
    """Returns the reverse of :func:`block`: `[N, blocks, *spatial, size]` → `[N, channels, *spatial]`."""
    batch, _, *spatial, size = data.shape

    def element(n: tirx.Var, c: tirx.Var, *position: tirx.Var) -> tirx.Expr:
        return data(n, c // size, *position, c % size)

    return te.compute((batch, channels, *spatial), element, name="unblock")


def block_array(array: np.ndarray, axis: int, size: int) -> np.ndarray:
    """Splits `axis` of a constant into blocks of `size`, filled up with zeros; the position in the block comes last."""
    length = array.shape[axis]
    missing = -length % size
    if missing:
        widths = [(0, 0)] * array.ndim
        widths[axis] = (0, missing)
        array = np.pad(array, widths)
    split = array.reshape(*array.shape[:axis], -1, size, *array.shape[axis + 1 :])
    return np.moveaxis(split, axis + 1, -1)
