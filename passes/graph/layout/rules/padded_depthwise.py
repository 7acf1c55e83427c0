"""Emits depthwise convolutions of padded data, with a padded copy of the tensor, or of one block of channels at a time.

    s = depthwise(pad(x), W)     →     s = depthwise(padded copy of x, W)                 # what makes x writes the copy
                                       s = for each block of channels: depthwise(pad(x[block]), W[block])

The second form is for microcontrollers: x is stored without a border, the result may be written over it, and a kernel's
scratch memory has the border of one block. It copies the data once more, so that it is chosen only where the padded
tensor and the result would take more memory than any other convolution of the network.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax, te

from nnefc.operators.nn.window import Window
from nnefc.passes.compute.block_padding import padded_by_block
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter
from nnefc.passes.graph.rewriter import shape_of
from nnefc.support.element_types import element_bytes
from nnefc.symbolic.dims import is_known

__all__ = ["padded_depthwise"]


def padded_depthwise(
    layouts: LayoutRewriter,
    compute: Callable[..., te.Tensor],
    data: relax.Expr,
    value: int,
    weights: relax.Expr,
    window: Window,
    *args: object,
    name: str,
) -> relax.Var:
    """Emits the kernel `compute(padded data, weights, strides, dilations, *args)`.

    Args:
        compute: a depthwise convolution without padding.
        data: `[N, C blocks, *spatial, block]`.
        value: of the padding, whose widths are those of the window.
        weights: packed as `compute` reads them.
    """
    before, after = window.before, window.after
    given = weights, window.stride, window.dilation, *args
    if _pads_by_block(layouts, data, window):
        return layouts.kernel(padded_by_block(compute, before, after, value), data, *given, name=name)
    return layouts.kernel(compute, layouts.padded(data, before, after, value), *given, name=name)


def _pads_by_block(layouts: LayoutRewriter, data: relax.Expr, window: Window) -> bool:
    """Whether the result has the size of the data, and the padded data with the result take more memory than any other
    convolution.
    """
    target, (batch, outer, *spatial, block) = layouts.target, shape_of(data)
    widths = [width for pair in window.padding for width in pair]
    if target.hosted or target.patches or not any(widths) or not is_known(batch, outer, *spatial, *widths):
        return False
    reach = [(size - 1) * step for size, step in zip(window.size, window.dilation, strict=True)]
    if outer == 1 or min(widths) < 0 or {*window.stride} != {1} or list(map(sum, window.padding)) != reach:
        return False
    pixels = math.prod(spatial) + math.prod(size + more for size, more in zip(spatial, reach, strict=True))
    return bool(batch * outer * pixels * block * element_bytes(data.ty.dtype) > layouts.largest_pair)
