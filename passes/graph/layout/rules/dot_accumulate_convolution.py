"""Rewrites int8 convolutions for instructions that multiply two vectors and sum all products.

    s = conv2d(x, W, out_dtype="int32")     →     s = convolve_lanes(x, pack(W))       # channels in blocks of a vector
                                                  s = convolve_rows(view(x), pack(W))  # few: taps and channels together

The channels of a block lie side by side in the data and in the filter. Of few channels, as an image's, a row of the
filter is a vector: its pixels follow each other with all of their channels.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from tvm import relax

from nnefc.passes.compute.convolution import pack_filter
from nnefc.passes.compute.dot.dot_accumulate import convolve_lanes, convolve_rows, filled_up, in_tiles, pack_rows
from nnefc.passes.graph.layout.blocked_layout import Blocked
from nnefc.passes.graph.layout.blocking import seen_as, to_blocks
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter
from nnefc.passes.graph.layout.rules.convolution import Sliding, result_sizes
from nnefc.passes.graph.layout.rules.group_reads import merged_groups
from nnefc.passes.graph.rewriter import constant as to_constant
from nnefc.passes.graph.rewriter import shape_of
from nnefc.symbolic.dims import ceil_div, is_known

__all__ = ["Padded", "summed_convolution"]


@dataclass(frozen=True)
class Padded:
    """Data, and the value of the padding around their spatial dimensions."""

    data: relax.Expr
    value: int = 0


def summed_convolution(layouts: LayoutRewriter, padded: Padded, filters: np.ndarray, sliding: Sliding) -> relax.Expr:
    """Returns the convolution of bytes with the constant `filters` `[O, I / groups, *k]`, int32 in blocked layout."""
    merged, groups = merged_groups(filters, sliding.groups, layouts.size)
    outputs, inputs = merged.shape[:2]
    width = result_sizes(layouts.row_major_shape(padded.data)[2:], filters.shape[2:], sliding)[-1]
    few = groups == 1 and inputs < layouts.size and sliding.dilation[-1] == 1 and is_known(width)
    if few and layouts.layout_of(padded.data) is None:
        return layouts.as_blocked(_by_rows(layouts, padded, merged, sliding, width), outputs)
    own = layouts.layout_of(padded.data)
    size = own.size if own is not None and groups == 1 else layouts.size_for(inputs)
    data = layouts.laid_out(padded.data, Blocked.of(groups * inputs, size, groups))
    source = layouts.padded(data, sliding.before, sliding.after, padded.value)
    packed = _in_tiles(layouts, pack_filter(merged, size, layouts.size_for(outputs // groups), groups))
    given = (sliding.strides, sliding.dilation, groups)
    result = layouts.kernel(convolve_lanes, source, packed, *given, name="integer_convolution")
    return layouts.as_blocked(result, outputs, groups)


def _by_rows(layouts: LayoutRewriter, padded: Padded, filters: np.ndarray, sliding: Sliding, width: int) -> relax.Var:
    """Convolves row-major data; each row is followed by the pixels that a vector reads beyond it."""
    channels, taps, vector = filters.shape[1], filters.shape[-1], layouts.target.summed_bytes
    reached = ceil_div((width - 1) * sliding.strides[-1] * channels + filled_up(taps * channels, vector), channels)
    before, after = sliding.before, sliding.after
    missing = reached - (shape_of(padded.data)[-1] + before[-1] + after[-1])
    pixels = to_blocks(layouts.builder, padded.data, channels, layouts.target.patches)
    around = layouts.padded(pixels, before, (*after[:-1], after[-1] + max(missing, 0)), padded.value)
    batch, _, *spatial, _ = shape_of(around)
    rows = seen_as(layouts.builder, around, (batch, 1, *spatial[:-1], spatial[-1] * channels))
    given = (channels, sliding.strides, sliding.dilation, width)
    packed = _in_tiles(layouts, pack_rows(filters, layouts.size_for(len(filters)), vector))
    return layouts.kernel(convolve_rows, rows, packed, *given, name="integer_convolution")


def _in_tiles(layouts: LayoutRewriter, packed: np.ndarray) -> relax.Expr:
    """Packs weights in tiles of as many output channels as a vector has sums."""
    return to_constant(in_tiles(packed, layouts.target.lanes("int32")))
