"""Rewrites convolutions for tensor cores, in blocks of the channels that a thread loads at once.

Few input channels, as the three of an image, leave room in a block for neighbouring taps of a row: of bytes, a block
has four taps of three channels and a zero. What is left is filled up with zeros, which are multiplied too: that takes
less time than loads of single elements. Groups smaller than a tile are merged, with zeros between them. The sum of two
convolutions with windows of one pixel, as a residual block with a projection ends in, is one convolution over the
channels of both.

Bytes are summed up in int32. Padding with a zero point, by an operator of its own before the convolution, becomes part
of it:

    p = pad(x, z)                              s = convolution(x, pack(W), vector of z)
    s = conv2d(p, W, out_dtype="int32")   →

Bulk copies have zeros around an image. So where bytes of the other type have 0 for the zero point, as uint8 for the
-128 of an int8 that is no negative number, data become such:

    s = conv2d(pad(x, -128), W)           →    s = convolution(uint8(x + 128), pack(W)) + -128 * sum(W)
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import numpy as np
from tvm import relax

from nnefc.passes.compute.channel_order import arrange_array, merge_groups
from nnefc.passes.compute.vector_convolution import (
    add_pointwise_vectors,
    convolve_depthwise_vectors,
    convolve_vectors,
    convolve_vectors_within,
    gather_taps,
    join_pointwise,
    pack_taps,
    pack_vectors,
)
from nnefc.passes.graph.layout.blocked_layout import Blocked
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter, LayoutRule
from nnefc.passes.graph.layout.padding_kernels import padding_of
from nnefc.passes.graph.layout.rules.convolution import Sliding, integers, sliding_of
from nnefc.passes.graph.layout.rules.deconvolution import interleave, phases_of, transposed_sizes
from nnefc.passes.graph.rewriter import array_of, is_call, is_constant, shape_of
from nnefc.passes.graph.rewriter import constant as to_constant
from nnefc.support.element_types import BYTES, EIGHT_BITS, FLOAT8
from nnefc.symbolic.dims import is_known

__all__ = ["rules_for"]

_FROM_ZERO = {("int8", -128): "uint8", ("uint8", 128): "int8"}
"""By the type of bytes and their zero point, the type of bytes less the zero point."""
_TILE = 32  # channels of a group that no tile of tensor cores is wider than
_WIDEST = 128  # channels of merged groups: the zeros of wider ones take longer than a conversion of the layout


@dataclass(frozen=True)
class _Pointwise:
    """A convolution with windows of one pixel, with its data and filters in the form that kernels read.

    Attributes:
        dtype: of the result.
    """

    data: relax.Expr
    packed: np.ndarray
    strides: tuple[int, ...]
    dtype: str

    @property
    def is_dense(self) -> bool:
        """Whether it reads every pixel."""
        return all(step == 1 for step in self.strides)


_Made = dict[relax.Expr, _Pointwise]
"""Pointwise computations by the variable of their result."""


def rules_for(types: Collection[str]) -> dict[str, LayoutRule]:
    """Returns the rules for convolutions that multiply elements of some types, and for sums of two of them."""
    pointwise: _Made = {}

    def convolution(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
        filters = _filters(layouts, call, types)
        if filters is None:
            return None
        sliding = sliding_of(call, filters.ndim - 2)
        padded = _padded(layouts, call.args[0], sliding)
        return _convolution(layouts, padded, filters, _result_type(call), pointwise)

    def residual(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
        return _sum_of_two(layouts, call, pointwise)

    def deconvolution(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
        filters = _filters(layouts, call, types)
        return None if filters is None else _deconvolution(layouts, call, filters)

    return {
        "add": residual,
        **{f"nn.conv{rank}d": convolution for rank in (1, 2, 3)},
        **{f"nn.conv{rank}d_transpose": deconvolution for rank in (1, 2, 3)},
    }


def _filters(layouts: LayoutRewriter, call: relax.Call, types: Collection[str]) -> np.ndarray | None:
    """Returns the constant filters of a convolution that multiplies elements of one of `types`, or of bytes of two."""
    data, weights = call.args
    own = {str(data.ty.dtype), str(weights.ty.dtype)}
    known = is_constant(weights) and own <= set(types) and (len(own) == 1 or own <= set(BYTES) or own <= set(FLOAT8))
    if not known or not all(isinstance(size, int) for size in layouts.row_major_shape(data)[1:2]):
        return None
    return array_of(weights)


def _result_type(call: relax.Call) -> str:
    """Returns the element type of a convolution's result: that of the data, unless it names one."""
    named = call.attrs.out_dtype
    return str(call.args[0].ty.dtype) if named is None or str(named) in ("", "void") else str(named)


@dataclass(frozen=True)
class _Padded:
    """Data, the window that slides over them, and the value of the padding."""

    data: relax.Expr
    sliding: Sliding
    value: int = 0


def _padded(layouts: LayoutRewriter, data: relax.Expr, sliding: Sliding) -> _Padded:
    """Returns the data of a convolution without the padding that is computed before it, of bytes."""
    if str(data.ty.dtype) not in EIGHT_BITS or any((*sliding.before, *sliding.after)):
        return _Padded(data, sliding)
    inner = padding_of(layouts, data, len(sliding.strides))
    if inner is None or not is_known(*inner.before, *inner.after):
        return _Padded(data, sliding)
    return _Padded(inner.data, replace(sliding, before=inner.before, after=inner.after), int(inner.value))


def _convolution(
    layouts: LayoutRewriter, padded: _Padded, filters: np.ndarray, dtype: str, pointwise: _Made | None = None
) -> relax.Expr | None:
    """Returns the convolution of data with `filters` `[O, I / groups, *k]`, with a result of `dtype`.

    Args:
        pointwise: takes in the convolution if its window is one pixel.
    """
    outputs, inputs = filters.shape[:2]
    data, sliding = padded.data, padded.sliding
    if layouts.layout_of(data) is None and 2 * max(outputs, sliding.groups * inputs) < layouts.size:
        return None  # most of a block would be zeros, on both sides
    if sliding.groups > 1 and inputs == 1 and outputs == sliding.groups:
        return _depthwise(layouts, padded, filters, dtype)
    merged = _merged(filters, sliding.groups, layouts.size)
    if merged is None:
        return None
    filters, groups = merged
    in_taps = _taps_as_channels(layouts, padded, filters) if groups == 1 else None
    if in_taps is not None:
        source, filters, sliding = in_taps
    else:
        source, filters = _slot_by_slot(layouts, data, filters) if groups == 1 else (layouts.blocked(data), filters)
    packed = pack_vectors(filters, layouts.size)
    given = (sliding.before, sliding.after, sliding.strides, sliding.dilation, groups, dtype)
    weights = to_constant(packed)
    if (str(source.ty.dtype), padded.value) in _FROM_ZERO and groups == 1 and in_taps is None:
        data = _from_zero(layouts, source, padded.value)
        made = layouts.kernel(convolve_vectors, data, weights, *given, name="convolution")
        result = layouts.builder.emit(relax.op.add(made, _of_zero_point(filters, padded.value, layouts.size)))
    elif padded.value:
        around = to_constant(np.full(layouts.size, padded.value, str(source.ty.dtype)))
        result = layouts.kernel(convolve_vectors_within, source, weights, around, *given, name="convolution")
    else:
        result = layouts.kernel(convolve_vectors, source, weights, *given, name="convolution")
    is_padded = any(sliding.before) or any(sliding.after)
    if pointwise is not None and groups == 1 and not is_padded and all(size == 1 for size in filters.shape[2:]):
        pointwise[result] = _Pointwise(source, packed, sliding.strides, dtype)
    return layouts.as_blocked(result, outputs)


def _from_zero(layouts: LayoutRewriter, source: relax.Expr, zero_point: int) -> relax.Expr:
    """Returns bytes less the smallest or the middle one, as bytes of the other type."""

    def shifted() -> relax.Expr:
        wide = relax.op.subtract(relax.op.astype(source, "int32"), relax.const(zero_point, "int32"))
        return layouts.builder.emit(relax.op.astype(wide, _FROM_ZERO[str(source.ty.dtype), zero_point]))

    return layouts.once(("from zero", source, zero_point), shifted)


def _of_zero_point(filters: np.ndarray, zero_point: int, size: int) -> relax.Constant:
    """Returns the convolution of a zero point with filters `[O, I, *k]`, in blocks of `size` channels."""
    sums = filters.astype(np.int32).sum(axis=tuple(range(1, filters.ndim)), dtype=np.int32) * np.int32(zero_point)
    blocks = np.pad(sums, (0, -len(sums) % size)).reshape(-1, size)
    return to_constant(blocks.reshape(1, len(blocks), *[1] * (filters.ndim - 2), size))


def _sum_of_two(layouts: LayoutRewriter, call: relax.Call, pointwise: _Made) -> relax.Expr | None:
    """Returns one convolution for the sum of two with windows of one pixel, each with a constant added or without."""
    sides = [made for arg in call.args if (made := _of_pixel(layouts, arg, pointwise)) is not None]
    if len(sides) != 2:
        return None
    first, second = sorted(sides, key=lambda side: not side[0].is_dense)
    if not first[0].is_dense or first[0].dtype != second[0].dtype:
        return None
    layout = layouts.layout_of(call.args[0])
    if layout is None or layout != layouts.layout_of(call.args[1]) or shape_of(call.args[0]) != shape_of(call.args[1]):
        return None
    packed = to_constant(join_pointwise([side[0].packed for side in (first, second)]))
    data = first[0].data, second[0].data, packed
    made = layouts.kernel(add_pointwise_vectors, *data, second[0].strides, first[0].dtype, name="convolution")
    biases = [side[1] for side in (first, second) if side[1] is not None]
    if not biases:
        return layouts.having(made, layout)
    bias = to_constant(sum(biases[1:], start=biases[0]))
    return layouts.having(layouts.builder.emit(relax.op.add(made, bias)), layout)


def _of_pixel(
    layouts: LayoutRewriter, expr: relax.Expr, pointwise: _Made
) -> tuple[_Pointwise, np.ndarray | None] | None:
    """Returns the convolution that computes a tensor, and the constant that is added to it, if nothing else reads
    either.
    """
    bias = None
    if not layouts.used_once(expr):
        return None
    value = layouts.definition(expr)
    if is_call(value, "add"):
        others = [arg for arg in value.args if is_constant(arg)]
        inner = [arg for arg in value.args if not is_constant(arg)]
        if len(others) != 1 or not layouts.used_once(inner[0]) or shape_of(inner[0]) != shape_of(expr):
            return None
        expr, bias = inner[0], array_of(others[0])
    return (pointwise[expr], bias) if expr in pointwise else None


def _taps_as_channels(
    layouts: LayoutRewriter, padded: _Padded, filters: np.ndarray
) -> tuple[relax.Expr, np.ndarray, Sliding] | None:
    """Packs several taps of a row into the blocks of data with few channels; returns the data, their filters and the
    window.

    None where that saves no block.
    """
    data, sliding = padded.data, padded.sliding
    channels, width = 1 << (filters.shape[1] - 1).bit_length(), filters.shape[-1]
    taps = layouts.size // channels
    if layouts.layout_of(data) is not None or taps < 2 or width < 2 or not is_known(shape_of(data)[-1]):
        return None
    before, stride, step = (each[-1] for each in (sliding.before, sliding.strides, sliding.dilation))
    results = (shape_of(data)[-1] + before + sliding.after[-1] - (width - 1) * step - 1) // stride + 1
    columns = (results - 1) * stride + (-(-width // taps) - 1) * taps * step + 1
    given = (columns, before, step, taps, channels, padded.value)
    source = layouts.once(("taps", data, given), lambda: layouts.emit(gather_taps, data, *given, name="block"))
    rows = Sliding(
        (*sliding.before[:-1], 0),
        (*sliding.after[:-1], 0),
        sliding.strides,
        (*sliding.dilation[:-1], taps * step),
        1,
    )
    return source, pack_taps(filters, taps, channels), rows


def _slot_by_slot(layouts: LayoutRewriter, data: relax.Expr, filters: np.ndarray) -> tuple[relax.Expr, np.ndarray]:
    """Returns `data` in its own layout, and filters with an input for each slot: zero for empty ones."""
    layout = layouts.layout_of(data)
    if layout is None or not layout.is_whole:
        return layouts.blocked(data), filters
    order = np.asarray(layout.order).reshape(-1, *[1] * (filters.ndim - 2))
    return data, np.where(order >= 0, filters[:, np.maximum(layout.order, 0)], np.zeros((), filters.dtype))


def _merged(filters: np.ndarray, groups: int, size: int) -> tuple[np.ndarray, int] | None:
    """Returns the filters in merged groups of full blocks that fill a tile, and the number of groups; None if such
    groups would be too wide.
    """
    if groups == 1:
        return filters, 1
    outputs, inputs = filters.shape[0] // groups, filters.shape[1]
    full = [n for n in range(1, groups + 1) if groups % n == n * inputs % size == n * outputs % size == 0]
    wide = [n for n in full if n * max(inputs, outputs) <= _TILE]
    together = max(wide) if wide else min(full, default=groups)
    if together > 1 and together * max(inputs, outputs) > _WIDEST:
        return None
    return (merge_groups(filters, groups // together, together) if together > 1 else filters), groups // together


def _depthwise(layouts: LayoutRewriter, padded: _Padded, filters: np.ndarray, dtype: str) -> relax.Expr:
    sliding = padded.sliding
    layout = layouts.layout_of(padded.data) or Blocked.of(filters.shape[0], layouts.size)
    packed = to_constant(arrange_array(filters[:, 0], 0, layout.order, layout.size))
    given = (sliding.before, sliding.after, sliding.strides, sliding.dilation, dtype, padded.value)
    source = layouts.laid_out(padded.data, layout)
    result = layouts.kernel(convolve_depthwise_vectors, source, packed, *given, name="depthwise_convolution")
    return layouts.having(result, layout)


def _deconvolution(layouts: LayoutRewriter, call: relax.Call, filters: np.ndarray) -> relax.Expr | None:
    """Returns the convolution that computes all phases of the stride, and their interleaving."""
    strides, dilation, groups = integers(call.attrs.strides), integers(call.attrs.dilation), int(call.attrs.groups)
    if groups != 1 or any(step != 1 for step in dilation):
        return None
    data, sizes = call.args[0], layouts.row_major_shape(call.args[0])[2:]
    before, outputs = transposed_sizes(call, filters.shape[2:], sizes)
    phases = phases_of(filters, sizes, outputs, strides, before, layouts.size)
    if phases is None:
        return None
    made = _convolution(layouts, _Padded(data, phases.sliding), phases.filters, _result_type(call))
    if made is None or phases.way.is_identity:
        return made if made is None else layouts.as_blocked(made, filters.shape[1])
    way = phases.way
    result = layouts.emit(interleave, made, way.strides, way.before, way.outputs)
    return layouts.as_blocked(result, filters.shape[1])
