"""Rewrites pooling in the layout of its operand."""

from __future__ import annotations

from tvm import relax

from nnefc.operators.nn.pooling import keeps_nan
from nnefc.operators.nn.window import Window
from nnefc.passes.compute.pooling import average_pool, max_pool
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter, LayoutRule
from nnefc.passes.graph.layout.rules.convolution import integers, split_padding
from nnefc.passes.graph.rewriter import shape_of

__all__ = ["RULES"]


def _max_pool(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    data = call.args[0]
    return layouts.like(data, layouts.emit(max_pool, data, _window(call, shape_of(data)), keeps_nan(call)))


def _average_pool(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    data = call.args[0]
    window = _window(call, shape_of(data))
    padded = None
    if call.attrs.count_include_pad:
        _, after = split_padding(call.attrs.padding, len(window.size))
        sizes = shape_of(data)[2 : 2 + len(after)]
        padded = tuple(e + a for e, a in zip(sizes, after, strict=True))
    return layouts.like(data, layouts.emit(average_pool, data, window, padded))


def _window(call: relax.Call, shape: tuple[int, ...]) -> Window:
    attrs = call.attrs
    size, stride, dilation = integers(attrs.pool_size), integers(attrs.strides), integers(attrs.dilation)
    window = Window(size, stride, dilation, tuple(zip(*split_padding(attrs.padding, len(size)), strict=True)))
    return window.covering(shape[2 : 2 + window.rank]) if attrs.ceil_mode else window


RULES: dict[str, LayoutRule] = {
    **{f"nn.max_pool{rank}d": _max_pool for rank in (1, 2, 3)},
    **{f"nn.avg_pool{rank}d": _average_pool for rank in (1, 2, 3)},
}
