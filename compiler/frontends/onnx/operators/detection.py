"""Regions, grids and suppression: RoiAlign, MaxRoiPool, AffineGrid, GridSample, NonMaxSuppression."""

from __future__ import annotations

from typing import Any

from nnefc.frontends.onnx.checks.extensions import DOMAIN
from nnefc.frontends.onnx.operator import Context, Node, operator
from nnefc.frontends.onnx.operators.tensors import (
    dtype_of,
    fail,
    has_input,
    input_at,
    integers,
    is_float,
    settled,
    spell,
)
from nnefc.operators.vision.detection import AffineGrid, GridSample
from nnefc.operators.vision.regions import RoiAlign, RoiPool
from nnefc.operators.vision.suppression import NonMaxSuppression
from nnefc.symbolic.dims import MAX_ELEMENTS
from nnefc.symbolic.unification import unify_dims

__all__: list[str] = []


@operator("MaxRoiPool", since=(1, 22))
def _max_roi_pool(ctx: Context, node: Node) -> Any:
    x, rois = input_at(node, 0), input_at(node, 1)
    if not is_float(dtype_of(x)):
        raise fail(node, f"the input is of {dtype_of(x)}, not of floating-point numbers")
    pool = RoiPool(tuple(node.attributes["pooled_shape"]), scale=node.attributes["spatial_scale"], inclusive=True)
    return ctx.apply(pool, x, rois)


@operator("RoiAlign", since=(10, 16, 22))
def _roi_align(ctx: Context, node: Node) -> Any:
    given = node.attributes
    if given["mode"] not in ("avg", "max"):
        raise fail(node, f"the mode '{given['mode']}' is not supported")
    align = RoiAlign(
        (given["output_height"], given["output_width"]),
        average=given["mode"] == "avg",
        samples=max(0, given["sampling_ratio"]),
        scale=given["spatial_scale"],
        half_pixel=given.get("coordinate_transformation_mode") == "half_pixel",
    )
    return ctx.apply(align, *(input_at(node, i) for i in range(3)))


@operator("AffineGrid", since=(20,))
def _affine_grid(ctx: Context, node: Node) -> Any:
    sizes = integers(ctx, node, 1, "size") or []
    if len(sizes) not in (4, 5):
        raise fail(node, f"the size {spell(sizes)} is not that of a batch of images or volumes")
    theta = input_at(node, 0)
    if not unify_dims(theta.shape[0], sizes[0]):
        raise fail(node, f"the matrices {spell(theta.shape)} do not fit the size {spell(sizes)}")
    return ctx.apply(AffineGrid(tuple(sizes[2:]), bool(node.attributes["align_corners"])), theta)


_MODES = {"linear": "linear", "bilinear": "linear", "nearest": "nearest", "cubic": "cubic", "bicubic": "cubic"}
_PADDINGS = ("zeros", "border", "reflection")


@operator("GridSample", since=(1,), domain=DOMAIN)
@operator("GridSample", since=(16, 20, 22))
def _grid_sample(ctx: Context, node: Node) -> Any:
    """Any number of spatial dimensions, of cubic interpolation too."""
    mode, padding = node.attributes["mode"], node.attributes["padding_mode"]
    if mode not in _MODES or padding not in _PADDINGS:
        raise fail(node, f"one of the modes '{mode}' and '{padding}' is not supported")
    sample = GridSample(_MODES[mode], padding, bool(node.attributes["align_corners"]))  # type: ignore[arg-type]
    return ctx.apply(sample, input_at(node, 0), input_at(node, 1))


@operator("NonMaxSuppression", since=(10, 11))
def _non_max_suppression(ctx: Context, node: Node) -> Any:
    boxes, scores = (settled(ctx, input_at(node, index)) for index in range(2))
    given = [settled(ctx, input_at(node, index)) if has_input(node, index) else None for index in (2, 3, 4)]
    if not all(value is None or all(unify_dims(size, 1) for size in value.shape) for value in given):
        raise fail(node, "the greatest number of boxes and the thresholds must be one number each")
    given_at_run_time = [value if value is not None and value.array is None else None for value in given]
    maximum, overlap, minimum = (
        None if value is None or value.array is None else float(value.array.reshape(-1)[0]) for value in given
    )
    suppression = NonMaxSuppression(
        None
        if given_at_run_time[0] is not None
        else int(max(0, min(maximum or 0, MAX_ELEMENTS))),  # PyTorch says the greatest int64
        None if given_at_run_time[1] is not None else overlap or 0.0,
        minimum,
        bool(node.attributes["center_point_box"]),
    )
    return ctx.apply(suppression, boxes, scores, *given_at_run_time)
