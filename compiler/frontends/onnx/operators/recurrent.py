"""Recurrent layers: RNN, GRU, LSTM, and onnxruntime's DynamicQuantizeLSTM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from nnefc.frontends.onnx.checks.extensions import DOMAIN
from nnefc.frontends.onnx.operator import Context, Node, Value, operator
from nnefc.frontends.onnx.operators.elementwise import binary
from nnefc.frontends.onnx.operators.tensors import (
    dtype_of,
    fail,
    input_at,
    known,
    optional_input,
    shape_of,
    spell,
)
from nnefc.operators.math.casting import Cast
from nnefc.operators.nn.quantization import DynamicQuantization, QuantizedTensor
from nnefc.operators.nn.recurrent import (
    ACTIVATIONS,
    Activation,
    BeforeTheEnd,
    Cell,
    Gru,
    Lstm,
    Recurrence,
    RecurrentWeights,
    Rnn,
)
from nnefc.operators.tensor.concatenation import Concat
from nnefc.operators.tensor.creation import Full
from nnefc.operators.tensor.shape import Reshape, Slice, Transpose
from nnefc.symbolic.arrays import of_elements
from nnefc.symbolic.dims import Dimension, may_exceed
from nnefc.symbolic.unification import unify_shapes

__all__: list[str] = []

_DEFAULTS: dict[str, tuple[float, ...]] = {
    "affine": (1, 0),
    "leakyrelu": (0.01,),
    "thresholdedrelu": (1,),
    "scaledtanh": (1, 1),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1,),
}
"""The defaults of alpha and beta, of activations that have parameters."""


def _activations(node: Node, defaults: Sequence[str], directions: int) -> list[list[Activation]]:
    """The activations of each direction; parameters are taken in order by those that have them."""
    names = [name.lower() for name in node.attributes.get("activations") or list(defaults) * directions]
    names = names[: len(defaults) * directions]  # RNN's default names one for each direction there might be
    if len(names) != len(defaults) * directions or any(name not in ACTIVATIONS for name in names):
        raise fail(node, f"the activations {names} are not known, or there are too few or too many of them")
    given = [iter(node.attributes.get(f"activation_{name}") or ()) for name in ("alpha", "beta")]
    made = []
    for index, name in enumerate(names):
        own = _DEFAULTS.get(name, ())
        alpha, beta = [*(next(values, default) for values, default in zip(given, own, strict=False)), 0.0, 0.0][:2]
        # What the hidden state of an LSTM is made with is the one function whose operand is not clipped.
        clip = None if index % len(defaults) == 2 else node.attributes.get("clip")
        made.append(Activation(name, alpha, beta, clip))
    return [made[i : i + len(defaults)] for i in range(0, len(made), len(defaults))]


def _rnn(_node: Node, f: Activation) -> Cell:
    return Rnn(f)


def _gru(node: Node, f: Activation, g: Activation) -> Cell:
    return Gru(f, g, bool(node.attributes.get("linear_before_reset")))


def _lstm(node: Node, f: Activation, g: Activation, h: Activation) -> Cell:
    return Lstm(f, g, h, "f" if node.attributes.get("input_forget") else "")


_CELLS: dict[str, tuple[Callable[..., Cell], tuple[str, ...]]] = {
    "RNN": (_rnn, ("Tanh",)),
    "GRU": (_gru, ("Sigmoid", "Tanh")),
    "LSTM": (_lstm, ("Sigmoid", "Tanh", "Tanh")),
}
"""The function that makes the cells of each direction, and the default activations."""


def _cells(node: Node) -> list[Cell]:
    """Returns the cell of each direction."""
    direction = node.attributes["direction"].replace("foward", "forward")  # the default of GRU's first version
    count = {"forward": 1, "reverse": 1, "bidirectional": 2}.get(direction)
    if count is None:
        raise fail(node, f"there is no direction '{direction}'")
    for index, name in enumerate("XWR"):
        shape = shape_of(input_at(node, index))
        if len(shape) != 3:
            raise fail(node, f"its input '{name}' must have the rank 3, its shape is {spell(shape)}")
    cell, defaults = _CELLS[node.op_type.removeprefix("DynamicQuantize")]
    return [cell(node, *functions) for functions in _activations(node, defaults, count)]


def _element(ctx: Context, x: Value, direction: int) -> Any:
    """Return the part of a tensor that belongs to a direction."""
    return ctx.apply(Reshape(shape_of(x)[1:]), ctx.apply(Slice({0: (direction, 1, 1)}), x))


def _fitting(node: Node, index: int, name: str, shape: tuple[int, ...]) -> Value | None:
    """An optional input that has this shape, if it is given."""
    value = optional_input(node, index)
    if value is not None and not unify_shapes(shape_of(value), shape):
        raise fail(node, f"its input '{name}' {spell(shape_of(value))} should be {spell(shape)}")
    return value


def _lengths(ctx: Context, node: Node, time: Dimension, batch: Dimension) -> Value | None:
    """Returns the lengths of sequences, `[B]` int32, clamped to the number of steps; None if all have full length."""
    lengths = _fitting(node, 4, "sequence_lens", (batch,))
    if lengths is None:
        return None
    array = ctx.constant(lengths)
    if array is not None and not any(may_exceed(time, int(length)) for length in array.flat):
        return None
    end = Value.of_sizes(of_elements([time], ()), "int32")
    below = binary(ctx, "Min", ctx.apply(Cast("int32"), lengths), end)
    return binary(ctx, "Max", below, known(ctx, np.array(0, np.int32)))


def _state(ctx: Context, node: Node, index: int, shape: tuple[int, ...], dtype: str) -> Any:
    """The states before the first step, `[D, B, H]`."""
    value = optional_input(node, index)
    if value is None:
        return ctx.apply(Full(shape, 0, dtype))
    value = ctx.apply(Transpose((1, 0, 2)), value) if node.attributes.get("layout") else value
    if not unify_shapes(shape_of(value), shape):
        raise fail(node, f"the first state {spell(shape_of(value))} should be {spell(shape)}")
    return ctx.apply(Cast(dtype), value)


def _lower(
    ctx: Context,
    node: Node,
    cells: Sequence[Cell],
    x: Value | QuantizedTensor,
    matrices: Sequence[tuple[Any, Any]],
    sizes: tuple[int, int, int],
    dtype: str = "float32",
    ended_is_zero: bool = False,
) -> list[Value]:
    """The results of a node with the inputs B, sequence_lens, initial_h, initial_c and P at LSTM's positions.

    Args:
        x: `[T, B, I]`.
        matrices: of each direction, `[I, G · H]` and `[H, G · H]`; both may be quantized.
        sizes: T, B, H.
        dtype: what is computed in.
        ended_is_zero: as of `Recurrence`.
    """
    time, batch, size = sizes
    count, states = len(cells), cells[0].states
    lengths = _lengths(ctx, node, time, batch)
    first = [_state(ctx, node, index, (count, batch, size), dtype) for index in (5, 6)[:states]]
    bias = _fitting(node, 3, "B", (count, 2 * cells[0].gates * size))
    peepholes = _fitting(node, 7, "P", (count, 3 * size)) if states == 2 else None
    bias, peepholes = (None if value is None else ctx.apply(Cast(dtype), value) for value in (bias, peepholes))
    parts: list[list[Value]] = []
    for d, (cell, pair) in enumerate(zip(cells, matrices, strict=True)):
        first_bias = second_bias = None
        if bias is not None:
            both, width = _element(ctx, bias, d), cell.gates * size
            first_bias, second_bias = (ctx.apply(Slice({0: (start, width, 1)}), both) for start in (0, width))
        peephole = None if peepholes is None else _element(ctx, peepholes, d)
        weights = RecurrentWeights(*pair, first_bias, second_bias, peephole)
        backwards = node.attributes["direction"] == "reverse" or d == 1
        own = [_element(ctx, state, d) for state in first]
        parts.append(ctx.apply(Recurrence(cell, backwards, ended_is_zero), x, weights, own, lengths))
    hidden = ctx.apply(Concat(1), *(ctx.apply(Reshape((time, 1, batch, size)), p[0]) for p in parts))
    last = [
        ctx.apply(Concat(0), *(ctx.apply(Reshape((1, batch, size)), state) for state in states))
        for states in list(zip(*parts, strict=True))[1:]
    ]
    if node.attributes.get("layout"):
        return [ctx.apply(Transpose((2, 0, 1, 3)), hidden), *(ctx.apply(Transpose((1, 0, 2)), state) for state in last)]
    return [hidden, *last]


def _recurrent(ctx: Context, node: Node) -> list[Value]:
    cells = _cells(node)
    x, w, r = (input_at(node, i) for i in range(3))
    dtype = dtype_of(x)
    work = "float32" if dtype in ("float16", "bfloat16") else dtype
    x = ctx.apply(Transpose((1, 0, 2) if node.attributes.get("layout") else (0, 1, 2)), ctx.apply(Cast(work), x))
    (time, batch, depth), size = shape_of(x), shape_of(r)[-1]
    count, width = len(cells), cells[0].gates * size
    if not unify_shapes(shape_of(w), (count, width, depth)) or not unify_shapes(shape_of(r), (count, width, size)):
        raise fail(node, f"the weights {spell(shape_of(w))} and {spell(shape_of(r))} do not fit {spell(shape_of(x))}")
    inputs, hidden = (
        [ctx.apply(Transpose((1, 0)), ctx.apply(Cast(work), _element(ctx, v, d))) for d in range(count)] for v in (w, r)
    )
    made = _lower(ctx, node, cells, x, list(zip(inputs, hidden, strict=True)), (time, batch, size), work)
    return [ctx.apply(Cast(dtype), value) for value in made]


operator("RNN", since=(1, 7, 14, 22))(_recurrent)
operator("GRU", since=(1, 3, 7, 14, 22))(_recurrent)
operator("LSTM", since=(1, 7, 14, 22))(_recurrent)


@operator("DynamicQuantizeLSTM", since=(1,), domain=DOMAIN)
def _dynamic_quantize_lstm(ctx: Context, node: Node) -> list[Value]:
    """The input of all steps is quantized with one scale, and so is, at each step, the hidden state of the batch."""
    cells, x = _cells(node), input_at(node, 0)
    (time, batch, depth), size = shape_of(x), shape_of(input_at(node, 2))[1]
    matrices = zip(
        _matrices(ctx, node, 1, (len(cells), depth, 4 * size)),
        _matrices(ctx, node, 2, (len(cells), size, 4 * size)),
        strict=True,
    )
    lengths = _lengths(ctx, node, time, batch)
    x = x if lengths is None else ctx.apply(BeforeTheEnd(), x, lengths)
    data = QuantizedTensor(*ctx.apply(DynamicQuantization(), x))
    return _lower(ctx, node, cells, data, list(matrices), (time, batch, size), ended_is_zero=node.wants(0))


def _matrices(ctx: Context, node: Node, index: int, shape: tuple[int, int, int]) -> list[QuantizedTensor]:
    """The weights of each direction; W's scales and zero points are the inputs 8 and 9, R's 10 and 11."""
    weights, position = input_at(node, index), 6 + 2 * index
    if not unify_shapes(shape_of(weights), shape):
        raise fail(node, f"its weights {spell(shape_of(weights))} should be {spell(shape)}")
    parts = []
    for value in (input_at(node, position), input_at(node, position + 1)):
        given = shape_of(value)
        whole = len(given) == 1 or given[1:] == (1,)
        if not unify_shapes(given[:1] if whole else given, shape[:1] if whole else (shape[0], shape[2])):
            raise fail(node, f"{spell(given)} scales do not fit the weights {spell(shape)}, by direction or by column")
        parts.append(
            [ctx.apply(Reshape(() if whole else (1, shape[2])), _element(ctx, value, d)) for d in range(shape[0])]
        )
    return [
        QuantizedTensor(_element(ctx, weights, d), scale, zero)
        for d, (scale, zero) in enumerate(zip(*parts, strict=True))
    ]
