"""Channels in another order, as `FoldPermutations` writes it: in blocked layout, another name for the same data."""

from __future__ import annotations

import numpy as np
from tvm import relax

from nnefc.passes.compute.channel_order import permute_channels
from nnefc.passes.graph.layout_rewriter import LayoutRewriter, LayoutRule
from nnefc.passes.graph.rewriter import array_of, constant, is_constant

__all__ = ["RULES"]


def _take(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    data, indices = call.args
    if not is_constant(indices) or call.attrs.axis is None or int(call.attrs.axis) != 1:
        return None
    sources, shape = array_of(indices), layouts.plain_shape(data)
    if sources.ndim != 1 or not np.array_equal(np.sort(sources), np.arange(shape[1])):
        return None
    layout = layouts.layout_of(data)
    if layout is None:
        return layouts.emit(permute_channels, data, constant(sources.astype(np.int32)))
    return layouts.renamed(data, layout.permuted(sources.tolist()))


RULES: dict[str, LayoutRule] = {"take": _take}
