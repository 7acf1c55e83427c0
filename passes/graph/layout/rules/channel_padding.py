"""Rewrites padding behind the last channel in blocked layout.

    p = nn.pad(x, (0, 0, 0, 4, 0, 0, 0, 0))     →     p[n, b, y, x, l] = x[n, b, y, x, l] if 16 b + l < C else 0

Residual networks add a tensor of fewer channels so to a wider one, and both stay in blocks.
"""

from __future__ import annotations

from tvm import relax, te, tirx

from nnefc.passes.compute.blocked import blocks
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter, LayoutRule

__all__ = ["RULES"]


def _padding(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    data, attrs = call.args[0], call.attrs
    layout, widths = layouts.layout_of(data), [int(width) for width in attrs.pad_width]
    more = widths[3] if len(widths) > 3 else 0
    if layout is None or attrs.pad_mode != "constant" or more <= 0 or any((*widths[:3], *widths[4:])):
        return None
    channels = layout.channels + more
    made = layouts.emit(
        _pad_channels, layouts.blocked(data), layout.channels, channels, float(attrs.pad_value), name="pad_channels"
    )
    return layouts.as_blocked(made, channels)


def _pad_channels(data: te.Tensor, given: int, channels: int, value: float) -> te.Tensor:
    """Returns `[N, blocks, *spatial, b]` with more channels, whose elements are `value`."""
    batch, own, *spatial, size = data.shape

    def element(n: tirx.Var, block: tirx.Var, *tail: tirx.Var) -> tirx.Expr:
        *position, lane = tail
        inside = data(n, tirx.min(block, own - 1), *position, lane)
        return tirx.Select(block * size + lane < given, inside, tirx.const(value, str(data.dtype)))

    return te.compute((batch, blocks(channels, int(size)), *spatial, size), element, name="pad_channels")


RULES: dict[str, LayoutRule] = {"nn.pad": _padding}
