"""Rewrites int8 convolutions with int32 accumulators, and 16-bit float ones with float32 accumulators, as dot products.

    s = conv2d(x, W, out_dtype="int32")     →     s = convolution(packed(x), pack(W)) + c

`packed` reads the bytes of neighbouring channels of a blocked tensor as one int32, which costs nothing. Where the
instruction wants data of the other sign, 128 is added to them or taken away; `c` makes up for that: 128 times the sum
of the weights of each output channel. Padding that a `nn.pad` before the convolution adds is part of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
from tvm import relax, te, tirx

from nnefc.ir.kernel_calls import emit_te
from nnefc.passes.compute.blocked import blocks
from nnefc.passes.compute.channel_order import arrange_array, convolve_gathered
from nnefc.passes.compute.convolution import convolve, convolve_depthwise, pack_filter
from nnefc.passes.compute.dot.depthwise_int8x4 import convolve_int8x4, words_of
from nnefc.passes.compute.dot.depthwise_int16_sums import convolve_int16_sums, takes_int16_sums
from nnefc.passes.compute.dot.depthwise_int16x2 import convolve_rows, pack_rows
from nnefc.passes.compute.dot.dot_product import Multiplication, byte_product, multiplication_of, pair_product
from nnefc.passes.compute.dot.matrix_units import in_tiles, paired_terms
from nnefc.passes.compute.dot.paired_weights import convolve_paired, convolve_paired_taps, pair_terms
from nnefc.passes.compute.dot.quad_pairs import (
    by_quad_pairs,
    convolve_quads,
    has_quad_pairs,
    pair_quads,
    quads_of_filter,
)
from nnefc.passes.compute.window_sums import sum_blocks, sum_channels, sum_lanes, sum_windows
from nnefc.passes.compute.winograd import (
    fits_int32,
    multiply_tiles,
    tiles_of,
    transform_input,
    transform_integer_filter,
    transform_output,
)
from nnefc.passes.graph.fusion.fusion_patterns import OpPattern
from nnefc.passes.graph.layout.blocked_layout import Blocked
from nnefc.passes.graph.layout.blocking import seen_as, to_blocks
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter, LayoutRule
from nnefc.passes.graph.layout.padding_kernels import padding_of
from nnefc.passes.graph.layout.rules.convolution import Sliding, integers, result_sizes, split_padding
from nnefc.passes.graph.layout.rules.dot_accumulate_convolution import Padded, summed_convolution
from nnefc.passes.graph.layout.rules.group_reads import merged_groups, reads_of
from nnefc.passes.graph.layout.rules.padded_depthwise import padded_depthwise
from nnefc.passes.graph.quantized.byte_ranges import byte_range
from nnefc.passes.graph.quantized.packed_operands import BYTES, NARROW, converted, packed_data, packed_weights
from nnefc.passes.graph.rewriter import array_of, is_constant, shape_of
from nnefc.passes.graph.rewriter import constant as to_constant
from nnefc.passes.tir.dot.dot_instructions import PMADDWD
from nnefc.symbolic.dims import is_known
from nnefc.targets.machine.cpu.target import Target

__all__ = ["RULES", "fills_blocks"]

_MAX_TAPS = 49
"""The largest window that is summed one element after the other."""

_MAX_FILLED = 1.5
"""The largest ratio of elements in full blocks to channels for which loops in assembly pay."""

_MAX_READ = 2
"""The largest number of elements that a group reads for each of its channels; beyond it a copy of the data
costs less.
"""


def _convolution(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    data, weights = call.args
    if not is_constant(weights) or str(weights.ty.dtype) not in NARROW:
        return None
    filters, attrs = array_of(weights), call.attrs
    before, after = split_padding(attrs.padding, filters.ndim - 2)
    padded = Padded(data)
    if not any((*before, *after)) and (inner := padding_of(layouts, data, filters.ndim - 2)) is not None:
        padded, before, after = Padded(inner.data, int(inner.value)), inner.before, inner.after
    sliding = Sliding(before, after, integers(attrs.strides), integers(attrs.dilation), int(attrs.groups))
    if sliding.groups > 1 and filters.shape[1] == 1 and filters.shape[0] == sliding.groups:
        return _depthwise(layouts, padded, filters, sliding)
    return _dense(layouts, padded, filters, sliding)


def _dense(layouts: LayoutRewriter, padded: Padded, filters: np.ndarray, sliding: Sliding) -> relax.Expr:
    if layouts.target.summed_bytes and {str(padded.data.ty.dtype), str(filters.dtype)} <= set(BYTES):
        return summed_convolution(layouts, padded, filters, sliding)
    how = multiplication_of(layouts.target, str(padded.data.ty.dtype), str(filters.dtype)).of_values(filters)
    if not layouts.target.hosted and how.terms > 1 and filters.shape[1] == sliding.groups == 1:
        row_major = Padded(layouts.row_major(padded.data), padded.value)
        padded, filters, sliding = _taps_as_channels(layouts, row_major, filters, sliding)
    by_winograd = _by_winograd(layouts, padded, filters, sliding)
    if by_winograd is not None:
        return by_winograd
    in_quads = _in_quads(layouts, padded, filters, sliding)
    if in_quads is not None:
        return in_quads
    value = padded.value + how.offset
    few_taps = str(filters.dtype) in BYTES and math.prod(filters.shape[2:]) <= _MAX_TAPS
    if few_taps and sliding.groups == filters.shape[0] == 1 and np.all(filters == 1):
        return _window_sums(layouts, padded.data, filters, sliding, how, value)
    merged, groups = merged_groups(filters, sliding.groups, layouts.size)
    outputs, inputs = merged.shape[:2]
    terms = paired_terms(how, layouts.target) if _has_several_pixels(layouts, padded, merged, sliding) else 0
    in_blocks: bool | None = False
    if groups == 1 and inputs < layouts.size and layouts.layout_of(padded.data) is None:
        if terms and inputs <= how.terms and merged.shape[-1] > 1 and sliding.dilation[-1] == 1:
            return _with_offset(layouts, _paired_taps(layouts, padded.data, merged, sliding, how, value), filters, how)
        source = _few_channels(layouts, padded.data, sliding, how, value)
    else:
        in_blocks = _by_whole_blocks(how, merged, layouts)
        gathered = _gathered(layouts, padded, merged, groups, sliding, how, in_blocks is None)
        if gathered is not None:
            return _with_offset(layouts, gathered, filters, how)
        data = _in_blocks(layouts, padded.data, Blocked.of(groups * inputs, layouts.size, groups), how)
        source = packed_data(layouts.builder, layouts.padded(data, sliding.before, sliding.after, value), how)
    block_in = layouts.size // how.terms if in_blocks else 0
    packed = pack_filter(packed_weights(merged, 1, how), block_in, layouts.size, groups)
    is_paired = terms > 0 and packed.shape[-2] % terms == 0
    order = to_constant(pair_terms(packed, terms) if is_paired else packed)
    steps, name = (sliding.strides, sliding.dilation), "integer_convolution"
    compute: Callable[..., te.Tensor] = convolve_paired if is_paired else convolve
    result = layouts.kernel(compute, source, order, *steps, groups, how.product, name=name)
    return _with_offset(layouts, layouts.as_blocked(result, outputs, groups), filters, how)


def _paired_taps(
    layouts: LayoutRewriter, data: relax.Expr, filters: np.ndarray, sliding: Sliding, how: Multiplication, value: int
) -> relax.Var:
    """Returns a convolution of pixels of one dot operand in pairs of taps; an odd number gets one more, of zeros."""
    terms, width = paired_terms(how, layouts.target), filters.shape[-1]
    more = -width % terms
    wider = np.pad(filters, [(0, 0)] * (filters.ndim - 1) + [(0, more)])
    size = layouts.row_major_shape(data)[-1] + sliding.before[-1] + sliding.after[-1]
    left = (size - width) % sliding.strides[-1] if is_known(size) else 0  # columns that no window reaches
    sliding = replace(sliding, after=(*sliding.after[:-1], sliding.after[-1] + max(more - left, 0)))
    packed = pack_filter(packed_weights(wider, 1, how), 0, layouts.size, 1)[:, 0, ..., 0, :]
    result = layouts.kernel(
        convolve_paired_taps,
        _few_channels(layouts, data, sliding, how, value),
        to_constant(pair_terms(packed, terms)),
        sliding.strides,
        sliding.dilation,
        how.product,
        name="integer_convolution",
    )
    return layouts.as_blocked(result, filters.shape[0])


def _has_several_pixels(layouts: LayoutRewriter, padded: Padded, filters: np.ndarray, sliding: Sliding) -> bool:
    """Whether the result may have two pixels, which one instruction computes together."""
    sizes = result_sizes(layouts.row_major_shape(padded.data)[2:], filters.shape[2:], sliding)
    return not is_known(*sizes) or math.prod(sizes) > 1


def fills_blocks(how: Multiplication, inputs: int, size: int, target: Target) -> bool:
    """Whether products by lane are of full blocks of `size` channels, and not only of so many `inputs`."""
    assembled = how.is_long or (target.vectors.by_lane and how.dot is not None and how.data in (*BYTES, "float16"))
    return assembled and blocks(inputs, size) * size <= _MAX_FILLED * inputs


def _by_whole_blocks(how: Multiplication, filters: np.ndarray, layouts: LayoutRewriter) -> bool | None:
    """Whether sums over channels in order cover full blocks, and not only the channels of a group; None where such sums
    have no short enough parts.
    """
    inputs, *kernel = filters.shape[1:]
    if in_tiles(how, layouts.target):
        return True
    whole = how.is_cut(blocks(inputs, layouts.size), *kernel, layouts.size // how.terms)
    fills = inputs % layouts.size == 0 or fills_blocks(how, inputs, layouts.size, layouts.target)
    if not fills and how.is_cut(*kernel, -(-inputs // how.terms)):
        return False
    return True if whole else None


def _in_blocks(layouts: LayoutRewriter, data: relax.Expr, layout: Blocked, how: Multiplication) -> relax.Expr:
    """Returns the data as the instruction reads them; row-major data are converted first, in long vectors."""
    if layouts.layout_of(data) is None:
        data = _converted(layouts, data, how)
    return _converted(layouts, layouts.laid_out(data, layout), how)


def _converted(layouts: LayoutRewriter, data: relax.Expr, how: Multiplication) -> relax.Expr:
    """Converts data once for all convolutions that read them."""
    key = "converted", data, how.data, how.offset
    made = layouts.once(key, lambda: converted(layouts.builder, data, how))
    return layouts.like(data, made)


def _window_sums(
    layouts: LayoutRewriter, data: relax.Expr, filters: np.ndarray, sliding: Sliding, how: Multiplication, value: int
) -> relax.Expr:
    """Returns a convolution with a filter of ones: the sums of the elements under its window, in row-major layout."""
    channels = filters.shape[1]
    if layouts.layout_of(data) is None and channels < layouts.size:
        source = layouts.padded(_converted(layouts, data, how), sliding.before, sliding.after, value)
        pixels = layouts.emit(sum_channels, source)
    else:
        layout = Blocked.of(channels, layouts.size)
        source = layouts.padded(_in_blocks(layouts, data, layout, how), sliding.before, sliding.after, value)
        bits = np.where(np.asarray(layout.order) >= 0, -1, 0).reshape(-1, layouts.size)
        pixels = layouts.emit(sum_lanes, layouts.emit(sum_blocks, source, to_constant(bits.astype(how.data))))
    sums = layouts.emit(sum_windows, pixels, filters.shape[2:], sliding.strides, sliding.dilation)
    if not how.offset:
        return sums
    less = to_constant(np.full((1,) * filters.ndim, -how.offset * filters.size, np.int32))
    return layouts.builder.emit(relax.op.add(sums, less))


def _with_offset(layouts: LayoutRewriter, result: relax.Var, filters: np.ndarray, how: Multiplication) -> relax.Expr:
    """Returns sums corrected for the offset that was added to the data."""
    return _shifted(layouts, result, _sums_of(filters) * -how.offset) if how.offset else result


def _sums_of(filters: np.ndarray) -> np.ndarray:
    """Returns the sum of the weights of each output channel."""
    sums: np.ndarray = filters.astype(np.int64).sum(axis=tuple(range(1, filters.ndim)))
    return sums


def _shifted(layouts: LayoutRewriter, result: relax.Var, shift: np.ndarray) -> relax.Expr:
    """Adds a constant to each output channel."""
    axes = [1] * (len(layouts.row_major_shape(result)) - 2)
    constant = to_constant(shift.astype(np.int32).reshape(1, -1, *axes))
    layout = layouts.layout_of(result)
    assert layout is not None
    return layouts.like(result, layouts.builder.emit(relax.op.add(result, layouts.laid_out(constant, layout))))


def _in_quads(layouts: LayoutRewriter, padded: Padded, filters: np.ndarray, sliding: Sliding) -> relax.Expr | None:
    """Returns a convolution by pairs of quads; None where other instructions are faster."""
    data, (outputs, inputs, *kernel) = padded.data, filters.shape
    if not has_quad_pairs(layouts.target) or str(filters.dtype) != "int8" or sliding.groups > 1:
        return None
    around = zip(layouts.row_major_shape(data)[2:], sliding.before, sliding.after, strict=True)
    sizes = [size + before + after for size, before, after in around]
    if not is_known(*sizes):
        return None
    spatial = result_sizes(layouts.row_major_shape(data)[2:], kernel, sliding)
    low, high = byte_range(data, lambda expr: layouts.definition(layouts.origin(expr)))
    bounds = min(low, padded.value), max(high, padded.value)
    how, largest = by_quad_pairs(str(data.ty.dtype), bounds)
    value, layout = padded.value + how.offset, layouts.layout_of(data)
    is_small = layout is None and inputs < layouts.size
    layout = layout or Blocked.of(inputs, how.filled(inputs) if is_small else layouts.size)
    quads, steps = quads_of_filter(filters, layout.order, layout.size, sizes, sliding.dilation)
    pairs = pair_quads(quads.weights, quads.offsets, layouts.size, largest)
    if pairs is None:
        return None
    if is_small:
        source = _few_channels(layouts, data, sliding, how, value)
    else:
        blocked = layouts.padded(_in_blocks(layouts, data, layout, how), sliding.before, sliding.after, value)
        source = packed_data(layouts.builder, blocked, how)
    batch, *image = shape_of(source)
    result = layouts.kernel(
        convolve_quads,
        seen_as(layouts.builder, source, (batch, math.prod(image))),
        to_constant(pairs.table),
        to_constant(pairs.weights),
        to_constant(pairs.ends),
        pairs.kinds,
        tuple(spatial),
        tuple(step * stride for step, stride in zip(steps, sliding.strides, strict=True)),
        name="integer_convolution",
    )
    shift = pairs.shift[:outputs] - how.offset * _sums_of(filters)
    return _shifted(layouts, layouts.as_blocked(result, outputs), shift)


def _by_winograd(layouts: LayoutRewriter, padded: Padded, filters: np.ndarray, sliding: Sliding) -> relax.Expr | None:
    """Returns a 3 × 3 convolution by Winograd's algorithm in int16; None where it is not chosen, or not exact."""
    tile = layouts.algorithms.tile(filters)
    if tile is None:
        return None
    weights = transform_integer_filter(pack_filter(filters, layouts.size, layouts.size, 1))
    if not fits_int32(weights):
        return None
    how, opaque = Multiplication("int16", "int16", 0, PMADDWD), OpPattern.OPAQUE
    batch, _, *sizes = layouts.row_major_shape(padded.data)
    height, width = result_sizes(sizes, filters.shape[2:], sliding)
    rows, columns = tiles_of(height, tile[0]), tiles_of(width, tile[1])
    wider = (sliding.after[0] + rows * tile[0] - height, sliding.after[1] + columns * tile[1] - width)
    source = layouts.padded(layouts.blocked(padded.data), sliding.before, wider, padded.value)
    tiles = layouts.emit(transform_input, source, rows, columns, tile, pattern=opaque)
    operands = packed_data(layouts.builder, tiles, how)
    packed = to_constant(packed_weights(weights, 3, how))
    products = layouts.kernel(multiply_tiles, operands, packed, how.product, name="multiply_tiles")
    result = layouts.kernel(transform_output, products, batch, height, width, tile, name="transform_output")
    return layouts.as_blocked(result, filters.shape[0])


def _gathered(
    layouts: LayoutRewriter,
    padded: Padded,
    filters: np.ndarray,
    groups: int,
    sliding: Sliding,
    how: Multiplication,
    too_long: bool,
) -> relax.Var | None:
    """Convolves in groups that gather their channels; weights of other channels in the same operand are zero.

    Returns None if channels are in order, or if it is faster to reorder them first, as few of the elements that a
    group would read are its own.

    Args:
        too_long: whether sums over channels in order are too long for the type of the accumulator.
    """
    in_order = Blocked.of(groups * filters.shape[1], layouts.size, groups)
    layout = layouts.layout_of(padded.data) or in_order
    if in_tiles(how, layouts.target) or (layout == in_order and not too_long):
        return None
    reads = reads_of(layout, groups, how, filters.shape[2:], layouts.target)
    if reads is None or reads.elements > _MAX_READ * filters.shape[1]:
        return None
    data = _in_blocks(layouts, padded.data, layout, how)
    around = layouts.padded(data, sliding.before, sliding.after, padded.value + how.offset)
    result = layouts.kernel(
        convolve_gathered,
        packed_data(layouts.builder, around, how),
        to_constant(reads.pack(filters, layout, how, layouts.size)),
        to_constant(reads.first),
        sliding.strides,
        sliding.dilation,
        how.product,
        name="integer_convolution",
    )
    return layouts.as_blocked(result, filters.shape[0], groups)


def _taps_as_channels(
    layouts: LayoutRewriter, padded: Padded, filters: np.ndarray, sliding: Sliding
) -> tuple[Padded, np.ndarray, Sliding]:
    """Rewrites a convolution of one channel: the taps of a row become channels, each of which is the data shifted.

    A packed operand then holds neighbouring elements of a row, and not one element alone.
    """
    width, last = filters.shape[-1], len(filters.shape) - 3
    before, stride, dilation = sliding.before[last], sliding.strides[last], sliding.dilation[last]
    size = shape_of(padded.data)[-1]
    count = (size + before + sliding.after[last] - (width - 1) * dilation - 1) // stride + 1

    def moved(data: te.Tensor) -> te.Tensor:
        def element(n: tirx.Var, tap: tirx.Var, *position: tirx.Var) -> tirx.Expr:
            *outer, x = position
            column = x * stride + tap * dilation - before
            inside = tirx.all(column >= 0, column < size)
            return tirx.if_then_else(inside, data(n, 0, *outer, column), tirx.const(padded.value, data.dtype))

        return te.compute((data.shape[0], width, *data.shape[2:-1], count), element, name="taps")

    source = emit_te(layouts.builder, moved, padded.data, name="taps")
    ones = Sliding(
        (*sliding.before[:last], 0),
        (*sliding.after[:last], 0),
        (*sliding.strides[:last], 1),
        (*sliding.dilation[:last], 1),
        1,
    )
    return Padded(source, padded.value), np.moveaxis(filters, -1, 1)[:, :, 0][..., None], ones


def _few_channels(
    layouts: LayoutRewriter, data: relax.Expr, sliding: Sliding, how: Multiplication, value: int
) -> relax.Expr:
    """Puts row-major data into one block with only as many packed operands as their channels need.

    Padding comes last: packed operands are moved faster than bytes. Where memory counts, the bytes are written inside
    the padding at once, so that there is one copy of the data and not two.
    """
    filled = -(-shape_of(data)[1] // how.terms) * how.terms
    in_place = not layouts.target.hosted
    by_rows = in_place or layouts.target.patches
    whole = to_blocks(layouts.builder, converted(layouts.builder, data, how), filled, by_rows)
    if in_place:
        return packed_data(layouts.builder, layouts.padded(whole, sliding.before, sliding.after, value), how)
    joined = packed_data(layouts.builder, whole, how)
    bits = 32 // how.terms
    word = sum((value & ((1 << bits) - 1)) << (bits * term) for term in range(how.terms))
    around = value if how.terms == 1 else word - (1 << 32 if word >> 31 else 0)
    return layouts.padded(joined, sliding.before, sliding.after, around)


def _depthwise(layouts: LayoutRewriter, padded: Padded, filters: np.ndarray, sliding: Sliding) -> relax.Expr:
    channels = filters.shape[0]
    layout = layouts.layout_of(padded.data) or Blocked.of(channels, layouts.size_for(channels))
    data, filters = layouts.laid_out(padded.data, layout), filters[:, 0]
    before, after = sliding.before, sliding.after
    width = result_sizes(layouts.row_major_shape(padded.data)[2:], filters.shape[1:], sliding)[-1]
    words = words_of(layouts.target, str(data.ty.dtype), filters, sliding.strides, sliding.dilation, width)
    if words is not None:
        more = words.width(width) - (shape_of(data)[-2] + before[-1] + after[-1])
        source = layouts.padded(data, before, (*after[:-1], after[-1] + max(more, 0)), padded.value)
        packed = to_constant(arrange_array(words.pack(filters), 0, layout.order, layout.size))
        name, given = "integer_depthwise_convolution", (sliding.strides, sliding.dilation, words, width)
        return layouts.having(layouts.kernel(convolve_int8x4, source, packed, *given, name=name), layout)
    if takes_int16_sums(layouts.target, filters):
        return _in_pairs(layouts, Padded(data, padded.value), filters, sliding, layout)
    if str(filters.dtype) == "float16":
        how = multiplication_of(layouts.target, str(data.ty.dtype), "float16")
        packed = to_constant(arrange_array(filters, 0, layout.order, layout.size))
        source = layouts.padded(data, before, after, padded.value)
        steps, name = (sliding.strides, sliding.dilation), "half_depthwise_convolution"
        made = layouts.kernel(convolve_depthwise, source, packed, *steps, how.product, name=name)
        return layouts.having(made, layout)
    window, name = sliding.window(filters.shape[1:]), "integer_depthwise_convolution"
    of_pairs = pair_product(layouts.target)
    if of_pairs is not None:
        packed = to_constant(arrange_array(pack_rows(filters), 0, layout.order, layout.size))
        taken = window.size, of_pairs
        made = padded_depthwise(layouts, convolve_rows, data, padded.value, packed, window, *taken, name=name)
        return layouts.having(made, layout)
    # wide ones take fewer instructions, and much of a small memory
    how = Multiplication(str(data.ty.dtype), "int32" if layouts.target.hosted else str(filters.dtype))
    packed = to_constant(arrange_array(filters.astype(how.weights), 0, layout.order, layout.size))
    product = byte_product(layouts.target) or how.product
    result = padded_depthwise(layouts, convolve_depthwise, data, padded.value, packed, window, product, name=name)
    return layouts.having(result, layout)


def _in_pairs(
    layouts: LayoutRewriter, padded: Padded, filters: np.ndarray, sliding: Sliding, layout: Blocked
) -> relax.Expr:
    """Convolves by 16-bit products of int8: uint8 data are shifted by -128, which a constant corrects in the sums."""
    offset = 0 if str(padded.data.ty.dtype) == "int8" else -128
    how = Multiplication("int8", "int8", offset)
    data = converted(layouts.builder, padded.data, how)
    result = layouts.kernel(
        convolve_int16_sums,
        layouts.padded(data, sliding.before, sliding.after, padded.value + offset),
        to_constant(arrange_array(filters, 0, layout.order, layout.size)),
        sliding.strides,
        sliding.dilation,
        layouts.target,
        name="integer_depthwise_convolution",
    )
    return _with_offset(layouts, layouts.having(result, layout), filters[:, None], how)


RULES: dict[str, LayoutRule] = {f"nn.conv{rank}d": _convolution for rank in (1, 2, 3)}
