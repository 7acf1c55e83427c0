"""Matrix products: fully connected layers and batches of products; real, quantized, and with quantized weights."""

from __future__ import annotations

import math

import numpy as np

from nnefc.frontends.tflite.lowering import BYTES, Lowering, Node, Operand, Result, operator
from nnefc.frontends.tflite.operators.weights import (
    hybrid_input,
    is_hybrid,
    largest_sum,
    real_weights,
    requantized,
    scaled_back,
    weights_zero,
)
from nnefc.frontends.tflite.quantized import (
    activated,
    fully_activated,
    quantized_limits,
    refuse_activation,
    rescaled,
    single,
    zero_of,
)
from nnefc.operators.base import dtype_of, rank_of, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import apply
from nnefc.operators.math.matrix import MatMul, transposed
from nnefc.operators.nn.quantization import IntegerProduct
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []


@operator("FULLY_CONNECTED", types=("float32", "int8", "uint8", "int16"), limits="weights in the default format")
def _fully_connected(ctx: Lowering, node: Node) -> Result:
    if node.options.weights_format:
        raise CompileError("shuffled weights are not supported")
    w = real_weights(ctx, node, 1)
    shape = node.shape(0)
    if rank_of(w) != 2:
        raise CompileError(f"the weights have the shape {list(shape_of(w))}")
    outputs, depth = shape_of(w)
    rows = math.prod(shape) // depth
    target = (*shape[:-1], outputs) if node.options.keep_num_dims else (rows, outputs)
    x = ctx.reshaped(node.operand(0), (rows, depth))
    bias = node.optional_operand(2)
    columns = ctx.bound(transposed(ctx, w))
    if is_hybrid(node):
        elements, scale, zero = hybrid_input(ctx, node, x, node.options.asymmetric_quantize_inputs)
        sums = ctx.apply(IntegerProduct(), elements, columns, zero, _weights_zero(node, dtype_of(w)))
        made = fully_activated(ctx, node, scaled_back(ctx, node, sums, scale, bias))
        return ctx.reshaped(made, target)
    refuse_activation(node, "RELU", "RELU_N1_TO_1", "RELU6")
    if node.dtype(0) == "float32":
        made = ctx.apply(MatMul(), x, columns)
        made = activated(ctx, node, made if bias is None else apply(ctx, "add", made, bias))
    else:
        made = _quantized(ctx, node, x, columns, bias)
    return ctx.reshaped(made, target)


def _weights_zero(node: Node, dtype: str) -> np.ndarray | None:
    zero = weights_zero(node)
    return zero.astype(dtype).reshape(() if zero.size == 1 else (1, -1)) if zero.any() else None


def _quantized(ctx: Lowering, node: Node, x: Operand, w: Operand, bias: Operand | None) -> Operand:
    if node.dtype(0) == "int16":
        wide = "int32" if bias is not None and dtype_of(bias) == "int32" else "int64"
        sums = ctx.apply(MatMul(), ctx.apply(Cast(wide), x), ctx.apply(Cast(wide), w))
    else:
        zero = zero_of(node.quantization(0), node.dtype(0))
        sums = ctx.apply(IntegerProduct(), x, w, zero, _weights_zero(node, dtype_of(w)))
    size = largest_sum(node, shape_of(w)[0], bias) if node.dtype(0) in BYTES else None
    return requantized(ctx, node, sums, bias, rank=2, size=size, exact=node.dtype(1) != "int16")


@operator("BATCH_MATMUL", types=("float32", "int8", "int16", "int32"))
def _batch_matmul(ctx: Lowering, node: Node) -> Result:
    a, b = node.operands()
    a = ctx.bound(transposed(ctx, a)) if node.options.adj_x else a
    b = ctx.bound(transposed(ctx, b)) if node.options.adj_y else b
    if is_hybrid(node):
        flat = ctx.reshaped(a, (math.prod(shape_of(a)[:-1]), shape_of(a)[-1]))
        elements, scale, zero = hybrid_input(ctx, node, flat, node.options.asymmetric_quantize_inputs)
        rows = (*shape_of(a)[:-1], 1)
        given = None if zero is None else ctx.reshaped(zero, rows)
        sums = ctx.apply(IntegerProduct(), ctx.reshaped(elements, shape_of(a)), b, given)
        weights_scale = np.asarray(single(node.quantization(1))[0])
        factor = apply(ctx, "multiply", ctx.reshaped(scale, rows), weights_scale)
        return apply(ctx, "multiply", ctx.apply(Cast("float32"), sums), factor)
    if not node.is_quantized():
        return ctx.apply(MatMul(), a, b)
    if node.outputs[0].dtype == "int32":  # the sums of products themselves
        return ctx.apply(IntegerProduct(), a, b)
    (one, zero_a), (other, zero_b), (out, zero) = (
        single(q) for q in (node.quantization(0), node.quantization(1), node.result())
    )
    if node.dtype(0) == "int16":
        sums = ctx.apply(MatMul(), ctx.apply(Cast("int64"), a), ctx.apply(Cast("int64"), b))
    else:
        zeros = (np.array(zero_a, node.dtype(0)), np.array(zero_b, node.dtype(1)))
        sums = ctx.apply(IntegerProduct(), a, b, *zeros)
    factor = float(one * other) / float(out)
    return rescaled(ctx, sums, factor, node.outputs[0].dtype, zero=zero, ends=quantized_limits(node))
