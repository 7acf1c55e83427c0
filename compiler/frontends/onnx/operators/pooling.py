"""Pooling: average, max (with indices), Lp, global."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.convolution import make_window, spatial_attribute
from nnefc.frontends.onnx.operators.tensors import (
    fail,
    input_at,
    shape_of,
    spell,
)
from nnefc.operators.nn.pooling import AdaptivePool, ArgMaxPool, AveragePool, LpPool, MaxPool
from nnefc.operators.nn.window import Window

__all__ = ["pooling_window"]


def pooling_window(node: Node, shape: Sequence[int]) -> dict[str, Any]:
    """The window, and whether one that is not whole counts, as attributes of poolings."""
    if len(shape) < 3:
        raise fail(node, f"the input {spell(shape)} has no spatial dimensions")
    size = spatial_attribute(node, "kernel_shape", len(shape) - 2, 1, 1)
    ceil = bool(node.attributes.get("ceil_mode")) and node.attributes.get("auto_pad") in (None, "", "NOTSET")
    return {"window": make_window(node, size, shape[2:]), "ceil": ceil}


@operator("AveragePool", since=(1, 7, 10, 11, 19, 22))
def _average_pool(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    count_padding = bool(node.attributes.get("count_include_pad", 0))
    return ctx.apply(AveragePool(**pooling_window(node, shape_of(x)), count_padding=count_padding), x)


@operator("MaxPool", since=(1, 8, 10, 11, 12, 22))
def _max_pool(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    pool = pooling_window(node, shape_of(x))
    pooled = ctx.apply(MaxPool(**pool), x)
    if not node.wants(1):
        return pooled
    column_major = bool(node.attributes.get("storage_order", 0))
    index = ctx.apply(ArgMaxPool(**pool, within="tensor", column_major=column_major), x)
    return [pooled, replace(index, indexed=None if column_major else x.shape)]


@operator("LpPool", since=(1, 2, 11, 18, 22))
def _lp_pool(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    return ctx.apply(LpPool(**pooling_window(node, shape_of(x)), p=node.attributes.get("p") or 2), x)


def _global(ctx: Context, node: Node) -> tuple[Value, list[int]]:
    x = input_at(node, 0)
    if len(shape_of(x)) < 3:
        raise fail(node, f"the input {spell(shape_of(x))} has no spatial dimensions")
    return x, list(range(2, len(shape_of(x))))


@operator("GlobalAveragePool", since=(1, 22))
def _global_average_pool(ctx: Context, node: Node) -> Any:
    x, axes = _global(ctx, node)
    return ctx.apply(AdaptivePool((1,) * len(axes), average=True), x)


@operator("GlobalMaxPool", since=(1, 22))
def _global_max_pool(ctx: Context, node: Node) -> Any:
    x, axes = _global(ctx, node)
    return ctx.apply(AdaptivePool((1,) * len(axes), average=False), x)


@operator("GlobalLpPool", since=(1, 2, 22))
def _global_lp_pool(ctx: Context, node: Node) -> Any:
    x, _ = _global(ctx, node)
    return ctx.apply(LpPool(Window.of(shape_of(x)[2:]), p=node.attributes.get("p") or 2), x)
