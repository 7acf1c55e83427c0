"""Recurrent layers over sequences, single steps of them, and SVDF; their states are variables of the model."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from nnefc.frontends.tflite.lowering import FLOATS, Lowering, Node, Operand, Result, Value, operator
from nnefc.frontends.tflite.operators.quantized_recurrent import lower_integer_lstm, lower_integer_svdf
from nnefc.frontends.tflite.quantized import activation_name, fully_activated, single
from nnefc.operators.base import shape_of
from nnefc.operators.math.casting import BitCast, Cast
from nnefc.operators.math.elementwise import apply
from nnefc.operators.math.matrix import MatMul, transposed
from nnefc.operators.math.reduction import Sum
from nnefc.operators.nn.dynamic_quantization import RowQuantization
from nnefc.operators.nn.quantization import Dequantization, QuantizedTensor, quantized_product
from nnefc.operators.nn.recurrent import Activation, Lstm, Recurrence, RecurrentWeights, Rnn
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.shape import Reshape, Slice, Transpose
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []

_More: TypeAlias = tuple[Operand, int] | None
"""Further inputs of a layer, and the first input that is a matrix for them."""

_FUNCTIONS = {"TANH": "tanh", "RELU": "relu", "NONE": "affine"}


def _function(node: Node) -> Activation:
    name = activation_name(node)
    if name == "RELU6":
        return Activation("relu", clip=6.0)
    if name not in _FUNCTIONS:
        raise CompileError(f"the fused activation {name} is not supported")
    return Activation(_FUNCTIONS[name], 1.0, 0.0)


def _weights(ctx: Lowering, node: Node, index: int) -> Operand | None:
    """Weights as reals: quantized ones stand for these."""
    value = node.optional(index)
    if value is None:
        return None
    w = ctx.tensor(value)
    if value.dtype == "float16":
        return ctx.bound(Cast("float32").lower(ctx, w))
    if value.dtype in ("int8", "uint8", "int4"):
        given = node.quantization(index)
        axis = None if given.is_single else given.axis
        shape = () if given.is_single else (-1,)
        w, zero = (w, given.zero) if value.dtype != "uint8" else (ctx.apply(BitCast("int8"), w), given.zero * 0)
        made: Operand = ctx.apply(
            Dequantization(axis), w, given.scale.reshape(shape), zero.astype(np.int32).reshape(shape)
        )
        return made
    return w


def _quantization(node: Node) -> RowQuantization:
    """How reals are quantized that are multiplied with integer weights."""
    return RowQuantization(bool(getattr(node.options, "asymmetric_quantize_inputs", False)))


def _matrix(ctx: Lowering, node: Node, *indices: int) -> Operand | QuantizedTensor | None:
    """Matrices of weights, transposed and joined; with integers where all have them. None where all are left out.

    Bytes are signed, and have no zero point: old files declare them as uint8. In place of one that is left out there
    are zeros.
    """
    given = [index for index in indices if node.optional(index) is not None]
    if not given:
        return None
    is_hybrid = all(node.dtype(index) in ("int8", "uint8") and node.quantization(index).is_single for index in given)
    parts, scales = [], []
    for index in indices:
        if index not in given:
            parts.append(np.zeros(node.shape(given[0]), np.int8 if is_hybrid else np.float32))
            scales.append(np.float32(1))
        elif is_hybrid:
            w = node.operand(index)
            parts.append(ctx.apply(BitCast("int8"), w) if node.dtype(index) == "uint8" else w)
            scales.append(single(node.quantization(index))[0])
        else:
            parts.append(_needed(ctx, node, index))
            scales.append(np.float32(1))
    columns = [ctx.bound(transposed(ctx, part)) for part in parts]
    joined: Operand = columns[0] if len(columns) == 1 else ctx.apply(Concat(1), *columns)
    if not is_hybrid:
        return joined
    size = node.shape(given[0])[0]
    return QuantizedTensor(joined, np.repeat(np.array(scales, np.float32), size), np.zeros((), np.int8))


def _needed(ctx: Lowering, node: Node, index: int) -> Operand:
    found = _weights(ctx, node, index)
    if found is None:
        raise CompileError(f"input {index} is missing")
    return found


def _time_first(ctx: Lowering, node: Node, x: Operand) -> Operand:
    """`[T, B, I]`."""
    if node.options.time_major:
        return x
    made: Operand = ctx.apply(Transpose((1, 0, 2)), x)
    return made


_GATES = (0, 3, 1, 2)
"""The gates i, f, c, o of the file in the library's order i, o, f, c."""


def _gates(ctx: Lowering, node: Node, first: int) -> Operand | None:
    """The four vectors from an index on, joined in the library's order, zeros in place of one that is left out."""
    parts = [_weights(ctx, node, first + k) for k in _GATES]
    like = next((part for part in parts if part is not None), None)
    if like is None:
        return None
    filled = [np.zeros(shape_of(like), np.float32) if part is None else part for part in parts]
    made: Operand = ctx.apply(Concat(0), *filled)
    return made


def _lstm(
    ctx: Lowering, node: Node, x: Operand, base: int, states: tuple[int, int], backwards: bool = False,
    more: _More = None,
) -> tuple[Operand, list[Operand]]:  # fmt: skip
    """The hidden states `[T, B, O]` of a layer whose weights begin at input `base`, and its last states.

    Args:
        more: further inputs, and the first input that is a matrix for them.
    """
    options = node.options
    coupled = "i" if node.optional(base) is None else ""
    peepholes = [_weights(ctx, node, base + 8 + k) for k in (0, 2, 1)]
    peephole: Operand | None = None
    if peepholes[1] is not None:
        size = shape_of(peepholes[1])
        filled = [np.zeros(size, np.float32) if part is None else part for part in peepholes]
        peephole = ctx.apply(Concat(0), *filled)
    inputs, hidden = (_matrix(ctx, node, *(first + k for k in _GATES)) for first in (base, base + 4))
    if inputs is None or hidden is None:
        raise CompileError("the weights of a gate are missing")
    if more is not None:
        other = _matrix(ctx, node, *(more[1] + k for k in _GATES))
        x, inputs = _joined(ctx, (x, more[0]), (inputs, other))
    gains = _gates(ctx, node, _GAINS) if states == (18, 19) else None
    weights = RecurrentWeights(
        inputs, hidden, _gates(ctx, node, base + 11), None, peephole, _matrix(ctx, node, base + 15),
        _weights(ctx, node, base + 16), gains,
    )  # fmt: skip
    gate, function = Activation("sigmoid"), _function(node)
    clips = (value if value > 0 else None for value in (options.cell_clip, options.proj_clip))
    cell = Lstm(gate, function, function, coupled, *clips)
    layer = Recurrence(cell, backwards, quantization=_quantization(node))
    before = [node.operand(index) for index in states]
    made, *after = layer.lower(ctx, x, weights, before)
    for index, state in zip(states, after, strict=True):
        node.mutated[index] = Value(ctx.bound(state), "float32")
    return ctx.bound(made), after


_GAINS = 20
"""The first input by which normalized sums of gates are multiplied; layers of two directions have none."""


_INTEGER_LIMITS = "cells of 8 bits"
_AUXILIARY = "auxiliary inputs with integer weights"


def _one_way(ctx: Lowering, node: Node, x: Operand) -> Operand:
    """The hidden states of a layer in one direction, `[T, B, O]`."""
    return lower_integer_lstm(ctx, node, x) if node.dtype(0) == "int8" else _lstm(ctx, node, x, 1, (18, 19))[0]


@operator("UNIDIRECTIONAL_SEQUENCE_LSTM", types=(*FLOATS, "int8"), limits=_INTEGER_LIMITS)
def _sequence_lstm(ctx: Lowering, node: Node) -> Result:
    made = _one_way(ctx, node, _time_first(ctx, node, node.operand(0)))
    return made if node.options.time_major else ctx.apply(Transpose((1, 0, 2)), made)


@operator("LSTM", types=(*FLOATS, "int8"), limits=f"basic kernels, {_INTEGER_LIMITS}")
def _single_lstm(ctx: Lowering, node: Node) -> Result:
    if node.options.kernel_type:
        raise CompileError("the basic kernel is not supported")
    x = node.operand(0)
    made = _one_way(ctx, node, ctx.reshaped(x, (1, *shape_of(x))))
    return ctx.reshaped(made, shape_of(made)[1:])


@operator("BIDIRECTIONAL_SEQUENCE_LSTM", types=FLOATS, limits=_AUXILIARY)
def _both_lstm(ctx: Lowering, node: Node) -> Result:
    x, back, more = _inputs(ctx, node, 39, (40, 44), 1)
    forward, _ = _lstm(ctx, node, x, 1, (35, 36), more=more[0])
    backward, _ = _lstm(ctx, node, back, 18, (37, 38), backwards=True, more=more[1])
    return _both(ctx, node, forward, backward)


def _inputs(
    ctx: Lowering, node: Node, auxiliary: int, weights: tuple[int, int], gate: int
) -> tuple[Operand, Operand, tuple[_More, _More]]:
    """The inputs of both directions, and what is given to both further, with where its weights begin.

    An auxiliary input without weights of its own is the input of the second direction.

    Args:
        gate: the index, from the first of `weights` on, of those that say whether there are any.
    """
    x = _time_first(ctx, node, node.operand(0))
    if node.optional(auxiliary) is None:
        return x, x, (None, None)
    other = _time_first(ctx, node, node.operand(auxiliary))
    if node.optional(weights[0] + gate) is None:
        return x, other, (None, None)
    return x, x, ((other, weights[0]), (other, weights[1]))


def _joined(
    ctx: Lowering, inputs: tuple[Operand, Operand], weights: tuple[Operand | QuantizedTensor | None, ...]
) -> tuple[Operand, Operand]:
    """Inputs `[T, B, …]` next to each other, and their matrices one below the other."""
    if any(w is None or isinstance(w, QuantizedTensor) for w in weights):
        raise CompileError("auxiliary inputs with integer weights are not supported")
    return ctx.apply(Concat(2), *inputs), ctx.apply(Concat(0), *weights)


def _both(ctx: Lowering, node: Node, forward: Operand, backward: Operand) -> Result:
    made: list[Operand] = [forward, backward]
    if node.options.merge_outputs:
        made = [ctx.apply(Concat(2), forward, backward)]
    return made if node.options.time_major else [ctx.apply(Transpose((1, 0, 2)), each) for each in made]


def _rnn(
    ctx: Lowering, node: Node, x: Operand, base: int, state: int, backwards: bool = False, more: _More = None
) -> Operand:
    w, r, bias = _matrix(ctx, node, base), _matrix(ctx, node, base + 1), _needed(ctx, node, base + 2)
    if w is None or r is None:
        raise CompileError("the weights of the layer are missing")
    if more is not None:
        x, w = _joined(ctx, (x, more[0]), (w, _matrix(ctx, node, more[1])))
    layer = Recurrence(Rnn(_function(node)), backwards, quantization=_quantization(node))
    made, after = layer.lower(ctx, x, RecurrentWeights(w, r, bias), [node.operand(state)])
    node.mutated[state] = Value(ctx.bound(after), "float32")
    return ctx.bound(made)


@operator("RNN", types=FLOATS)
def _single_rnn(ctx: Lowering, node: Node) -> Result:
    x = node.operand(0)
    made = _rnn(ctx, node, ctx.reshaped(x, (1, *shape_of(x))), 1, 4)
    return ctx.reshaped(made, shape_of(made)[1:])


@operator("UNIDIRECTIONAL_SEQUENCE_RNN", types=FLOATS)
def _sequence_rnn(ctx: Lowering, node: Node) -> Result:
    made = _rnn(ctx, node, _time_first(ctx, node, node.operand(0)), 1, 4)
    return made if node.options.time_major else ctx.apply(Transpose((1, 0, 2)), made)


@operator("BIDIRECTIONAL_SEQUENCE_RNN", types=FLOATS, limits=_AUXILIARY)
def _both_rnn(ctx: Lowering, node: Node) -> Result:
    x, back, more = _inputs(ctx, node, 9, (10, 11), 0)
    forward, backward = _rnn(ctx, node, x, 1, 4, more=more[0]), _rnn(ctx, node, back, 5, 8, True, more[1])
    return _both(ctx, node, forward, backward)


@operator("SVDF", types=(*FLOATS, "int8"))
def _svdf(ctx: Lowering, node: Node) -> Result:
    """Lower SVDF: filters of features, then of the last steps in time (Nakkiran et al., 2015); ranks are summed."""
    if node.dtype(0) == "int8":
        return lower_integer_svdf(ctx, node)
    x, feature, over_time = node.operand(0), _matrix(ctx, node, 1), _needed(ctx, node, 2)
    if feature is None:
        raise CompileError("the weights of the layer are missing")
    filters, memory = shape_of(over_time)
    batch, rank = shape_of(x)[0], node.options.rank
    if rank < 1 or filters % rank:
        raise CompileError(f"a rank of {rank} does not divide {filters} filters")
    if isinstance(feature, QuantizedTensor):
        product = quantized_product(ctx, QuantizedTensor(*ctx.apply(_quantization(node), x)), feature)
    else:
        product = ctx.apply(MatMul(), x, feature)
    now = ctx.apply(Reshape((batch, filters, 1)), product)
    kept = ctx.apply(Reshape((batch, filters, memory)), node.operand(4))
    state = ctx.apply(Concat(2), ctx.apply(Slice({2: (1, memory - 1, 1)}), kept), now) if memory > 1 else now
    node.mutated[4] = Value(ctx.apply(Reshape(shape_of(node.operand(4))), state), "float32")
    sums = ctx.apply(Sum((2,)), apply(ctx, "multiply", state, over_time))
    made: Any = ctx.apply(Sum((2,)), ctx.apply(Reshape((batch, filters // rank, rank)), sums))
    bias = node.optional_operand(3)
    return fully_activated(ctx, node, made if bias is None else apply(ctx, "add", made, bias))
