"""Rewrites transposed convolutions as one convolution for all phases of their stride, and an interleaving.

    y = conv2d_transpose(x, W, strides=2)     →     p = convolution(x, W'),  y[…, 2 i + r, …] = p[phase r, …, i, …]

A result at position i sums over the taps k ≡ i (mod stride) only: those of one phase are a small convolution, and the
phases differ in their filters alone, so that they are output channels of one convolution.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product

import numpy as np
from tvm import relax, te, tirx

from nnefc.ir.attributes import INTERLEAVED_PHASES
from nnefc.ir.kernel_calls import emit_te
from nnefc.passes.compute.blocked import blocks
from nnefc.passes.compute.row_major_convolution import interleave_row_major
from nnefc.passes.graph.layout.blocked_layout import Blocked
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter, LayoutRule
from nnefc.passes.graph.layout.rules.convolution import (
    Sliding,
    convolution,
    filters_of,
    integers,
    split_padding,
    winograd_of,
)
from nnefc.passes.graph.rewriter import shape_of
from nnefc.symbolic.dims import dimensions

__all__ = ["RULES", "Geometry", "Interleaving", "Phases", "geometry_of", "interleave", "phases_of", "transposed_sizes"]


@dataclass(frozen=True)
class Interleaving:
    """The interleaving of phases, `[N, phases · O, *steps]` → `[N, O, *outputs]`: see :func:`interleave_row_major`."""

    strides: tuple[int, ...]
    before: tuple[int, ...]
    outputs: tuple[int, ...]

    @property
    def count(self) -> int:
        """Returns the number of phases."""
        return math.prod(self.strides)

    @property
    def is_identity(self) -> bool:
        """Whether there is one phase, and nothing of it is cut off."""
        return self.count == 1 and not any(self.before)

    def emit(self, builder: relax.BlockBuilder, phases: relax.Expr) -> relax.Var:
        """Emits the interleaving kernel, and returns its variable, which takes part in layouts."""
        return emit_te(
            builder,
            lambda data: interleave_row_major(data, self.strides, self.before, self.outputs),
            phases,
            name="interleave",
            attrs={INTERLEAVED_PHASES: [*self.strides, *self.before]},
        )


def _deconvolution(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    data, weights = call.args
    filters, geometry = filters_of(layouts, weights), geometry_of(call, layouts.row_major_shape(data)[2:], layouts.size)
    if filters is None or geometry is None:
        return None
    strides = integers(call.attrs.strides)
    made = _phase_filters(filters, strides, geometry.taps, layouts.size)
    phases = convolution(layouts, data, made, geometry.sliding, winograd_of(layouts, filters))
    way = Interleaving(strides, geometry.before, geometry.outputs)
    if way.is_identity:
        return layouts.as_blocked(phases, filters.shape[1])
    result = layouts.emit(interleave, phases, way.strides, way.before, way.outputs)
    return layouts.as_blocked(result, filters.shape[1])


def _interleaving(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    """Interleaves phases in blocks: each phase in blocks of its own."""
    attrs = layouts.builder.get()[call.args[0]].attrs
    if INTERLEAVED_PHASES not in attrs:
        return None
    data = call.args[1].fields[0]
    if layouts.layout_of(data) is None:
        return None
    numbers = integers(attrs[INTERLEAVED_PHASES])
    strides, before = numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]
    channels, count = layouts.row_major_shape(data)[1], math.prod(strides)
    phases = layouts.laid_out(data, Blocked.of(channels, layouts.size, count))
    outputs = dimensions(call.ty_args[0].shape)[2:]
    result = layouts.emit(interleave, phases, strides, before, outputs)
    return layouts.as_blocked(result, channels // count)


@dataclass(frozen=True)
class Geometry:
    """A transposed convolution as a convolution that computes all phases.

    Attributes:
        taps: spatial sizes of its filter.
        channels: of its result: those of each phase, in full blocks.
        sliding: over the input.
        before: elements of the interleaved phases that are cut off at the beginning.
        outputs: spatial sizes of the transposed convolution's result.
    """

    taps: tuple[int, ...]
    channels: int
    sliding: Sliding
    before: tuple[int, ...]
    outputs: tuple[int, ...]


def geometry_of(call: relax.Call, sizes: Sequence[int], size: int) -> Geometry | None:
    """Returns the geometry of a transposed convolution of an input of these spatial sizes, in blocks of `size`.

    None if it is not one of float32, is dilated or in groups, or so much is cut off that part of
    the input is not needed.
    """
    data, weights = call.args
    attrs = call.attrs
    if {str(weights.ty.dtype), str(data.ty.dtype)} != {"float32"}:
        return None
    if int(attrs.groups) != 1 or any(step != 1 for step in integers(attrs.dilation)):
        return None
    _, channels, *kernel = shape_of(weights)
    strides = integers(attrs.strides)
    before, outputs = transposed_sizes(call, kernel, sizes)
    found = _sliding(kernel, sizes, outputs, strides, before)
    if found is None:
        return None
    channels = math.prod(strides) * blocks(channels, size) * size
    return Geometry(_taps(kernel, strides), channels, *found, outputs)


def transposed_sizes(
    call: relax.Call, kernel: Sequence[int], sizes: Sequence[int]
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Returns what a transposed convolution cuts off at the beginning, and the spatial sizes of its result."""
    attrs = call.attrs
    before, after = split_padding(attrs.padding, len(kernel))
    outputs = tuple(
        (e - 1) * s + k - b - a + o
        for e, s, k, b, a, o in zip(
            sizes, integers(attrs.strides), kernel, before, after, integers(attrs.output_padding), strict=True
        )
    )
    return before, outputs


def _taps(kernel: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
    """Returns the spatial sizes of the phases' filters."""
    return tuple(-(-k // s) for k, s in zip(kernel, strides, strict=True))


def _sliding(
    kernel: Sequence[int], sizes: Sequence[int], outputs: Sequence[int], strides: Sequence[int], before: Sequence[int]
) -> tuple[Sliding, tuple[int, ...]] | None:
    """Returns the window of the phases' filters over the input, and what is cut off of the interleaved phases.

    Steps that would be cut off as a whole are not computed.

    Returns:
        None if part of the input is not needed.
    """
    taps = _taps(kernel, strides)
    steps = tuple((o - 1 + b) // s + 1 for o, b, s in zip(outputs, before, strides, strict=True))
    if any(step < size for step, size in zip(steps, sizes, strict=True)):
        return None
    ones = (1,) * len(taps)
    after = tuple(m - e for m, e in zip(steps, sizes, strict=True))
    skipped = tuple(min(b // s, t - 1) for b, s, t in zip(before, strides, taps, strict=True))
    first = tuple(t - 1 - skip for t, skip in zip(taps, skipped, strict=True))
    cut = tuple(b - skip * s for b, skip, s in zip(before, skipped, strides, strict=True))
    return Sliding(first, after, strides=ones, dilation=ones, groups=1), cut


@dataclass(frozen=True)
class Phases:
    """A transposed convolution as a convolution whose output channels are those of all phases, phase by phase.

    Attributes:
        sliding: over the input.
        way: how the phases become the result.
    """

    filters: np.ndarray
    sliding: Sliding
    way: Interleaving


def phases_of(
    filters: np.ndarray,
    sizes: Sequence[int],
    outputs: Sequence[int],
    strides: tuple[int, ...],
    before: Sequence[int],
    size: int,
) -> Phases | None:
    """Returns the phases of a transposed convolution; None if so much is cut off that part of the input is not needed.

    Args:
        filters: `[I, O, *k]`.
        sizes, outputs: spatial sizes of the input and of the result.
        before: what is cut off at the beginning.
        size: the output channels of a phase are filled up to a multiple of it.
    """
    kernel = filters.shape[2:]
    found = _sliding(kernel, sizes, outputs, strides, before)
    if found is None:
        return None
    sliding, cut = found
    way = Interleaving(strides, cut, tuple(outputs))
    return Phases(_phase_filters(filters, strides, _taps(kernel, strides), size), sliding, way)


def _phase_filters(filters: np.ndarray, strides: tuple[int, ...], taps: tuple[int, ...], size: int) -> np.ndarray:
    """`[I, O, *k]` → `[phases · O in full blocks, I, *taps]`, reversed along the taps."""
    inputs, outputs, *kernel = filters.shape
    whole = blocks(outputs, size) * size
    phases = []
    for offsets in product(*map(range, strides)):
        phase = np.zeros((whole, inputs, *taps), filters.dtype)
        part = filters[(slice(None), slice(None), *(slice(r, None, s) for r, s in zip(offsets, strides, strict=True)))]
        part = np.swapaxes(part, 0, 1)[(slice(None), slice(None), *[slice(None, None, -1)] * len(kernel))]
        index = tuple(slice(t - length, t) for t, length in zip(taps, part.shape[2:], strict=True))
        phase[(slice(0, outputs), slice(None), *index)] = part
        phases.append(phase)
    return np.concatenate(phases)


def interleave(
    phases: te.Tensor, strides: tuple[int, ...], before: tuple[int, ...], outputs: tuple[int, ...]
) -> te.Tensor:
    """Interleaves blocked phases, `[N, phases · blocks, *steps, b]` → `[N, blocks, *outputs, b]`: position i is element
    (i + before) // stride of phase (i + before) % stride.
    """
    batch, outer, *_, size = phases.shape
    count = int(outer) // int(np.prod(strides))

    def element(n: tirx.Var, c: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        shifted = [p + b for p, b in zip(position, before, strict=True)]
        phase: tirx.Expr = tirx.const(0, "int64")
        for index, stride in zip(shifted, strides, strict=True):
            phase = phase * stride + index % stride
        return phases(n, phase * count + c, *[p // s for p, s in zip(shifted, strides, strict=True)], lane)

    return te.compute((batch, count, *outputs, size), element, name="interleave")


RULES: dict[str, LayoutRule] = {
    **{f"nn.conv{rank}d_transpose": _deconvolution for rank in (1, 2, 3)},
    "call_tir": _interleaving,
}
