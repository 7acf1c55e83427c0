"""Activations: Relu and related operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from nnefc.frontends.onnx.operator import Context, Node, operator
from nnefc.frontends.onnx.operators.tensors import fail, input_at, shape_of
from nnefc.operators.base import Operator
from nnefc.operators.nn import activation
from nnefc.operators.tensor.shape import Reshape

__all__: list[str] = []

_ACTIVATIONS: dict[str, tuple[Callable[[Mapping[str, Any]], Operator], tuple[int, ...]]] = {
    "Relu": (lambda a: activation.Relu(), (1, 6, 13, 14)),
    "LeakyRelu": (lambda a: activation.LeakyRelu(a["alpha"]), (1, 6, 16)),
    "HardSigmoid": (lambda a: activation.HardSigmoid(a["alpha"], a["beta"]), (1, 6, 22)),
    "HardSwish": (lambda a: activation.HardSwish(), (14, 22)),
    "Swish": (lambda a: activation.Silu(a["alpha"]), (24,)),
    "Elu": (lambda a: activation.Elu(a["alpha"]), (1, 6, 22)),
    "Selu": (lambda a: activation.Elu(a["alpha"], a["gamma"]), (1, 6, 22)),
    "Celu": (lambda a: activation.Celu(a["alpha"]), (12, 28)),
    "ThresholdedRelu": (lambda a: activation.ThresholdedRelu(a["alpha"], keeps_nan=False), (1, 10, 22)),
    "Shrink": (lambda a: activation.Shrink(a["bias"], a["lambd"], keeps_nan=False), (9,)),
    "Softplus": (lambda a: activation.Softplus(), (1, 22)),
    "Softsign": (lambda a: activation.Softsign(), (1, 22)),
    "Mish": (lambda a: activation.Mish(), (18, 22)),
}
"""Functions from the attributes of a node with one operand to its operator, and the versions they hold for."""


def _lower(ctx: Context, node: Node) -> Any:
    x = input_at(node, 0)
    return x if 0 in shape_of(x) else ctx.apply(_ACTIVATIONS[node.op_type][0](node.attributes), x)


for _name, (_, _since) in _ACTIVATIONS.items():
    operator(_name, since=_since)(_lower)


@operator("PRelu", since=(1, 6, 7, 9, 16))
def _prelu(ctx: Context, node: Node) -> Any:
    x, slope = input_at(node, 0), input_at(node, 1)
    if node.version < 7 and len(shape_of(slope)) == 1 and shape_of(slope) != (1,):
        slope = ctx.apply(Reshape((*shape_of(slope), *[1] * (len(shape_of(x)) - 2))), slope)
    elif len(shape_of(slope)) > len(shape_of(x)) and math.prod(shape_of(slope)) == 1:
        slope = ctx.apply(Reshape(()), slope)  # PyTorch exports a vector of one slope for scalars, too
    return ctx.apply(activation.ParametricRelu(), x, slope)


@operator("Gelu", since=(20,))
def _gelu(ctx: Context, node: Node) -> Any:
    approximate = node.attributes["approximate"]
    if approximate not in ("none", "tanh"):
        raise fail(node, f"there is no approximation '{approximate}'")
    return ctx.apply(activation.Gelu(approximate == "tanh"), input_at(node, 0))
