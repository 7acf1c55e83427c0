"""Poolings: average, maximum (with indices and back), Lp, global ones."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tvm import te, tirx

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.convolution import make_window, spatial_attribute
from nnefc.frontends.onnx.operators.tensors import (
    dtype_of,
    fail,
    has_input,
    input_at,
    integers,
    is_float,
    shape_of,
    single,
    spell,
)
from nnefc.operators.pooling import AdaptivePool, ArgMaxPool, AveragePool, LpPool, MaxPool
from nnefc.operators.unpooling import MaxUnpool
from nnefc.operators.window import Window

__all__: list[str] = []


def _pool(node: Node, shape: Sequence[int]) -> dict[str, Any]:
    """The window, and whether one that is not whole counts, as attributes of poolings."""
    if len(shape) < 3:
        raise fail(node, f"the input {spell(shape)} has no spatial dimensions")
    size = spatial_attribute(node, "kernel_shape", len(shape) - 2, 1, 1)
    ceil = bool(node.attributes.get("ceil_mode")) and node.attributes.get("auto_pad", "NOTSET") == "NOTSET"
    return {"window": make_window(node, size, shape[2:]), "ceil": ceil}


@operator("AveragePool", since=(1, 7, 10, 11, 19, 22))
def _average_pool(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    count_padding = bool(node.attributes.get("count_include_pad", 0))
    return ctx.apply(AveragePool(**_pool(node, shape_of(x)), count_padding=count_padding), x)


@operator("MaxPool", since=(1, 8, 10, 11, 12, 22))
def _max_pool(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    pool = _pool(node, shape_of(x))
    pooled = ctx.apply(MaxPool(**pool), x)
    if not node.wants(1):
        return pooled
    column_major = bool(node.attributes.get("storage_order", 0))
    return [pooled, ctx.apply(ArgMaxPool(**pool, within="tensor", column_major=column_major), x)]


@operator("LpPool", since=(1, 2, 11, 18, 22))
def _lp_pool(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    return ctx.apply(LpPool(**_pool(node, shape_of(x)), p=node.attributes.get("p") or 2), x)


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


@operator("MaxUnpool", since=(9, 11, 22))
def _max_unpool(ctx: Context, node: Node) -> Any:
    x, index = input_at(node, 0), input_at(node, 1)
    shape = shape_of(x)
    rank = len(shape) - 2
    size = spatial_attribute(node, "kernel_shape", rank, 1, 1)
    pads = spatial_attribute(node, "pads", 2 * rank, 0, 0)
    padding = tuple(zip(pads[:rank], pads[rank:], strict=True))
    inferred = Window.of(size, spatial_attribute(node, "strides", rank, 1, 1), padding=padding).spread(shape[2:])
    given = integers(ctx, node, 2, "output_shape") if has_input(node, 2) else None
    return ctx.apply(MaxUnpool(inferred, tuple(given) if given else (*shape[:2], *inferred)), x, index)


@operator("MaxRoiPool", since=(1, 22))
def _max_roi_pool(ctx: Context, node: Node) -> Value:
    """Bins of the rounded region, clipped to the image; empty ones are 0."""
    x, rois = input_at(node, 0), input_at(node, 1)
    shape, count = shape_of(x), shape_of(rois)[0]
    if len(shape) != 4 or len(shape_of(rois)) != 2 or shape_of(rois)[1] != 5 or not is_float(dtype_of(x)):
        raise fail(node, f"the input {spell(shape)} or the regions {spell(shape_of(rois))} have the wrong rank")
    rows, columns = node.attributes["pooled_shape"]
    scale = node.attributes.get("spatial_scale", 1.0)
    dtype, low = dtype_of(x), te.min_value(dtype_of(x))

    def function(x: Any, rois: Any) -> Any:
        y, z = te.reduce_axis((0, shape[2]), "y"), te.reduce_axis((0, shape[3]), "x")

        def bounds(r: Any, first: int, bin_: Any, bins: int, extent: int) -> tuple[Any, Any]:
            start = tirx.round(rois(r, first) * tirx.const(scale, dtype))
            end = tirx.round(rois(r, first + 2) * tirx.const(scale, dtype))
            length = tirx.max(end - start + 1, tirx.const(1, dtype)) / bins
            limit = tirx.const(extent, dtype)
            at = bin_.astype(dtype)
            lower = tirx.floor(at * length) + start
            upper = tirx.ceil((at + 1) * length) + start
            zero = tirx.const(0, dtype)
            return (tirx.max(tirx.min(b, limit), zero).astype("int32") for b in (lower, upper))  # type: ignore[return-value]

        def item(r: Any, c: Any, i: Any, j: Any) -> Any:
            top, bottom = bounds(r, 2, i, rows, shape[2])
            left, right = bounds(r, 1, j, columns, shape[3])
            image = tirx.max(tirx.min(rois(r, 0).astype("int32"), shape[0] - 1), 0)
            inside = tirx.all(y >= top, y < bottom, z >= left, z < right)
            return te.max(tirx.if_then_else(inside, x(image, c, y, z), low), axis=[y, z])

        best = te.compute((count, shape[1], rows, columns), item, name="roi_pool")
        zero = tirx.const(0, dtype)
        return te.compute(best.shape, lambda *i: tirx.Select(best(*i) == low, zero, best(*i)), name="roi_pool_empty")

    return single(ctx, function, x, rois, name="max_roi_pool")
