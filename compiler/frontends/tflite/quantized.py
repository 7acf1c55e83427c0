"""Parameters of quantized operators: limits of fused activations, factors between scales, and zero points."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nnefc.frontends.tflite.lowering import Lowering, Node, Operand
from nnefc.frontends.tflite.model import Quantization
from nnefc.frontends.tflite.schema import ACTIVATIONS
from nnefc.operators.base import Array, dtype_of, numpy_dtype
from nnefc.operators.math.casting import BitCast, Cast
from nnefc.operators.math.elementwise import Clip, Elementwise, apply
from nnefc.operators.nn.activation import Relu
from nnefc.operators.nn.fixed_point import FixedPointScaling, fixed_point_of
from nnefc.operators.nn.quantization import RANGES
from nnefc.support.diagnostics import CompileError

__all__ = [
    "activated",
    "activation_name",
    "fully_activated",
    "limits",
    "nearest",
    "quantized_limits",
    "refuse_activation",
    "rescaled",
    "single",
    "zero_of",
]

_LIMITS: dict[str, tuple[float | None, float | None]] = {
    "NONE": (None, None),
    "RELU": (0.0, None),
    "RELU_N1_TO_1": (-1.0, 1.0),
    "RELU6": (0.0, 6.0),
    # which the kernels that clip their results leave out, those of LiteRT and so those here
    "TANH": (None, None),
    "SIGN_BIT": (None, None),
}


def nearest(value: Any) -> Any:
    """The nearest integers, ties away from zero."""
    return np.trunc(value + np.copysign(0.5, value))


def activation_name(node: Node) -> str:
    """The activation that is fused into an operator.

    Raises:
        CompileError: there is no such activation.
    """
    number = getattr(node.options, "fused_activation_function", 0)
    if not 0 <= number < len(ACTIVATIONS):
        raise CompileError(f"the fused activation {number} is not known")
    return ACTIVATIONS[number]


def refuse_activation(node: Node, *allowed: str) -> None:
    """Refuse a fused activation that is neither `NONE` nor one of those allowed.

    Raises:
        CompileError: there is such an activation.
    """
    name = activation_name(node)
    if name not in ("NONE", *allowed):
        raise CompileError(f"the fused activation {name} is not supported")


def limits(node: Node) -> tuple[float | None, float | None]:
    """The limits of the fused activation."""
    return _LIMITS[activation_name(node)]


def activated(ctx: Lowering, node: Node, x: Operand) -> Operand:
    """The fused activation, where it is a clip, of a tensor of reals, or of integers that stand for themselves."""
    if activation_name(node) == "RELU" and dtype_of(x) == "float32":
        return ctx.bound(Relu().lower(ctx, x))
    low, high = (None if end is None else np.array(end, numpy_dtype(dtype_of(x))) for end in limits(node))
    return x if low is None and high is None else ctx.bound(Clip().lower(ctx, ctx.bound(x), low, high))


def fully_activated(ctx: Lowering, node: Node, x: Operand) -> Operand:
    """Any fused activation of float32: the sign bit becomes 0 or 1."""
    match activation_name(node):
        case "TANH":
            return ctx.bound(Elementwise("tanh").lower(ctx, x))
        case "SIGN_BIT":
            negative = apply(ctx, "less", ctx.apply(BitCast("int32"), x), np.array(0, np.int32))
            return ctx.apply(Cast("float32"), negative)
    return activated(ctx, node, x)


def single(quantization: Quantization) -> tuple[np.float32, int]:
    """The scale and the zero point of a tensor that has one of each.

    Raises:
        CompileError: it has several.
    """
    if not quantization.is_single:
        raise CompileError("a tensor with several scales is only supported as a constant of weights")
    return quantization.scale[0], int(quantization.zero[0])


def zero_of(quantization: Quantization, dtype: str) -> Array:
    """A zero point without axes, of an element type."""
    return np.array(single(quantization)[1], numpy_dtype(dtype))


def quantized_limits(node: Node, index: int = 0) -> tuple[int, int]:
    """The limits of a quantized result: those of its type, and those of the fused activation as integers."""
    low, high = RANGES[node.outputs[index].dtype]
    if limits(node) == (None, None):
        return low, high
    scale, zero = single(node.result(index))
    if scale == 0:
        raise CompileError("the scale of the result is 0")
    lower, upper = limits(node)
    if lower is not None:
        low = max(low, zero + int(nearest(np.float32(lower) / scale)))
    if upper is not None:
        high = min(high, zero + int(nearest(np.float32(upper) / scale)))
    return low, high


def rescaled(
    ctx: Lowering, x: Operand, factor: float, dtype: str, offset: int = 0, zero: int = 0,
    ends: tuple[int | None, int | None] = (None, None), left: int = 0, size: int | None = None,
) -> Operand:  # fmt: skip
    """`((x + offset) << left) · factor + zero` in fixed point, clipped to the ends.

    Args:
        size: the largest absolute value of an int32 `x`, where it is known.
    """
    if not math.isfinite(factor) or factor < 0:
        raise CompileError("a factor between scales is out of range")
    multiplier, shift = (np.array(part, np.int32) for part in fixed_point_of(factor))
    scaling = FixedPointScaling(dtype, offset, left, zero, *ends, size=size)
    made: Operand = ctx.apply(scaling, x, multiplier, shift)
    return made
