"""Samples images at coordinates given by tensors."""

from __future__ import annotations

from nnefc.frontends.pnnx.lowering import Lowering, Tensor, shape_of
from nnefc.frontends.pnnx.operators.declaration import Ints, Result, need_rank, operator
from nnefc.operators.vision.detection import AffineGrid, GridSample
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []

_MODES = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
_PADDINGS = ("zeros", "border", "reflection")


@operator("F.grid_sample")
def _grid_sample(
    ctx: Lowering,
    input: Tensor,
    grid: Tensor,
    mode: str = "bilinear",
    padding_mode: str = "zeros",
    align_corners: bool | None = None,
) -> Result:
    need_rank(input, 4, 5)
    if mode not in _MODES or padding_mode not in _PADDINGS or (mode == "bicubic" and len(shape_of(input)) == 5):
        raise CompileError(f"one of the modes '{mode}' and '{padding_mode}' is not supported")
    sample = GridSample(_MODES[mode], padding_mode, bool(align_corners))  # type: ignore[arg-type]
    return sample.lower(ctx, input, grid)


@operator("F.affine_grid", limits="no size of 1 between aligned corners")
def _affine_grid(ctx: Lowering, theta: Tensor, size: Ints, align_corners: bool | None = None) -> Result:
    need_rank(theta, 3)
    if len(size) not in (4, 5) or shape_of(theta) != (size[0], len(size) - 2, len(size) - 1):
        raise CompileError(f"the matrices {list(shape_of(theta))} do not fit the size {list(size)}")
    if align_corners and 1 in size[2:]:
        raise CompileError("a grid with aligned corners has no dimension of 1")
    return AffineGrid(tuple(size[2:]), bool(align_corners)).lower(ctx, theta)
