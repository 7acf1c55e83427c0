"""Rewrites convolutions of float32 as matrix products by outer products (SME), where that takes less time.

y = conv2d(x, W)     →     y = block_rows(multiply_outer(pack_windows(blocked(x)), pack(W)))
"""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from nnefc.passes.compute.matmul import pack_right_array
from nnefc.passes.compute.outer_products import (
    BLOCK,
    block_rows,
    multiply_outer,
    pack_windows,
    takes_outer_products,
)
from nnefc.passes.graph.fusion.fusion_patterns import OpPattern
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter
from nnefc.passes.graph.rewriter import constant as to_constant
from nnefc.symbolic.dims import Dimension, element_count, is_known

__all__ = ["outer_product_convolution"]

_TYPES = ("float32", "float32")
_WINOGRAD = 2.5
"""The speed of Winograd's algorithm, transforms included, relative to a direct convolution (estimate)."""


def outer_product_convolution(
    layouts: LayoutRewriter,
    data: relax.Expr,
    filters: np.ndarray,
    windows: tuple[tuple[Dimension, ...], tuple[Dimension, ...], tuple[int, ...], tuple[int, ...]],
    sizes: tuple[Dimension, ...],
    by_winograd: bool,
) -> relax.Var | None:
    """Returns a convolution in one group; None where vectors take less time.

    Args:
        windows: padding before and after each spatial dimension, strides and dilation.
        sizes: spatial ones of the result.
        by_winograd: whether vectors would compute it by Winograd's algorithm.
    """
    outputs, inputs, *kernel = filters.shape
    rows, depth = element_count((layouts.row_major_shape(data)[0], *sizes)), inputs * math.prod(kernel)
    speed, layout = _WINOGRAD if by_winograd else 1.0, layouts.layout_of(data)
    if layout is not None and not layout.is_in_order:
        return None
    if str(filters.dtype) != "float32" or layouts.strict or not is_known(rows, *sizes):
        return None
    if not takes_outer_products(layouts.target, _TYPES, rows, depth, outputs, speed):
        return None
    before, after, strides, dilation = windows
    matrix = np.moveaxis(filters, (0, 1), (-1, -2)).reshape(depth, outputs)
    source = layouts.padded(layouts.blocked(data), before, after)
    opaque = OpPattern.OPAQUE
    panels = layouts.emit(pack_windows, source, tuple(kernel), inputs, strides, dilation, pattern=opaque)
    packed = to_constant(pack_right_array(matrix, BLOCK))
    product = layouts.emit(multiply_outer, panels, packed, rows, outputs, _TYPES, pattern=opaque)
    batch = rows // math.prod(map(int, sizes))
    return layouts.as_blocked(layouts.emit(block_rows, product, (batch, *sizes), layouts.size), outputs)
