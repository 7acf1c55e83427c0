"""Attention, also with scores and probabilities modified by subgraphs of the model."""

from __future__ import annotations

import math
from typing import Any, get_args

import onnx

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.casting import converted
from nnefc.frontends.onnx.operators.tensors import input_at, optional_input
from nnefc.operators.nn.attention import (
    Attention,
    AttentionScores,
    AttentionValues,
    MergeHeads,
    RepeatHeads,
    SplitHeads,
    Stage,
)
from nnefc.operators.nn.window import no_padding
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.padding import Pad
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import is_known
from nnefc.symbolic.unification import covers, divides, unify_shapes

__all__: list[str] = []


@operator("Attention", since=(23, 24, 25))
def _attention(ctx: Context, node: Node) -> list[Value]:
    given = node.attributes
    flat = input_at(node, 0).rank == 3
    heads = [given.get(name) for name in ("q_num_heads", "kv_num_heads", "kv_num_heads")]
    query, key, value = (_with_heads(ctx, input_at(node, i), count) for i, count in enumerate(heads))
    past_key, past_value = optional_input(node, 4), optional_input(node, 5)
    if past_key is not None and past_value is not None:
        key, value = ctx.apply(Concat(2), past_key, key), ctx.apply(Concat(2), past_value, value)
    mode = int(given.get("qk_matmul_output_mode") or 0)
    if not 0 <= mode < len(get_args(Stage)):
        raise CompileError(f"'qk_matmul_output_mode' is {mode}, not from 0 to 3")
    left, right = (given.get(f"{side}_window_size", -1) for side in ("left", "right"))
    attention = Attention(
        given.get("scale"),
        causal=bool(given.get("is_causal")),
        past=0 if past_key is None else past_key.shape[2],
        left=None if left < 0 else left,
        right=None if right < 0 else right,
        softcap=given.get("softcap") or 0.0,
        precision=_precision(node, query),
        stage=get_args(Stage)[mode] if node.wants(3) else None,
    )
    mask = optional_input(node, 3)
    if mask is not None and mask.rank and node.version >= 24:
        mask = _as_long(ctx, mask, key.shape[2])
    made = ctx.apply(attention, query, key, converted(ctx, value, query.dtype), mask, optional_input(node, 6))
    result, *scores = made if node.wants(3) else [made]
    return [ctx.apply(MergeHeads(), result) if flat else result, key, value, *scores][: len(node.outputs)]


def _as_long(ctx: Context, mask: Value, keys: int) -> Value:
    """A mask of the first keys as one of all, of which the others are not seen."""
    if mask.shape[-1] == keys or not covers(keys, mask.shape[-1]):
        return mask
    padding = (*no_padding(mask.rank - 1), (0, keys - mask.shape[-1]))
    made: Value = ctx.apply(Pad(padding, value=0.0 if mask.dtype == "bool" else -math.inf), mask)
    return made


def _with_heads(ctx: Context, x: Value, heads: int | None) -> Value:
    """`[N, heads, L, E]`, as it is or from `[N, L, heads · E]`."""
    if x.rank == 4:
        return x
    made: Value = ctx.apply(SplitHeads(heads or 0), x)
    return made


@operator("FlexAttention", since=(1,), domain="ai.onnx.preview")
def _flex_attention(ctx: Context, node: Node) -> Value:
    query, key, value = (input_at(node, i) for i in range(3))
    if any(operand.rank != 4 for operand in (query, key, value)):
        raise CompileError("its inputs must have four axes")
    batch, heads, _, size = query.shape
    shared, positions = key.shape[1:3]
    fits = unify_shapes(key.shape, (batch, shared, positions, size)) and unify_shapes(value.shape[:3], key.shape[:3])
    if not fits or not divides(shared, heads):
        raise CompileError(
            f"the shapes {list(query.shape)}, {list(key.shape)} and {list(value.shape)} do not fit each other"
        )
    scale = node.attributes.get("scale")
    if scale is not None and not scale >= 0:
        raise CompileError(f"the scale {scale} is not a number from 0 up")
    if heads != shared and not is_known(heads, shared):
        key, value = (ctx.apply(RepeatHeads(heads), x) for x in (key, value))
    scores = _call(ctx, "Cast", ctx.apply(AttentionScores(scale), query, key), to=_softmax_type(node, query))
    scores = _changed(ctx, node, "score_mod", scores)
    probabilities = _changed(ctx, node, "prob_mod", _call(ctx, "Softmax", scores, axis=3))
    made: Value = ctx.apply(AttentionValues(), _call(ctx, "CastLike", probabilities, value), value)
    return made


def _softmax_type(node: Node, query: Value) -> int:
    """The type that the softmax is computed in, by its number in the format."""
    double = query.dtype == "float64"
    default = onnx.TensorProto.DOUBLE if double else onnx.TensorProto.FLOAT
    return int(node.attributes.get("softmax_precision", default))


def _precision(node: Node, query: Value) -> str:
    """The type that the softmax is computed in; float32 is more precise than 16-bit floats ask for."""
    return "float64" if _softmax_type(node, query) == onnx.TensorProto.DOUBLE else "float32"


def _changed(ctx: Context, node: Node, name: str, given: Value) -> Value:
    """A tensor as the graph in the attribute `name` changes it, if there is one."""
    graph = node.attributes.get(name)
    if graph is None:
        return given
    results = ctx.run_graph(graph, [given])
    (made,) = results if len(results) == 1 else (None,)
    if not isinstance(made, Value) or (made.dtype, made.shape) != (given.dtype, given.shape):
        raise CompileError(f"'{name}' must give one tensor, {given.dtype}{list(given.shape)} as it is given")
    return made


def _call(ctx: Context, op_type: str, *operands: Value, **attributes: Any) -> Value:
    (made,) = ctx.call(op_type, *operands, **attributes)
    assert isinstance(made, Value)
    return made
