"""Rewrites local response normalization in blocked layout."""

from __future__ import annotations

from tvm import relax

from nnefc.ir.attributes import LOCAL_RESPONSE
from nnefc.passes.compute.local_response import ChannelWindow, normalize_blocked
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter, LayoutRule

__all__ = ["RULES"]


def _local_response(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    attrs = layouts.builder.get()[call.args[0]].attrs
    if LOCAL_RESPONSE not in attrs:
        return None
    before, after, scale, bias, power = (float(value) for value in attrs[LOCAL_RESPONSE])
    response = ChannelWindow(int(before), int(after), scale, bias, power)
    (data,) = (operand for operand in call.args[1].fields if isinstance(operand.ty, relax.TensorType))
    layout = layouts.layout_of(data)
    if layout is None or max(response.before, response.after) > layouts.size or (bias <= 0 and not layout.is_full):
        return None
    source = layouts.blocked(data)
    return layouts.like(
        source, layouts.kernel(normalize_blocked, source, response, layout.channels, name="local_response")
    )


RULES: dict[str, LayoutRule] = {"call_tir": _local_response}
