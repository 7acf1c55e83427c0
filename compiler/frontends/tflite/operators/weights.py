"""Weights of convolutions and matrix products: sums in integers, and how they become results.

Quantized operators scale int32 sums in fixed point. Hybrid ones have real inputs and integer weights: each element of
the batch is quantized while the network runs, and the sums are scaled back to reals.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.tflite.lowering import Lowering, Node, Operand
from nnefc.frontends.tflite.quantized import quantized_limits, single
from nnefc.operators.base import Array, dtype_of, rank_of, shape_of
from nnefc.operators.math.casting import BitCast, Cast
from nnefc.operators.math.elementwise import apply
from nnefc.operators.nn.dynamic_quantization import RowQuantization
from nnefc.operators.nn.fixed_point import FixedPointScaling, fixed_points_of
from nnefc.support.diagnostics import CompileError
from nnefc.symbolic.dims import Dimension, is_known

__all__ = ["hybrid_input", "is_hybrid", "largest_sum", "real_weights", "requantized", "scaled_back", "weights_zero"]


def is_hybrid(node: Node, data: int = 0, weights: int = 1) -> bool:
    """Returns whether reals are multiplied with integer weights."""
    return node.dtype(data) == "float32" and node.is_quantized(weights)


def real_weights(ctx: Lowering, node: Node, index: int) -> Operand:
    """Weights as they are multiplied: float16 becomes float32; bytes of hybrid operators are signed."""
    w = node.operand(index)
    if node.dtype(index) == "uint8" and is_hybrid(node, weights=index):
        return ctx.apply(BitCast("int8"), w)
    return ctx.apply(Cast("float32"), w) if node.dtype(index) == "float16" else w


def weights_zero(node: Node) -> Array:
    """The zero points of weights; bytes of hybrid operators, which old files declare as uint8, have none."""
    zero: Array = node.quantization(1).zero
    return np.zeros_like(zero) if node.dtype(1) == "uint8" and is_hybrid(node) else zero


def largest_sum(node: Node, taps: Dimension, bias: Operand | None) -> int | None:
    """The largest absolute value that sums of so many products of bytes may have, with their bias; None if unknown."""
    if not is_known(taps) or not (bias is None or isinstance(bias, np.ndarray)):
        return None
    weight = 255 if node.dtype(1) == "uint8" or node.quantization(1).zero.any() else 128
    return taps * 255 * weight + (0 if bias is None else int(np.abs(bias.astype(np.int64)).max(initial=0)))


def requantized(
    ctx: Lowering, node: Node, sums: Operand, bias: Operand | None, rank: int, data: int = 0, channel: int = 1,
    size: int | None = None, exact: bool | None = None,
) -> Operand:  # fmt: skip
    """Sums `[N, C, …]` of products as the integers of the result.

    Args:
        bias: what is still to be added.
        rank: of the sums.
        data: which input the activations are; the weights are input 1.
        channel: the dimension of the sums that channels are along.
        size: the largest absolute value of the sums with their bias, where it is known.
        exact: whether they are rounded once; those of matrices are where it is not given.
    """
    output = node.outputs[0].dtype
    input_scale, out = single(node.quantization(data))[0], node.result()
    weights, (output_scale, zero) = node.quantization(1), single(out)
    if output_scale == 0:
        raise CompileError("the scale of the result is 0")
    shape = [1] * rank
    shape[channel] = -1
    if node.dtype(data) == "uint8" or (weights.is_single and rank == 2 and node.dtype(data) != "int16"):
        factors: Array = np.asarray((input_scale * weights.scale).astype(np.float64) / np.float64(output_scale))
    else:
        factors = np.asarray(np.float64(input_scale) * weights.scale.astype(np.float64) / np.float64(output_scale))
    if bias is not None:
        given = ctx.apply(Cast(dtype_of(sums)), bias)
        sums = apply(ctx, "add", sums, ctx.reshaped(given, tuple(shape_of(bias)[0] if s == -1 else 1 for s in shape)))
    factors = factors.reshape(() if weights.is_single else shape)
    low, high = quantized_limits(node)
    scaling = FixedPointScaling(
        output, zero=zero, low=low, high=high, exact=rank == 2 if exact is None else exact, size=size
    )
    made: Operand = ctx.apply(scaling, sums, *fixed_points_of(factors))
    return made


def hybrid_input(ctx: Lowering, node: Node, x: Operand, asymmetric: bool) -> tuple[Operand, Operand, Operand | None]:
    """The integers of each element of the batch, their scales `[N, 1, …]`, and their zero points."""
    elements, scale, zero = ctx.apply(RowQuantization(asymmetric), x)
    return elements, scale, zero if asymmetric else None


def scaled_back(
    ctx: Lowering, node: Node, sums: Operand, scale: Operand, bias: Operand | None, channel: int = 1
) -> Operand:
    """Sums in integers as reals, with the bias."""
    rank = rank_of(sums)
    shape = [1] * rank
    shape[channel] = -1
    weights: Array = node.quantization(1).scale
    weights = weights.reshape(() if weights.size == 1 else shape)
    made: Any = apply(ctx, "multiply", ctx.apply(Cast("float32"), sums), apply(ctx, "multiply", scale, weights))
    if bias is None:
        return made
    return apply(ctx, "add", made, ctx.reshaped(bias, tuple(shape_of(bias)[0] if s == -1 else 1 for s in shape)))
