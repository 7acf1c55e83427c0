"""Activations: Relu and its kin, in operators that passes keep in the layout of what they follow."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tvm import relax, tirx

from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.elementwise import binary, broadcast_shapes, elementwise, unary
from nnefc.frontends.onnx.operators.tensors import (
    dtype_of,
    fail,
    input_at,
    known,
    reshaped,
    scalar_type,
    shape_of,
    spell,
)
from nnefc.operators.activation import mish, softplus

__all__: list[str] = []


def _constant(x: Any, value: float) -> Any:
    return tirx.const(value, scalar_type(x))


def _like(ctx: Context, x: Value, value: float) -> Value:
    return known(ctx, np.array(value).astype(dtype_of(x)))


@operator("Relu", since=(1, 6, 13, 14))
def _relu(ctx: Context, node: Node) -> Value:
    x = input_at(node, 0)
    if dtype_of(x) == "float32":
        return ctx.emit(relax.op.nn.relu(ctx.expr(x)))
    return binary(ctx, "Max", x, _like(ctx, x, 0))


@operator("LeakyRelu", since=(1, 6, 16))
def _leaky_relu(ctx: Context, node: Node) -> Value:
    x, alpha = input_at(node, 0), node.attributes["alpha"]
    if dtype_of(x) == "float32":
        return ctx.emit(relax.op.nn.leakyrelu(ctx.expr(x), alpha))
    return elementwise(
        ctx, lambda v: tirx.Select(v < _constant(v, 0), v * _constant(v, alpha), v), x, name="leaky_relu"
    )


@operator("PRelu", since=(1, 6, 7, 9, 16))
def _prelu(ctx: Context, node: Node) -> Value:
    x, slope = input_at(node, 0), input_at(node, 1)
    if node.version < 7 and len(shape_of(slope)) == 1 and shape_of(slope) != (1,):
        slope = reshaped(ctx, slope, (*shape_of(slope), *[1] * (len(shape_of(x)) - 2)))
    if broadcast_shapes(shape_of(x), shape_of(slope)) != shape_of(x):
        raise fail(node, f"the slope {spell(shape_of(slope))} does not broadcast to {spell(shape_of(x))}")
    if dtype_of(x) != "float32":
        return elementwise(ctx, lambda v, s: tirx.Select(v < _constant(v, 0), v * s, v), x, slope, name="prelu")
    zero = _like(ctx, x, 0)
    below = binary(ctx, "Mul", binary(ctx, "Min", x, zero), slope)
    return binary(ctx, "Add", binary(ctx, "Max", x, zero), below)


@operator("HardSigmoid", since=(1, 6, 22))
def _hard_sigmoid(ctx: Context, node: Node) -> Value:
    x, alpha, beta = input_at(node, 0), node.attributes["alpha"], node.attributes["beta"]
    return _hard(ctx, x, alpha, beta)


def _hard(ctx: Context, x: Value, alpha: float, beta: float) -> Value:
    if dtype_of(x) == "float32":
        line = binary(ctx, "Add", binary(ctx, "Mul", x, _like(ctx, x, alpha)), _like(ctx, x, beta))
        return ctx.emit(relax.op.clip(ctx.expr(line), 0.0, 1.0))

    def item(v: Any) -> Any:
        line = v * _constant(v, alpha) + _constant(v, beta)
        return tirx.max(tirx.min(line, _constant(v, 1)), _constant(v, 0))

    return elementwise(ctx, item, x, name="hard_sigmoid")


@operator("HardSwish", since=(14, 22))
def _hard_swish(ctx: Context, node: Node) -> Value:
    x = input_at(node, 0)
    return binary(ctx, "Mul", x, _hard(ctx, x, 1 / 6, 0.5))


@operator("Swish", since=(24,))
def _swish(ctx: Context, node: Node) -> Value:
    x, alpha = input_at(node, 0), node.attributes["alpha"]
    inner = x if alpha == 1 else binary(ctx, "Mul", x, _like(ctx, x, alpha))
    return binary(ctx, "Mul", x, unary(ctx, "Sigmoid", inner))


@operator("Gelu", since=(20,))
def _gelu(ctx: Context, node: Node) -> Value:
    x, approximate = input_at(node, 0), node.attributes["approximate"]
    if approximate not in ("none", "tanh"):
        raise fail(node, f"does not know the approximation '{approximate}'")
    half, one = _like(ctx, x, 0.5), _like(ctx, x, 1)
    if approximate == "none":
        inner = unary(ctx, "Erf", binary(ctx, "Mul", x, _like(ctx, x, 0.5**0.5)))
    else:
        cube = binary(ctx, "Mul", binary(ctx, "Mul", x, x), binary(ctx, "Mul", x, _like(ctx, x, 0.044715)))
        scaled = binary(ctx, "Mul", binary(ctx, "Add", x, cube), _like(ctx, x, (2 / np.pi) ** 0.5))
        inner = unary(ctx, "Tanh", scaled)
    return binary(ctx, "Mul", binary(ctx, "Mul", x, half), binary(ctx, "Add", inner, one))


def _elu(v: Any, a: dict[str, Any]) -> Any:
    return tirx.Select(v < _constant(v, 0), (tirx.exp(v) - _constant(v, 1)) * _constant(v, a["alpha"]), v)


def _selu(v: Any, a: dict[str, Any]) -> Any:
    below = (tirx.exp(v) - _constant(v, 1)) * _constant(v, a["alpha"] * a["gamma"])
    return tirx.Select(v <= _constant(v, 0), below, v * _constant(v, a["gamma"]))


def _celu(v: Any, a: dict[str, Any]) -> Any:
    alpha = a["alpha"]
    below = (tirx.exp(v / _constant(v, alpha)) - _constant(v, 1)) * _constant(v, alpha)
    return tirx.Select(v < _constant(v, 0), below, v)


def _thresholded(v: Any, a: dict[str, Any]) -> Any:
    return tirx.Select(v > _constant(v, a["alpha"]), v, _constant(v, 0))


def _shrink(v: Any, a: dict[str, Any]) -> Any:
    bias, limit = _constant(v, a["bias"]), _constant(v, a["lambd"])
    inner = tirx.Select(v > limit, v - bias, _constant(v, 0))
    return tirx.Select(v < _constant(v, 0) - limit, v + bias, inner)


def _softsign(v: Any, _a: dict[str, Any]) -> Any:
    return v / (_constant(v, 1) + tirx.abs(v))


_FORMULAS: dict[str, tuple[Callable[[Any, dict[str, Any]], Any], tuple[int, ...]]] = {
    "Elu": (_elu, (1, 6, 22)),
    "Selu": (_selu, (1, 6, 22)),
    "Celu": (_celu, (12, 28)),
    "ThresholdedRelu": (_thresholded, (10, 22)),
    "Shrink": (_shrink, (9,)),
    "Softplus": (lambda v, _a: softplus(v), (1, 22)),
    "Softsign": (_softsign, (1, 22)),
    "Mish": (lambda v, _a: mish(v), (18, 22)),
}


def _lower_formula(ctx: Context, node: Node) -> Value:
    formula, attributes = _FORMULAS[node.op_type][0], dict(node.attributes)
    return elementwise(ctx, lambda v: formula(v, attributes), input_at(node, 0), name=node.op_type.lower())


for _name, (_, _since) in _FORMULAS.items():
    operator(_name, since=_since)(_lower_formula)
