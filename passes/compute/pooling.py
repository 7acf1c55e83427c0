"""Poolings over the spatial dimensions, in plain or blocked layout."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from tvm import te, tirx
from tvm.ir import PrimType

__all__ = ["Window", "average_pool", "max_pool"]


@dataclass(frozen=True)
class Window:
    """A window that slides over the dimensions 2, 3, … of a tensor.

    `output` gives the extents of the result: padding after the end follows from it, so it covers ceiling mode too.
    """

    size: tuple[int, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    before: tuple[int, ...]
    output: tuple[int, ...]

    def taps(self) -> list[tirx.IterVar]:
        """A reduction axis for each dimension of the window."""
        return [te.reduce_axis((0, extent), f"k{axis}") for axis, extent in enumerate(self.size)]

    def at(self, position: Sequence[tirx.Var], taps: Sequence[tirx.IterVar]) -> list[tirx.Expr]:
        """Where in the input tap `taps` of the output's `position` lies; may be outside."""
        parts = zip(position, self.strides, taps, self.dilation, self.before, strict=True)
        return [p * s + t * d - b for p, s, t, d, b in parts]

    def may_leave(self, extents: Sequence[int]) -> bool:
        """Whether some position of the window reaches outside an input of these extents."""
        parts = zip(self.output, self.size, self.strides, self.dilation, self.before, extents, strict=True)
        return any(b > 0 or (o - 1) * s + (k - 1) * d - b >= int(e) for o, k, s, d, b, e in parts)


def _inside(at: Sequence[tirx.Expr], extents: Sequence[int]) -> tirx.Expr:
    return tirx.all(*[tirx.all(a >= 0, a < e) for a, e in zip(at, extents, strict=True)])


def _windowed(
    data: te.Tensor, window: Window, taps: Sequence[tirx.IterVar], index: Sequence[tirx.Var], outside: object
) -> tirx.Expr:
    rank = len(window.size)
    at = window.at(index[2 : 2 + rank], taps)
    value = data(*index[:2], *at, *index[2 + rank :])
    extents = data.shape[2 : 2 + rank]
    if not window.may_leave(extents):
        return value
    return tirx.if_then_else(_inside(at, extents), value, outside)


def _least(dtype: PrimType | str) -> tirx.Expr:
    """What no element is smaller than."""
    return tirx.const(-math.inf, dtype) if "float" in str(dtype) else tirx.min_value(dtype)


# TE's own maximum starts from the least finite number.
_largest = te.comm_reducer(lambda a, b: tirx.max(a, b), _least, name="largest")


def max_pool(data: te.Tensor, window: Window) -> te.Tensor:
    """The largest value under the window; positions outside never win."""
    rank, taps = len(window.size), window.taps()
    shape = (*data.shape[:2], *window.output, *data.shape[2 + rank :])
    least = _least(data.dtype)
    return te.compute(shape, lambda *i: _largest(_windowed(data, window, taps, i, least), axis=taps), name="pool")


def average_pool(data: te.Tensor, window: Window, padded: Sequence[int] | None) -> te.Tensor:
    """The mean of the values under the window.

    Args:
        padded: extents up to which padding counts as values of zero (from `-before` on); None: padding does not count.
    """
    rank, taps = len(window.size), window.taps()
    shape = (*data.shape[:2], *window.output, *data.shape[2 + rank :])
    zero = tirx.const(0, data.dtype)
    total = te.compute(shape, lambda *i: te.sum(_windowed(data, window, taps, i, zero), axis=taps), name="pool")
    extents = [int(e) for e in data.shape[2 : 2 + rank]]
    ends = extents if padded is None else list(padded)
    starts = [0] * rank if padded is None else [-b for b in window.before]

    def count(position: Sequence[tirx.Var]) -> tirx.Expr:
        product: tirx.Expr = tirx.const(1, "int32")
        for axis, p in enumerate(position):
            size, step, start = window.size[axis], window.dilation[axis], starts[axis]
            first = p * window.strides[axis] - window.before[axis]
            last_output = (window.output[axis] - 1) * window.strides[axis] - window.before[axis]
            if -window.before[axis] >= start and last_output + (size - 1) * step < ends[axis]:
                product = product * size
                continue
            skipped = tirx.max(0, tirx.floordiv(start - first + step - 1, step))
            stop = tirx.min(size, tirx.floordiv(ends[axis] - first + step - 1, step))
            product = product * tirx.max(1, stop - skipped)
        return product.astype(data.dtype)

    return te.compute(shape, lambda *i: total(*i) / count(i[2 : 2 + rank]), name="average")
