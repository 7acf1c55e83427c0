"""Poolings: average, maximum (with indices and back), Lp, global ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from tvm import relax, te, tirx

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.convolution import Window, check_fits, make_window, spatial_attribute
from nnefc.frontends.onnx.operators.elementwise import elementwise, library
from nnefc.frontends.onnx.operators.tensors import (
    cast,
    dtype_of,
    fail,
    has_input,
    input_at,
    integers,
    is_float,
    known,
    scalar_type,
    shape_of,
    single,
    spell,
)

__all__: list[str] = []

_MAX_POOL = {3: relax.op.nn.max_pool1d, 4: relax.op.nn.max_pool2d, 5: relax.op.nn.max_pool3d}
_AVG_POOL = {3: relax.op.nn.avg_pool1d, 4: relax.op.nn.avg_pool2d, 5: relax.op.nn.avg_pool3d}


def _pool_window(node: Node, shape: Sequence[int]) -> tuple[Window, tuple[int, ...]]:
    """The window and the spatial extents of the result, `ceil_mode` included.

    With `ceil_mode` the last window may begin inside the tensor or its padding before and end behind both; one that
    would begin behind them is left out.
    """
    if len(shape) < 3:
        raise fail(node, f"the input {spell(shape)} has no spatial dimensions")
    size = spatial_attribute(node, "kernel_shape", len(shape) - 2, 1, 1)
    window = make_window(node, size, shape[2:])
    extents = check_fits(node, window, shape[2:])
    if not node.attributes.get("ceil_mode") or node.attributes.get("auto_pad", "NOTSET") != "NOTSET":
        return window, extents
    result = []
    axes = zip(shape[2:], window.before, window.after, window.reach, window.stride, strict=True)
    for extent, before, after, reach, stride in axes:
        count = -(-(extent + before + after - reach) // stride) + 1
        result.append(count - 1 if (count - 1) * stride >= extent + before else count)
    return window, tuple(result)


def _enlarged(window: Window, extents: Sequence[int], results: Sequence[int]) -> tuple[int, ...]:
    """How far each dimension's last window reaches behind the tensor."""
    axes = zip(extents, results, window.before, window.reach, window.stride, strict=True)
    return tuple((count - 1) * stride + reach - before - extent for extent, count, before, reach, stride in axes)


def _native(window: Window, extents: Sequence[int], results: Sequence[int]) -> dict[str, Any] | None:
    """The window as attributes of Relax's pools, or None if it is not of their kind."""
    behind = _enlarged(window, extents, results)
    after = tuple(max(amount, least) for amount, least in zip(behind, window.after, strict=True))
    amounts = zip((*window.before, *after), (*window.reach, *window.reach), strict=True)
    if any(amount >= reach for amount, reach in amounts if amount):
        return None
    return {
        "pool_size": list(window.size),
        "strides": list(window.stride),
        "dilation": list(window.dilation),
        "padding": [*window.before, *after],
    }


def _reduce(
    ctx: Context, x: Value, window: Window, results: Sequence[int], reducer: Any, outside: Any, change: Any, name: str
) -> Value:
    """`reducer` over every window of `change(item)`; positions outside count as `outside(dtype)`."""
    shape, dtype = shape_of(x), dtype_of(x)
    work = "float32" if dtype in ("float16", "bfloat16") else dtype

    def function(x: Any) -> Any:
        offsets = [te.reduce_axis((0, size), f"offset{axis}") for axis, size in enumerate(window.size)]

        def item(n: Any, c: Any, *index: Any) -> Any:
            places, inside = _places(window, shape[2:], offsets, index)
            value = change(x(n, c, *places).astype(work))
            return reducer(tirx.if_then_else(tirx.all(*inside), value, outside(work)), axis=offsets)

        return te.compute((*shape[:2], *results), item, name=name)

    return cast(ctx, ctx.emit_te(function, x, name=name), dtype)


def _places(
    window: Window, extents: Sequence[int], offsets: Sequence[Any], index: Sequence[Any]
) -> tuple[list[Any], list[Any]]:
    """The positions that a window reads, and the conditions that they are inside."""
    axes = zip(index, window.stride, offsets, window.dilation, window.before, strict=True)
    places = [i * stride + offset * dilation - before for i, stride, offset, dilation, before in axes]
    inside = [t for p, extent in zip(places, extents, strict=True) for t in (p >= 0, p < extent)]
    return places, inside


@operator("AveragePool", since=(1, 7, 10, 11, 19, 22))
def _average_pool(ctx: Context, node: Node) -> Value:
    x = input_at(node, 0)
    shape = shape_of(x)
    window, results = _pool_window(node, shape)
    inclusive = bool(node.attributes.get("count_include_pad", 0))
    attributes = _native(window, shape[2:], results)
    exact = all(
        behind <= after for behind, after in zip(_enlarged(window, shape[2:], results), window.after, strict=True)
    )
    if len(shape) in _AVG_POOL and dtype_of(x) == "float32" and attributes is not None and (exact or not inclusive):
        return ctx.emit(_AVG_POOL[len(shape)](ctx.expr(x), count_include_pad=inclusive, **attributes))
    sums = _reduce(
        ctx, cast(ctx, x, _work(x)), window, results, te.sum, lambda d: tirx.const(0, d), lambda v: v, "sum_pool"
    )
    counts = known(ctx, _counts(window, shape[2:], results, inclusive).astype(_work(x)))
    return cast(ctx, elementwise(ctx, lambda a, b: a / b, sums, counts, name="average"), dtype_of(x))


def _work(x: Value) -> str:
    return "float32" if dtype_of(x) in ("float16", "bfloat16") else dtype_of(x)


def _counts(window: Window, extents: Sequence[int], results: Sequence[int], inclusive: bool) -> np.ndarray:
    """How many positions of every window count, `[1, 1, *results]`."""
    counts = np.ones((1, 1, *[1] * len(results)))
    axes = zip(window.size, window.stride, window.dilation, window.before, window.after, extents, results, strict=True)
    for axis, (size, stride, dilation, before, after, extent, out) in enumerate(axes, 2):
        places = np.arange(out)[:, None] * stride + np.arange(size) * dilation - before
        low, high = (-before, extent + after) if inclusive else (0, extent)
        along = np.maximum(((places >= low) & (places < high)).sum(1), 1)
        counts = counts * along.reshape([-1 if other == axis else 1 for other in range(counts.ndim)])
    return counts


@operator("MaxPool", since=(1, 8, 10, 11, 12, 22))
def _max_pool(ctx: Context, node: Node) -> Value | list[Value]:
    x = input_at(node, 0)
    shape = shape_of(x)
    window, results = _pool_window(node, shape)
    attributes = _native(window, shape[2:], results)
    if len(shape) in _MAX_POOL and dtype_of(x) in ("float32", "uint8", "int8") and attributes is not None:
        pooled = ctx.emit(_MAX_POOL[len(shape)](ctx.expr(x), **attributes))
    else:
        pooled = _reduce(ctx, x, window, results, te.max, te.min_value, lambda v: v, "max_pool")
    if len(node.outputs) < 2 or not node.outputs[1]:
        return pooled
    return [pooled, _argmax_pool(ctx, x, window, results, bool(node.attributes.get("storage_order", 0)))]


def _argmax_pool(ctx: Context, x: Value, window: Window, results: Sequence[int], column_major: bool) -> Value:
    """Where in the whole flattened tensor each window's largest item is, int64; of equal ones the first."""
    shape = shape_of(x)
    weights = np.cumprod([1, *(shape[2:] if column_major else shape[:1:-1])])[: len(shape) - 2]
    weights = weights if column_major else weights[::-1]
    plane = math.prod(shape[2:])

    def better(a: Any, b: Any) -> Any:
        take = tirx.any(a[1] > b[1], tirx.all(a[1] == b[1], a[0] <= b[0]))
        return tirx.Select(take, a[0], b[0]), tirx.Select(take, a[1], b[1])

    largest = te.comm_reducer(better, lambda i, v: (tirx.const(2**62, i), te.min_value(v)), name="argmax")

    def function(x: Any) -> Any:
        offsets = [te.reduce_axis((0, size), f"offset{axis}") for axis, size in enumerate(window.size)]

        def item(n: Any, c: Any, *index: Any) -> Any:
            places, inside = _places(window, shape[2:], offsets, index)
            position = (n * shape[1] + c).astype("int64") * plane
            for place, weight in zip(places, weights, strict=True):
                position = position + place.astype("int64") * int(weight)
            within = tirx.all(*inside)
            value = tirx.if_then_else(within, x(n, c, *places), te.min_value(str(x.dtype)))
            return largest((tirx.if_then_else(within, position, tirx.const(2**62, "int64")), value), axis=offsets)

        both = te.compute((*shape[:2], *results), item, name="argmax_pool")
        return te.compute(both[0].shape, lambda *index: both[0](*index), name="argmax_pool_index")

    return single(ctx, function, x, name="argmax_pool")


@operator("LpPool", since=(1, 2, 11, 18, 22))
def _lp_pool(ctx: Context, node: Node) -> Value:
    x = input_at(node, 0)
    window, results = _pool_window(node, shape_of(x))
    sums = _reduce(
        ctx,
        x,
        window,
        results,
        te.sum,
        lambda dtype: tirx.const(0, dtype),
        _power_of_magnitude(node.attributes.get("p") or 2),
        "lp_pool",
    )
    return _root(ctx, sums, node.attributes.get("p") or 2)


def _power_of_magnitude(p: float) -> Any:
    match p:
        case 1:
            return tirx.abs
        case 2:
            return lambda v: v * v
    return lambda v: library("pow")(tirx.abs(v), tirx.const(p, scalar_type(v)))


def _root(ctx: Context, x: Value, p: float) -> Value:
    match p:
        case 1:
            return x
        case 2:
            return elementwise(ctx, tirx.sqrt, x, name="nth_root")
    return elementwise(ctx, lambda v: library("pow")(v, tirx.const(1 / p, scalar_type(v))), x, name="nth_root")


def _global(ctx: Context, node: Node) -> tuple[Value, list[int]]:
    x = input_at(node, 0)
    if len(shape_of(x)) < 3:
        raise fail(node, f"the input {spell(shape_of(x))} has no spatial dimensions")
    return x, list(range(2, len(shape_of(x))))


@operator("GlobalAveragePool", since=(1, 22))
def _global_average_pool(ctx: Context, node: Node) -> Value:
    x, axes = _global(ctx, node)
    mean = relax.op.mean(ctx.expr(cast(ctx, x, _work(x))), axes, keepdims=True)
    return cast(ctx, ctx.emit(mean), dtype_of(x))


@operator("GlobalMaxPool", since=(1, 22))
def _global_max_pool(ctx: Context, node: Node) -> Value:
    x, axes = _global(ctx, node)
    return ctx.emit(relax.op.max(ctx.expr(x), axes, keepdims=True))


@operator("GlobalLpPool", since=(1, 2, 22))
def _global_lp_pool(ctx: Context, node: Node) -> Value:
    x, axes = _global(ctx, node)
    p = node.attributes.get("p") or 2
    powers = elementwise(ctx, _power_of_magnitude(p), cast(ctx, x, _work(x)), name="powers")
    return cast(ctx, _root(ctx, ctx.emit(relax.op.sum(ctx.expr(powers), axes, keepdims=True)), p), dtype_of(x))


@operator("MaxUnpool", since=(9, 11, 22))
def _max_unpool(ctx: Context, node: Node) -> Value:
    """Gathered: each output looks for the items of its own image that were taken from its place."""
    x, index = input_at(node, 0), input_at(node, 1)
    shape = shape_of(x)
    if len(shape) < 3 or shape_of(index) != shape:
        raise fail(node, f"the indices {spell(shape_of(index))} do not fit the input {spell(shape)}")
    size = spatial_attribute(node, "kernel_shape", len(shape) - 2, 1, 1)
    strides = spatial_attribute(node, "strides", len(shape) - 2, 1, 1)
    pads = spatial_attribute(node, "pads", 2 * (len(shape) - 2), 0, 0)
    rank = len(shape) - 2
    inferred = [
        (extent - 1) * stride + k - pads[axis] - pads[axis + rank]
        for axis, (extent, stride, k) in enumerate(zip(shape[2:], strides, size, strict=True))
    ]
    given = integers(ctx, node, 2, "output_shape") if has_input(node, 2) else None
    target = tuple(given) if given else (*shape[:2], *inferred)
    if len(target) != len(shape) or target[:2] != shape[:2]:
        raise fail(node, f"'output_shape' {spell(target)} does not fit the input {spell(shape)}")
    plane, items = math.prod(inferred), math.prod(shape[2:])

    def function(x: Any, index: Any) -> Any:
        source = te.reduce_axis((0, items), "source")

        def item(n: Any, c: Any, *at: Any) -> Any:
            # Indices count in the inferred extents; a larger output_shape keeps each item's coordinates there.
            place: Any = (n * shape[1] + c).astype("int64") * plane
            flat: Any = tirx.const(0, "int64")
            for i, extent in zip(at, inferred, strict=True):
                flat = flat * extent + i.astype("int64")
            inside = tirx.all(*(i < extent for i, extent in zip(at, inferred, strict=True)))
            places: list[Any] = []
            rest = source.var
            for extent in reversed(shape[2:]):
                places.insert(0, tirx.floormod(rest, extent))
                rest = tirx.floordiv(rest, extent)
            hit = tirx.all(inside, index(n, c, *places) == place + flat)
            low = te.min_value(str(x.dtype))
            return te.max(tirx.if_then_else(hit, x(n, c, *places), low), axis=source)

        best = te.compute(target, item, name="unpool")
        low = te.min_value(str(best.dtype))
        zero = tirx.const(0, str(best.dtype))
        return te.compute(target, lambda *i: tirx.Select(best(*i) == low, zero, best(*i)), name="unpool_zeros")

    return single(ctx, function, x, index, name="max_unpool")


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
