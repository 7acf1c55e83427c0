"""Recurrent layers over sequences, single steps of them, and SVDF; their states are variables of the model."""

from __future__ import annotations

from typing import Any

import numpy as np

from nnefc.frontends.tflite.lowering import FLOATS, Lowering, Node, Operand, Result, Value, operator
from nnefc.frontends.tflite.operators.quantized_recurrent import lower_integer_lstm, lower_integer_svdf
from nnefc.frontends.tflite.quantized import activation_name, fully_activated
from nnefc.operators.base import shape_of
from nnefc.operators.math.casting import Cast
from nnefc.operators.math.elementwise import apply
from nnefc.operators.math.matrix import MatMul, transposed
from nnefc.operators.math.reduction import Sum
from nnefc.operators.nn.quantization import Dequantization
from nnefc.operators.nn.recurrent import Activation, Lstm, Recurrence, RecurrentWeights, Rnn
from nnefc.operators.tensor.shape import Concat, Reshape, Slice, Transpose
from nnefc.support.diagnostics import CompileError

__all__: list[str] = []

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
        made: Operand = ctx.apply(
            Dequantization(axis), w, given.scale.reshape(shape), given.zero.astype(np.int32).reshape(shape)
        )
        return made
    return w


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


def _gates(ctx: Lowering, node: Node, first: int, axis: int) -> Operand | None:
    """The four tensors from an index on, transposed and joined in the library's order; without the input gate's
    weights, which a coupled layer lacks, zeros.
    """
    parts = [_weights(ctx, node, first + k) for k in _GATES]
    if all(part is None for part in parts):
        return None
    like = next(part for part in parts if part is not None)
    filled = [np.zeros(shape_of(like), np.float32) if part is None else part for part in parts]
    if axis == 1:
        filled = [ctx.bound(transposed(ctx, part)) for part in filled]
    made: Operand = ctx.apply(Concat(axis), *filled)
    return made


def _lstm(
    ctx: Lowering, node: Node, x: Operand, base: int, states: tuple[int, int], backwards: bool = False
) -> tuple[Operand, list[Operand]]:
    """The hidden states `[T, B, O]` of a layer whose weights begin at input `base`, and its last states."""
    options = node.options
    coupled = node.optional(base) is None
    peepholes = [_weights(ctx, node, base + 8 + k) for k in (0, 2, 1)]
    peephole: Operand | None = None
    if peepholes[1] is not None:
        size = shape_of(peepholes[1])
        filled = [np.zeros(size, np.float32) if part is None else part for part in peepholes]
        peephole = ctx.apply(Concat(0), *filled)
    projection = _weights(ctx, node, base + 15)
    if _weights(ctx, node, base + 16) is not None:
        raise CompileError("the bias of a projection is not supported")
    inputs, hidden = _gates(ctx, node, base, 1), _gates(ctx, node, base + 4, 1)
    assert inputs is not None and hidden is not None
    weights = RecurrentWeights(
        inputs, hidden, _gates(ctx, node, base + 11, 0), None, peephole,
        None if projection is None else ctx.bound(transposed(ctx, projection)),
    )  # fmt: skip
    gate, function = Activation("sigmoid"), _function(node)
    clips = (value if value > 0 else None for value in (options.cell_clip, options.proj_clip))
    layer = Recurrence(Lstm(gate, function, function, coupled, *clips), backwards)
    before = [node.operand(index) for index in states]
    made, *after = layer.lower(ctx, x, weights, before)
    for index, state in zip(states, after, strict=True):
        node.mutated[index] = Value(ctx.bound(state), "float32")
    return ctx.bound(made), after


def _check_layers(node: Node, first: int, last: int) -> None:
    if any(value is not None for value in node.inputs[first:last]):
        raise CompileError("layer normalization in the cells is not supported")


_INTEGER_LIMITS = "layer normalization, cells of 8 bits"


def _one_way(ctx: Lowering, node: Node, x: Operand) -> Operand:
    """The hidden states of a layer in one direction, `[T, B, O]`."""
    _check_layers(node, 20, 24)
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


@operator("BIDIRECTIONAL_SEQUENCE_LSTM", types=FLOATS, limits="auxiliary inputs")
def _both_lstm(ctx: Lowering, node: Node) -> Result:
    if any(value is not None for value in node.inputs[39:]):
        raise CompileError("auxiliary inputs are not supported")
    x = _time_first(ctx, node, node.operand(0))
    forward, _ = _lstm(ctx, node, x, 1, (35, 36))
    backward, _ = _lstm(ctx, node, x, 18, (37, 38), backwards=True)
    return _both(ctx, node, forward, backward)


def _both(ctx: Lowering, node: Node, forward: Operand, backward: Operand) -> Result:
    made: list[Operand] = [forward, backward]
    if node.options.merge_outputs:
        made = [ctx.apply(Concat(2), forward, backward)]
    return made if node.options.time_major else [ctx.apply(Transpose((1, 0, 2)), each) for each in made]


def _rnn(ctx: Lowering, node: Node, x: Operand, base: int, state: int, backwards: bool = False) -> Operand:
    w, r, bias = (_needed(ctx, node, base + k) for k in range(3))
    weights = RecurrentWeights(ctx.bound(transposed(ctx, w)), ctx.bound(transposed(ctx, r)), bias)
    made, after = Recurrence(Rnn(_function(node)), backwards).lower(ctx, x, weights, [node.operand(state)])
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


@operator("BIDIRECTIONAL_SEQUENCE_RNN", types=FLOATS, limits="auxiliary inputs")
def _both_rnn(ctx: Lowering, node: Node) -> Result:
    if any(value is not None for value in node.inputs[9:]):
        raise CompileError("auxiliary inputs are not supported")
    x = _time_first(ctx, node, node.operand(0))
    return _both(ctx, node, _rnn(ctx, node, x, 1, 4), _rnn(ctx, node, x, 5, 8, backwards=True))


@operator("SVDF", types=(*FLOATS, "int8"))
def _svdf(ctx: Lowering, node: Node) -> Result:
    """Lower SVDF: filters of features, then of the last steps in time (Nakkiran et al., 2015); ranks are summed."""
    if node.dtype(0) == "int8":
        return lower_integer_svdf(ctx, node)
    x, feature, over_time = node.operand(0), _needed(ctx, node, 1), _needed(ctx, node, 2)
    filters, memory = shape_of(over_time)
    batch, rank = shape_of(x)[0], node.options.rank
    if rank < 1 or filters % rank:
        raise CompileError(f"a rank of {rank} does not divide {filters} filters")
    now = ctx.apply(Reshape((batch, filters, 1)), ctx.apply(MatMul(), x, ctx.bound(transposed(ctx, feature))))
    kept = ctx.apply(Reshape((batch, filters, memory)), node.operand(4))
    state = ctx.apply(Concat(2), ctx.apply(Slice({2: (1, memory - 1, 1)}), kept), now) if memory > 1 else now
    node.mutated[4] = Value(ctx.apply(Reshape(shape_of(node.operand(4))), state), "float32")
    sums = ctx.apply(Sum((2,)), apply(ctx, "multiply", state, over_time))
    made: Any = ctx.apply(Sum((2,)), ctx.apply(Reshape((batch, filters // rank, rank)), sums))
    bias = node.optional_operand(3)
    return fully_activated(ctx, node, made if bias is None else apply(ctx, "add", made, bias))
