"""Rewrites slices and splits as views, where the parts are contiguous in memory or are channels of blocks."""

from __future__ import annotations

from itertools import accumulate, pairwise

from tvm import relax, tirx, topi

from nnefc.ir.attributes import SPLIT
from nnefc.passes.graph.fusion.fusion_patterns import FUSION, OpPattern
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter, LayoutRule
from nnefc.passes.graph.layout.rules.channel_gather import gathered

__all__ = ["RULES"]


def _split(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    """Returns the parts of a split as views: whole slices, or full blocks or channels of a blocked tensor; None where
    parts are interleaved.
    """
    data = call.args[0]
    layout = layouts.layout_of(data)
    shape = layouts.row_major_shape(data)
    axis = int(call.attrs.axis) % len(shape)
    seams = _seams(call, shape[axis])
    if not all(part > 0 for part in _differences(seams, shape[axis])):
        return None
    slices = all(size == 1 for size in shape[:axis])
    if layout is None:
        return _parts(layouts, data, seams, axis) if slices else None
    if axis != 1:
        return None
    own = layout.split(seams) if slices else None
    if own is None:
        return relax.Tuple([gathered(layouts, data, range(*ends)) for ends in pairwise([0, *seams, shape[1]])])
    blocks = [part.blocks for part in own]
    parts = _parts(layouts, data, list(accumulate(blocks))[:-1], axis)
    views = [layouts.builder.emit(parts[i]) for i in range(len(own))]
    return relax.Tuple([layouts.having(view, part) for view, part in zip(views, own, strict=True)])


def _seams(call: relax.Call, size: int) -> list[int]:
    """Returns where the second part and each later one begin."""
    sections = call.attrs.indices_or_sections
    if isinstance(sections, tirx.IntImm | int):
        return list(range(-(-size // int(sections)), size, -(-size // int(sections))))
    return [int(index) for index in sections]


def _differences(seams: list[int], size: int) -> list[int]:
    return [end - begin for begin, end in pairwise([0, *seams, size])]


def _parts(layouts: LayoutRewriter, data: relax.Expr, seams: list[int], axis: int) -> relax.Var:
    attrs = {FUSION: OpPattern.OPAQUE, SPLIT: True}
    return layouts.emit_te(topi.split, data, tuple(seams), axis, name="split", attrs=attrs)


RULES: dict[str, LayoutRule] = {"split": _split}
