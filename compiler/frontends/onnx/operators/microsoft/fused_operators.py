"""Operators that onnxruntime's optimizer fuses from standard ones: activations, products, convolutions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnefc.frontends.onnx.checks.extensions import DOMAIN
from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.convolution import convolve
from nnefc.frontends.onnx.operators.elementwise import binary
from nnefc.frontends.onnx.operators.tensors import (
    channels_first,
    channels_last,
    fail,
    input_at,
    known,
    normal_axis,
    optional_input,
)
from nnefc.operators.base import Operator
from nnefc.operators.math.elementwise import Clip, Elementwise
from nnefc.operators.math.matrix import Gemm
from nnefc.operators.nn import activation
from nnefc.operators.tensor.concatenation import Split
from nnefc.operators.tensor.shape import Transpose

__all__ = ["activated"]

_ACTIVATIONS: dict[str, Callable[..., Operator]] = {
    "Elu": lambda alpha=1.0: activation.Elu(alpha),
    "HardSigmoid": lambda alpha=0.2, beta=0.5: activation.HardSigmoid(alpha, beta),
    "HardSwish": activation.HardSwish,
    "LeakyRelu": lambda alpha=0.01: activation.LeakyRelu(alpha),
    "Relu": activation.Relu,
    "Sigmoid": lambda: Elementwise("sigmoid"),
    "Softplus": activation.Softplus,
    "Softsign": activation.Softsign,
    "Tanh": lambda: Elementwise("tanh"),
    "ThresholdedRelu": lambda alpha=1.0: activation.ThresholdedRelu(alpha, keeps_nan=False),
}
"""Activations as functions of their parameters, in order."""


def activated(ctx: Context, node: Node, x: Value, parameters: Sequence[float]) -> Value:
    """A result after the activation that a node names, if it names one."""
    name = node.attributes.get("activation") or ""
    made: Value
    if not name:
        return x
    if name == "Clip":
        bounds = (known(ctx, np.array(bound, np.float32).astype(x.dtype)) for bound in parameters)
        made = ctx.apply(Clip(), x, *bounds)
        return made
    if name not in _ACTIVATIONS:
        raise fail(node, f"the activation '{name}' is not supported")
    made = ctx.apply(_ACTIVATIONS[name](*parameters), x)
    return made


def _factors(node: Node) -> list[float]:
    """The parameters of an activation that are given by name."""
    names = ("activation_alpha", "activation_beta", "activation_gamma")
    return [node.attributes[name] for name in names if name in node.attributes]


# Activations of sums.


@operator("Gelu", since=(1,), domain=DOMAIN)
@operator("FastGelu", since=(1,), domain=DOMAIN)
@operator("BiasGelu", since=(1,), domain=DOMAIN)
def _gelu(ctx: Context, node: Node) -> Any:
    x, bias = input_at(node, 0), optional_input(node, 1)
    total = x if bias is None else binary(ctx, "Add", x, bias)
    return ctx.apply(activation.Gelu(approximate=node.op_type == "FastGelu"), total)


@operator("QuickGelu", since=(1,), domain=DOMAIN)
def _quick_gelu(ctx: Context, node: Node) -> Any:
    return ctx.apply(activation.Silu(node.attributes["alpha"]), input_at(node, 0))


@operator("BiasSplitGelu", since=(1,), domain=DOMAIN)
def _bias_split_gelu(ctx: Context, node: Node) -> Value:
    """The left half times the activation of the right one."""
    total = binary(ctx, "Add", input_at(node, 0), input_at(node, 1))
    half = total.shape[-1] // 2
    left, right = ctx.apply(Split(total.rank - 1, (half, half)), total)
    return binary(ctx, "Mul", left, ctx.apply(activation.Gelu(), right))


@operator("BiasAdd", since=(1,), domain=DOMAIN)
def _bias_add(ctx: Context, node: Node) -> Value:
    return binary(ctx, "Add", *(input_at(node, i) for i in range(3)))


@operator("BiasSoftmax", since=(1,), domain=DOMAIN)
def _bias_softmax(ctx: Context, node: Node) -> Any:
    """The softmax over all axes from one on."""
    total = binary(ctx, "Add", input_at(node, 0), input_at(node, 1))
    axes = tuple(range(normal_axis(node, node.attributes["axis"], total.rank), total.rank))
    return ctx.apply(activation.Softmax(axes), total)


@operator("BiasDropout", since=(1,), domain=DOMAIN)
def _bias_dropout(ctx: Context, node: Node) -> Any:
    total, residual = binary(ctx, "Add", input_at(node, 0), input_at(node, 1)), optional_input(node, 2)
    seed = {"seed": node.attributes["seed"]} if "seed" in node.attributes else {}
    options = (optional_input(node, 3), optional_input(node, 4))
    made, *mask = ctx.call("Dropout", total, *options, outputs=1 + node.wants(1), **seed)
    assert isinstance(made, Value)
    return [made if residual is None else binary(ctx, "Add", made, residual), *mask]


# Products.


@operator("FusedMatMul", since=(1,), domain=DOMAIN)
@operator("TransposeMatMul", since=(1,), domain=DOMAIN)
@operator("FusedMatMulActivation", since=(1,), domain=DOMAIN)
def _fused_matmul(ctx: Context, node: Node) -> Value:
    """`alpha · A · B`, of which each may be transposed in its last two axes; a vector has nothing to transpose."""
    given = node.attributes
    a, b = (_batch_first(ctx, node, input_at(node, i), f"transBatch{'AB'[i]}") for i in range(2))
    gemm = Gemm(given["alpha"], 1.0, bool(given["transA"]), bool(given["transB"]))
    return activated(ctx, node, ctx.apply(gemm, a, b), _factors(node))


def _batch_first(ctx: Context, node: Node, x: Value, flag: str) -> Value:
    """Move the first axis, that of rows, behind the batch axes, if the node's `flag` is set."""
    if not node.attributes.get(flag) or x.rank < 3:
        return x
    made: Value = ctx.apply(Transpose((*range(1, x.rank - 1), 0, x.rank - 1)), x)
    return made


@operator("FusedGemm", since=(1,), domain=DOMAIN)
def _fused_gemm(ctx: Context, node: Node) -> Value:
    given = node.attributes
    gemm = Gemm(given["alpha"], given["beta"], bool(given["transA"]), bool(given["transB"]))
    made = ctx.apply(gemm, input_at(node, 0), input_at(node, 1), optional_input(node, 2))
    return activated(ctx, node, made, _factors(node))


@operator("GemmFastGelu", since=(1,), domain=DOMAIN)
def _gemm_fast_gelu(ctx: Context, node: Node) -> Any:
    product = ctx.apply(Gemm(), input_at(node, 0), input_at(node, 1), optional_input(node, 2))
    return ctx.apply(activation.Gelu(approximate=True), product)


# Convolutions.


@operator("FusedConv", since=(1,), domain=DOMAIN)
def _fused_conv(ctx: Context, node: Node) -> Value:
    return _convolved(ctx, node, input_at(node, 0), optional_input(node, 3))


@operator("NhwcConv", since=(1,), domain=DOMAIN)
@operator("NhwcFusedConv", since=(1,), domain=DOMAIN)
def _nhwc_conv(ctx: Context, node: Node) -> Value:
    """Channels come last in the tensors, not in the filter."""
    added = optional_input(node, 3)
    added = None if added is None else channels_first(ctx, added)
    return channels_last(ctx, _convolved(ctx, node, channels_first(ctx, input_at(node, 0)), added))


def _convolved(ctx: Context, node: Node, x: Value, added: Value | None) -> Value:
    made = convolve(ctx, node, x, input_at(node, 1), optional_input(node, 2))
    made = made if added is None else binary(ctx, "Add", made, added)
    return activated(ctx, node, made, node.attributes.get("activation_params") or ())
