"""Resize, in all versions, and Upsample."""

from __future__ import annotations

import math
from typing import Any

from nnefc.frontends.onnx.operator import Context, Node, operator
from nnefc.frontends.onnx.operators.tensors import (
    fail,
    has_input,
    input_at,
    integers,
    normal_axes,
    required_value,
    shape_of,
    spell,
)
from nnefc.operators.base import check_size
from nnefc.operators.vision.interpolation import COORDINATES, ROUNDINGS, AxisScaling, Interpolation
from nnefc.operators.vision.resize import Resize
from nnefc.symbolic.dims import Dimension, scaled, size_hint
from nnefc.symbolic.values import quotient

__all__: list[str] = []

_COORDINATES = tuple(name for name in COORDINATES if not name.startswith("pytorch_nearest"))


def _table_name(mode: str) -> str:
    return {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)


def _check_scales(node: Node, scales: list[float], rank: int) -> None:
    if len(scales) != rank or any(not scale > 0 or math.isinf(scale) for scale in scales):
        raise fail(node, f"'scales' {scales} needs {rank} positive elements")


@operator("Resize", since=(11, 13, 18, 19))
def _resize(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    shape = shape_of(x)
    axes = normal_axes(node, node.attributes.get("axes") or range(len(shape)), len(shape))
    sizes = integers(ctx, node, 3, "sizes") or _sizes_of_scales(node, 2, [shape[axis] for axis in axes])
    known = not sizes and has_input(node, 2)
    scales = _known_scales(ctx, node) if known else []
    if bool(scales) == bool(sizes):
        raise fail(node, "needs either 'scales' or 'sizes'")
    factors: list[float | None]
    if sizes:
        if len(sizes) != len(axes) or any(shape[axis] == 0 != size for axis, size in zip(axes, sizes, strict=True)):
            raise fail(node, f"'sizes' {spell(sizes)} does not fit {spell(shape)}")
        factors, sizes = _scales_of(node, sizes, [shape[axis] for axis in axes])
    else:
        _check_scales(node, scales, len(axes))
        factors = list(scales)
        sizes = [scaled(shape[axis], scale) for axis, scale in zip(axes, scales, strict=True)]
    check_size(sizes)
    coordinates, rounding = node.attributes["coordinate_transformation_mode"], node.attributes["nearest_mode"]
    mode = _table_name(node.attributes["mode"])
    if coordinates not in _COORDINATES or mode not in ("nearest", "linear", "cubic") or rounding not in ROUNDINGS:
        raise fail(node, f"one of the modes '{coordinates}', '{mode}' and '{rounding}' is not supported")
    parts = [(0.0, 1.0)] * len(axes)
    if coordinates == "tf_crop_and_resize":
        roi = [float(r) for r in required_value(ctx, node, 1, "roi").reshape(-1)]
        if len(roi) != 2 * len(axes):
            raise fail(node, f"'roi' has {len(roi)} elements for {len(axes)} axes")
        parts = list(zip(roi[: len(axes)], roi[len(axes) :], strict=True))
    resized = tuple(
        (axis, AxisScaling(shape[axis], size, scale, *part))
        for axis, size, scale, part in zip(axes, sizes, factors, parts, strict=True)
        if coordinates == "tf_crop_and_resize" or size != shape[axis] or scale != 1
    )
    interpolation = Interpolation(
        mode,
        coordinates,
        rounding,
        "exclude" if node.attributes.get("exclude_outside") else "edge",
        float(node.attributes.get("cubic_coeff_a", -0.75)),
        bool(node.attributes.get("antialias")),
        float(node.attributes.get("extrapolation_value", 0.0)),
    )
    return ctx.apply(Resize(resized, interpolation), x)


def _known_scales(ctx: Context, node: Node) -> list[float]:
    """The elements of 'scales', on which the weights of elements depend, not only the sizes of the result."""
    array = ctx.constant(input_at(node, 2))
    if array is None:
        raise fail(
            node,
            "its input 'scales' must be known at compile time, or be quotients of sizes",
            "give 'sizes', which may be computed in the run; or, if the scales are always the same, --value NAME=…",
        )
    return [float(scale) for scale in array.reshape(-1)]


def _sizes_of_scales(node: Node, index: int, elements: list[Dimension]) -> list[Dimension]:
    """Returns the result sizes for scales that are quotients of result and input sizes; empty for others."""
    given = input_at(node, index).sizes if has_input(node, index) else None
    if given is None or given.size != len(elements):
        return []
    scales = [quotient(scale) for scale in given.reshape(-1)]
    if any(scale.below not in (1, size) for scale, size in zip(scales, elements, strict=True)):
        return []
    return [
        scale.above if scale.below == size else size * scale.above for scale, size in zip(scales, elements, strict=True)
    ]


def _scales_of(node: Node, sizes: list[int], elements: list[int]) -> tuple[list[float | None], list[int]]:
    """The scales that sizes mean, and the sizes that a kept aspect ratio makes of them."""
    scales = [AxisScaling.between(count, size).scale for size, count in zip(sizes, elements, strict=True)]
    policy = node.attributes.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return scales, sizes
    if None in scales:
        raise fail(
            node,
            f"which scale keeps the aspect ratio of {spell(elements)} in {spell(sizes)} is not known at compile time",
            "give these sizes: --shape NAME=SIZE",
        )
    scale = (min if policy == "not_larger" else max)(scale for scale in scales if scale is not None)
    return [scale] * len(elements), [math.floor(scale * count + 0.5) for count in elements]


@operator("Upsample", since=(1, 7, 9, 10))
@operator("Resize", since=(10,))
def _upsample(ctx: Context, node: Node) -> Any:
    """Versions before 11: positions are divided by the scale; of the elements next to one, that before is nearest, or
    that behind if there are to be fewer elements.
    """
    x = input_at(node, 0)
    shape = shape_of(x)
    if node.op_type == "Upsample" and node.version == 1:
        scales = [1.0, 1.0, node.attributes["height_scale"], node.attributes["width_scale"]]
    elif node.op_type == "Upsample" and node.version == 7:
        scales = list(node.attributes["scales"])
    else:
        scales = []
    mode = _table_name(node.attributes["mode"])
    if mode not in ("nearest", "linear"):
        raise fail(node, f"the mode '{mode}' is not supported")
    sizes = [] if scales else _sizes_of_scales(node, 1, list(shape))
    if sizes:
        scalings = [AxisScaling.between(length, size) for length, size in zip(shape, sizes, strict=True)]
    else:
        scales = scales or [float(s) for s in required_value(ctx, node, 1, "scales").reshape(-1)]
        _check_scales(node, scales, len(shape))
        sizes = [scaled(length, scale) for length, scale in zip(shape, scales, strict=True)]
        scalings = [AxisScaling(*each) for each in zip(shape, sizes, scales, strict=True)]
    check_size(sizes)
    if list(sizes) == list(shape):  # these versions do not say what happens then; others copy
        return x
    resized = [(axis, scaling) for axis, scaling in enumerate(scalings) if not scaling.keeps_positions]
    if mode != "nearest":
        return ctx.apply(Resize(tuple(resized), Interpolation(mode, "asymmetric")), x)
    for rounding, shrinks in (("floor", False), ("ceil", True)):
        axes = tuple(each for each in resized if (size_hint(each[1].results) < size_hint(each[1].elements)) == shrinks)
        x = ctx.apply(Resize(axes, Interpolation(mode, "asymmetric", rounding)), x) if axes else x
    return x
