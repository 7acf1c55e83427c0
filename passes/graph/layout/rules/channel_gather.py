"""Rewrites gathers of channels: in blocked layout a view of the same data."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax, tirx

from nnefc.passes.compute.channel_order import gather_channels
from nnefc.passes.graph.layout.blocked_layout import Blocked
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter, LayoutRule
from nnefc.passes.graph.rewriter import array_of, constant, is_constant
from nnefc.symbolic.dims import is_known

__all__ = ["RULES", "gathered"]

_MIN_FILLED = 0.4  # of the slots, by a part of the channels; with fewer, its readers lose more than a copy costs


def gathered(layouts: LayoutRewriter, data: relax.Expr, channels: Sequence[int]) -> relax.Expr | None:
    """Gathers channels of a blocked tensor, each once at most; None if `data` is row-major or there are no channels."""
    layout = layouts.layout_of(data)
    if layout is None or not channels:
        return None
    view = layouts.renamed(data, layout.gathered(channels))
    if len(channels) < min(layout.channels, _MIN_FILLED * len(layout.order)):
        return layouts.laid_out(view, Blocked.of(len(channels), layout.size))
    return view


def _take(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    data, indices = call.args
    if not is_constant(indices) or call.attrs.axis is None or int(call.attrs.axis) != 1:
        return None
    sources, channels = array_of(indices), layouts.row_major_shape(data)[1]
    if not is_known(channels) or sources.ndim != 1 or not sources.size:
        return None
    if sources.min() < 0 or sources.max() >= channels:
        return None
    if layouts.layout_of(data) is None or len(np.unique(sources)) < len(sources):
        return layouts.emit(gather_channels, layouts.row_major(data), constant(sources.astype(np.int32)))
    return gathered(layouts, data, sources.tolist())


def _slice(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    fields = [list(arg.fields) if isinstance(arg, relax.Tuple) else [] for arg in call.args[1:]]
    if len(fields) != 4 or not all(len(values) == 1 and isinstance(values[0], tirx.IntImm) for values in fields):
        return None
    axis, begin, end, step = (int(values[0]) for values in fields)
    if axis != 1 or step < 1:
        return None
    data = call.args[0]
    channels = layouts.row_major_shape(data)[1]
    if not is_known(channels):  # such a tensor is never blocked
        return None
    return gathered(layouts, data, range(*slice(begin, end, step).indices(channels)))


RULES: dict[str, LayoutRule] = {"strided_slice": _slice, "take": _take}
