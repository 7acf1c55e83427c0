"""Rewrites convolutions: direct, Winograd's, depthwise and grouped, with any number of spatial dimensions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from tvm import relax

from nnefc.operators.nn.window import Window
from nnefc.passes.compute.blocked import blocks, multiply
from nnefc.passes.compute.channel_order import arrange_array, convolve_gathered
from nnefc.passes.compute.convolution import (
    convolve,
    convolve_depthwise,
    convolve_wider,
    pack_filter,
    scale_inputs,
)
from nnefc.passes.compute.dot.dot_product import Multiplication, multiplication_of
from nnefc.passes.compute.permuted_lanes import convolve_permuted, permuted_filters
from nnefc.passes.compute.winograd import (
    Tile,
    multiply_tiles,
    tiles_of,
    transform_filter,
    transform_input,
    transform_output,
    transformed_input,
)
from nnefc.passes.graph.algorithms.choose_convolution import blocks_to_add, columns_to_add
from nnefc.passes.graph.algorithms.choose_matmul import multiplied_type
from nnefc.passes.graph.fusion.fusion_patterns import OpPattern
from nnefc.passes.graph.layout.blocked_layout import Blocked
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter, LayoutRule
from nnefc.passes.graph.layout.padding_kernels import padding_of
from nnefc.passes.graph.layout.rules.group_reads import Reads, merged_groups, reads_of, slot_by_slot
from nnefc.passes.graph.layout.rules.outer_product_convolution import outer_product_convolution
from nnefc.passes.graph.layout.rules.padded_depthwise import padded_depthwise
from nnefc.passes.graph.precision.use_16bit_floats import Float16Sums, powers_for
from nnefc.passes.graph.quantized.narrow_constants import dequantized_for
from nnefc.passes.graph.quantized.packed_operands import packed_data, packed_weights
from nnefc.passes.graph.rewriter import constant as to_constant
from nnefc.passes.graph.rewriter import is_call, shape_of
from nnefc.passes.graph.stored_weights import weights_of
from nnefc.symbolic.dims import Dimension, element_count, size_hint

__all__ = [
    "RULES",
    "Sliding",
    "Winograd",
    "convolution",
    "filters_of",
    "integers",
    "result_sizes",
    "sliding_of",
    "split_padding",
    "winograd_of",
]


def integers(values: Sequence[Any]) -> tuple[int, ...]:
    """Converts integers of Relax to Python's."""
    return tuple(int(value) for value in values)


def split_padding(values: Sequence[Any], rank: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Splits Relax's padding list into (before, after)."""
    padding = integers(values)
    return (padding, padding) if len(padding) == rank else (padding[:rank], padding[rank:])


@dataclass(frozen=True)
class Sliding:
    """The window attributes of a convolution: strides, dilations and padding of the spatial dimensions."""

    before: tuple[Dimension, ...]
    after: tuple[Dimension, ...]
    strides: tuple[int, ...]
    dilation: tuple[int, ...]
    groups: int

    def window(self, kernel: tuple[int, ...]) -> Window:
        """Returns the window of a filter of these sizes."""
        return Window(kernel, self.strides, self.dilation, tuple(zip(self.before, self.after, strict=True)))

    def around(self, before: Sequence[Dimension], after: Sequence[Dimension]) -> Sliding:
        """Returns the window for data without their border of zeros, which becomes part of the padding."""
        low = tuple(own + width for own, width in zip(self.before, before, strict=True))
        high = tuple(own + width for own, width in zip(self.after, after, strict=True))
        return replace(self, before=low, after=high)


@dataclass(frozen=True)
class Winograd:
    """The tiles and transforms of Winograd's algorithm for a convolution.

    Attributes:
        tile: results that are computed together.
        dtype: the 16-bit float that the products multiply; None for float32.
    """

    tile: Tile
    dtype: str | None = None


def _from_call(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    data, weights = call.args
    filters = filters_of(layouts, weights)
    if filters is None or str(weights.ty.dtype) != "float32" or str(data.ty.dtype) != "float32":
        return None
    sliding = sliding_of(call, filters.ndim - 2)
    padded = padding_of(layouts, data, filters.ndim - 2)
    if padded is not None and padded.value == 0:
        data, sliding = padded.data, sliding.around(padded.before, padded.after)
    return convolution(layouts, data, filters, sliding, winograd_of(layouts, filters))


def winograd_of(layouts: LayoutRewriter, filters: np.ndarray) -> Winograd | None:
    """Returns the tiles of Winograd's algorithm for the convolution with these filters, if it is used."""
    tile = layouts.algorithms.tile(filters)
    if tile is None:
        return None
    return Winograd(tile, layouts.target.float16_type if layouts.algorithms.narrows(filters) else None)


def filters_of(layouts: LayoutRewriter, weights: relax.Expr) -> np.ndarray | None:
    """Returns the value of constant weights, as the network stores them."""
    return weights_of(weights, layouts.definition)


def sliding_of(call: relax.Call, rank: int) -> Sliding:
    """Reads the window attributes of a convolution of so many spatial dimensions."""
    before, after = split_padding(call.attrs.padding, rank)
    return Sliding(before, after, integers(call.attrs.strides), integers(call.attrs.dilation), int(call.attrs.groups))


def convolution(
    layouts: LayoutRewriter, data: relax.Expr, filters: np.ndarray, sliding: Sliding, winograd: Winograd | None
) -> relax.Expr:
    """Returns the convolution of `data` with the constant `filters` `[O, I / groups, *k]`, float32 or narrower.

    Filters stay narrow where the target widens them quickly. Others become float32 as they are packed.

    Args:
        winograd: by this algorithm, if given; in float32 then.
    """
    outputs, inputs = filters.shape[:2]
    groups, dtype = sliding.groups, multiplied_type(filters, layouts.target)
    if groups > 1 and inputs == 1 and outputs == groups:
        return _depthwise(layouts, data, filters.astype(np.float32, copy=False), sliding)
    if groups == 1:
        data, filters = _in_order(layouts, data, filters)
        windows = (sliding.before, sliding.after, sliding.strides, sliding.dilation)
        sizes = result_sizes(layouts.row_major_shape(data)[2:], filters.shape[2:], sliding)
        made = outer_product_convolution(layouts, data, filters, windows, sizes, winograd is not None)
        if made is not None:
            return made
    if winograd is not None:
        return _by_winograd(layouts, data, filters.astype(np.float32, copy=False), sliding, winograd)
    layout = layouts.layout_of(data)
    aligned = groups == 1 or (inputs % layouts.size == 0 and outputs // groups % layouts.size == 0)
    if not aligned or (layout is not None and not layout.is_in_order):
        filters = filters.astype(dtype, copy=False)
        permuted = None if aligned else _permuted(layouts, data, filters, sliding)
        return _gathered(layouts, data, filters, sliding) if permuted is None else permuted
    few = inputs < layouts.size and layout is None
    height, width = (1, *result_sizes(layouts.row_major_shape(data)[2:], filters.shape[2:], sliding))[-2:]
    count = blocks(outputs, layouts.size)
    added = columns_to_add(height, width, count, layouts.target) if groups == 1 else 0
    more = blocks_to_add(height, width + added, count, layouts.target) if groups == 1 else 0
    size = layouts.size
    if more:
        filters = np.pad(filters, [(0, (count + more) * size - outputs), *[(0, 0)] * (filters.ndim - 1)])
    elif groups == 1:
        size = max(size, layouts.target.block_lanes("float32"))  # the filter is one for all levels of a library
    packed = to_constant(pack_filter(filters, size if inputs % size == 0 else 0, size, groups), dtype)
    if groups == 1 and not few and not layouts.strict:
        data, packed = _with_scale_in_filter(layouts, layouts.blocked(data), packed)
    packed = dequantized_for(layouts, packed, _pixels(layouts, data, filters, sliding), layouts.target)
    data = data if few else layouts.blocked(data)
    steps, dilation = sliding.strides, sliding.dilation
    own = None if size == layouts.size else (count, layouts.size)
    if added or more:
        after = (*sliding.after[:-1], sliding.after[-1] + added * steps[-1])
        source = layouts.padded(data, sliding.before, after)
        given = (steps, dilation, width, multiply, count, own)
        result = layouts.kernel(convolve_wider, source, packed, *given, name="convolution")
    else:
        source = layouts.padded(data, sliding.before, sliding.after)
        result = layouts.kernel(convolve, source, packed, steps, dilation, groups, multiply, own, name="convolution")
    return layouts.as_blocked(result, outputs)


def result_sizes(sizes: Sequence[Dimension], kernel: Sequence[int], sliding: Sliding) -> tuple[Dimension, ...]:
    """Returns the spatial sizes of a convolution's result, given those of its data and of its filter."""
    return tuple(
        (length + before + after - (size - 1) * dilation - 1) // stride + 1
        for length, before, after, size, dilation, stride in zip(
            sizes, sliding.before, sliding.after, kernel, sliding.dilation, sliding.strides, strict=True
        )
    )


def _pixels(layouts: LayoutRewriter, data: relax.Expr, filters: np.ndarray, sliding: Sliding) -> int:
    """Returns the number of positions of the result, each with a sum for every output channel."""
    batch, _, *sizes = layouts.row_major_shape(data)
    return size_hint(element_count((batch, *result_sizes(sizes, filters.shape[2:], sliding))))


def _in_order(layouts: LayoutRewriter, data: relax.Expr, filters: np.ndarray) -> tuple[relax.Expr, np.ndarray]:
    """Renumbers the channels of `data` so that they are in order, and those of `filters` likewise, if every slot has a
    channel.
    """
    layout = layouts.layout_of(data)
    if layout is None or not layout.is_full or layout.order == tuple(range(layout.channels)):
        return data, filters
    return layouts.renamed(data, layout.gathered(layout.order)), filters[:, layout.order]


def _with_scale_in_filter(
    layouts: LayoutRewriter, data: relax.Expr, packed: relax.Expr
) -> tuple[relax.Expr, relax.Expr]:
    """Moves a scale from the data of a convolution to its filter, if each channel has one scale and the filter is
    smaller than the data.
    """
    product, shape = layouts.definition(data), shape_of(data)
    if layouts.layout_of(data) is None or not is_call(product, "multiply") or not layouts.used_once(data):
        return data, packed
    if shape[0] != 1 or math.prod(shape_of(packed)) >= size_hint(element_count(shape)):
        return data, packed
    one_a_channel = (1, shape[1], *(1,) * (len(shape) - 3), shape[-1])
    for x, scale in (product.args, reversed(product.args)):
        if layouts.layout_of(x) is not None and shape_of(x) == shape != one_a_channel == shape_of(scale):
            return x, layouts.emit(scale_inputs, packed, scale)
    return data, packed


def _depthwise(layouts: LayoutRewriter, data: relax.Expr, filters: np.ndarray, sliding: Sliding) -> relax.Expr:
    layout = layouts.layout_of(data) or Blocked.of(filters.shape[0], layouts.size)
    packed = to_constant(arrange_array(filters[:, 0], 0, layout.order, layout.size))
    source, window = layouts.laid_out(data, layout), sliding.window(filters.shape[2:])
    result = padded_depthwise(layouts, convolve_depthwise, source, 0, packed, window, name="depthwise_convolution")
    return layouts.having(result, layout)


def _gathered(layouts: LayoutRewriter, data: relax.Expr, filters: np.ndarray, sliding: Sliding) -> relax.Expr:
    """Convolves in groups: each group, or several small ones, gathers its channels and begins a block of the result."""
    outputs, inputs = filters.shape[:2]
    layout = layouts.layout_of(data) or Blocked.of(sliding.groups * inputs, layouts.size)
    source = layouts.padded(layouts.laid_out(data, layout), sliding.before, sliding.after)
    how = Multiplication("float32", str(filters.dtype))
    if layouts.strict:
        merged, groups = filters, sliding.groups
        reads: Reads | None = slot_by_slot(layout, groups)
    else:
        merged, groups = merged_groups(filters, sliding.groups, layouts.size)
        reads = reads_of(layout, groups, how, filters.shape[2:], layouts.target)
    assert reads is not None  # of float32, slot by slot at least
    packed = to_constant(reads.pack(merged, layout, how, layouts.size))
    weights = dequantized_for(layouts, packed, _pixels(layouts, data, filters, sliding), layouts.target)
    given = (to_constant(reads.first), sliding.strides, sliding.dilation)
    result = layouts.kernel(convolve_gathered, source, weights, *given, name="convolution")
    return layouts.as_blocked(result, outputs, groups)


def _permuted(layouts: LayoutRewriter, data: relax.Expr, filters: np.ndarray, sliding: Sliding) -> relax.Expr | None:
    """Convolves in groups that are a small part of a vector: each lane reads the lanes of its group, and the result has
    the data's layout.

    None if there are others, or no data whose groups lie side by side.
    """
    outputs, inputs = filters.shape[:2]
    lanes, target = layouts.target.lanes("float32"), layouts.target
    if outputs != sliding.groups * inputs or lanes % inputs or 2 * inputs > lanes or not target.permutes_lanes:
        return None
    layout = layouts.layout_of(data) or Blocked.of(outputs, layouts.size)
    packed = permuted_filters(filters, layout.order, layout.size)
    if packed is None:
        return None
    source = layouts.padded(layouts.laid_out(data, layout), sliding.before, sliding.after)
    weights = dequantized_for(layouts, to_constant(packed), _pixels(layouts, data, filters, sliding), target)
    result = layouts.kernel(
        convolve_permuted, source, weights, sliding.strides, sliding.dilation, name="grouped_convolution"
    )
    return layouts.having(result, layout)


def _by_winograd(
    layouts: LayoutRewriter, data: relax.Expr, filters: np.ndarray, sliding: Sliding, winograd: Winograd
) -> relax.Expr:
    """Returns a 3 × 3 convolution in three kernels; the padding is extended to full tiles."""
    batch, _, *sizes = layouts.row_major_shape(data)
    height, width = result_sizes(sizes, filters.shape[2:], sliding)
    tile, dtype = winograd.tile, winograd.dtype
    rows, columns = tiles_of(height, tile[0]), tiles_of(width, tile[1])
    wider = (sliding.after[0] + rows * tile[0] - height, sliding.after[1] + columns * tile[1] - width)
    weights = transform_filter(pack_filter(filters, layouts.size, layouts.size, 1), tile)
    source = layouts.blocked(data)
    if dtype == "float16":
        return _winograd_in_float16(layouts, source, weights, sliding, wider, tile, (height, width), filters.shape[0])
    padded = layouts.padded(source, sliding.before, wider)
    opaque = OpPattern.OPAQUE
    if dtype is None:
        tiles: relax.Expr = layouts.emit(transform_input, padded, rows, columns, tile, pattern=opaque)
        products = layouts.kernel(multiply_tiles, tiles, to_constant(weights), name="multiply_tiles")
    else:
        how = multiplication_of(layouts.target, dtype, dtype)
        tiles = layouts.emit(transformed_input, padded, rows, columns, tile, dtype, pattern=opaque)
        packed = to_constant(packed_weights(weights, 3, how))
        operands = packed_data(layouts.builder, tiles, how)
        products = layouts.kernel(multiply_tiles, operands, packed, how.product, name="multiply_tiles")
    result = layouts.kernel(transform_output, products, batch, height, width, tile, name="transform_output")
    return layouts.as_blocked(result, filters.shape[0])


_LARGEST_TERMS = Float16Sums(4096, 1 / 32, 2.0)
"""The limits of float16 sums by Winograd's algorithm, whose transformed data are up to 10.6 times as large as
the data.
"""


def _winograd_in_float16(
    layouts: LayoutRewriter,
    data: relax.Expr,
    weights: np.ndarray,
    sliding: Sliding,
    wider: tuple[int, ...],
    tile: Tile,
    sizes: tuple[int, int],
    outputs: int,
) -> relax.Expr:
    """Returns a 3 × 3 convolution computed in float16, from transformed float32 weights `[points, O blocks, I blocks,
    i, o]`.

    Args:
        sizes: of the result.
    """
    height, width = sizes
    batch = shape_of(data)[0]
    points, outer, _, _, lanes = weights.shape
    terms = np.moveaxis(weights, (1, 4), (0, 1)).reshape(outer * lanes, points, -1)
    largest = np.abs(terms).sum(axis=2).max(axis=1)
    scale = powers_for(largest[:, None], _LARGEST_TERMS).reshape(outer, 1, 1, lanes)
    half = layouts.builder.emit(relax.op.astype(data, "float16"))
    padded = layouts.padded(half, sliding.before, wider)
    counts = tiles_of(height, tile[0]), tiles_of(width, tile[1])
    tiles = layouts.emit(transform_input, padded, *counts, tile, pattern=OpPattern.OPAQUE)
    how = multiplication_of(layouts.target, "float16", "float16")
    packed = to_constant((weights * scale).astype(np.float16))
    products = layouts.kernel(multiply_tiles, tiles, packed, how.product, name="multiply_tiles")
    narrow = layouts.builder.emit(relax.op.astype(products, "float16"))
    made = layouts.kernel(transform_output, narrow, batch, height, width, tile, name="transform_output")
    result = layouts.builder.emit(relax.op.astype(made, "float32"))
    if np.any(scale != 1):
        back = to_constant((1 / scale).reshape(1, outer, 1, 1, lanes).astype(np.float32))
        result = layouts.builder.emit(relax.op.multiply(result, back))
    return layouts.as_blocked(result, outputs)


RULES: dict[str, LayoutRule] = {"nn.conv1d": _from_call, "nn.conv2d": _from_call, "nn.conv3d": _from_call}
