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
def _fully_connected(at: Lowering, node: Node) -> Result:
    if node.options.weights_format:
        raise CompileError("shuffled weights are not supported")
    w = real_weights(at, node, 1)
    shape = node.shape(0)
    if rank_of(w) != 2:
        raise CompileError(f"the weights have the shape {list(shape_of(w))}")
    outputs, depth = shape_of(w)
    rows = math.prod(shape) // depth
    target = (*shape[:-1], outputs) if node.options.keep_num_dims else (rows, outputs)
    x = at.reshaped(node.operand(0), (rows, depth))
    bias = node.optional_operand(2)
    columns = at.bound(transposed(at, w))
    if is_hybrid(node):
        elements, scale, zero = hybrid_input(at, node, x, node.options.asymmetric_quantize_inputs)
        sums = at.apply(IntegerProduct(), elements, columns, zero, _weights_zero(node, dtype_of(w)))
        made = fully_activated(at, node, scaled_back(at, node, sums, scale, bias))
        return at.reshaped(made, target)
    refuse_activation(node, "RELU", "RELU_N1_TO_1", "RELU6")
    if node.dtype(0) == "float32":
        made = at.apply(MatMul(), x, columns)
        made = activated(at, node, made if bias is None else apply(at, "add", made, bias))
    else:
        made = _quantized(at, node, x, columns, bias)
    return at.reshaped(made, target)


def _weights_zero(node: Node, dtype: str) -> np.ndarray | None:
    zero = node.quantization(1).zero
    return zero.astype(dtype).reshape(() if zero.size == 1 else (1, -1)) if zero.any() else None


def _quantized(at: Lowering, node: Node, x: Operand, w: Operand, bias: Operand | None) -> Operand:
    if node.dtype(0) == "int16":
        wide = "int32" if bias is not None and dtype_of(bias) == "int32" else "int64"
        sums = at.apply(MatMul(), at.apply(Cast(wide), x), at.apply(Cast(wide), w))
    else:
        zero = zero_of(node.quantization(0), node.dtype(0))
        sums = at.apply(IntegerProduct(), x, w, zero, _weights_zero(node, dtype_of(w)))
    size = largest_sum(node, shape_of(w)[0], bias) if node.dtype(0) in BYTES else None
    return requantized(at, node, sums, bias, rank=2, size=size)


@operator("BATCH_MATMUL", types=("float32", "int8", "int16", "int32"))
def _batch_matmul(at: Lowering, node: Node) -> Result:
    a, b = node.operands()
    a = at.bound(transposed(at, a)) if node.options.adj_x else a
    b = at.bound(transposed(at, b)) if node.options.adj_y else b
    if is_hybrid(node):
        flat = at.reshaped(a, (math.prod(shape_of(a)[:-1]), shape_of(a)[-1]))
        elements, scale, zero = hybrid_input(at, node, flat, node.options.asymmetric_quantize_inputs)
        rows = (*shape_of(a)[:-1], 1)
        given = None if zero is None else at.reshaped(zero, rows)
        sums = at.apply(IntegerProduct(), at.reshaped(elements, shape_of(a)), b, given)
        factor = apply(at, "multiply", at.reshaped(scale, rows), single(node.quantization(1))[0].reshape(()))
        return apply(at, "multiply", at.apply(Cast("float32"), sums), factor)
    if not node.is_quantized():
        return at.apply(MatMul(), a, b)
    (one, zero_a), (other, zero_b), (out, zero) = (
        single(q) for q in (node.quantization(0), node.quantization(1), node.result())
    )
    if node.dtype(0) == "int16":
        sums = at.apply(MatMul(), at.apply(Cast("int64"), a), at.apply(Cast("int64"), b))
    else:
        zeros = (np.array(zero_a, node.dtype(0)), np.array(zero_b, node.dtype(1)))
        sums = at.apply(IntegerProduct(), a, b, *zeros)
    factor = float(one * other) / float(out)
    return rescaled(at, sums, factor, node.outputs[0].dtype, zero=zero, ends=quantized_limits(node))
