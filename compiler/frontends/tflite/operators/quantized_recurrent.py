"""Integer LSTMs and SVDF: scales and zero points as factors and biases of the library's layers."""

from __future__ import annotations

import math

import numpy as np

from nnefc.frontends.tflite.lowering import Lowering, Node, Operand, Value
from nnefc.frontends.tflite.model import Quantization
from nnefc.frontends.tflite.quantized import activation_name, rescaled, single, zero_of
from nnefc.operators.base import Array, shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import apply
from nnefc.operators.math.matrix import transposed
from nnefc.operators.math.reduction import Sum
from nnefc.operators.nn.fixed_point_gates import MAX_INTEGER_BITS
from nnefc.operators.nn.fixed_point_normalization import GateNormalization
from nnefc.operators.nn.integer_recurrent import Factored, IntegerGate, IntegerLstm, IntegerProjection
from nnefc.operators.nn.quantization import IntegerProduct
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.shape import Reshape, Slice
from nnefc.support.diagnostics import CompileError

__all__ = ["lower_integer_lstm", "lower_integer_svdf"]

_GATE_SCALE = np.float32(2.0**-12)
_HIDDEN, _CELL, _GAINS = 18, 19, 20
"""Inputs that are the states, and the first by which normalized sums of gates are multiplied."""


def lower_integer_lstm(ctx: Lowering, node: Node, x: Operand) -> Operand:
    """The hidden states `[T, B, O]` of a layer with 16-bit cells; its states change.

    Raises:
        CompileError: it has cells of 8 bits, or a scale that its kernels do not have.
    """
    if len(node.intermediates) != 5:
        raise CompileError(
            f"an integer layer of {len(node.intermediates)} intermediate tensors is not supported: 5 are"
        )
    if activation_name(node) != "TANH":
        raise CompileError("an integer layer has another activation than tanh")
    intermediate = node.intermediates[4].quantization
    if intermediate is None:
        raise CompileError("the last intermediate tensor has no scale")
    result_scale, zero = single(intermediate)
    gates = [_gate(node, k) for k in range(4)]
    if any(gate is None for gate in gates[1:]):
        raise CompileError("weights of a gate are missing")
    if len({gate.normalization is None for gate in gates if gate is not None}) > 1:
        raise CompileError("the sums of some gates are normalized, those of others are not")
    exponent = _exponent(node)
    layer = IntegerLstm(
        tuple(gates),  # type: ignore[arg-type]
        exponent,
        float(np.float32(2.0**-15 / np.float64(result_scale) * 2.0**-15)),
        zero,
        _projection(node, result_scale, zero),
        _clip(node, "cell_clip", np.float32(2.0**exponent), 1 << 15),
    )
    made, hidden, cell = layer.lower(ctx, x, node.operand(_HIDDEN), node.operand(_CELL))
    node.mutated[_HIDDEN] = Value(ctx.bound(hidden), "int8", node.quantization(_HIDDEN))
    node.mutated[_CELL] = Value(ctx.bound(cell), "int16", node.quantization(_CELL))
    return ctx.bound(made)


def _exponent(node: Node) -> int:
    """The scale of the cells as a power of two."""
    scale, zero = single(node.quantization(_CELL))
    exponent = round(math.log2(scale)) if scale > 0 else 0
    if abs(math.log2(scale or 1) - exponent) > 1e-3 or zero or not -15 <= exponent <= MAX_INTEGER_BITS - 15:
        raise CompileError(f"cells of the scale {scale} and the zero point {zero} are not supported")
    return exponent


def _clip(node: Node, name: str, scale: np.float32, limit: int) -> int:
    """A limit of the options in steps of a scale; 0: there is none."""
    value = getattr(node.options, name, 0.0)
    return int(min(np.float32(value) / scale, np.float32(limit - 1))) if value > 0 else 0


def _gate(node: Node, number: int) -> IntegerGate | None:
    """The gate i, f, g or o; None where its weights are left out, as those of i may be."""
    if node.optional(1 + number) is None:
        return None
    (scale, zero), (hidden_scale, hidden_zero) = (single(node.quantization(k)) for k in (0, _HIDDEN))
    normalization, result = _normalization(node, number), _GATE_SCALE
    bias: int | None = 12 + number
    if normalization is not None:
        intermediate = node.intermediates[number].quantization
        if intermediate is None:
            raise CompileError("an intermediate tensor has no scale")
        result, bias = single(intermediate)[0], None
    inputs = _factored(node, 1 + number, bias, -zero, scale, result)
    hidden = _factored(node, 5 + number, None, -hidden_zero, hidden_scale, result)
    index = {0: 9, 1: 10, 3: 11}.get(number)
    if index is None or node.optional(index) is None:
        return IntegerGate(inputs, hidden, None, normalization)
    cell_scale = np.float32(2.0 ** _exponent(node))
    factor = float(cell_scale * single(node.quantization(index))[0] / result)
    return IntegerGate(inputs, hidden, (node.constant(index, "a peephole"), factor), normalization)


def _normalization(node: Node, number: int) -> GateNormalization | None:
    """That of a gate's sums, where the layer has one."""
    index = _GAINS + number
    if node.optional(index) is None:
        return None
    weights, bias = node.constant(index, "the gains"), node.constant(12 + number, "a bias")
    if weights.dtype != np.int16 or bias.dtype != np.int32:
        raise CompileError(f"gains of {weights.dtype} with a bias of {bias.dtype} are not supported")
    scale = single(node.quantization(index))[0]
    return GateNormalization(weights, bias, float(scale), max(1, int(np.float32(10000) * scale)))


def _factored(node: Node, index: int, bias: int | None, zero: int, scale: np.float32, result: np.float32) -> Factored:
    """Weights with the bias that their zero points make; `zero` is added to what they are multiplied with."""
    matrix = node.constant(index, "a matrix of weights")
    quantization: Quantization = node.quantization(index)
    own, point = single(quantization)
    if matrix.dtype != np.int8 or matrix.ndim != 2 or point:
        raise CompileError(
            f"weights {list(matrix.shape)} of {matrix.dtype} with the zero point {point} are not supported"
        )
    added: Array = matrix.astype(np.int64).sum(1) * zero
    if bias is not None and node.optional(bias) is not None:
        added = added + node.constant(bias, "a bias").astype(np.int64)
    if result == 0:
        raise CompileError("the scale of the result is 0")
    return Factored(matrix, added.astype(np.int32), float(own * scale / result))


def _projection(node: Node, scale: np.float32, zero: int) -> IntegerProjection | None:
    if node.optional(16) is None:
        return None
    result, result_zero = single(node.quantization(_HIDDEN))
    weights = _factored(node, 16, 17, -zero, scale, result)
    return IntegerProjection(weights, result_zero, _clip(node, "proj_clip", single(node.result())[0], 1 << 7))


def lower_integer_svdf(ctx: Lowering, node: Node) -> Operand:
    """Filters of a feature in 8 bits, then over the last steps in 16; ranks are summed in int32.

    Raises:
        CompileError: its types or its activation are none that LiteRT's kernels have.
    """
    if [node.dtype(k) for k in (1, 2, 4)] != ["int8", "int16", "int16"]:
        raise CompileError(f"filters of {node.dtype(1)} and {node.dtype(2)} are not supported: int8 and int16 are")
    if activation_name(node) not in ("NONE", "RELU"):
        raise CompileError(f"the fused activation {activation_name(node)} is not supported")
    scales = [single(node.quantization(k))[0] for k in (0, 1, 2, 4)]
    out, point = single(node.result())
    if not scales[3] or not out:
        raise CompileError("a scale is 0")
    x, feature, over_time = node.operand(0), node.operand(1), node.operand(2)
    filters, memory = shape_of(over_time)
    batch, rank = shape_of(x)[0], node.options.rank
    if rank < 1 or filters % rank:
        raise CompileError(f"a rank of {rank} does not divide {filters} filters")
    zero = zero_of(node.quantization(0), "int8")
    products = ctx.apply(IntegerProduct(), x, ctx.bound(transposed(ctx, feature)), zero)
    now = rescaled(ctx, products, float(scales[1] * scales[0] / scales[3]), "int16")
    now = ctx.apply(Reshape((batch, filters, 1)), now)
    kept = ctx.apply(Reshape((batch, filters, memory)), node.operand(4))
    state = ctx.apply(Concat(2), ctx.apply(Slice({2: (1, memory - 1, 1)}), kept), now) if memory > 1 else now
    node.mutated[4] = Value(ctx.apply(Reshape(shape_of(node.operand(4))), state), "int16", node.quantization(4))
    terms = apply(ctx, "multiply", *(ctx.apply(Cast("int32"), part) for part in (state, over_time)))
    sums = ctx.apply(Reshape((batch, filters // rank, rank * memory)), terms)
    made: Operand = ctx.apply(Sum((2,)), sums)
    bias = node.optional_operand(3)
    made = made if bias is None else apply(ctx, "add", made, bias)
    return rescaled(ctx, made, float(scales[3] * scales[2] / out), node.outputs[0].dtype, zero=point)
