"""Resizing: interpolation, pixel shuffle."""

from __future__ import annotations

from collections.abc import Sequence

from nnefc.frontends.pnnx.lowering import Lowering, Tensor, shape_of
from nnefc.frontends.pnnx.operators.declaration import Floats, Ints, Result, need_real, operator
from nnefc.frontends.pnnx.operators.pooling import adaptive_average
from nnefc.operators.base import check_size
from nnefc.operators.vision.interpolation import AxisScaling, Interpolation
from nnefc.operators.vision.resize import Resize
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import scaled

__all__: list[str] = []

_RANKS = {
    "nearest": (1, 2, 3),
    "nearest-exact": (1, 2, 3),
    "linear": (1,),
    "bilinear": (2,),
    "bicubic": (2,),
    "trilinear": (3,),
    "area": (1, 2, 3),
}


def _resize(
    ctx: Lowering,
    input: Tensor,
    size: Sequence[int] | None,
    scale: Sequence[float] | None,
    mode: str,
    align_corners: bool,
    recompute: bool,
) -> Result:
    need_real(input)
    shape = shape_of(input)
    sizes = shape[2:]
    if mode not in _RANKS or len(sizes) not in _RANKS[mode] or 0 in shape:
        raise CompileError(f"the mode '{mode}' is not for an input of the shape {list(shape)}")
    if (size is None) == (scale is None):
        raise CompileError("either 'size' or 'scale_factor' must be given")
    scales: list[float | None] = [None] * len(sizes)
    if scale is not None:
        factors = list(scale) * len(sizes) if len(scale) == 1 else list(scale)
        if len(factors) != len(sizes) or not all(0 < f < 1 << 20 for f in factors):
            raise CompileError(f"the scale factors {factors} do not fit the spatial dimensions {list(sizes)}")
        result = tuple(scaled(n, f) for n, f in zip(sizes, factors, strict=True))
        scales = [None if recompute else f for f in factors]
    else:
        assert size is not None
        result = tuple(size) * len(sizes) if len(size) == 1 else tuple(size)
    if len(result) != len(sizes) or min(result) < 1:
        raise CompileError(f"the size {list(result)} does not fit the spatial dimensions {list(sizes)}")
    check_size((*shape[:2], *result))
    if mode == "area":
        return adaptive_average(ctx, input, result)
    axes = tuple(
        (axis, AxisScaling.between(n, m) if s is None or align_corners else AxisScaling(n, m, s))
        for axis, (n, m, s) in enumerate(zip(sizes, result, scales, strict=True), 2)
    )
    return Resize(axes, _interpolation(mode, align_corners)).lower(ctx, input)


def _interpolation(mode: str, align_corners: bool) -> Interpolation:
    match mode:
        case "nearest":
            return Interpolation("nearest", "pytorch_nearest")
        case "nearest-exact":
            return Interpolation("nearest", "pytorch_nearest_exact")
    return Interpolation("cubic" if mode == "bicubic" else "linear", "align_corners" if align_corners else "half_pixel")


@operator("F.interpolate", "F.upsample", "nn.Upsample", limits="without antialiasing")
def _interpolate(
    ctx: Lowering,
    input: Tensor,
    size: Ints | None = None,
    scale_factor: Floats | None = None,
    mode: str = "nearest",
    align_corners: bool | None = None,
    recompute_scale_factor: bool | None = None,
    antialias: bool = False,
) -> Result:
    if antialias:
        raise CompileError("antialiasing is not supported")
    return _resize(
        ctx, input, size or None, scale_factor or None, mode, bool(align_corners), bool(recompute_scale_factor)
    )


@operator("nn.UpsamplingNearest2d", "F.upsample_nearest")
def _upsample_nearest(
    ctx: Lowering, input: Tensor, size: Ints | None = None, scale_factor: Floats | None = None
) -> Result:
    return _resize(ctx, input, size or None, scale_factor or None, "nearest", False, False)


@operator("nn.UpsamplingBilinear2d", "F.upsample_bilinear")
def _upsample_bilinear(
    ctx: Lowering, input: Tensor, size: Ints | None = None, scale_factor: Floats | None = None
) -> Result:
    return _resize(ctx, input, size or None, scale_factor or None, "bilinear", True, False)
