"""Operators that onnxruntime's optimizer joins around a normalization, and those from before the standard had them."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.onnx.extensions import DOMAIN
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
from nnefc.operators.activation import Silu
from nnefc.operators.casting import Cast
from nnefc.operators.creation import Arange, Full
from nnefc.operators.elementwise import Elementwise
from nnefc.operators.indexing import Gather
from nnefc.operators.normalization import GroupNormalization, RootMeanSquare, Standardization
from nnefc.operators.reduction import Sum
from nnefc.operators.shape import Reshape

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


def _total(ctx: Context, node: Node, place: int) -> Value:
    """The sum of the first two operands, and of a bias at `place`."""
    bias = optional_input(node, place)
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
    """The normalized sum of rows for words, positions and segments, the numbers of words, and the sum."""
    words = input_at(node, 0)
    batch, length = words.shape
    places = optional_input(node, 8)
    if places is None:
        places = ctx.apply(Reshape((1, length)), ctx.apply(Arange(0, length, 1, "int64")))
    segments, table = optional_input(node, 1), optional_input(node, 4)
    rows = [ctx.apply(Gather(0), input_at(node, 2), words), ctx.apply(Gather(0), input_at(node, 3), places)]
    if segments is not None and table is not None:
        rows.append(ctx.apply(Gather(0), table, segments))
    total = binary(ctx, "Add", *rows)
    made = ctx.apply(Standardization((2,), node.attributes["epsilon"]), total, input_at(node, 5), input_at(node, 6))
    mask = optional_input(node, 7)
    if mask is None:
        count = ctx.apply(Full((batch,), 0, dtype_of(words)))
    else:
        ones = ctx.apply(Elementwise("equal"), mask, ctx.known(np.ones((), mask.dtype)))
        count = ctx.apply(Sum((1,)), ctx.apply(Cast(dtype_of(mask)), ones))
    return [made, count, total][: max(1, len(node.outputs))]


@operator("GroupNorm", since=(1,), domain=DOMAIN)
@operator("SkipGroupNorm", since=(1,), domain=DOMAIN)
def _group_norm(ctx: Context, node: Node) -> list[Value]:
    """Of a tensor, or of its sum with another one and a bias; the second result is the sum."""
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
    """What is added to `[N, C, …]`: a tensor like it, `[N, C]` or `[C]`."""
    if added.rank == x.rank:
        return channels_first(ctx, added) if last else added
    made: Value = ctx.apply(Reshape((*added.shape, *[1] * (x.rank - 2))), added)
    return made
