"""Computes convolutions of row-major tensors, `[N, C, *spatial]`; padding is a predicate on the loads.

The filter is packed as `[*k, I / groups, O]`: output channels lie side by side, and one position of the window has all
of its input channels after each other, so that tiles of the sum seldom need more than one position.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from tvm import te, tirx

from nnefc.operators.nn.convolution import accumulator, converted
from nnefc.symbolic.dims import dimensions, known_less

__all__ = ["GuardedWindow", "convolve_row_major", "interleave_row_major", "pack_row_major", "pack_row_major_array"]


@dataclass(frozen=True)
class GuardedWindow:
    """A sliding window whose padding is a condition on the loads.

    Attributes:
        sizes: spatial sizes of the data.
        kernel: those of the window.
        before, after: zeros on both sides of each spatial dimension.
    """

    sizes: Sequence[int]
    kernel: Sequence[int]
    before: Sequence[int]
    after: Sequence[int]
    strides: Sequence[int]
    dilation: Sequence[int]

    @property
    def results(self) -> list[int]:
        """Returns the spatial sizes of the result."""
        return [
            (length + low + high - (size - 1) * step - 1) // stride + 1
            for length, low, high, size, step, stride in zip(
                self.sizes, self.before, self.after, self.kernel, self.dilation, self.strides, strict=True
            )
        ]

    def element(
        self,
        read: Callable[[Sequence[tirx.Expr]], tirx.Expr],
        position: Sequence[tirx.Expr],
        taps: Sequence[tirx.Expr],
        outside: tirx.Expr | None = None,
    ) -> tirx.Expr:
        """Returns the element under a tap of the window at a position; beyond the data `outside`, or zero."""
        at = [
            p * s + t * d - low
            for p, s, t, d, low in zip(position, self.strides, taps, self.dilation, self.before, strict=True)
        ]
        inside = []
        for offset, length, low, out, size, step, stride in zip(
            at, self.sizes, self.before, self.results, self.kernel, self.dilation, self.strides, strict=True
        ):
            inside += [offset >= 0] if low else []
            last = (out - 1) * stride + (size - 1) * step - low
            inside += [] if known_less(last, length) else [offset < length]
        value = read(at)
        around = tirx.const(0, value.expr_ty().dtype) if outside is None else outside
        return tirx.if_then_else(tirx.all(*inside), value, around) if inside else value


def pack_row_major_array(filters: np.ndarray) -> np.ndarray:
    """`[O, I / groups, *k]` → `[*k, I / groups, O]`, at compile time."""
    return np.ascontiguousarray(np.moveaxis(filters, (0, 1), (-1, -2)))


def pack_row_major(filters: te.Tensor) -> te.Tensor:
    """`[O, I / groups, *k]` → `[*k, I / groups, O]`, at run time."""
    outputs, inputs, *kernel = filters.shape

    def element(*index: tirx.Var) -> tirx.Expr:
        *taps, i, o = index
        return filters(o, i, *taps)

    return te.compute((*kernel, inputs, outputs), element, name="pack_filter")


def convolve_row_major(
    data: te.Tensor,
    packed: te.Tensor,
    before: Sequence[int],
    after: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    groups: int,
    dtype: str,
) -> te.Tensor:
    """Convolves with zero padding.

    Args:
        data: `[N, groups · I, *spatial]`.
        packed: `[*k, I, groups · O]`.
        before, after: zeros on both sides of each spatial dimension.
        dtype: of the result; half precision is summed up in single precision.

    Returns:
        `[N, groups · O, *spatial]`.
    """
    batch, _, *sizes = dimensions(data.shape)
    *kernel, inputs, outputs = dimensions(packed.shape)
    window = GuardedWindow(sizes, kernel, before, after, strides, dilation)
    taps = [te.reduce_axis((0, length), f"k{axis}") for axis, length in enumerate(kernel)]
    channel = te.reduce_axis((0, inputs), "rc")
    of_group = outputs // groups
    sums = accumulator(dtype)

    def element(n: tirx.Var, o: tirx.Var, *position: tirx.Var) -> tirx.Expr:
        first = 0 if groups == 1 else o // of_group * inputs
        value = window.element(lambda at: data(n, first + channel, *at), position, taps)
        return te.sum(value.astype(sums) * packed(*taps, channel, o).astype(sums), axis=[*taps, channel])

    return converted(te.compute((batch, outputs, *window.results), element, name="convolution"), dtype)


def interleave_row_major(
    phases: te.Tensor, strides: Sequence[int], before: Sequence[int], outputs: Sequence[int]
) -> te.Tensor:
    """Interleaves phases, `[N, phases · O, *steps]` → `[N, O, *outputs]`: position i is element (i + before) // stride
    of phase (i + before) % stride.
    """
    batch, channels, *_ = phases.shape
    count = int(channels) // int(np.prod(strides))

    def element(n: tirx.Var, o: tirx.Var, *position: tirx.Var) -> tirx.Expr:
        shifted = [p + low for p, low in zip(position, before, strict=True)]
        phase: tirx.Expr = tirx.const(0, "int64")
        for offset, stride in zip(shifted, strides, strict=True):
            phase = phase * stride + offset % stride
        return phases(n, phase * count + o, *[p // s for p, s in zip(shifted, strides, strict=True)])

    return te.compute((batch, count, *outputs), element, name="interleave")
