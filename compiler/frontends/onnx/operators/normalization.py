"""Normalizations: batch, instance, group, layer, RMS, Lp, local response, mean and variance; Dropout."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from tvm import tirx

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.elementwise import binary, elementwise, unary
from nnefc.frontends.onnx.operators.random import draw
from nnefc.frontends.onnx.operators.tensors import (
    cast,
    dtype_of,
    fail,
    has_input,
    input_at,
    known,
    normal_axis,
    optional_input,
    required_value,
    reshaped,
    scalar_type,
    shape_of,
    spell,
)
from nnefc.operators.normalization import (
    BatchNormalization,
    GroupNormalization,
    LocalResponse,
    RootMeanSquare,
    Standardization,
)
from nnefc.operators.random import Dropout
from nnefc.operators.reduction import Mean, Norm

__all__: list[str] = []


def _channelwise(ctx: Context, x: Value, vector: Value) -> Value:
    """A vector of channels, aligned to broadcast with `[N, C, …]`."""
    return reshaped(ctx, vector, (1, math.prod(shape_of(vector)), *[1] * (len(shape_of(x)) - 2)))


def _work(dtype: str) -> str:
    return "float32" if dtype in ("float16", "bfloat16") else dtype


def _inverse_root(ctx: Context, variance: Value, epsilon: float) -> Value:
    """`1 / sqrt(variance + epsilon)`."""

    def item(v: Any) -> Any:
        one = tirx.const(1, scalar_type(v))
        return one / tirx.sqrt(v + tirx.const(epsilon, scalar_type(v)))

    return elementwise(ctx, item, variance, name="inverse_root")


@operator("BatchNormalization", since=(1, 6, 7, 9, 14, 15))
def _batch_normalization(ctx: Context, node: Node) -> Any:
    x, scale, bias, average, variance = (input_at(node, i) for i in range(5))
    shape, epsilon = shape_of(x), node.attributes["epsilon"]
    if len(shape) < 2 or any(shape_of(v) != (shape[1],) for v in (scale, bias, average, variance)):
        raise fail(node, f"the vectors do not have one item per channel of {spell(shape)}")
    if _trains(node):
        return _training_normalization(ctx, node, x, scale, bias, average, variance)
    vectors = (average, variance, scale, bias)
    return ctx.apply(BatchNormalization(epsilon), x, *(_channelwise(ctx, x, vector) for vector in vectors))


def _trains(node: Node) -> bool:
    if node.version >= 14:
        return bool(node.attributes.get("training_mode"))
    return node.version < 7 and not node.attributes.get("is_test", 0) and node.wants(1)


def _training_normalization(
    ctx: Context, node: Node, x: Value, scale: Value, bias: Value, average: Value, variance: Value
) -> list[Value]:
    shape, work = shape_of(x), _work(dtype_of(x))
    wide = cast(ctx, x, work)
    mean = Mean(tuple(axis for axis in range(len(shape)) if axis != 1), keepdims=True)
    m = ctx.apply(mean, wide)
    centred = binary(ctx, "Sub", wide, m)
    v = ctx.apply(mean, binary(ctx, "Mul", centred, centred))
    s, b = (_channelwise(ctx, x, cast(ctx, value, work)) for value in (scale, bias))
    factor = binary(ctx, "Mul", _inverse_root(ctx, v, node.attributes["epsilon"]), s)
    y = cast(ctx, binary(ctx, "Add", binary(ctx, "Mul", centred, factor), b), dtype_of(x))
    momentum = node.attributes["momentum"]
    results = [y]
    for running, current in ((average, m), (variance, v)):
        flat = cast(ctx, reshaped(ctx, current, (shape[1],)), dtype_of(running))
        results.append(_mixed(ctx, running, flat, momentum))
    for current in (m, v):
        results.append(reshaped(ctx, current, (shape[1],)))
    return results[: max(1, len(node.outputs))]


def _mixed(ctx: Context, old: Value, new: Value, momentum: float) -> Value:
    def item(a: Any, b: Any) -> Any:
        return a * tirx.const(momentum, scalar_type(a)) + b * tirx.const(1 - momentum, scalar_type(b))

    return elementwise(ctx, item, old, new, name="running")


@operator("InstanceNormalization", since=(1, 6, 22))
def _instance_normalization(ctx: Context, node: Node) -> Any:
    x, scale, bias = (input_at(node, i) for i in range(3))
    axes = tuple(range(2, len(shape_of(x))))
    parameters = (_channelwise(ctx, x, vector) for vector in (scale, bias))
    return ctx.apply(Standardization(axes, node.attributes["epsilon"]), x, *parameters)


@operator("GroupNormalization", since=(18, 21))
def _group_normalization(ctx: Context, node: Node) -> Any:
    """Version 18 has scales and biases per group, version 21 per channel."""
    x, scale, bias = (input_at(node, i) for i in range(3))
    return ctx.apply(GroupNormalization(node.attributes["num_groups"], node.attributes["epsilon"]), x, scale, bias)


@operator("LayerNormalization", since=(17,))
def _layer_normalization(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    axis = normal_axis(node, node.attributes["axis"], len(shape_of(x)))
    standardization = Standardization(
        tuple(range(axis, len(shape_of(x)))), node.attributes["epsilon"], node.wants(1) or node.wants(2)
    )
    return ctx.apply(standardization, x, input_at(node, 1), optional_input(node, 2))


@operator("RMSNormalization", since=(23,))
def _rms_normalization(ctx: Context, node: Node) -> Any:
    x, scale = input_at(node, 0), input_at(node, 1)
    axis = normal_axis(node, node.attributes["axis"], len(shape_of(x)))
    normal = ctx.apply(RootMeanSquare(tuple(range(axis, len(shape_of(x)))), node.attributes["epsilon"]), x)
    return binary(ctx, "Mul", cast(ctx, normal, dtype_of(scale)), scale)


@operator("MeanVarianceNormalization", since=(9, 13))
def _mean_variance_normalization(ctx: Context, node: Node) -> Value:
    x = input_at(node, 0)
    axes = sorted(normal_axis(node, axis, len(shape_of(x))) for axis in node.attributes["axes"])
    mean = Mean(tuple(axes), keepdims=True)
    work = cast(ctx, x, _work(dtype_of(x)))
    centred = binary(ctx, "Sub", work, ctx.apply(mean, work))
    deviation = unary(ctx, "Sqrt", ctx.apply(mean, binary(ctx, "Mul", centred, centred)))
    floor = known(ctx, np.array(1e-9).astype(dtype_of(work)))
    return cast(ctx, binary(ctx, "Div", centred, binary(ctx, "Add", deviation, floor)), dtype_of(x))


@operator("LpNormalization", since=(1, 22))
def _lp_normalization(ctx: Context, node: Node) -> Value:
    x, p = input_at(node, 0), node.attributes["p"]
    if p not in (1, 2):
        raise fail(node, f"'p' is {p}, neither 1 nor 2")
    axis = normal_axis(node, node.attributes["axis"], len(shape_of(x)))
    norm = ctx.apply(Norm((axis,), keepdims=True, order=p), x)

    def divide(a: Any, b: Any) -> Any:
        zero = tirx.const(0, scalar_type(b))
        return tirx.Select(b == zero, zero, a / tirx.Select(b == zero, tirx.const(1, scalar_type(b)), b))

    return elementwise(ctx, divide, x, norm, name="lp_normalize")


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
    """Nothing is dropped in inference. In training each item is, with the chance `ratio`; the others are scaled up."""
    x = input_at(node, 0)
    if has_input(node, 2) and required_value(ctx, node, 2, "training_mode").reshape(())[()]:
        rate = float(required_value(ctx, node, 1, "ratio").reshape(())[()]) if has_input(node, 1) else 0.5
        if rate:
            key, runs = draw(ctx, node)
            made: list[Value] = ctx.apply(Dropout(key, rate), x, runs)
            return made
    mask = np.ones(shape_of(x), np.bool_ if node.version >= 10 else dtype_of(x))
    return [x, known(ctx, mask)] if node.wants(1) else x
