"""Attention: the function, and the multi-head layer."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.pnnx.lowering import Array, Lowering, Tensor, dtype_of, rank_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import Result, Weights, operator
from nnefc.frontends.pnnx.operators.elementwise import apply
from nnefc.operators.math.reduction import Mean
from nnefc.operators.nn.attention import Attention, MultiHeadAttention
from nnefc.operators.tensor.shape import Squeeze, Transpose, Unsqueeze
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []


@operator("F.scaled_dot_product_attention")
def _scaled_dot_product_attention(
    ctx: Lowering,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Result:
    q, k, v = shape_of(query), shape_of(key), shape_of(value)
    if 0 in (*q, *k, *v) or (not enable_gqa and len(q) > 2 < len(k) and k[-3] not in (1, q[-3]) and q[-3] != 1):
        raise CompileError(f"the query {list(q)}, the key {list(k)} and the value {list(v)} do not fit")
    return Attention(scale, is_causal).lower(ctx, query, key, value, attn_mask)


@operator("nn.MultiheadAttention", limits="without key padding masks")
def _multihead_attention(
    ctx: Lowering,
    query: Tensor,
    weights: Weights,
    embed_dim: int,
    num_heads: int,
    key: Tensor | None = None,
    value: Tensor | None = None,
    attn_mask: Tensor | None = None,
    bias: bool = True,
    add_bias_kv: bool = False,
    add_zero_attn: bool = False,
    kdim: int | None = None,
    vdim: int | None = None,
    batch_first: bool = False,
    dropout: float = 0.0,
    need_weights: bool = True,
    average_attn_weights: bool = True,
) -> Result:
    key = query if key is None else key
    value = key if value is None else value
    if num_heads < 1 or embed_dim % num_heads:
        raise CompileError(f"{embed_dim} values cannot be divided among {num_heads} heads")
    ranks = {rank_of(x) for x in (query, key, value)}
    if ranks not in ({2}, {3}):
        raise CompileError("query, key and value should have the rank 3, or 2 without a batch")
    matrices = _projections(weights, embed_dim, kdim or embed_dim, vdim or embed_dim)
    offsets = np.split(weights.take("in_proj_bias", (3 * embed_dim,)), 3) if bias else [None] * 3
    outer = weights.take("out_proj.bias", (embed_dim,)) if bias else None
    lone, order = (0 if batch_first else 1), (0, 1, 2) if batch_first else (1, 0, 2)
    if ranks == {2}:
        query, key, value = (ctx.apply(Unsqueeze((lone,)), x) for x in (query, key, value))
    operands = [ctx.apply(Transpose(order), x) for x in (query, key, value)]
    names = ("bias_k", "bias_v") if add_bias_kv else ()
    made, shares = MultiHeadAttention(num_heads, add_zero_attn).lower(
        ctx,
        operands,
        (*matrices, weights.take("out_proj.weight", (embed_dim, embed_dim))),
        (*offsets, outer),
        tuple(weights.take(name, (1, 1, embed_dim)) for name in names),
        None if attn_mask is None else _seen(ctx, attn_mask, shape_of(operands[0])[0], num_heads),
    )
    result = Transpose(order).lower(ctx, ctx.bound(made))
    if ranks == {2}:
        result, shares = Squeeze((lone,)).lower(ctx, ctx.bound(result)), Squeeze((0,)).lower(ctx, shares)
    if ctx.results == 1:
        return result
    return result, Mean((rank_of(shares) - 3,)).lower(ctx, ctx.bound(shares)) if average_attn_weights else shares


def _seen(ctx: Lowering, mask: Tensor, batch: int, heads: int) -> Tensor:
    """A mask as attention takes it: here true is for what is not seen, and batch and heads may be one dimension."""
    if rank_of(mask) == 3 and shape_of(mask)[0] == batch * heads:
        mask = ctx.reshaped(mask, (batch, heads, *shape_of(mask)[1:]))
    return ctx.bound(apply(ctx, "not", mask)) if dtype_of(mask) == "bool" else mask


def _projections(weights: Weights, embed: int, keys: int, values: int) -> list[Array]:
    """The matrices for query, key and value: one tensor if all have the same width."""
    if "in_proj_weight" in weights:
        return list(np.split(weights.take("in_proj_weight", (3 * embed, embed)), 3))
    names = (("q_proj_weight", embed), ("k_proj_weight", keys), ("v_proj_weight", values))
    return [weights.take(name, (embed, width)) for name, width in names]
