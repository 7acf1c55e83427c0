"""Operators that onnxruntime's optimizer fuses around normalizations, and normalizations older than the standard's."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nnefc.frontends.onnx.checks.extensions import DOMAIN
from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.elementwise import binary
from nnefc.frontends.onnx.operators.tensors import (
    channels_first,
    channels_last,
    dtype_of,
    fail,
    input_at,
    normal_axis,
    optional_input,
)
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Elementwise
from nnefc.operators.math.reduction import Sum
from nnefc.operators.nn.activation import Silu
from nnefc.operators.nn.normalization import GroupNormalization, RootMeanSquare, Standardization
from nnefc.operators.tensor.creation import Arange, Full
from nnefc.operators.tensor.indexing import Gather
from nnefc.operators.tensor.shape import Reshape

__all__: list[str] = []


@operator("SkipLayerNormalization", since=(1,), domain=DOMAIN)
def _skip_layer_normalization(ctx: Context, node: Node) -> list[Value]:
    """The sum of two tensors, and of a bias, normalized over the last axis; the fourth result is the sum."""
    total = _total(ctx, node, 4)
    standardization = Standardization((total.rank - 1,), node.attributes["epsilon"], statistics=True)
    made = ctx.apply(standardization, total, input_at(node, 2), optional_input(node, 3))
    return [*made, total][: max(1, len(node.outputs))]


@operator("SkipSimplifiedLayerNormalization", since=(1,), domain=DOMAIN)
def _skip_simplified_layer_normalization(ctx: Context, node: Node) -> list[Value]:
    """The same, divided by the root of the mean of squares; there is no mean."""
    if node.wants(1):
        raise fail(node, "its output 'mean' is not supported: this normalization has none")
    total = _total(ctx, node, 3)
    normal, inverse = _by_root_mean_square(ctx, total, total.rank - 1, node.attributes["epsilon"])
    return [binary(ctx, "Mul", normal, input_at(node, 2)), inverse, inverse, total][: max(1, len(node.outputs))]


def _total(ctx: Context, node: Node, index: int) -> Value:
    """The sum of the first two operands, and of a bias at `position`."""
    bias = optional_input(node, index)
    given = [input_at(node, 0), input_at(node, 1), *([] if bias is None else [bias])]
    return binary(ctx, "Add", *given)


def _by_root_mean_square(ctx: Context, x: Value, axis: int, epsilon: float) -> tuple[Value, Value]:
    """The tensor divided by the root of the mean of its squares from an axis on, and the inverse of that."""
    normal, inverse = ctx.apply(RootMeanSquare(tuple(range(axis, x.rank)), epsilon, statistics=True), x)
    return normal, inverse


@operator("SimplifiedLayerNormalization", since=(1,))
def _simplified_layer_normalization(ctx: Context, node: Node) -> list[Value]:
    x, scale = input_at(node, 0), input_at(node, 1)
    axis = normal_axis(node, node.attributes["axis"], x.rank)
    normal, inverse = _by_root_mean_square(ctx, x, axis, node.attributes["epsilon"])
    made = binary(ctx, "Mul", ctx.apply(Cast(dtype_of(scale)), normal), scale)
    return [made, inverse][: max(1, len(node.outputs))]


@operator("EmbedLayerNormalization", since=(1,), domain=DOMAIN)
def _embed_layer_normalization(ctx: Context, node: Node) -> list[Value]:
    tables = [optional_input(node, i) for i in (2, 3, 4)]
    made = _embedded(ctx, node, tables, (input_at(node, 5), input_at(node, 6)), optional_input(node, 8))
    return made[: max(1, len(node.outputs))]


@operator("QEmbedLayerNormalization", since=(1,), domain=DOMAIN)
def _quantized_embed_layer_normalization(ctx: Context, node: Node) -> list[Value]:
    """All five tensors are integers of 8 bits, with their scales from input 8 on, then their zero points."""
    made: list[Value | None] = []
    for index in range(2, 7):
        parts = [optional_input(node, index + offset) for offset in (0, 6, 11)]
        made.append(None if parts[0] is None else _dequantized(ctx, parts))
    word, position, segment, scale, offset = made
    if scale is None or offset is None:
        raise fail(node, "its scale or its offset is missing")
    return _embedded(ctx, node, [word, position, segment], (scale, offset), None)[: max(1, len(node.outputs))]


def _dequantized(ctx: Context, parts: Sequence[Value | None]) -> Value:
    (made,) = ctx.call("DequantizeLinear", *parts)
    assert isinstance(made, Value)
    return made


def _embedded(
    ctx: Context, node: Node, tables: Sequence[Value | None], scales: tuple[Value, Value], positions: Value | None
) -> list[Value]:
    """The normalized sum of rows for words, positions and segments, the numbers of words, and the sum."""
    words, segments, mask = input_at(node, 0), optional_input(node, 1), optional_input(node, 7)
    batch, length = words.shape
    if positions is None:
        positions = ctx.apply(Reshape((1, length)), ctx.apply(Arange(0, length, 1, "int64")))
    pairs = zip(tables, (words, positions, segments), strict=True)
    rows = [ctx.apply(Gather(0), table, at) for table, at in pairs if table is not None and at is not None]
    total = binary(ctx, "Add", *rows)
    made = ctx.apply(Standardization((2,), node.attributes["epsilon"]), total, *scales)
    if mask is None:
        count = ctx.apply(Full((batch,), 0, dtype_of(words)))
    else:
        ones = ctx.apply(Elementwise("equal"), mask, ctx.known(np.ones((), mask.dtype)))
        count = ctx.apply(Sum((1,)), ctx.apply(Cast(dtype_of(mask)), ones))
    return [made, count, total]


@operator("GroupNorm", since=(1,), domain=DOMAIN)
@operator("SkipGroupNorm", since=(1,), domain=DOMAIN)
def _group_norm(ctx: Context, node: Node) -> list[Value]:
    """Lower the normalization of a tensor, or of its sum with another one and a bias; the second result is the sum."""
    x, skip, bias = input_at(node, 0), optional_input(node, 3), optional_input(node, 4)
    last = bool(node.attributes["channels_last"])
    x = channels_first(ctx, x) if last else x
    for added in (skip, bias):
        if added is not None:
            x = binary(ctx, "Add", x, _of_channels_first(ctx, added, x, last))
    normalization = GroupNormalization(node.attributes["groups"], node.attributes["epsilon"])
    made = ctx.apply(normalization, x, input_at(node, 1), input_at(node, 2))
    made = ctx.apply(Silu(), made) if node.attributes["activation"] else made
    return [channels_last(ctx, part) if last else part for part in (made, x)][: max(1, len(node.outputs))]


def _of_channels_first(ctx: Context, added: Value, x: Value, last: bool) -> Value:
    """Return an addend, a tensor like `x`, `[N, C]` or `[C]`, in the shape that broadcasts to `[N, C, …]`."""
    if added.rank == x.rank:
        return channels_first(ctx, added) if last else added
    made: Value = ctx.apply(Reshape((*added.shape, *[1] * (x.rank - 2))), added)
    return made
