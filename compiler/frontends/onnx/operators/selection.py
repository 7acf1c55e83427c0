"""Elements that a condition selects, as many as the data say: Compress, NonZero, Unique."""

from __future__ import annotations

import math
from typing import Any

from nnefc.frontends.onnx.operator import Context, Node, operator
from nnefc.frontends.onnx.operators.tensors import input_at, normal_axis, settled, shape_of
from nnefc.operators.tensor.data_dependent_selection import Compress, NonZero, Unique
from nnefc.operators.tensor.shape import Reshape

__all__: list[str] = []


@operator("Compress", since=(9, 11, 28))
def _compress(ctx: Context, node: Node) -> Any:
    x, axis = input_at(node, 0), node.attributes.get("axis")
    condition = settled(ctx, input_at(node, 1))
    if axis is None:
        x, axis = ctx.apply(Reshape((math.prod(shape_of(x)),)), x), 0
    condition = ctx.apply(Reshape((math.prod(shape_of(condition)),)), condition)
    return ctx.apply(Compress(normal_axis(node, axis, x.rank)), x, condition)


@operator("NonZero", since=(9, 13))
def _non_zero(ctx: Context, node: Node) -> Any:
    return ctx.apply(NonZero(), settled(ctx, input_at(node, 0)))


@operator("Unique", since=(11, 28))
def _unique(ctx: Context, node: Node) -> Any:
    x, axis = settled(ctx, input_at(node, 0)), node.attributes.get("axis")
    axis, in_order = None if axis is None else normal_axis(node, axis, x.rank), bool(node.attributes.get("sorted", 1))
    return ctx.apply(Unique(axis, in_order, x.dtype == "string"), x)[: len(node.outputs)]
