"""Quantization and dequantization, simulated quantization, and sparse tensors."""

from __future__ import annotations

import numpy as np

from nnefc.frontends.tflite.lowering import FLOATS, Lowering, Node, Result, operator
from nnefc.frontends.tflite.quantized import rescaled, single
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import Clip, Elementwise, apply
from nnefc.operators.nn.dynamic_quantization import AwayQuantization
from nnefc.operators.nn.quantization import Dequantization
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []


_OTHER_RESULTS = {("float32", "int4"), ("float32", "uint4"), ("int16", "int32")}
"""Pairs of an element type and a result that is not of 8 or 16 bits."""


@operator("QUANTIZE", types=("float32", "int8", "uint8", "int16", "int32"))
def _quantize(ctx: Lowering, node: Node) -> Result:
    dtype, out = node.outputs[0].dtype, node.result()
    if dtype not in ("int8", "uint8", "int16") and (node.dtype(0), dtype) not in _OTHER_RESULTS:
        raise CompileError(f"a result of {dtype} is not supported")
    if node.dtype(0) == "float32":
        if out.is_single:
            parts = out.scale.reshape(()), out.zero.astype(np.int32).reshape(())
            return ctx.pointwise(lambda x: AwayQuantization(dtype).lower(ctx, x, *parts), node.operand(0))
        return AwayQuantization(dtype, out.axis).lower(ctx, node.operand(0), out.scale, out.zero.astype(np.int32))
    (scale, zero), (other, point) = single(node.quantization(0)), single(out)
    factor = float(scale) / float(other)
    return ctx.pointwise(lambda x: rescaled(ctx, x, factor, dtype, -zero, point), node.operand(0))


@operator("DEQUANTIZE", types=("int8", "uint8", "int16", "int4", "uint4", "int2", "float16"))
def _dequantize(ctx: Lowering, node: Node) -> Result:
    x = node.operand(0)
    if node.dtype(0) == "float16":
        return ctx.apply(Cast("float32"), x)
    given = node.quantization(0)
    if given.is_single:
        scale, zero = given.scale.reshape(()), given.zero.astype(np.int32).reshape(())
        return ctx.pointwise(lambda x: Dequantization().lower(ctx, x, scale, zero), x)
    return Dequantization(given.axis).lower(ctx, x, given.scale, given.zero.astype(np.int32))


@operator("FAKE_QUANT", types=FLOATS)
def _fake_quant(ctx: Lowering, node: Node) -> Result:
    """Simulates reals as integers of a range in which zero is one of them."""
    options = node.options
    low, high = (1 if options.narrow_range else 0), (1 << options.num_bits) - 1
    if not 2 <= options.num_bits <= 16 or not options.min < options.max:
        raise CompileError(f"{options.num_bits} bits from {options.min} to {options.max} are no range")
    lower, upper = np.float32(options.min), np.float32(options.max)
    scale = (upper - lower) / np.float32(high - low)
    zero = np.float32(low) - lower / scale
    point = low if zero < low else high if zero > high else np.trunc(zero + np.copysign(0.5, zero))
    ends = [np.float32((end - point) * scale) for end in (low, high)]
    inverse, start = np.float32(1) / scale, ends[0]
    x = ctx.apply(Clip(), node.operand(0), *(np.array(end, np.float32) for end in ends))
    distance = apply(ctx, "multiply", apply(ctx, "subtract", x, np.array(start)), np.array(inverse))
    rounded = ctx.apply(Elementwise("floor"), apply(ctx, "add", distance, np.array(0.5, np.float32)))
    return apply(ctx, "add", apply(ctx, "multiply", rounded, np.array(scale)), np.array(start))


@operator("DENSIFY")
def _densify(ctx: Lowering, node: Node) -> Result:
    """Constants are spread out when they are read."""
    return node.constant(0, "the sparse tensor")
