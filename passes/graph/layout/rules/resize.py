"""Rewrites resizing of spatial dimensions in the layout of the operand."""

from __future__ import annotations

from typing import Any

from tvm import relax, te

from nnefc.ir.attributes import RESIZE
from nnefc.operators.vision.resize import interpolate
from nnefc.passes.graph.layout.layout_rewriter import LayoutRewriter, LayoutRule

__all__ = ["RULES"]


def _resize(layouts: LayoutRewriter, call: relax.Call) -> relax.Expr | None:
    attrs = layouts.builder.get()[call.args[0]].attrs
    if RESIZE not in attrs:
        return None
    numbers = [int(number) for number in attrs[RESIZE]]
    axes = tuple(zip(numbers[::2], numbers[1::2], strict=True))
    data, *tables = (operand for operand in call.args[1].fields if isinstance(operand.ty, relax.TensorType))
    # Positions of the spatial dimensions are the same in blocked layout.
    if layouts.layout_of(data) is None or min(axis for axis, _ in axes) < 2:
        return None
    return layouts.like(data, layouts.emit(resize, data, *tables, axes))


def resize(*operands: Any) -> te.Tensor:
    """Lays out an `interpolate` by tables along its axes: the operands one after the other."""
    x, *tables, axes = operands
    return interpolate(x, tables, axes)


RULES: dict[str, LayoutRule] = {"call_tir": _resize}
