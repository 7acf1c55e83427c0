"""Changes of resolution: interpolation, pixel shuffles."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tvm import relax

from nnefc.diagnostics import CompileError
from nnefc.frontends.pnnx.lowering import Lowering, Shape, Tensor, shape_of
from nnefc.frontends.pnnx.operators.declaration import Floats, Ints, Result, need_rank, need_real, need_size, operator
from nnefc.frontends.pnnx.operators.pooling import adaptive_average
from nnefc.operators.resize import Interpolation, Resize, Scaling

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
    at: Lowering,
    input: Tensor,
    size: Sequence[int] | None,
    scale: Sequence[float] | None,
    mode: str,
    align_corners: bool,
    recompute: bool,
) -> Result:
    need_real(input)
    shape = shape_of(input)
    extents = shape[2:]
    if mode not in _RANKS or len(extents) not in _RANKS[mode] or 0 in shape:
        raise CompileError(f"the mode '{mode}' is not for an input of the shape {list(shape)}")
    if (size is None) == (scale is None):
        raise CompileError("either 'size' or 'scale_factor' must be given")
    scales: list[float | None] = [None] * len(extents)
    if scale is not None:
        factors = list(scale) * len(extents) if len(scale) == 1 else list(scale)
        if len(factors) != len(extents) or not all(0 < f < 1 << 20 for f in factors):
            raise CompileError(f"the scale factors {factors} do not fit the extents {list(extents)}")
        result = tuple(math.floor(n * f) for n, f in zip(extents, factors, strict=True))
        scales = [None if recompute else f for f in factors]
    else:
        assert size is not None
        result = tuple(size) * len(extents) if len(size) == 1 else tuple(size)
    if len(result) != len(extents) or min(result) < 1:
        raise CompileError(f"the size {list(result)} does not fit the extents {list(extents)}")
    need_size((*shape[:2], *result))
    if mode == "area":
        return adaptive_average(at, input, result)
    axes = tuple(
        (axis, Scaling(n, m, m / n if s is None or align_corners else s))
        for axis, (n, m, s) in enumerate(zip(extents, result, scales, strict=True), 2)
    )
    return Resize(axes, _interpolation(mode, align_corners)).lower(at, input)


def _interpolation(mode: str, align_corners: bool) -> Interpolation:
    match mode:
        case "nearest":
            return Interpolation("nearest", "pytorch_nearest")
        case "nearest-exact":
            return Interpolation("nearest", "pytorch_nearest_exact")
    return Interpolation("cubic" if mode == "bicubic" else "linear", "align_corners" if align_corners else "half_pixel")


@operator("F.interpolate", "F.upsample", "nn.Upsample", limits="without antialiasing")
def _interpolate(
    at: Lowering,
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
        at, input, size or None, scale_factor or None, mode, bool(align_corners), bool(recompute_scale_factor)
    )


@operator("nn.UpsamplingNearest2d", "F.upsample_nearest")
def _upsample_nearest(
    at: Lowering, input: Tensor, size: Ints | None = None, scale_factor: Floats | None = None
) -> Result:
    return _resize(at, input, size or None, scale_factor or None, "nearest", False, False)


@operator("nn.UpsamplingBilinear2d", "F.upsample_bilinear")
def _upsample_bilinear(
    at: Lowering, input: Tensor, size: Ints | None = None, scale_factor: Floats | None = None
) -> Result:
    return _resize(at, input, size or None, scale_factor or None, "bilinear", True, False)


def _shuffled(at: Lowering, input: Tensor, parts: Shape, order: Sequence[int], result: Shape) -> relax.Expr:
    parted = at.emit(relax.op.reshape(at.expr(input), parts))
    ordered = at.emit(relax.op.permute_dims(parted, list(order)))
    return relax.op.reshape(ordered, result)


@operator("nn.PixelShuffle", "F.pixel_shuffle", "torch.pixel_shuffle")
def _pixel_shuffle(at: Lowering, input: Tensor, upscale_factor: int) -> Result:
    *batch, c, h, w = need_rank(input, 3, 4, 5)
    r, b = upscale_factor, len(batch)
    if not 1 <= r < 1 << 15 or c % (r * r):
        raise CompileError(f"{c} channels cannot be shuffled with the factor {r}")
    order = [*range(b), b, b + 3, b + 1, b + 4, b + 2]
    return _shuffled(at, input, (*batch, c // (r * r), r, r, h, w), order, (*batch, c // (r * r), h * r, w * r))


@operator("nn.PixelUnshuffle", "F.pixel_unshuffle", "torch.pixel_unshuffle")
def _pixel_unshuffle(at: Lowering, input: Tensor, downscale_factor: int) -> Result:
    *batch, c, h, w = need_rank(input, 3, 4, 5)
    r, b = downscale_factor, len(batch)
    if not 1 <= r < 1 << 15 or h % r or w % r:
        raise CompileError(f"the extents {[h, w]} cannot be divided by {r}")
    order = [*range(b), b, b + 2, b + 4, b + 1, b + 3]
    return _shuffled(at, input, (*batch, c, h // r, r, w // r, r), order, (*batch, c * r * r, h // r, w // r))


@operator("nn.ChannelShuffle", "F.channel_shuffle", "torch.channel_shuffle")
def _channel_shuffle(at: Lowering, input: Tensor, groups: int) -> Result:
    shape = shape_of(input)
    if len(shape) < 3 or groups < 1 or shape[1] % groups:
        raise CompileError(f"the channels of {list(shape)} cannot be shuffled in {groups} groups")
    n, c, *rest = shape
    order = [0, 2, 1, *range(3, len(shape) + 1)]
    return _shuffled(at, input, (n, groups, c // groups, *rest), order, shape)
