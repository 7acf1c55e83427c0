"""Rewrites concatenations, and reductions over whole spatial dimensions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import relax, te, topi

from nnefc.ir.attributes import CONCATENATION
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.layout.blocked_layout import Blocked
from nnefc.passes.graph.layout.blocking import seen_as
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter, LayoutRule
from nnefc.passes.graph.rewriter import is_call, shape_of
from nnefc.symbolic.dims import Dimension, element_count, size_hint

__all__ = ["RULES"]

_MIN_FILLED = 0.6  # of the slots of a concatenation; with fewer, its consumers lose more than a copy costs


_LONGEST_SUM = 4096  # positions of one dimension


def _concatenation(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    """Concatenates blocks if they are full enough, otherwise row-major tensors."""
    parts, axis = [_whole(layouts, part) for part in call.args[0].fields], call.attrs.axis
    if axis is None:
        return None
    axis = int(axis) % len(layouts.row_major_shape(parts[0]))
    own = [layout for part in parts if (layout := layouts.layout_of(part)) is not None]
    if len(own) == len(parts) and axis != 1:
        return layouts.having(_concatenated(layouts, [layouts.laid_out(part, own[0]) for part in parts], axis), own[0])
    if len(own) == len(parts):
        widest = max(layout.size for layout in own)
        wide = [each if each.size == widest else Blocked.of(each.channels, widest) for each in own]
        joined = Blocked.joined(wide)
        if joined.channels >= _MIN_FILLED * len(joined.order):
            parts = [layouts.laid_out(part, layout) for part, layout in zip(parts, wide, strict=True)]
            return layouts.having(_concatenated(layouts, parts, axis), joined)
    return _concatenated(layouts, [layouts.row_major(part) for part in parts], axis)


def _whole(layouts: LayoutRewriter, part: relax.Expr) -> relax.Expr:
    """Returns `part` without channels of other tensors between its own."""
    layout = layouts.layout_of(part)
    return part if layout is None or layout.is_whole else layouts.blocked(part)


def _concatenated(layouts: LayoutRewriter, parts: list[relax.Expr], axis: int) -> relax.Var:
    """Marks concatenations of contiguous operands as views, which the memory plan may alias without a kernel."""
    if any(size != 1 for size in shape_of(parts[0])[:axis]):
        return layouts.builder.emit(relax.op.concat(parts, axis))
    attrs = {FUSION: OpPattern.OPAQUE, CONCATENATION: True}
    return layouts.emit_te(_concatenate, *parts, axis, name="concatenate", attrs=attrs)


def _concatenate(*args: Any) -> te.Tensor:
    *tensors, axis = args
    return topi.concatenate(tensors, axis)


def _spatial_reduction(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    """Returns a reduction over spatial dimensions only; without `keepdims`, the result has the row-major order of
    channels.
    """
    data = call.args[0]
    if layouts.layout_of(data) is None or call.attrs.axis is None:
        return None
    shape = layouts.row_major_shape(data)
    axes = [int(axis) % len(shape) for axis in call.attrs.axis]
    if min(axes, default=0) < 2 or _is_long_sum(call, [shape[axis] for axis in axes]):
        return None
    function = getattr(relax.op, call.op.name.removeprefix("relax."))
    kept = layouts.like(data, layouts.builder.emit(function(data, axes, True)))
    if call.attrs.keepdims:
        return kept
    left = [size for axis, size in enumerate(shape) if axis not in axes]
    return relax.op.reshape(layouts.row_major(kept), left)


def _is_long_sum(call: relax.Call, sizes: Sequence[Dimension]) -> bool:
    """Whether a sum over one dimension loses precision in blocks, where each channel has a single accumulator; rows are
    summed in many parts.
    """
    return is_call(call, "mean", "sum") and len(sizes) == 1 and size_hint(sizes[0]) > _LONGEST_SUM


def _min_or_max(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    """Reduces all elements by the minimum or maximum of each channel first; reduces only spatial dimensions as
    :func:`_spatial_reduction` does.
    """
    row = layouts.definition(call.args[0])
    elements = layouts.origin(row.args[0]) if is_call(row, "reshape") else call.args[0]
    shape, layout = layouts.row_major_shape(elements), layouts.layout_of(elements)
    all_of = call.attrs.axis is None or [int(axis) % 2 for axis in call.attrs.axis] == [1]
    if layout is None or shape_of(call.args[0])[:-1] != (1,) or not all_of or len(shape) < 3:
        return _spatial_reduction(layouts, call)
    if layout.is_full:
        size = element_count(shape)
        return relax.Call(call.op, [seen_as(layouts.builder, elements, (1, size))], call.attrs, call.ty_args)
    function = getattr(relax.op, call.op.name.removeprefix("relax."))
    for axis in range(2, len(shape)):  # one after the other: minima of neighbours do not wait for each other
        elements = layouts.like(elements, layouts.builder.emit(function(elements, [axis], True)))
    channels = layouts.builder.emit(relax.op.reshape(layouts.row_major(elements), (1, shape[0] * shape[1])))
    return relax.Call(call.op, [channels], call.attrs, call.ty_args)


RULES: dict[str, LayoutRule] = {
    "concat": _concatenation,
    **dict.fromkeys(("mean", "sum"), _spatial_reduction),
    **dict.fromkeys(("max", "min"), _min_or_max),
}
