"""Distances, similarities and products of vectors."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.pnnx.lowering import Lowering, Tensor, rank_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import Number, Result, axis_of, need_real, operator
from nnefc.frontends.pnnx.operators.elementwise import apply
from nnefc.operators.math.reduction import Norm, Sum
from nnefc.operators.tensor.indexing import Gather
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []


@operator("F.pairwise_distance")
def _pairwise_distance(
    ctx: Lowering, x1: Tensor, x2: Tensor, p: Number = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Result:
    difference = apply(ctx, "add", apply(ctx, "sub", x1, x2), eps)
    need_real(difference)
    return Norm((rank_of(difference) - 1,), keepdim, p).lower(ctx, difference)


@operator("F.cosine_similarity", "nn.CosineSimilarity")
def _cosine_similarity(ctx: Lowering, x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Result:
    need_real(x1)
    need_real(x2)
    product = apply(ctx, "mul", x1, x2)
    axis = axis_of(dim, rank_of(product)) - rank_of(product)

    def length(x: Tensor) -> Any:
        norm = ctx.apply(Norm((rank_of(x) + axis,), False, 2), x)
        return apply(ctx, "max", norm, np.float32(eps).astype(norm.dtype) if isinstance(norm, np.ndarray) else eps)

    if min(rank_of(x1), rank_of(x2)) < -axis:
        raise CompileError(f"the tensors {list(shape_of(x1))} and {list(shape_of(x2))} do not share a dimension {dim}")
    total = ctx.apply(Sum((rank_of(product) + axis,)), product)
    return apply(ctx, "div", total, apply(ctx, "mul", length(x1), length(x2)))


@operator("torch.cross", "torch.linalg_cross")
def _cross(ctx: Lowering, input: Tensor, other: Tensor, dim: int | None = None) -> Result:
    axes = [axis for axis, size in enumerate(shape_of(input)) if size == 3]
    axis = axis_of(dim, rank_of(input)) if dim is not None else next(iter(axes), None)
    if axis is None or rank_of(input) != rank_of(other) or shape_of(input)[axis] != 3 or shape_of(other)[axis] != 3:
        raise CompileError(f"{list(shape_of(input))} and {list(shape_of(other))} hold no vectors of 3 elements")

    def permuted(x: Tensor, *order: int) -> Tensor:
        made: Tensor = ctx.apply(Gather(axis), x, np.array(order))
        return made

    first = apply(ctx, "mul", permuted(input, 1, 2, 0), permuted(other, 2, 0, 1))
    return apply(ctx, "sub", first, apply(ctx, "mul", permuted(input, 2, 0, 1), permuted(other, 1, 2, 0)))
