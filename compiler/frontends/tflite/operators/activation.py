"""Activations: of reals by the library's operators, of integers by tables that are computed at compile time."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from nnefc.frontends.tflite.lowering import BYTES, FLOATS, QUANTIZED, REALS, Lowering, Node, Result, operator
from nnefc.frontends.tflite.quantized import nearest, rescaled, single
from nnefc.operators.base import Array, Operator, rank_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Clip, Elementwise, Where, apply
from nnefc.operators.nn.activation import (
    Elu,
    Gelu,
    HardSwish,
    LeakyRelu,
    ParametricRelu,
    Relu,
    Softmax,
)
from nnefc.operators.nn.fixed_point import IntegerTable, fixed_point_of, scaled_integers
from nnefc.operators.nn.fixed_point_functions import (
    InterpolatedSoftmax,
    TableSoftmax,
    hard_swish_table,
    real_table,
    sigmoid_table,
    tanh_table,
)
from nnefc.operators.nn.quantization import RANGES
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []


def _erf(x: Array) -> Array:
    import math

    made: Array = np.vectorize(math.erf, otypes=[np.float64])(x)
    return made


def _gelu(approximate: bool) -> Callable[[Array], Array]:
    if approximate:
        return lambda x: 0.5 * x * (1 + np.tanh(0.7978845608 * (x + 0.044715 * x * x * x)))
    return lambda x: 0.5 * x * (1 + _erf(x.astype(np.float64) * 0.7071067811865476))


_REAL_TABLES: Mapping[str, Callable[[Array], Array]] = {
    "TANH": lambda x: np.tanh(x),
    "LOGISTIC": lambda x: np.float32(1) / (np.float32(1) + np.exp(-x)),
    "ELU": lambda x: np.where(x < 0, np.expm1(x), x),
    "EXP": np.exp,
}


def by_table(ctx: Lowering, node: Node, table: Array) -> Result:
    """The entries of a table for the elements of the first input."""
    return ctx.pointwise(lambda x: ctx.apply(IntegerTable(), x, table), node.operand(0))


def table_of_reals(node: Node, function: Callable[[Array], Array]) -> Array:
    """The table of a function of reals of 8 or 16 bits."""
    return real_table(node.dtype(0), single(node.quantization(0)), single(node.result()), function)


def _declare(name: str, made: Operator, types: tuple[str, ...]) -> None:
    @operator(name, types=types)
    def _activation(ctx: Lowering, node: Node) -> Result:
        if node.dtype(0) in REALS:
            return ctx.pointwise(lambda x: made.lower(ctx, x), node.operand(0))
        if node.dtype(0) == "int16" and name in ("TANH", "LOGISTIC"):
            of_scale = tanh_table if name == "TANH" else sigmoid_table
            return by_table(ctx, node, of_scale(single(node.quantization(0))[0]))
        return by_table(ctx, node, table_of_reals(node, _REAL_TABLES[name]))


_declare("TANH", Elementwise("tanh"), (*REALS, *QUANTIZED))
_declare("LOGISTIC", Elementwise("sigmoid"), (*REALS, *QUANTIZED))
_declare("ELU", Elu(), (*FLOATS, "int8"))
_declare("EXP", Elementwise("exp"), (*FLOATS, "int8", "int16"))


@operator("LOG", types=(*FLOATS, "int8", "int16"))
def _log(ctx: Lowering, node: Node) -> Result:
    """Of quantized numbers that are not positive, the smallest that the result can stand for."""
    if node.dtype(0) in FLOATS:
        return ctx.pointwise(lambda x: Elementwise("log").lower(ctx, x), node.operand(0))
    out, point = single(node.result())
    lowest = out * np.float32(RANGES[node.dtype(0)][0] - point)
    return by_table(ctx, node, table_of_reals(node, lambda x: np.where(x <= 0, lowest, np.log(x))))


@operator("GELU", types=(*REALS, *QUANTIZED))
def _gelu_(ctx: Lowering, node: Node) -> Result:
    if node.dtype(0) not in REALS:
        return by_table(ctx, node, table_of_reals(node, _gelu(node.options.approximate)))
    return ctx.pointwise(lambda x: Gelu(node.options.approximate).lower(ctx, x), node.operand(0))


@operator("HARD_SWISH", types=(*FLOATS, *BYTES))
def _hard_swish(ctx: Lowering, node: Node) -> Result:
    if node.dtype(0) not in REALS:
        ends = single(node.quantization(0)), single(node.result())
        return by_table(ctx, node, hard_swish_table(node.dtype(0), *ends))
    return ctx.pointwise(lambda x: HardSwish().lower(ctx, x), node.operand(0))


# Clips: integers are scaled to the result in fixed point, then clipped to the limits.

_CLIPS: Mapping[str, tuple[float, float | None]] = {
    "RELU": (0.0, None),
    "RELU6": (0.0, 6.0),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU_0_TO_1": (0.0, 1.0),
}


@operator(*_CLIPS, types=(*FLOATS, *QUANTIZED))
def _clip(ctx: Lowering, node: Node) -> Result:
    low, high = _CLIPS[node.name]
    if node.dtype(0) in REALS:
        if high is None:
            return ctx.pointwise(lambda x: Relu().lower(ctx, x), node.operand(0))
        ends = [np.array(end, np.float32) for end in (low, high)]
        return ctx.pointwise(lambda x: Clip().lower(ctx, x, *ends), node.operand(0))
    (scale, zero), (out, point) = single(node.quantization(0)), single(node.result())
    lower, upper = RANGES[node.dtype(0)]
    lower = max(lower, point + int(nearest(np.float32(low) / out)))
    upper = upper if high is None else min(upper, point + int(nearest(np.float32(high) / out)))
    made = ctx.pointwise(
        lambda x: rescaled(ctx, x, float(scale / out), node.dtype(0), -zero, point, (lower, upper)), node.operand(0)
    )
    return made


@operator("LEAKY_RELU", types=(*FLOATS, *QUANTIZED))
def _leaky_relu(ctx: Lowering, node: Node) -> Result:
    alpha = np.float32(node.options.alpha)
    if node.dtype(0) in REALS:
        return ctx.pointwise(lambda x: LeakyRelu(float(alpha)).lower(ctx, x), node.operand(0))
    (scale, zero), (out, point) = single(node.quantization(0)), single(node.result())
    low, high = RANGES[node.dtype(0)]
    x = np.arange(low, high + 1, dtype=np.int64) - zero
    factor = float(scale * alpha / out)
    falling = scaled_integers(x, *fixed_point_of(abs(factor))) * (1 if factor >= 0 else -1)
    made = np.where(x >= 0, scaled_integers(x, *fixed_point_of(float(scale / out))), falling)
    return by_table(ctx, node, np.clip(made + point, low, high).astype(node.dtype(0)))


@operator("PRELU", types=(*FLOATS, *QUANTIZED))
def _prelu(ctx: Lowering, node: Node) -> Result:
    x, alpha = node.operand(0), node.operand(1)
    if node.dtype(0) in REALS:
        alpha = ctx.reshaped(alpha, (1,) * (rank_of(x) - rank_of(alpha)) + tuple(node.shape(1)))
        return ctx.pointwise(lambda x, alpha: ParametricRelu().lower(ctx, x, alpha), x, alpha)
    (scale, zero), (slope, slope_zero), (out, point) = (
        single(q) for q in (node.quantization(0), node.quantization(1), node.result())
    )

    def made(x: Result, alpha: Result) -> Result:
        centred = apply(ctx, "subtract", ctx.apply(Cast("int32"), x), np.array(zero, np.int32))
        product = apply(
            ctx,
            "multiply",
            centred,
            apply(ctx, "subtract", ctx.apply(Cast("int32"), alpha), np.array(slope_zero, np.int32)),
        )
        sizes = (255, 1 << 16) if node.dtype(0) in BYTES else (None, None)
        kept = rescaled(ctx, centred, float(scale / out), node.dtype(0), zero=point, size=sizes[0])
        falling = rescaled(ctx, product, float(scale * slope / out), node.dtype(0), zero=point, size=sizes[1])
        positive = apply(ctx, "greater_equal", centred, np.array(0, np.int32))
        return Where().lower(ctx, positive, kept, falling)

    return ctx.pointwise(made, x, alpha)


# Softmax along the last dimension.


@operator("SOFTMAX", types=(*REALS, *QUANTIZED))
def _softmax(ctx: Lowering, node: Node) -> Result:
    x, beta = node.operand(0), node.options.beta
    if not node.rank(0):
        raise CompileError("the softmax of a scalar is not defined")
    if node.dtype(0) not in REALS:
        (out, point), scale = single(node.result()), single(node.quantization(0))[0]
        if node.dtype(0) == "int16":
            return ctx.apply(InterpolatedSoftmax(float(scale * np.float32(beta))), x)
        return ctx.apply(TableSoftmax(float(scale * np.float32(beta)), float(out), point, node.outputs[0].dtype), x)
    if beta != 1:
        x = apply(ctx, "multiply", x, ctx.number(beta, x))
    return Softmax((rank_of(x) - 1,)).lower(ctx, x)


@operator("LOG_SOFTMAX", types=FLOATS)
def _log_softmax(ctx: Lowering, node: Node) -> Result:
    return Softmax((node.rank(0) - 1,), logarithm=True).lower(ctx, node.operand(0))
