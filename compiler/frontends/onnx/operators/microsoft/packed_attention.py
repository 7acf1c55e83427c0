"""Attention of onnxruntime's optimizer to packed sequences, which are concatenated without padding."""

from __future__ import annotations

import math

from nnefc.frontends.onnx.checks.extensions import DOMAIN
from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.elementwise import binary
from nnefc.frontends.onnx.operators.tensors import fail, input_at, optional_input, spell
from nnefc.operators.math.matrix import Gemm
from nnefc.operators.nn.attention import Attention, MergeHeads, SplitHeads
from nnefc.operators.tensor.concatenation import Split, Unstack
from nnefc.operators.tensor.creation import Arange
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.shape import Reshape, Slice, Unsqueeze
from nnefc.symbolic.unification import unify_dims

__all__: list[str] = []


@operator("PackedAttention", since=(1,), domain=DOMAIN)
def _packed_attention(ctx: Context, node: Node) -> Value:
    joined = ctx.apply(Gemm(), *(input_at(node, i) for i in range(3)))
    sizes = tuple(node.attributes.get("qkv_hidden_sizes") or (joined.shape[1] // 3,) * 3)
    parts = ctx.apply(Split(1, sizes), joined)
    return _attended(ctx, node, parts, (input_at(node, 3), input_at(node, 4)), optional_input(node, 5))


@operator("PackedMultiHeadAttention", since=(1,), domain=DOMAIN)
def _packed_multi_head_attention(ctx: Context, node: Node) -> Value:
    query, key, value = input_at(node, 0), optional_input(node, 1), optional_input(node, 2)
    if query.rank == 4:
        if not unify_dims(query.shape[2], 3):
            raise fail(node, f"{spell(query.shape)} does not have 3 parts along axis 2")
        shape = (query.shape[0], query.shape[1] * query.shape[3])
        parts = [ctx.apply(Reshape(shape), part) for part in ctx.apply(Unstack(2), query)]
    elif key is None or value is None:
        raise fail(node, "keys and values are missing")
    else:
        parts = [query, key, value]
    bias = optional_input(node, 3)
    if bias is not None:
        biases = ctx.apply(Split(0, tuple(part.shape[1] for part in parts)), bias)
        parts = [binary(ctx, "Add", part, added) for part, added in zip(parts, biases, strict=True)]
    return _attended(ctx, node, parts, (input_at(node, 4), input_at(node, 5)), optional_input(node, 6))


def _attended(
    ctx: Context, node: Node, parts: list[Value], positions: tuple[Value, Value], bias: Value | None
) -> Value:
    """The result `[T, H V]` of queries, keys and values `[T, …]`.

    Args:
        positions: indices of the elements in padded sequences, `[N, L]`, and of the start of each sequence, `[N + 1]`.
        bias: what is added to scores, `[N, H, L, L]`.
    """
    offsets, starts = positions
    count, (batch, length) = parts[0].shape[0], offsets.shape
    first, end = (ctx.apply(Slice({0: (start, batch, 1)}), starts) for start in (0, 1))
    steps = ctx.apply(Reshape((1, length)), ctx.apply(Arange(0, length, 1, starts.dtype)))
    rows = binary(ctx, "Add", ctx.apply(Unsqueeze((1,)), first), steps)
    split = SplitHeads(node.attributes["num_heads"])
    padded = [ctx.apply(split, ctx.apply(Gather(0, "clip"), part, rows)) for part in parts]
    attention = Attention(node.attributes.get("scale") or None)
    made = ctx.apply(MergeHeads(), ctx.apply(attention, *padded, bias, binary(ctx, "Sub", end, first)))
    flat = ctx.apply(Reshape((batch * length, made.shape[2])), made)
    elements = ctx.apply(Slice({0: (0, count, 1)}), ctx.apply(Reshape((math.prod(offsets.shape),)), offsets))
    result: Value = ctx.apply(Gather(0), flat, elements)
    return result
