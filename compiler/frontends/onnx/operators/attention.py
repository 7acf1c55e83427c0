"""Attention whose scores and probabilities the model changes by graphs of its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx

from nnefc.diagnostics import CompileError
from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.tensors import input_at

__all__: list[str] = []


@operator("FlexAttention", since=(1,), domain="ai.onnx.preview")
def _flex_attention(ctx: Context, node: Node) -> Value:
    """Heads of queries that share one of keys and values lie one after the other, as rows of one product."""
    query, key, value = (input_at(node, i) for i in range(3))
    if any(operand.rank != 4 for operand in (query, key, value)):
        raise CompileError("its inputs must have four axes")
    batch, heads, length, size = query.shape
    shared, positions = key.shape[1:3]
    if key.shape != (batch, shared, positions, size) or value.shape[:3] != key.shape[:3] or heads % shared:
        raise CompileError(
            f"the shapes {list(query.shape)}, {list(key.shape)} and {list(value.shape)} do not fit each other"
        )
    scale = node.attributes.get("scale", 1 / math.sqrt(size))
    if not scale >= 0:
        raise CompileError(f"the scale {scale} is no number from 0 on")
    half = _call(ctx, "CastLike", ctx.known(np.array(math.sqrt(np.float32(scale)))), query)
    rows = (batch, shared, heads // shared * length)
    left = _reshaped(ctx, _call(ctx, "Mul", query, half), (*rows, size))
    right = _call(ctx, "Transpose", _call(ctx, "Mul", key, half), perm=(0, 1, 3, 2))
    scores = _reshaped(ctx, _call(ctx, "MatMul", left, right), (batch, heads, length, positions))
    scores = _call(ctx, "Cast", scores, to=_precision(node, query))
    scores = _changed(ctx, node, "score_mod", scores)
    probabilities = _changed(ctx, node, "prob_mod", _call(ctx, "Softmax", scores, axis=3))
    weights = _reshaped(ctx, _call(ctx, "CastLike", probabilities, value), (*rows, positions))
    return _reshaped(ctx, _call(ctx, "MatMul", weights, value), (batch, heads, length, value.shape[3]))


def _precision(node: Node, query: Value) -> int:
    """The type that the softmax is computed in, by its number in the format."""
    double = query.dtype == "float64"
    default = onnx.TensorProto.DOUBLE if double else onnx.TensorProto.FLOAT
    return int(node.attributes.get("softmax_precision", default))


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


def _reshaped(ctx: Context, value: Value, shape: tuple[int, ...]) -> Value:
    return _call(ctx, "Reshape", value, ctx.known(np.array(shape, np.int64)))


def _call(ctx: Context, op_type: str, *operands: Value, **attributes: Any) -> Value:
    (made,) = ctx.call(op_type, *operands, **attributes)
    assert isinstance(made, Value)
    return made
