"""Normalizations: batch, instance, group, layer, RMS, Lp, local response, mean and variance; Dropout."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.casting import converted, element_type
from nnefc.frontends.onnx.operators.elementwise import binary
from nnefc.frontends.onnx.operators.random import draw
from nnefc.frontends.onnx.operators.tensors import (
    dtype_of,
    fail,
    has_input,
    input_at,
    normal_axes,
    normal_axis,
    optional_input,
    required_value,
    shape_of,
    spell,
)
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.random import Dropout
from nnefc.operators.nn.normalization import (
    BatchNormalization,
    BatchNormalizationInTraining,
    GroupNormalization,
    LocalResponse,
    LpNormalization,
    MeanVarianceNormalization,
    RootMeanSquare,
    Standardization,
)
from nnefc.operators.tensor.creation import Full
from nnefc.operators.tensor.shape import Reshape
from nnefc.symbolic.unification import unify_shapes

__all__: list[str] = []


_DEVIATION_EPSILON = 1e-9
"""Added to the standard deviation, as in the standard's formula for it."""


def _channelwise(ctx: Context, x: Value, vector: Value) -> Any:
    """A vector of channels, aligned to broadcast with `[N, C, …]`."""
    return ctx.apply(Reshape((1, math.prod(shape_of(vector)), *[1] * (len(shape_of(x)) - 2))), vector)


@operator("BatchNormalization", since=(1, 6, 7, 9, 14, 15))
def _batch_normalization(ctx: Context, node: Node) -> Any:
    """A vector is a batch of one channel."""
    x, scale, bias, average, variance = (input_at(node, i) for i in range(5))
    shape, epsilon = shape_of(x), node.attributes["epsilon"]
    by_channel = bool(node.attributes.get("spatial", 1)) or node.version >= 9
    like = shape[1:2] if by_channel else shape[1:]
    if len(shape) == 1 and by_channel:
        column = replace(node, operands=(ctx.apply(Reshape((*shape, 1)), x), *node.operands[1:]))
        results: Any = _batch_normalization(ctx, column)
        made, *statistics = results
        return [ctx.apply(Reshape(shape), made), *statistics]
    if len(shape) < 2 or not all(unify_shapes(shape_of(v), like) for v in (scale, bias, average, variance)):
        kind = (
            "the vectors do not have one element per channel" if by_channel else ("parameters are not like one element")
        )
        raise fail(node, f"{kind} of {spell(shape)}")
    if _trains(node):
        if not by_channel:
            raise fail(node, "training with statistics of each element is not supported")
        training = BatchNormalizationInTraining(epsilon, node.attributes["momentum"])
        return ctx.apply(training, x, scale, bias, average, variance)[: max(1, len(node.outputs))]
    vectors = [
        _channelwise(ctx, x, vector) if by_channel else ctx.apply(Reshape((1, *like)), vector)
        for vector in (average, variance, scale, bias)
    ]
    made = ctx.apply(BatchNormalization(epsilon), x, *vectors)
    return [made, average, variance, average, variance]  # of a model in training, run without


def _trains(node: Node) -> bool:
    if node.version >= 14:
        return bool(node.attributes.get("training_mode"))
    return not node.attributes.get("is_test", 0) and node.wants(1)


@operator("InstanceNormalization", since=(1, 6, 22))
def _instance_normalization(ctx: Context, node: Node) -> Any:
    x, scale, bias = (input_at(node, i) for i in range(3))
    axes = tuple(range(2, len(shape_of(x))))
    if not axes or not all(unify_shapes(shape_of(vector), shape_of(x)[1:2]) for vector in (scale, bias)):
        shapes = f"{spell(shape_of(scale))} and {spell(shape_of(bias))}"
        raise fail(node, f"the vectors {shapes} do not have one element per channel of {spell(shape_of(x))}")
    parameters = (_channelwise(ctx, x, vector) for vector in (scale, bias))
    return ctx.apply(Standardization(axes, node.attributes["epsilon"]), x, *parameters)


@operator("GroupNormalization", since=(18, 21))
def _group_normalization(ctx: Context, node: Node) -> Any:
    """Version 18 has scales and biases per group, version 21 per channel."""
    x, scale, bias = (input_at(node, i) for i in range(3))
    return ctx.apply(GroupNormalization(node.attributes["num_groups"], node.attributes["epsilon"]), x, scale, bias)


@operator("LayerNormalization", since=(1, 17))
def _layer_normalization(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    axis = normal_axis(node, node.attributes["axis"], len(shape_of(x)))
    standardization = Standardization(
        tuple(range(axis, len(shape_of(x)))), node.attributes["epsilon"], node.wants(1) or node.wants(2)
    )
    made = ctx.apply(standardization, x, input_at(node, 1), optional_input(node, 2))
    if not isinstance(made, list) or dtype_of(x) != "float64":
        return made  # 16-bit floats are computed in the type that the statistics have
    kind = element_type(node, node.attributes["stash_type"])
    return [made[0], *(converted(ctx, statistic, kind) for statistic in made[1:])]


@operator("RMSNormalization", since=(23,))
def _rms_normalization(ctx: Context, node: Node) -> Any:
    x, scale = input_at(node, 0), input_at(node, 1)
    axis = normal_axis(node, node.attributes["axis"], len(shape_of(x)))
    normal = ctx.apply(RootMeanSquare(tuple(range(axis, len(shape_of(x)))), node.attributes["epsilon"]), x)
    return binary(ctx, "Mul", ctx.apply(Cast(dtype_of(scale)), normal), scale)


@operator("MeanVarianceNormalization", since=(1,))
def _mean_variance_on_trial(ctx: Context, node: Node) -> Any:
    """Lower the standard's first version, over the batch and the positions, or over everything."""
    x = input_at(node, 0)
    rank = len(shape_of(x))
    axes = tuple(range(rank)) if node.attributes["across_channels"] else (0, *range(2, rank))
    if node.attributes["normalize_variance"]:
        return ctx.apply(MeanVarianceNormalization(axes, _DEVIATION_EPSILON), x)
    (mean,) = ctx.call("ReduceMean", x, axes=axes, keepdims=1)
    assert isinstance(mean, Value)
    return binary(ctx, "Sub", x, mean)


@operator("MeanVarianceNormalization", since=(9, 13))
def _mean_variance_normalization(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    axes = tuple(sorted(normal_axes(node, node.attributes["axes"], len(shape_of(x)))))
    return ctx.apply(MeanVarianceNormalization(axes, _DEVIATION_EPSILON), x)


@operator("LpNormalization", since=(1, 22))
def _lp_normalization(ctx: Context, node: Node) -> Any:
    x, p = input_at(node, 0), node.attributes["p"]
    if p not in (1, 2):
        raise fail(node, f"'p' is {p}, neither 1 nor 2")
    axis = normal_axis(node, node.attributes["axis"], len(shape_of(x)))
    return ctx.apply(LpNormalization((axis,), p, None), x)


@operator("LRN", since=(1, 13))
def _lrn(ctx: Context, node: Node) -> Value:
    """`x / (bias + alpha / size * sum of squares over a window of channels) ^ beta`."""
    x, size = input_at(node, 0), node.attributes["size"]
    shape = shape_of(x)
    if len(shape) < 2 or size < 1:
        raise fail(node, f"a window of {size} channels does not fit {spell(shape)}")
    alpha, beta, bias = (node.attributes[name] for name in ("alpha", "beta", "bias"))
    if 0 in shape:
        return x
    response = LocalResponse((size - 1) // 2, size // 2, alpha, beta, bias)
    made: Value = ctx.apply(response, x)
    return made


@operator("Dropout", since=(1, 6, 7, 10, 12, 13, 22))
def _dropout(ctx: Context, node: Node) -> Value | list[Value]:
    """Nothing is dropped in inference. In training each element is, with the chance `ratio`; the others are scaled
    up."""
    x = input_at(node, 0)
    if has_input(node, 2) and required_value(ctx, node, 2, "training_mode").reshape(())[()]:
        rate = float(required_value(ctx, node, 1, "ratio").reshape(())[()]) if has_input(node, 1) else 0.5
        if rate:
            key, runs = draw(ctx, node)
            made: list[Value] = ctx.apply(Dropout(key, rate), x, runs)
            return made
    if not node.wants(1):
        return x
    return [x, ctx.apply(Full(shape_of(x), 1, "bool" if node.version >= 10 else dtype_of(x)))]
