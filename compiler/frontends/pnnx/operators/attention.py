"""Attention: the function, and the layer with several heads."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax

from nnefc.diagnostics import CompileError
from nnefc.frontends.pnnx.lowering import Array, Lowering, Tensor, broadcast_shapes, dtype_of, rank_of, shape_of
from nnefc.frontends.pnnx.operators.declaration import Result, Weights, operator
from nnefc.frontends.pnnx.operators.matrix import linear
from nnefc.operators.matrix import MatMul

__all__: list[str] = []

_MINUS_INFINITY = float("-inf")


def _attend(
    at: Lowering, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None, causal: bool, scale: float
) -> tuple[relax.Expr, relax.Expr]:
    """`softmax(query · keyᵀ · scale + mask) · value`, and the softmax."""
    scaled = at.emit(relax.op.multiply(at.expr(query), at.expr(np.array(scale, dtype_of(query)))))
    scores: relax.Expr = at.emit(at.expr(MatMul(transpose_b=True).lower(at, scaled, key)))
    rows, columns = shape_of(scores)[-2:]
    if causal:
        future = np.triu(np.full((rows, columns), _MINUS_INFINITY, dtype_of(query)), 1)
        scores = at.emit(relax.op.add(scores, at.expr(future)))
    if mask is not None:
        scores = at.emit(relax.op.add(scores, _additive(at, mask, scores)))
    weights = at.emit(relax.op.nn.softmax(scores, rank_of(scores) - 1))
    return at.emit(at.expr(MatMul().lower(at, weights, value))), weights


def _additive(at: Lowering, mask: Tensor, scores: relax.Expr) -> relax.Expr:
    """A mask as something to add: minus infinity where it is false, which does not take part."""
    if broadcast_shapes(shape_of(mask), shape_of(scores)) != shape_of(scores):
        raise CompileError(f"the mask {list(shape_of(mask))} does not broadcast to {list(shape_of(scores))}")
    dtype = dtype_of(scores)
    if dtype_of(mask) != "bool":
        return at.emit(at.convert(mask, dtype)) if dtype_of(mask) != dtype else at.expr(mask)
    zero, minus = at.expr(np.array(0, dtype)), at.expr(np.array(_MINUS_INFINITY, dtype))
    return at.emit(relax.op.where(at.expr(mask), zero, minus))


@operator("F.scaled_dot_product_attention")
def _scaled_dot_product_attention(
    at: Lowering,
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
    if min(len(q), len(k), len(v)) < 2 or q[-1] != k[-1] or k[-2] != v[-2] or 0 in (*q, *k, *v):
        raise CompileError(f"the query {list(q)}, the key {list(k)} and the value {list(v)} do not fit")
    if enable_gqa and len(q) > 2 and q[-3] != k[-3]:
        if k[-3] != v[-3] or q[-3] % k[-3]:
            raise CompileError(f"{k[-3]} heads of keys do not divide {q[-3]} heads of queries")
        key, value = (at.emit(relax.op.repeat(at.expr(x), q[-3] // k[-3], len(k) - 3)) for x in (key, value))
    factor = 1 / math.sqrt(q[-1]) if scale is None else scale
    return _attend(at, query, key, value, attn_mask, is_causal, factor)[0]


@operator("nn.MultiheadAttention", limits="without key padding masks")
def _multihead_attention(
    at: Lowering,
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
    batched = ranks == {3}
    matrices = _projections(weights, embed_dim, kdim or embed_dim, vdim or embed_dim)
    offsets = np.split(weights.take("in_proj_bias", (3 * embed_dim,)), 3) if bias else [None] * 3
    projected = []
    for x, matrix, offset in zip((query, key, value), matrices, offsets, strict=True):
        expr = at.expr(x) if batched else at.emit(relax.op.expand_dims(at.expr(x), 0 if batch_first else 1))
        # From here on the batch comes first.
        expr = expr if batch_first else at.emit(relax.op.permute_dims(expr, [1, 0, 2]))
        offset = None if offset is None else np.ascontiguousarray(offset)
        projected.append(at.emit(linear(at, expr, np.ascontiguousarray(matrix), offset)))
    if add_bias_kv:
        projected[1] = _longer(at, projected[1], weights.take("bias_k", (1, 1, embed_dim)))
        projected[2] = _longer(at, projected[2], weights.take("bias_v", (1, 1, embed_dim)))
    if add_zero_attn:
        zero = np.zeros((1, 1, embed_dim), np.float32)
        projected[1:] = [_longer(at, x, zero) for x in projected[1:]]
    made, shares = _heads(at, projected, embed_dim, num_heads, attn_mask)
    outer = weights.take("out_proj.bias", (embed_dim,)) if bias else None
    result = linear(at, made, weights.take("out_proj.weight", (embed_dim, embed_dim)), outer)
    if not batch_first:
        result = relax.op.permute_dims(at.emit(result), [1, 0, 2])
    if not batched:
        result = relax.op.squeeze(at.emit(result), 0 if batch_first else 1)
    if at.results == 1:
        return result
    shares = at.emit(relax.op.mean(shares, [1])) if average_attn_weights else shares
    return result, shares if batched else relax.op.squeeze(shares, 0)


def _projections(weights: Weights, embed: int, keys: int, values: int) -> list[Array]:
    """The matrices for query, key and value: one tensor if all have the same width."""
    if "in_proj_weight" in weights:
        return list(np.split(weights.take("in_proj_weight", (3 * embed, embed)), 3))
    names = (("q_proj_weight", embed), ("k_proj_weight", keys), ("v_proj_weight", values))
    return [weights.take(name, (embed, width)) for name, width in names]


def _longer(at: Lowering, x: relax.Expr, row: Array) -> relax.Expr:
    """A sequence with one more item at its end."""
    return at.emit(relax.op.concat([x, at.expr(np.repeat(row, shape_of(x)[0], 0))], 1))


def _heads(
    at: Lowering, projected: list[relax.Expr], embed: int, heads: int, mask: Tensor | None
) -> tuple[relax.Expr, relax.Expr]:
    width = embed // heads
    parts = []
    for x in projected:
        batch, length, _ = shape_of(x)
        parted = at.emit(relax.op.reshape(x, (batch, length, heads, width)))
        parts.append(at.emit(relax.op.permute_dims(parted, [0, 2, 1, 3])))
    batch, _, length, _ = shape_of(parts[0])
    if mask is not None:
        sources = shape_of(parts[1])[2]
        if shape_of(mask) == (batch * heads, length, sources):
            mask = at.emit(relax.op.reshape(at.expr(mask), (batch, heads, length, sources)))
        if broadcast_shapes(shape_of(mask), (batch, heads, length, sources)) != (batch, heads, length, sources):
            raise CompileError(f"the mask {list(shape_of(mask))} does not fit {length} queries and {sources} keys")
        if dtype_of(mask) == "bool":  # here true does not take part
            zero, minus = at.expr(np.array(0, np.float32)), at.expr(np.array(_MINUS_INFINITY, np.float32))
            mask = at.emit(relax.op.where(at.expr(mask), minus, zero))
    made, shares = _attend(at, parts[0], parts[1], parts[2], mask, False, 1 / math.sqrt(width))
    joined = at.emit(relax.op.permute_dims(made, [0, 2, 1, 3]))
    return at.emit(relax.op.reshape(joined, (batch, length, embed))), shares
