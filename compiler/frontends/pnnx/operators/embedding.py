"""Embedding tables."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.pnnx.lowering import Lowering, Tensor, dtype_of, rank_of
from nnefc.frontends.pnnx.operators.declaration import Result, Weights, need_rank, operator
from nnefc.frontends.pnnx.promotion import category
from nnefc.operators.math.casting import Cast
from nnefc.operators.tensor.indexing import Gather, OneHot
from nnefc.support.diagnostics import CompileError

__all__ = ["positions"]


def positions(ctx: Lowering, indices: Tensor) -> Tensor:
    """Indices of at least 32 bits; those that are no integers are refused."""
    if category(dtype_of(indices)) != 1:
        raise CompileError(f"indices must be integers, these are {dtype_of(indices)}")
    wide: Tensor = ctx.apply(Cast("int64" if dtype_of(indices) != "int32" else "int32"), indices)
    return wide


def _embedding(ctx: Lowering, table: Tensor, indices: Tensor) -> Result:
    need_rank(table, 2)
    return Gather(0, "clip").lower(ctx, table, positions(ctx, indices))


@operator("nn.Embedding", limits="an index outside of the table reads its nearest row")
def _embedding_module(
    ctx: Lowering,
    input: Tensor,
    weights: Weights,
    num_embeddings: int,
    embedding_dim: int,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Result:
    if max_norm is not None:
        raise CompileError("'max_norm' is not supported: it changes the table while it is read")
    return _embedding(ctx, weights.take("weight", (num_embeddings, embedding_dim)), input)


@operator("F.embedding", limits="an index outside of the table reads its nearest row")
def _embedding_function(
    ctx: Lowering,
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Result:
    if max_norm is not None:
        raise CompileError("'max_norm' is not supported: it changes the table while it is read")
    return _embedding(ctx, weight, input)


@operator("F.one_hot", limits="with a number of classes")
def _one_hot(ctx: Lowering, input: Tensor, num_classes: int) -> Result:
    if not 1 <= num_classes < 1 << 31:
        raise CompileError(f"'num_classes' must be positive, it is {num_classes}")
    return OneHot(num_classes, rank_of(input)).lower(ctx, np.array([0, 1]), positions(ctx, input))
